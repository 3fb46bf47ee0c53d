"""What is usual for a host at a time of day: by it an alert knows what is new.

A job of every night, of every Sunday, or a bottleneck of most days is nothing to wake anybody for. All of it is
read from the hours of the last eight days, so a restart forgets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headrace.history.archive.files import DAY_S, HOUR_S, WEEK_S
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST
from headrace.history.collect.minute import AVAILABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

#: How far back is looked: a week, and the day before it.
SINCE_S = 8 * DAY_S
#: With fewer hours nothing is called new.
LEARNED_HOURS = 24
#: Minutes of an hour that a bottleneck must have held to count as seen in it.
SEEN_MINUTES = 3
#: A bottleneck seen on this many days, or on this many at the same time of day, is usual.
USUAL_DAYS, DAYS_AT_THIS_TIME = 3, 2
#: A mean of fewer calls says little.
FEWEST_CALLS = 30
#: Hours of free space that a trend needs, and points that it is fitted to at most.
TREND_HOURS, MOST_POINTS = 24, 200
#: Answers that are kept.
MOST_KEPT = 10_000


@dataclass(frozen=True)
class Usual:
    """By hour (its start, seconds since 1970). ``limits``: what limited the host -> hour -> minutes; ``classes``:
    class of performance_schema -> hour -> calls and their time in ns; ``seen``: classes of the process list;
    ``looked``: hours in which that was looked at; ``room``: mount point -> hour -> least bytes available."""

    hours: frozenset[int] = frozenset()
    limits: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    classes: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    room: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    looked: frozenset[int] = frozenset()
    #: Answers that a host's looks of an hour share.
    _kept: dict[tuple[str, str, int], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def is_learned(self) -> bool:
        """Whether there is enough of a past to call anything new."""
        return len(self.hours) >= LEARNED_HOURS

    def has_learned_classes(self, is_sampled: bool) -> bool:
        """Whether that source of classes is old enough: all are new to one that was just turned on."""
        if is_sampled:
            return len(self.looked) >= LEARNED_HOURS
        found: bool = self._asked("counted", "", 0.0, self._has_counted)
        return found

    def _has_counted(self, *_: Any) -> bool:
        return len({hour for hours in self.classes.values() for hour in hours}) >= LEARNED_HOURS

    def has_limit(self, limiting: str, at_s: float) -> bool:
        """Whether this bottleneck is usual, or is at this time of day."""
        found: bool = self._asked("limit", limiting, at_s, self._has_limit)
        return found

    def _asked(self, what: str, name: str, at_s: float, answer: Callable[[str, float], Any]) -> Any:
        key = (what, name, int(at_s // HOUR_S))
        if key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = answer(name, (key[2] + 0.5) * HOUR_S)
        return self._kept[key]

    def _has_limit(self, limiting: str, at_s: float) -> bool:
        seen = {hour for hour, minutes in self.limits.get(limiting, {}).items() if minutes >= SEEN_MINUTES}
        now = {hour for hour in seen if _is_this_time(hour, at_s)}
        watched = {_day(hour, at_s) for hour in self.hours if _is_this_time(hour, at_s)}
        if any(_day(hour, at_s) == WEEK_S // DAY_S for hour in now):
            return True
        if len({_day(hour, at_s) for hour in now}) >= min(DAYS_AT_THIS_TIME, max(len(watched), 1)):
            return True
        return len({hour // DAY_S for hour in seen}) >= USUAL_DAYS

    def mean_ns(self, name: str, at_s: float) -> float | None:
        """The highest time per call of a class that is usual at this time of day; None if none is known."""
        found: float | None = self._asked("mean", name, at_s, self._mean_ns)
        return found

    def _mean_ns(self, name: str, at_s: float) -> float | None:
        means = {
            hour: time_ns / calls
            for hour, (calls, time_ns) in self.classes.get(name, {}).items()
            if calls >= FEWEST_CALLS
        }
        if not means:
            return None
        days: dict[int, float] = {}
        for hour, mean in means.items():
            if _is_this_time(hour, at_s):
                day = _day(hour, at_s)
                days[day] = max(days.get(day, 0.0), mean)
        # The highest day may be the one on which it was slow; a week ago it may have been the weekly job.
        highest = sorted(days.values())[: -1 if len(days) > DAYS_AT_THIS_TIME else None]
        return max(median(means.values()), *highest, days.get(WEEK_S // DAY_S, 0.0))

    def full_in_days(self, mount: str, available: float) -> float:
        """Days until a file system is full if it goes on as in the last day, and as in all of the eight; infinite
        if it does not grow, or if that is not known."""
        slope = self._asked("room", mount, 0.0, self._growth)
        return available / -slope / DAY_S if slope < 0 else math.inf

    def _growth(self, mount: str, _: float) -> float:
        """Bytes available per second, as they change: the slower of the two."""
        points = sorted(self.room.get(mount, {}).items())
        if len(points) < TREND_HOURS:
            return 0.0
        t, free = (np.array(column, dtype=float) for column in zip(*points, strict=True))
        last = t > t[-1] - DAY_S
        return max(_slope(t, free), _slope(t[last], free[last]))


def _is_this_time(hour_s: float, at_s: float) -> bool:
    """Whether an hour of another day is the same time of day, or next to it."""
    apart = abs((at_s - hour_s - HOUR_S / 2 + DAY_S / 2) % DAY_S - DAY_S / 2)
    return apart <= 1.5 * HOUR_S and at_s - hour_s > DAY_S / 2


def _day(hour_s: float, at_s: float) -> int:
    """How many days ago."""
    return round((at_s - hour_s - HOUR_S / 2) / DAY_S)


def _slope(t: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Theil and Sen's: one purge, or one large load, does not move it."""
    if len(t) > MOST_POINTS:
        chosen = np.linspace(0, len(t) - 1, MOST_POINTS).astype(int)
        t, values = t[chosen], values[chosen]
    if len(t) < 2:
        return 0.0
    i, j = np.triu_indices(len(t), 1)
    return float(np.median((values[j] - values[i]) / (t[j] - t[i])))


def read(reader: Reader, host: str, now_s: float) -> Usual:
    """Of the hours that ended."""
    until_s = now_s // HOUR_S * HOUR_S
    span = Range(until_s - SINCE_S, until_s)
    hour = f"t_s - t_s % {HOUR_S} AS t"
    states = reader.rows(
        "states",
        f"SELECT {hour}, limiting, SUM(minutes) AS minutes FROM rows WHERE state = 'ok' GROUP BY ALL",
        host,
        span,
    )
    classes = reader.rows(
        "classes",
        f"SELECT source, {hour}, class, SUM(calls) AS calls, SUM(time_ns) AS time_ns FROM rows "
        "WHERE source IN ($counted, $seen) GROUP BY ALL",
        host,
        span,
        counted=PERFORMANCE_SCHEMA,
        seen=PROCESS_LIST,
    )
    counted = [row for row in classes if row["source"] == PERFORMANCE_SCHEMA]
    seen = [row for row in classes if row["source"] == PROCESS_LIST]
    room = reader.rows(
        "metrics",
        f"SELECT {hour}, label, MIN(least) AS least FROM rows WHERE metric = $metric GROUP BY ALL",
        host,
        span,
        metric=AVAILABLE,
    )
    return Usual(
        frozenset(int(row["t"]) for row in states),
        _by((row["limiting"], row["t"], row["minutes"]) for row in states if row["limiting"]),
        _by((row["class"], row["t"], (row["calls"] or 0, row["time_ns"] or 0)) for row in counted),
        _by((row["label"], row["t"], row["least"]) for row in room),
        frozenset(row["class"] for row in seen),
        frozenset(int(row["t"]) for row in seen),
    )


def _by(found: Iterable[tuple[str, int, T]]) -> dict[str, dict[int, T]]:
    names: dict[str, dict[int, T]] = {}
    for name, hour, value in found:
        names.setdefault(name, {})[int(hour)] = value
    return names
