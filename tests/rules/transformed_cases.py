"""Cases of the rules about pages that are compressed, encrypted or copied, and about Aria's cache."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell
from tests.rules.neighbours_cases import FULL, SLOW_DISK, WAITED

ARIA = {
    "aria_pagecache_reads": 3_000.0,
    "aria_pagecache_writes": 12_000.0,
    "aria_pagecache_read_requests": 40_000.0,
    "created_tmp_disk_tables": 9.0,
}
IDLE = {"process.utime_ticks.1322/mysqld": 4.0, "process.stime_ticks.1322/mysqld": 2.0}
PACKED = {
    f"innodb_cmp.{metric}.8192": rate
    for metric, rate in {
        "compress_ops": 900.0,
        "compress_ops_ok": 600.0,
        "compress_s": 0.5,
        "uncompress_ops": 3_000.0,
        "uncompress_s": 0.2,
    }.items()
}
READ_OFTEN = {**PACKED, "innodb_cmp.uncompress_s.8192": 0.9}
ROTATED = {
    "innodb_encryption_rotation_pages_modified": 900.0,
    "innodb_encryption_rotation_pages_read_from_disk": 700.0,
}
KEYS = {"innodb_encryption_threads": "4", "innodb_encryption_rotation_iops": "5000"}
ONE = {"innodb_doublewrite_pages": "1"}
SINGLE = {"innodb_dblwr_pages_written": 800.0, "innodb_dblwr_writes": 790.0}

CASES = [
    Case(
        "POOL11",
        "a cache of 128 KiB",
        lambda: unwell(status_rates=ARIA, variables={"aria_pagecache_buffer_size": "131072"}, rates=IDLE),
        ("",),
        ("3,000 of 40,000 Aria pages/s are read from files; the page cache has 128 KiB, and 9",),
        sets=({"server.aria_pagecache_buffer_size": 128 << 20}, {}),
        severity=Severity.COST,
    ),
    Case(
        "POOL11",
        "a small part of the server's work",
        lambda: unwell(status_rates=ARIA, variables={"aria_pagecache_buffer_size": "131072"}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "POOL11",
        "the largest cache",
        lambda: unwell(status_rates=ARIA, variables={"aria_pagecache_buffer_size": str(2 * GIB)}),
        ("",),
        sets=({},),
    ),
    Case("POOL11", "one in a hundred", lambda: unwell(status_rates={**ARIA, "aria_pagecache_reads": 400.0})),
    Case("POOL11", "none", unwell),
    Case(
        "POOL11", "not sampled", lambda: unwell(without=["mysql_status"]), missing="aria_pagecache_reads was"
    ),
    Case(
        "POOL12",
        "tables that are written",
        lambda: unwell(rates=PACKED),
        ("ROW_FORMAT=COMPRESSED",),
        (
            "pages of tables with ROW_FORMAT=COMPRESSED take 0.7 CPUs to compress and decompress: 54% of what the "
            "server uses",
        ),
        sets=({"server.innodb_compression_level": 1}, {}),
        steps=("ROW_FORMAT=DYNAMIC",),
    ),
    Case(
        "POOL12",
        "MySQL, tables that are read",
        lambda: unwell(vendor="mysql", rates=READ_OFTEN),
        ("ROW_FORMAT=COMPRESSED",),
        sets=({},),
    ),
    Case(
        "POOL12",
        "MariaDB's page compression, with another algorithm",
        lambda: unwell(
            status_rates={"innodb_num_pages_page_compressed": 1_500.0},
            variables={"innodb_compression_algorithm": "lz4"},
        ),
        ("PAGE_COMPRESSED=1",),
        ("take 0.5 CPUs",),
        sets=({},),
        steps=("PAGE_COMPRESSED=0",),
    ),
    Case("POOL12", "none", unwell),
    Case(
        "POOL12",
        "a small part of the server's time",
        lambda: unwell(rates={**PACKED, "process.utime_ticks.1322/mysqld": 740.0}),
    ),
    Case("POOL12", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "FLUSH10",
        "a sync for each page, and the device is saturated",
        lambda: unwell(vendor="mysql", variables=ONE, status_rates=SINGLE, rates={**SLOW_DISK, **WAITED}),
        ("",),
        ("800 pages/s go through the doublewrite buffer in 790 writes: innodb_doublewrite_pages is 1",),
        sets=({"server.innodb_doublewrite_pages": 128},),
        severity=Severity.COST,
    ),
    Case(
        "FLUSH10",
        "and nothing waits",
        lambda: unwell(vendor="mysql", variables=ONE, status_rates=SINGLE),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("FLUSH10", "the default", lambda: unwell(vendor="mysql", status_rates=SINGLE)),
    Case(
        "FLUSH10",
        "not sampled",
        lambda: unwell(vendor="mysql", without=["mysql_status"]),
        missing="pages_written was not",
    ),
    Case(
        "FLUSH11",
        "without a moderate limit, and the CPUs are full",
        lambda: unwell(variables=KEYS, status_rates=ROTATED, rates=FULL),
        ("",),
        ("4 background threads encrypt or decrypt 900 pages/s, and read 700 from files for that",),
        sets=({"server.innodb_encryption_rotation_iops": 100}, {}),
        severity=Severity.COST,
    ),
    Case(
        "FLUSH11",
        "within its limit, and nothing waits",
        lambda: unwell(variables={"innodb_encryption_threads": "1"}, status_rates=ROTATED),
        ("",),
        sets=({},),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("FLUSH11", "all is encrypted", lambda: unwell(variables=KEYS)),
    Case("FLUSH11", "no threads", lambda: unwell(status_rates=ROTATED)),
    Case(
        "FLUSH11",
        "not sampled",
        lambda: unwell(variables=KEYS, without=["mysql_status"]),
        missing="pages_modified was not",
    ),
]
