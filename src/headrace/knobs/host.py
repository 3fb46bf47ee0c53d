"""Knobs of the host: sysctls and memory. ``devices`` has processors, interrupts, networks and arrays."""

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
    formerly: str = "",
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
        formerly=formerly,
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
    _sysctl(
        "vm.percpu_pagelist_high_fraction",
        "The part of each zone that lists of free pages of one CPU may hold, as 1/n; 0 leaves it to the kernel.",
        _VM,
    ),
    _sysctl("vm.zone_reclaim_mode", "Reclaim on the local NUMA node before using another.", _VM, high=7),
    _sysctl("vm.overcommit_memory", "0 heuristic, 1 always, 2 never overcommit.", _VM, high=2),
    _sysctl("vm.nr_hugepages", "Reserved huge pages.", _VM),
    _sysctl("vm.max_map_count", "Memory areas a process may have.", _VM),
    _sysctl("vm.page-cluster", "Pages read from swap at once, as a power of two.", _VM),
    _sysctl("kernel.numa_balancing", "Whether pages are moved to the node that uses them.", _KERNEL, high=3),
    _sysctl(
        "kernel.sched_autogroup_enabled", "Scheduling by session rather than by thread.", _KERNEL, high=1
    ),
    _sysctl("fs.aio-max-nr", "Asynchronous I/O requests, system-wide.", _FS),
    _sysctl("fs.file-max", "File handles, system-wide.", _FS),
    _sysctl("net.core.somaxconn", "The longest queue of connections that wait to be accepted.", _NET),
    _sysctl("net.core.netdev_max_backlog", "Packets that wait on one CPU.", _NET),
    _sysctl("net.core.netdev_budget", "Packets handled in one round of a softirq.", _NET),
    _sysctl("net.core.busy_poll", "How long poll and select spin on a device queue.", _NET, unit="us"),
    _sysctl("net.core.rmem_max", "The largest receive buffer.", _NET, unit="bytes"),
    _sysctl("net.core.wmem_max", "The largest send buffer.", _NET, unit="bytes"),
    _sysctl("net.core.rps_sock_flow_entries", "Flows that RFS keeps track of.", _NET),
    _sysctl("net.core.default_qdisc", "The queueing discipline of new interfaces.", _NET, kind=Kind.TEXT),
    _sysctl("net.ipv4.tcp_max_syn_backlog", "Half-open connections.", _IP),
    _sysctl("net.ipv4.tcp_fin_timeout", "How long a closed connection waits for the peer.", _IP, unit="s"),
    _sysctl(
        "net.ipv4.tcp_tw_reuse",
        "Reuse of ports in TIME-WAIT: 0 no, 1 yes, 2 loopback only.",
        _IP,
        high=2,
        formerly="tcp_tw_recycle, which broke clients behind NAT, was removed in Linux 4.12",
    ),
    _sysctl(
        "net.ipv4.tcp_slow_start_after_idle", "Whether an idle connection returns to slow start.", _IP, high=1
    ),
    _sysctl("net.ipv4.tcp_congestion_control", "The algorithm of new connections.", _IP, kind=Kind.TEXT),
    _sysctl(
        "net.ipv4.ip_local_port_range", "First and last port for outgoing connections.", _IP, kind=Kind.TEXT
    ),
    _sysctl(
        "vm.overcommit_ratio",
        "The share of memory that mode 2 lets programs commit; writing it makes vm.overcommit_kbytes 0.",
        _VM,
        unit="%",
    ),
    _sysctl(
        "vm.overcommit_kbytes",
        "As vm.overcommit_ratio, absolute; writing it makes vm.overcommit_ratio 0.",
        _VM,
        unit="KiB",
    ),
    _sysctl(
        "net.ipv4.ip_local_reserved_ports",
        "Ports that no outgoing connection takes, as the kernel writes them: 3306,4567-4568.",
        _IP,
        kind=Kind.TEXT,
    ),
    _sysctl("vm.nr_overcommit_hugepages", "Huge pages that may be allocated beyond the reserved ones.", _VM),
    _sysctl("vm.dirtytime_expire_seconds", "The age at which a lazy access time is written.", _VM, unit="s"),
    _sysctl("vm.compaction_proactiveness", "How eagerly memory is compacted in advance.", _VM, high=100),
    _sysctl("vm.watermark_boost_factor", "How far fragmentation raises reclaim, in 1/10,000.", _VM),
    _sysctl("vm.stat_interval", "How often memory counters are gathered.", _VM, unit="s", low=1),
    _sysctl("kernel.timer_migration", "Whether timers migrate away from idle processors.", _KERNEL, high=1),
    _sysctl(
        "kernel.nmi_watchdog", "A counter that finds hard lock-ups, and costs a little.", _KERNEL, high=1
    ),
    _sysctl(
        "kernel.sched_rt_runtime_us",
        "The share of a period that real-time tasks may take.",
        _KERNEL,
        unit="us",
        low=-1,
    ),
    _sysctl("kernel.pid_max", "Threads and processes, system-wide.", _KERNEL, low=301),
    _sysctl("kernel.threads-max", "Threads, system-wide.", _KERNEL, low=20),
    _sysctl("fs.nr_open", "File handles that one process may be allowed.", _FS),
    _sysctl("net.core.busy_read", "How long a read spins on a device queue.", _NET, unit="us"),
    _sysctl("net.core.netdev_budget_usecs", "The time of one round of a softirq.", _NET, unit="us"),
    _sysctl("net.core.dev_weight", "Packets of one device in a poll.", _NET, low=1),
    _sysctl("net.core.rmem_default", "The receive buffer if a program sets none.", _NET, unit="bytes"),
    _sysctl("net.core.wmem_default", "The send buffer if a program sets none.", _NET, unit="bytes"),
    _sysctl("net.core.optmem_max", "Ancillary data of one socket.", _NET, unit="bytes"),
    _sysctl(
        "net.ipv4.tcp_rmem", "Receive buffer: minimum, default, maximum.", _IP, kind=Kind.TEXT, unit="bytes"
    ),
    _sysctl(
        "net.ipv4.tcp_wmem", "Send buffer: minimum, default, maximum.", _IP, kind=Kind.TEXT, unit="bytes"
    ),
    _sysctl(
        "net.ipv4.tcp_mem",
        "Memory of all TCP: no pressure below, pressure, maximum.",
        _IP,
        kind=Kind.TEXT,
        unit="pages",
    ),
    _sysctl("net.ipv4.tcp_max_tw_buckets", "Connections in TIME-WAIT.", _IP),
    _sysctl("net.ipv4.tcp_abort_on_overflow", "A full queue answers with a reset.", _IP, high=1),
    _sysctl("net.ipv4.tcp_keepalive_time", "Idle time before a probe.", _IP, unit="s", low=1),
    _sysctl("net.ipv4.tcp_keepalive_intvl", "Time between probes.", _IP, unit="s", low=1),
    _sysctl("net.ipv4.tcp_keepalive_probes", "Probes before a connection counts as lost.", _IP, low=1),
    _sysctl("net.ipv4.tcp_retries2", "Retransmissions before a connection is given up.", _IP),
    _sysctl("net.ipv4.tcp_syncookies", "Cookies when half-open connections overflow.", _IP, high=2),
    _sysctl(
        "net.ipv4.tcp_timestamps", "Timestamps in segments: 0 none, 1 with an offset, 2 plain.", _IP, high=2
    ),
    _sysctl(
        "net.ipv4.tcp_window_scaling",
        "Whether a connection may have more than 64 KiB in flight.",
        _IP,
        high=1,
    ),
    _sysctl("net.ipv4.tcp_sack", "Selective acknowledgements.", _IP, high=1),
    _sysctl(
        "net.ipv4.tcp_notsent_lowat", "Unsent data below which a socket accepts more.", _IP, unit="bytes"
    ),
    _sysctl(
        "net.ipv4.tcp_limit_output_bytes", "Data of one socket in the device's queue.", _IP, unit="bytes"
    ),
    _sysctl("net.ipv4.tcp_mtu_probing", "Path MTU probing: 0 no, 1 after loss, 2 always.", _IP, high=2),
    _sysctl("net.ipv4.tcp_autocorking", "Small segments are gathered while one is in flight.", _IP, high=1),
    _sysctl("net.ipv4.tcp_fastopen", "Data in the first segment, as a bit mask.", _IP),
    Knob(
        "host.thp",
        Kind.CHOICE,
        Cost.DYNAMIC,
        "Transparent huge pages for program memory.",
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
    Knob(
        "host.khugepaged_defrag",
        Kind.INTEGER,
        Cost.DYNAMIC,
        "Whether the daemon that makes huge pages may compact memory.",
        _THP,
        low=0,
        high=1,
        location="/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
    ),
    Knob(
        "host.khugepaged_max_ptes_none",
        Kind.INTEGER,
        Cost.DYNAMIC,
        "Untouched small pages that a huge page may include: wasted memory.",
        _THP,
        unit="pages",
        low=0,
        high=511,
        location="/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
    ),
    Knob(
        "host.ksm",
        Kind.INTEGER,
        Cost.DYNAMIC,
        "Merging of identical pages: 0 stopped, 1 running, 2 undone.",
        "Linux Documentation/admin-guide/mm/ksm.rst",
        low=0,
        high=2,
        location="/sys/kernel/mm/ksm/run",
    ),
    Knob(
        "host.sched_base_slice_ns",
        Kind.INTEGER,
        Cost.DYNAMIC,
        "How long a thread runs before another may have the processor.",
        "Linux Documentation/scheduler/sched-debug.rst; sched-eevdf.rst",
        unit="ns",
        low=100_000,
        high=1_000_000_000,
        location="/sys/kernel/debug/sched/base_slice_ns",
        formerly="sysctl kernel.sched_min_granularity_ns until 5.13, debug/sched/min_granularity_ns until 6.6",
    ),
    Knob(
        "host.sched_migration_cost_ns",
        Kind.INTEGER,
        Cost.DYNAMIC,
        "How long a thread counts as too cache-hot to migrate.",
        "Linux Documentation/scheduler/sched-debug.rst",
        unit="ns",
        low=0,
        location="/sys/kernel/debug/sched/migration_cost_ns",
        formerly="sysctl kernel.sched_migration_cost_ns until 5.13",
    ),
)
