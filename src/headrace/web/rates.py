"""Query classes per second and per look: their sums divided by what was watched."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.history import questions
from headrace.history.archive.reader import Range
from headrace.history.archive.tables import PROCESS_LIST
from headrace.web.listing import Row
from headrace.web.site import Site

#: Seconds that were watched, and looks at the process list.
Time = tuple[float, float]


async def times(
    site: Site, names: Sequence[str], span: Range, source: str, most: int = questions.SPARK_POINTS
) -> list[Time]:
    """What the sums of each point are divided by."""
    seconds = await site.ask(questions.watched_over_time, site.reader, names, span, most)
    looks = [0.0] * len(seconds)
    if source == PROCESS_LIST:
        looks = await site.ask(questions.looks_over_time, site.reader, names, span, source, most)
    return list(zip(seconds, looks, strict=True))


def summed(found: Sequence[Time]) -> Time:
    return sum(seconds for seconds, _ in found), sum(looks for _, looks in found)


def over_time(points: Sequence[Row | None], found: Sequence[Time]) -> list[Row | None]:
    """A class over time: of each point its load, calls per second and threads, in the time that was watched.

    The newest point has only begun, and others have gaps: what nobody watched was not idle.
    """
    return [
        None
        if point is None or not seconds
        else {
            "load": None if point["time_ns"] is None else point["time_ns"] / 1e9 / seconds,
            "calls": None if point["calls"] is None else point["calls"] / seconds,
            "threads": point["seen"] / looks if point["seen"] is not None and looks else None,
        }
        for point, (seconds, looks) in zip(points, found, strict=False)
    ]
