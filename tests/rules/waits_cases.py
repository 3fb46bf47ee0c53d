"""Cases of the rules about queues inside the server."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

FLUSHED = {
    "processlist.threads.Query": 14.0,
    "processlist.states.Waiting for global read lock": 12.0,
    "processlist.states.Waiting for table flush": 1.0,
}
NO_TIMEOUT = {"innodb_metrics.lock_timeouts.": 0.0}
NOBODY = {"processlist.threads.Sleep": 50.0}
STUCK = {
    "innodb_status.semaphore_longest_wait_s.": 240.0,
    "innodb_status.semaphore_waiters.dict0dict.cc:1200": 31.0,
}
DELAYED: dict[str, Any] = {
    "variables": {"innodb_max_purge_lag": "1000", "innodb_max_purge_lag_delay": "20000"},
    "status": {"innodb_history_list_length": 50_000.0},
}
FORGOTTEN = {"innodb_status.oldest_transaction_s.": 95.0}
POOLED = {"thread_handling": "pool-of-threads", "thread_pool_size": "1", "thread_pool_max_threads": "65536"}
QUEUED = {
    "thread_pool.queued.": 40.0,
    "thread_pool.active.": 2.0,
    "thread_pool.threads.": 4.0,
}
CACHED = {"query_cache_type": "ON", "query_cache_size": "1048576"}

CASES = [
    Case(
        "LOCK12",
        "a backup",
        lambda: unwell(gauges=FLUSHED),
        ("",),
        ("13.0 sessions wait for a lock on the whole server", "held by FLUSH TABLES WITH READ LOCK"),
    ),
    Case("LOCK12", "none", lambda: unwell(gauges=NOBODY)),
    Case("LOCK12", "not sampled", unwell, missing="process list was not"),
    Case(
        "LOCK13",
        "two",
        lambda: unwell(rates={"innodb_metrics.lock_timeouts.": 2.0}),
        ("",),
        ("2.0 statements/s fail after waiting 50 s for a row lock.",),
    ),
    Case(
        "LOCK13",
        "no detection",
        lambda: unwell(
            rates={"innodb_metrics.lock_timeouts.": 2.0}, variables={"innodb_deadlock_detect": "OFF"}
        ),
        ("",),
        ("innodb_deadlock_detect is off, so deadlocks last 50 s too.",),
    ),
    Case(
        "LOCK13",
        "deadlocks that last for ten minutes, and none of them ends in this one",
        lambda: unwell(
            rates=NO_TIMEOUT,
            variables={"innodb_deadlock_detect": "OFF", "innodb_lock_wait_timeout": "600"},
            status={"innodb_row_lock_current_waits": 7.0},
            status_rates={"innodb_row_lock_waits": 0.1},
        ),
        ("",),
        (
            "7.0 sessions wait for rows, and hardly any gets one; innodb_deadlock_detect is off",
            "last 600 s too.",
        ),
        sets=({"server.innodb_deadlock_detect": True}, {}),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK13",
        "no detection, and a hot row that is passed on",
        lambda: unwell(
            rates=NO_TIMEOUT,
            variables={"innodb_deadlock_detect": "OFF"},
            status={"innodb_row_lock_current_waits": 7.0},
            status_rates={"innodb_row_lock_waits": 200.0},
        ),
    ),
    Case(
        "LOCK13",
        "detection, and an open transaction",
        lambda: unwell(rates=NO_TIMEOUT, status={"innodb_row_lock_current_waits": 7.0}),
    ),
    Case("LOCK13", "none", lambda: unwell(rates=NO_TIMEOUT)),
    Case("LOCK13", "not sampled", unwell, missing="lock_timeouts was not"),
    Case(
        "LOCK14",
        "four minutes",
        lambda: unwell(vendor="mysql", gauges=STUCK),
        ("",),
        ("waited 240 s for an InnoDB latch; most threads wait at dict0dict.cc:1200",),
    ),
    Case("LOCK14", "none", lambda: unwell(vendor="mysql", gauges={"innodb_status.lsn.": 7.0})),
    Case("LOCK14", "not sampled", lambda: unwell(vendor="mysql"), missing="sampler innodb_status"),
    Case(
        "LOCK15",
        "eight",
        lambda: unwell(gauges={"processlist.threads.Query": 8.0, "processlist.states.User lock": 8.0}),
        ("",),
        ("8.0 sessions wait in GET_LOCK()",),
    ),
    Case("LOCK15", "none", lambda: unwell(gauges=NOBODY)),
    Case("LOCK15", "not sampled", unwell, missing="process list was not"),
    Case(
        "LOCK16",
        "twenty milliseconds",
        lambda: unwell(**DELAYED),
        ("",),
        ("waits about 20 ms: 50,000 old row versions are 50 times",),
    ),
    Case(
        "LOCK16",
        "MariaDB begins with five milliseconds",
        lambda: unwell(**{**DELAYED, "status": {"innodb_history_list_length": 1_050.0}}),
        ("",),
        ("waits about 6 ms",),
    ),
    Case(
        "LOCK16",
        "MySQL with microseconds",
        lambda: unwell(vendor="mysql", **{**DELAYED, "status": {"innodb_history_list_length": 1_050.0}}),
    ),
    Case(
        "LOCK16",
        "no delay allowed",
        lambda: unwell(
            **{**DELAYED, "variables": {"innodb_max_purge_lag": "1000", "innodb_max_purge_lag_delay": "0"}}
        ),
    ),
    Case("LOCK16", "off", unwell),
    Case("LOCK16", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "LOCK17",
        "rows",
        lambda: unwell(gauges=FORGOTTEN, status={"innodb_row_lock_current_waits": 7.0}),
        ("",),
        ("open for 95 s, and 7.0 sessions wait for rows behind it",),
    ),
    Case(
        "LOCK17",
        "a table",
        lambda: unwell(
            gauges={
                **FORGOTTEN,
                "processlist.threads.Query": 9.0,
                "processlist.states.Waiting for table metadata lock": 9.0,
            }
        ),
        ("",),
        ("9.0 for a table's definition",),
    ),
    Case(
        "LOCK17",
        "history",
        lambda: unwell(gauges=FORGOTTEN, status_rates={"innodb_history_list_length": 2_500.0}),
        ("",),
        ("2,500 old row versions/s pile up",),
    ),
    Case("LOCK17", "nobody waits", lambda: unwell(gauges=FORGOTTEN)),
    Case(
        "LOCK17",
        "an idle reader of committed rows holds no versions",
        lambda: unwell(
            gauges={**FORGOTTEN, "innodb_status.oldest_read_view_s.": 0.0},
            status_rates={"innodb_history_list_length": 2_500.0},
        ),
    ),
    Case(
        "LOCK17",
        "a read view holds them",
        lambda: unwell(
            gauges={**FORGOTTEN, "innodb_status.oldest_read_view_s.": 95.0},
            status_rates={"innodb_history_list_length": 2_500.0},
        ),
        ("",),
        ("2,500 old row versions/s pile up",),
    ),
    Case(
        "LOCK17",
        "young",
        lambda: unwell(
            gauges={"innodb_status.oldest_transaction_s.": 1.0}, status={"innodb_row_lock_current_waits": 7.0}
        ),
    ),
    Case("LOCK17", "not sampled", unwell, missing="oldest_transaction_s was not"),
    Case(
        "LOCK18",
        "six",
        lambda: unwell(
            variables=CACHED,
            gauges={
                "processlist.threads.Query": 6.0,
                "processlist.states.Waiting for query cache lock": 6.0,
            },
        ),
        ("",),
        ("6.0 sessions wait for the query cache",),
    ),
    Case("LOCK18", "none", lambda: unwell(variables=CACHED, gauges=NOBODY)),
    Case("LOCK18", "not sampled", unwell, missing="process list was not"),
    Case(
        "SESS18",
        "one group",
        lambda: unwell(variables=POOLED, gauges=QUEUED),
        ("",),
        ("40.0 requests wait for a thread of the thread pool while 2.0 run; it has 4 threads in 1 group.",),
    ),
    Case(
        "SESS18",
        "at its limit",
        lambda: unwell(
            variables={**POOLED, "thread_pool_size": "8", "thread_pool_max_threads": "4"}, gauges=QUEUED
        ),
        ("",),
    ),
    Case(
        "SESS18",
        "a stalled group that waits a minute for another thread",
        lambda: unwell(
            variables={**POOLED, "thread_pool_size": "8", "thread_pool_stall_limit": "60000"}, gauges=QUEUED
        ),
        ("",),
        ("a stalled group gets another only after 60 s",),
        sets=({"server.thread_pool_stall_limit": 500}, {}),
    ),
    Case(
        "SESS18", "no queue", lambda: unwell(variables=POOLED, gauges={**QUEUED, "thread_pool.queued.": 0.2})
    ),
    Case(
        "SESS18",
        "the CPUs are full",
        lambda: unwell(
            variables=POOLED,
            gauges=QUEUED,
            rates={
                **{f"cpu.user.cpu{n}": 92.0 for n in range(8)},
                **{f"cpu.idle.cpu{n}": 1.5 for n in range(8)},
            },
        ),
    ),
    Case("SESS18", "no pool", unwell),
    Case("SESS18", "not sampled", lambda: unwell(variables=POOLED), missing="thread_pool.queued was not"),
    Case(
        "LOCK19",
        "readers and a writer of the same row",
        lambda: unwell(
            variables={"tx_isolation": "SERIALIZABLE"},
            status={"innodb_row_lock_current_waits": 6.0},
            status_rates={
                "innodb_row_lock_time": 6_000.0,
                "innodb_row_lock_waits": 40.0,
                "innodb_deadlocks": 3.0,
            },
        ),
        ("",),
        (
            "tx_isolation is SERIALIZABLE, so plain reads lock rows: 6.0 sessions wait for a row lock at any "
            "time, and 3.0 transactions/s end in a deadlock",
        ),
        sets=({},),
        steps=("Find the transactions that need it", "SET GLOBAL tx_isolation = 'REPEATABLE-READ'"),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK19",
        "MySQL, deadlocks only",
        lambda: unwell(
            vendor="mysql",
            variables={"transaction_isolation": "SERIALIZABLE"},
            rates={"innodb_metrics.lock_deadlocks.": 2.0},
        ),
        ("",),
        ("transaction_isolation is SERIALIZABLE",),
        severity=Severity.COST,
    ),
    Case("LOCK19", "nobody waits", lambda: unwell(variables={"tx_isolation": "SERIALIZABLE"})),
    Case("LOCK19", "the default", lambda: unwell(status={"innodb_row_lock_current_waits": 6.0})),
    Case("LOCK19", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
]
