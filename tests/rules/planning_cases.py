"""Cases of the rules about the optimiser's work."""

from __future__ import annotations

from typing import Any

from headrace.host.activity import Activity, Digest, summed
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell
from tests.rules.statements_cases import EVEN, HEAVY

OLD = {"table": "shop.lines", "rows": 131_072, "changed": 131_071}
OLDER = {"table": "shop.log", "rows": 900_000, "changed": 2_000_000}
FORGOTTEN = {
    "table": "shop.lines",
    "rows": 100,
    "changed": 0,
    "bytes": {"described": 32 << 10, "used": 11 << 20},
}
JOINED = Activity(
    10,
    digests=(Digest(f"{HEAVY}ffff", "SELECT ... FROM `items` JOIN `lines` ...", "shop", ("items", "Lines")),),
)
HEAVY_READS = {**EVEN, f"statements.rows_examined.{HEAVY}": 4e6, f"statements.rows_sent.{HEAVY}": 10.0}
PLANS = {
    "processlist.threads.Query": 9.0,
    "processlist.states.Statistics": 7.0,
    "processlist.states.Sending data": 2.0,
}


def stale(*tables: dict[str, Any]) -> dict[str, Any]:
    return {"server_settings.stale_statistics": list(tables)}


UP = {"uptime": 9_000.0, "uptime_since_flush_status": 9_000.0}


def seen(rows: float, text: str = "select max(q) from shop.lines where item = ?") -> Activity:
    row = {"id": 7, "user": "app", "class": text, "time_s": 1}
    return summed(
        {"statements": [{**row, "tables": ["shop.lines"], "examined_rows": rows}]} for _ in range(10)
    )


CASES = [
    Case(
        "STMT07",
        "the table of a statement that reads in vain comes first",
        lambda: unwell(facts=stale(OLDER, OLD), rates=HEAVY_READS, activity=JOINED),
        ("shop.lines",),
        (
            "131,071 rows of shop.lines, which has 131,072, have changed since its statistics were calculated; "
            "so have those of 1 other table; SELECT",
        ),
        sets=({}, {}),
        steps=("ANALYZE TABLE shop.log, shop.lines", "ALTER TABLE shop.lines STATS_AUTO_RECALC=DEFAULT"),
        severity=Severity.COST,
    ),
    Case(
        "STMT07",
        "a join whose rows are not counted as examined",
        lambda: unwell(
            facts=stale(OLD), rates={**EVEN, f"statements.full_joins.{HEAVY}": 20.0}, activity=JOINED
        ),
        ("shop.lines",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "STMT07",
        "a slow join whose rows are not counted as examined",
        lambda: unwell(
            facts=stale(OLD),
            rates={**EVEN, f"statements.full_joins.{HEAVY}": 20.0, f"statements.time_ns.{HEAVY}": 4e9},
            activity=JOINED,
        ),
        ("shop.lines",),
        severity=Severity.COST,
    ),
    Case(
        "STMT07",
        "turned off for all, and a statement that only the process list shows",
        lambda: unwell(
            facts=stale(OLD), activity=seen(80_000.0), variables={"innodb_stats_auto_recalc": "OFF"}
        ),
        ("shop.lines",),
        sets=({}, {"server.innodb_stats_auto_recalc": True}),
        severity=Severity.COST,
    ),
    Case(
        "STMT07",
        "statements that read few rows of it",
        lambda: unwell(facts=stale(OLD), activity=seen(3.0)),
        ("shop.lines",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "STMT07",
        "scans of which the tables are not known",
        lambda: unwell(facts=stale(OLD), status_rates={"handler_read_rnd_next": 2e6}),
        ("shop.lines",),
        severity=Severity.ADVICE,
    ),
    Case(
        "STMT07",
        "only the file shows it, after a restart",
        lambda: unwell(facts=stale(FORGOTTEN), rates=HEAVY_READS, activity=JOINED),
        ("shop.lines",),
        (
            "the statistics of shop.lines describe 100 rows in 32 KiB, but 11 MiB of its file are in use; SELECT",
        ),
        steps=("ANALYZE TABLE shop.lines", "ALTER TABLE shop.lines STATS_AUTO_RECALC=DEFAULT"),
        severity=Severity.COST,
    ),
    Case("STMT07", "none is old", lambda: unwell(facts=stale())),
    Case(
        "STMT07",
        "a statement that reads all of the table, whatever its statistics say",
        lambda: unwell(facts=stale(OLD), activity=seen(80_000.0, "select id, q from shop.lines order by q")),
        ("shop.lines",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "STMT07",
        "counters that were changed a thousand times a row, for which nothing is calculated",
        lambda: unwell(
            facts=stale({**OLD, "changed": 131_072_000}),
            activity=seen(80_000.0),
            status={**UP, "handler_write": 900.0, "handler_delete": 0.0},
        ),
    ),
    Case(
        "STMT07",
        "as many rows inserted",
        lambda: unwell(
            facts=stale(OLD),
            activity=seen(80_000.0),
            status={**UP, "handler_write": 131_072.0, "handler_delete": 0.0},
        ),
        ("shop.lines",),
        severity=Severity.COST,
    ),
    Case(
        "STMT07",
        "an older agent",
        lambda: unwell(facts={"server_settings.stale_statistics": None}),
        missing="how old",
    ),
    Case(
        "STMT08",
        "all orders of a join",
        lambda: unwell(gauges=PLANS, variables={"optimizer_prune_level": "0"}),
        ("",),
        ("7.0 of 9.0 sessions at work search for a plan at any time, and optimizer_prune_level is 0",),
        sets=({"server.optimizer_prune_level": 2},),
    ),
    Case(
        "STMT08",
        "MySQL, each value of a list",
        lambda: unwell(
            vendor="mysql",
            gauges={"processlist.threads.Query": 3.0, "processlist.states.statistics": 3.0},
            variables={"eq_range_index_dive_limit": "0", "optimizer_prune_level": "0"},
        ),
        ("",),
        sets=({"server.optimizer_prune_level": 1, "server.eq_range_index_dive_limit": 200},),
    ),
    Case(
        "STMT08",
        "more values than any list has",
        lambda: unwell(gauges=PLANS, variables={"eq_range_index_dive_limit": "100000"}),
        ("",),
        ("eq_range_index_dive_limit is 100000",),
        sets=({"server.eq_range_index_dive_limit": 200},),
    ),
    # Rows that are read by their key are read in this state.
    Case("STMT08", "the defaults", lambda: unwell(gauges=PLANS)),
    Case(
        "STMT08",
        "off, and statements are at something else",
        lambda: unwell(
            gauges={**PLANS, "processlist.states.Sending data": 20.0},
            variables={"optimizer_prune_level": "0"},
        ),
    ),
    Case("STMT08", "not sampled", unwell, missing="process list was not"),
]
