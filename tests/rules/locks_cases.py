"""Cases of the rules about waiting inside the server."""

from __future__ import annotations

from typing import Any

from headrace.host.activity import summed
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

#: 64 threads running on CPUs that are 19% busy: mysqld at 350% of 1,600%, 2015.
STUCK = {"threads_running": 64.0}
BUF_POOL = {
    "mysql_waits.time_ns.wait/synch/mutex/innodb/buf_pool_mutex": 30e9,
    "mysql_waits.time_ns.wait/synch/rwlock/sql/MDL_lock::rwlock": 1e9,
    "mysql_waits.time_ns.wait/io/file/innodb/innodb_data_file": 90e9,
}
HASH = {
    "mysql_waits.time_ns.wait/synch/sxlock/innodb/btr_search_latch": 4e9,
    "mysql_waits.time_ns.wait/synch/mutex/innodb/trx_sys_mutex": 6e9,
}
MDL = {
    "processlist.threads.Query": 12.0,
    "processlist.states.Waiting for table metadata lock": 9.0,
    "processlist.states.Sending data": 1.0,
}
QUIET = {"innodb_status.oldest_transaction_s.": 2.0}
MYISAM: Any = [
    {"engine": "InnoDB", "tables": 9, "rows": 1, "data_bytes": GIB, "index_bytes": 0},
    {"engine": "MyISAM", "tables": 3, "rows": 1, "data_bytes": GIB, "index_bytes": None},
]
FOR_NUMBERS = {"innodb_status.autoinc_waiters.": 6.0}
BULK: dict[str, Any] = {
    "variables": {"binlog_format": "ROW"},
    "status": {"threads_running": 12.0},
    "status_rates": {"com_insert_select": 5.0, "com_load": 0.0, "handler_write": 20_000.0},
}

WAIT = {
    "lock": "metadata",
    "table": "shop.orders",
    "waiter": 9,
    "holder": 5,
    "is_certain": True,
    "waiter_class": "alter table orders add column a int",
    "holder_class": "select * from orders where id = ?",
    "holder_user": "app",
    "holder_host": "10.0.0.7:4711",
    "holder_open_s": 13,
    "holder_idle_s": 12,
}
HELD = summed({"statements": [WAIT]} for _ in range(10))
HOT_ROW = summed(
    {"statements": [{**WAIT, "lock": "row", "waiter": 99, "holder": n, "holder_open_s": 0}]}
    for n in range(10)
)

CASES = [
    Case(
        "LOCK01",
        "64 threads, idle cores",
        lambda: unwell(status=STUCK, rates=BUF_POOL),
        ("",),
        ("64 server threads are active", "most wait for wait/synch/mutex/innodb/buf_pool_mutex"),
    ),
    Case(
        "LOCK01",
        "SHOW ENGINE INNODB MUTEX only",
        lambda: unwell(status=STUCK, rates={"innodb_mutex.os_waits.&log_sys->mutex": 900.0}),
        ("",),
        ("most wait for &log_sys->mutex",),
    ),
    Case(
        "LOCK01",
        "the process list only",
        lambda: unwell(status=STUCK, gauges=MDL),
        ("",),
        ("most are in state Waiting for table metadata lock",),
    ),
    Case(
        "LOCK01",
        "a hot row",
        lambda: unwell(status={**STUCK, "innodb_row_lock_current_waits": 60.0}, rates=BUF_POOL),
        ("",),
        ("most wait for row locks",),
    ),
    Case("LOCK01", "nobody says", lambda: unwell(status=STUCK), ("",), ("the cause is unknown",)),
    Case(
        "LOCK01",
        "they wait for reads",
        lambda: unwell(status=STUCK, rates={"psi.some_total_us.io": 400_000.0}),
    ),
    Case(
        "LOCK01",
        "they wait for reads, on a kernel without pressure counters",
        lambda: unwell(status=STUCK, gauges={"cpu.procs_blocked.": 50.0}, without=["psi"]),
    ),
    Case("LOCK01", "three threads", unwell),
    Case("LOCK01", "no CPUs", lambda: unwell(status=STUCK, without=["cpu"]), missing="CPUs were not sampled"),
    Case("LOCK01", "no status", lambda: unwell(without=["mysql_status"]), missing="threads_running was not"),
    Case(
        "LOCK02",
        "ten sessions",
        lambda: unwell(status_rates={"innodb_row_lock_time": 10_000.0, "innodb_row_lock_waits": 200.0}),
        ("",),
        ("10.0 sessions wait for a row lock at any time; 200.0 waits/s start, 50 ms each",),
    ),
    Case(
        "LOCK02",
        "its holder",
        lambda: unwell(
            status_rates={"innodb_row_lock_time": 10_000.0, "innodb_row_lock_waits": 200.0}, activity=HOT_ROW
        ),
        ("",),
        (
            "each; the lock on shop.orders is held by transactions that last less than a second, which executes",
        ),
    ),
    Case("LOCK02", "none", unwell),
    Case("LOCK02", "not sampled", lambda: unwell(without=["mysql_status"]), missing="row_lock_time was not"),
    Case(
        "LOCK03",
        "four",
        lambda: unwell(status_rates={"innodb_deadlocks": 4.0}),
        ("",),
        ("4.0 transactions/s",),
    ),
    Case(
        "LOCK03",
        "MySQL",
        lambda: unwell(vendor="mysql", rates={"innodb_metrics.lock_deadlocks.": 4.0}),
        ("",),
        ("4.0 transactions/s",),
    ),
    Case("LOCK03", "none", unwell),
    Case("LOCK03", "not sampled", lambda: unwell(without=["mysql_status"]), missing="deadlocks was not"),
    Case("LOCK04", "nine", lambda: unwell(gauges=MDL), ("",), ("9.0 sessions wait for a metadata lock",)),
    Case(
        "LOCK04",
        "its holder",
        lambda: unwell(gauges=MDL, activity=HELD),
        ("",),
        (
            "9.0 sessions wait for a metadata lock; the lock on shop.orders is held by connection 5 of "
            "app@10.0.0.7:4711 (idle for 12 s, its transaction is open for 13 s), whose last statement was "
            "select * from orders where id = ?.",
        ),
    ),
    Case("LOCK04", "none", lambda: unwell(gauges={"processlist.threads.Sleep": 50.0})),
    Case("LOCK04", "not sampled", unwell, missing="process list was not"),
    Case(
        "LOCK05",
        "MyISAM",
        lambda: unwell(status_rates={"table_locks_waited": 30.0}, engines=MYISAM),
        ("",),
        ("30 statements/s wait for a table lock", "MyISAM"),
    ),
    Case(
        "LOCK05",
        "all behind one long SELECT, so that none begins to wait",
        lambda: unwell(
            status_rates={"table_locks_waited": 0.0},
            gauges={"processlist.threads.Query": 9.0, "processlist.states.Waiting for table level lock": 8.0},
            engines=MYISAM,
        ),
        ("",),
        ("8.0 sessions wait for a table lock at any time; engines other than InnoDB: MyISAM.",),
    ),
    Case("LOCK05", "none", unwell),
    Case("LOCK05", "not sampled", lambda: unwell(without=["mysql_status"]), missing="locks_waited was not"),
    Case("LOCK06", "a gigabyte", lambda: unwell(engines=MYISAM), ("MyISAM",), ("3 tables with 1 GiB",)),
    Case("LOCK06", "InnoDB", unwell),
    Case("LOCK06", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "LOCK07",
        "two fifths",
        lambda: unwell(vendor="mysql", rates=HASH),
        ("",),
        ("40% of the latch waits are for the adaptive hash index",),
    ),
    Case("LOCK07", "off", lambda: unwell(rates=HASH)),
    Case(
        "LOCK07",
        "taken, hardly waited for",
        lambda: unwell(vendor="mysql", rates={name: rate / 100 for name, rate in HASH.items()}),
    ),
    Case("LOCK07", "others", lambda: unwell(vendor="mysql", rates=BUF_POOL)),
    Case("LOCK07", "not sampled", lambda: unwell(vendor="mysql"), missing="waits for latches were not"),
    Case(
        "LOCK08",
        "sixteen",
        lambda: unwell(vendor="mysql", variables={"innodb_thread_concurrency": "16"}, status=STUCK),
        ("",),
        ("lets 16 threads in; 64 are running.",),
    ),
    Case(
        "LOCK08",
        "a queue",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_thread_concurrency": "1"},
            gauges={"innodb_status.threads_queued.": 14.0},
        ),
        ("",),
        ("lets 1 thread in; 3 are running, and 14 wait to enter",),
    ),
    Case("LOCK08", "no limit", lambda: unwell(vendor="mysql", status=STUCK)),
    Case("LOCK08", "room", lambda: unwell(vendor="mysql", variables={"innodb_thread_concurrency": "16"})),
    Case(
        "LOCK08",
        "not sampled",
        lambda: unwell(vendor="mysql", without=["mysql_status"]),
        missing="threads_running was not",
    ),
    Case(
        "LOCK09",
        "two million",
        lambda: unwell(
            status={"innodb_history_list_length": 2e6},
            gauges={"innodb_status.oldest_transaction_s.": 5_000.0},
        ),
        ("",),
        ("2,000,000 old row versions wait for purge; the oldest transaction is 5,000 s old",),
    ),
    Case(
        "LOCK09",
        "MySQL",
        lambda: unwell(vendor="mysql", gauges={"innodb_status.history_list_length.": 2e6, **QUIET}),
        ("",),
        ("the oldest transaction is 2 s old",),
    ),
    Case("LOCK09", "short", unwell),
    Case("LOCK09", "not sampled", lambda: unwell(vendor="mysql"), missing="history_list_length was not"),
    Case(
        "LOCK10",
        "an hour",
        lambda: unwell(gauges={"innodb_status.oldest_transaction_s.": 3_600.0}),
        ("",),
        ("3,600 s old",),
    ),
    Case("LOCK10", "young", lambda: unwell(gauges=QUIET)),
    Case("LOCK10", "not sampled", unwell, missing="oldest_transaction_s was not"),
    Case(
        "LOCK11",
        "mode 1",
        lambda: unwell(**BULK),
        ("",),
        ("is 1, with 5.0 bulk inserts/s and 20,000 rows/s, and 12 threads running",),
        severity=Severity.ADVICE,
    ),
    Case(
        "LOCK11",
        "they wait, for statements that insert little",
        lambda: unwell(
            **{**BULK, "status_rates": {**BULK["status_rates"], "handler_write": 40.0}}, gauges=FOR_NUMBERS
        ),
        ("",),
        (
            "6.0 transactions wait for a table's AUTO_INCREMENT lock at any time; innodb_autoinc_lock_mode is 1",
        ),
        sets=({"server.innodb_autoinc_lock_mode": 2},),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK11",
        "they wait, and statements are logged",
        lambda: unwell(**{**BULK, "variables": {"binlog_format": "STATEMENT"}}, gauges=FOR_NUMBERS),
        ("",),
        sets=({},),
        steps=("binlog_format ROW",),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK11",
        "few, and none waits",
        lambda: unwell(
            **{**BULK, "status_rates": {**BULK["status_rates"], "handler_write": 40.0}},
            gauges={"innodb_status.autoinc_waiters.": 0.0},
        ),
    ),
    Case("LOCK11", "mode 2", lambda: unwell(**{**BULK, "vendor": "mysql"})),
    Case("LOCK11", "mixed binary log", lambda: unwell(**{**BULK, "variables": {"binlog_format": "MIXED"}})),
    Case("LOCK11", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
]
