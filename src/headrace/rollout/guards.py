"""Fixed limits that stop a change at once, before any statistics can: a stretch of one host against its own past.

A limit that trips takes the change back, and the same stretch without it decides: if the host recovers it was the
change, if it does not the host has troubles of its own, and says nothing about the change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headrace.base.counted import counted
from headrace.base.watched import FAILED, HITS, OF_CACHES
from headrace.rollout.judge import Block

#: Threads at work are sampled: a limit is passed only where chance is not the reason.
SIGMAS = 4.0
#: Fewer queries than this in a stretch say nothing about time per query: the counters are too coarse.
LEAST_QUERIES = 50
#: Fewer gets of a probe have no middle that a limit could be of.
LEAST_GETS = 20
#: A hit rate that falls by so many points stops at once.
MOST_POINTS = 10.0


@dataclass(frozen=True)
class Window:
    """What a server did in a stretch. ``busy_s``: thread-seconds that it worked on client statements (threads
    running, sampled); ``lag_s`` None: it does not replicate, or does not know; ``broken``: why replication stands.
    """

    seconds: float
    queries: float
    busy_s: float
    errors: float = 0.0
    lag_s: float | None = None
    broken: str = ""
    #: Threads seen at work, over all samples; None: their time was counted, not sampled.
    sightings: float | None = None

    @property
    def is_counted(self) -> bool:
        """Whether all of it is numbers: a comparison with what is none would pass every limit."""
        numbers = (
            self.seconds,
            self.queries,
            self.busy_s,
            self.errors,
            self.lag_s or 0.0,
            self.sightings or 0.0,
        )
        return all(math.isfinite(each) for each in numbers)

    @property
    def per_s(self) -> float | None:
        return self.queries / self.seconds if self.seconds > 0 else None

    @property
    def time_s(self) -> float | None:
        """Server time per query by Little's law: threads at work, over queries per second."""
        if self.queries < LEAST_QUERIES or self.busy_s <= 0:
            return None
        return self.busy_s / self.queries

    @property
    def why_unmeasured(self) -> str:
        """Why it has no time per query, with what would help; empty if it has one."""
        if self.queries < LEAST_QUERIES:
            few = f"{self.queries:.0f} queries in {self.seconds:.3g} s, fewer than {LEAST_QUERIES}"
            return f"{few}: longer blocks (block_s) help"
        if self.busy_s <= 0:
            return (
                f"none of {self.queries:.0f} queries was seen at work, they are too short for the samples: longer "
                "blocks or more samples (block_s, sample_s) help"
            )
        return ""

    @property
    def least_time_s(self) -> float | None:
        """What the time per query is at least, as few sightings as there were: a count of n is off by sqrt(n)."""
        if self.time_s is None or not self.sightings:
            return self.time_s
        return self.time_s * max(1 - SIGMAS / math.sqrt(self.sightings), 0.0)

    @property
    def errors_per_1000(self) -> float:
        return 1000 * self.errors / max(self.queries, 1.0)

    @property
    def usual_s(self) -> float | None:
        """What the limit of time is of."""
        return self.time_s

    @property
    def block(self) -> Block:
        return Block(self.time_s, self.per_s if self.queries >= LEAST_QUERIES else None)

    def own_limit(self, usual: Sequence[Window], limits: Limits) -> str:
        """Why a limit that only servers of its kind have is passed; empty if none is."""
        return ""


@dataclass(frozen=True)
class CacheWindow(Window):
    """What a memcached server did, by a probe of it and its own counters. ``queries`` are keys that its clients
    asked for, ``errors`` connections that it refused; ``response_s`` is the percentile ``response`` of the gets.
    """

    response: str = ""
    response_s: float | None = None
    median_s: float | None = None
    gets: int = 0
    failed: int = 0
    #: By name, in their units; None where it is not known. See ``OF_CACHES``.
    watched: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def time_s(self) -> float | None:
        return self.response_s

    @property
    def usual_s(self) -> float | None:
        return self.median_s

    @property
    def least_time_s(self) -> float | None:
        """The middle of a few gets is not worth a limit."""
        return self.median_s if self.gets >= LEAST_GETS else None

    @property
    def why_unmeasured(self) -> str:
        if self.response_s is None:
            few = f"{counted(self.gets, 'get')} of the probe, too few for {self.response}"
            return f"{few}: longer blocks (block_s) help"
        return ""

    @property
    def block(self) -> Block:
        signs = {each.name: each.worse for each in OF_CACHES}
        watched = {name: None if own is None else signs[name] * own for name, own in self.watched.items()}
        return replace(super().block, watched=watched)

    def own_limit(self, usual: Sequence[Window], limits: Limits) -> str:
        past = [each for each in usual if isinstance(each, CacheWindow)]
        known = [each.watched[FAILED.name] or 0.0 for each in past if FAILED.name in each.watched]
        limit = max(limits.errors_per_1000, 2 * max(known, default=0.0))
        own = self.watched.get(FAILED.name) or 0.0
        if self.failed >= limits.least_errors and own > limit:
            return f"{own:.3g} of 1,000 gets of the probe failed (limit {limit:.3g})"
        before = [rate for each in past if (rate := each.watched.get(HITS.name)) is not None]
        now = self.watched.get(HITS.name)
        if before and now is not None and self.queries >= LEAST_QUERIES and now < min(before) - MOST_POINTS:
            return f"the hit rate is {now:.3g}% instead of {min(before):.3g}% or more"
        return ""


def window_of(content: Mapping[str, Any]) -> Window:
    """From ``asdict``. Raises TypeError for anything else."""
    return (CacheWindow if "response" in content else Window)(**content)


class Limits(BaseModel):
    """``[limits]`` of a stages file. ``times``: time per query relative to the slowest block without the change;
    ``fewer``: queries per second relative to the smallest; errors count only above those of the same host's blocks
    without it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    times: float = Field(default=2.0, gt=1)
    fewer: float = Field(default=4.0, gt=1)
    errors_per_1000: float = Field(default=1.0, ge=0)
    least_errors: int = Field(default=10, ge=1)
    lag_s: float = Field(default=30.0, ge=0)


def tripped(now: Window, usual: Sequence[Window], limits: Limits) -> str:
    """Why the change must be taken back; empty if all is within the limits. ``usual``: blocks without it."""
    if now.broken:
        return now.broken
    if not now.is_counted:
        return "its count is not a number"
    if why := now.own_limit(usual, limits):
        return why
    usual = [each for each in usual if each.is_counted]
    if now.lag_s is not None and now.lag_s > limits.lag_s:
        return f"replication lags {now.lag_s:.0f} s (limit {limits.lag_s:g} s)"
    errors = max((each.errors_per_1000 for each in usual), default=0.0)
    limit = max(limits.errors_per_1000, 2 * errors)
    if now.errors >= limits.least_errors and now.errors_per_1000 > limit:
        return f"{now.errors_per_1000:.3g} errors per 1,000 queries (limit {limit:.3g})"
    times = [each.usual_s for each in usual if each.usual_s]
    if times and now.usual_s and (now.least_time_s or 0.0) > limits.times * max(times):
        what = (
            "in the middle of the probe's gets"
            if isinstance(now, CacheWindow)
            else "of server time per query"
        )
        return (
            f"{now.usual_s * 1e3:.3g} ms {what}, {now.usual_s / max(times):.1f} times the slowest "
            f"block without the change (limit {limits.times:g})"
        )
    rates = [each.per_s for each in usual if each.per_s and each.queries >= LEAST_QUERIES]
    if rates and now.per_s is not None and now.per_s * limits.fewer < min(rates):
        return f"{now.per_s:.3g} queries per second instead of {min(rates):.3g} or more"
    return ""
