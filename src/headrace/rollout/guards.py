"""Fixed limits that stop a change at once, before any statistics can: a stretch of one host against its own past.

A limit that trips takes the change back, and the same stretch without it decides: if the host recovers it was the
change, if it does not the host has troubles of its own, and says nothing about the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from headrace.rollout.judge import Block

#: Threads at work are sampled: a limit is passed only where chance is not the reason.
SIGMAS = 4.0
#: Fewer queries than this in a stretch say nothing about time per query: the counters are too coarse.
LEAST_QUERIES = 50


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
    def block(self) -> Block:
        return Block(self.time_s, self.per_s if self.queries >= LEAST_QUERIES else None)


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
    usual = [each for each in usual if each.is_counted]
    if now.lag_s is not None and now.lag_s > limits.lag_s:
        return f"replication lags {now.lag_s:.0f} s (limit {limits.lag_s:g} s)"
    errors = max((each.errors_per_1000 for each in usual), default=0.0)
    limit = max(limits.errors_per_1000, 2 * errors)
    if now.errors >= limits.least_errors and now.errors_per_1000 > limit:
        return f"{now.errors_per_1000:.3g} errors per 1,000 queries (limit {limit:.3g})"
    times = [each.time_s for each in usual if each.time_s]
    if times and now.time_s and (now.least_time_s or 0.0) > limits.times * max(times):
        return (
            f"{now.time_s * 1e3:.3g} ms of server time per query, {now.time_s / max(times):.1f} times the slowest "
            f"block without the change (limit {limits.times:g})"
        )
    rates = [each.per_s for each in usual if each.per_s and each.queries >= LEAST_QUERIES]
    if rates and now.per_s is not None and now.per_s * limits.fewer < min(rates):
        return f"{now.per_s:.3g} queries per second instead of {min(rates):.3g} or more"
    return ""
