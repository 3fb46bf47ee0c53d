"""Cases of the rules about statements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.host.activity import Activity, Digest, Lacking, SessionGroup, summed
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell
from tests.rules.neighbours_cases import FULL

METRICS = (
    "count",
    "time_ns",
    "lock_ns",
    "rows_examined",
    "rows_sent",
    "rows_affected",
    "tmp_disk_tables",
    "no_index_used",
)
#: Two classes that share the work.
EVEN = {
    f"statements.{metric}.{digest}": rate
    for digest in ("0a1b2c3d4e5f6071", "8899aabbccddeeff")
    for metric, rate in zip(METRICS, (1_000.0, 0.5e9, 1e6, 2_000.0, 1_000.0, 0.0, 0.0, 0.0), strict=True)
}
HEAVY = "0a1b2c3d4e5f6071"
SWITCHED_OFF = "index_merge=off,index_merge_union=on,index_merge_sort_intersection=off,mrr=off,semijoin=on"

#: What the agent says of running statements, once a second.
SCAN: dict[str, Any] = {
    "id": 7,
    "user": "app",
    "db": "shop",
    "class": "select count(*) from orders where note = ?",
    "time_s": 3,
}
POINT: dict[str, Any] = {
    "id": 8,
    "user": "app",
    "db": "shop",
    "class": "select * from items where id = ?",
    "time_s": 0,
}


def looked(*statements: dict[str, Any], looks: int = 10) -> Activity:
    rows = [{**row, "tables": [row["class"].split(" from ")[1].split()[0]]} for row in statements]
    return summed({"statements": rows} for _ in range(looks))


COMMITTING = SessionGroup("update t set a = ?", "Query", "Commit", "app", "10.0.0.7", "", "", 0, 30)
MANY = [{**SCAN, "class": f"select * from t{n} where a = ?"} for n in range(4)]
DIGESTS = Activity(
    10, digests=(Digest(f"{HEAVY}ffff", "SELECT * FROM `t` WHERE `a` = ?", "shop", ("shop.t",)),)
)

CASES = [
    Case(
        "STMT01",
        "its text",
        lambda: unwell(rates={**EVEN, f"statements.time_ns.{HEAVY}": 4.5e9}, activity=DIGESTS),
        (HEAVY,),
        ("SELECT * FROM `t` WHERE `a` = ? takes 90% of the time of 2 classes",),
    ),
    Case(
        "STMT05",
        "a scan",
        lambda: unwell(rates=FULL, activity=looked(SCAN, {**SCAN, "id": 9}, POINT)),
        ("shop.orders",),
        ("select count(*) from orders where note = ? is executed by 2.0 threads on average: 67% of all",),
    ),
    Case(
        "STMT05",
        "its commits take the time",
        lambda: unwell(
            rates=FULL,
            activity=replace(looked(SCAN, {**SCAN, "id": 9}, POINT), sessions=(COMMITTING,)),
        ),
    ),
    Case("STMT05", "nothing is short", lambda: unwell(activity=looked(SCAN, POINT))),
    Case("STMT05", "many alike", lambda: unwell(rates=FULL, activity=looked(*MANY))),
    Case("STMT05", "counted", lambda: unwell(rates={**FULL, **EVEN}, activity=looked(SCAN))),
    Case("STMT05", "no look", unwell, missing="process list was not sampled"),
    Case(
        "STMT05",
        "a short hunt",
        lambda: unwell(rates=FULL, activity=looked(SCAN, looks=3)),
        missing="sampled 3 times, and 5 are needed",
    ),
    Case(
        "STMT05",
        "a failed look",
        lambda: unwell(activity=summed([{"error": "access denied"}])),
        missing="access denied",
    ),
    Case(
        "STMT01",
        "nine tenths",
        lambda: unwell(rates={**EVEN, f"statements.time_ns.{HEAVY}": 4.5e9}),
        (HEAVY,),
        (f"digest {HEAVY} takes 90% of the time of 2 classes: 1,000 per second, 4.50 ms each",),
    ),
    Case(
        "STMT01",
        "commits, which no index makes faster",
        lambda: unwell(
            rates={**EVEN, f"statements.time_ns.{HEAVY}": 4.5e9},
            activity=Activity(10, digests=(Digest(f"{HEAVY}aaaa", "COMMIT", "", ()),)),
        ),
        (HEAVY,),
        ("COMMIT takes 90% of the time",),
        steps=("A commit waits for its log to be synced", "Change more rows in each transaction"),
    ),
    Case(
        "STMT01",
        "many alike",
        lambda: unwell(rates={**EVEN, **{f"statements.time_ns.{n:016x}": 0.5e9 for n in range(4)}}),
    ),
    Case("STMT01", "not sampled", unwell, missing="not sampled by digest"),
    Case(
        "STMT02",
        "a million rows for ten",
        lambda: unwell(
            rates={**EVEN, f"statements.rows_examined.{HEAVY}": 1e6, f"statements.rows_sent.{HEAVY}": 10.0}
        ),
        (HEAVY,),
        ("examines 1,000,000 rows/s to send or change 10.0",),
        steps=("Have it in the slow log", "`headrace indexes ", "--prove --on-copy"),
    ),
    Case(
        "STMT02",
        "with the index that it lacks",
        lambda: unwell(
            rates={**EVEN, f"statements.rows_examined.{HEAVY}": 1e6, f"statements.rows_sent.{HEAVY}": 10.0},
            activity=replace(
                DIGESTS,
                lacking=(
                    Lacking(
                        f"{HEAVY}aaaa",
                        ("shop.t(a,b)", "shop.u(c)"),
                        ("find rows by a, b", "spare the sort by c"),
                        "t ALL rows 9",
                        notes=("about 9.0 MiB on disk",),
                    ),
                ),
            ),
        ),
        (HEAVY,),
        steps=(
            "Candidate: an index on shop.t(a,b), to find rows by a, b (about 9.0 MiB on disk).",
            "Candidate: an index on shop.u(c), to spare the sort by c.",
            "Its plan now: t ALL rows 9.",
            "`headrace prove 'index:shop.t(a,b)' --live`",
            "tries it on a copy: add --prove --on-copy",
        ),
    ),
    Case(
        "STMT02",
        "and why no index helps",
        lambda: unwell(
            rates={**EVEN, f"statements.rows_examined.{HEAVY}": 1e6, f"statements.rows_sent.{HEAVY}": 10.0},
            activity=replace(DIGESTS, lacking=(Lacking(HEAVY, why="PRIMARY of shop.t serves it"),)),
        ),
        (HEAVY,),
        steps=("No index to add is known: PRIMARY of shop.t serves it. EXPLAIN it", "`headrace indexes "),
    ),
    Case(
        "STMT02",
        "an UPDATE that changes what it examines",
        lambda: unwell(
            rates={
                **EVEN,
                f"statements.rows_examined.{HEAVY}": 1e6,
                f"statements.rows_sent.{HEAVY}": 0.0,
                f"statements.rows_affected.{HEAVY}": 9e5,
            }
        ),
    ),
    Case("STMT02", "two for one", lambda: unwell(rates=EVEN)),
    Case("STMT02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "STMT03",
        "forty",
        lambda: unwell(rates={**EVEN, f"statements.tmp_disk_tables.{HEAVY}": 40.0}),
        (HEAVY,),
        ("creates 40.0 temporary tables on disk per second",),
    ),
    Case("STMT03", "none", lambda: unwell(rates=EVEN)),
    Case("STMT03", "not sampled", unwell, missing="not sampled by digest"),
    Case(
        "STMT04",
        "four fifths",
        lambda: unwell(
            rates={**EVEN, f"statements.time_ns.{HEAVY}": 5e9, f"statements.lock_ns.{HEAVY}": 4e9}
        ),
        (HEAVY,),
        ("waits for locks 80% of its 5.00 s per second",),
    ),
    Case("STMT04", "hardly", lambda: unwell(rates=EVEN)),
    Case(
        "STMT04",
        "what comes before the locks of many short ones",
        lambda: unwell(
            rates={
                **EVEN,
                f"statements.count.{HEAVY}": 65_000.0,
                f"statements.time_ns.{HEAVY}": 1.9e9,
                f"statements.lock_ns.{HEAVY}": 1e9,
            }
        ),
    ),
    Case("STMT04", "not sampled", unwell, missing="not sampled by digest"),
    Case(
        "STMT06",
        "index merge is off",
        lambda: unwell(
            variables={"optimizer_switch": SWITCHED_OFF}, status_rates={"handler_read_rnd_next": 2e6}
        ),
        ("",),
        ("index_merge is off in optimizer_switch, and scans read 2,000,000 rows/s",),
        sets=({"server.optimizer_switch": "index_merge=on"},),
    ),
    Case(
        "STMT06",
        "what is off by default",
        lambda: unwell(status_rates={"handler_read_rnd_next": 2e6}),
    ),
    Case(
        "STMT06",
        "what is off by default in MySQL",
        lambda: unwell(vendor="mysql", status_rates={"handler_read_rnd_next": 2e6}),
    ),
    Case(
        "STMT06",
        "entries of an index that are looked up in vain",
        lambda: unwell(
            vendor="mysql",
            variables={"optimizer_switch": "index_condition_pushdown=off,mrr=off"},
            status_rates={"handler_read_next": 4e6},
        ),
        ("",),
        ("index_condition_pushdown is off in optimizer_switch", "an index 4,040,000"),
        sets=({"server.optimizer_switch": "index_condition_pushdown=on"},),
        severity=Severity.ADVICE,
    ),
    Case(
        "STMT06",
        "a whole index that is read in place of the table",
        lambda: unwell(
            variables={"optimizer_switch": SWITCHED_OFF},
            status_rates={"handler_read_next": 1.1e6},
            rates={
                **EVEN,
                f"statements.rows_examined.{HEAVY}": 1.1e6,
                f"statements.rows_sent.{HEAVY}": 8.0,
                f"statements.no_index_used.{HEAVY}": 8.0,
            },
        ),
        ("",),
        ("index_merge is off in optimizer_switch",),
        severity=Severity.COST,
    ),
    Case(
        "STMT06",
        "joins that scan a table for each row",
        lambda: unwell(
            vendor="mysql",
            variables={"optimizer_switch": "block_nested_loop=off,batched_key_access=off"},
            status_rates={"handler_read_rnd_next": 9e6},
        ),
        ("",),
        sets=({"server.optimizer_switch": "block_nested_loop=on"},),
        severity=Severity.COST,
    ),
    Case("STMT06", "off, but nothing scans", lambda: unwell(variables={"optimizer_switch": SWITCHED_OFF})),
    Case(
        "STMT06",
        "not sampled",
        lambda: unwell(variables={"optimizer_switch": SWITCHED_OFF}, without=["mysql_status"]),
        missing="rnd_next was not",
    ),
]
