"""Asks many hosts the same, so many at a time, and says of each one what became of it.

Nothing is kept in memory: each outcome is handed over as it comes. A host that hangs costs its own time limit and
nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.base.counted import counted
from headrace.base.errors import ConnectionLost, ConnectionNotRestored, HeadraceError
from headrace.fleet.host import FAN_OUT, FAN_OUT_JUMP, HOST_TIMEOUT_S, Host
from headrace.host.target import Target, TargetSpec, open_target

#: How long a host may take to let go of what was asked, and to disconnect.
CLOSE_S = 10.0
#: The first logins are spread over this time, because each one is work for a jump host and for this machine.
JITTER_S = 1.0
#: Files of this process other than connections, and for each host: its socket, and a file that is copied.
DESCRIPTORS, DESCRIPTORS_EACH = 128, 4


class State(StrEnum):
    OK = "ok"
    FAILED = "failed"  # the host was reached, and could not answer
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"  # it was not asked


@dataclass(frozen=True)
class Outcome:
    """What became of one host. ``at``: seconds since the epoch; ``answer`` is JSON, None unless it is ok."""

    host: str
    state: State
    reason: str = ""
    hint: str = ""
    at: float = 0.0
    seconds: float = 0.0
    answer: Any = None
    address: str = ""


@dataclass(frozen=True)
class Progress:
    """``left_s`` is None as long as nothing is known about it."""

    counts: Mapping[State, int]
    total: int
    running: int
    left_s: float | None

    @property
    def done(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Limits:
    """``jump``: at a time through one jump host; ``timeout_s``: for one host, from the login to its answer."""

    at_once: int = FAN_OUT
    jump: int = FAN_OUT_JUMP
    timeout_s: float = HOST_TIMEOUT_S


class Turns:
    """Limits how many hosts are worked on at a time, in all and through one jump host. For one event loop."""

    def __init__(self, at_once: int, jump: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._jump = jump
        self._jumps: dict[str, asyncio.Semaphore] = {}

    @contextlib.asynccontextmanager
    async def of(self, *specs: TargetSpec) -> AsyncIterator[None]:
        """The turn of hosts that take one together. Who holds a turn must not wait for another one of the same
        limits."""
        jumps = {spec.jump.partition(",")[0] for spec in specs} - {""}
        async with contextlib.AsyncExitStack() as turn:
            # In one order: two that each hold what the other waits for would wait for ever.
            for jump in sorted(jumps):
                own = self._jumps.setdefault(jump, asyncio.Semaphore(self._jump))
                await turn.enter_async_context(own)
            await turn.enter_async_context(self._all)
            yield


#: Asks a connected host, and returns what can be written as JSON.
Work = Callable[[Target, Host], Awaitable[Any]]
Listener = Callable[[Progress], None]
#: Makes a target of a spec, not yet connected; the function hears when its connection is lost and restored.
Connect = Callable[[TargetSpec, Callable[[str], None]], Target]


async def ask(
    hosts: Sequence[Host],
    work: Work,
    keep: Callable[[Outcome], None],
    *,
    limits: Limits | None = None,
    listen: Listener = lambda progress: None,
    connect: Connect = open_target,
    expected_s: float = 0.0,
) -> bool:
    """Ask all; ``keep`` gets each outcome. False if it was cancelled: hosts not asked yet have no outcome.

    ``expected_s``: how long a host takes at least, for the time left. An error of ``keep`` ends everything.
    """
    run = _Run(work, keep, limits or Limits(), listen, connect, len(hosts), expected_s)
    tasks = [asyncio.create_task(run.one(host)) for host in hosts]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    except asyncio.CancelledError:
        # Ctrl-C: what is there is kept, so this is an end like any other.
        await _end(tasks)
        return False
    except BaseException:
        await _end(tasks)
        raise
    finally:
        await run.let_go()
    return True


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=2 * CLOSE_S)


@dataclass
class _Run:
    work: Work
    keep: Callable[[Outcome], None]
    limits: Limits
    listen: Listener
    connect: Connect
    total: int
    expected_s: float
    began: float = field(default_factory=time.monotonic)
    counts: Counter[State] = field(default_factory=Counter)
    running: int = 0
    started: int = 0
    #: What hung and was left behind.
    stuck: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._turns = Turns(self.limits.at_once, self.limits.jump)

    async def one(self, host: Host) -> None:
        if host.why_not:
            self._done(Outcome(host.name, State.SKIPPED, host.why_not, at=time.time()))
            return
        async with self._turns.of(host.spec):
            self.started += 1
            if self.started <= self.limits.at_once and self.total > 1:
                await asyncio.sleep(random.uniform(0, JITTER_S * min(1.0, self.total / self.limits.at_once)))
            self.running += 1
            self.listen(self._progress())
            try:
                outcome = await self._asked(host)
            finally:
                self.running -= 1
        self._done(outcome)

    async def _asked(self, host: Host) -> Outcome:
        began = time.monotonic()
        losses: list[str] = []
        target = self.connect(host.spec, losses.append)
        conversation = _Conversation(target, host, self.work, losses)
        task = asyncio.create_task(conversation.talk())
        try:
            # Not asyncio.timeout: whoever hangs may also hang while it is cancelled.
            await asyncio.wait({task}, timeout=self.limits.timeout_s)
            if task.done():
                outcome = _outcome(host, conversation, task)
            else:
                outcome = _too_late(host, conversation, self.limits.timeout_s)
        finally:
            await self._let_go(task)
            await self._let_go(asyncio.create_task(target.close()), CLOSE_S)
        return Outcome(
            host.name,
            outcome.state,
            outcome.reason,
            outcome.hint,
            time.time(),
            round(time.monotonic() - began, 3),
            outcome.answer,
            host.address,
        )

    async def _let_go(self, task: asyncio.Task[Any], patience_s: float = 0.0) -> None:
        """Wait for its end so long, then cancel it and wait a little more."""
        if not task.done() and patience_s:
            await asyncio.wait({task}, timeout=patience_s)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)
        if not task.done():
            self.stuck.add(task)
        elif not task.cancelled():
            task.exception()  # it was looked at, or does not matter any more

    async def let_go(self) -> None:
        if self.stuck:
            await asyncio.wait(self.stuck, timeout=CLOSE_S)

    def _done(self, outcome: Outcome) -> None:
        self.keep(outcome)
        self.counts[outcome.state] += 1
        self.listen(self._progress())

    def _progress(self) -> Progress:
        done = sum(self.counts.values())
        asked = done - self.counts[State.SKIPPED]
        waiting = self.total - done
        left_s: float | None = None
        if asked >= min(self.limits.at_once, self.total) / 2 and asked:
            left_s = (time.monotonic() - self.began) / asked * waiting
        elif self.expected_s:
            rounds = -(-self.total // self.limits.at_once)
            left_s = max(rounds * self.expected_s - (time.monotonic() - self.began), 0.0)
        return Progress(dict(self.counts), self.total, self.running, left_s)


@dataclass
class _Conversation:
    """A login and one question; ``is_in`` once the host let us in. ``losses``: what the connection reported."""

    target: Target
    host: Host
    work: Work
    losses: list[str]
    is_in: bool = False

    async def talk(self) -> Any:
        await self.target.connect()
        self.is_in = True
        return await self.work(self.target, self.host)


def _outcome(host: Host, conversation: _Conversation, task: asyncio.Task[Any]) -> Outcome:
    if task.cancelled():
        return Outcome(host.name, State.FAILED, "it was cancelled")
    error = task.exception()
    if error is None:
        return Outcome(host.name, State.OK, answer=task.result())
    if isinstance(error, HeadraceError):
        is_lost = not conversation.is_in or isinstance(error, ConnectionLost | ConnectionNotRestored)
        state = State.UNREACHABLE if is_lost else State.FAILED
        return Outcome(host.name, state, error.message, error.hint or "")
    if not isinstance(error, Exception):
        raise error
    # One host's odd answer is no reason to lose the others'.
    return Outcome(host.name, State.FAILED, f"{type(error).__name__}: {error}")


def _too_late(host: Host, conversation: _Conversation, timeout_s: float) -> Outcome:
    if conversation.losses:
        words = f"the connection was lost, and no answer came within {timeout_s:g} s"
        return Outcome(host.name, State.UNREACHABLE, words)
    if conversation.is_in:
        return Outcome(host.name, State.FAILED, f"no answer within {timeout_s:g} s", "--timeout allows more")
    return Outcome(host.name, State.UNREACHABLE, f"no login within {timeout_s:g} s")


def within_descriptors(at_once: int, hosts: Sequence[Host]) -> tuple[int, str]:
    """How many hosts this process can have open at a time, and a sentence if they are fewer than asked for.

    The soft limit is raised as far as the hard one allows.
    """
    hops = max((host.spec.jump.count(",") + 1 for host in hosts if host.spec.jump), default=0)
    each = DESCRIPTORS_EACH + hops
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS + each * min(at_once, max(len(hosts), 1))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        if possible < wanted:
            fewer = max((possible - DESCRIPTORS) // each, 1)
            return fewer, (
                f"hosts at a time: {fewer} instead of {at_once}, because this process may open only "
                f"{counted(hard, 'file')} "
                "(ulimit -n)"
            )
    return at_once, ""
