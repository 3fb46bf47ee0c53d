"""A series' page: its points, the levels between changes, and the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headrace.base.counted import counted
from headrace.experiment.report.charts import decisions as decision_charts
from headrace.experiment.report.history import words
from headrace.experiment.stats.history import MIN_POINTS, SERIES, History
from headrace.show import text
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.parts import Cell, Cells, Chart, Key, Note, Page, Part, Section, Table, method

#: Width of a terminal's bar in characters.
_BAR = 24

#: The chart has this many of the latest points. The table and the JSON have all.
MOST_POINTS = 2_000


def page_of(found: History, response: str, *, alpha: float, margin: float, is_time_ns: bool = False) -> Page:
    """``is_time_ns``: values are latencies in ns, shown in ms."""
    scale = 1e-6 if is_time_ns else 1.0
    unit = f"{response} [ms]" if is_time_ns else response
    points = _points(found, unit, scale)
    see = "A line is a level: between two changes, points show no differences beyond noise."
    return Page(
        eyebrow="headrace watch",
        title=f"{response} over {counted(len(found.points), 'point')}",
        verdicts=[words.headline(found)],
        keys=list(_keys(found, scale)),
        sections=[
            Section(
                "series",
                "Series",
                "What changed, and what is noise?",
                lambda: _series(found, unit, scale),
                see,
            ),
            Section("points", "Points", "All points", [points], brief=[_brief(found, unit, scale)]),
            _method(alpha, margin),
        ],
        footer="headrace watch --json prints the numbers",
        data={
            "format": 1,
            "response": response,
            "headline": words.headline(found),
            "noise": found.noise,
            "points": [
                {
                    "name": p.name,
                    "value": math.exp(p.log),
                    "trials": len(p.logs),
                    "slow": p.slow,
                    "disturbed": p.disturbed,
                }
                for p in found.points
            ],
            "segments": found.segments,
            "changes": found.changes,
            "outliers": found.outliers,
        },
        notice=_notice(found, response),
    )


def _notice(found: History, response: str) -> Notice:
    """The latest change: earlier ones were told when they were the latest."""
    change = found.latest
    if change is not None:
        conclusion = Conclusion(change.verdict)
    else:
        conclusion = (
            Conclusion.NOTHING_FOUND if len(found.points) >= MIN_POINTS else Conclusion.NOT_ENOUGH_DATA
        )
    # What is left of the latest point may be its fast trials: only that it is worse can be said of it.
    if conclusion is not Conclusion.WORSE and found.points and found.points[-1].slow:
        conclusion = Conclusion.NOT_ENOUGH_DATA
    return Notice(
        kind="watch",
        subject=response,
        conclusion=conclusion,
        headline=words.headline(found),
        effects=(Told(change.name, response, change.ratio, change.verdict),) if change else (),
        counts={"points": len(found.points), "changes": len(found.changes)},
    )


def _brief(found: History, unit: str, scale: float) -> Table:
    """One line per point, with the changes between them."""
    starts = {change.at: change for change in found.changes}
    far = {each.at: "outlier" for each in found.outliers}
    top = max((p.log for p in found.points), default=0.0)
    rows: list[Cells] = []
    for i, point in enumerate(found.points):
        change = starts.get(i)
        said = f"{change.verdict}: {text.ratio(change.ratio.estimate)} x" if change else far.get(i, "")
        bar = "█" * max(1, round(_BAR * math.exp(point.log - top)))
        value = text.count(scale * math.exp(point.log))
        note = Cell(said, text.CHIP[change.verdict] if change else "")
        rows.append([point.name, str(len(point.logs)), value, Cell(bar, style="cyan"), note])
    return Table((("point", ""), ("trials", "n"), (unit, "n"), ("", ""), ("", "")), rows)


def _level(found: History, start: int, end: int, scale: float) -> float:
    far = {each.at for each in found.outliers}
    own = range(start, end)
    logs = [found.points[at].log for at in own if at not in far] or [found.points[at].log for at in own]
    return scale * math.exp(math.fsum(logs) / len(logs))


def _keys(found: History, scale: float) -> Iterator[Key]:
    if not found.points:
        return
    start, end = found.segments[-1]
    yield Key(
        "Level now",
        text.count(_level(found, start, end, scale)),
        f"since {text.short(found.points[start].name)}",
    )
    if found.latest is None:
        yield Key("Changes", "none", f"in {counted(len(found.points), 'point')}")
    else:
        yield Key(
            "Last change",
            f"{text.ratio(found.latest.ratio.estimate)} ×",
            f"{text.between(found.latest.ratio)} · {found.latest.verdict}",
            text.CHIP[found.latest.verdict],
        )
    yield Key("Noise of one point", text.plus_minus(found.noise or None), "around its level")


def _series(found: History, unit: str, scale: float) -> Iterator[Part]:
    if len(found.points) < MIN_POINTS:
        yield Note(
            f"Distinguishing a change from noise takes at least {MIN_POINTS} points.", is_attention=True
        )
    if not found.points:
        return
    first = max(0, len(found.points) - MOST_POINTS)
    shown = found.points[first:]
    if first:
        yield Note(f"The chart has the latest {MOST_POINTS:,} points; {first:,} older points are omitted.")
    levels = [
        (max(a, first) - first, b - first, _level(found, a, b, scale)) for a, b in found.segments if b > first
    ]
    changes = [
        (c.at - first, f"{text.ratio(c.ratio.estimate)} ×", f"@{{{text.CHIP[c.verdict]}}}")
        for c in found.changes
        if c.at > first
    ]
    yield Chart(
        decision_charts.series(
            [p.name for p in shown],
            [[scale * math.exp(v) for v in p.logs] for p in shown],
            [scale * math.exp(p.log) for p in shown],
            levels,
            changes,
            unit,
        ),
        legend=_legend(found),
    )
    if found.changes:
        yield _changes(found, scale)


def _legend(found: History) -> Sequence[tuple[str, str, str]]:
    legend = [("point", "@{accent}", "●"), ("level", "@{soft}", "")]
    legend += [("one trial", "@{muted}", "·")] if any(len(p.logs) > 1 for p in found.points) else []
    kinds = dict.fromkeys(c.verdict for c in found.changes)
    return legend + [(f"change: {v}", f"@{{{text.CHIP[v]}}}", "dash") for v in kinds]


def _changes(found: History, scale: float) -> Table:
    rows: list[Sequence[str | Cell]] = []
    for i, change in enumerate(found.changes):
        before, after = found.segments[i], found.segments[i + 1]
        rows.append(
            (
                change.name,
                text.count(_level(found, *before, scale)),
                text.count(_level(found, *after, scale)),
                text.ratio(change.ratio.estimate),
                text.between(change.ratio),
                f"{change.p:.2g}",
                Cell(str(change.verdict), text.CHIP[change.verdict]),
            )
        )
    columns = (
        ("from", ""),
        ("level before", "n"),
        ("level after", "n"),
        ("ratio", "n"),
        ("interval", "n"),
        ("p", "n"),
        ("", ""),
    )
    return Table(columns, rows, "Changes")


def _points(found: History, unit: str, scale: float) -> Table:
    starts = {change.at: change for change in found.changes}
    far = {each.at: f"outlier, {text.ratio(each.ratio)} × its neighbours" for each in found.outliers}
    rows: list[Sequence[str | Cell]] = []
    for i, point in enumerate(found.points):
        change = starts.get(i)
        note = (
            Cell(f"{change.verdict}, {text.ratio(change.ratio.estimate)} ×", text.CHIP[change.verdict])
            if change
            else Cell(far.get(i, ""))
        )
        rows.append((point.name, str(len(point.logs)), text.count(scale * math.exp(point.log)), note))
    columns = (("point", ""), ("trials", "n"), (unit, "n"), ("", ""))
    return Table(columns, rows, f"{counted(len(rows), 'point')} in order", is_folded=len(rows) > 30)


def _method(alpha: float, margin: float) -> Section:
    lines = (
        (
            "A change",
            "is one that explains more of the series than the largest in noise: in all but "
            f"{100 * alpha:g}% of {SERIES:,} noise series, fewer for short ones. They are made of this series: "
            "the deviations of its points from their levels, with random signs, and with as much carried over "
            "from point to point as the series itself may have.",
        ),
        (
            f"{100 * alpha:g}% is for one look.",
            "Earlier looks are not remembered: a series that is looked at every night raises a false alarm in "
            "some year more often than that. A second alarm on the next night says more than the first.",
        ),
        (
            "One slow point is not a change:",
            "a point far from those on both sides of it is named as an outlier, and counts only as far as noise "
            "reaches.",
        ),
        (
            "Better, worse, equivalent:",
            "better and worse mean that the interval excludes 1; equivalent means certainly smaller than "
            f"{100 * margin:g}%, so it does not matter.",
        ),
        (
            "No change",
            "does not mean that everything is unchanged: with few points or much noise a small change is "
            "invisible. The noise above shows what is detectable.",
        ),
        (
            "A machine that drifts",
            "changes, too. Slow waves look like noise that carries over and raise few alarms, but a lasting "
            "step in the machine's speed counts as a change like any other. Measure the old version next to "
            "the new one with headrace run.",
        ),
        (
            "Sources:",
            "Wu 1986, Annals of Statistics 14 (random signs); Auger & Lawrence 1989, Bulletin of Mathematical "
            "Biology 51 (all changes together); Daly et al. 2020, ICPE (in continuous integration).",
        ),
    )
    return Section("method", "Method", "How to read it", [method(lines)])
