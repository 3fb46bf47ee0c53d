"""Two ranges of time, or two hosts, side by side: classes of statements, the largest difference of load first.

No significance is claimed: calls of one range wait for the same locks, caches and disks, so they are one
observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.history import questions
from headrace.history.archive.reader import Range
from headrace.web import rates, tables
from headrace.web.asked import RANGES, Asked, seconds_of
from headrace.web.listing import Column, Listing, Row
from headrace.web.site import Site

MOST = 100


@dataclass(frozen=True)
class Compared:
    left: Asked
    right: Asked
    left_span: Range
    right_span: Range
    listing: Listing
    resources: Listing


async def compared(site: Site, asked: Asked, query: Mapping[str, str]) -> Compared:
    """``asked`` is the right side; ``with_host`` and ``with_until`` choose the left one [the range before]."""
    span = asked.span()
    until = query.get("with_until", "")[:40]
    left = replace(asked, host=query.get("with_host", asked.host)[:200], until=until)
    end = seconds_of(until) if until else (span.until_s if left.host != asked.host else span.since_s)
    left_span = Range(end - RANGES[asked.range], end).aligned()
    names, left_names = site.names(asked), site.names(left)
    source, _ = await tables.chosen_source(site, asked, names)
    sides = []
    for who, when in ((left_names, left_span), (names, span)):
        rows = await site.ask(questions.class_totals, site.reader, who, when, source)
        time = rates.summed(await rates.times(site, who, when, source))
        sides.append((who, when, {row["class"]: row for row in rows}, time))
    listing = await _classes(site, asked, left, source, sides)
    return Compared(
        left, asked, left_span, span, listing, await _resources(site, left_names, left_span, names, span)
    )


async def _classes(site: Site, asked: Asked, left_asked: Asked, source: str, sides: list[Any]) -> Listing:
    (left_names, left_span, left, left_time), (names, span, right, right_time) = sides
    rows: list[dict[str, Any]] = []
    for name in left.keys() | right.keys():
        loads = [_load(side.get(name), *time) for side, time in ((left, left_time), (right, right_time))]
        rows.append(
            {
                "class": name,
                "source": source,
                "what": "only right" if name not in left else "only left" if name not in right else "both",
                "load_left": loads[0],
                "load_right": loads[1],
                "difference": (loads[1] or 0) - (loads[0] or 0),
                "ratio": questions.share_change(loads[1], loads[0]),
                "mean_left": _mean(left.get(name)),
                "mean_right": _mean(right.get(name)),
            }
        )
    rows.sort(key=lambda row: -abs(row["difference"]))
    rows = rows[: MOST + tables.OWN_CLASSES]
    wanted = [row["class"] for row in rows]
    texts = await site.ask(questions.texts, site.reader, names, span, source, wanted)
    texts = {**await site.ask(questions.texts, site.reader, left_names, left_span, source, wanted), **texts}
    rows = [row for row in rows if tables.is_wanted(asked, tables.with_text(row, texts))][:MOST]
    wanted = [row["class"] for row in rows]
    for key, who, when in (("p99_left", left_names, left_span), ("p99_right", names, span)):
        found = await site.ask(questions.percentiles, site.reader, who, when, source, wanted, 0.99)
        for row in rows:
            row[key] = found.get(row["class"])

    def link(row: Row) -> str:
        side = left_asked if row["what"] == "only left" else asked
        return side.address("/query", source=source, **{"class": row["class"], "sort": "", "q": ""})

    columns = (
        Column("text", "Statement", "code", link=link),
        Column("what", "In", "chip", "only left, only right, or both"),
        Column("load_left", "Load, left", "n", "response time per second, or threads seen"),
        Column("load_right", "Load, right", "n"),
        Column("difference", "Difference", "n"),
        Column("ratio", "Right ÷ left", "ratio"),
        Column("mean_left", "Mean, left", "ms"),
        Column("mean_right", "Mean, right", "ms"),
        Column("p99_left", "p99, left", "ms"),
        Column("p99_right", "p99, right", "ms"),
        Column("class", "Class", "code"),
    )
    note = (
        "Largest difference of load first. No significance is claimed: calls of one range wait for the same "
        "locks, caches and disks, so a range is one observation. To prove a change, run it in blocks."
    )
    return Listing(
        columns, rows, note, "No statement was counted or seen on either side.", {"source": source}
    )


def _load(row: Mapping[str, Any] | None, seconds: float, looks: float) -> float | None:
    if row is None or not seconds:
        return None
    if row["time_ns"] is not None:
        return float(row["time_ns"] / 1e9 / seconds)
    return float(row["seen"] / looks) if row["seen"] and looks else None


def _mean(row: Mapping[str, Any] | None) -> float | None:
    return (
        float(row["time_ns"] / row["timed"]) if row and row["time_ns"] is not None and row["timed"] else None
    )


async def _resources(
    site: Site, left_names: list[str], left_span: Range, names: list[str], span: Range
) -> Listing:
    """Of one host on each side."""
    columns = (
        Column("name", "Resource"),
        Column("used_left", "Used, left", "share"),
        Column("used_right", "Used, right", "share"),
        Column("saturated_left", "Saturated, left", "share", "share of minutes"),
        Column("saturated_right", "Saturated, right", "share", "share of minutes"),
    )
    if len(left_names) != 1 or len(names) != 1:
        return Listing(columns, [], empty="Choose a host to compare its resources.")
    sides = [
        {
            f"{row['resource']} {row['instance']}".strip(): row
            for row in await site.ask(questions.resources, site.reader, who, when)
        }
        for who, when in ((left_names[0], left_span), (names[0], span))
    ]
    rows = []
    for name in sorted(sides[0].keys() | sides[1].keys()):
        row: dict[str, Any] = {"name": name}
        for side, word in zip(sides, ("left", "right"), strict=True):
            found = side.get(name)
            row[f"used_{word}"] = found["used"] if found else None
            row[f"saturated_{word}"] = found["saturated"] / found["minutes"] if found else None
        rows.append(row)
    return Listing(columns, rows, empty="No minute of either side was sampled.")
