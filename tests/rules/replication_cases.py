"""Cases of the rules about replicas."""

from __future__ import annotations

from functools import partial

from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

REPLICA = {
    "replication.lag_s.": 0.0,
    "replication.io_running.": 1.0,
    "replication.sql_running.": 1.0,
    "replication.read_file.": 7.0,
    "replication.read_position_bytes.": 900.0,
    "replication.exec_file.": 7.0,
    "replication.exec_position_bytes.": 900.0,
    "replication.relay_space_bytes.": 1e6,
}
LATE = {**REPLICA, "replication.lag_s.": 400.0}
UNAPPLIED = {**LATE, "replication.exec_file.": 5.0}
QUEUEING = {
    **{name: value for name, value in REPLICA.items() if "read_position" not in name},
    "replication.io_state.Queueing master event to the relay log": 1.0,
}
FETCHES = {"replication.read_position_bytes.": 200_000.0}

CASES = [
    Case(
        "REPL01",
        "apply-bound",
        lambda: unwell(gauges=UNAPPLIED),
        ("",),
        ("at least 400 s behind, apply-bound; slave_parallel_threads is 0",),
        # MariaDB refuses it while the applier runs, MySQL goes on as before.
        sets=({},),
        steps=("STOP REPLICA SQL_THREAD; SET GLOBAL slave_parallel_threads = 4; START REPLICA SQL_THREAD",),
    ),
    Case(
        "REPL01",
        "as late as it was asked to be",
        lambda: unwell(gauges={**UNAPPLIED, "replication.delay_s.": 390.0}),
    ),
    Case(
        "REPL01",
        "later than it was asked to be",
        lambda: unwell(gauges={**UNAPPLIED, "replication.delay_s.": 300.0}),
        ("",),
        ("at least 100 s behind",),
    ),
    Case(
        "REPL01",
        "by the device, in MySQL",
        lambda: unwell(vendor="mysql", gauges=UNAPPLIED, rates={"psi.some_total_us.io": 400_000.0}),
        ("",),
        ("apply-bound, and tasks wait for I/O; replica_parallel_workers is 4",),
    ),
    Case("REPL01", "all is applied", lambda: unwell(gauges=LATE), ("",), ("for an unknown reason",)),
    *(
        Case(
            "REPL01",
            name,
            partial(unwell, gauges={**LATE, "replication.lag_s.": lag}),
            missing="cannot be",
        )
        for name, lag in (
            ("below zero", 2.0**32 - 1),
            ("below zero, 64 bits", 2.0**64),
            ("since 1970", 1.77e9),
        )
    ),
    Case("REPL01", "in time", lambda: unwell(gauges=REPLICA)),
    Case("REPL01", "no replica", unwell),
    Case(
        "REPL01",
        "not asked",
        lambda: unwell(facts={"server_settings.replication": None}),
        missing="replication status",
    ),
    Case(
        "REPL01",
        "not sampled",
        lambda: unwell(facts={"server_settings.replication": [{"channel": ""}]}),
        missing="positions were not sampled",
    ),
    Case(
        "REPL02",
        "SQL",
        lambda: unwell(gauges={**REPLICA, "replication.sql_running.": 0.0}),
        ("",),
        ("the replica's SQL thread is not running",),
    ),
    Case("REPL02", "both run", lambda: unwell(gauges=REPLICA)),
    Case(
        "REPL02",
        "a member of a group that has joined",
        lambda: unwell(
            vendor="mysql",
            gauges={
                f"replication.{thread}_running.group_replication_{channel}": float(channel == "applier")
                for thread in ("io", "sql")
                for channel in ("applier", "recovery")
            },
        ),
    ),
    Case("REPL02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL03",
        "five tables",
        lambda: unwell(gauges=UNAPPLIED, facts={"server_settings.tables_without_primary_key": 5}),
        ("",),
        ("5 tables have no primary key, and the replica is 400 s behind",),
    ),
    Case(
        "REPL03",
        "in time",
        lambda: unwell(gauges=REPLICA, facts={"server_settings.tables_without_primary_key": 5}),
    ),
    Case("REPL03", "all have one", lambda: unwell(gauges=UNAPPLIED)),
    Case(
        "REPL03",
        "unknown",
        lambda: unwell(gauges=UNAPPLIED, facts={"server_settings.tables_without_primary_key": None}),
        missing="no primary key",
    ),
    Case(
        "REPL04",
        "40 GiB",
        lambda: unwell(gauges={**REPLICA, "replication.relay_space_bytes.": 40.0 * GIB}),
        ("",),
        ("the relay log takes 40 GiB",),
    ),
    Case("REPL04", "small", lambda: unwell(gauges=REPLICA)),
    Case("REPL04", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case("REPL05", "off", lambda: unwell(gauges=REPLICA), ("",), ("relay_log_recovery is off",)),
    Case("REPL05", "on", lambda: unwell(gauges=REPLICA, variables={"relay_log_recovery": "ON"})),
    Case(
        "REPL05",
        "fetched again by GTID",
        lambda: unwell(
            gauges=REPLICA, facts={"server_settings.replication": [{"channel": "", "is_by_gtid": True}]}
        ),
    ),
    Case(
        "REPL05",
        "one of two channels by file and position",
        lambda: unwell(
            gauges=REPLICA,
            facts={"server_settings.replication": [{"channel": "", "is_by_gtid": True}, {"channel": "b"}]},
        ),
        ("",),
        ("relay_log_recovery is off",),
    ),
    Case("REPL05", "no replica", unwell),
    Case("REPL05", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL14",
        "each event",
        lambda: unwell(
            gauges=QUEUEING, rates=FETCHES, variables={"sync_relay_log": "1", "sync_master_info": "1"}
        ),
        ("",),
        (
            "writes what it has received 100% of the time, and sync_relay_log is 1 and sync_master_info is 1; it "
            "fetches 195 KiB/s",
        ),
        # Without the syncs a torn relay log must be fetched again.
        sets=(
            {
                "server.sync_relay_log": 10_000,
                "server.sync_master_info": 10_000,
                "server.relay_log_recovery": True,
            },
        ),
    ),
    Case(
        "REPL14",
        "MySQL, with one variable under two names",
        lambda: unwell(
            vendor="mysql",
            gauges={**REPLICA, "replication.io_state.east/Queueing source event to the relay log": 1.0},
            variables={"sync_source_info": "1", "sync_master_info": "1", "relay_log_recovery": "ON"},
        ),
        ("",),
        sets=({"server.sync_source_info": 10_000},),
    ),
    Case(
        "REPL14",
        "a replica that acknowledges commits",
        lambda: unwell(
            gauges=QUEUEING,
            variables={
                "sync_relay_log": "1",
                "relay_log_recovery": "ON",
                "rpl_semi_sync_slave_enabled": "ON",
            },
        ),
        ("",),
        sets=({},),
        steps=("acknowledges commits", "set sync_relay_log"),
    ),
    Case("REPL14", "the default", lambda: unwell(gauges=QUEUEING)),
    Case(
        "REPL14", "it waits for its source", lambda: unwell(gauges=REPLICA, variables={"sync_relay_log": "1"})
    ),
    Case("REPL14", "no replica", lambda: unwell(variables={"sync_relay_log": "1"})),
    Case(
        "REPL14",
        "not asked",
        lambda: unwell(facts={"server_settings.replication": None}),
        missing="replication status",
    ),
]
