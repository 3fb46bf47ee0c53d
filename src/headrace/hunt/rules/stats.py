"""Rules about the server's own instruments, and memory reserved for it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.base.model import Value
from headrace.hunt.rules.evidence import GIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.pool import that_fits
from headrace.hunt.rules.redo import by_capacity, capacity_bytes
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Slow log lines per second above which writing them is noticeable work.
SLOW_LINES_S = 200.0
#: Statements per second that the general log or an audit log writes, each under one lock.
STATEMENTS_S = 100.0
#: Events of an audit log that every statement is; none named means all.
OF_STATEMENTS = {"QUERY", "TABLE", "QUERY_DML", "QUERY_DML_NO_SELECT"}
#: What an audit that is not about data needs.
FEWER_EVENTS = "CONNECT,QUERY_DDL,QUERY_DCL"
#: CPU time of a recorded latch, nearly always without a wait: two readings of the clock and a few counters. An
#: assumption: with 38 latches each, point reads of MySQL 8.0 took 4 to 10 us more in two comparisons on a busy
#: machine; in others the difference was within noise.
EVENT_NS = 100.0
#: Part of the server's CPU time that recording must take to be a cost; and to be worth a remark, with CPUs.
OF_SERVER, REMARK, REMARK_CPUS = 0.1, 0.01, 0.01
#: Consumers that are off by default in every version, and make each event more expensive.
MORE_CONSUMERS = (
    "events_stages_current",
    "events_stages_history",
    "events_stages_history_long",
    "events_statements_history_long",
    "events_transactions_history_long",
    "events_waits_current",
    "events_waits_history",
    "events_waits_history_long",
)
#: Threads that run, on average: fewer wait for nothing, and more wait for something.
RUNNING, WAITING = 2.0, 4.0


@rule(
    "STAT01",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Performance Schema Startup Configuration; MariaDB: off by default",
    refute="With performance_schema on, throughput is lower by more than the knowledge is worth.",
)
def server_is_blind(evidence: Evidence) -> Iterator[Match]:
    """The server does not report what it waits for: performance_schema is off.

    Without it, rules about waits, digests and metadata locks are not evaluated. It costs memory and some
    throughput: the experiment shows how much. If threads are running but no hardware is saturated, they wait for
    each other or for a device, and only performance_schema shows for which.
    """
    running = evidence.running
    if evidence.is_on("performance_schema") or running < RUNNING:
        return
    yield Match(
        "",
        f"performance_schema is off, with {running:.0f} threads running.",
        (number("performance_schema", "OFF"), number("threads running, mean", running, ".1f")),
        (Remedy({"server.performance_schema": True}, is_faster=False),),
        Severity.ADVICE if running >= WAITING and evidence.verdict.limiting is None else None,
    )


@rule(
    "STAT02",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, The General Query Log",
    refute="With the general log off, throughput and p99 are equivalent.",
)
def general_log(evidence: Evidence) -> Iterator[Match]:
    """Every statement is written to the general log.

    All sessions write it under one lock, and it holds every literal, including application passwords.
    """
    statements = evidence.status_rate("questions")
    if not evidence.is_on("general_log") or statements < STATEMENTS_S or not _is_written(evidence):
        return
    yield Match(
        "",
        f"the general log is on, with {statements:,.0f} statements/s.",
        (
            number("general_log", "ON"),
            number("log_output", evidence.variable("log_output")),
            number("Questions/s", statements, ",.0f"),
        ),
        (Remedy({"server.general_log": False}),),
    )


def _is_written(evidence: Evidence) -> bool:
    """Whether the general and the slow log go anywhere: with NONE neither is written, whatever else is named."""
    return "NONE" not in evidence.variable("log_output").upper().split(",")


@rule(
    "STAT03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, The Slow Query Log",
    refute="With long_query_time ten times as long, throughput and p99 are equivalent.",
)
def slow_log_of_everything(evidence: Evidence) -> Iterator[Match]:
    """The slow log is written hundreds of times a second.

    All sessions write it under one lock. Logging every statement is worth it for a while, not permanently. With
    log_queries_not_using_indexes every statement that scans a table is logged, however short.
    """
    name = "slow_query_log" if evidence.has_variable("slow_query_log") else "log_slow_query"
    slow, statements = evidence.status_rate("slow_queries"), evidence.status_rate("questions")
    if not evidence.is_on(name) or not _is_written(evidence):
        return
    # MariaDB counts all and then writes one of so many.
    slow /= (
        max(evidence.number("log_slow_rate_limit"), 1.0)
        if evidence.has_variable("log_slow_rate_limit")
        else 1.0
    )
    if slow < SLOW_LINES_S:
        return
    limit, is_by_index = evidence.number("long_query_time"), evidence.is_on("log_queries_not_using_indexes")
    settings: dict[str, Value] = {"server.log_queries_not_using_indexes": False} if is_by_index else {}
    # If so many took so long, more statements would run at any time than do.
    if not is_by_index or slow * limit <= evidence.running:
        settings["server.long_query_time"] = max(10 * limit, 0.1)
    yield Match(
        "",
        f"{slow:,.0f} statements/s ({share(min(slow / max(statements, 1.0), 1.0))}) go to the slow log; "
        f"long_query_time is {limit:g} s"
        + (", and log_queries_not_using_indexes is on." if is_by_index else "."),
        (
            number("Slow_queries/s", slow, ",.0f"),
            number("long_query_time", f"{limit:g} s"),
            number("log_queries_not_using_indexes", "ON" if is_by_index else "OFF"),
        ),
        (Remedy(settings),),
    )


@rule(
    "STAT04",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Enabling InnoDB Monitors: may result in some performance impact; "
    "innodb_stats_on_metadata: only for non-persistent statistics",
    refute="With the monitors off, throughput and p99 are equivalent.",
)
def monitors_left_on(evidence: Evidence) -> Iterator[Match]:
    """InnoDB's monitors print to the error log all the time, or metadata queries recalculate statistics.

    The monitors list all transactions every 15 seconds; locks only along with the rest. With
    innodb_stats_on_metadata a SHOW TABLE STATUS, or a tool that reads information_schema, recalculates the
    statistics of every table whose statistics are not persistent.
    """
    on = [name for name in ("innodb_status_output", "innodb_status_output_locks") if evidence.is_on(name)]
    if on[:1] != ["innodb_status_output"]:
        on = []
    if evidence.is_on("innodb_stats_on_metadata") and not evidence.is_on("innodb_stats_persistent"):
        on.append("innodb_stats_on_metadata")
    if not on:
        return
    yield Match(
        "",
        f"{' and '.join(on)} {'is' if len(on) == 1 else 'are'} on.",
        tuple(number(name, "ON") for name in on),
        (Remedy({f"server.{name}": False for name in on}),),
    )


@rule(
    "STAT05",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Enabling Large Page Support; MariaDB, large_pages",
    refute="/proc/PID/smaps_rollup shows huge pages for the server.",
)
def large_pages_in_vain(evidence: Evidence) -> Iterator[Match]:
    """The server is configured to use huge pages but has none.

    It falls back to small ones with a line in the error log. Huge pages reserved for it (vm.nr_hugepages) then lie
    idle.
    """
    if not evidence.is_on("large_pages"):
        return
    process = evidence.process
    if process is None or process.get("huge_pages_bytes") is None:
        raise NotEnough("the host does not report the server's huge pages")
    if process["huge_pages_bytes"] > 0:
        return
    pool = evidence.number("innodb_buffer_pool_size")
    yield Match(
        "",
        f"large_pages is on, with a buffer pool of {size(pool)}, but the server has no huge pages.",
        (
            number("large_pages", "ON"),
            number("huge pages", "0"),
            number("innodb_buffer_pool_size", size(pool)),
        ),
        (
            Remedy(
                steps=(
                    f"Reserve them before the server starts: vm.nr_hugepages = {int(pool // (2 << 20) * 1.1)} "
                    "of 2 MiB, and LimitMEMLOCK=infinity for the service.",
                )
            ),
        ),
    )


@rule(
    "STAT06",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Enabling Automatic InnoDB Configuration for a Dedicated MySQL Server",
    refute="The other programs need next to no memory at any time.",
)
def not_dedicated(evidence: Evidence) -> Iterator[Match]:
    """The server assumes that it has the host to itself, but it does not.

    innodb_dedicated_server takes up to three quarters of the memory for the buffer pool, regardless of other
    programs. It also sets the redo log's size and, before 8.4, the flush method: if it is turned off and they are
    not set explicitly, all fall back to their small defaults.
    """
    if not evidence.has_variable("innodb_dedicated_server"):
        evidence.settings  # noqa: B018 - raises NotEnough without a server
        return
    if not evidence.is_on("innodb_dedicated_server"):
        return
    others = [s for s in evidence.rows("servers") if s.get("pid") != (evidence.process or {}).get("pid")]
    large = [s for s in others if (s.get("rss_bytes") or 0) >= GIB]
    if not large:
        return
    shown = ", ".join(f"{s['program']} with {size(s['rss_bytes'])}" for s in large)
    pool = evidence.number("innodb_buffer_pool_size")
    settings: dict[str, Value] = {
        "server.innodb_dedicated_server": False,
        "server.innodb_buffer_pool_size": int(min(pool, that_fits(evidence))),
        **_set_along(evidence),
    }
    yield Match(
        "",
        f"innodb_dedicated_server is on, next to {shown}; the buffer pool is {size(pool)}.",
        (number("innodb_dedicated_server", "ON"), number("others", shown)),
        (Remedy(settings),),
    )


def _set_along(evidence: Evidence) -> dict[str, Value]:
    """What innodb_dedicated_server set besides the pool, named so that it stays."""
    found: dict[str, Value] = {}
    if by_capacity(evidence):
        found["server.innodb_redo_log_capacity"] = int(capacity_bytes(evidence))
    else:
        for name in ("innodb_log_file_size", "innodb_log_files_in_group"):
            if evidence.has_variable(name):
                found[f"server.{name}"] = int(evidence.number(name))
    # 8.0 chooses O_DIRECT_NO_FSYNC, which trusts every cache below the server. O_DIRECT syncs.
    found["server.innodb_flush_method"] = "O_DIRECT"
    return found


@rule(
    "STAT07",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MariaDB, MariaDB Audit Plugin Options and System Variables: server_audit_events; Percona Server, "
    "Audit Log Plugin: audit_log_policy; MySQL Reference Manual, Audit Log Options and Variables",
    refute="With only logins and definitions audited, throughput and p99 are equivalent.",
)
def audit_of_every_statement(evidence: Evidence) -> Iterator[Match]:
    """Every statement is written to an audit log.

    All sessions write it under one lock, and with syslog each waits for another process. Most audits ask for
    logins and changes of definitions and privileges only, which are few. The default of the plugins is to log
    everything.
    """
    statements = evidence.status_rate("questions")
    found = _audited(evidence)
    if found is None or statements < STATEMENTS_S:
        return
    name, value, fewer = found
    yield Match(
        "",
        f"{name} is {value or 'empty, which means all events'}: {statements:,.0f} statements/s go to the "
        "audit log.",
        (
            number(name, value or "empty"),
            *(
                number(each, evidence.variable(each))
                for each in ("server_audit_output_type", "audit_log_strategy")
                if evidence.has_variable(each)
            ),
            number("Questions/s", statements, ",.0f"),
        ),
        (
            Remedy(
                {f"server.{name}": fewer},
                ("First ask those who require the audit which events they need.",),
            ),
        ),
    )


def _audited(evidence: Evidence) -> tuple[str, str, str] | None:
    """The variable that has all statements logged, its value, and one for less; None where nothing does so."""
    if evidence.has_variable("server_audit_logging"):
        events = evidence.variable("server_audit_events")
        logged = {event.strip().upper() for event in events.split(",") if event.strip()}
        is_all = not logged or logged & OF_STATEMENTS
        return (
            ("server_audit_events", events, FEWER_EVENTS)
            if evidence.is_on("server_audit_logging") and is_all
            else None
        )
    if evidence.has_variable("audit_log_policy"):
        policy = evidence.variable("audit_log_policy")
        return ("audit_log_policy", policy, "LOGINS") if policy.upper() in ("ALL", "QUERIES") else None
    return None


@rule(
    "STAT08",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Internals, Tracing the Optimizer; MySQL Reference Manual, SHOW PROFILE Statement; MariaDB, "
    "Optimizer Trace Overview",
    refute="With them off for new sessions, throughput and p99 are equivalent.",
)
def sessions_trace_themselves(evidence: Evidence) -> Iterator[Match]:
    """Optimiser trace or profiling is on for every session.

    The optimiser trace describes each plan that was considered, and profiling times each stage of the last
    statements. Both are meant for one session that then reads them. Set globally, every new session pays for them.
    """
    statements = evidence.status_rate("questions")
    has_trace = evidence.has_variable("optimizer_trace")
    is_traced = has_trace and "enabled=on" in evidence.variable("optimizer_trace").lower()
    is_profiled = evidence.has_variable("profiling") and evidence.is_on("profiling")
    on = [name for name, is_on in (("optimizer_trace", is_traced), ("profiling", is_profiled)) if is_on]
    if not on or statements < STATEMENTS_S:
        return
    settings: dict[str, Value] = {"server.optimizer_trace": "enabled=off"} if is_traced else {}
    # ``profiling`` is not a server option: in my.cnf it prevents startup.
    steps = ("SET GLOBAL profiling = OFF; sessions that are open keep theirs.",) if is_profiled else ()
    yield Match(
        "",
        f"{' and '.join(on)} {'is' if len(on) == 1 else 'are'} on for all sessions, with "
        f"{statements:,.0f} statements/s.",
        (
            *(number(name, evidence.variable(name)) for name in on),
            number("Questions/s", statements, ",.0f"),
        ),
        (Remedy(settings, steps),),
    )


@rule(
    "STAT09",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Performance Schema Startup Configuration; Pre-Filtering by Instrument; "
    "Pre-Filtering by Consumer: wait/synch and the consumers of its events are off by default; MariaDB, "
    "Performance Schema Overview",
    refute="With wait/synch off in setup_instruments, CPU time per statement, throughput and p99 are equivalent.",
)
def every_latch_is_recorded(evidence: Evidence) -> Iterator[Match]:
    """Every latch that a statement takes is recorded, and that takes CPU time.

    A short statement takes tens of latches, nearly all without waiting. With performance_schema's instruments
    wait/synch on, which are off by default, the clock is read before and after each; with consumers of their
    history each is also written down. That shows for which latch threads wait, and is meant for minutes.
    """
    if not evidence.is_on("performance_schema"):
        return
    if "mysql_waits" not in evidence.window.samplers():
        why = evidence.window.errors.get("mysql_waits")
        raise NotEnough("mysql_waits was not sampled" + (f": {why}" if why else ""))
    counts = evidence.window.rates("mysql_waits", "count")
    events = sum(rate for name, rate in counts.items() if name.startswith("wait/synch/"))
    taken = events * EVENT_NS / 1e9
    used = evidence.server_cpus
    if taken < max(REMARK_CPUS, REMARK * used):
        return
    statements = evidence.status_rate("questions")
    known = (evidence.settings.get("performance_schema") or {}).get("consumers")
    more = [name for name in MORE_CONSUMERS if name in (known or ())]
    yield Match(
        "",
        f"performance_schema records {events:,.0f} latches/s"
        + (f", {events / statements:,.0f} per statement" if statements >= 1 else "")
        + f": about {taken:.2g} CPUs, {share(taken / max(used, taken))} of what the server uses"
        + (f"; {counted(len(more), 'consumer')} keep events that are off by default." if more else "."),
        (
            number("latches recorded/s", events, ",.0f"),
            number("assumed time of one", f"{EVENT_NS:.0f} ns"),
            number("CPUs of the server", used, ".2f"),
            number(
                "consumers beyond the default",
                ", ".join(more) or ("none" if known is not None else "unknown"),
            ),
        ),
        (
            Remedy(
                steps=(
                    "UPDATE performance_schema.setup_instruments SET ENABLED = 'NO', TIMED = 'NO' WHERE NAME LIKE "
                    "'wait/synch/%'; it takes effect immediately.",
                    *(
                        (
                            "UPDATE performance_schema.setup_consumers SET ENABLED = 'NO' WHERE NAME IN ("
                            + ", ".join(f"'{name}'" for name in more)
                            + ").",
                        )
                        if more
                        else ()
                    ),
                    "Take performance-schema-instrument and performance-schema-consumer-... out of the "
                    "configuration, and out of what runs after a start (init_file, a monitoring agent).",
                )
            ),
        ),
        None if taken >= OF_SERVER * used else Severity.HOUSEKEEPING,
    )
