"""`headrace replay`: what a pipeline learns from its exit code."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.cli.shell import app
from headrace.traffic.commands import replay
from headrace.traffic.replayed import Replayed
from headrace.traffic.report import replay as report
from tests.written import printed

WINDOW = {"window_start_ns": 0, "window_end_ns": 1_000_000_000}
SAME = {"compared": 5, "different": 0, "classes_different": 0}
NO_TIMES = {"p50_ns": None, "p99_ns": None}
OTHER = {"compared": 5, "different": 2, "classes_different": 1}


@pytest.mark.parametrize(
    ("invalid", "comparison", "code"),
    [
        ([], SAME, 0),
        ([], OTHER, 12),
        (["7 sessions lost their connection"], SAME, 14),
        # What differs after a lost connection may be the fault of that.
        (["7 sessions lost their connection"], OTHER, 14),
    ],
)
def test_an_invalid_replay_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, invalid: list[str], comparison: dict[str, int], code: int
) -> None:
    def play(*_: Any) -> tuple[Replayed, Replayed]:
        replayed = Replayed()
        replayed.add({"kind": "end", **WINDOW, "invalid": invalid, "warnings": [], "comparison": comparison})
        return replayed, replayed

    monkeypatch.setattr(replay, "_play", play)
    done = CliRunner().invoke(app, ["replay", "x.rec", "--check", "--json"])
    assert done.exit_code == code, done.output


def test_what_became_of_kills_is_said_with_its_numbers() -> None:
    reasons = dict.fromkeys(
        (
            "user",
            "query_id",
            "expression",
            "among",
            "variable",
            "not_open",
            "failed",
            "not_connected",
            "over",
        ),
        0,
    )
    replayed = Replayed()
    needs = {"sentence": "headrace needs about 0.30 of 2 cores", "is_enough": False}
    doubts = ["the recording may need 500 connections at once, and this server has 148 left"]
    replayed.add({"kind": "start", "needs": needs, "doubts": doubts})
    line = {"class": "c", "count": 9, "different": 0, "recorded": NO_TIMES, "service": NO_TIMES}
    replayed.add(
        {**line, "kind": "class", "fingerprint": "select now()", "set_apart": 1, "varies_by": "moment"}
    )
    replayed.add(
        {
            **line,
            "kind": "class",
            "fingerprint": "select connection_id()",
            "set_apart": 4,
            "varies_by": "connection",
        }
    )
    kills = {"sent": 5, "left_out": 3, "reasons": {**reasons, "over": 2, "user": 1}, "servers": 1}
    comparison = {**SAME, "set_apart": 8, "own_number": 4, "interrupted": 3}
    warning = "1 KILL statements could not be mapped and were not sent: 1 of a user"
    replayed.add(
        {
            "kind": "end",
            **WINDOW,
            "invalid": [],
            "warnings": [warning],
            "comparison": comparison,
            "replay": {"kills": kills, "sessions_killed": 2, "skipped": {"kills": 4}},
        }
    )
    said = printed(report.terminal(replayed), width=200)
    for words in (
        "set apart: 1 answer that differs because of statements that depend on the time, on randomness or on "
        "the server itself (select now())",
        "set apart: 4 answers that differ because of statements that ask for their connection id (select "
        "connection_id())",
        "set apart: 3 answers that differ because a KILL interrupted a statement here or in the recording, ",
        f"! {warning}",
        "mapped: 5 KILL statements, which closed 2 connections of this replay",
        "left out: 2 KILL statements whose target had already finished here",
        "left out: 1 SHUTDOWN or RESTART statement",
    ):
        assert words in said, said
    said_first = report.to_json(replayed)
    assert (said_first["needs"], said_first["doubts"]) == (needs, doubts)


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (None, "2027-01-15 08:00:00 UTC. headrace record --interface NAME --mysql-* notes the position"),
        (
            {"problem": "", "log": "bin.07", "offset": 4, "gtid": "0-1-5"},
            "08:00:00 UTC, bin.07:4, GTID 0-1-5.",
        ),
        ({"problem": "the server writes no binary log"}, "08:00:00 UTC. headrace record"),
    ],
)
def test_answers_that_differ_name_the_data_to_restore(position: dict[str, Any] | None, words: str) -> None:
    replayed = Replayed()
    comparison = {**OTHER, "began_ns": 1_800_000_000 * 10**9, "position": position}
    replayed.add({"kind": "end", **WINDOW, "invalid": [], "warnings": [], "comparison": comparison})
    said = " ".join(printed(report.terminal(replayed), width=200).split())
    assert f"restore the data as of 2027-01-15 {words.removeprefix('2027-01-15 ')}" in said


def interval(count: int) -> dict[str, Any]:
    took = {"buckets": [[3000, count]], "min_ns": 800_000_000, "max_ns": 900_000_000}
    return {
        "kind": "interval", "t_s": 0.0, "duration_s": 1.0, "operation": "select", "count": count, "errors": 0,
        "rows": count, "bytes": count, "response": took, "service": took, "failed": {"buckets": []},
    }  # fmt: skip


def ended(*lines: dict[str, Any], **more: Any) -> Replayed:
    replayed = Replayed()
    for line in (*lines, {"kind": "end", **WINDOW, "invalid": [], "warnings": [], **more}):
        replayed.add(line)
    return replayed


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("reference", [report.RECORDED, report.FIRST_SERVER])
def test_a_narrow_terminal_drops_columns_and_cuts_no_number(width: int, reference: report.Reference) -> None:
    times = {"p50_ns": 812_345_678, "p99_ns": 1_912_345_678}
    line = {
        "kind": "class", "class": "b31a035c95b35743", "count": 123_456,
        "fingerprint": "select * from orders where " + "x = ? and " * 20,
        "different": 0, "recorded": times, "service": times,
    }  # fmt: skip
    said = printed(report.terminal(ended(interval(123_456), line, comparison=SAME), reference), width=width)
    lines = said.splitlines()
    assert max(map(len, lines)) <= width
    head = next(n for n, each in enumerate(lines) if each.rstrip().endswith("statement"))
    words = (
        lines[head].replace(f"{reference.short} p", f"{reference.short}-p").replace("now p", "now-p").split()
    )
    known = [
        "class",
        "count",
        f"{reference.short}-p50",
        f"{reference.short}-p99",
        "now-p50",
        "now-p99",
        "statement",
    ]
    assert words == [each for each in known if each in words]
    assert {"count", "now-p99"} < set(words)
    cells = {"class": "b31a035c95b35743", "count": "123,456", "p50": "812", "p99": "1,912"}
    numbers = [cells[each.rpartition("-")[2]] for each in words[:-1]]
    assert lines[head + 1].split()[: len(numbers)] == numbers
    (operation,) = (each.split() for each in lines if each.startswith("select "))
    assert operation[:3] == ["select", "123,456", "0"]
    assert "…" not in " ".join(operation)
    if width >= 80:
        assert known[1:] == words[words.index("count") :]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "no statement was sent"),
        ([interval(7)], "the recording has no answers to the statements of this replay"),
    ],
)
def test_a_replay_that_compared_nothing_does_not_say_that_all_is_equal(
    lines: list[dict[str, Any]], why: str
) -> None:
    nothing = {"compared": 0, "different": 0, "classes_different": 0}
    said = printed(report.terminal(ended(*lines, comparison=nothing)), width=200)
    assert f"nothing was compared: {why}" in said
    assert "equal" not in said
    with_colours = io.StringIO()
    Console(file=with_colours, width=200, force_terminal=True).print(
        report.terminal(ended(*lines, comparison=nothing))
    )
    assert "\x1b[32m" not in with_colours.getvalue()


def test_one_of_anything_is_singular() -> None:
    line = {
        "kind": "class", "class": "c", "fingerprint": "select ?", "count": 1, "recorded": NO_TIMES,
        "service": NO_TIMES, "different": 1, "different_error": 1, "different_rows": 0, "different_checksum": 0,
        "different_affected": 0, "different_warnings": 0, "examples": [],
    }  # fmt: skip
    comparison = {"compared": 1, "different": 1, "classes_different": 1}
    kills = {
        "sent": 1,
        "left_out": 0,
        "reasons": dict.fromkeys(("over", "not_connected", "failed"), 1),
        "servers": 0,
    }
    left = dict.fromkeys(
        ("writes", "without_text", "unsupported", "too_long", "refused_logins", "unknown_statements"), 1
    )
    replayed = ended(
        interval(1), line, comparison=comparison,
        replay={"kills": kills, "sessions_killed": 1, "skipped": left},
    )  # fmt: skip
    said = printed(report.terminal(replayed), width=200)
    assert said.startswith("1 statement in 1.0 s")
    assert "1 of 1 answer differs from those of the recording, in 1 class\n" in said
    assert "1 KILL statement, which closed 1 connection of this replay" in said
    assert not re.search(
        r"\b1 (KILL )?(statements|classes|connections|answers|logins|commands|executions)\b", said
    )


def test_statements_that_are_not_sent_are_said_once() -> None:
    """The agent's warnings name them; the list of what was left out had them, too."""
    replayed = Replayed()
    skipped = {"redacted": 2, "too_long": 3, "unknown_statements": 4, "without_text": 5}
    warnings = ["not sent without a password: 2", "too long: 3", "of unknown statements: 4"]
    replayed.add({
        "kind": "end", **WINDOW, "invalid": [], "warnings": warnings, "replay": {"skipped": skipped},
        "lag": NO_TIMES, "lateness": NO_TIMES,
    })  # fmt: skip
    said = printed(report.terminal(replayed))
    assert [line for line in said.splitlines() if line.startswith("left out")] == [
        "left out: 5 statements with incomplete text"
    ]


GONE = {
    "code": 1146,
    "message": "Table 'shop.t' doesn't exist",
    "count": 70,
    "hint": "restore the data first",
}
OTHERS = {**GONE, "message": "Table 'shop.u' doesn't exist", "count": 50}
NO_DATABASE = {
    "code": 1046,
    "message": "No database selected",
    "count": 9,
    "hint": "give --mysql-database NAME",
}


def of_class(count: int, *failures: dict[str, Any], fingerprint: str = "select 1") -> dict[str, Any]:
    named = {"class": "c", "fingerprint": fingerprint}
    return {
        "kind": "class",
        **named,
        "count": count,
        "failures": list(failures),
        "recorded": NO_TIMES,
        "service": NO_TIMES,
    }


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (
            [of_class(70, GONE), of_class(50, OTHERS)],
            "all 120 statements failed: 1146 Table 'shop.t' doesn't exist (and 1 message like it); restore",
        ),
        (
            [of_class(9, NO_DATABASE, fingerprint="insert into t"), of_class(5)],
            "all 9 statements of insert into t failed: 1046 No database selected; give --mysql-database NAME",
        ),
        (
            [of_class(9, NO_DATABASE), of_class(70, GONE), of_class(50, OTHERS)],
            "all 120 statements of 2 classes failed: 1146 Table 'shop.t' doesn't exist (and 1 message like it)",
        ),
        # A statement whose preparation fails is never executed.
        ([of_class(0, GONE)], "all 70 statements failed: 1146"),
        # Some only.
        ([of_class(71, GONE)], "0 statements in 1.0 s"),
    ],
)  # fmt: skip
def test_what_always_fails_comes_first(lines: list[dict[str, Any]], first: str) -> None:
    said = printed(report.terminal(ended(*lines)), width=300)
    assert said.startswith(first), said


def test_what_the_server_refused_comes_first_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "Unknown database 'x\x1b[31m' (server error 1049): the server refused user app, so the replay ended"
    )
    errors = [
        {"operation": "connect", "code": 1049, "message": "Unknown database 'x'", "count": 3},
        *({"operation": "select", "code": code, "message": "no", "count": code} for code in range(10, 15)),
    ]
    refused = {"code": 1049, "message": "Unknown database 'x'", "user": "app", "database": "x", "hint": None}
    late = ["7 sessions lost their connection"]
    replayed = ended(refused=refused, invalid=[words, *late], errors=errors)
    said = printed(report.terminal(replayed), width=300)
    assert said.startswith("Unknown database 'x\\x1b[31m' (server error 1049)"), said
    assert said.count("so the replay ended") == 1
    assert "invalid: 7 sessions" in said
    assert "error 14 no: 14 times in select" in said
    assert "and 1 other error: --json lists them" in said
    monkeypatch.setattr(replay, "_play", lambda *_: (replayed, replayed))
    for words_more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["replay", "x.rec", *words_more])
        assert done.exit_code == 6, done.output
        assert "Unknown database" in done.output


def test_who_cannot_connect_is_told_why_first() -> None:
    errors = [{"operation": "connect", "code": 1040, "message": "Too many connections", "count": 12}]
    said = printed(report.terminal(ended(invalid=["3 statements were due"], errors=errors)), width=300)
    assert said.startswith("sessions could not connect, 12 times: 1040 Too many connections\n"), said
