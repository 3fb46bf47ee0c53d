"""Cases of the rules about memory that will not be enough."""

from __future__ import annotations

from headrace.hunt.rules.evidence import Evidence
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

MIB = 1 << 20
LARGE = {name: str(64 * MIB) for name in ("sort_buffer_size", "join_buffer_size", "read_buffer_size")}


def growing(per_s: float, **changes: float) -> Evidence:
    """The server with more memory each second, and a pool that is full."""
    return unwell(
        facts={"servers.1322.cgroup.memory_max_bytes": "max"},
        series={"process.rss_bytes.1322/mysqld": [per_s] * 12},
        starts={"process.rss_bytes.1322/mysqld": 45e9},
        status_rates={"innodb_buffer_pool_pages_free": 0.0, **changes},
        status={"innodb_buffer_pool_pages_free": 1e6},
    )


SHORT = {
    "psi.some_total_us.memory": 200_000.0,
    "vmstat.pgmajfault.": 900.0,
    "vmstat.workingset_refault_file.": 12_000.0,
}
OLDER = {name.replace("_file.", "."): rate for name, rate in SHORT.items()}
PAUSED = {
    "vmstat.nr_dirty.": 3_500.0,
    "vmstat.nr_dirty_background_threshold.": 2_048.0,
    "vmstat.nr_dirty_threshold.": 4_096.0,
}
UNUSED = (
    "created_tmp_tables",
    "sort_scan",
    "sort_range",
    "sort_rows",
    "select_full_join",
    "select_range_check",
    "select_scan",
)
USED = dict.fromkeys(UNUSED, 20.0)
WAITING = {"psi.some_total_us.io": 300_000.0}

CASES = [
    Case(
        "MEM16",
        "forty statements",
        lambda: unwell(variables=LARGE, status={"threads_running": 60.0}, status_rates=USED),
        ("",),
        ("the server may need", "buffer pool 46.2 GiB", "temporary tables"),
    ),
    Case(
        "MEM16",
        "temporary tables of MySQL share a limit",
        lambda: unwell(
            vendor="mysql",
            variables={**LARGE, "tmp_table_size": str(GIB), "max_heap_table_size": str(GIB)},
            status={"threads_running": 60.0},
            status_rates=USED,
        ),
        ("",),
        ("temporary tables 1 GiB",),
    ),
    Case("MEM16", "fits", unwell),
    Case(
        "MEM16",
        "no temporary tables, and no statement that sorts",
        lambda: unwell(
            variables={
                "tmp_table_size": str(GIB),
                "max_heap_table_size": str(GIB),
                "sort_buffer_size": str(GIB),
            },
            status={"threads_running": 64.0, **dict.fromkeys(UNUSED, 0.0)},
            status_rates=dict.fromkeys(UNUSED, 0.0),
        ),
    ),
    Case(
        "MEM16",
        "what is large is shrunk",
        lambda: unwell(
            variables={"tmp_table_size": str(GIB), "max_heap_table_size": str(GIB)},
            status={"threads_running": 64.0},
            status_rates=USED,
        ),
        ("",),
        ("temporary tables 64 GiB",),
        sets=({"server.tmp_table_size": 16 * MIB},),
    ),
    Case(
        "MEM16",
        "a pool in huge pages",
        lambda: unwell(
            facts={"servers.1322.rss_bytes": 2 * GIB, "servers.1322.huge_pages_bytes": 47 * GIB},
            variables={"large_pages": "ON"},
            gauges={"memory.MemAvailable.": 6.0 * GIB, "memory.Hugetlb.": 47.0 * GIB},
        ),
    ),
    Case(
        "MEM16",
        "a key cache and a query cache that nothing fills",
        lambda: unwell(
            variables={"key_buffer_size": str(16 * GIB), "query_cache_size": str(16 * GIB)},
            status={"key_blocks_used": 12.0, "key_read_requests": 0.0, "key_write_requests": 0.0},
            status_rates={"key_read_requests": 0.0, "key_write_requests": 0.0},
        ),
    ),
    Case(
        "MEM16",
        "a key cache that works",
        lambda: unwell(
            variables={"key_buffer_size": str(16 * GIB)},
            status={"key_blocks_used": 12.0},
            status_rates={"key_read_requests": 900.0},
        ),
        ("",),
        ("buffer pool 46.2 GiB", "other shared buffers 16 GiB"),
    ),
    Case(
        "MEM16",
        "no process",
        lambda: unwell(facts={"servers": []}),
        missing="memory of the server's process is unknown",
    ),
    Case("MEM17", "a leak", lambda: growing(4.0 * MIB), ("1322/mysqld",), ("grew by 240 MiB in 60 s",)),
    Case("MEM17", "the pool fills", lambda: growing(4.0 * MIB, innodb_buffer_pool_pages_free=-256.0)),
    Case("MEM17", "clients come", lambda: growing(4.0 * MIB, threads_connected=5.0)),
    Case("MEM17", "stands still", unwell),
    Case("MEM17", "not sampled", lambda: unwell(without=["process"]), missing="sampler process"),
    Case(
        "MEM18",
        "code is read again",
        lambda: unwell(rates=SHORT),
        ("",),
        ("12,000 pages/s are read again after the kernel dropped them, with 900 major faults/s",),
    ),
    Case(
        "MEM18",
        "an older kernel",
        lambda: unwell(rates=OLDER),
        ("",),
        ("12,000 pages/s are read again",),
    ),
    Case(
        "MEM18",
        "a kernel that does not count them",
        lambda: unwell(rates={name: rate for name, rate in OLDER.items() if "refault" not in name}),
        missing="workingset_refault was not sampled",
    ),
    Case("MEM18", "with swap", lambda: unwell(rates=SHORT, gauges={"memory.SwapTotal.": 8.0 * GIB})),
    Case("MEM18", "enough", unwell),
    Case("MEM18", "not sampled", lambda: unwell(without=["psi"]), missing="some_total_us was not"),
    Case(
        "MEM19",
        "16 MiB",
        lambda: unwell(gauges=PAUSED, rates=WAITING),
        ("",),
        ("13.7 MiB is dirty or being written, and writers are stopped at 16 MiB",),
        sets=({"host.vm.dirty_background_bytes": 256 * MIB, "host.vm.dirty_bytes": GIB},),
    ),
    Case(
        "MEM19",
        "a small host",
        lambda: unwell(
            gauges={**PAUSED, "memory.MemTotal.": 2.0 * GIB, "memory.MemAvailable.": 1.0 * GIB}, rates=WAITING
        ),
        ("",),
        # Not half of its memory.
        sets=({"host.vm.dirty_background_bytes": 51 * MIB, "host.vm.dirty_bytes": 204 * MIB},),
    ),
    Case(
        "MEM19",
        "nothing is left for more",
        lambda: unwell(gauges={**PAUSED, "memory.MemAvailable.": 0.1 * GIB}, rates=WAITING),
        ("",),
        sets=({},),
    ),
    Case("MEM19", "nobody waits", lambda: unwell(gauges=PAUSED, rates={"psi.some_total_us.io": 0.0})),
    Case("MEM19", "little is dirty", lambda: unwell(rates=WAITING)),
    Case("MEM19", "not sampled", lambda: unwell(without=["vmstat"]), missing="nr_dirty was not"),
]
