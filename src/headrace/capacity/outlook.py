"""One resource of one host: its peak, its knee, how it grows, and until when it lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.intervals import Interval
from headrace.capacity.capacity import AT_LEAST, STOCKS
from headrace.capacity.model import Resource

MONTH_DAYS = 30.4
#: What was seen so many days ago is how it is now.
RECENT_DAYS = 7


class State(StrEnum):
    NOW = "full now"
    MAYBE = "may be full now"  # beyond a knee that is only a lower bound
    DATED = "dated"
    NEVER = "does not grow"
    LATER = "later than can be said"
    NO_DATE = "too short a history for a date"


@dataclass(frozen=True)
class Growth:
    """``level``: the peak of the busiest day of a week, at the end; ``slope`` per day; both as logarithms if
    growth ``is_share``: the same share every day. ``days`` were used.
    """

    level: Interval
    slope: Interval
    days: int
    is_share: bool

    @property
    def peak(self) -> float:
        return math.exp(self.level.estimate) if self.is_share else self.level.estimate

    @property
    def a_month(self) -> Interval:
        """As a share of the peak."""
        return self.within(MONTH_DAYS)

    def within(self, days: float) -> Interval:
        """By how much the peak grows in so many days, as a share of it."""

        def of(slope: float | None) -> float | None:
            if slope is None:
                return None
            if self.is_share:
                return math.expm1(min(days * slope, 50.0))
            return days * slope / self.peak if self.peak > 0 else 0.0

        found = of(self.slope.estimate)
        assert found is not None
        return Interval(found, of(self.slope.low), of(self.slope.high))


@dataclass(frozen=True)
class Seen:
    """The highest use of each of ``days`` as it was, those included that were watched in part: a trend does not
    tell what happened. ``beyond`` of them reached the knee, the last on ``last_s``; the ``highest`` of all was on
    ``on_s`` (starts of days, seconds since 1970, UTC). ``recent``: the highest of the last ``RECENT_DAYS``, of a
    stock of the last day, for what was freed is free; 0 if they were not watched.
    """

    days: int
    highest: float
    on_s: int
    beyond: int
    last_s: int | None
    recent: float


@dataclass(frozen=True)
class Outlook:
    """One resource of one host. ``peak``: the highest use of a usual day now, or without ``growth`` the highest
    that was seen; ``mean`` over all time; both in
    the resource's unit. ``full_at``: use at the knee. ``day``: days from the end of the history until it
    is full, with ``low`` and ``high`` (infinite: never); if it ``is_at_least``, then or later.
    """

    resource: Resource
    peak: float
    mean: float
    full_at: Interval
    limit: Interval
    state: State
    seen: Seen
    day: Interval | None = None
    growth: Growth | None = None
    watched: float = 1.0
    limit_from: str = ""
    knee_from: str = ""

    @property
    def is_at_least(self) -> bool:
        """Whether the limit, and with it the knee, is a lower bound."""
        return self.limit_from.startswith(AT_LEAST)

    @property
    def now(self) -> float:
        """The usual peak, or what was seen lately if that is more."""
        return max(self.peak, self.seen.recent)

    @property
    def room(self) -> float:
        """By how much the use of ``now`` may multiply until the knee."""
        return self.full_at.estimate / self.now if self.now > 0 else math.inf

    @property
    def is_stock(self) -> bool:
        """Whether it fills by itself instead of with each call."""
        return self.resource in STOCKS
