"""One minute of a host as rows of the archive."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.capacity import used
from headrace.history.archive.files import MINUTE_S
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, Table
from headrace.host.cores import cores as all_cores
from headrace.host.devices import devices
from headrace.host.memcached import ANSWER
from headrace.host.window import Window
from headrace.hunt.report.words import remedy_text
from headrace.hunt.resources import Level, Verdict
from headrace.hunt.rules.cause import limited_by
from headrace.hunt.rules.rule import Finding, Judgement
from headrace.knobs.catalogue import Cost

if TYPE_CHECKING:
    from headrace.host.activity import Activity
    from headrace.host.facts import HostFacts
    from headrace.hunt.sessions import Load

Row = dict[str, Any]

#: Metric of the archive: bytes available by mount point.
AVAILABLE = "file system available"
#: Characters of a text that are kept.
MOST_TEXT = 20_000
#: Characters of a table's name that are kept.
MOST_TABLE = 500
#: Findings of a minute that are kept.
MOST_FINDINGS = 1000
#: Sorts of sessions of a minute that are kept whole.
MOST_SORTS = 120
#: Classes that were counted once and are remembered.
MOST_REMEMBERED = 100_000
#: Metric of the sampler -> column of the archive.
_DIGEST_COLUMNS = {
    "count": "calls",
    "time_ns": "time_ns",
    "lock_ns": "lock_ns",
    "errors": "errors",
    "rows_examined": "rows_examined",
    "rows_sent": "rows_sent",
    "tmp_disk_tables": "tmp_disk_tables",
}
_SERVER_RATES = (
    "questions",
    "slow_queries",
    "innodb_row_lock_waits",
    "innodb_buffer_pool_reads",
    "innodb_data_fsyncs",
    "innodb_rows_read",
    "innodb_rows_inserted",
    "innodb_rows_updated",
    "innodb_rows_deleted",
)
_SERVER_GAUGES = (
    "threads_running",
    "threads_connected",
    "innodb_history_list_length",
    "innodb_checkpoint_age",
)


def table_of(table: Table, rows: Sequence[Row], t_s: int) -> pa.Table:
    """Rows as Arrow; columns that a row lacks are null."""
    columns = [
        pa.array(
            [t_s] * len(rows) if field.name == "t_s" else [row.get(field.name) for row in rows], field.type
        )
        for field in table.schema
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def state_row(verdict: Verdict, judgement: Judgement | None, sampled_s: float) -> Row:
    findings = [] if judgement is None else judgement.findings[:MOST_FINDINGS]
    return {
        "state": "ok",
        "limiting": limited_by(verdict, judgement),
        "minutes": 1,
        "sampled_s": sampled_s,
        "sentence": verdict.sentence,
        "problem": "",
        "findings": json.dumps([finding_row(found) for found in findings]),
    }


def finding_row(found: Finding) -> Row:
    tested = [each for each in found.hit.remedies if each.settings and found.promises_speed(each)]
    return {
        "id": found.id,
        "title": found.rule.title,
        "severity": str(found.severity),
        "summary": found.hit.summary,
        "fix": "; or ".join(remedy_text(remedy) for remedy in found.hit.remedies),
        "test": f"headrace prove {shlex.quote(found.id)}" if tested else "",
        "next": found.next_command,
        "is_dynamic": any(remedy.cost is Cost.DYNAMIC for remedy in tested),
        "refuted_if": found.rule.refute,
        "statement": next(filter(None, (text_of(n.what, str(n.value)) for n in found.hit.evidence)), ""),
    }


#: Numbers of a finding that are the text of a statement, which the list of queries finds.
_STATEMENTS = ("statement", "often seen", "waiting for ", "the holder's statement")
#: Of a statement that a finding names: as much as a search takes.
MOST_NAMED = 200


def text_of(what: str, value: str) -> str:
    """The text of a statement, to search the list of queries for; empty for other numbers. Long ones are cut."""
    found, colon, _ = value.rpartition(": ") if what.startswith("waiting for ") else (value, ":", "")
    is_text = bool(colon) and what.startswith(_STATEMENTS) and not found.startswith(("unknown", "digest "))
    return found.removesuffix(" ...")[:MOST_NAMED] if is_text else ""


def lost_row(problem: str) -> Row:
    return {
        "state": "lost", "limiting": "", "minutes": 1, "sampled_s": 0.0, "sentence": "",
        "problem": problem, "findings": "[]",
    }  # fmt: skip


def resource_rows(verdict: Verdict) -> list[Row]:
    return [
        {
            "resource": use.resource,
            "instance": use.instance,
            "minutes": 1,
            "used_minutes": 0 if use.utilisation is None else 1,
            "used_sum": use.utilisation or 0.0,
            "used_most": use.utilisation,
            "saturated": int(use.level is Level.SATURATED),
            "busy": int(use.level is Level.BUSY),
            "unknown": int(use.level is Level.UNKNOWN),
            "erring": int(bool(use.errors)),
            "load": use.load,
            "saturation": use.saturation,
            "errors": use.errors,
        }
        for use in verdict.uses
    ]


def metric_rows(window: Window, facts: HostFacts | None = None) -> list[Row]:
    """Rates and gauges of the minute. What was not sampled has no row."""
    return [
        {"metric": metric, "label": label, "n": 1, "sum": value, "least": value, "most": value}
        for metric, label, value in _metrics(window, facts)
        if value is not None and np.isfinite(value)
    ]


def _metrics(window: Window, facts: HostFacts | None) -> Iterator[tuple[str, str, float | None]]:
    yield from _sizes(window, facts)
    cores = all_cores(window)
    yield "cpus", "", len(cores) - 1.0 if len(cores) > 1 else None
    for core in cores:
        if core.name == "all":
            for state in ("busy", "iowait", "steal", "softirq"):
                yield "cpu", state, getattr(core, state)
        else:
            yield "cores", core.name, core.busy
    yield from _pressure_and_memory(window)
    for point in window.labels("file_systems", "available_bytes"):
        yield AVAILABLE, point, window.last("file_systems", "available_bytes", point)
    for device in devices(window):
        yield "device operations", device.name, device.operations
        yield "device bytes", device.name, device.bytes_s
        yield "device wait", device.name, None if device.main_ms is None else device.main_ms / 1e3
        yield "device queue", device.name, device.queue
    for name in window.labels("network", "rx_bytes"):
        for metric in ("rx_bytes", "tx_bytes"):
            yield "network bytes", f"{name} {metric[:2]}", window.rate("network", metric, name)
    for name in window.labels("memcached", "uptime"):
        yield from _cache(name, window)
    for name in _SERVER_RATES:
        yield "server rates", name, window.rate("mysql_status", name)
    for name in _SERVER_GAUGES:
        gauge = window.gauge("mysql_status", name)
        yield f"server {name}", "", gauge.mean if gauge else None


def _pressure_and_memory(window: Window) -> Iterator[tuple[str, str, float | None]]:
    for name in ("cpu", "io", "memory"):
        rate = window.rate("psi", "some_total_us", name)
        yield "pressure", name, None if rate is None else rate / 1e6
    total, available = (window.last("memory", name) for name in ("MemTotal", "MemAvailable"))
    if total and available is not None:
        yield "memory", "used", 1 - available / total


def _cache(name: str, window: Window) -> Iterator[tuple[str, str, float | None]]:
    """A memcached server. Hits of the gets of the minute: without one there is no share."""
    gets, hits = (window.growth("memcached", metric, name) for metric in ("cmd_get", "get_hits"))
    yield "memcached gets", name, window.rate("memcached", "cmd_get", name)
    yield "memcached sets", name, window.rate("memcached", "cmd_set", name)
    yield "memcached hits", name, hits / gets if gets and hits is not None else None
    yield "memcached evictions", name, window.rate("memcached", "evictions", name)
    for metric, column in (("connections", "curr_connections"), ("answer", ANSWER)):
        gauge = window.gauge("memcached", column, name)
        yield f"memcached {metric}", name, gauge.mean if gauge else None


def _sizes(window: Window, facts: HostFacts | None) -> Iterator[tuple[str, str, float]]:
    """What `headrace size` reads of the history."""
    demand, limits = used.of_window(window, facts)
    yield from ((used.DEMAND, name, value) for name, value in demand.items())
    yield from ((used.LIMIT, resource, value) for resource, value in limits.items())


@dataclass
class Counted:
    """Statements that performance_schema counted, as growth since the last minute."""

    _last: dict[str, dict[str, float]] = field(default_factory=dict)
    _was_complete: bool = False
    _at_s: int | None = None
    _has_gap: bool = False

    def rows(self, window: Window, t_s: int) -> list[Row]:
        """Of the minute that starts at ``t_s``. A class that was not among the busiest before has no known past:
        it starts now.

        After minutes that nobody watched only what grew within the window counts: the calls of an hour, in the
        one minute after it, would be a load that never was.
        """
        self._has_gap |= self._at_s is not None and t_s - self._at_s > MINUTE_S
        self._at_s = t_s
        now = _digests(window, -1)
        if not now:
            return []
        if self._has_gap:
            self._last, self._has_gap = _digests(window, 0), False
        found = []
        for digest, values in now.items():
            before = self._last.get(digest)
            if before is None and self._was_complete:
                before = {}
            if before is None:
                continue
            if values.get("count", 0) < before.get("count", 0):
                before = {}  # the server started again, or its tables were truncated
            grown = {m: int(v - before.get(m, 0)) for m, v in values.items()}
            if grown.get("count", 0) <= 0:
                continue
            row: Row = {"source": PERFORMANCE_SCHEMA, "class": digest, "database": ""}
            row |= {column: grown[m] for m, column in _DIGEST_COLUMNS.items() if m in grown}
            found.append(row | {"timed": grown["count"]})
        # A class that fell out of the sample is remembered: it continues where it was.
        if len(self._last) > MOST_REMEMBERED:
            self._last.clear()
        self._last |= now
        self._was_complete = len(now) < used.MOST_DIGESTS
        return found


def _digests(window: Window, at: int) -> dict[str, dict[str, float]]:
    """Digest -> its counters in its first (0) or its newest (-1) sample of the window."""
    found: dict[str, dict[str, float]] = {}
    for metric in _DIGEST_COLUMNS:
        for label in window.labels("statements", metric):
            values = window.values("statements", metric, label)
            if len(values):
                found.setdefault(label, {})[metric] = float(values[at])
    return found


def seen_rows(activity: Activity | None) -> tuple[list[Row], list[Row]]:
    """Classes that were seen in the process list, and their texts."""
    if activity is None or not activity.looks:
        return [], []
    # Without a name: what was seen in no look was seen 0 times in so many, not never looked at.
    classes: list[Row] = [
        {
            "source": PROCESS_LIST,
            "class": "",
            "database": "",
            "seen": 0,
            "looks": activity.looks,
            "most_ns": 0,
        }
    ]
    texts = []
    for each in activity.classes:
        name = class_name(each.text)
        database = each.tables[0].partition(".")[0] if each.tables and "." in each.tables[0] else ""
        classes.append(
            {"source": PROCESS_LIST, "class": name, "database": database, "seen": each.sightings}
            | {"looks": activity.looks, "most_ns": int(each.longest_s * 1e9)}
        )
        texts.append(text_row(PROCESS_LIST, name, each.text, each.tables))
    return _added(classes), texts


def _added(rows: list[Row]) -> list[Row]:
    """Two texts may have the same class: their sightings add up."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = found.setdefault((row["class"], row["database"]), row)
        if known is not row:
            known["seen"] += row["seen"]
            known["most_ns"] = max(known["most_ns"], row["most_ns"])
    return list(found.values())


def session_rows(load: Load | None) -> list[Row]:
    """The sorts of sessions that were seen at work, and one row with how often was looked.

    Of the rarest only what they wait for is kept, so that no session is lost from the sum.
    """
    if load is None:
        return []
    found: dict[tuple[str, ...], float] = {("",) * 5: 0.0}
    groups = [
        ((class_name(g.text) if g.text else "", wait, g.state, g.user, g.host), mean)
        for g, wait, mean in load.groups
    ]
    if not groups:
        groups = [(("", share.name, "", "", ""), share.sessions) for share in load.waits]
        groups.append((("",) * 5, load.executing))
    for key, mean in sorted(groups, key=lambda pair: -pair[1]):
        if key not in found and len(found) >= MOST_SORTS:
            key = ("", key[1], "", "", "")
        found[key] = found.get(key, 0.0) + mean * load.looks
    names = ("class", "wait", "state", "user", "client")
    return [
        {**dict(zip(names, key, strict=True)), "seen": seen, "looks": None if any(key) else load.looks}
        for key, seen in found.items()
    ]


def session_texts(activity: Activity | None) -> list[Row]:
    """Texts of what sessions at work execute, also of those that wait for a lock."""
    if activity is None:
        return []
    tables = {each.text: each.tables for each in activity.classes}
    texts = {each.text: (each.table,) if each.table else () for each in activity.sessions if each.text}
    return [
        text_row(PROCESS_LIST, class_name(text), text, tables.get(text) or known)
        for text, known in texts.items()
    ]


def class_name(text: str) -> str:
    """A short, stable name of a class that has only its text."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def text_row(source: str, name: str, text: str, tables: Sequence[str]) -> Row:
    clean = text.encode("utf-8", "replace").decode()[:MOST_TEXT]
    names = [str(table)[:MOST_TABLE] for table in list(tables)[:50]]
    return {"source": source, "class": name, "text": clean, "tables": json.dumps(names)}


def digest_texts(activity: Activity | None) -> list[Row]:
    """Texts of the digests that performance_schema counted."""
    if activity is None:
        return []
    return [text_row(PERFORMANCE_SCHEMA, d.digest[:16], d.text, d.tables) for d in activity.digests if d.text]


def change_rows(lines: Sequence[Mapping[str, Any]]) -> list[Row]:
    keys = ("kind", "what", "before", "after", "who")
    return [
        {**{k: str(line.get(k) or "")[:500] for k in keys}, "at_s": float(line["at_s"]), "times": 1}
        for line in lines
    ]
