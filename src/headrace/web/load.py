"""Load over time: how many sessions were at work on average, what tells them apart, and how many CPUs they have.

From looks at the process list, so that what waits counts as much as what executes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.history import questions
from headrace.history.archive.reader import Range
from headrace.history.archive.tables import PROCESS_LIST
from headrace.web import tables
from headrace.web.asked import Asked
from headrace.web.site import Site

#: What the sessions are told apart by -> its title.
BY: Mapping[str, str] = {
    "wait": "Wait", "class": "Statement", "state": "State", "user": "User", "client": "Client",
}  # fmt: skip
NAMELESS: Mapping[str, str] = {
    "wait": "executes", "class": "statement unknown", "state": "no state", "user": "unknown", "client": "unknown",
}  # fmt: skip
#: Areas that can be told apart; the others are one.
MOST_AREAS = 8
#: Characters of a statement in a legend.
MOST_TEXT = 90


async def load(site: Site, asked: Asked, by: str) -> dict[str, Any]:
    """The areas of the chart, the largest first; ``cpus`` is null where they are not known of every host."""
    by = by if by in BY else "wait"
    names, span = site.names(asked), asked.whole()
    ask, reader = site.ask, site.reader
    classes = await ask(questions.session_classes, reader, names, span)
    texts = await ask(questions.texts, reader, names, span, PROCESS_LIST, classes) if classes else {}
    rows = [tables.with_text({"class": name}, texts) for name in classes]
    own = [] if asked.with_own else [row["class"] for row in rows if row["looks_at_server"]]
    t_s, unit_s, found = await ask(questions.sessions, reader, names, span, by, own)
    labels = {row["class"]: row["text"] for row in rows} if by == "class" else {}
    ordered = sorted(
        ((sum(value or 0.0 for value in values), name, values) for name, values in found.items()),
        reverse=True,
    )
    areas = [
        {
            "name": name,
            "label": (labels.get(name) or name or NAMELESS[by])[:MOST_TEXT],
            "address": _class_address(asked, name) if by == "class" and name else "",
            "mean": values,
        }
        for total, name, values in ordered[:MOST_AREAS]
        if total > 0
    ]
    rest = [values for _, _, values in ordered[MOST_AREAS:]]
    if rest:
        areas.append({"name": "", "label": counted(len(rest), "other"), "address": "", "mean": _sum(rest)})
    return {
        "by": by,
        "unit_s": unit_s,
        "t_s": t_s,
        "lines": areas,
        # Of a time in which nobody was at work, the chart is a line at zero.
        "is_known": bool(found),
        "cpus": await _cpus(site, names, span),
    }


def _class_address(asked: Asked, name: str) -> str:
    return asked.address("/query", source=PROCESS_LIST, sort="", q="", **{"class": name})


def _sum(found: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [
        None if all(value is None for value in point) else math.fsum(value or 0.0 for value in point)
        for point in zip(*found, strict=True)
    ]


async def _cpus(site: Site, names: Sequence[str], span: Range) -> list[float | None] | None:
    """CPUs of the hosts together over time; None if they are not known of each."""
    found = []
    for name in names:
        chart = await site.ask(questions.chart, site.reader, name, "cpus", span)
        if not chart.lines:
            return None
        found.append(chart.lines[0].mean)
    return _sum(found) if found else None
