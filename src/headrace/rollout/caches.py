"""A host that is there for memcached: what clients wait for, by a probe from here, and what its server counts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.base.buckets import bucket_of
from headrace.base.model import Facts, ServerLogin
from headrace.base.percentiles import Histogram, percentile_ns
from headrace.base.received import BadContent
from headrace.host.agent import Agent
from headrace.host.memcached import probed
from headrace.host.memcached.probe import EVERY_S
from headrace.host.memcached.probed import Gets, Reading, Unanswered, argv, between, costs
from headrace.rollout.guards import CacheWindow
from headrace.rollout.hands import Site
from headrace.rollout.plan import Member, Plan
from headrace.rollout.watch import MOST, CountersReset, Follower, Restarted

#: Readings that fail in a row before a server is taken not to answer: one alone may have been slow.
MOST_UNANSWERED = 2
#: A line of the probe has a second of gets.
LINE_BYTES = 1 << 20


@dataclass
class CacheFollower(Follower):
    """``readings`` and ``gets`` as a probe prints them; ``percentile`` of the gets is what is judged."""

    percentile: str = ""
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=MOST))  # type: ignore[assignment]
    gets: deque[Gets] = field(default_factory=lambda: deque(maxlen=MOST))
    _unanswered: int = 0

    async def follow(self, lines: asyncio.StreamReader, why: asyncio.StreamReader) -> None:
        """Until they end; ``why`` says why they do."""
        try:
            while line := await lines.readline():
                self.hear(line.decode("utf-8", "replace"))
            words = (await why.read()).decode("utf-8", "replace").strip()
            self.problem, self.has_ended = f"the probe ended: {words[-200:] or self.problem}", True
        except (OSError, ValueError) as error:
            self.problem = f"the probe cannot be read: {error}"

    def hear(self, line: str) -> None:
        try:
            said = probed.parsed(line)
        except (BadContent, KeyError, TypeError) as error:
            self.problem = f"the probe cannot be read: {error!r:.200}"
            return
        if isinstance(said, Gets):
            self.gets.append(said)
        elif isinstance(said, Unanswered):
            self._unanswered += 1
            self.problem = said.why
            self.is_refused = self._unanswered >= MOST_UNANSWERED
        else:
            self._unanswered, self.problem, self.is_refused = 0, "", False
            self.heard_at = time.monotonic()
            self.readings.append(said)

    def since(self, t_ns: int, *, through_resets: bool = False) -> CacheWindow:
        """As ``Follower`` has it."""
        own = [each for each in self.readings if each.steady_ns >= t_ns]
        # The line of a second comes at its end, and the first began before the stretch.
        asked = [each for each in self.gets if each.steady_ns > t_ns][1:]
        answered = [ns for each in asked for ns in each.answered_ns]
        failed = sum(len(each.failed_ns) for each in asked)
        counts = None
        try:
            counts = between(own) if len(own) > 1 else None
        except probed.Restarted as error:
            raise Restarted(str(error)) from None
        except probed.Reset as error:
            if not through_resets:
                raise CountersReset(f"{error}; does a monitor send `stats reset`?") from None
        histogram = _histogram(answered)
        response_ns, median_ns = (
            percentile_ns(histogram, name) for name in (self.percentile or "p50", "p50")
        )
        seconds = (own[-1].steady_ns - own[0].steady_ns) / 1e9 if len(own) > 1 else 0.0
        return CacheWindow(
            seconds,
            counts.requests if counts else 0.0,
            0.0,
            counts.refused if counts else 0.0,
            response=self.percentile,
            response_s=None if response_ns is None else response_ns / 1e9,
            median_s=None if median_ns is None else median_ns / 1e9,
            gets=len(answered),
            failed=failed,
            watched=costs(counts, failed, failed + len(answered)),
        )

    @property
    def last_ns(self) -> int:
        return self.readings[-1].steady_ns if self.readings else 0


def _histogram(values_ns: Sequence[int]) -> Histogram:
    buckets = bucket_of(np.array(values_ns, dtype=np.int64)) if values_ns else np.array([], dtype=np.int32)
    return Histogram.of(
        np.asarray(buckets, dtype=np.int32),
        np.ones(len(values_ns), dtype=np.int64),
        min(values_ns, default=None),
        max(values_ns, default=None),
    )


@contextlib.asynccontextmanager
async def probing(plan: Plan, member: Member) -> AsyncIterator[Follower]:
    """Probe a server for the length of the context."""
    follower = CacheFollower(percentile=plan.percentile)
    process = await asyncio.create_subprocess_exec(
        *argv(member.memcached, member.gets_per_s, 0),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
    )
    assert process.stdout
    assert process.stderr
    reading = asyncio.create_task(follower.follow(process.stdout, process.stderr))
    try:
        yield follower
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        reading.cancel()
        await asyncio.gather(reading, process.wait(), return_exceptions=True)


class CacheSite(Site):
    """Nobody logs in to its server, which has no role and no identity: the host is asked who it is."""

    @staticmethod
    def followed(
        plan: Plan, member: Member, agent: Agent, login: ServerLogin
    ) -> contextlib.AbstractAsyncContextManager[Follower]:
        return probing(plan, member)

    @property
    def sample_s(self) -> float:
        return EVERY_S

    async def same_server(self) -> Facts:
        return await self.agent.facts()

    def role_must_fit(self, facts: Facts) -> None:
        """It has none."""
