"""What a server does in a stretch, from its counters: queries, threads at work, errors, replication.

Server time per query is the mean number of threads at work for clients over queries per second (Little's law).
Threads are counted in the process list (Threads_running counts those that replicate, too), once per sample, so a
short stretch of a quiet server is coarse; that is noise, and the judge's intervals show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, TargetError
from headrace.base.model import ServerLogin
from headrace.base.received import number
from headrace.host.agent import Agent
from headrace.rollout.guards import Window

SAMPLERS = "mysql_status,processlist,replication"
#: Counters of statements and connections that failed.
ERRORS = (
    "max_statement_time_exceeded",
    "max_execution_time_exceeded",
    "aborted_clients",
    "aborted_connects",
    "connection_errors_internal",
    "connection_errors_max_connections",
    "innodb_deadlocks",
)
#: A host's clock that moves by more against ours was set.
STEP_NS = 10**9
#: What a server that goes on answering says no more is unknown after this, or after so many samples.
STALE_S, STALE_SAMPLES = 10.0, 3
#: An uptime is in whole seconds: below this a server and the one that replaced it may be of the same age.
YOUNG_S = 2.0
#: A time before its start, which a clock that was set back brings, is shown as a number without a sign.
MOST_AGE_S = 2.0**62
#: A node's ``wsrep_local_state``.
DONOR, SYNCED = 2, 4
#: Readings that are kept: of a day, one a second.
MOST = 90_000


class CountersReset(TargetError):
    """Counters that began again are no stretch."""


class Restarted(CountersReset):
    """They did because the server did."""


@dataclass(frozen=True)
class Reading:
    t_ns: int
    questions: float
    #: Of each of ERRORS that the server has. Their sum would hide one that began again behind one that grew.
    errors: Mapping[str, float]
    uptime_s: float
    #: How old it was when its counters were last reset; None if it does not say.
    reset_at_s: float | None = None
    #: How long it took to answer: its uptime is of some moment in that time.
    took_s: float = 0.0
    #: The buffer pool: pages of data, pages that had to be read.
    pages: float = 0.0
    misses: float = 0.0
    #: Of the questions so far, those that we have asked.
    ours: int = 0


@dataclass
class Follower:
    """Counters as they come. ``serving``: when, and how many threads were at work for clients; ``is_refused``: the
    host answers, and its server does not.
    """

    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=MOST))
    serving: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MOST))
    heard_at: float = field(default_factory=time.monotonic)
    lag_s: float | None = None
    broken: str = ""
    #: Why a node of a Galera cluster is not in step with it.
    node_broken: str = ""
    problem: str = ""
    is_refused: bool = False
    #: No more samples will come.
    has_ended: bool = False
    #: Questions to the server so far: a sample is one, unless it says how many.
    asked: int = 0
    #: From one sample to the next.
    every_s: float = 1.0
    #: Whether it is a Galera node: it has a state instead of replication threads.
    is_node: bool = False
    is_donor: bool = False
    #: The host's time of the last record, ours when it came, and what to add to the host's.
    _last_ns: tuple[int, int] | None = None
    _offset_ns: int = 0
    #: When a replica last said how it replicates, in the time of the readings, and why it does not since.
    _replicated_ns: int | None = None
    _replication_problem: str = ""
    #: Channels by which it has replicated.
    _channels: set[str] = field(default_factory=set)
    #: Why the process list does not come any more.
    _list_problem: str = ""

    async def read(self, lines: AsyncIterator[dict[str, Any]]) -> None:
        """Until the lines end. A record that cannot be is the ``problem`` until the next one that can."""
        try:
            async for record in lines:
                try:
                    self.take(record)
                except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                    self.problem = f"its samples cannot be read: {error!r:.200}"
            self.problem = "the sampler ended"
            self.has_ended = True
        except (HeadraceError, OSError) as error:
            self.problem = str(error)

    def take(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError, TypeError, AttributeError or KeyError for what no sampler says."""
        values = record.get("values") or {}
        if not record.get("ok"):
            self.problem = str(record.get("error") or "the server does not answer")
            self.is_refused = self.is_refused or record.get("sampler") == "mysql_status"
            if record.get("sampler") == "replication":
                self._replication_problem = self.problem
            elif record.get("sampler") == "processlist":
                self._list_problem = self.problem
            return
        self.asked += round(_number(values, "statements") or 1)
        t_ns = self._steady(round(number(record["t_ns"], least=0)))
        if record.get("sampler") == "replication":
            self._replication(values, t_ns)
        elif record.get("sampler") == "processlist":
            self.serving.append((t_ns, number(values["serving"][""], least=0)))
            self._list_problem = ""
        elif record.get("sampler") == "mysql_status" and values:
            reading = _reading(record, values, t_ns, self.asked)
            if self.is_node:
                self._node(values)
            self.problem, self.is_refused = "", False
            self.heard_at = time.monotonic()
            self.readings.append(reading)

    def _node(self, values: Mapping[str, Any]) -> None:
        state, is_primary = (
            _number(values, "wsrep_local_state"),
            bool(_number(values, "wsrep_cluster_status")),
        )
        self.is_donor = is_primary and state == DONOR
        words = (
            "it is not synced with its cluster"
            if is_primary
            else "it is in no primary component of its cluster"
        )
        self.node_broken = "" if is_primary and state in (DONOR, SYNCED) else words

    def _steady(self, t_ns: int) -> int:
        """The host's time, without steps of its clock: a block would look an hour long, and the server slow. A
        stream that stalls and then catches up is no step, because it is never ahead by more than a sample.
        """
        now_ns = time.monotonic_ns()
        if self._last_ns is not None:
            then_ns, came_ns = self._last_ns
            ahead_ns = (t_ns - then_ns) - (now_ns - came_ns)
            if t_ns < then_ns - STEP_NS or ahead_ns > 2 * self.every_s * 1e9 + STEP_NS:
                self._offset_ns -= ahead_ns
        self._last_ns = (t_ns, now_ns)
        return t_ns + self._offset_ns

    def _replication(self, values: Mapping[str, Any], t_ns: int) -> None:
        lags = [number(each, least=0) for each in (values.get("lag_s") or {}).values()]
        channels = {*(values.get("lag_s") or {}), *(values.get("io_running") or {})}
        self._replicated_ns = t_ns if channels else None
        self._replication_problem = ""
        gone = sorted(each or "the default" for each in self._channels - channels)
        self._channels |= channels
        self.lag_s = max(lags) if lags else None
        stopped = [
            thread
            for thread in ("io", "sql")
            if any(not number(each, least=0) for each in (values.get(f"{thread}_running") or {}).values())
        ]
        self.broken = (
            f"replication has stopped: its {' and '.join(stopped)} thread is not running" if stopped else ""
        )
        if gone and not self.broken:
            self.broken = (
                f"it replicates no more by its {counted(len(gone), 'channel')} {', '.join(gone):.200}"
            )

    @property
    def replication(self) -> tuple[float | None, str]:
        """The lag, and why replication stands. A lag that is not asked any more would pass whatever happens."""
        if self._replicated_ns is None or not (age_s := self._stale_s(self._replicated_ns)):
            return self.lag_s, self.broken or self.node_broken or self._unlisted
        why = self._replication_problem or "no sample of it came"
        return None, f"its replication is unknown for {age_s:.0f} s: {why}"

    @property
    def _unlisted(self) -> str:
        """Why its threads at work are unknown, though they were not. Without any it would seem to have no work."""
        if not self.serving or not (age_s := self._stale_s(self.serving[-1][0])):
            return ""
        return (
            f"its process list is unknown for {age_s:.0f} s: {self._list_problem or 'no sample of it came'}"
        )

    def _stale_s(self, t_ns: int) -> float:
        """How old a sample of this time is, if that is too old; else 0."""
        age_s = (self.last_ns - t_ns) / 1e9
        return age_s if age_s > max(STALE_S, STALE_SAMPLES * self.every_s) else 0.0

    def since(self, t_ns: int, *, through_resets: bool = False) -> Window:
        """From the first reading at or after this time to the last. Raises Restarted.

        Raises CountersReset, also for a reset that the last reading has made up for; or, ``through_resets``,
        counts what came before it and after it: at least so much happened.
        """
        own = [each for each in self.readings if each.t_ns >= t_ns]
        lag_s, broken = self.replication
        if len(own) < 2:
            return Window(0.0, 0.0, 0.0, 0.0, lag_s, broken)
        first, last = own[0], own[-1]
        queries = errors = 0.0
        for one, other in pairwise(own):
            is_reset = _is_reset(one, other)
            # That its uptime fell says nothing alone: it is taken from the clock, which may be set.
            if _is_younger(one, other) or (is_reset and other.uptime_s < one.uptime_s):
                raise Restarted("the server was restarted")
            if is_reset and not through_resets:
                raise CountersReset("the server's counters were reset; does a monitor send FLUSH STATUS?")
            queries += _grown(one.questions, other.questions)
            errors += sum(_grown(one.errors.get(name, n), n) for name, n in other.errors.items())
        seconds = (last.t_ns - first.t_ns) / 1e9
        threads = [count for t_ns, count in self.serving if first.t_ns <= t_ns <= last.t_ns]
        running = sum(threads) / len(threads) if threads else 0.0
        queries = max(queries - (last.ours - first.ours), 0.0)
        return Window(seconds, queries, running * seconds, errors, lag_s, broken, sum(threads))

    def pool(self, seconds: float) -> tuple[float, float | None]:
        """The buffer pool in the last so many seconds: pages of data, misses per query (None without queries)."""
        start_ns = self.last_ns - round(seconds * 1e9)
        own = [each for each in self.readings if each.t_ns >= start_ns]
        if not own:
            return 0.0, None
        first, last = own[0], own[-1]
        queries = _queries(first, last)
        is_one = last.uptime_s >= first.uptime_s and last.misses >= first.misses
        is_one = is_one and not any(_is_younger(*each) for each in pairwise(own))
        misses = (last.misses - first.misses) / queries if is_one and queries > 0 else None
        return last.pages, misses

    @property
    def last_ns(self) -> int:
        return self.readings[-1].t_ns if self.readings else 0

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.heard_at


def _queries(first: Reading, last: Reading) -> float:
    """Those of clients. At ten samples a second a server without any would count 30, and never be drained."""
    return max(last.questions - first.questions - (last.ours - first.ours), 0.0)


def _reading(record: Mapping[str, Any], values: Mapping[str, Any], t_ns: int, asked: int) -> Reading:
    """Raises BadContent, KeyError, TypeError: without its count of queries a server would seem to be idle."""
    uptime_s, reset_at_s = number(values["uptime"][""]), None
    if "uptime_since_flush_status" in values:
        age_s = number(values["uptime_since_flush_status"][""])
        reset_at_s = uptime_s - age_s if age_s < MOST_AGE_S else None
    return Reading(
        t_ns,
        number(values["questions"][""], least=0),
        {name: number(values[name][""], least=0) for name in ERRORS if name in values},
        uptime_s,
        reset_at_s,
        number(record.get("cost_ns", 0), least=0) / 1e9,
        _number(values, "innodb_buffer_pool_pages_data"),
        _number(values, "innodb_buffer_pool_reads"),
        asked,
    )


def _is_reset(one: Reading, other: Reading) -> bool:
    """Whether the server says so, any counter fell, or another set of them is there.

    One that had grown past its old value, or was 0 before and after, shows nothing itself.
    """
    if one.reset_at_s is not None and other.reset_at_s is not None and one.reset_at_s != other.reset_at_s:
        return True
    return (
        other.questions < one.questions
        or one.errors.keys() != other.errors.keys()
        or any(other.errors[name] < n for name, n in one.errors.items())
    )


def _is_younger(one: Reading, other: Reading) -> bool:
    """Whether the other's server has started since: it is not older than the time between them. Its counters may
    have grown past those of before.
    """
    between_s = (other.t_ns - one.t_ns) / 1e9 - one.took_s
    return one.uptime_s >= YOUNG_S and 0 <= other.uptime_s <= between_s + 0.5


def _grown(one: float, other: float) -> float:
    """By how much at least: a counter that fell began again at 0."""
    return other - one if other >= one else other


def _number(values: Mapping[str, Any], name: str) -> float:
    """A counter; 0 where the server has none. Raises BadContent for what no counter is."""
    return number((values.get(name) or {}).get("", 0), least=0)


@contextlib.asynccontextmanager
async def follow(
    agent: Agent, login: ServerLogin, sample_s: float, *, is_node: bool = False
) -> AsyncIterator[Follower]:
    """Follow a server for the length of the context. ``is_node``: of a Galera cluster."""
    every = f"{round(sample_s * 1000)}ms"
    # Also of a server that the change made slow: without samples nothing is judged.
    words = ["--interval", every, "--every-tick", "--samplers", SAMPLERS, *login.argv]
    follower = Follower(every_s=sample_s, is_node=is_node)
    async with agent.samples(*words) as lines:
        reading = asyncio.create_task(follower.read(lines))
        try:
            yield follower
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
