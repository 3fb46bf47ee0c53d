"""Knobs of the host: sysctls and transparent huge pages."""

from __future__ import annotations

from headrace.knobs.knob import Cost, Durability, Kind, Knob

_VM = "Linux Documentation/admin-guide/sysctl/vm.rst"
_NET = "Linux Documentation/admin-guide/sysctl/net.rst"
_IP = "Linux Documentation/networking/ip-sysctl.rst"
_KERNEL = "Linux Documentation/admin-guide/sysctl/kernel.rst"
_FS = "Linux Documentation/admin-guide/sysctl/fs.rst"
_THP = "Linux Documentation/admin-guide/mm/transhuge.rst"


def sysctl_path(name: str) -> str:
    """``vm.swappiness`` -> ``/proc/sys/vm/swappiness``."""
    return "/proc/sys/" + name.replace(".", "/")


def _sysctl(
    name: str,
    doc: str,
    source: str,
    *,
    kind: Kind = Kind.INTEGER,
    unit: str = "",
    low: float | None = 0,
    high: float | None = None,
) -> Knob:
    if kind is Kind.TEXT:
        low = None
    return Knob(
        f"host.{name}",
        kind,
        Cost.DYNAMIC,
        doc,
        source,
        unit=unit,
        low=low,
        high=high,
        location=sysctl_path(name),
    )


def unlisted(name: str) -> Knob:
    """A sysctl that is not in the catalogue: it can be set and restored, but nothing is known about it."""
    return Knob(
        f"host.{name}",
        Kind.TEXT,
        Cost.DYNAMIC,
        "A sysctl that headrace has no record of.",
        "Linux Documentation/admin-guide/sysctl",
        durability=Durability.UNKNOWN,
        location=sysctl_path(name),
    )


KNOBS = (
    _sysctl("vm.swappiness", "How readily memory is swapped rather than page cache dropped.", _VM, high=200),
    _sysctl(
        "vm.dirty_ratio", "Dirty memory at which a writer must write back itself.", _VM, unit="%", high=100
    ),
    _sysctl("vm.dirty_background_ratio", "Dirty memory at which write-back starts.", _VM, unit="%", high=100),
    _sysctl(
        "vm.dirty_bytes", "As vm.dirty_ratio, absolute; setting one zeroes the other.", _VM, unit="bytes"
    ),
    _sysctl(
        "vm.dirty_background_bytes",
        "As vm.dirty_background_ratio, absolute; setting one zeroes the other.",
        _VM,
        unit="bytes",
    ),
    _sysctl("vm.dirty_expire_centisecs", "The age at which dirty data must be written.", _VM, unit="10 ms"),
    _sysctl("vm.dirty_writeback_centisecs", "How often the write-back threads wake.", _VM, unit="10 ms"),
    _sysctl("vm.vfs_cache_pressure", "How readily dentries and inodes are reclaimed; 100 is fair.", _VM),
    _sysctl("vm.min_free_kbytes", "Memory kept free for allocations that cannot wait.", _VM, unit="KiB"),
    _sysctl("vm.watermark_scale_factor", "When kswapd wakes, in 1/10,000 of memory.", _VM, low=1, high=3000),
    _sysctl("vm.zone_reclaim_mode", "Reclaim on the local NUMA node before using another.", _VM, high=7),
    _sysctl("vm.overcommit_memory", "0 heuristic, 1 always, 2 never overcommit.", _VM, high=2),
    _sysctl("vm.nr_hugepages", "Huge pages that are set aside.", _VM),
    _sysctl("vm.max_map_count", "Memory areas a process may have.", _VM),
    _sysctl("vm.page-cluster", "Pages read from swap at once, as a power of two.", _VM),
    _sysctl("kernel.numa_balancing", "Moving of pages to the node that uses them.", _KERNEL, high=3),
    _sysctl(
        "kernel.sched_autogroup_enabled", "Scheduling by session rather than by thread.", _KERNEL, high=1
    ),
    _sysctl("fs.aio-max-nr", "Asynchronous requests in the whole system.", _FS),
    _sysctl("fs.file-max", "File handles in the whole system.", _FS),
    _sysctl("net.core.somaxconn", "The longest queue of connections that wait to be accepted.", _NET),
    _sysctl("net.core.netdev_max_backlog", "Packets that wait on one CPU.", _NET),
    _sysctl("net.core.netdev_budget", "Packets handled in one round of a softirq.", _NET),
    _sysctl("net.core.busy_poll", "How long poll and select spin on a device queue.", _NET, unit="us"),
    _sysctl("net.core.rmem_max", "The largest receive buffer.", _NET, unit="bytes"),
    _sysctl("net.core.wmem_max", "The largest send buffer.", _NET, unit="bytes"),
    _sysctl("net.core.rps_sock_flow_entries", "Flows that RFS keeps track of.", _NET),
    _sysctl("net.core.default_qdisc", "The queueing discipline of new interfaces.", _NET, kind=Kind.TEXT),
    _sysctl("net.ipv4.tcp_max_syn_backlog", "Connections that are half-way open.", _IP),
    _sysctl("net.ipv4.tcp_fin_timeout", "How long a closed connection waits for the peer.", _IP, unit="s"),
    _sysctl(
        "net.ipv4.tcp_tw_reuse", "Reuse of ports in TIME-WAIT: 0 no, 1 yes, 2 loopback only.", _IP, high=2
    ),
    _sysctl(
        "net.ipv4.tcp_slow_start_after_idle", "Whether an idle connection starts slowly again.", _IP, high=1
    ),
    _sysctl("net.ipv4.tcp_congestion_control", "The algorithm of new connections.", _IP, kind=Kind.TEXT),
    _sysctl("net.ipv4.ip_local_port_range", "First and last port for connecting.", _IP, kind=Kind.TEXT),
    Knob(
        "host.thp",
        Kind.CHOICE,
        Cost.DYNAMIC,
        "Transparent huge pages for memory of programs.",
        _THP,
        allowed=("always", "madvise", "never"),
        location="/sys/kernel/mm/transparent_hugepage/enabled",
    ),
    Knob(
        "host.thp_defrag",
        Kind.CHOICE,
        Cost.DYNAMIC,
        "Whether a page fault waits for memory to be compacted into a huge page.",
        _THP,
        allowed=("always", "defer", "defer+madvise", "madvise", "never"),
        location="/sys/kernel/mm/transparent_hugepage/defrag",
    ),
)
