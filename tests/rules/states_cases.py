"""Cases of the rules about what sessions are seen to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.base.model import Facts
from headrace.host.activity import Activity, SessionGroup, StatementClass
from headrace.hunt.hunt import SqlOnly
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import CPUS, cores, unwell

UPDATE = "update orders set k = k + ? where id = ?"


def seen(*groups: tuple[str, str, int]) -> Activity:
    """Sessions by statement, state and how many, in each of ten looks."""
    return Activity(
        10,
        sessions=tuple(
            SessionGroup(text, "Query", state, "app", "10.0.0.7", "", "", 0, 10 * count)
            for text, state, count in groups
        ),
    )


COMMITTING = seen(("commit", "Commit", 30), (UPDATE, "Updating", 4))
STALLED = replace(
    seen(("commit", "Commit", 8), (UPDATE, "Updating", 1)),
    classes=(StatementClass("commit", (), ("app",), 80, 2.0, None),),
)
QUICK = seen(("commit", "Commit", 1), (UPDATE, "Updating", 4))
GROUP = seen(("commit", "Commit", 3))
AUTOCOMMIT = seen((UPDATE, "Commit", 40))
SMALL_POOL: dict[str, Any] = {
    "variables": {"innodb_buffer_pool_size": str(4 << 30)},
    "status_rates": {"innodb_buffer_pool_reads": 5_000.0, "innodb_buffer_pool_read_requests": 60_000.0},
}
EXECUTING = seen(("select ?", "Sending data", 40))


def by_sql(
    activity: Activity | None,
    cpus: int | None = None,
    missing: tuple[str, ...] = (),
    memory_bytes: int | None = None,
    **ill: Any,
) -> Evidence:
    """The same server without its host."""
    found = unwell(activity=activity, **ill)
    facts = SqlOnly(cpus=cpus, memory_bytes=memory_bytes).facts(Facts("0" * 16, dict(found.raw)))
    settings = {**facts.data["server_settings"], "privileges_missing": list(missing)}
    return Evidence(
        Facts(facts.hash, {**facts.data, "server_settings": settings}), found.window, activity=activity
    )


def group_that_waited(for_a_cpu_ns: float) -> Callable[[], Evidence]:
    rates = {**cores(user=96.0, idle=0.0), "threads.runqueue_ns.1401/connection": for_a_cpu_ns}
    return lambda: unwell(activity=GROUP, rates=rates)


CASES = [
    Case(
        "WAIT01",
        "below the block layer",
        lambda: unwell(activity=COMMITTING),
        ("",),
        # 30 sessions and 300 commits a second.
        (
            "sessions wait for their commits: 30.0 of 34.0; a commit takes 100 ms, of which nvme1n1 shows 0.0.",
        ),
        severity=Severity.LIMIT,
    ),
    Case(
        "WAIT01",
        "autocommit",
        lambda: unwell(activity=AUTOCOMMIT),
        ("",),
        # 400 INSERT and 400 UPDATE a second.
        ("40.0 of 40.0; a commit takes 50 ms",),
    ),
    Case(
        "WAIT01",
        "states alone",
        lambda: unwell(gauges={"processlist.states.Commit": 30.0, "processlist.serving.": 34.0}),
        ("",),
        ("30.0 of 34.0; a commit takes at least 27 ms",),
    ),
    Case(
        "WAIT01",
        "by SQL alone",
        lambda: by_sql(COMMITTING),
        ("",),
        ("a commit takes 100 ms, what its volume takes of that is unknown.",),
        severity=Severity.LIMIT,
    ),
    Case(
        "WAIT01",
        "a stall now and then",
        lambda: unwell(activity=STALLED, status_rates={"com_commit": 5_000.0}),
        ("",),
        ("a commit takes 2 ms on average, one of them 2 s and more, of which nvme1n1 shows 0.0.",),
        severity=Severity.LIMIT,
    ),
    Case("WAIT01", "a hand-over", lambda: unwell(activity=QUICK)),
    Case("WAIT01", "nobody looked", unwell, missing="the process list was not sampled"),
    Case(
        "WAIT01",
        "own sessions only",
        lambda: by_sql(COMMITTING, missing=("PROCESS",)),
        missing="GRANT PROCESS",
    ),
    *(
        Case(
            "WAIT01",
            f"full CPUs, and its threads {what}",
            group_that_waited(waited),
            ("",),
            ("sessions wait for their commits: 3.0 of 3.0; a commit takes 10 ms",),
            severity=severity,
        )
        # Who leads the group waits for a CPU, and all others for it.
        for what, waited, severity in (("wait for one", 2e9, Severity.COST), ("do not", 1e6, Severity.LIMIT))
    ),
    Case(
        "WAIT02",
        "full CPUs",
        lambda: unwell(
            activity=EXECUTING, rates={**cores(user=96.0, idle=0.0), "process.utime_ticks.1322/mysqld": 700.0}
        ),
        ("",),
        (f"40.0 sessions execute on {CPUS} CPUs, of 40.0 that are active; most execute select ?.",),
    ),
    Case(
        "WAIT02",
        "full CPUs that others fill",
        lambda: unwell(activity=EXECUTING, rates=cores(user=96.0, idle=0.0)),
    ),
    Case(
        "WAIT02",
        "by SQL alone",
        lambda: by_sql(EXECUTING),
        ("",),
        ("40.0 sessions execute at the same time (the number of CPUs is unknown: --cpus)",),
        severity=Severity.COST,
    ),
    Case(
        "WAIT02", "given CPUs", lambda: by_sql(EXECUTING, 8), ("",), ("on 8 CPUs",), severity=Severity.LIMIT
    ),
    Case("WAIT02", "enough CPUs", lambda: by_sql(EXECUTING, 64)),
    Case("WAIT02", "idle CPUs", lambda: unwell(activity=EXECUTING)),
    Case("WAIT02", "nobody looked", unwell, missing="the process list was not sampled"),
    Case(
        "WAIT03",
        "small pool",
        lambda: by_sql(None, **SMALL_POOL),
        ("",),
        (
            "5,000 pages/s are read from files",
            "4 GiB for",
            "how much memory its host has is unknown (--memory)",
        ),
    ),
    Case(
        "WAIT03",
        "given memory",
        lambda: by_sql(None, memory_bytes=64 << 30, **SMALL_POOL),
        ("",),
        ("its host has 64 GiB",),
        sets=({"server.innodb_buffer_pool_size": 44 << 30}, {}),
    ),
    Case("WAIT03", "a host", lambda: unwell(**SMALL_POOL)),
    Case("WAIT03", "all in memory", lambda: by_sql(None)),
    Case(
        "WAIT03",
        "not counted",
        lambda: by_sql(None, without=("mysql_status",), variables=SMALL_POOL["variables"]),
        missing="mysql_status.innodb_buffer_pool_reads",
    ),
]
