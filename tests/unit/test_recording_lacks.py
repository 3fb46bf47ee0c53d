"""What a recording of a running application lacks is said first, with what gives it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from headrace.cli.shell import app
from headrace.traffic.commands.recording import lacks
from headrace.traffic.report.words import position_in_words


def test_statements_prepared_before_are_told_with_their_share_and_the_remedy() -> None:
    said = lacks({"unknown_statements": 5100, "midstream_sessions": 7}, 5102)
    assert len(said) == 2
    assert said[0].startswith("5,100 of 5,102 events (100%) execute statements that were prepared before")
    assert "let the application's pool open new connections" in said[0]
    assert "long_query_time = 0" in said[0]
    assert "performance_schema tells what its connections have prepared" in said[0]
    assert said[1].startswith("7 sessions were open before the recording began")
    assert "--mysql-database" in said[1]


def test_a_position_is_of_a_capture_and_of_nothing_older(tmp_path: Path) -> None:
    argv = ["record", "slow.log", "--mysql-socket", "/s", "-o", str(tmp_path / "x.rec")]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 2
    assert "that needs --interface" in done.output
    unknown = {"problem": "the server writes no binary log"}
    assert position_in_words(unknown) == "unknown: the server writes no binary log"


def test_one_is_one_and_a_whole_recording_lacks_nothing() -> None:
    assert lacks({"midstream_sessions": 1}, 9)[0].startswith("1 session was open before")
    assert lacks({"unknown_statements": 0}, 9) == []


def test_values_whose_types_were_sent_before_are_told() -> None:
    [said] = lacks({"unbound_executions": 1, "joined_sessions": 3}, 4)
    assert said.startswith("1 of 4 events (25%) execute statements that were prepared before")
    assert "A digest has them; a replay leaves them out" in said


def test_a_recording_of_nothing_says_where_the_statements_may_be() -> None:
    [said] = lacks({"packets": 0}, 0)
    assert said.startswith("Nothing was recorded.")
    assert all(word in said for word in ("Unix socket", "--port", "slow_query_log"))
    # These have a row of their own, and are the reason.
    assert lacks({"tls_sessions": 4}, 0) == []
