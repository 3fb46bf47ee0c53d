"""Cases of the rules about pages of memory."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

NODES: dict[str, Any] = {
    "numa_nodes": [
        {"node": n, "cpus": [], "memory_total_bytes": 32 * GIB, "memory_free_bytes": n * GIB} for n in (0, 1)
    ]
}


def reserved(pages: int, free: int, promised: int = 0) -> dict[str, Any]:
    """Huge pages of 2 MiB."""
    pool = {"size_bytes": 2 << 20, "pages": pages, "free_pages": free, "reserved_pages": promised}
    return {"memory.huge_pages": [pool], "sysctls.vm.nr_hugepages": str(pages)}


CASES = [
    Case(
        "MEM04",
        "on",
        lambda: unwell(facts={**NODES, "sysctls.vm.zone_reclaim_mode": "1"}),
        ("",),
        ("vm.zone_reclaim_mode is 1 on 2 nodes; free: node 0 0 bytes, node 1 1 GiB",),
    ),
    Case("MEM04", "one node", lambda: unwell(facts={"sysctls.vm.zone_reclaim_mode": "1"})),
    Case("MEM04", "off", lambda: unwell(facts=NODES)),
    Case(
        "MEM04",
        "no such file",
        lambda: unwell(facts={"sysctls.vm.zone_reclaim_mode": None}),
        missing="vm.zone_reclaim_mode",
    ),
    Case(
        "MEM05",
        "always",
        lambda: unwell(
            facts={"memory.transparent_huge_pages.enabled.selected": "always"},
            gauges={"memory.AnonHugePages.": 20.0 * GIB, "memory.AnonPages.": 44.0 * GIB},
        ),
        ("",),
        ("always on, and hold at least 18.5 GiB of mysqld's memory",),
    ),
    Case(
        "MEM05",
        "always, for other programs",
        lambda: unwell(
            facts={"memory.transparent_huge_pages.enabled.selected": "always", "servers.1322.rss_bytes": GIB},
            gauges={"memory.AnonHugePages.": 20.0 * GIB, "memory.AnonPages.": 44.0 * GIB},
        ),
    ),
    Case("MEM05", "madvise", unwell),
    Case(
        "MEM05",
        "not in this kernel",
        lambda: unwell(facts={"memory.transparent_huge_pages": None}),
        missing="transparent huge pages",
    ),
    Case(
        "MEM06",
        "44 GiB on nodes of 32",
        lambda: unwell(facts=NODES, variables={"innodb_numa_interleave": None}),
        ("",),
        ("the buffer pool is 44 GiB, the smallest node 32 GiB", "policy is default"),
    ),
    Case(
        "MEM06",
        "a server that could interleave",
        lambda: unwell(vendor="mysql", facts=NODES, variables={"innodb_numa_interleave": "OFF"}),
        ("",),
    ),
    Case(
        "MEM06",
        "interleaved by the server",
        lambda: unwell(facts=NODES, variables={"innodb_numa_interleave": "ON"}),
    ),
    Case(
        "MEM06",
        "interleaved by numactl",
        lambda: unwell(facts={**NODES, "servers.1322.numa_policy": "interleave:0-1"}),
    ),
    Case("MEM06", "one node", unwell),
    Case("MEM06", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "MEM09",
        "two gigabytes",
        lambda: unwell(gauges={"memory.PageTables.": 2.0 * GIB}),
        ("",),
        ("page tables take 2 GiB, 3.2% of the memory",),
        # The pool is resident: reserving as much again on the running host means reclaim, swap or a kill.
        sets=({},),
        steps=("Reserve them at boot", "vm.nr_hugepages = 23655"),
    ),
    Case("MEM09", "small", unwell),
    Case("MEM09", "not sampled", lambda: unwell(without=["memory"]), missing="memory.PageTables"),
    Case(
        "MEM09",
        "no server",
        lambda: unwell(gauges={"memory.PageTables.": 2.0 * GIB}, has_server=False),
        missing="no server was queried",
    ),
    Case(
        "MEM14",
        "on",
        lambda: unwell(facts={"memory.ksm_run": 1}),
        ("",),
        ("KSM is running on the same host as mysqld",),
    ),
    Case("MEM14", "off", unwell),
    Case("MEM14", "unknown", lambda: unwell(facts={"memory.ksm_run": None}), missing="report KSM"),
    Case(
        "MEM15",
        "stalls",
        lambda: unwell(rates={"vmstat.compact_stall.": 9.0}),
        ("",),
        ("threads compact memory 9.0 times per second; defrag is madvise",),
    ),
    Case("MEM15", "none", unwell),
    Case("MEM15", "not sampled", lambda: unwell(without=["vmstat"]), missing="vmstat.compact_stall"),
    Case(
        "MEM21",
        "20 GiB of 62",
        lambda: unwell(facts=reserved(10_240, free=10_240)),
        ("",),
        ("20 GiB of 62.7 GiB is reserved as huge pages and not used; 14 GiB is available",),
        sets=({"host.vm.nr_hugepages": 0},),
        steps=("/etc/sysctl.d",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "MEM21",
        "while memory is short",
        lambda: unwell(
            facts=reserved(10_240, free=9_000, promised=500), gauges={"memory.MemAvailable.": 2.0 * GIB}
        ),
        ("",),
        sets=({"host.vm.nr_hugepages": 1_740},),
        severity=Severity.COST,
    ),
    Case("MEM21", "promised to somebody", lambda: unwell(facts=reserved(10_240, free=9_000, promised=9_000))),
    Case(
        "MEM21",
        "meant for the server",
        lambda: unwell(facts=reserved(10_240, free=10_240), variables={"large_pages": "ON"}),
    ),
    Case("MEM21", "none", unwell),
    Case(
        "MEM21",
        "not reported",
        lambda: unwell(facts={"memory.huge_pages": None}),
        missing="does not report its huge pages",
    ),
]
