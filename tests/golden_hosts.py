"""The saved hosts whose verdicts are golden: name -> what makes the host and watches it for a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.host.snapshot import Snapshot
from tests.moments import Activity, Disk, Host, Nic, Packets, Program

Maker = Callable[[Path], Snapshot]
HOSTS: dict[str, Maker] = {}

#: The interrupts of the fixtures' devices.
XEN_DISKS = ("130", "131", "132", "133")
XEN_NIC = "134"
NVME_QUEUES = tuple(str(140 + queue) for queue in range(8))
NIC_QUEUES = tuple(str(150 + queue) for queue in range(8))

#: 8 cores that have a light, even load of a database on a good NVMe and a NIC with a queue a core.
LIGHT = Activity(
    every_core={"user": 0.12, "system": 0.05, "softirq": 0.01, "iowait": 0.005},
    devices={
        "nvme1n1": Disk(reads=800, writes=1_500, read_ms=0.1, write_ms=0.04, util=0.12, flushes=0),
        "nvme0n1": Disk(writes=10, write_ms=0.05, util=0.001),
    },
    interfaces={"enp1s0f0np0": Nic(rx=7_000, tx=7_000, rx_size=280, tx_size=1_100)},
    receive={cpu: Packets(900) for cpu in range(8)},
    interrupts={
        **{irq: {cpu: 800} for cpu, irq in enumerate(NIC_QUEUES)},
        **{irq: {cpu: 290} for cpu, irq in enumerate(NVME_QUEUES)},
    },
    vmstat={"pgmajfault": 0.1, "drop_pagecache": 0.0, "drop_slab": 0.0},
    pressure={"cpu": (0.004, 0.0), "io": (0.004, 0.001), "memory": (0.0, 0.0)},
    memory={"MemAvailable": 15_000_000, "MemFree": 3_000_000, "AnonHugePages": 0},
    programs=(Program(1322, "mysqld", 0.9, 0.4, threads=60, rss_bytes=46 << 30),),
)


def golden(maker: Maker) -> Maker:
    HOSTS[maker.__name__.replace("_", "-")] = maker
    return maker


def well_kept(root: Path) -> Host:
    """The NVMe host as a careful person would leave it."""
    host = Host(root, "nvme-8core")
    host.write(
        {
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "sys/fs/cgroup/system.slice/mysql.service/memory.max": "max",
            **{f"sys/devices/system/cpu/cpu0/cpuidle/state{n}/disable": "1" for n in (2, 3)},
        }
    )
    host.edit(
        "proc/self/mountinfo", "- ext4 /dev/nvme1n1 rw", "- xfs /dev/nvme1n1 rw,logbufs=8,logbsize=256k"
    )
    return host


@golden
def idle(root: Path) -> Snapshot:
    quiet = LIGHT.but(
        every_core={"user": 0.002, "system": 0.002},
        devices={"nvme0n1": Disk(writes=3, write_ms=0.05, util=0.0003)},
        interfaces={"enp1s0f0np0": Nic(rx=12, tx=8)},
        receive={},
        interrupts={},
        running=1,
        pressure={},
        programs=(Program(1322, "mysqld", 0.004, 0.002),),
    )
    return well_kept(root).watch(quiet)


@golden
def nvme_healthy(root: Path) -> Snapshot:
    return well_kept(root).watch(LIGHT, server={})


@golden
def nvme_with_noise(root: Path) -> Snapshot:
    """What a healthy host shows in some minute of the day: one burst, one lost segment, cores that differ."""

    def once(t: float) -> float:
        return 0.2 if t < 5 else 0.0

    noise = LIGHT.but(
        cores={cpu: {"user": 0.05 + 0.05 * cpu, "softirq": 0.005 * cpu} for cpu in range(8)},
        receive={**LIGHT.receive, 3: Packets(900, once, once)},
        interfaces={"enp1s0f0np0": Nic(rx=7_000, tx=7_000, rx_size=280, tx_size=1_100, rx_dropped=once)},
        tcp={"RetransSegs": 0.5, "ListenOverflows": once, "ListenDrops": once, "TCPTimeouts": 0.1},
        vmstat={"pgmajfault": 3, "pswpin": once, "compact_stall": once},
        pressure={"cpu": (0.03, 0.0), "io": (0.04, 0.02), "memory": (0.002, 0.0)},
    )
    return well_kept(root).watch(noise, server={})


@golden
def nvme_as_it_came(root: Path) -> Snapshot:
    """The same load on the host as its installer left it, and no server asked."""
    huge = LIGHT.but(memory={**LIGHT.memory, "AnonHugePages": 41_943_040, "AnonPages": 47_000_000})
    return Host(root, "nvme-8core").watch(huge)


@golden
def nvme_looks_full(root: Path) -> Snapshot:
    """One request at a time, all the time: %util 98, and the device answers in 80 us."""
    one = LIGHT.but(
        every_core={"user": 0.10, "system": 0.06, "iowait": 0.10},
        devices={"nvme1n1": Disk(reads=12_000, read_ms=0.08, util=0.98)},
        pressure={"cpu": (0.004, 0.0), "io": (0.6, 0.5), "memory": (0.0, 0.0)},
        interrupts={**LIGHT.interrupts, **{irq: {cpu: 1_500} for cpu, irq in enumerate(NVME_QUEUES)}},
    )
    return well_kept(root).watch(one, server={})


def _saturated(limit_s: float) -> dict[str, Disk]:
    """Asked for more and more over the minute: it does no more, and each request waits longer."""

    def queue(t: float) -> float:
        return 40 + 3 * t

    return {"nvme1n1": Disk(reads=limit_s, read_ms=lambda t: 1e3 * queue(t) / limit_s, util=1.0)}


@golden
def nvme_saturated(root: Path) -> Snapshot:
    full = LIGHT.but(
        every_core={"user": 0.20, "system": 0.15, "iowait": 0.45},
        devices=_saturated(85_000),
        pressure={"cpu": (0.02, 0.0), "io": (0.9, 0.7), "memory": (0.0, 0.0)},
        interrupts={**LIGHT.interrupts, **{irq: {cpu: 10_500} for cpu, irq in enumerate(NVME_QUEUES)}},
    )
    return well_kept(root).watch(full, server={})


@golden
def swapping(root: Path) -> Snapshot:
    short = LIGHT.but(
        every_core={"user": 0.10, "system": 0.10, "iowait": 0.40},
        vmstat={"pswpin": 2_500, "pswpout": 2_600, "pgmajfault": 2_000, "pgscan_direct": 20_000},
        pressure={"cpu": (0.01, 0.0), "io": (0.7, 0.5), "memory": (0.45, 0.30)},
        memory={"MemAvailable": 900_000, "MemFree": 300_000, "SwapFree": 200_000, "AnonHugePages": 0},
        devices={
            **LIGHT.devices,
            "nvme0n1": Disk(reads=2_500, writes=700, read_ms=0.1, write_ms=0.1, util=0.35),
        },
    )
    return well_kept(root).watch(short, server={})


def _xen_irqbalance(host: Host, version: str) -> None:
    host.write({"proc/880/comm": "irqbalance"})
    host.edit("var/lib/dpkg/status", "deinstall ok config-files", "install ok installed")
    host.edit("var/lib/dpkg/status", "1.0.6-2ubuntu0.14.04.4", version)


#: The founding case: every device's interrupts on CPU 0, which does the receive work as well.
XEN_BUSY = Activity(
    every_core={"user": 0.18, "system": 0.06, "iowait": 0.03},
    cores={0: {"user": 0.02, "system": 0.10, "irq": 0.02, "softirq": 0.82, "iowait": 0.0}},
    running=5,
    devices={
        **{
            name: Disk(reads=1_500, writes=400, read_ms=0.3, write_ms=0.2, util=0.4)
            for name in ("xvdb", "xvdc", "xvdd", "xvde")
        },
        "md0": Disk(reads=6_000, writes=1_600),
    },
    interfaces={"eth0": Nic(rx=95_000, tx=90_000, rx_size=150, tx_size=400)},
    receive={0: Packets(95_000, 0.0, 15.0)},
    interrupts={XEN_NIC: {0: 30_000}, **{irq: {0: 1_900} for irq in XEN_DISKS}},
    programs=(Program(2477, "mysqld", 2.9, 0.9, threads=120, rss_bytes=96 << 30),),
)


@golden
def xen_one_hot_core(root: Path) -> Snapshot:
    host = Host(root, "xen-16core-md")
    _xen_irqbalance(host, "1.0.3-1")
    return host.watch(XEN_BUSY)


@golden
def xen_memcached(root: Path) -> Snapshot:
    """Four cores, 50,000 packets a second, and one event channel for the interface."""
    host = Host(root, "xen-16core-md")
    host.resize(4)
    host.remove("proc/2477", "proc/2104", "proc/mdstat", "sys/block/md0")
    host.edit("proc/self/mountinfo", "26 20 9:0 / /mnt/mysql rw,noatime - xfs /dev/md0", "")
    text = (host.root / "proc/self/mountinfo").read_text()
    host.write({"proc/self/mountinfo": "\n".join(line for line in text.splitlines() if line[:1].isdigit())})
    host.write(
        {"proc/3001/comm": "memcached", "proc/3001/cmdline": "/usr/bin/memcached\0-m\x0048000\0-t\x004\0"}
    )
    busy = XEN_BUSY.but(
        every_core={"user": 0.08, "system": 0.20, "softirq": 0.01},
        cores={0: {"user": 0.03, "system": 0.17, "softirq": 0.47}},
        devices={"xvda": Disk(writes=4, write_ms=0.4, util=0.002)},
        interfaces={"eth0": Nic(rx=50_000, tx=50_000, rx_size=110, tx_size=600)},
        receive={0: Packets(50_000)},
        interrupts={XEN_NIC: {0: 22_000}},
        programs=(Program(3001, "memcached", 0.35, 0.8, threads=10, rss_bytes=40 << 30),),
        running=3,
    )
    return host.watch(busy)


@golden
def old_kernel_md(root: Path) -> Snapshot:
    """Linux 3.2, a RAID-0 of four SSDs that does 800 requests a second where 60,000 were measured."""
    host = Host(root, "xen-16core-md")
    host.edit("proc/sys/kernel/osrelease", "3.13.0-74-generic", "3.2.0-4-amd64")
    host.edit("proc/cmdline", "vmlinuz-3.13.0-74-generic", "vmlinuz-3.2.0-4-amd64")
    _xen_irqbalance(host, "1.0.3-1")
    few = XEN_BUSY.but(
        every_core={"user": 0.05, "system": 0.02, "iowait": 0.06},
        cores={},
        devices={
            **{
                name: Disk(reads=180, writes=20, read_ms=0.35, write_ms=0.3, util=0.07)
                for name in ("xvdb", "xvdc", "xvdd", "xvde")
            },
            "md0": Disk(reads=720, writes=80),
        },
        interfaces={"eth0": Nic(rx=2_000, tx=2_000)},
        receive={0: Packets(2_000)},
        interrupts={XEN_NIC: {0: 1_800}, **{irq: {0: 200} for irq in XEN_DISKS}},
        programs=(Program(2477, "mysqld", 0.7, 0.3, threads=120, rss_bytes=96 << 30),),
        blocked=3,
    )
    return host.watch(few, limits={"md0": 60_000.0})


@golden
def spindle_full(root: Path) -> Snapshot:
    """A SATA disk of its own under the data: 160 requests a second are all it can."""
    host = well_kept(root)
    queue = {
        "rotational": "1",
        "scheduler": "[mq-deadline] none",
        "nr_requests": "64",
        "write_cache": "write back",
        "wbt_lat_usec": "75000",
        "read_ahead_kb": "128",
        "nomerges": "0",
        "iostats": "1",
        "add_random": "1",
        "rq_affinity": "1",
        "max_sectors_kb": "1280",
        "logical_block_size": "512",
        "physical_block_size": "4096",
        "fua": "0",
    }
    host.write(
        {
            "sys/block/sda/dev": "8:0",
            "sys/block/sda/size": "7814037168",
            "sys/block/sda/ro": "0",
            "sys/block/sda/removable": "0",
            "sys/block/sda/device/driver": "../../../../bus/scsi/drivers/sd",
            "sys/block/sda/device/model": "ST4000NM0035-1V4",
            **{f"sys/block/sda/queue/{name}": value for name, value in queue.items()},
        }
    )
    host.edit("proc/self/mountinfo", "259:4 / /var/lib/mysql", "8:0 / /var/lib/mysql")
    host.edit("proc/self/mountinfo", "xfs /dev/nvme1n1", "xfs /dev/sda")
    slow = LIGHT.but(
        every_core={"user": 0.02, "system": 0.02, "iowait": 0.30},
        devices={
            "sda": Disk(reads=140, writes=20, read_ms=75, write_ms=60, util=1.0, flushes=2, flush_ms=30),
            "nvme0n1": Disk(writes=10, write_ms=0.05, util=0.001),
        },
        pressure={"cpu": (0.002, 0.0), "io": (0.95, 0.9), "memory": (0.0, 0.0)},
        programs=(Program(1322, "mysqld", 0.15, 0.1, rss_bytes=46 << 30),),
    )
    return host.watch(slow)


@golden
def vm_with_steal(root: Path) -> Snapshot:
    host = well_kept(root)
    host.edit("proc/cpuinfo", "flags\t\t: fpu", "flags\t\t: hypervisor fpu")
    host.write({"sys/class/dmi/id/sys_vendor": "QEMU", "sys/class/dmi/id/product_name": "Standard PC"})
    less = LIGHT.but(
        every_core={"user": 0.45, "system": 0.10, "softirq": 0.01, "steal": 0.15},
        running=6,
        pressure={"cpu": (0.12, 0.0), "io": (0.01, 0.0), "memory": (0.0, 0.0)},
        programs=(Program(1322, "mysqld", 3.6, 0.8, rss_bytes=46 << 30),),
    )
    return host.watch(less, server={})


def big(root: Path) -> Host:
    """128 cores on four nodes; data on one NVMe."""
    host = well_kept(root)
    host.edit("proc/meminfo", "MemTotal:       65707012 kB", "MemTotal:      1056764928 kB")
    host.edit("proc/meminfo", "CommitLimit:    36851504 kB", "CommitLimit:   532381180 kB")
    host.resize(128, nodes=4)
    host.write({"proc/sys/kernel/numa_balancing": "0"})
    return host


BIG = LIGHT.but(
    every_core={"user": 0.035, "system": 0.01, "softirq": 0.001},
    receive={cpu: Packets(900) for cpu in range(8)},
    running=7,
    memory={
        "MemAvailable": 400_000_000,
        "MemFree": 90_000_000,
        "Committed_AS": 500_000_000,
        "AnonHugePages": 0,
    },
    programs=(Program(1322, "mysqld", 4.6, 1.2, threads=200, rss_bytes=600 << 30),),
)


@golden
def cores_128_one_hot(root: Path) -> Snapshot:
    """A card left with one queue after ``ethtool -L combined 1``: core 37 of 128 receives everything."""
    host = big(root)
    host.queues("enp1s0f0np0", 1)
    host.write({"proc/irq/150/smp_affinity_list": "37", "proc/irq/150/effective_affinity_list": "37"})
    hot = BIG.but(
        cores={37: {"user": 0.01, "system": 0.03, "softirq": 0.93}},
        interfaces={"enp1s0f0np0": Nic(rx=480_000, tx=430_000, rx_size=160, tx_size=500)},
        receive={37: Packets(480_000, 0.0, 150.0)},
        interrupts={
            "150": {37: 9_000},
            **{irq: {cpu: 290} for cpu, irq in enumerate(NVME_QUEUES)},
        },
    )
    return host.watch(hot)


@golden
def cores_128_locks(root: Path) -> Snapshot:
    """mysqld uses 3.5 of 128 CPUs, 96 threads are at work in it, and no hardware is short."""
    waiting = BIG.but(
        every_core={"user": 0.018, "system": 0.012},
        programs=(Program(1322, "mysqld", 2.1, 1.4, threads=300, rss_bytes=600 << 30),),
    )
    server: dict[str, Any] = {
        "vendor": "mysql",
        "status": {"threads_running": 96.0, "threads_connected": 260.0},
    }
    return big(root).watch(waiting, server=server)


@golden
def cores_16_locks(root: Path) -> Snapshot:
    """The founding case: mysqld at 350% of 1,600%, 72% idle, little iowait."""
    waiting = XEN_BUSY.but(
        every_core={"user": 0.17, "system": 0.07, "softirq": 0.005, "iowait": 0.02},
        cores={},
        interfaces={"eth0": Nic(rx=8_000, tx=8_000, rx_size=200, tx_size=900)},
        receive={0: Packets(8_000)},
        interrupts={XEN_NIC: {0: 4_000}, **{irq: {cpu + 1: 900} for cpu, irq in enumerate(XEN_DISKS)}},
        devices={
            **{
                name: Disk(reads=700, writes=200, read_ms=0.3, write_ms=0.2, util=0.2)
                for name in ("xvdb", "xvdc", "xvdd", "xvde")
            },
            "md0": Disk(reads=2_800, writes=800),
        },
        programs=(Program(2477, "mysqld", 2.6, 0.9, threads=180, rss_bytes=96 << 30),),
    )
    host = Host(root, "xen-16core-md")
    server: dict[str, Any] = {"vendor": "mysql", "status": {"threads_running": 48.0}}
    return host.watch(waiting, server={**server, "variables": {"datadir": "/mnt/mysql/data/"}})
