"""Rules about the buffer pool: its size relative to data and memory, its instances, and its evictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.base.errors import HostUnknown
from headrace.base.model import Vendor
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Pages read from files per second below which more memory would save nothing noticeable.
MISSES_S = 20.0
#: The pool counts as full below this share of free pages: what is free would be filled before anything is evicted.
PAGES_FREE = 0.05
#: ... in addition to the pages that the server itself keeps free, innodb_lru_scan_depth per instance.
KEPT_FREE = 1.1
#: Share of memory left to the system, its page cache and the sessions when the pool grows.
RESERVE = 0.20
#: A pool that could grow by less than this share of itself is as large as memory allows.
WORTH_GROWING = 0.25
#: The manual's upper limit for a dedicated host: Optimizing InnoDB Disk I/O.
SHARE_OF_MEMORY = 0.75
#: Above this, sessions and the kernel have too little: InnoDB's own structures take up to 10% on top of the pool.
TOO_LARGE = 0.90
#: The low end of that, where a size must fit.
ON_TOP = 1.05
#: A control group holds only the server, not the kernel.
TOO_LARGE_IN_GROUP = 0.95
#: Pool size relative to the data: room for undo pages, the hash index, free pages, and growth.
ROOM_BESIDE_DATA = 1.25
#: If no chunk size is known: the default of both vendors for years, and a step that every version accepts.
STEP_BYTES = 128 * MIB
#: Configuring InnoDB Buffer Pool Size: more chunks than this are a performance issue.
MAX_CHUNKS = 1_000
#: Above this share of all page requests, waits for reads are noticeable.
MISS_SHARE = 0.01
#: ... if there are this many; more than one spindle can do.
MANY_MISSES_S = 1_000.0
#: A pool of at least this size takes minutes to warm up at the speed of random reads.
SLOW_TO_WARM = 4 * GIB
#: Waits for a free page per second: nobody notices fewer than the first; the second, with a page's write and sync
#: of some 5 ms each, are a tenth of a session's time.
FREE_WAITS_S, MANY_FREE_WAITS_S = 0.5, 20.0
#: Dirty pages this close to innodb_max_dirty_pages_pct: flushing is already aggressive.
NEAR_DIRTY_LIMIT = 0.90
#: A limit below this leaves no room for changes to gather on a page; the default since MySQL 8.0 and MariaDB 10.5.
LOW_DIRTY_LIMIT, DEFAULT_DIRTY_PCT = 0.20, 90
#: Pages flushed per second below which an early write costs nothing noticeable.
FLUSHED_S = 50.0
#: Full scans of at least this many rows per second fill the pool with pages that are used once.
SCANNED_ROWS_S = 50_000.0
#: Running threads above which one instance's locks can be contended.
MANY_THREADS = 16.0

SIZE_SOURCE = "MySQL Reference Manual, Configuring InnoDB Buffer Pool Size; Optimizing InnoDB Disk I/O"


def memory_bytes(evidence: Evidence) -> float:
    """What the server may have: the host's memory without what other servers and idle huge pages hold, or its
    control group's limit."""
    total = evidence.last("memory", "MemTotal") - _held_by_others(evidence)
    limit = _group_limit(evidence)
    return total if limit is None else min(total, limit)


def _group_limit(evidence: Evidence) -> float | None:
    return sizes.group_limit(evidence.process or {})


def _held_by_others(evidence: Evidence) -> float:
    """Resident memory of the host's other servers, and the huge pages that this server does not use or may use."""
    own = (evidence.process or {}).get("pid")
    others = [s for s in evidence.rows("servers") if own is not None and s.get("pid") != own]
    huge = evidence.window.last("memory", "Hugetlb") or 0.0
    if evidence.has_variable("large_pages") and evidence.is_on("large_pages"):
        huge = sum(float(s.get("huge_pages_bytes") or 0) for s in others)
    else:
        huge = max(huge - float((evidence.process or {}).get("huge_pages_bytes") or 0), 0.0)
    return huge + sum(float(s.get("rss_bytes") or 0) for s in others)


def _misses_s(evidence: Evidence) -> float:
    return evidence.status_per_second("innodb_buffer_pool_reads")


def _free_share(evidence: Evidence) -> float:
    return evidence.status("innodb_buffer_pool_pages_free") / max(
        evidence.status("innodb_buffer_pool_pages_total"), 1.0
    )


def _is_full(evidence: Evidence) -> bool:
    """Whether a page that is read takes the place of another."""
    kept = evidence.number("innodb_lru_scan_depth") if evidence.has_variable("innodb_lru_scan_depth") else 0.0
    if evidence.has_variable("innodb_buffer_pool_instances"):
        kept *= max(evidence.number("innodb_buffer_pool_instances"), 1.0)
    kept /= max(evidence.status("innodb_buffer_pool_pages_total"), 1.0)
    return _free_share(evidence) <= max(PAGES_FREE, KEPT_FREE * kept)


def growth(evidence: Evidence) -> tuple[float, float]:
    """The recommended pool size, in whole steps and within what memory allows, and the idle memory."""
    pool = evidence.number("innodb_buffer_pool_size")
    total = memory_bytes(evidence)
    available = evidence.available_bytes()
    limit, resident = _group_limit(evidence), (evidence.process or {}).get("rss_bytes")
    if limit is not None and resident is not None:
        available = min(available, max(limit - resident, 0.0))
    idle = 0.0 if sizes.is_short(evidence) else max(available - RESERVE * total, 0.0)
    most = min(pool + idle, SHARE_OF_MEMORY * total)
    if evidence.has_variable("innodb_buffer_pool_size_max"):  # MariaDB 10.11.12: set at the start
        most = min(most, evidence.number("innodb_buffer_pool_size_max"))
    step = step_bytes(evidence)
    enough = -(-ROOM_BESIDE_DATA * evidence.data_bytes // step) * step
    return max(min(most // step * step, enough), pool), idle


def step_bytes(evidence: Evidence) -> float:
    """The server rounds the pool up to whole chunks in every instance."""
    chunk = parts = 0.0
    if evidence.has_variable("innodb_buffer_pool_chunk_size"):
        chunk = evidence.number("innodb_buffer_pool_chunk_size")
    if evidence.has_variable("innodb_buffer_pool_instances"):
        parts = evidence.number("innodb_buffer_pool_instances")
    return max(chunk, 1.0) * max(parts, 1.0) if chunk > 0 else STEP_BYTES


def bytes_there(evidence: Evidence) -> float:
    """What the server has and could still get. Raises NotEnough without its process."""
    process = evidence.process or {}
    resident = process.get("rss_bytes")
    if resident is None:
        raise NotEnough("the memory of the server's process is unknown")
    # Huge pages are not part of the resident set: proc_pid_status(5), HugetlbPages.
    held = float(resident) + float(process.get("huge_pages_bytes") or 0)
    return min(memory_bytes(evidence), evidence.available_bytes() + held)


def that_fits(evidence: Evidence) -> float:
    """The largest pool that the server's memory allows next to its sessions, in whole steps."""
    step = step_bytes(evidence)
    most = SHARE_OF_MEMORY * memory_bytes(evidence)
    # Without a look at the process or the sessions the share has to do.
    with contextlib.suppress(NotEnough, HostUnknown):
        beside = sum(sizes.beside_the_pool(evidence).values()) + sizes.fixed_buffers(evidence)
        most = min(most, (bytes_there(evidence) - beside) / ON_TOP)
    return max(most // step * step, step)


def _is_starved(evidence: Evidence) -> bool:
    """Whether the pool is too small for no reason: then waits for its pages are a consequence, not a cause."""
    try:
        return any(smaller_than_data(evidence))
    except (NotEnough, HostUnknown):
        return False


@rule(
    "POOL01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=SIZE_SOURCE,
    refute="With the larger pool, Innodb_buffer_pool_reads falls, but throughput and p99 are equivalent to "
    "before.",
)
def smaller_than_data(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool is smaller than the data, and idle memory could hold more of it.

    A page that is not in the buffer pool costs a read: about 100 us on flash and 10 ms on a disk, against less
    than 1 us from memory. Using idle memory is the cheapest fix on any server. The kernel's page cache is not a
    substitute: it keeps each page a second time, costs a system call, and is bypassed by O_DIRECT.
    """
    pool, data = evidence.number("innodb_buffer_pool_size"), evidence.data_bytes
    misses = _misses_s(evidence)
    wanted, idle = growth(evidence)
    if pool >= data or misses < MISSES_S or not _is_full(evidence):
        return
    if wanted < (1 + WORTH_GROWING) * pool:
        return
    requests = evidence.status_per_second("innodb_buffer_pool_read_requests")
    yield Match(
        "",
        f"the buffer pool is {size(pool)} for {size(data)} of data, {misses:,.0f} pages/s are read from "
        f"files, and {size(idle)} of memory is idle.",
        (
            number("innodb_buffer_pool_size", size(pool)),
            number("data and indexes of InnoDB", size(data)),
            number("pages read from files/s", misses, ",.0f"),
            number("of all page requests", share(misses / max(requests, misses, 1.0))),
            number("idle memory, without a reserve", size(idle)),
            number("memory", size(memory_bytes(evidence))),
        ),
        (Remedy({"server.innodb_buffer_pool_size": int(wanted)}),),
    )


@rule(
    "POOL02",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=SIZE_SOURCE,
    refute="With a pool of 75% of the memory, MemAvailable is equivalent, and nothing was swapped before.",
)
def larger_than_memory(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool is larger than memory allows.

    The buffer pool fills lazily, so a host that is overcommitted fails days after its start: it swaps, or the
    kernel kills the largest process, which is the server. Sessions, the data dictionary and InnoDB's own
    structures come on top of the pool.
    """
    pool, total = evidence.number("innodb_buffer_pool_size"), memory_bytes(evidence)
    limit = _group_limit(evidence)
    in_group = limit is not None and limit <= total
    if pool < (TOO_LARGE_IN_GROUP if in_group else TOO_LARGE) * total:
        return
    said = f"takes {size(pool)} of the {size(total)} available to the server ({share(pool / total)})."
    if pool > total:
        said = f"may grow to {size(pool)}, and only {size(total)} is available to the server."
    yield Match(
        "",
        f"the buffer pool {said}",
        (
            number("innodb_buffer_pool_size", size(pool)),
            number("memory without other servers', or the control group's limit", size(total)),
        ),
        (Remedy({"server.innodb_buffer_pool_size": int(that_fits(evidence))}),),
    )


@rule(
    "POOL03",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Server Status Variables, Innodb_buffer_pool_wait_free; innodb_lru_scan_depth; "
    "MariaDB storage/innobase/buf/buf0lru.cc, buf_LRU_get_free_block",
    refute="With twice the depth, Innodb_buffer_pool_wait_free stops growing, but throughput and p99 are "
    "equivalent.",
)
def waits_for_free_pages(evidence: Evidence) -> Iterator[Match]:
    """Statements wait for a free page in the buffer pool.

    Page cleaners keep some pages free in advance. If they fall behind, a statement of MySQL flushes a page itself
    before it can read its own, and one of MariaDB waits for the cleaner: a read costs a write and a sync as well.
    """
    waits = evidence.status_rate("innodb_buffer_pool_wait_free")
    if waits < FREE_WAITS_S or _is_starved(evidence):
        return
    depth = int(evidence.number("innodb_lru_scan_depth"))
    capacity = int(evidence.number("innodb_io_capacity"))
    earlier = sizes.io_capacity(evidence)
    yield Match(
        "",
        f"statements wait for a free page {waits:,.1f} times per second; the buffer pool is "
        f"{size(evidence.number('innodb_buffer_pool_size'))}.",
        (
            number("Innodb_buffer_pool_wait_free/s", waits, ",.1f"),
            number("pages free", share(_free_share(evidence))),
            number("innodb_lru_scan_depth", depth),
            number("innodb_io_capacity", capacity),
        ),
        (
            Remedy(
                {"server.innodb_lru_scan_depth": sizes.scan_depth(evidence)}, label="more pages freed ahead"
            ),
            *((Remedy(earlier, label="flush more in the background"),) if earlier else ()),
        ),
        None if waits >= MANY_FREE_WAITS_S else Severity.COST,
    )


@rule(
    "POOL04",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring Buffer Pool Flushing, innodb_max_dirty_pages_pct; InnoDB, "
    "buf0flu.cc: a share of the pages with data and the free ones",
    refute="With more background writes, the share of dirty pages falls, but p99 is equivalent.",
)
def dirty_pages_near_limit(evidence: Evidence) -> Iterator[Match]:
    """Dirty pages are near their limit, so flushing is aggressive.

    At innodb_max_dirty_pages_pct the cleaners write as fast as innodb_io_capacity lets them, regardless of other
    load on the device. Writing earlier spreads the same work evenly. With a limit near 0, often set before a
    shutdown and forgotten, every changed page is written at once, and again after each later change.
    """
    dirty = evidence.status("innodb_buffer_pool_pages_dirty")
    # As the server counts: of the pages with data and the free ones.
    total = max(
        evidence.status("innodb_buffer_pool_pages_data") + evidence.status("innodb_buffer_pool_pages_free"),
        1.0,
    )
    limit = evidence.number("innodb_max_dirty_pages_pct") / 100
    if dirty / total < NEAR_DIRTY_LIMIT * limit:
        return
    capacity = int(evidence.number("innodb_io_capacity"))
    flushed = evidence.status_rate("innodb_buffer_pool_pages_flushed")
    is_low = limit < LOW_DIRTY_LIMIT
    if is_low and flushed < FLUSHED_S:
        return
    yield Match(
        "",
        f"{share(dirty / total)} of the buffer pool's pages are dirty; flushing turns aggressive at "
        f"{share(limit)}" + (f", and {flushed:,.0f} pages/s are written." if is_low else "."),
        (
            number("dirty pages", f"{dirty:,.0f} of {total:,.0f}"),
            number("innodb_max_dirty_pages_pct", 100 * limit, "g"),
            number("pages flushed/s", flushed, ",.0f"),
            number("innodb_io_capacity", capacity),
        ),
        (_fewer_dirty_pages(evidence, is_low),),
    )


def _fewer_dirty_pages(evidence: Evidence, is_low: bool) -> Remedy:
    if is_low:
        return Remedy({"server.innodb_max_dirty_pages_pct": DEFAULT_DIRTY_PCT})
    earlier = sizes.io_capacity(evidence)
    if earlier:
        return Remedy(earlier)
    return Remedy(steps=("The device is at its limit: change fewer pages, or use a faster device.",))


@rule(
    "POOL05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="MySQL 8.4 Reference Manual, innodb_buffer_pool_instances; MySQL 8.0: 8 from 1 GB on",
    refute="With more instances, throughput and p99 are equivalent.",
    applies_to={Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions(), Vendor.MARIADB: Versions(until="10.5")},
    disputed="8.0 uses 8 instances for any pool of 1 GB or more; 8.4 a quarter of the CPUs, at most half the "
    "chunks; MariaDB removed instances as useless.",
)
def one_instance(evidence: Evidence) -> Iterator[Match]:
    """A large buffer pool with one instance serves many threads.

    Each instance has its own locks for its lists. Too many instances cost memory and make evictions uneven.
    """
    pool = evidence.number("innodb_buffer_pool_size")
    instances = evidence.number("innodb_buffer_pool_instances")
    running = evidence.running
    cpus = evidence.cpus
    if instances > 1 or pool < GIB or running < MANY_THREADS:
        return
    chunk = evidence.number("innodb_buffer_pool_chunk_size") or STEP_BYTES
    by_formula = int(max(min(pool / chunk / 2, cpus / 4, 64), 1)) if cpus else 1
    values = dict.fromkeys(value for value in (by_formula, 8) if value > 1)
    yield Match(
        "",
        f"the buffer pool of {size(pool)} has one instance, with {running:.0f} threads running on "
        f"{cpus or 'an unknown number of'} CPUs.",
        (
            number("innodb_buffer_pool_instances", int(instances)),
            number("threads running, mean", running, ".1f"),
            number("CPUs", cpus or "unknown"),
        ),
        tuple(
            Remedy({"server.innodb_buffer_pool_instances": value}, label=counted(value, "instance"))
            for value in values
        ),
    )


@rule(
    "POOL06",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring InnoDB Buffer Pool Chunk Size",
    refute="With at most 1,000 chunks, throughput, p99 and the time of a resize are equivalent.",
    applies_to={
        Vendor.MYSQL: Versions(),
        Vendor.PERCONA: Versions(),
        Vendor.MARIADB: Versions(until="10.11.12"),
    },
)
def too_many_chunks(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool has more than a thousand chunks.

    The buffer pool is allocated and resized in chunks, and finding a page means searching them. The manual says to
    keep their number below 1,000.
    """
    pool, chunk = evidence.number("innodb_buffer_pool_size"), evidence.number("innodb_buffer_pool_chunk_size")
    if chunk <= 0 or pool / chunk <= MAX_CHUNKS:
        return
    wanted = chunk
    while pool / wanted > MAX_CHUNKS:
        wanted *= 2
    yield Match(
        "",
        f"the buffer pool of {size(pool)} has {pool / chunk:,.0f} chunks of {size(chunk)}.",
        (
            number("innodb_buffer_pool_size", size(pool)),
            number("innodb_buffer_pool_chunk_size", size(chunk)),
        ),
        (Remedy({"server.innodb_buffer_pool_chunk_size": int(wanted)}),),
    )


@rule(
    "POOL07",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Saving and Restoring the Buffer Pool State",
    refute="After a restart with the saved state, the time until throughput is steady is equivalent.",
)
def cold_after_restart(evidence: Evidence) -> Iterator[Match]:
    """The buffer pool is empty after a restart.

    The server can save the list of pages in the pool and read them back in file order. Without that, a large pool
    warms up at the speed of random reads, and the device dominates the first minutes.
    """
    pool = evidence.number("innodb_buffer_pool_size")
    names = ("innodb_buffer_pool_dump_at_shutdown", "innodb_buffer_pool_load_at_startup")
    off = [name for name in names if not evidence.is_on(name)]
    if not off or pool < SLOW_TO_WARM:
        return
    yield Match(
        "",
        f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off, with a buffer pool of {size(pool)}.",
        (number("innodb_buffer_pool_size", size(pool)), *(number(name, "OFF") for name in off)),
        (Remedy({f"server.{name}": True for name in off}),),
    )


@rule(
    "POOL08",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=SIZE_SOURCE,
    refute="On the same host with more memory in the pool, throughput is equivalent.",
)
def data_do_not_fit(evidence: Evidence) -> Iterator[Match]:
    """Statements wait for pages from files, and no memory is left to hold them.

    The pool is as large as this host allows, so only touching fewer pages, faster reads or more memory help.
    """
    pool, data = evidence.number("innodb_buffer_pool_size"), evidence.data_bytes
    misses = evidence.status_rate("innodb_buffer_pool_reads")
    requests = evidence.status_rate("innodb_buffer_pool_read_requests")
    if pool >= data or misses < MANY_MISSES_S or misses < MISS_SHARE * requests:
        return
    wanted, idle = growth(evidence)
    if wanted >= (1 + WORTH_GROWING) * pool:
        return
    yield Match(
        "",
        f"{misses:,.0f} pages/s are read from files ({share(misses / max(requests, 1.0))} of all requests); "
        f"the buffer pool is {size(pool)} for {size(data)} of data, and {size(idle)} of memory is idle.",
        (
            number("pages read from files/s", misses, ",.0f"),
            number("page requests/s", requests, ",.0f"),
            number("innodb_buffer_pool_size", size(pool)),
            number("data and indexes of InnoDB", size(data)),
        ),
        (
            Remedy(
                steps=(
                    "Find the statements that read the most rows per row sent, and give them an index.",
                    "Remove unused indexes and old rows; or add memory: the pool is at this host's limit.",
                )
            ),
        ),
    )


@rule(
    "POOL09",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Making the Buffer Pool Scan Resistant",
    refute="With innodb_old_blocks_time at 1000, reads from files and p99 are equivalent under the same "
    "scans.",
)
def scans_push_out_hot_pages(evidence: Evidence) -> Iterator[Match]:
    """Full scans push hot pages out of the buffer pool.

    With innodb_old_blocks_time at 0 a page counts as hot when it is touched twice, which a scan does immediately,
    for every row after the first. The default of one second keeps a scan's pages in the old part of the list.
    """
    if evidence.number("innodb_old_blocks_time") > 0:
        return
    scanned = evidence.status_per_second("handler_read_rnd_next")
    if scanned < SCANNED_ROWS_S or evidence.number("innodb_buffer_pool_size") >= evidence.data_bytes:
        return
    yield Match(
        "",
        f"innodb_old_blocks_time is 0 while scans read {scanned:,.0f} rows/s.",
        (
            number("innodb_old_blocks_time", 0),
            number("Handler_read_rnd_next/s", scanned, ",.0f"),
        ),
        (Remedy({"server.innodb_old_blocks_time": 1000}),),
    )
