"""Words for a series of results and for an audit of headrace's verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.analysis.audit import Rate
from headrace.analysis.history import MIN_POINTS, History
from headrace.report import text
from headrace.report.parts import Cell, Cells, Gap, Part, Sentence, Table


def headline(found: History) -> str:
    """One sentence: the latest change, or that there is none."""
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
         Cell("holds", "better") if r.holds else Cell("too many", "worse")]
        for r in found
    ]  # fmt: skip
    columns = (("simulated studies of", ""), ("studies", "n"), ("count", "n"), ("rate", "n"), ("", ""))
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
    return {"rates": [{**asdict(r), "rate": r.rate, "limit": r.limit, "holds": r.holds} for r in found]}
