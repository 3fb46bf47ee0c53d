"""The data of a screen: one moment of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.host.activity import Activity
from headrace.host.facts import HostFacts
from headrace.host.window import Window
from headrace.hunt.resources import Verdict
from headrace.hunt.rules import all_rules
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import judge as judge_rules
from headrace.hunt.top.series import Series

if TYPE_CHECKING:
    from headrace.hunt.live import Feed
    from headrace.hunt.rules.rule import Judgement

#: Figures are means over the last samples; the verdict covers a longer time, so that it does not change every
#: second.
NOW_S, VERDICT_S, FINDINGS_S = 2.5, 10.5, 60.5
#: Below this nothing is judged.
FEWEST_S = 1.5
#: Samplers that are drawn as means over the verdict's time.
DRAWN_OF_RECENT = ("threads", "agent")
#: Expensive samplers run every 5 or 10 s; this covers at least two of their samples.
SELDOM, SELDOM_S = ("statements", "innodb_status", "mysql_waits", "innodb_mutex", "threads"), 25.5


@dataclass(frozen=True)
class Shot:
    """``now`` are the last samples, ``recent`` the last ten seconds, of what is drawn from them; ``errors`` lists
    failing samplers.

    ``state`` is the state of the connection, ``problem`` its last error. ``listed`` are rows of the server that
    are not counters (processlist, statements): name -> rows, or the reason why there are none. ``interrupts`` says
    what a line is for. ``age_s`` is the time since the newest sample. ``seldom`` has the samplers that run rarely.
    ``activity`` is what the server was seen to execute. ``series`` are the figures up to this moment, and
    ``back_s`` how long ago it was if it is not the newest. ``looked_ago_s``: the age of the last look at the
    process list, 0 for a fresh one.
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
    activity: Activity | None = None
    paused: bool = False
    series: Series | None = None
    back_s: float = 0.0
    looked_ago_s: float = 0.0

    @property
    def has_server(self) -> bool:
        """Whether one was asked, also in vain."""
        return bool(self.server_problem) or "mysql_status" in self.now.samplers()

    @property
    def server_problem(self) -> str:
        """Why the server does not answer; empty while it does."""
        return self.errors.get("mysql_status", "")


def judged(feed: Feed, seconds: float) -> Judgement | None:
    """What all rules find in the last seconds; None before there is enough to judge."""
    window = feed.ring.window(seconds)
    known = feed.known
    if known is None or window.seconds < FEWEST_S:
        return None
    return judge_rules(Evidence(known, window, activity=feed.activity), all_rules())


def concluded(feed: Feed, judgement: Judgement | None) -> Verdict | None:
    """The verdict on the last ten seconds, with the causes that ``judgement`` found; None before the facts."""
    known = feed.known
    if known is None:
        return None
    recent = feed.ring.window(VERDICT_S)
    evidence = Evidence(known, recent, activity=feed.activity)
    return evidence.verdict if judgement is None else conclude(evidence, judgement)


def take(
    feed: Feed,
    clock: str,
    age_s: float,
    judgement: Judgement | None = None,
    verdict: Verdict | None = None,
) -> Shot | None:
    """The current shot; None before the second sample. ``verdict``: that of a moment ago, where a new one is not
    needed."""
    known = feed.known
    if known is None or feed.ticks < 2:
        return None
    facts = HostFacts(known)
    verdict = verdict or concluded(feed, judgement)
    assert verdict is not None
    settings = known.data.get("server_settings") or {}
    lines = (known.data.get("irqs") or {}).get("lines") or ()
    return Shot(
        feed.name,
        str(feed.link),
        feed.problem,
        clock,
        facts,
        feed.ring.window(NOW_S),
        feed.ring.window(VERDICT_S, DRAWN_OF_RECENT),
        verdict,
        feed.ring.errors,
        server=f"{settings['vendor']} {settings['version']}" if settings else "",
        age_s=age_s,
        judgement=judgement,
        listed=dict(feed.listed),
        interrupts={str(row.get("irq")): str(row.get("device") or row.get("action") or "") for row in lines},
        seldom=feed.ring.window(SELDOM_S, SELDOM),
        activity=feed.activity,
        looked_ago_s=feed.looked_ago_s,
    )
