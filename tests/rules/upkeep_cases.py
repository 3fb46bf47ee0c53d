"""Cases of the rules about flushes, changes of tables, and statements that are aborted."""

from __future__ import annotations

from headrace.host.activity import Activity, summed
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell
from tests.rules.neighbours_cases import FULL, SLOW_DISK, WAITED
from tests.rules.statements_cases import EVEN, HEAVY

FLUSHED = {"com_flush": 2.0, "opened_tables": 300.0}
ALTER = "alter table shop.orders add index (customer)"
DISK = {**SLOW_DISK, **WAITED}


def seen(text: str, table: str = "shop.orders", of_ten: int = 10) -> Activity:
    row = {"id": 7, "user": "deploy", "class": text, "time_s": 40, "tables": [table]}
    return summed({"statements": [row] if n < of_ten else []} for n in range(10))


CASES = [
    Case(
        "SESS20",
        "twice per second",
        lambda: unwell(status_rates=FLUSHED, activity=seen("flush tables")),
        ("",),
        ("2.0 FLUSH statements/s are executed, and 300 tables/s are opened again because of them",),
        sets=({},),
        severity=Severity.COST,
    ),
    Case(
        "SESS20",
        "of logs or privileges",
        lambda: unwell(status_rates={"com_flush": 5.0}),
        ("",),
        ("5.0 FLUSH statements/s are executed, and hardly any table is opened again",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("SESS20", "a backup", lambda: unwell(status_rates={"com_flush": 0.02, "opened_tables": 12.0})),
    Case(
        "SESS20",
        "tables that the cache has no room for",
        lambda: unwell(
            vendor="mysql",
            status_rates={"com_flush": 0.3, "opened_tables": 900.0, "table_open_cache_overflows": 900.0},
            status={"open_tables": 4_000.0},
        ),
    ),
    Case("SESS20", "not sampled", lambda: unwell(without=["mysql_status"]), missing="com_flush was not"),
    Case(
        "STMT09",
        "an index is built, and the device is saturated",
        lambda: unwell(rates=DISK, activity=seen(ALTER)),
        ("shop.orders",),
        (f"{ALTER} runs beside the load: 1.0 threads on average",),
        sets=({},),
        steps=("Let it end",),
        severity=Severity.COST,
    ),
    Case(
        "STMT09",
        "tables are analysed in a loop, and the CPUs are full",
        lambda: unwell(rates=FULL, activity=seen("analyze table items"), status_rates={"com_analyze": 3.0}),
        ("shop.orders",),
        ("analyze table items and the like run again and again (3.0/s)",),
        steps=("Find the job",),
        severity=Severity.COST,
    ),
    Case(
        "STMT09",
        "CREATE INDEX, and nothing waits",
        lambda: unwell(activity=seen("create unique index a on orders (customer)")),
        ("shop.orders",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "STMT09",
        "one of many CPUs",
        lambda: unwell(rates=FULL, activity=seen(ALTER, of_ten=6)),
        ("shop.orders",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("STMT09", "seldom", lambda: unwell(rates=FULL, activity=seen(ALTER, of_ten=3))),
    Case("STMT09", "statements", lambda: unwell(activity=seen("analyze select * from orders"))),
    Case("STMT09", "nobody looked", unwell, missing="process list was not"),
    Case(
        "STMT10",
        "a second each",
        lambda: unwell(
            variables={"max_statement_time": "1.000000"},
            status_rates={"max_statement_time_exceeded": 4.0},
            rates={**EVEN, f"statements.errors.{HEAVY}": 4.0},
        ),
        ("",),
        ("4.0 statements/s are aborted by max_statement_time, which is 1 s; most are",),
        sets=({},),
        severity=Severity.LIMIT,
    ),
    Case(
        "STMT10",
        "MySQL, a limit of sessions",
        lambda: unwell(vendor="mysql", status_rates={"max_execution_time_exceeded": 0.5}),
        ("",),
        ("0.5 statements/s are aborted by the max_execution_time of their session.",),
        severity=Severity.COST,
    ),
    Case("STMT10", "one a day", lambda: unwell(status_rates={"max_statement_time_exceeded": 1e-5})),
    Case("STMT10", "not sampled", lambda: unwell(without=["mysql_status"]), missing="exceeded was not"),
]
