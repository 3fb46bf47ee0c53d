"""Cases of the rules about flushing and durability."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

DATA = "/var/lib/mysql"
#: MySQL whose pages are behind its redo log.
BEHIND: dict[str, Any] = {"vendor": "mysql", "status": {"innodb_redo_log_logical_size": 5.0 * GIB}}
DISK = {"block_devices.nvme1n1.rotational": True}
VIRTUAL = {**DISK, "block_devices.nvme1n1.driver": "virtio_blk"}
#: Requests that wait as long as those of a spindle.
SLOW = {"disk.write_ms.nvme1n1": 12_000.0}
UNKNOWN = {"block_devices.nvme1n1.rotational": None}

CASES = [
    Case(
        "FLUSH01",
        "200 on flash",
        lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}),
        ("",),
        (
            "innodb_io_capacity is 200 on solid state; 800 pages/s are flushed",
            "the checkpoint age is 74% of its limit",
        ),
    ),
    Case(
        "FLUSH01",
        "the device was measured",
        lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}, limits={"nvme1n1": 1_000.0}),
        ("",),
    ),
    Case("FLUSH01", "200 and never behind", lambda: unwell(variables={"innodb_io_capacity": "200"})),
    Case("FLUSH01", "a disk", lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}, facts=DISK)),
    Case(
        "FLUSH01",
        "a virtual disk that says it rotates, and answers like flash",
        lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}, facts=VIRTUAL),
        ("",),
    ),
    Case(
        "FLUSH01",
        "a virtual disk that says it rotates, and may",
        lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}, facts=VIRTUAL, rates=SLOW),
    ),
    Case("FLUSH01", "2,000", lambda: unwell(**BEHIND)),
    Case(
        "FLUSH01",
        "a load that is over",
        lambda: unwell(
            **BEHIND,
            variables={"innodb_io_capacity": "200"},
            status_rates={"innodb_buffer_pool_pages_flushed": 3.0},
        ),
    ),
    Case(
        "FLUSH01",
        "unknown device",
        lambda: unwell(**BEHIND, variables={"innodb_io_capacity": "200"}, facts=UNKNOWN),
        missing="whether nvme1n1 rotates",
    ),
    Case(
        "FLUSH02",
        "neighbours",
        lambda: unwell(vendor="mysql", variables={"innodb_flush_neighbors": "1"}),
        ("",),
        ("innodb_flush_neighbors is 1 on solid state, with 800 pages/s",),
    ),
    Case("FLUSH02", "none", lambda: unwell(vendor="mysql")),
    Case(
        "FLUSH02",
        "a disk",
        lambda: unwell(vendor="mysql", variables={"innodb_flush_neighbors": "1"}, facts=DISK),
    ),
    Case(
        "FLUSH02",
        "nothing written",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_flush_neighbors": "1"},
            status_rates={"innodb_pages_written": 0.0},
            facts=UNKNOWN,
        ),
    ),
    Case(
        "FLUSH02",
        "unknown device",
        lambda: unwell(vendor="mysql", variables={"innodb_flush_neighbors": "1"}, facts=UNKNOWN),
        missing="whether nvme1n1 rotates",
    ),
    Case(
        "FLUSH03",
        "fsync",
        lambda: unwell(vendor="mysql", variables={"innodb_flush_method": "fsync"}),
        ("",),
        ("innodb_flush_method is fsync: 840 pages/s pass through the page cache, which holds 9 GiB",),
        sets=({"server.innodb_flush_method": "O_DIRECT"},),
    ),
    Case(
        "FLUSH03",
        "a small pool, whose misses the page cache answers",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_flush_method": "fsync", "innodb_buffer_pool_size": str(GIB)},
            gauges={"memory.MemAvailable.": 50.0 * GIB},
            facts={"servers.1322.rss_bytes": GIB},
        ),
        ("",),
        sets=({"server.innodb_flush_method": "O_DIRECT", "server.innodb_buffer_pool_size": int(36 * GIB)},),
    ),
    Case(
        "FLUSH03",
        "a small pool that cannot grow",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_flush_method": "fsync", "innodb_buffer_pool_size": str(10 * GIB)},
            gauges={"memory.MemAvailable.": 9.0 * GIB},
        ),
    ),
    Case(
        "FLUSH03",
        "MariaDB 11 has a switch",
        lambda: unwell(version="11.4.5", variables={"innodb_data_file_buffering": "ON"}),
        ("",),
        ("innodb_data_file_buffering is ON",),
    ),
    Case("FLUSH03", "direct", unwell),
    Case(
        "FLUSH03",
        "no O_DIRECT there",
        lambda: unwell(
            variables={"innodb_flush_method": "fsync"}, facts={f"file_systems.{DATA}.kind": "zfs"}
        ),
    ),
    Case(
        "FLUSH03",
        "no file systems",
        lambda: unwell(variables={"innodb_flush_method": "fsync"}, without=["file_systems"]),
        missing="file system of the data",
    ),
    Case(
        "FLUSH04",
        "16,384 in eight parts",
        lambda: unwell(vendor="mysql", variables={"innodb_lru_scan_depth": "16384"}),
        ("",),
        ("16,384 in 8 instances: 131,072 pages",),
    ),
    Case("FLUSH04", "the default", unwell),
    Case("FLUSH04", "not sampled", lambda: unwell(without=["mysql_status"]), missing="wait_free was not"),
    Case(
        "FLUSH05",
        "one for eight",
        lambda: unwell(**BEHIND),
        ("",),
        ("1 page cleaners serve 8 buffer pool instances; the checkpoint age is 74% of its limit",),
    ),
    Case("FLUSH05", "not behind", lambda: unwell(vendor="mysql")),
    Case("FLUSH05", "eight", lambda: unwell(**BEHIND, variables={"innodb_page_cleaners": "8"})),
    Case(
        "FLUSH05",
        "not sampled",
        lambda: unwell(vendor="mysql", without=["mysql_status"]),
        missing="wait_free was not",
    ),
    Case(
        "FLUSH06",
        "off",
        lambda: unwell(variables={"innodb_adaptive_flushing": "OFF"}),
        ("",),
        ("800 pages/s",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "FLUSH06",
        "off, and the log is half full",
        lambda: unwell(**BEHIND, variables={"innodb_adaptive_flushing": "OFF"}),
        ("",),
        ("reaches 74% of its limit",),
        severity=Severity.COST,
    ),
    Case("FLUSH06", "on", unwell),
    Case("FLUSH06", "not sampled", lambda: unwell(without=["mysql_status"]), missing="pages_written was not"),
    Case(
        "FLUSH07",
        "off",
        lambda: unwell(variables={"innodb_use_native_aio": "OFF"}),
        ("",),
        ("4 threads write 800 pages/s",),
        steps=("Check the error log", "kernel.io_uring_disabled"),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "FLUSH07",
        "the kernel forbids it",
        lambda: unwell(
            variables={"innodb_use_native_aio": "OFF"}, facts={"sysctls.kernel.io_uring_disabled": "2"}
        ),
        ("",),
        # The server would turn it off again.
        sets=({},),
    ),
    Case("FLUSH07", "on", unwell),
    Case("FLUSH07", "not sampled", lambda: unwell(without=["mysql_status"]), missing="pages_written was not"),
    Case(
        "FLUSH08",
        "both",
        lambda: unwell(variables={"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"}),
        ("",),
        ("innodb_flush_log_at_trx_commit is 2, sync_binlog is 0: a commit waits for 0 syncs instead of 2",),
    ),
    Case(
        "FLUSH08",
        "the binary log",
        lambda: unwell(vendor="mysql", variables={"sync_binlog": "1000"}),
        ("",),
        ("sync_binlog is 1000: a commit waits for 1 syncs instead of 2",),
    ),
    Case("FLUSH08", "no binary log", lambda: unwell(variables={"log_bin": "OFF", "sync_binlog": "0"})),
    Case("FLUSH08", "durable", unwell),
    Case("FLUSH08", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "FLUSH09",
        "no doublewrite",
        lambda: unwell(variables={"innodb_doublewrite": "OFF"}),
        ("",),
        ("innodb_doublewrite is OFF",),
    ),
    Case(
        "FLUSH09",
        "no checksums",
        lambda: unwell(vendor="mysql", variables={"innodb_checksum_algorithm": "none"}),
        ("",),
        ("innodb_checksum_algorithm is none",),
    ),
    Case(
        "FLUSH09",
        "MariaDB's, which does not sync",
        lambda: unwell(version="11.8.2", variables={"innodb_doublewrite": "fast"}),
        ("",),
        ("innodb_doublewrite is fast",),
    ),
    Case(
        "FLUSH09",
        "detected and repaired",
        lambda: unwell(vendor="mysql", variables={"innodb_doublewrite": "DETECT_AND_RECOVER"}),
    ),
    Case("FLUSH09", "both on", unwell),
    Case(
        "FLUSH09",
        "ZFS never overwrites a page, if its records are large enough",
        lambda: unwell(
            facts={"file_systems./var/lib/mysql.kind": "zfs"}, variables={"innodb_doublewrite": "OFF"}
        ),
        missing="zfs get -Hp all",
    ),
    Case("FLUSH09", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
]
