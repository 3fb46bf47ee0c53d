"""What the kernel did because memory was short: reclaimed pages, killed processes, and for whom."""

from __future__ import annotations

from headrace.host.window import Window

#: Share of the memory that is available at any time, above which nobody was killed for the host's lack of it.
LEFT = 0.10
#: Pages per second that the kernel looks at in the background, below which it does not look for memory.
AT_REST_S = 100.0
#: Share of the time in which tasks waited for memory, and pages per second read from swap, where it is short. One
#: now and then is an old page of an idle process; some belong to a busy one; hundreds hold the host back.
WAITED, SWAPPED_IN_S, MUCH_SWAPPED_IN_S = 0.05, 10.0, 256.0
#: Events of the server's own control groups that say they reached a limit.
REACHED = ("memory_high", "memory_max", "memory_oom", "memory_oom_kill")


def in_groups_only(window: Window) -> bool:
    """Whether processes that were killed for lack of memory had reached the limit of their control group.

    Before the kernel kills for the host, an allocation has stalled there; a group's own are not counted
    (mm/vmscan.c, do_try_to_free_pages).
    """
    stalls = [
        window.growth("vmstat", name) for name in window.metrics("vmstat") if name.startswith("allocstall")
    ]
    available, total = window.gauge("memory", "MemAvailable"), window.last("memory", "MemTotal")
    has_room = available is not None and bool(total) and available.low >= LEFT * (total or 0.0)
    return has_room and bool(stalls) and not any(stalls)


def waits_in_other_groups(window: Window) -> bool:
    """Whether tasks that waited for memory, or for pages from swap, were at the limits of others' control groups.

    The kernel's sums of waits and of swapped pages have those of every group. Where it looked for no memory
    itself, the host was not short (mm/vmscan.c: only global reclaim counts in /proc/vmstat). False where that is
    not known, and where the server's own groups, which are all that ``window`` has, reached a limit.
    """
    looked = window.rate("vmstat", "pgscan_kswapd")
    own = [
        window.growth("cgroup", metric, label) or 0.0
        for metric in REACHED
        for label in window.labels("cgroup", metric)
    ]
    return looked is not None and looked < AT_REST_S and in_groups_only(window) and not any(own)


def direct_reclaim(window: Window) -> float | None:
    """Pages per second that tasks scanned themselves. Before Linux 4.8 they are counted by zone."""
    metrics = [name for name in window.metrics("vmstat") if name.startswith("pgscan_direct")]
    rates = [window.rate("vmstat", name) for name in metrics if name != "pgscan_direct_throttle"]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def is_memory_short(window: Window, pages_s: float = SWAPPED_IN_S) -> bool:
    """Whether tasks waited for memory, or for so many pages from swap, and not at the limits of other groups."""
    waited, read = window.rate("psi", "some_total_us", "memory"), window.rate("vmstat", "pswpin")
    waits = (waited or 0.0) / 1e6 >= WAITED or (read or 0.0) >= pages_s
    return waits and not waits_in_other_groups(window)


def reclaimable_cache_bytes(window: Window) -> float | None:
    """What ZFS's cache gives back when memory is short: all above its lower limit (zfs(4), zfs_arc_min).

    The kernel counts this cache as used. None without ZFS, and where it or its lower limit was not sampled.
    0 in a container that sees the cache of its host, whose limit is above all memory here: what the container uses
    is without it.
    """
    size, least = window.gauge("zfs", "size"), window.last("zfs", "c_min")
    total, most = window.last("memory", "MemTotal"), window.last("zfs", "c_max")
    if size is not None and total and max(most or 0.0, size.low) > total:
        return 0.0
    return None if size is None or least is None else max(size.low - least, 0.0)
