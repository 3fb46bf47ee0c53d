"""Throughput and p99 over time, one card per treatment; all cards of a condition share their axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.base.model import TrialState
from headrace.experiment.report import series, tables
from headrace.experiment.report.charts.trials import Line, pace
from headrace.experiment.report.series import Floats, highest
from headrace.experiment.report.view import View
from headrace.experiment.store import TrialRecord
from headrace.show import text
from headrace.show.parts import Chart, Heading, Legend, Marks, Part, Row, Section, Sentence, Span

#: With more trials than this, one median line is drawn over the band.
MAX_TRIAL_LINES = 12

Tops = tuple[float, tuple[float, float]]


def section(view: View) -> Section:
    return Section(
        "time", "Over time", "Was each configuration's throughput steady?", lambda: parts(view, "a condition")
    )


def parts(view: View, group_word: str = "") -> Iterator[Part]:
    """``group_word`` names the group that shares axes; "" if there is only one."""
    cards = [(group, _cards(view, group)) for group in view.groups]
    if not any(found for _, found in cards):
        return
    saw = "a sawtooth is flushing or checkpoints; " if group_word else ""
    shared = f"All charts of {group_word} share their axes." if group_word else "All charts share their axes."
    yield Sentence(
        f"A steady line is a trial in steady state; {saw}separate lines are trials that disagree. The area "
        f"spans the slowest and fastest second of all trials. {_how(view)} {shared}"
    )
    yield Marks(_legend("" if group_word else ", including the search"))
    for group, found in cards:
        if group.condition and found:
            yield Heading(group.condition, "condition")
        if found:
            yield Row(found, is_cards=True)


def _legend(more: str) -> Legend:
    return [
        ("median trial", "@{accent}", "thick"),
        (f"other trials{more}", "@{accent}", ""),
        ("invalid, not analysed", "@{worse}", "dot"),
        ("warm-up, dropped", "@{warmup}", "warm"),
    ]


def _how(view: View) -> str:
    """How lines were computed from seconds."""
    width_s = view.evidence.pace_grid.width_s
    if view.evidence.p99_is_exact:
        p99 = "p99 is exact, from the merged histograms"
    elif width_s > 1:
        p99 = "p99 is the highest value that the workload's program printed within a point"
    else:
        p99 = "p99 is what the workload's program printed"
    return f"One point is {text.seconds(width_s)}; {p99}."


def _cards(view: View, group: tables.Group) -> list[Chart]:
    paces = view.evidence.paces
    records = {
        row.treatment: [r for r in view.evidence.of_treatment(row.treatment) if r.number in paces]
        for row in group.rows
    }
    tops = _tops([paces[r.number] for own in records.values() for r in own])
    return [_card(view, row, records[row.treatment], tops) for row in group.rows if records[row.treatment]]


def _tops(paces: Sequence[series.Pace]) -> Tops:
    top = max((highest(p.fastest) for p in paces), default=1.0)
    p99_ms = np.concatenate([p.p99_ns for p in paces] or [np.empty(0)]) / 1e6
    p99_ms = p99_ms[np.isfinite(p99_ms) & (p99_ms > 0)]
    span = (float(p99_ms.min()) / 1.3, float(p99_ms.max()) * 1.3) if len(p99_ms) else (0.1, 10.0)
    return top, span


def _card(view: View, row: tables.ResultRow, records: Sequence[TrialRecord], tops: Tops) -> Chart:
    paces = view.evidence.paces
    sound = [r for r in records if r.state is TrialState.COMPLETE]
    disturbed = [r for r in records if r.state is not TrialState.COMPLETE]
    shown = sound if len(sound) <= MAX_TRIAL_LINES else []
    main = view.evidence.representatives.get(row.treatment)
    lines, p99_ms = [], []
    for record in [*shown, *disturbed]:
        style = _style(record, main)
        lines.append(Line(f"trial {record.number}", paces[record.number].mean, *style))
        p99_ms.append(Line(f"trial {record.number}", paces[record.number].p99_ns / 1e6, *style))
    band = None
    if sound:
        low = np.fmin.reduce([paces[r.number].slowest for r in sound])
        high = np.fmax.reduce([paces[r.number].fastest for r in sound])
        band = (low, high)
    if len(sound) > MAX_TRIAL_LINES:
        middle = f"median of {len(sound)} trials"
        means = _median([paces[r.number].mean for r in sound])
        slow_ms = _median([paces[r.number].p99_ns for r in sound]) / 1e6
        lines.insert(0, Line(middle, means, "@{accent}", 1.8))
        p99_ms.insert(0, Line(middle, slow_ms, "@{accent}", 1.8))
    if not any(np.isfinite(line.y).any() for line in p99_ms):
        p99_ms = []
    figure = pace(view.evidence.pace_grid, lines, p99_ms, band, tops)
    return Chart(figure, head=_head(row, len(sound), len(disturbed)))


def _head(row: tables.ResultRow, sound: int, disturbed: int) -> list[str | Span]:
    head: list[str | Span] = [Span(row.configuration, "strong")]
    effect = row.effects.get(tables.THROUGHPUT)
    if row.is_baseline:
        head.append(Span("baseline", "chip"))
    elif effect:
        head.append(Span(f"{text.ratio(effect.ratio.estimate)} ×", f"chip {text.CHIP[effect.verdict]}"))
    counted = f"{sound} trial{'' if sound == 1 else 's'}" + (f", {disturbed} invalid" if disturbed else "")
    return [*head, Span(counted, "aside")]


def _style(record: TrialRecord, main: TrialRecord | None) -> tuple[str, float, str]:
    if record.state is not TrialState.COMPLETE:
        return "@{worse}", 1.2, "dot"
    if main is not None and record.number == main.number:
        return "@{accent}", 1.8, "solid"
    return "@{accent/0.45}", 1.0, "solid"


def _median(arrays: Sequence[Floats]) -> Floats:
    """The lower median of the trials at each time: a measured value, never a mean of percentiles."""
    stacked = np.stack(arrays)
    present = np.isfinite(stacked).any(axis=0)
    middle = np.full(stacked.shape[1], np.nan)
    middle[present] = np.nanquantile(stacked[:, present], 0.5, axis=0, method="lower")
    return middle
