"""How a series of results and an audit of our verdicts are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.analysis.audit import Rate
from headrace.analysis.history import MIN_POINTS, History
from headrace.report import tables, text

_BAR = 24


def headline(found: History) -> str:
    """One sentence: the latest change, or that there is none."""
    if len(found.points) < MIN_POINTS:
        return f"{len(found.points)} points are too few to tell a change from noise: {MIN_POINTS} at least."
    noise = f"points vary by {100 * found.noise:.2g}% about their level"
    if found.latest is None:
        return f"No change in {len(found.points)} points; {noise}."
    change = found.latest
    return (
        f"{len(found.changes)} change{'s' if len(found.changes) > 1 else ''} in {len(found.points)} points, "
        f"the last at {change.name}: {text.ratio(change.ratio.estimate)} times the level before "
        f"({text.between(change.ratio)}), {change.verdict}; {noise}."
    )


def to_json(found: History, response: str) -> dict[str, Any]:
    return {
        "format": 1,
        "response": response,
        "headline": headline(found),
        "noise": found.noise,
        "points": [{"name": p.name, "value": math.exp(p.log), "trials": len(p.logs)} for p in found.points],
        "segments": [list(segment) for segment in found.segments],
        "changes": [asdict(change) for change in found.changes],
    }


def terminal(found: History, response: str) -> RenderableType:
    """The sentence, and a line a point with the changes between them."""
    table = tables.of_columns(
        ("point", False), ("trials", True), (text.clean(response), True), ("", False), ("", False)
    )
    starts = {change.at: change for change in found.changes}
    top = max((p.log for p in found.points), default=0.0)
    for i, point in enumerate(found.points):
        change = starts.get(i)
        note = Text()
        if change is not None:
            colour = {"better": "green", "worse": "red"}.get(change.verdict, "blue")
            note = Text(f"{change.verdict}: {text.ratio(change.ratio.estimate)} x", style=colour)
        bar = "█" * max(1, round(_BAR * math.exp(point.log - top)))
        row = (str(len(point.logs)), text.count(math.exp(point.log)), Text(bar, style="cyan"), note)
        table.add_row(Text(text.clean(point.name)), *row)
    return Group(Text(text.clean(headline(found)), style="bold"), "", table)


def rates(found: Sequence[Rate]) -> RenderableType:
    """A line a rate, and what it may be."""
    table = tables.of_columns(
        ("A/A studies of", False), ("studies", True), ("alarms", True), ("rate", True), ("", False)
    )
    for rate in found:
        verdict = Text("holds", style="green") if rate.holds else Text("too many", style="red")
        table.add_row(rate.what, f"{rate.studies:,}", f"{rate.alarms:,}", f"{100 * rate.rate:.1f}%", verdict)
    alpha = found[0].alpha if found else 0.05
    limit = max((rate.limit for rate in found), default=alpha)
    return Group(
        table,
        "",
        f"Nothing differs in any of them: {100 * alpha:g}% alarms are allowed, up to {100 * limit:.1f}% can be "
        "chance.",
    )


def rates_json(found: Sequence[Rate]) -> dict[str, Any]:
    return {"rates": [{**asdict(r), "rate": r.rate, "limit": r.limit, "holds": r.holds} for r in found]}
