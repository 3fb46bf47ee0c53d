"""What a screen is drawn from: one moment of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.analysis.resources import Verdict, judge
from headrace.analysis.window import Window
from headrace.facts import HostFacts

if TYPE_CHECKING:
    from headrace.live import Feed
    from headrace.rules.rule import Judgement

#: Figures are means over the last samples; the verdict looks back further, or it would change every second.
NOW_S, VERDICT_S, FINDINGS_S = 2.5, 10.5, 60.5
#: What costs the server more is sampled every 5 or 10 s: twice, at least.
SELDOM, SELDOM_S = ("statements", "innodb_status", "mysql_waits", "innodb_mutex"), 25.5


@dataclass(frozen=True)
class Shot:
    """``now`` and ``recent`` are the last samples and the last ten seconds; ``errors`` says which samplers fail.

    ``state`` is how the connection is, ``problem`` what went wrong with it. ``listed`` are rows of the server that
    are no counters (processlist, statements): name -> rows, or the reason why there are none. ``interrupts`` says
    what a line is for. ``age_s`` is the time since the newest sample. ``seldom`` has the samplers that run seldom.
    """

    target: str
    state: str
    problem: str
    clock: str
    facts: HostFacts
    now: Window
    recent: Window
    verdict: Verdict
    errors: Mapping[str, str]
    server: str = ""
    age_s: float = 0.0
    judgement: Judgement | None = None
    listed: Mapping[str, Sequence[Mapping[str, Any]] | str] = field(default_factory=dict)
    interrupts: Mapping[str, str] = field(default_factory=dict)
    seldom: Window | None = None
    paused: bool = False

    @property
    def server_problem(self) -> str:
        """Why the server says nothing; empty while it does."""
        return self.errors.get("mysql_status", "")


def take(feed: Feed, clock: str, age_s: float, judgement: Judgement | None = None) -> Shot | None:
    """What is known at this moment; None before the second sample."""
    if feed.facts is None or feed.ticks < 2:
        return None
    facts = HostFacts(feed.facts)
    recent = feed.ring.window(VERDICT_S)
    settings = feed.facts.data.get("server_settings") or {}
    lines = (feed.facts.data.get("irqs") or {}).get("lines") or ()
    return Shot(
        feed.name,
        str(feed.link),
        feed.problem,
        clock,
        facts,
        feed.ring.window(NOW_S),
        recent,
        judge(recent, facts),
        feed.ring.errors,
        server=f"{settings['vendor']} {settings['version']}" if settings else "",
        age_s=age_s,
        judgement=judgement,
        listed=dict(feed.listed),
        interrupts={str(row.get("irq")): str(row.get("device") or row.get("action") or "") for row in lines},
        seldom=feed.ring.window(SELDOM_S, SELDOM),
    )
