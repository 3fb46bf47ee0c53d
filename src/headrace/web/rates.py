"""Query classes per second: their sums divided by the time that was watched."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.web.listing import Row


def over_time(points: Sequence[Row | None], watched_s: Sequence[float]) -> list[Row | None]:
    """A class over time: of each point its load, calls per second and threads, in the time that was watched.

    The newest point has only begun, and others have gaps: what nobody watched was not idle.
    """
    return [
        None
        if point is None or not seconds
        else {
            "load": None if point["time_ns"] is None else point["time_ns"] / 1e9 / seconds,
            "calls": None if point["calls"] is None else point["calls"] / seconds,
            "threads": point["seen"] / point["looks"] if point["looks"] else None,
        }
        for point, seconds in zip(points, watched_s, strict=False)
    ]
