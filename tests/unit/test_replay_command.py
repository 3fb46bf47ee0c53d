"""`headrace replay`: what a pipeline learns from its exit code."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import replay
from headrace.cli.shell import app
from headrace.replayed import Replayed

WINDOW = {"window_start_ns": 0, "window_end_ns": 1_000_000_000}
SAME = {"compared": 5, "different": 0, "classes_different": 0}
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
