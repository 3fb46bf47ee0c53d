"""Cases of the rules about the binary log."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

MANY = {"threads_running": 20.0}
ALONE = {"binlog_commits": 900.0, "binlog_group_commits": 850.0}
WIDE = {"binlog_bytes_written": 40e6, "handler_update": 4_000.0, "handler_delete": 0.0}
WAITS = {"slave_connections_needed_for_purge": "1"}
SLOW_COMMITS: dict[str, Any] = {
    "vendor": "mysql",
    "variables": {"binlog_group_commit_sync_delay": "50000"},
    "status": {"threads_running": 9.0},
    "status_rates": {"binlog_cache_use": 160.0, "innodb_os_log_fsyncs": 21.0},
}

CASES = [
    Case(
        "BLOG01",
        "a group each",
        lambda: unwell(status=MANY, status_rates=ALONE),
        ("",),
        ("900 commits/s in 850 groups, with 20 threads running",),
    ),
    Case(
        "BLOG01",
        "MySQL",
        lambda: unwell(
            vendor="mysql",
            status=MANY,
            # Every statement commits by itself, which Com_commit does not count.
            status_rates={"com_commit": 0.0, "binlog_cache_use": 900.0, "innodb_os_log_fsyncs": 880.0},
        ),
        ("",),
        ("900 commits/s in 880 groups",),
    ),
    Case(
        "BLOG01", "groups", lambda: unwell(status=MANY, status_rates={**ALONE, "binlog_group_commits": 90.0})
    ),
    Case("BLOG01", "few threads", lambda: unwell(status_rates=ALONE)),
    Case("BLOG01", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "BLOG01", "not sampled", lambda: unwell(without=["mysql_status"]), missing="threads_running was not"
    ),
    Case(
        "BLOG02",
        "ten kilobytes a row",
        lambda: unwell(status_rates=WIDE),
        ("",),
        ("38.1 MiB of binary log per second, 9.77 KiB per row",),
    ),
    Case("BLOG02", "minimal", lambda: unwell(status_rates=WIDE, variables={"binlog_row_image": "MINIMAL"})),
    Case("BLOG02", "most rows are new", lambda: unwell(status_rates={**WIDE, "handler_write": 9_000.0})),
    Case("BLOG02", "statements", lambda: unwell(status_rates=WIDE, variables={"binlog_format": "STATEMENT"})),
    Case("BLOG02", "narrow", lambda: unwell(status_rates={**WIDE, "handler_update": 90_000.0})),
    Case("BLOG02", "not sampled", lambda: unwell(without=["mysql_status"]), missing="bytes_written was not"),
    Case(
        "BLOG03",
        "for ever",
        lambda: unwell(variables={"binlog_expire_logs_seconds": "0"}),
        ("",),
        ("binlog_expire_logs_seconds and expire_logs_days are 0",),
        # A setting would remove files that a stopped replica or a backup still needs.
        sets=({},),
        steps=("any replica", "oldest backup", "binlog_expire_logs_seconds = 604800"),
    ),
    Case(
        "BLOG03",
        "an age, but nothing is purged",
        lambda: unwell(vendor="mysql", variables={"binlog_expire_logs_auto_purge": "OFF"}),
        ("",),
        ("binlog_expire_logs_auto_purge is OFF",),
    ),
    Case(
        "BLOG03",
        "an age, but MariaDB waits for a replica",
        lambda: unwell(version="11.8.3", variables=WAITS, status={"slaves_connected": 0.0}),
        ("",),
        ("nothing is purged: 0 replicas are connected, and slave_connections_needed_for_purge is 1",),
        sets=({},),
        steps=("bring it back", "oldest backup", "slave_connections_needed_for_purge = 0"),
    ),
    Case(
        "BLOG03",
        "a size, but MariaDB waits for a replica",
        lambda: unwell(
            version="11.8.3",
            variables={**WAITS, "binlog_expire_logs_seconds": "0", "max_binlog_total_size": "1073741824"},
            status={"slaves_connected": 0.0},
        ),
        ("",),
    ),
    Case(
        "BLOG03",
        "the replica is there",
        lambda: unwell(version="11.8.3", variables=WAITS, status={"slaves_connected": 1.0}),
    ),
    Case("BLOG03", "a week", lambda: unwell(vendor="mysql")),
    Case("BLOG03", "off", lambda: unwell(variables={"binlog_expire_logs_seconds": "0", "log_bin": "OFF"})),
    Case("BLOG03", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "BLOG04",
        "a twentieth of a second for each commit",
        lambda: unwell(**SLOW_COMMITS),
        ("",),
        (
            "binlog_group_commit_sync_delay is 50,000 us: 160 commits/s wait 50.0 ms each",
            "8.0 sessions do so",
        ),
        sets=({"server.binlog_group_commit_sync_delay": 0},),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLOG04",
        "most of those at work do something else",
        lambda: unwell(**{**SLOW_COMMITS, "status": {"threads_running": 40.0}}),
        ("",),
        severity=Severity.COST,
    ),
    Case(
        "BLOG04",
        "MariaDB waits for a hundred, and they never come",
        lambda: unwell(
            variables={"binlog_commit_wait_count": "100"},
            status={"threads_running": 5.0},
            status_rates={
                "binlog_commits": 40.0,
                "binlog_group_commits": 10.0,
                "binlog_group_commit_trigger_timeout": 10.0,
            },
        ),
        ("",),
        ("binlog_commit_wait_usec is 100,000 us: 40 commits/s wait 100.0 ms each",),
        sets=({"server.binlog_commit_wait_count": 0},),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLOG04",
        "MariaDB waits for ten, and they come",
        lambda: unwell(
            variables={"binlog_commit_wait_count": "10"},
            status_rates={"binlog_commits": 5_000.0, "binlog_group_commits": 500.0},
        ),
    ),
    Case(
        "BLOG04",
        "as many as it waits for",
        lambda: unwell(
            vendor="mysql",
            variables={
                "binlog_group_commit_sync_delay": "50000",
                "binlog_group_commit_sync_no_delay_count": "10",
            },
            status_rates={"binlog_cache_use": 5_000.0, "innodb_os_log_fsyncs": 450.0},
        ),
    ),
    Case(
        "BLOG04",
        "the length of a sync",
        lambda: unwell(
            vendor="mysql",
            variables={"binlog_group_commit_sync_delay": "100"},
            status_rates={"binlog_cache_use": 9_000.0},
        ),
    ),
    Case(
        "BLOG04",
        "no log",
        lambda: unwell(**{**SLOW_COMMITS, "variables": {**SLOW_COMMITS["variables"], "log_bin": "OFF"}}),
    ),
    Case("BLOG04", "none", unwell),
    Case("BLOG04", "not sampled", lambda: unwell(without=["mysql_status"]), missing="binlog_commits was not"),
]
