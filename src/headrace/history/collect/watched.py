"""A host that is watched: its stream, and what is known of it now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.base.errors import NotReady
from headrace.base.model import Facts, ServerLogin
from headrace.fleet.host import Host
from headrace.history.collect import minute
from headrace.host.activity import Activity
from headrace.host.agent import Agent
from headrace.host.login import usual_login
from headrace.hunt.live import Feed, Link
from headrace.hunt.resources import Verdict
from headrace.hunt.rules import Judgement

#: A sample older than this is of a host that is lost.
STALE_S = 10.0
#: How far back a server counts as refusing.
REFUSED_S = 10.0
#: Of a fleet the memcached servers are asked less often than of one host on a terminal.
CACHES_EVERY_S = 10.0


@dataclass(frozen=True)
class Busy:
    """A class of the last minute. ``example``: a call with its values, or only performance_schema has a plan."""

    source: str
    name: str
    mean_ns: float
    example: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.name


@dataclass
class Watched:
    """A host, what is known of it now, and its stream."""

    host: Host
    feed: Feed
    verdict: Verdict | None = None
    judgement: Judgement | None = None
    activity: Activity | None = None
    #: Rows of the last look at the process list: running statements and waits for locks.
    listed: list[dict[str, Any]] = field(default_factory=list)
    listed_at_s: float = 0.0
    listed_problem: str = ""
    facts: Facts | None = None
    counted: minute.Counted = field(default_factory=minute.Counted)
    texts: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Why the slow log could not be read the last time; empty while it is.
    log_problem: str = ""
    #: Rows of the slow log that belong to the next minute that is written.
    pending: dict[str, list[minute.Row]] = field(default_factory=dict)
    #: Source and class -> the shape of its last plan.
    plans: dict[tuple[str, str], str] = field(default_factory=dict)
    #: Classes whose plans can be asked for, the one with most time in the last minute first.
    busiest: list[Busy] = field(default_factory=list)
    written_s: int = 0
    #: What of the last minute was more than a host can have; empty if nothing was.
    left_out: str = ""
    #: What of it could not be, and was refused; empty if nothing was.
    refused: str = ""

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def problem(self) -> str:
        if self.host.why_not:
            return self.host.why_not
        if self.feed.link is Link.CONNECTING:
            return self.feed.problem or self.feed.step
        return self.feed.problem if self.feed.link is Link.LOST else ""

    @property
    def refusal(self) -> str:
        """Why the server does not answer, although its host may; empty while it does, or without one."""
        return self.feed.ring.window(REFUSED_S).errors.get("mysql_status", "")

    @property
    def is_fresh(self) -> bool:
        return self.feed.link is Link.LIVE and time.monotonic() - self.feed.heard_at < STALE_S


def watched(host: Host) -> Watched:
    return Watched(host, Feed(host.spec, host.login, find_login=usual_login, caches_every_s=CACHES_EVERY_S))


def server_of(watched: Watched) -> tuple[Agent, ServerLogin]:
    """Whom to ask about a host's server, and with which login. Raises NotReady."""
    agent, login = watched.feed.agent, watched.feed.login
    if agent is None or login is None or not login.is_named:
        raise NotReady(watched.problem or watched.feed.no_login or "no server to query on this host")
    return agent, login
