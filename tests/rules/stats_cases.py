"""Cases of the rules about the server's own instruments."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, healthy, unwell
from tests.rules.neighbours_cases import FULL

SLOW = {"slow_queries": 3_000.0}
LATCHES = "mysql_waits.count.wait/synch/rwlock/innodb/index_tree_rw_lock"
RECORDED = {LATCHES: 2_000_000.0, "mysql_waits.count.wait/synch/mutex/sql/THD::LOCK_thd_data": 1_000_000.0}
CONSUMERS = "server_settings.performance_schema.consumers"
AUDIT = {"server_audit_logging": "ON", "server_audit_output_type": "file"}
BESIDE = {
    "servers": [*healthy().rows("servers"), {"pid": 99, "program": "memcached", "rss_bytes": 8 * GIB}],
}

CASES = [
    Case(
        "STAT01",
        "off",
        lambda: unwell(variables={"performance_schema": "OFF"}, status={"threads_running": 20.0}),
        ("",),
        ("performance_schema is off, with 20 threads running",),
        severity=Severity.ADVICE,
    ),
    Case(
        "STAT01",
        "off, and the CPUs are full",
        lambda: unwell(variables={"performance_schema": "OFF"}, status={"threads_running": 20.0}, rates=FULL),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "STAT01",
        "off, with little to know",
        lambda: unwell(variables={"performance_schema": "OFF"}, status={"threads_running": 3.0}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("STAT01", "on", unwell),
    Case(
        "STAT01",
        "off and idle",
        lambda: unwell(variables={"performance_schema": "OFF"}, status={"threads_running": 1.0}),
    ),
    Case(
        "STAT01", "not sampled", lambda: unwell(without=["mysql_status"]), missing="threads_running was not"
    ),
    Case("STAT02", "on", lambda: unwell(variables={"general_log": "ON"}), ("",), ("4,000 statements/s",)),
    Case("STAT02", "off", unwell),
    Case("STAT02", "to nowhere", lambda: unwell(variables={"general_log": "ON", "log_output": "FILE,NONE"})),
    Case("STAT02", "not sampled", lambda: unwell(without=["mysql_status"]), missing="questions was not"),
    Case(
        "STAT03",
        "three thousand",
        lambda: unwell(variables={"slow_query_log": "ON", "long_query_time": "0.000000"}, status_rates=SLOW),
        ("",),
        ("3,000 statements/s (75%) go to the slow log; long_query_time is 0 s",),
    ),
    Case(
        "STAT03",
        "statements without an index, which cannot all take ten seconds",
        lambda: unwell(
            variables={"slow_query_log": "ON", "log_queries_not_using_indexes": "ON"}, status_rates=SLOW
        ),
        ("",),
        ("long_query_time is 10 s, and log_queries_not_using_indexes is on",),
        sets=({"server.log_queries_not_using_indexes": False},),
    ),
    Case(
        "STAT03",
        "both",
        lambda: unwell(
            variables={
                "slow_query_log": "ON",
                "log_queries_not_using_indexes": "ON",
                "long_query_time": "0.000000",
            },
            status_rates=SLOW,
        ),
        ("",),
        sets=({"server.log_queries_not_using_indexes": False, "server.long_query_time": 0.1},),
    ),
    Case(
        "STAT03",
        "one of a hundred is written",
        lambda: unwell(
            variables={"slow_query_log": "ON", "long_query_time": "0.000000", "log_slow_rate_limit": "100"},
            status_rates=SLOW,
        ),
    ),
    Case(
        "STAT03",
        "to nowhere",
        lambda: unwell(
            variables={"slow_query_log": "ON", "long_query_time": "0.000000", "log_output": "NONE"},
            status_rates=SLOW,
        ),
    ),
    Case("STAT03", "off", lambda: unwell(status_rates=SLOW)),
    Case("STAT03", "not sampled", lambda: unwell(without=["mysql_status"]), missing="slow_queries was not"),
    Case(
        "STAT04",
        "left on",
        lambda: unwell(
            variables={
                "innodb_status_output": "ON",
                "innodb_stats_on_metadata": "ON",
                "innodb_stats_persistent": "OFF",
            }
        ),
        ("",),
        ("innodb_status_output and innodb_stats_on_metadata are on",),
    ),
    Case(
        "STAT04",
        "without effect: locks without the monitor, and statistics that are kept",
        lambda: unwell(variables={"innodb_status_output_locks": "ON", "innodb_stats_on_metadata": "ON"}),
    ),
    Case("STAT04", "off", unwell),
    Case("STAT04", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case("STAT05", "none there", lambda: unwell(variables={"large_pages": "ON"}), ("",), ("no huge page",)),
    Case(
        "STAT05",
        "used",
        lambda: unwell(variables={"large_pages": "ON"}, facts={"servers.1322.huge_pages_bytes": 44 * GIB}),
    ),
    Case("STAT05", "not asked for", unwell),
    Case(
        "STAT05",
        "unknown",
        lambda: unwell(variables={"large_pages": "ON"}, facts={"servers.1322.huge_pages_bytes": None}),
        missing="huge pages",
    ),
    Case(
        "STAT06",
        "memcached beside it",
        lambda: unwell(vendor="mysql", variables={"innodb_dedicated_server": "ON"}, facts=BESIDE),
        ("",),
        ("next to memcached with 8 GiB; the buffer pool is 44 GiB",),
        # Turned off alone, the redo log would fall to 100 MiB and the flush method to fsync.
        sets=(
            {
                "server.innodb_dedicated_server": False,
                "server.innodb_buffer_pool_size": 36 * GIB,
                "server.innodb_redo_log_capacity": 8 * GIB,
                "server.innodb_flush_method": "O_DIRECT",
            },
        ),
    ),
    Case(
        "STAT06",
        "alone",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_dedicated_server": "ON"},
            facts={"servers": healthy().rows("servers")[:1]},
        ),
    ),
    Case("STAT06", "off", lambda: unwell(vendor="mysql", facts=BESIDE)),
    Case("STAT06", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "STAT07",
        "all events, by default",
        lambda: unwell(variables={**AUDIT, "server_audit_events": ""}),
        ("",),
        ("server_audit_events is empty, which means all events: 4,000 statements/s go to the audit log",),
        sets=({"server.server_audit_events": "CONNECT,QUERY_DDL,QUERY_DCL"},),
        steps=("ask those who require the audit",),
    ),
    Case(
        "STAT07",
        "tables",
        lambda: unwell(variables={**AUDIT, "server_audit_events": "connect, table"}),
        ("",),
    ),
    Case(
        "STAT07",
        "Percona's policy",
        lambda: unwell(
            vendor="mysql", variables={"audit_log_policy": "ALL", "audit_log_strategy": "SYNCHRONOUS"}
        ),
        ("",),
        ("audit_log_policy is ALL",),
        sets=({"server.audit_log_policy": "LOGINS"},),
    ),
    Case("STAT07", "logins", lambda: unwell(variables={**AUDIT, "server_audit_events": "CONNECT,QUERY_DDL"})),
    Case(
        "STAT07",
        "loaded and off",
        lambda: unwell(variables={"server_audit_logging": "OFF", "server_audit_events": ""}),
    ),
    Case("STAT07", "no plugin", unwell),
    Case("STAT07", "not sampled", lambda: unwell(without=["mysql_status"]), missing="questions was not"),
    Case(
        "STAT08",
        "both",
        lambda: unwell(variables={"optimizer_trace": "enabled=on,one_line=off", "profiling": "ON"}),
        ("",),
        ("optimizer_trace and profiling are on for all sessions, with 4,000 statements/s",),
        # profiling is no option of a server: in its configuration it keeps it from starting.
        sets=({"server.optimizer_trace": "enabled=off"},),
        steps=("SET GLOBAL profiling = OFF",),
    ),
    Case("STAT08", "profiles only", lambda: unwell(variables={"profiling": "ON"}), ("",), sets=({},)),
    Case("STAT08", "off", unwell),
    Case("STAT08", "not sampled", lambda: unwell(without=["mysql_status"]), missing="questions was not"),
    Case(
        "STAT09",
        "a hundred latches per statement, and their history",
        lambda: unwell(
            rates=RECORDED, facts={CONSUMERS: ["events_waits_current", "events_waits_history_long"]}
        ),
        ("",),
        (
            "performance_schema records 3,000,000 latches/s, 750 per statement: about 0.3 CPUs, 23% of what the "
            "server uses; 2 consumers",
        ),
        sets=({},),
        steps=("setup_instruments SET ENABLED = 'NO'", "'events_waits_current', 'events_waits_history_long'"),
        severity=Severity.COST,
    ),
    Case("STAT09", "an older agent", lambda: unwell(rates=RECORDED, facts={CONSUMERS: None}), ("",)),
    Case("STAT09", "the defaults", unwell),
    Case("STAT09", "few statements", lambda: unwell(rates={LATCHES: 80_000.0})),
    Case(
        "STAT09",
        "a server that is busy with other things",
        lambda: unwell(rates={**RECORDED, "process.utime_ticks.1322/mysqld": 600.0}),
        ("",),
        ("about 0.3 CPUs, 4.7% of what the server uses",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("STAT09", "off", lambda: unwell(rates=RECORDED, variables={"performance_schema": "OFF"})),
    Case("STAT09", "not sampled", lambda: unwell(without=["mysql_waits"]), missing="mysql_waits was not"),
]
