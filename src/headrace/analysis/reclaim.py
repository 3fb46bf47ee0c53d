"""What the kernel did because memory was short: reclaimed pages, killed processes, and for whom."""

from __future__ import annotations

from headrace.analysis.window import Window

#: Share of the memory that is available at any time, above which nobody was killed for the host's lack of it.
LEFT = 0.10


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


def direct_reclaim(window: Window) -> float | None:
    """Pages per second that tasks scanned themselves. Before Linux 4.8 they are counted by zone."""
    metrics = [name for name in window.metrics("vmstat") if name.startswith("pgscan_direct")]
    rates = [window.rate("vmstat", name) for name in metrics if name != "pgscan_direct_throttle"]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
