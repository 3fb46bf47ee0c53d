"""Cases of the rules about what InnoDB prints itself, where the server's counters are not known."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

MISSES = {
    f"innodb_status.{metric}.": value
    for metric, value in {
        "pool_missed": 0.08, "page_reads_s": 4_000.0, "averaged_s": 20.0, "pool_pages": 8_000.0,
        "pool_free_pages": 3.0,
    }.items()
}  # fmt: skip
ALONE = ["mysql_status"]

CASES = [
    Case(
        "POOL15",
        "8% missed",
        lambda: unwell(gauges=MISSES, has_server=False, without=ALONE),
        ("",),
        ("4,000 pages/s are read from files: the buffer pool misses 8% of what is asked for",),
    ),
    Case(
        "POOL15",
        "still warming up",
        lambda: unwell(
            gauges={**MISSES, "innodb_status.pool_free_pages.": 900.0}, has_server=False, without=ALONE
        ),
    ),
    Case(
        "POOL15",
        "averages of no time",
        lambda: unwell(gauges={**MISSES, "innodb_status.averaged_s.": 0.0}, has_server=False, without=ALONE),
    ),
    Case("POOL15", "the counters are known", lambda: unwell(gauges=MISSES)),
    Case(
        "POOL15",
        "no text",
        lambda: unwell(has_server=False, without=ALONE),
        missing="no server was queried",
    ),
]
