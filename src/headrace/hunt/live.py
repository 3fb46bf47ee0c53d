"""A live host, one sample per second: the agent's stream, its last minute, and the state of the connection.

The agent runs on the host and prints one line per sampler and second; everything else happens here. When the
connection or the agent ends, that is reported and retried; the time in between is a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.base.errors import HeadraceError, NotReady, PlanError
from headrace.base.model import Facts, ServerLogin
from headrace.base.received import BadContent
from headrace.host import memcached
from headrace.host.activity import Activity, summed
from headrace.host.agent import Agent
from headrace.host.target import TargetSpec, open_target, to_the_end
from headrace.hunt.lock_tree import tree
from headrace.hunt.recent import Ring

INTERVAL_S = 1.0
#: A look starts a Python on the host: 30 ms of a CPU.
CACHES_EVERY_S = 5.0
#: Waits between attempts to reconnect: short at first, then 15 s.
RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0)
#: Without a line for this long the connection counts as lost, regardless of the network's state.
SILENT_S = 12.0
#: Facts change rarely and cost more than a sample.
FACTS_EVERY_S = 300.0
#: Looks at the server's process list that are kept.
LOOKS = 10
#: A look that is older is told with its age: what it saw of a session was true then.
OLD_LOOK_S = 4.0
#: Statements in one look, and how long one run of the agent looks.
MOST_LISTED, LOOK_FOR_S = 500, 3600.0
NO_SERVER = "needs a server: --mysql-socket or --mysql-host"
#: Time limit of a query about the server.
ASK_S = 10.0


class Link(StrEnum):
    """The state of the connection."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"


@dataclass
class Feed:
    """Follow a host with ``run``; read ``ring``, ``facts`` and ``link`` at any time.

    ``problem`` is the last error, empty while all is well; ``step`` what it waits for until the first samples.
    ``heard_at`` is when the newest sample arrived, on the controller's monotonic clock. ``find_login`` is called
    if no server is given.
    """

    spec: TargetSpec
    login: ServerLogin | None = None
    ring: Ring = field(default_factory=Ring)
    facts: Facts | None = None
    link: Link = Link.CONNECTING
    problem: str = ""
    step: str = "connecting to the host"
    name: str = ""
    agent: Agent | None = None
    ticks: int = 0
    heard_at: float = 0.0
    listed: dict[str, Any] = field(default_factory=dict)
    find_login: Callable[[Agent, ServerLogin | None], Awaitable[tuple[ServerLogin | None, str]]] | None = None
    #: Why no server is asked; empty if one is.
    no_login: str = ""
    #: Why the host's configuration is not known; empty if it is.
    facts_problem: str = ""
    #: Whether the server is asked whatever that costs it.
    thorough: bool = False
    #: How often the memcached servers of the host are asked: at most each 15 s, or there are no two answers.
    caches_every_s: float = CACHES_EVERY_S
    #: Looks at them that ended; those of a host without any count, too.
    caches_looks: int = 0
    #: When the process list was looked at last, on the controller's monotonic clock.
    looked_at: float = 0.0
    _caches: memcached.Seen = memcached.NOTHING
    _activity: Activity | None = None
    _looks: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=LOOKS))

    def looked(self, answer: Any) -> None:
        """Take what the server executes now, as ``headrace-agent statements`` lists it; or why it does not."""
        if isinstance(answer, list):
            self._looks.append(answer)
            self._activity = None
            self.looked_at = time.monotonic()

    @property
    def has_cache_rates(self) -> bool:
        """Whether the host's memcached servers were asked as often as rates need, or it has none."""
        return self.caches_looks >= (2 if self._caches.facts.get("instances") else 1)

    @property
    def known(self) -> Facts | None:
        """The facts, with what the host's memcached servers answered last."""
        return self._caches.added_to(self.facts) if self.facts is not None else None

    @property
    def activity(self) -> Activity | None:
        """What the last looks at the server's process list show together. Added up only when somebody asks."""
        looks = list(self._looks)
        if self._activity is None and looks:
            self._activity = summed({"statements": rows} for rows in looks)
        found, ago_s = self._activity, self.looked_ago_s
        if found is None or not ago_s:
            return found
        return replace(found, waits=tuple(replace(wait, seen_ago_s=ago_s) for wait in found.waits))

    @property
    def looked_ago_s(self) -> float:
        """How old the last look is; 0 for one that is as fresh as looks are where they cost little."""
        ago_s = time.monotonic() - self.looked_at
        return ago_s if self.looked_at and ago_s >= OLD_LOOK_S else 0.0

    async def look(self) -> None:
        """Look at what the server executes, once a second and rarer where that costs it much, until cancelled."""
        while True:
            agent, login = self.agent, self.login
            if agent is None or login is None or not login.is_named:
                self.listed["processlist"] = self.no_login or NO_SERVER
                await asyncio.sleep(INTERVAL_S / 4)
                continue
            options = ["--every", f"{INTERVAL_S:.0f}s", "--limit", str(MOST_LISTED)]
            options += ["--duration", f"{LOOK_FOR_S:.0f}s", *(["--thorough"] if self.thorough else [])]
            try:
                async with agent.lines("statements", *options, *login.argv) as lines:
                    async for line in lines:
                        self.took(line)
            except (HeadraceError, OSError, TimeoutError) as error:
                self.took({"error": error.message if isinstance(error, HeadraceError) else str(error)})
                await asyncio.sleep(RETRY_S[-1] / 3)

    def took(self, line: Mapping[str, Any]) -> None:
        """A line of ``headrace-agent statements --every``."""
        if line.get("error"):
            self.listed["processlist"] = str(line["error"])
            return
        try:
            rows = rows_of(line)
        except BadContent as error:
            self.listed["processlist"] = str(error)
            return
        self.looked(rows)
        self.listed["processlist"] = [row for row in rows if "id" in row]
        self.listed["locks"] = [row for row in rows if "lock" in row]

    async def run(self) -> None:
        """Run until cancelled.

        Errors that a retry cannot fix (no agent, a wrong address) are raised if they happen first.
        """
        attempt = 0
        while True:
            before = self.ticks
            try:
                await self._follow()
                self.problem = "the sampler ended"
            except (NotReady, PlanError):
                if not self.ticks:
                    raise
                self.problem = "the agent is missing on the host"
            except HeadraceError as error:
                self.problem = error.in_line
            except (OSError, TimeoutError) as error:
                self.problem = str(error) or type(error).__name__
            attempt = 0 if self.ticks > before else attempt + 1
            self.link, self.agent = Link.LOST, None
            await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])

    async def _follow(self) -> None:
        """One connection, from start to end."""
        # This class reconnects itself, and meanwhile reports that nothing is known.
        target = open_target(replace(self.spec, reconnect_s=0.0))
        self.name = target.name
        try:
            self.step = f"connecting to {self.name}"
            await target.connect()
            self.step = f"starting the agent on {self.name}"
            agent = await Agent.install(target)
            if self.find_login and (self.login is None or not self.login.is_named):
                self.step = f"looking for the server of {self.name}"
                self.login, self.no_login = await self.find_login(agent, self.login)
            self.step = f"waiting for the settings and the second sample of {self.name}"
            self.agent = agent
            options = [
                "--interval",
                f"{INTERVAL_S:.0f}s",
                "--changes",
                *(["--thorough"] if self.thorough else []),
            ]
            options += self.login.argv if self.login else []
            # A busy server takes seconds to tell its settings: the host is shown meanwhile.
            reading = asyncio.gather(self._read_facts(agent), self._ask_caches(agent))
            try:
                async with agent.samples(*options) as lines:
                    try:
                        await self._read(lines, agent)
                    finally:
                        # The exact error is known when the others have ended.
                        self.link, self.problem = Link.LOST, "the connection is lost"
            finally:
                # Also where a saved host refuses to be sampled.
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        finally:
            with contextlib.suppress(HeadraceError, OSError, TimeoutError):
                await to_the_end(target.close())

    async def _read_facts(self, agent: Agent) -> None:
        try:
            self.facts, self.facts_problem = await agent.facts(), ""
        except HeadraceError as error:
            self.facts_problem = error.message
        if self.login is not None and self.login.is_named:
            with contextlib.suppress(HeadraceError):
                self.facts = await agent.facts(self.login, thorough=self.thorough)

    async def _ask_caches(self, agent: Agent) -> None:
        """Until cancelled. Whatever goes wrong here, the host is followed."""
        rounds = memcached.Rounds(agent)
        while True:
            try:
                self._caches = await rounds.ask()
            except (HeadraceError, OSError, TimeoutError, AttributeError, KeyError, TypeError, ValueError):
                # A host that was taken over may answer anything.
                self._caches = memcached.NOTHING
            for record in self._caches.records:
                self.ring.add(record)
            self.caches_looks += 1
            await asyncio.sleep(self.caches_every_s)

    async def _read(self, lines: AsyncIterator[dict[str, Any]], agent: Agent) -> None:
        read_at = time.monotonic()
        clock = asyncio.get_running_loop().time
        # One limit that moves once a second: a new one for each line would cost a quarter of what the lines cost.
        async with asyncio.timeout(SILENT_S) as limit:
            moved_at = clock()
            async for record in lines:
                self.ring.add(record)
                # The host's last sampler in a tick; the server's lines may come later.
                if record.get("sampler") == "agent":
                    self.ticks += 1
                    self.heard_at = time.monotonic()
                    self.link, self.problem = Link.LIVE, ""
                if time.monotonic() - read_at > FACTS_EVERY_S:
                    # Each question has a limit of its own.
                    limit.reschedule(None)
                    with contextlib.suppress(HeadraceError):
                        self.facts = await _facts(agent, self.login)
                    if await self._has_found_server(agent):
                        return
                    read_at, moved_at = time.monotonic(), 0.0
                if clock() > moved_at + INTERVAL_S:
                    moved_at = clock()
                    limit.reschedule(moved_at + SILENT_S)

    async def _has_found_server(self, agent: Agent) -> bool:
        """Whether a server runs now that did not at first: the samples start again, with its own."""
        if self.find_login is None or not self.no_login:
            return False
        with contextlib.suppress(HeadraceError):
            self.login, self.no_login = await self.find_login(agent, self.login)
        return not self.no_login


def rows_of(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Running statements and waits for locks of a look. Raises BadContent: a host that was taken over may answer
    anything, and what is drawn of it must not fail.
    """
    try:
        rows = [row for row in line.get("statements") or () if "id" in row or "lock" in row]
        _check(rows)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise BadContent("the host's answer is none of headrace-agent") from None
    return rows


def _check(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise what adding the rows up, or drawing them, would raise."""
    summed([{"statements": rows}])
    tree(rows)
    for row in rows:
        float(row.get("time_s") or 0)


async def _facts(agent: Agent, login: ServerLogin | None) -> Facts:
    """Sample the host and its server, or only the host while the server is unreachable."""
    with contextlib.suppress(HeadraceError):
        return await agent.facts(login)
    return await agent.facts()


async def ask(feed: Feed, command: str, *options: str) -> Any:
    """The parsed output of another agent command about the server, or the error as text."""
    agent, login = feed.agent, feed.login
    if agent is None:
        return "the host is not connected"
    if login is None or not login.is_named:
        return NO_SERVER
    try:
        return await agent.answer(command, *options, *login.argv, timeout_s=ASK_S)
    except HeadraceError as error:
        return error.message
