"""The time that sorts and temporary tables take: sessions at them, and statements that make them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.hunt import sessions
from headrace.hunt.rules.evidence import Evidence, Number, number

#: Sessions at one kind of work, at least, that are more than a glimpse; and their share of all at work.
SESSIONS, SHARE = 0.25, 0.25
DIGESTS = "performance_schema, by class of statement,"
#: What sessions with temporary tables do, as ``sessions.work_of`` calls it.
TABLES = ("fill temporary tables", "move temporary tables to disk")


@dataclass(frozen=True)
class Cost:
    """``sessions`` of ``active`` were at it on average, which is seconds per second; None if nobody looked.

    ``statements_s``: seconds per second of all classes of statements that do it, whatever else they do; None where
    they were not sampled. ``doing``: what such a session does.
    """

    doing: str
    sessions: float | None
    active: float
    statements_s: float | None

    @property
    def is_high(self) -> bool:
        return (self.sessions or 0.0) >= max(SESSIONS, SHARE * self.active)

    @property
    def clause(self) -> str:
        """For the end of a sentence. States do not tell memory from files, and newer MySQL has none for sorts."""
        if self.sessions is not None and self.sessions >= 0.05:
            return f"{self.sessions:.1f} of {self.active:.1f} active sessions {self.doing} on average"
        if self.statements_s:
            return f"the statements that make them take {self.statements_s:.2f} s per second in all"
        if self.sessions is not None:
            return (
                f"no state shows a session that would {self.doing}, so their time is unknown: {DIGESTS} tells"
            )
        return f"the time that they take is unknown: the list of threads, read often, or {DIGESTS} tells"

    def shown(self) -> tuple[Number, ...]:
        of_sessions = "unknown" if self.sessions is None else self.sessions
        found = [number(f"sessions that {self.doing}, mean", of_sessions, ".2f")]
        if self.statements_s is not None:
            found.append(number("time of statements that make them, s/s", self.statements_s, ",.2f"))
        return tuple(found)


def cost_of(evidence: Evidence, doing: str, works: Collection[str], metric: str) -> Cost:
    """``works``: as ``sessions.work_of`` calls them; ``metric``: of classes of statements that do it."""
    load = evidence.load
    at_it = None
    if load is not None and load.groups:
        at_it = sum(
            mean
            for group, wait, mean in load.groups
            if wait == sessions.WORK and sessions.work_of(group.state) in works
        )
    making = [digest for digest, rate in evidence.window.rates("statements", metric).items() if rate > 0]
    times = evidence.window.rates("statements", "time_ns")
    seconds = sum(times.get(digest, 0.0) for digest in making) / 1e9 if times else None
    return Cost(doing, at_it, sessions.at_work(load) if load is not None else 0.0, seconds)


def failed_where_all_are_taken(evidence: Evidence) -> float:
    """Logins that failed in the window, if all connections were taken at some moment of it; else 0.

    The last connection is an administrator's. Who reaches it without that right is refused as a login that fails:
    the server counts only those beyond it as refused.
    """
    now = evidence.window.gauge("mysql_status", "threads_connected")
    if now is None or now.high < evidence.number("max_connections"):
        return 0.0
    return evidence.window.growth("mysql_status", "aborted_connects") or 0.0
