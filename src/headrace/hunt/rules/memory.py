"""Rules about memory: how much is left, and who waits for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from headrace.base.counted import counted
from headrace.base.model import Value
from headrace.hunt.reclaim import SWAPPED_IN_S, in_groups_only, is_memory_short, waits_in_other_groups
from headrace.hunt.resources import PRESSURE_SEEN
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Red Hat's guides for databases advise no more than this; TuneD's oracle profile sets it.
SWAPPINESS = 10
#: Swap that is compressed memory.
ZRAM = "/dev/zram"
#: A little swap in use is left over from idle daemons.
SWAP_USED = 64 * MIB
#: A second or more of work for a device that writes 1 GB/s, all in one burst when the limit is reached.
MUCH_DIRTY = 1 * GIB
#: What the kernel can still give: below it reclaim is constant, and the next burst swaps or kills.
LITTLE_AVAILABLE = 0.05
#: Memory is not short while this much is available; threads that had to wait for pages waited for kswapd.
ENOUGH_AVAILABLE = 0.10
#: One direct reclaim or compaction per second: one statement per second waits for it.
STALLS_S = 1.0
#: Share of the available memory that kswapd may be told to keep free.
MOST_KEPT_FREE = 0.25
#: Share of the memory that the kernel may keep free: by itself it takes half of it at most, for huge pages.
KEPT_FREE = 0.10
#: What khugepaged asks for so that huge pages can be made, and the most of the memory that it takes for that.
FOR_HUGE_PAGES_KIB, MOST_FOR_HUGE_PAGES = 67_584, 0.05
#: Share of the commit limit above which the next large allocation may be refused.
COMMITTED = 0.90
#: A raised limit leaves this much of itself free, and the kernel this share of the memory.
COMMIT_SPARE, HIGHEST_RATIO = 0.20, 95

_VM = "Linux Documentation/admin-guide/sysctl/vm.rst"


def is_short(evidence: Evidence) -> bool:
    """Whether something waits for memory, or little of it is left. Without PSI only the rest shows it."""
    if evidence.available_bytes() < ENOUGH_AVAILABLE * evidence.memory_bytes():
        return True
    return is_memory_short(evidence.window)


def _swap_used(evidence: Evidence) -> float:
    return evidence.last("memory", "SwapTotal") - evidence.last("memory", "SwapFree")


@rule(
    "MEM01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux proc_vmstat(5), pswpin and pswpout",
    refute="With less memory configured for the server, pages are swapped in at the same rate.",
)
def swapping(evidence: Evidence) -> Iterator[Match]:
    """Pages are being read back from swap.

    A buffer pool that is partly on disk is worse than a smaller one: the server assumes the page is in memory, and
    holds latches while the kernel reads it.
    """
    read, written = evidence.rate("vmstat", "pswpin"), evidence.rate("vmstat", "pswpout")
    if read < SWAPPED_IN_S or waits_in_other_groups(evidence.window):
        return
    process: Any = evidence.process or {}
    swapped = process.get("swap_bytes")
    megabytes = read * evidence.facts.page_bytes / 1e6
    yield Match(
        "",
        f"{read:,.0f} pages/s ({megabytes:,.1f} MB/s) are read back from swap, {written:,.0f} written.",
        (
            number("swapped in, pages/s", read, ",.0f"),
            number("swapped out, pages/s", written, ",.0f"),
            number("swap of the server", size(swapped) if swapped is not None else "unknown"),
        ),
        (
            Remedy(
                steps=(
                    "Configure less memory: a smaller buffer pool, smaller per-connection buffers, fewer "
                    "connections.",
                    "Or add memory, or move the other process that needs it.",
                ),
                label="less memory",
            ),
            Remedy({"host.vm.swappiness": 1}, label="drop page cache instead"),
        ),
    )


@rule(
    "MEM02",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_VM}, swappiness (beyond 100 for swap in memory, such as zram); Red Hat Enterprise Linux 6 "
    "Performance Tuning Guide, 5.5 (10 for databases)",
    refute="With vm.swappiness 1 and the server restarted, p99 over a day with backups is equivalent.",
)
def swappiness(evidence: Evidence) -> Iterator[Match]:
    """The kernel swaps readily, and has swapped.

    A backup or a large copy fills the page cache, and to make room the kernel swaps out memory not used lately:
    parts of the buffer pool. They return one fault at a time. Swap in compressed memory (zram) is cheaper than
    reading files again, and meant to be used: hosts that swap only there are left out.
    """
    swaps = (evidence.raw.get("memory") or {}).get("swaps") or ()
    if swaps and all(str(swap.get("path")).startswith(ZRAM) for swap in swaps):
        return
    value = evidence.sysctl_number("vm.swappiness")
    used = _swap_used(evidence)
    if value <= SWAPPINESS or used < SWAP_USED:
        return
    yield Match(
        "",
        f"vm.swappiness is {value}, and {size(used)} is in swap.",
        (number("vm.swappiness", value), number("swap in use", size(used))),
        (
            Remedy({"host.vm.swappiness": 1}, label="almost never"),
            Remedy({"host.vm.swappiness": SWAPPINESS}, label="rarely"),
        ),
        # What was swapped out and is not read back is nobody's loss.
        None if (evidence.window.rate("vmstat", "pswpin") or 0.0) > 0 else Severity.HOUSEKEEPING,
    )


@rule(
    "MEM03",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_VM}, dirty_ratio and dirty_background_ratio",
    refute="With the smaller limits, the longest stalls of writes and fsyncs are equivalent.",
    disputed="Small limits write back earlier and more evenly; large ones save writes to pages that change often. "
    "TuneD sets 10% to 80% for databases, others a few hundred megabytes.",
)
def much_dirty_memory(evidence: Evidence) -> Iterator[Match]:
    """Gigabytes of dirty pages accumulate before they are written.

    The limits are shares of memory, and on a large host a share is many seconds of writing. When a limit is
    reached, or a process calls fsync, all of it is written in one burst. Only buffered writes count: binary logs,
    dumps, temporary files; data files with O_DIRECT do not.
    """
    dirty = evidence.gauge("memory", "Dirty").high
    if dirty < MUCH_DIRTY or evidence.sysctl("vm.dirty_background_bytes") != "0":
        return
    background, limit = evidence.sysctl("vm.dirty_background_ratio"), evidence.sysctl("vm.dirty_ratio")
    yield Match(
        "",
        f"up to {size(dirty)} is dirty; write-back starts at {background}% of "
        f"{size(evidence.memory_bytes())}.",
        (
            number("dirty, maximum", size(dirty)),
            number("vm.dirty_background_ratio", f"{background}%"),
            number("vm.dirty_ratio", f"{limit}%"),
        ),
        (Remedy({"host.vm.dirty_background_bytes": 256 * MIB, "host.vm.dirty_bytes": GIB}),),
    )


@rule(
    "MEM07",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/filesystems/proc.rst, MemAvailable",
    refute="Over a day with backup and batch jobs, MemAvailable never falls further, and nothing swaps.",
)
def little_available(evidence: Evidence) -> Iterator[Match]:
    """Little memory is available.

    Available memory is what the kernel can hand out without swapping. When it is this low, a burst of connections,
    a dump or a sort causes swapping, or the kernel kills a process: usually the largest, which is the server.
    """
    total = evidence.memory_bytes()
    low = evidence.available_bytes()
    if low >= LITTLE_AVAILABLE * total:
        return
    resident = (evidence.process or {}).get("rss_bytes")
    yield Match(
        "",
        f"available memory fell to {size(low)} of {size(total)} ({share(low / total)}).",
        (
            number("available, minimum", size(low)),
            number("memory", size(total)),
            number("resident in the server", size(resident) if resident is not None else "unknown"),
        ),
        (
            Remedy(
                steps=(
                    "Shrink the largest consumers: a smaller buffer pool (it can shrink at run time), fewer "
                    "connections, smaller per-connection buffers.",
                )
            ),
        ),
    )


@rule(
    "MEM08",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux proc_vmstat(5), oom_kill; Documentation/admin-guide/cgroup-v2.rst, memory.events",
    refute="The kernel's log names no killed process in this window.",
)
def killed_for_memory(evidence: Evidence) -> Iterator[Match]:
    """The kernel kills processes for lack of memory.

    It chooses by size. If it kills the server, clients lose their connections, and the restart means a recovery
    and a cold buffer pool.
    """
    kills = evidence.growth("vmstat", "oom_kill")
    # A group counts those of the groups below it, too.
    groups = evidence.window.labels("cgroup", "memory_oom_kill")
    in_groups = max((evidence.growth("cgroup", "memory_oom_kill", name) for name in groups), default=0.0)
    if max(kills, in_groups) <= 0:
        return
    seconds, killed = evidence.window.seconds, round(max(kills, in_groups))
    is_apart = in_groups <= 0 and in_groups_only(evidence.window)
    of_others = ", at the limit of a control group: the host had enough" if is_apart else ""
    yield Match(
        "",
        f"{counted(killed, 'process was', 'processes were')} killed for lack of memory in "
        f"{seconds:.0f} s{of_others}.",
        (number("killed", kills, ".0f"), number("of these in the server's control groups", in_groups, ".0f")),
        (
            Remedy(
                steps=(
                    "Find which and why: journalctl -k -g 'Killed process'.",
                    "Configure less memory, raise the group's limit, or protect the server: "
                    "OOMScoreAdjust=-800.",
                )
            ),
        ),
    )


@rule(
    "MEM10",
    severity=Severity.COST,
    confidence=Confidence.LOW,
    source=f"{_VM}, watermark_scale_factor and min_free_kbytes",
    refute="With kswapd woken earlier, allocstall stops growing, but p99 is equivalent.",
)
def direct_reclaim(evidence: Evidence) -> Iterator[Match]:
    """Threads free memory themselves although enough is available.

    kswapd should free pages before they are needed. If allocations outpace it, the thread that needs a page does
    the work, in the middle of a statement.
    """
    metrics = [m for m in evidence.window.metrics("vmstat") if m.startswith("allocstall")]
    if not metrics:
        raise NotEnough("vmstat.allocstall was not sampled")
    stalls = sum(evidence.rate("vmstat", metric) for metric in metrics)
    available = evidence.gauge("memory", "MemAvailable").low
    if stalls < STALLS_S or available < ENOUGH_AVAILABLE * evidence.memory_bytes():
        return
    factor = evidence.sysctl_number("vm.watermark_scale_factor")
    yield Match(
        "",
        f"threads had to free memory themselves {stalls:,.1f} times per second, with {size(available)} "
        "available.",
        (
            number("allocstall/s", stalls, ",.1f"),
            number("available, minimum", size(available)),
            number("vm.watermark_scale_factor", factor),
        ),
        (_earlier_kswapd(evidence, factor, available),),
    )


def _earlier_kswapd(evidence: Evidence, factor: int, available: float) -> Remedy:
    """Twice the factor, in 1/10,000 of the memory, is what kswapd then keeps free: only a part of what is
    available, or it would reclaim for ever and swap out the pool."""
    most = int(MOST_KEPT_FREE * available / evidence.memory_bytes() / 2 * 10_000)
    wanted = min(max(100, 4 * factor), most, 1_000)
    if wanted > factor:
        return Remedy({"host.vm.watermark_scale_factor": wanted})
    return Remedy(
        steps=(
            f"kswapd starts early enough (vm.watermark_scale_factor is {factor}): find what allocates memory "
            "in bursts, and leave more memory free for it.",
        )
    )


@rule(
    "MEM22",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_VM}, min_free_kbytes and watermark_scale_factor; mm/page_alloc.c, calculate_min_free_kbytes",
    refute="With the kernel's own value, available memory is as low, and tasks wait for memory as before.",
)
def much_is_kept_free(evidence: Evidence) -> Iterator[Match]:
    """The kernel keeps too much memory free while programs run short.

    Below its watermarks the kernel reclaims and swaps as if there were no memory left. They are raised for network
    cards or for kswapd, often to gigabytes and often copied from a larger host: that much is lost to the buffer
    pool and the page cache.
    """
    total = evidence.memory_bytes()
    least = 1024 * evidence.sysctl_number("vm.min_free_kbytes")
    factor = evidence.sysctl_number("vm.watermark_scale_factor", 10)
    kept = least + 2 * max(least / 4, factor / 10_000 * total)
    free = evidence.gauge("memory", "MemFree").low
    if kept < KEPT_FREE * total or free < least / 2 or not is_short(evidence):
        return
    total_kib = total / 1024
    usual = min(max(4 * math.sqrt(total_kib), FOR_HUGE_PAGES_KIB), MOST_FOR_HUGE_PAGES * total_kib)
    settings: dict[str, Value] = {}
    if least > 1024 * usual:
        settings["host.vm.min_free_kbytes"] = int(usual)
    if 2 * factor / 10_000 >= KEPT_FREE / 2:
        settings["host.vm.watermark_scale_factor"] = 10
    yield Match(
        "",
        f"kswapd reclaims until {size(kept)} of {size(total)} is free ({share(kept / total)}); {size(free)} is "
        f"free, and {size(evidence.gauge('memory', 'MemAvailable').low)} available.",
        (
            number("vm.min_free_kbytes", size(least)),
            number("vm.watermark_scale_factor", factor),
            number("free, minimum", size(free)),
        ),
        (Remedy(settings),),
    )


@rule(
    "MEM11",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/accounting/psi.rst",
    refute="With a tenth less memory configured for the server, the pressure remains.",
)
def pressure(evidence: Evidence) -> Iterator[Match]:
    """Tasks wait for memory.

    The kernel counts the time in which a task was stalled because it had to reclaim, to swap in, or to read again
    what had just been dropped.
    """
    some = evidence.rate("psi", "some_total_us", "memory") / 1e6
    if some < PRESSURE_SEEN or waits_in_other_groups(evidence.window):
        return
    full = (evidence.window.rate("psi", "full_total_us", "memory") or 0.0) / 1e6
    available = evidence.gauge("memory", "MemAvailable").low
    yield Match(
        "",
        f"tasks waited for memory {share(some)} of the time, all tasks at once {share(full)}.",
        (
            number("pressure, some", share(some)),
            number("pressure, full", share(full)),
            number("available, minimum", size(available)),
        ),
        (
            Remedy(
                steps=(
                    "Configure less memory for the server or for other programs on the host, or add memory.",
                ),
            ),
        ),
    )


@rule(
    "MEM12",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/mm/overcommit-accounting.rst; proc_meminfo(5), CommitLimit and Committed_AS",
    refute="Committed_AS does not rise when the server is busiest, and no allocation fails.",
)
def nearly_all_promised(evidence: Evidence) -> Iterator[Match]:
    """Overcommit is disabled, and the commit limit is nearly reached.

    The next large allocation fails, however much memory is free: a connection cannot start its thread, or the
    server exits.
    """
    if evidence.sysctl("vm.overcommit_memory") != "2":
        return
    limit = evidence.last("memory", "CommitLimit")
    promised = evidence.gauge("memory", "Committed_AS").high
    if promised < COMMITTED * limit:
        return
    ratio = evidence.facts.sysctl("vm.overcommit_ratio")
    kib = evidence.sysctl_number("vm.overcommit_kbytes", 0)
    higher = _higher_limit(evidence, promised, kib)
    yield Match(
        "",
        f"{size(promised)} of {size(limit)} is committed, and vm.overcommit_memory is 2.",
        (
            number("Committed_AS", size(promised)),
            number("CommitLimit", size(limit)),
            number("vm.overcommit_ratio", ratio or "unknown"),
            number("vm.overcommit_kbytes", kib or "unknown"),
        ),
        (
            *((Remedy(higher, label="a higher limit"),) if higher else ()),
            Remedy({"host.vm.overcommit_memory": 0}, label="let the kernel estimate"),
        ),
    )


def _higher_limit(evidence: Evidence, promised: float, kib: int) -> dict[str, Value]:
    """The setting that makes room for what is committed: the one of the two that is in force, and only upwards.

    The limit is a share of the memory without huge pages, or an amount, and swap comes on top. Writing one of the
    two makes the other 0.
    """
    huge = evidence.window.last("memory", "Hugetlb") or 0.0
    usable = evidence.memory_bytes() - huge
    wanted = min(
        promised / (1 - COMMIT_SPARE) - evidence.last("memory", "SwapTotal"), HIGHEST_RATIO / 100 * usable
    )
    if kib > 0:
        return {"host.vm.overcommit_kbytes": int(wanted) >> 10} if wanted > kib << 10 else {}
    ratio = evidence.sysctl_number("vm.overcommit_ratio")
    share_of_memory = min(math.ceil(100 * wanted / usable), HIGHEST_RATIO)
    return {"host.vm.overcommit_ratio": share_of_memory} if share_of_memory > ratio else {}


@rule(
    "MEM13",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux proc_vmstat(5), pswpin and pswpout; proc_swaps(5)",
    refute="With the swap on another device, latencies of the data device are equivalent.",
)
def swap_beside_data(evidence: Evidence) -> Iterator[Match]:
    """The host swaps to the device that holds the server's data.

    When memory is short, the device is busiest, and swap I/O and data I/O delay each other.
    """
    paths = (evidence.raw.get("memory") or {}).get("swaps")
    if paths is None:
        raise NotEnough("the host does not report its swaps")
    moved = evidence.rate("vmstat", "pswpin") + evidence.rate("vmstat", "pswpout")
    data = evidence.device_of(evidence.data_directory)
    if data is None:
        raise NotEnough("the device of the data directory is unknown")
    for swap in paths:
        own = str(swap["path"]).removeprefix("/dev/")
        if moved < SWAPPED_IN_S or evidence.disk_of(own) != evidence.disk_of(data):
            continue
        yield Match(
            own,
            f"{moved:,.0f} pages/s go to and from {swap['path']}, which is on {evidence.disk_of(data)}, like "
            "the data.",
            (
                number("pages swapped/s", moved, ",.0f"),
                number("swap", f"{swap['path']}, {size(swap['used_bytes'])} used"),
                number("data directory", f"{evidence.data_directory} on {data}"),
            ),
            (
                Remedy(
                    steps=(
                        "Stop the swapping first: configure less memory (MEM01).",
                        "Add swap on another device with a higher priority: swapon -p 10.",
                        f"Then swapoff {swap['path']}, but only once more than {size(swap['used_bytes'])} of "
                        "memory is available: swapoff reads all of it back into memory.",
                    )
                ),
            ),
        )
