"""A live host, a sample a second: what the agent streams, the last minute of it, and the connection's own fate.

The agent runs on the host and prints a line a sampler and second; everything else happens here. When the
connection or the agent ends, that is said, and it is tried again; what the host did meanwhile is a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.agent import Agent
from headrace.analysis.live import Ring
from headrace.errors import HeadraceError, NotReady, PlanError
from headrace.model import Facts, ServerLogin
from headrace.target import TargetSpec, open_target, to_the_end

INTERVAL_S = 1.0
#: Waits between attempts to reach the host again: short first, then a minute's quarter.
RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0)
#: Without a line for this long the connection counts as cut, whatever the network says.
SILENT_S = 12.0
#: Facts change seldom and cost more than a sample.
FACTS_EVERY_S = 300.0
#: How long a question about the server may take.
ASK_S = 10.0


class Link(StrEnum):
    """How the connection is."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"


@dataclass
class Feed:
    """Follow a host with ``run``; read ``ring``, ``facts`` and ``link`` at any time.

    ``problem`` says what went wrong last, empty while all is well. ``heard_at`` is when the newest sample came, on
    our own monotonic clock. ``find_login`` is asked where no server is named.
    """

    spec: TargetSpec
    login: ServerLogin | None = None
    ring: Ring = field(default_factory=Ring)
    facts: Facts | None = None
    link: Link = Link.CONNECTING
    problem: str = ""
    name: str = ""
    agent: Agent | None = None
    ticks: int = 0
    heard_at: float = 0.0
    listed: dict[str, Any] = field(default_factory=dict)
    find_login: Callable[[Agent, ServerLogin | None], Awaitable[ServerLogin | None]] | None = None

    async def run(self) -> None:
        """Until cancelled. What can never work (no agent, a wrong address) is raised when it happens first."""
        attempt = 0
        while True:
            before = self.ticks
            try:
                await self._follow()
                self.problem = "the sampler ended"
            except (NotReady, PlanError):
                if not self.ticks:
                    raise
                self.problem = "the host has no agent any more"
            except (HeadraceError, OSError, TimeoutError) as error:
                self.problem = str(error) or type(error).__name__
            attempt = 0 if self.ticks > before else attempt + 1
            self.link, self.agent = Link.LOST, None
            await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])

    async def _follow(self) -> None:
        """One connection, from its beginning to its end."""
        # We come back by ourselves, and meanwhile say that nothing is known.
        target = open_target(replace(self.spec, reconnect_s=0.0))
        self.name = target.name
        try:
            await target.connect()
            agent = await Agent.install(target)
            if self.find_login and (self.login is None or not self.login.is_named):
                self.login = await self.find_login(agent, self.login)
            self.facts = await _facts(agent, self.login)
            self.agent = agent
            options = ["--interval", f"{INTERVAL_S:.0f}s", *(self.login.argv if self.login else ())]
            async with agent.lines("sample", *options) as lines:
                try:
                    await self._read(lines, agent)
                finally:
                    # What it was exactly is known when the rest is over.
                    self.link, self.problem = Link.LOST, "the connection is lost"
        finally:
            with contextlib.suppress(HeadraceError, OSError, TimeoutError):
                await to_the_end(target.close())

    async def _read(self, lines: AsyncIterator[dict[str, Any]], agent: Agent) -> None:
        read_at = time.monotonic()
        while (record := await asyncio.wait_for(anext(lines, None), SILENT_S)) is not None:
            self.ring.add(record)
            # The host's last sampler of a tick: the server's come when they come.
            if record.get("sampler") == "agent":
                self.ticks += 1
                self.heard_at = time.monotonic()
                self.link, self.problem = Link.LIVE, ""
            if time.monotonic() - read_at > FACTS_EVERY_S:
                read_at = time.monotonic()
                with contextlib.suppress(HeadraceError):
                    self.facts = await _facts(agent, self.login)


async def _facts(agent: Agent, login: ServerLogin | None) -> Facts:
    """Of the host and its server, or of the host alone while the server is away."""
    with contextlib.suppress(HeadraceError):
        return await agent.facts(login)
    return await agent.facts()


async def ask(feed: Feed, command: str, *options: str) -> Any:
    """What another of the agent's commands says of the server, parsed; the reason as a text where it does not."""
    agent, login = feed.agent, feed.login
    if agent is None:
        return "the host is not connected"
    if login is None or not login.is_named:
        return "needs a server: --mysql-socket or --mysql-host"
    try:
        return await agent.answer(command, *options, *login.argv, timeout_s=ASK_S)
    except HeadraceError as error:
        return error.message
