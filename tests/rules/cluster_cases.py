"""Cases of the rules about servers that work together."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

REPLICA = {"replication.sql_running.": 1.0, "replication.io_running.": 1.0, "replication.lag_s.": 0.0}
SEMISYNC = {"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_timeout": "10000"}
WORKS = {
    "rpl_semi_sync_master_status": 1.0,
    "rpl_semi_sync_master_clients": 1.0,
    "rpl_semi_sync_master_no_tx": 0.0,
}
FELL_BACK = {**WORKS, "rpl_semi_sync_master_status": 0.0, "rpl_semi_sync_master_clients": 0.0}
SEMISYNC_8 = {"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_timeout": "10000"}
ACKNOWLEDGED = {
    "processlist.threads.Query": 9.0,
    "processlist.states.Waiting for semi-sync ACK from replica": 0.9,
    "processlist.states.waiting for handler commit": 7.0,
}
ANY_ORDER = {
    "replica_parallel_workers": "4",
    "replica_preserve_commit_order": "OFF",
    "read_only": "ON",
    "super_read_only": "ON",
}
COMMIT_ORDER = {"binlog_transaction_dependency_tracking": "COMMIT_ORDER", "binlog_format": "ROW"}
DUMPS = {"processlist.threads.Binlog Dump GTID": 2.0}
NO_WRITES = {"com_insert": 0.0, "com_update": 0.0, "com_delete": 0.0}
#: Every statement commits by itself, which Com_commit does not count.
BY_THEMSELVES = {"com_commit": 0.0, "binlog_cache_use": 450.0}
ROOM = "Waiting for Replica Workers to free pending events"
FULL = {**REPLICA, "replication.sql_state.Waiting for room in worker thread event queue": 1.0}
LIBRARY = "/usr/lib/galera/libgalera_smm.so"
NODE = {"wsrep_on": "ON", "wsrep_provider": LIBRARY, "wsrep_slave_threads": "1"}
PAUSED = {"wsrep_flow_control_paused_ns": 4e8, "wsrep_flow_control_sent": 20.0}

CASES = [
    Case(
        "REPL06",
        "no replica",
        lambda: unwell(
            variables=SEMISYNC, status=FELL_BACK, status_rates={"rpl_semi_sync_master_no_tx": 300.0}
        ),
        ("",),
        ("300.0 commits/s are not acknowledged by any replica; 0 semi-synchronous replicas",),
    ),
    Case(
        "REPL06",
        "MySQL 8.0",
        lambda: unwell(
            vendor="mysql",
            variables=SEMISYNC_8,
            status={name.replace("master", "source"): value for name, value in FELL_BACK.items()},
            status_rates={"rpl_semi_sync_source_no_tx": 3.0},
        ),
        ("",),
    ),
    Case("REPL06", "it works", lambda: unwell(variables=SEMISYNC, status=WORKS)),
    Case("REPL06", "off", unwell),
    Case(
        "REPL06",
        "no status",
        lambda: unwell(variables=SEMISYNC, without=["mysql_status"]),
        missing="rpl_semi_sync_master_status was not",
    ),
    Case(
        "REPL13",
        "one session waits for the replica, and seven for it",
        lambda: unwell(
            vendor="mysql",
            variables=SEMISYNC_8,
            status={"rpl_semi_sync_source_clients": 1.0, "threads_running": 10.0},
            status_rates={
                "rpl_semi_sync_source_tx_waits": 20.0,
                "rpl_semi_sync_source_tx_wait_time": 20 * 45_000.0,
            },
            gauges=ACKNOWLEDGED,
        ),
        ("",),
        (
            "7.9 sessions wait for a replica to acknowledge a commit, 45.0 ms each; the longest",
            "wait is 10 s.",
        ),
    ),
    Case(
        "REPL13",
        "the replica is gone, and MariaDB waits for an hour",
        lambda: unwell(
            variables={**SEMISYNC, "rpl_semi_sync_master_timeout": "3600000"},
            status={**WORKS, "threads_running": 7.0},
            gauges={
                "processlist.threads.Query": 6.0,
                "processlist.states.Waiting for semi-sync ACK from slave": 6.0,
            },
        ),
        ("",),
        (
            "6.0 sessions wait for a replica to acknowledge a commit; the longest that they may wait is 3,600 s.",
        ),
    ),
    Case(
        "REPL13",
        "most are at other work",
        lambda: unwell(
            vendor="mysql",
            variables=SEMISYNC_8,
            status={"rpl_semi_sync_source_clients": 1.0, "threads_running": 40.0},
            gauges=ACKNOWLEDGED,
        ),
    ),
    Case("REPL13", "off", unwell),
    Case(
        "REPL13",
        "not sampled",
        lambda: unwell(variables=SEMISYNC, status=WORKS),
        missing="process list was not",
    ),
    Case("REPL13", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL07",
        "clients write to it now",
        lambda: unwell(gauges=REPLICA),
        ("",),
        ("read_only is off on a replica; 800.0 statements/s change data",),
        # It may be a source that was promoted: a setting would stop its clients.
        sets=({},),
        steps=("Find the clients that write", "RESET REPLICA ALL", "SET GLOBAL read_only = ON"),
    ),
    Case(
        "REPL07",
        "nobody writes",
        lambda: unwell(gauges=REPLICA, status_rates=NO_WRITES),
        ("",),
        sets=({"server.read_only": True},),
    ),
    Case(
        "REPL07",
        "a member of a group",
        lambda: unwell(vendor="mysql", gauges={"replication.sql_running.group_replication_recovery": 0.0}),
    ),
    Case("REPL07", "read only", lambda: unwell(gauges=REPLICA, variables={"read_only": "ON"})),
    Case("REPL07", "no replica", unwell),
    Case(
        "REPL07",
        "unknown",
        lambda: unwell(facts={"server_settings.replication": None}),
        missing="not queried for its replication",
    ),
    Case(
        "REPL08",
        "four workers",
        lambda: unwell(vendor="mysql", gauges=REPLICA, variables=ANY_ORDER),
        ("",),
        ("4 workers apply, and replica_preserve_commit_order is off",),
        sets=({},),
        steps=("STOP REPLICA SQL_THREAD; SET GLOBAL replica_preserve_commit_order = ON",),
    ),
    Case(
        "REPL08",
        "one",
        lambda: unwell(
            vendor="mysql", gauges=REPLICA, variables={**ANY_ORDER, "replica_parallel_workers": "1"}
        ),
    ),
    Case(
        "REPL08",
        "unknown",
        lambda: unwell(vendor="mysql", facts={"server_settings.replication": None}),
        missing="not queried for its replication",
    ),
    Case(
        "REPL09",
        "two replicas",
        lambda: unwell(vendor="mysql", variables=COMMIT_ORDER, gauges=DUMPS),
        ("",),
        ("300 transactions/s go to 2 replicas with COMMIT_ORDER",),
    ),
    Case(
        "REPL09",
        "no explicit commits",
        lambda: unwell(vendor="mysql", variables=COMMIT_ORDER, gauges=DUMPS, status_rates=BY_THEMSELVES),
        ("",),
        ("450 transactions/s",),
    ),
    Case(
        "REPL09",
        "none",
        lambda: unwell(vendor="mysql", variables=COMMIT_ORDER, gauges={"processlist.threads.Sleep": 1.0}),
    ),
    Case(
        "REPL09",
        "not sampled",
        lambda: unwell(vendor="mysql", variables=COMMIT_ORDER),
        missing="process list was not",
    ),
    Case(
        "REPL10",
        "always",
        lambda: unwell(
            gauges={**FULL, "replication.relay_space_bytes.": 900e6},
            variables={"slave_parallel_max_queued": "131072", "slave_parallel_threads": "8"},
        ),
        ("",),
        ("waits for room in its workers' queue 100% of the time; slave_parallel_max_queued is 128 KiB",),
        sets=({"server.slave_parallel_max_queued": 2 << 20},),
    ),
    Case(
        "REPL10",
        "a queue per worker, and 64 of them",
        lambda: unwell(
            gauges={**FULL, "replication.relay_space_bytes.": 9e12},
            variables={"slave_parallel_max_queued": str(64 << 20), "slave_parallel_threads": "64"},
        ),
        ("",),
        # A quarter of the spare memory, over 64 queues, holds no larger ones.
        sets=({},),
        steps=("smaller transactions",),
    ),
    Case(
        "REPL10",
        "MySQL's one queue, which a running applier keeps",
        lambda: unwell(
            vendor="mysql",
            gauges={**REPLICA, f"replication.sql_state.{ROOM}": 1.0, "replication.relay_space_bytes.": 900e6},
        ),
        ("",),
        sets=({},),
        steps=("SET GLOBAL replica_pending_jobs_size_max = 536870912", "smaller transactions"),
    ),
    Case("REPL10", "no wait", lambda: unwell(gauges=REPLICA)),
    Case("REPL10", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL11",
        "this node",
        lambda: unwell(variables=NODE, status_rates=PAUSED),
        ("",),
        ("stops commits 40% of the time; this node requests it 20.0 times per second",),
    ),
    Case(
        "REPL11",
        "another",
        lambda: unwell(variables=NODE, status_rates={**PAUSED, "wsrep_flow_control_sent": 0.0}),
        ("",),
        ("another node requests it",),
    ),
    Case("REPL11", "no cluster", unwell),
    Case("REPL11", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REPL12",
        "alone",
        lambda: unwell(
            variables=NODE,
            status={"wsrep_cluster_status": 0.0, "wsrep_ready": 0.0, "wsrep_cluster_size": 1.0},
        ),
        ("",),
        ("the node has no quorum; it sees 1 node.",),
    ),
    Case(
        "REPL12",
        "joining, and its component unknown",
        lambda: unwell(variables=NODE, status={"wsrep_ready": 0.0, "wsrep_cluster_size": 3.0}),
        ("",),
        ("the node is not ready; it sees 3 nodes.",),
    ),
    Case(
        "REPL12",
        "a joiner needs no quorum",
        lambda: unwell(
            variables=NODE,
            status={
                "wsrep_cluster_status": 1.0,
                "wsrep_ready": 0.0,
                "wsrep_cluster_size": 3.0,
                "wsrep_local_state": 1.0,
            },
        ),
        ("",),
        ("the node takes no statements yet: it receives the data of its cluster; it sees 3 nodes.",),
        steps=("Wait for it",),
    ),
    Case(
        "REPL12",
        "left after its data differed",
        lambda: unwell(
            variables=NODE,
            status={"wsrep_cluster_status": 0.0, "wsrep_ready": 0.0, "wsrep_cluster_size": 0.0},
        ),
        ("",),
        ("the node is not connected to its cluster; it sees 0 nodes.",),
        steps=("error log",),
    ),
    Case(
        "REPL12",
        "Percona's server without Galera's library",
        lambda: unwell(
            variables={**NODE, "wsrep_provider": "none"},
            status={"wsrep_cluster_status": 0.0, "wsrep_ready": 0.0},
        ),
    ),
    Case(
        "REPL12",
        "together",
        lambda: unwell(variables=NODE, status={"wsrep_cluster_status": 1.0, "wsrep_ready": 1.0}),
    ),
    Case("REPL12", "no cluster", unwell),
    Case(
        "REPL12",
        "no status",
        lambda: unwell(variables=NODE, without=["mysql_status"]),
        missing="wsrep_cluster_status was not",
    ),
]
