"""A report in the terminal, and numbers and captured text in words."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headrace.base.intervals import Interval
from headrace.base.model import Role, TrialSpec
from headrace.experiment.report import progress, views
from headrace.experiment.runner import Note, Step, TrialEnded, TrialStarted
from headrace.experiment.stats.result import Comparison
from headrace.experiment.store import ExperimentFolder
from headrace.host.command import on_one_screen
from headrace.show import text
from tests import synthetic
from tests.written import Written, assert_harmless, printed, shown


@pytest.mark.parametrize(
    ("width", "present", "absent"),
    [(80, ["ratio", "verdict", "A/A floor"], ["p50 ms"]), (120, ["p50 ms", "p99.9 ms"], ["max ms"]),
     (200, ["p99.99 ms", "max ms", "blocks needed"], [])],
)  # fmt: skip
def test_the_table_fits_the_terminal(
    ladder: Written, width: int, present: list[str], absent: list[str]
) -> None:
    lines = shown(ladder, width).splitlines()
    assert max(map(len, lines)) <= width
    header = next(line for line in lines if line.startswith("configuration"))
    assert all(name in header for name in present)
    assert not any(name in header for name in absent)
    row = next(line for line in lines if line.startswith("ALL  "))
    assert "better" in row
    assert "±" in row
    assert any("1 invalid (trial 9)" in line for line in lines)


@pytest.mark.parametrize("width", [80, 200])
def test_hostile_text_does_not_reach_the_terminal_raw(hostile: Written, width: int) -> None:
    out = shown(hostile, width)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\u202e" not in out
    assert "[bold red]x[/]" in shown(hostile, 400)
    assert "\x1b[31mred" not in shown(hostile, width, colour=True)
    assert max(map(len, out.splitlines())) <= width


def test_hostile_text_does_not_reach_any_view_raw(hostile: Written) -> None:
    evil = synthetic.HOSTILE
    design = replace(hostile.folder.design, name=evil, base={evil: evil})
    first = f"Unpaired: {evil}"
    comparison = Comparison(
        a=evil, b=evil, alpha=0.05, equivalence=0.03, effects=hostile.analysis.effects, only_in_a=(),
        only_in_b=(), notes=(evil,), headline=first,
    )  # fmt: skip
    facts = hostile.folder.facts("f" * 64)
    for view in (
        views.design(design, 1.0),
        views.status(ExperimentFolder(hostile.folder.path, design), []),
        views.comparison(comparison),
        on_one_screen(facts),
    ):
        assert_harmless(printed(view))


def test_hostile_text_does_not_reach_the_progress_display_raw(hostile: Written) -> None:
    out = io.StringIO()
    evil = synthetic.HOSTILE
    console = Console(file=out, width=500, force_terminal=False)
    with progress.Watcher(console) as watcher:
        watcher.listen(Note(f"skipped {evil}:\nsecond line"))
        watcher.listen(Step(evil))
        for record in hostile.folder.trials():
            watcher.listen(TrialEnded(record, 100.0, 1, 9, 60.0))
    assert_harmless(out.getvalue())
    assert "\nsecond line\n" in out.getvalue()
    live = Console(file=io.StringIO(), width=500, force_terminal=True, no_color=True)
    with progress.Watcher(live) as watcher:
        watcher.listen(TrialStarted(first_spec(hostile), 1, 9, 60.0))
        watcher.listen(Step(evil))
        assert_harmless(printed(watcher._progress.get_renderable()))


def first_spec(written: Written) -> TrialSpec:
    return replace(written.folder.design.trials[0], role=Role.CANDIDATE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(13612.4, "13,612"), (0, "0"), (42.04, "42.0"), (0.9, "0.900"), (math.nan, "–"), (None, "–")],
)
def test_counts(value: float | None, expected: str) -> None:
    assert text.count(value) == expected


@pytest.mark.parametrize(
    ("value_ns", "expected"),
    [(31_200, "0.0312"), (1_523_000, "1.52"), (12_444_000, "12.4"), (1_204_000_000, "1,204"), (None, "–"),
     (0, "0")],
)  # fmt: skip
def test_milliseconds(value_ns: float | None, expected: str) -> None:
    assert text.milliseconds(value_ns) == expected


@given(st.text(max_size=200))
def test_clean_text_has_no_character_that_hides_or_commands(captured: str) -> None:
    cleaned = text.clean(captured)
    assert cleaned == text.clean(cleaned)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u200f" for c in cleaned)


@pytest.mark.parametrize(
    ("floor", "expected"),
    [(0.0184, "± 1.8%"), (0.241, "± 24%"), (3.46, "± 346%"), (345.0, "> ± 1,000%"), (None, "–")],
)
def test_noise_floors(floor: float | None, expected: str) -> None:
    assert text.plus_minus(floor) == expected


def test_an_interval_of_two_blocks_is_said_in_words() -> None:
    assert text.between(Interval(1.7, 0.0007, 4250.0)) == "too wide to say"
    assert text.between(Interval(1.7, 0.5, 6.65)) == "0.500 – 6.650"
    assert text.between(Interval(1.7, None, None)) == "–"
