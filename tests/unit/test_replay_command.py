"""`headrace replay`: what a pipeline learns from its exit code."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import replay
from headrace.cli.shell import app
from headrace.replayed import Replayed
from headrace.report import replay as report
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
        "set apart: 1 answers that differ because their statements depend on the time, on randomness or on "
        "the server itself (select now())",
        "set apart: 4 answers that differ because their statements ask for their connection id (select "
        "connection_id())",
        "set apart: 3 answers that differ because a KILL interrupted them here or in the recording, ",
        f"! {warning}",
        "mapped: 5 KILL statements, which closed 2 connections of this replay",
        "left out: 2 KILL statements whose target had already finished here",
        "left out: 1 SHUTDOWN and RESTART statements",
    ):
        assert words in said, said
    said_first = report.to_json(replayed)
    assert (said_first["needs"], said_first["doubts"]) == (needs, doubts)
