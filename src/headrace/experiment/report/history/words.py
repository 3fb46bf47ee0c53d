"""Words for a series of results and for an audit of headrace's verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.experiment.stats.audit import Rate
from headrace.experiment.stats.history import MIN_POINTS, History
from headrace.show import text
from headrace.show.parts import Cell, Cells, Gap, Part, Sentence, Table

#: Most points named in a sentence.
MOST_NAMED = 3


def headline(found: History) -> str:
    """The latest change, or that there is none; and which points lack trials."""
    return f"{_change(found)}{_outliers(found)}{_left_out(found)}"


def _outliers(found: History) -> str:
    """Points that are no level, the latest first."""
    if not found.outliers or len(found.points) < MIN_POINTS:
        return ""
    latest = list(reversed(found.outliers))[:MOST_NAMED]
    named = ", ".join(f"{each.name} ({text.ratio(each.ratio)} times its neighbours)" for each in latest)
    more = len(found.outliers) - len(latest)
    rest = f" and {more} more" if more else ""
    one = "An outlier, no change" if len(found.outliers) == 1 else "Outliers, no changes"
    said = f" {one}: {named}{rest}."
    if found.outliers[-1].at == len(found.points) - 1:
        said += " The latest point may also be a new level: the next ones show it."
    return said


def _left_out(found: History) -> str:
    lacking = [point for point in reversed(found.points) if point.slow]
    texts = [
        f"{point.name} ({len(point.slow)} of {len(point.logs) + len(point.slow) + point.disturbed}: "
        f"{text.short(point.slow[0], 80)})"
        for point in lacking[:MOST_NAMED]
    ]
    more = f" and {len(lacking) - MOST_NAMED} more points" if len(lacking) > MOST_NAMED else ""
    said = f" Trials without a value, which may be the slow ones: {', '.join(texts)}{more}." if texts else ""
    if found.points and found.points[-1].slow:
        said += f" So {found.points[-1].name} may be worse than it looks."
    disturbed = sum(point.disturbed for point in found.points)
    return said + (f" Disturbed and not counted: {disturbed} trials." if disturbed else "")


def _change(found: History) -> str:
    if len(found.points) < MIN_POINTS:
        return (
            f"{len(found.points)} points are too few to distinguish a change from noise: at least "
            f"{MIN_POINTS} are needed."
        )
    noise = f"points vary by {100 * found.noise:.2g}% around their level"
    if found.latest is None:
        return f"No change in {len(found.points)} points; {noise}."
    change = found.latest
    return (
        f"{len(found.changes)} change{'s' if len(found.changes) > 1 else ''} in {len(found.points)} points, "
        f"the last at {change.name}: {text.ratio(change.ratio.estimate)} times the level before "
        f"({text.between(change.ratio)}), {change.verdict}; {noise}."
    )


def rates(found: Sequence[Rate]) -> list[Part]:
    """One line per rate, and the allowed rate."""
    rows: list[Cells] = [
        [r.what, f"{r.studies:,}", f"{r.alarms:,}", f"{100 * r.rate:.1f}%",
         "{:.1f} – {:.1f}%".format(*(100 * end for end in r.interval)),
         Cell("holds", "better") if r.holds else Cell("too many" if r.least is None else "too few", "worse")]
        for r in found
    ]  # fmt: skip
    columns = (
        ("simulated studies of", ""),
        ("studies", "n"),
        ("count", "n"),
        ("rate", "n"),
        ("interval", "n"),
        ("", ""),
    )
    alpha = found[0].alpha if found else 0.05
    limit = max((rate.limit for rate in found), default=alpha)
    said = (
        f"Nothing differs in any of them: {100 * alpha:g}% alarms are allowed, up to {100 * limit:.1f}% can "
        "be chance."
    )
    if any(rate.least is not None for rate in found):
        said += " Power and coverage are wanted, not alarms: they must not be below their least."
    return [Table(columns, rows), Gap(), Sentence(said)]


def rates_json(found: Sequence[Rate]) -> dict[str, Any]:
    return {
        "rates": [
            {**asdict(r), "rate": r.rate, "interval": r.interval, "limit": r.limit, "holds": r.holds}
            for r in found
        ]
    }
