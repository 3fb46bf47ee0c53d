"""Rules about pages of memory: on which node they are, how large, and what it costs to find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.base.counted import counted
from headrace.base.model import Value
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.memory import STALLS_S, is_short
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Page tables of this share of the memory, and of this size, are worth large pages.
TABLES_SHARE, TABLES_BYTES = 0.01, 1 * GIB
#: Huge pages of the server below this change neither its memory nor its page walks.
LEAST_HUGE = 1 * GIB
#: Reserved huge pages that nobody uses, as a share of the memory: fewer are a margin.
UNUSED_SHARE = 0.05
#: Share of a node for the buffer pool: the rest is for the kernel and the threads.
OF_A_NODE = 0.90

_VM = "Linux Documentation/admin-guide/sysctl/vm.rst"
_THP = "Linux Documentation/admin-guide/mm/transhuge.rst"


@rule(
    "MEM04",
    severity=Severity.ADVICE,
    confidence=Confidence.HIGH,
    source=f"{_VM}, zone_reclaim_mode",
    refute="With vm.zone_reclaim_mode 0, direct reclaim and p99 are equivalent.",
)
def zone_reclaim(evidence: Evidence) -> Iterator[Match]:
    """The kernel reclaims memory of one NUMA node while another has free memory.

    A full node then drops its page cache, or swaps, although another node has free memory. A server whose threads
    use the memory of all nodes gains nothing from it.
    """
    mode = evidence.sysctl("vm.zone_reclaim_mode")
    nodes = evidence.rows("numa_nodes")
    if mode == "0" or len(nodes) < 2:
        return
    free = ", ".join(
        f"node {n['node']} {size(n['memory_free_bytes'])}"
        for n in nodes
        if n.get("memory_free_bytes") is not None
    )
    yield Match(
        "",
        f"vm.zone_reclaim_mode is {mode} on {counted(len(nodes), 'node')}; free: {free}.",
        (number("vm.zone_reclaim_mode", mode), number("free", free)),
        (Remedy({"host.vm.zone_reclaim_mode": 0}),),
    )


@rule(
    "MEM05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_THP}; TuneD, profiles/oracle (never) and profiles/mssql (always)",
    refute="With madvise and with never, after a restart, throughput, p99 and memory are equivalent.",
    disputed="TuneD's profile for Oracle says never, its profile for SQL Server always; allocators differ as "
    "well.",
)
def huge_pages_always(evidence: Evidence) -> Iterator[Match]:
    """Transparent huge pages are on for every program, and the server uses them.

    A huge page saves page tables, but finding or compacting memory for it takes time, and it wastes memory if the
    allocator touches only part of it. Which effect dominates depends on the allocator and the load.
    """
    selected = evidence.facts.transparent_huge_pages
    if selected is None:
        raise NotEnough("the host does not report transparent huge pages")
    process = evidence.process
    if selected != "always" or process is None:
        return
    anonymous, resident = evidence.last("memory", "AnonHugePages"), process.get("rss_bytes")
    if resident is None:
        raise NotEnough("the host does not report the server's memory")
    # Only smaps has it by process, and reading that stops a large server. What others cannot have is its own.
    others = max(evidence.last("memory", "AnonPages") - resident, 0.0)
    own = anonymous - others
    if own < LEAST_HUGE:
        return
    yield Match(
        "",
        f"transparent huge pages are always on, and hold at least {size(own)} of {process['program']}'s "
        "memory.",
        (
            number("transparent huge pages", selected),
            number("anonymous memory in them", size(anonymous)),
            number(f"of {process['program']}, at least", size(own)),
            number("allocator", (process.get("allocator") or {}).get("name") or "unknown"),
        ),
        (
            Remedy({"host.thp": "madvise"}, ("Restart the server.",), label="madvise"),
            Remedy({"host.thp": "never"}, ("Restart the server.",), label="never"),
        ),
    )


@rule(
    "MEM06",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="Linux numa(7) and set_mempolicy(2), MPOL_INTERLEAVE; MySQL Reference Manual, innodb_numa_interleave",
    refute="With the pool interleaved, after a restart, throughput and p99 are equivalent.",
)
def pool_on_one_node(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool is larger than a NUMA node and is not interleaved.

    Memory comes from the node of the thread that touches it first. The buffer pool fills one node completely,
    which then swaps or reclaims while the other is half empty, and all threads wait for one memory controller.
    """
    nodes = evidence.rows("numa_nodes")
    pool = evidence.number("innodb_buffer_pool_size")
    if len(nodes) < 2:
        return
    sizes = [node["memory_total_bytes"] for node in nodes if node.get("memory_total_bytes")]
    if len(sizes) < len(nodes):
        raise NotEnough("the host does not report the memory of each NUMA node")
    smallest = float(min(sizes))
    policy = str((evidence.process or {}).get("numa_policy") or "default")
    has_own = evidence.has_variable("innodb_numa_interleave")
    is_interleaved = policy.startswith("interleave") or (has_own and evidence.is_on("innodb_numa_interleave"))
    if pool <= OF_A_NODE * smallest or is_interleaved:
        return
    remedy = (
        Remedy({"server.innodb_numa_interleave": True})
        if has_own
        else Remedy(
            steps=("Start the server with numactl --interleave=all (systemd: NUMAPolicy=interleave).",)
        )
    )
    yield Match(
        "",
        f"the buffer pool is {size(pool)}, the smallest node {size(smallest)}, and the server's memory "
        f"policy is {policy}.",
        (
            number("innodb_buffer_pool_size", size(pool)),
            number("the smallest node", size(smallest)),
            number("nodes", len(nodes)),
            number("memory policy", policy),
        ),
        (remedy,),
    )


@rule(
    "MEM09",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/mm/hugetlbpage.rst (most reliable at boot, before memory is "
    "fragmented); MySQL Reference Manual, Enabling Large Page Support",
    refute="With the pool in huge pages, PageTables shrink, but throughput and p99 are equivalent.",
)
def large_page_tables(evidence: Evidence) -> Iterator[Match]:
    """Page tables take gigabytes.

    Every process or thread that maps a large buffer pool in 4 KiB pages needs tables for it, and the processor
    walks them. With 2 MiB pages they are about 500 times smaller.
    """
    tables, total = evidence.gauge("memory", "PageTables").high, evidence.memory_bytes()
    if tables < TABLES_BYTES or tables < TABLES_SHARE * total:
        return
    pool = evidence.number("innodb_buffer_pool_size")
    # The pool, and a twentieth for its headers and the other buffers that are allocated with it.
    pages = int(1.05 * pool / (2 * MIB)) + 1
    yield Match(
        "",
        f"page tables take {size(tables)}, {share(tables / total)} of the memory.",
        (
            number("PageTables", size(tables)),
            number("innodb_buffer_pool_size", size(pool)),
            number("vm.nr_hugepages", evidence.sysctl("vm.nr_hugepages")),
        ),
        (
            # Never at run time: the pool's own memory is not free, so the kernel would have to reclaim, swap or
            # kill to find as much again.
            Remedy(
                steps=(
                    f"Reserve them at boot, while memory is free: vm.nr_hugepages = {pages} in /etc/sysctl.d, or "
                    f"hugepages={pages} on the kernel command line; not on the running host, where the pool "
                    "already holds that memory.",
                    "Set large_pages=ON for the server and LimitMEMLOCK=infinity for its service, then boot.",
                ),
            ),
        ),
    )


@rule(
    "MEM21",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/mm/hugetlbpage.rst, HugePages_Free, HugePages_Rsvd",
    refute="A program that does not run now asks for these huge pages when it starts.",
)
def huge_pages_in_vain(evidence: Evidence) -> Iterator[Match]:
    """Huge pages are reserved that nobody uses.

    Nothing else can have that memory: not the buffer pool in small pages, not the page cache, and the kernel swaps
    before it touches it. It is left over where large_pages was turned off, the pool was made smaller, or another
    database was removed.
    """
    pools = (evidence.raw.get("memory") or {}).get("huge_pages")
    if pools is None:
        raise NotEnough("the host does not report its huge pages")
    process: Any = evidence.process or {}
    wants = evidence.has_variable("large_pages") and evidence.is_on("large_pages")
    if wants and not process.get("huge_pages_bytes"):
        return  # they are meant for the server, which did not get them: STAT05
    pools = [pool for pool in pools if pool.get("size_bytes") and pool.get("pages")]
    unused = {p["size_bytes"]: (p.get("free_pages") or 0) - (p.get("reserved_pages") or 0) for p in pools}
    total = evidence.memory_bytes()
    lost = sum(each_bytes * max(pages, 0) for each_bytes, pages in unused.items())
    if lost < UNUSED_SHARE * total:
        return
    usual = evidence.facts.sysctl("vm.nr_hugepages")
    settings: dict[str, Value] = {}
    steps = []
    for pool in pools:
        pages = unused[pool["size_bytes"]]
        if pages <= 0:
            continue
        kept = pool["pages"] - pages
        # The sysctl is of the default size.
        if "host.vm.nr_hugepages" not in settings and str(pool["pages"]) == usual:
            settings["host.vm.nr_hugepages"] = kept
        else:
            kib = pool["size_bytes"] >> 10
            steps.append(f"echo {kept} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
    steps.append("Remove the larger number from /etc/sysctl.d, or hugepages= from the kernel command line.")
    short = is_short(evidence)
    available = evidence.gauge("memory", "MemAvailable").low
    yield Match(
        "",
        f"{size(lost)} of {size(total)} is reserved as huge pages and not used; {size(available)} is available.",
        (
            number("reserved and unused", size(lost)),
            number("vm.nr_hugepages", usual or "unknown"),
            number("huge pages of the server", size(process.get("huge_pages_bytes") or 0)),
            number("available, minimum", size(available)),
        ),
        (Remedy(settings, tuple(steps), is_faster=short),),
        Severity.COST if short else None,
    )


@rule(
    "MEM14",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/mm/ksm.rst",
    refute="With KSM stopped, CPU time and p99 are equivalent, and memory is not short.",
)
def pages_merged(evidence: Evidence) -> Iterator[Match]:
    """Kernel same-page merging scans memory on a database host.

    It merges identical pages of processes that ask for it, mostly virtual machines, and costs CPU time and a fault
    at the next write. A database's pages are rarely identical.
    """
    run = (evidence.raw.get("memory") or {}).get("ksm_run")
    if run is None:
        raise NotEnough("the host does not report KSM")
    if run != 1 or evidence.process is None:
        return
    separated = evidence.window.rate("vmstat", "cow_ksm")
    yield Match(
        "",
        f"KSM is running on the same host as {evidence.process['program']}.",
        (
            number("ksm/run", run),
            number("pages separated again/s", "unknown" if separated is None else separated, ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "Check what it saves: /sys/kernel/mm/ksm/pages_sharing. If little, stop ksmtuned and "
                    "separate the pages: echo 2 > /sys/kernel/mm/ksm/run.",
                )
            ),
        ),
    )


@rule(
    "MEM15",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_THP}, defrag",
    refute="With defrag defer+madvise, compact_stall stops growing, but p99 is equivalent.",
)
def compaction_stalls(evidence: Evidence) -> Iterator[Match]:
    """Threads compact memory themselves to get a huge page.

    With defrag at always, a page fault waits while the kernel moves other pages to make a huge page. The waiting
    thread is in the middle of a statement.
    """
    stalls = evidence.rate("vmstat", "compact_stall")
    pages: Any = (evidence.raw.get("memory") or {}).get("transparent_huge_pages") or {}
    defrag = (pages.get("defrag") or {}).get("selected")
    if defrag is None:
        raise NotEnough("the host does not report transparent huge pages")
    if stalls < STALLS_S or evidence.facts.transparent_huge_pages == "never" or defrag in ("never", "defer"):
        return
    yield Match(
        "",
        f"threads compact memory {stalls:,.1f} times per second; defrag is {defrag}.",
        (
            number("compact_stall/s", stalls, ",.1f"),
            number("transparent_hugepage/defrag", defrag),
            number("transparent_hugepage/enabled", evidence.facts.transparent_huge_pages),
        ),
        (
            Remedy({"host.thp_defrag": "defer"}, label="let the kernel's threads do it"),
            Remedy({"host.thp": "never"}, label="no huge pages"),
        ),
    )
