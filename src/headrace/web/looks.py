"""Looks at hosts for their alerts, and the loop that takes them: beside the collection, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping

from headrace.base import received
from headrace.base.errors import HeadraceError
from headrace.history import questions
from headrace.history.archive.files import HOUR_S, MINUTE_S
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST
from headrace.history.collect.collector import Collector
from headrace.history.collect.minute import class_name
from headrace.history.collect.watched import Watched
from headrace.host.monitors import looks_at_server
from headrace.host.window import Window
from headrace.hunt.rules import Evidence, all_rules, judge
from headrace.hunt.rules.cause import conclude, is_full, limited_by
from headrace.hunt.rules.evidence import NotEnough
from headrace.hunt.rules.filesystems import written_mounts
from headrace.hunt.rules.replication import IMPOSSIBLE_S
from headrace.show import text
from headrace.web import usual
from headrace.web.alerts import Alerts
from headrace.web.signs import EVERY_S, WINDOW_S, Busy, Look
from headrace.web.usual import LEARNED_HOURS, Usual

log = logging.getLogger("headrace.web")

#: How often messages that wait are told, and whether anything is collected is looked at.
TOLD_EVERY_S = 5.0
#: serve is stuck if no look began for this long, and collects nothing if no minute was written for that long.
STUCK_S, UNWRITTEN_S = 90.0, 2 * MINUTE_S + 30.0
#: Characters of a statement in an alert.
MOST_TEXT = 300


def look_of(watched: Watched) -> Look:
    """The host in the last seconds."""
    at_s, facts = time.time(), watched.feed.facts
    if not watched.is_fresh:
        return Look(at_s, watched.problem or "no samples")
    if facts is None:
        return Look(at_s)
    window = watched.feed.ring.window(WINDOW_S)
    evidence = Evidence(facts, window, activity=watched.feed.activity)
    judgement = judge(evidence, all_rules())
    verdict = conclude(evidence, judgement)
    error = watched.refusal
    counted = classes(window)
    sampled = seen(watched) if counted is None and _counts_none(evidence) else None
    return Look(
        at_s,
        refusal="" if is_full(error) else error,
        limiting=limited_by(verdict, judgement),
        sentence=verdict.sentence,
        classes=counted if sampled is None else sampled,
        is_sampled=sampled is not None,
        connections=connections(evidence, error),
        replicas=replicas(window),
        room=room(evidence),
    )


def classes(window: Window) -> Mapping[str, Busy] | None:
    """None without performance_schema, or before its second sample."""
    times, counts = (window.rates("statements", metric) for metric in ("time_ns", "count"))
    if not times:
        return None
    return {
        name: Busy(counts.get(name, 0.0) * WINDOW_S, time_ns / 1e9)
        for name, time_ns in times.items()
        if time_ns > 0
    }


def _counts_none(evidence: Evidence) -> bool:
    """Whether the server counts no statements, or not for this login."""
    if evidence.window.errors.get("statements"):
        return True
    try:
        return not evidence.is_on("performance_schema")
    except NotEnough:
        return False


def seen(watched: Watched) -> Mapping[str, Busy] | None:
    """The classes of the last looks at the process list. A statement that has run since before them is none that
    costs by being executed: it does not count."""
    found = watched.feed.activity
    if found is None or not found.looks or watched.feed.looked_ago_s:
        return None
    counts = {
        class_name(each.text): each.sightings / found.looks - (each.longest_s >= WINDOW_S)
        for each in found.classes
    }
    return {name: Busy(0.0, sessions) for name, sessions in counts.items() if sessions > 0}


def connections(evidence: Evidence, error: str) -> tuple[float, float] | None:
    """Those in use, and max_connections."""
    try:
        limit = evidence.number("max_connections")
    except NotEnough:
        return None
    if is_full(error):
        return limit, limit
    gauge = evidence.window.gauge("mysql_status", "threads_connected")
    return None if gauge is None else (gauge.low, limit)


def replicas(window: Window) -> Mapping[str, float] | None:
    """Channel -> seconds behind; none if the server is no replica."""
    if "mysql_status" not in window.samplers() or window.errors.get("replication"):
        return None
    found: dict[str, float] = {}
    for channel in window.labels("replication", "sql_running"):
        threads = [window.last("replication", metric, channel) for metric in ("io_running", "sql_running")]
        lag_s = window.last("replication", "lag_s", channel)
        if 0 in threads:
            found[channel] = math.inf
        elif lag_s is not None and lag_s < IMPOSSIBLE_S:
            found[channel] = max(lag_s - (window.last("replication", "delay_s", channel) or 0.0), 0.0)
    return found


def room(evidence: Evidence) -> Mapping[str, float] | None:
    """Bytes available where the server writes."""
    try:
        mounts = written_mounts(evidence)
    except NotEnough:
        return None
    known = {mount: evidence.room(mount) for mount in mounts}
    return {mount: found[1] for mount, found in known.items() if found is not None} or None


class Looking:
    """Takes looks until it is stopped."""

    def __init__(self, alerts: Alerts, collector: Collector, reader: Reader) -> None:
        self.alerts, self.collector, self.reader = alerts, collector, reader
        #: Host -> what is usual there, and the hour in which it was read.
        self._usual: dict[str, tuple[Usual, int]] = {}
        #: Hosts of which no query class is known, and those whose classes are only seen in the process list.
        self._blind: set[str] = set()
        self._sampled: set[str] = set()
        self._began = time.monotonic()
        self._beat = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        stopped = threading.Event()
        # Its own thread: what is to be told may be that nothing else goes on.
        teller = threading.Thread(target=self._tell, args=(stopped,), daemon=True, name="alerts")
        teller.start()
        try:
            while True:
                began = self._beat = time.monotonic()
                for each in self.collector.hosts.values():
                    if each.host.why_not or not (each.feed.ticks or each.feed.problem):
                        continue
                    try:
                        await asyncio.to_thread(self._look, each)
                    except Exception as error:
                        log.exception("the look at %s: %s", each.name, error)
                    self._beat = time.monotonic()
                await asyncio.sleep(max(began + EVERY_S - time.monotonic(), 1.0))
        finally:
            stopped.set()

    def remarks(self, hosts: Collection[str]) -> Iterator[str]:
        """What a reader of the list has to know: of which hosts nothing can be new yet, who was not told."""
        learning = sorted(
            host for host, (known, _) in self._usual.items() if host in hosts and not known.is_learned
        )
        if learning:
            yield (
                f"Bottlenecks and query classes of {', '.join(learning)} are not called new yet: that takes "
                f"{LEARNED_HOURS} hours of history."
            )
        if blind := sorted(host for host in self._blind if host in hosts):
            yield (
                f"Query classes of {', '.join(blind)} are not watched: performance_schema has none, and the "
                "process list is not read."
            )
        if sampled := sorted(host for host in self._sampled if host in hosts):
            yield (
                f"Query classes of {', '.join(sampled)} are those of the process list, as performance_schema has "
                "none: which are new is told, which became slower is unknown."
            )
        for place, why in self.alerts.problems.items():
            yield f"Not sent to {place}: {why}. It is tried again every minute."

    def usual_of(self, host: str) -> Usual:
        """Read once an hour, when the last one is complete."""
        hour = int((time.time() - 3 * MINUTE_S) // HOUR_S)
        known = self._usual.get(host)
        if known is None or known[1] != hour:
            try:
                known = usual.read(self.reader, host, hour * HOUR_S), hour
            except HeadraceError as error:
                log.warning("what is usual for %s: %s", host, error)
                known = (known[0] if known else Usual()), hour
            self._usual[host] = known
        return known[0]

    def _look(self, each: Watched) -> None:
        look = look_of(each)

        def text_of(name: str) -> str:
            span = Range(time.time() - 2 * HOUR_S, time.time())
            source = PROCESS_LIST if look.is_sampled else PERFORMANCE_SCHEMA
            found = questions.texts(self.reader, [each.name], span, source, [name]).get(name)
            if not found or looks_at_server(found["text"], ", ".join(_tables(found["tables"]))):
                return ""
            return text.short(text.clean(found["text"]), MOST_TEXT)

        if not look.problem:
            (self._blind.add if look.classes is None else self._blind.discard)(each.name)
            (self._sampled.add if look.is_sampled else self._sampled.discard)(each.name)
        self.alerts.look(each.name, look, self.usual_of(each.name), text_of)

    def _tell(self, stopped: threading.Event) -> None:
        looked_s = 0.0
        while not stopped.wait(TOLD_EVERY_S):
            now_s = time.time()
            if now_s - looked_s >= EVERY_S or now_s < looked_s:
                looked_s = now_s
                self.alerts.collection(self.why_nothing(), now_s)
            self.alerts.tell(now_s)

    def why_nothing(self) -> str:
        """Why nothing is collected; empty if something is."""
        if self.collector.problem:
            return self.collector.problem
        silent_s = time.monotonic() - self._beat
        if silent_s > STUCK_S:
            return f"headrace serve is stuck: it has not looked at a host for {silent_s:,.0f} s"
        # By what has passed: a clock that was ahead for a minute would make the next years none.
        unwritten_s = time.monotonic() - max(self.collector.last_write, self._began)
        if unwritten_s > UNWRITTEN_S and not self.collector.clock_problem:
            return f"no minute was written for {unwritten_s:,.0f} s"
        return ""


def _tables(found: str) -> list[str]:
    try:
        tables = received.parsed(found)
    except received.BadContent:
        return []
    return [str(each) for each in tables] if isinstance(tables, list) else []
