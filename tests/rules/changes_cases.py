"""Cases of the rules about changes of secondary index pages that are not in the buffer pool."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

NONE = {"innodb_change_buffering": "none"}
READ_TO_BE_CHANGED = {
    "innodb_buffer_pool_reads": 3_000.0,
    "innodb_rows_inserted": 900.0,
    "innodb_rows_updated": 0.0,
    "innodb_rows_read": 10.0,
}
ONE_EACH = {"innodb_metrics.ibuf_merges.": 900.0, "innodb_metrics.ibuf_merges_insert.": 950.0}
NO_DELETES = {"innodb_metrics.ibuf_merges_delete_mark.": 0.0, "innodb_metrics.ibuf_merges_delete.": 0.0}
MARIADB = {
    "innodb_ibuf_merges": 500.0,
    "innodb_ibuf_merged_inserts": 300.0,
    "innodb_ibuf_merged_delete_marks": 250.0,
}

CASES = [
    Case(
        "POOL13",
        "three pages for each change",
        lambda: unwell(vendor="mysql", variables=NONE, status_rates=READ_TO_BE_CHANGED),
        ("",),
        ("3,000 pages/s are read while 900 rows/s are changed and 10 read: 3.3 pages for each change.",),
        sets=({"server.innodb_change_buffering": "all"},),
        severity=Severity.COST,
    ),
    Case(
        "POOL13",
        "pages of rows that are read",
        lambda: unwell(
            vendor="mysql", variables=NONE, status_rates=READ_TO_BE_CHANGED | {"innodb_rows_read": 2e3}
        ),
    ),
    Case("POOL13", "buffered", lambda: unwell(vendor="mysql", status_rates=READ_TO_BE_CHANGED)),
    Case("POOL13", "few reads", lambda: unwell(vendor="mysql", variables=NONE)),
    Case(
        "POOL14",
        "one change for each page",
        lambda: unwell(vendor="mysql", rates=ONE_EACH | NO_DELETES),
        ("",),
        ("buffered changes are applied to 900 pages/s, 1.1 to each.",),
        sets=({"server.innodb_change_buffering": "none"},),
        severity=Severity.ADVICE,
    ),
    Case(
        "POOL14",
        "MariaDB counts them, too",
        lambda: unwell(variables={"innodb_change_buffering": "all"}, status_rates=MARIADB),
        ("",),
        ("500 pages/s, 1.1 to each",),
    ),
    Case(
        "POOL14",
        "thirty changes for each page",
        lambda: unwell(
            vendor="mysql",
            rates={"innodb_metrics.ibuf_merges.": 350.0, "innodb_metrics.ibuf_merges_insert.": 11_000.0}
            | NO_DELETES,
        ),
    ),
    Case("POOL14", "off", lambda: unwell(vendor="mysql", variables=NONE, rates=ONE_EACH | NO_DELETES)),
    Case(
        "POOL14",
        "a spindle",
        lambda: unwell(
            vendor="mysql",
            facts={"block_devices.nvme1n1.rotational": True},
            rates=ONE_EACH | NO_DELETES,
        ),
    ),
    Case("POOL14", "not sampled", lambda: unwell(vendor="mysql"), missing="merges of the change buffer"),
]
