"""The latency table for people (bars on a logarithmic scale) and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.hunt.ladder.published import NEAREST, RUNGS, SOURCES, Ladder, duration, imbalances
from headrace.show.text import clean, count

#: The scale of the bars, from 0.1 ns to 100 ms, and its width in characters.
_DECADES = (-1, 8)
_WIDTH = 27


def to_json(ladder: Ladder) -> dict[str, Any]:
    """The whole table, the published numbers with their sources, and what is out of balance."""
    return {
        **asdict(ladder),
        "imbalances": [asdict(found) for found in imbalances(ladder)],
        "sources": {str(year): source for year, source in SOURCES.items()},
        "nearest": NEAREST,
    }


def terminal(ladder: Ladder) -> RenderableType:
    """A table with one bar per row, what could not be measured, and the sentences."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("rung", "median", "interval", "p99", "min", "n", "2009", "~2020", "0.1 ns … 100 ms"):
        is_number = column not in ("rung", "0.1 ns … 100 ms")
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for rung in ladder.rungs:
        published = (rung.published_2009_ns, rung.published_2020_ns)
        mark = "*" if rung.rung in NEAREST else ""
        table.add_row(
            rung.name,
            duration(rung.median_ns),
            f"{duration(rung.low_ns)} – {duration(rung.high_ns)}",
            duration(rung.p99_ns),
            duration(rung.min_ns),
            count(rung.repetitions),
            *(f"{duration(value)}{mark}" if value else "–" for value in published),
            Text(bar(rung.median_ns), "cyan"),
        )
    parts: list[RenderableType] = [table, Text()]
    for found in imbalances(ladder):
        parts.append(Text.assemble(("! ", "bold yellow"), clean(found.sentence)))
    for rung_name, reason in ladder.missing.items():
        name = RUNGS[rung_name][0] if rung_name in RUNGS else rung_name
        parts.append(Text(f"not measured: {clean(name)}: {clean(reason)}", "dim"))
    parts += [Text(f"doubtful: {clean(spoiled)}", "dim") for spoiled in ladder.spoiled_by]
    parts += [Text(f"{year}: {source}", "dim") for year, source in SOURCES.items()]
    nearest = "; ".join(dict.fromkeys(f"{RUNGS[rung][0]} ({what})" for rung, what in NEAREST.items()))
    parts.append(Text(f"* the nearest published number: {nearest}", "dim"))
    return Group(*parts)


def bar(value_ns: float) -> str:
    """A bar proportional to the logarithm; empty at or below the scale's lower end."""
    if value_ns <= 0:
        return ""
    low, high = _DECADES
    share = (math.log10(value_ns) - low) / (high - low)
    return "█" * round(_WIDTH * min(max(share, 0.0), 1.0))
