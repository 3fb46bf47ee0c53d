"""Cases of the rules about statements."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

METRICS = ("count", "time_ns", "lock_ns", "rows_examined", "rows_sent", "tmp_disk_tables", "no_index_used")
#: Two classes that share the work.
EVEN = {
    f"statements.{metric}.{digest}": rate
    for digest in ("0a1b2c3d4e5f6071", "8899aabbccddeeff")
    for metric, rate in zip(METRICS, (1_000.0, 0.5e9, 1e6, 2_000.0, 1_000.0, 0.0, 0.0), strict=True)
}
HEAVY = "0a1b2c3d4e5f6071"

CASES = [
    Case(
        "STMT01",
        "nine tenths",
        lambda: unwell(rates={**EVEN, f"statements.time_ns.{HEAVY}": 4.5e9}),
        (HEAVY,),
        (f"digest {HEAVY} takes 90% of the time of 2 classes: 1,000 per second, 4.50 ms each",),
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
        ("examines 1,000,000 rows/s to send 10.0",),
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
    Case("STMT04", "not sampled", unwell, missing="not sampled by digest"),
]
