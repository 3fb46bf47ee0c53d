"""What the kernel did because memory was short: reclaimed pages, killed processes, and for whom."""

from __future__ import annotations

from headrace.host.window import Window

#: Share of the memory that is available at any time, above which nobody was killed for the host's lack of it.
LEFT = 0.10
#: Pages per second that the kernel looks at in the background, below which it does not look for memory.
AT_REST_S = 100.0
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
