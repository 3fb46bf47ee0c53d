"""What ``headrace digest`` and ``headrace recording`` say of sources that are empty or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.base.errors import PlanError, Refused
from headrace.cli.shell import app
from headrace.traffic import traffic
from headrace.traffic.commands import digest, recording


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "no.log: bad input: No such file or directory (os error 2)",
            "db1: cannot read no.log: No such file",
        ),
        # Errors of anything else than a source stay as they are.
        ("--since: bad input: give UTC", "db1: --since: bad input: give UTC"),
    ],
)
def test_a_source_that_is_not_there_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, message: str, said: str
) -> None:
    async def digest_hosts(*_: Any) -> Any:
        raise PlanError(message, place="db1")

    monkeypatch.setattr(traffic, "digest_hosts", digest_hosts)
    with pytest.raises(PlanError) as caught:
        digest._digest_hosts(["no.log"], digest.Question())
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("an_event", "said"), [(None, "883 bytes"), (572.0, "883 bytes, 572.0 per event")])
def test_a_recording_without_events_has_no_bytes_per_event(an_event: float | None, said: str) -> None:
    sized = {"bytes": 883, "bytes_per_event": an_event}
    info: dict[str, Any] = {
        **sized, "file": "a.rec", "first_start_ns": None, "last_start_ns": None, "segments": [], "events": 0,
        "blocks": {"events": 0, "has_index": True}, "coverage": {},
    }  # fmt: skip
    assert dict(recording._rows_of_info(info))["size"] == said


def test_a_recorder_that_ended_early_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it recorded is kept and said, then why it ended; the exit code was 0."""
    totals = {"events": 5, "redacted_events": 0, "coverage": {}}
    summary = {
        "bytes": 9,
        "bytes_per_event": 1.8,
        "duration_s": 1.0,
        "with_literals": False,
        "totals": totals,
    }
    early = Refused("the capture on eth0 ended by itself: it used 40% of a core", place="db1")
    monkeypatch.setattr(recording, "_record", lambda *_: (summary, early))
    done = CliRunner().invoke(app, ["record", "--interface", "eth0", "-o", str(tmp_path / "a.rec")])
    assert done.exception is early
    assert "5 in 1.0 s" in done.stdout


@pytest.mark.parametrize(
    "words", [["digest", "x.log", "--save"], ["digest", "x.log", "--add-to"], ["record", "x.log", "-o"]]
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setattr(digest, "read_sources", None)
    monkeypatch.setattr(recording, "_record", None)
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, [*words, str(tmp_path / "file" / "out")])
    assert done.exit_code == 2, done.output
    assert "directory" in done.output
