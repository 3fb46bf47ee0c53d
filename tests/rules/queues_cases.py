"""Cases of the rules about priorities of I/O, tags and mapped layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import healthy, unwell

DISK = "nvme1n1"
QUEUE = f"block_devices.{DISK}.queue"
GROUP = "/sys/fs/cgroup/system.slice/mysql.service"

WAITS = {"psi.some_total_us.io": 400_000.0}
BUSY = {f"disk.io_ms.{DISK}": 900.0}
BESIDE = {
    **WAITS,
    **BUSY,
    "process.utime_ticks.77/fio": 20.0,
    "process.read_bytes.77/fio": 300e6,
    "process.read_bytes.1322/mysqld": 20e6,
}
LVM = f"LVM-{'g' * 32}"


def scheduled(scheduler: str, **priorities: int) -> dict[str, Any]:
    names = {
        name.replace("_", "-").replace("best-effort-", "best-effort/"): n for name, n in priorities.items()
    }
    return {f"{QUEUE}.scheduler": scheduler, "servers.1322.io_priorities": names}


def weighted(file: str, weight: int) -> dict[str, Any]:
    return {"servers.1322.cgroup.io_weights": [{"path": GROUP, "file": file, "weight": weight}]}


def dm(number: int, name: str, uuid: str, *slaves: str) -> dict[str, Any]:
    return {
        "name": f"dm-{number}",
        "kind": "dm",
        "device_number": f"253:{number}",
        "queue": {"scheduler": None, "iostats": True},
        "partitions": [],
        "slaves": list(slaves),
        "holders": [],
        "dm": {"name": name, "uuid": uuid},
    }


def layer(name: str, *slaves: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "virtual",
        "queue": {},
        "partitions": [],
        "slaves": list(slaves),
        "holders": [],
    }


def mapped(*rows: dict[str, Any]) -> dict[str, Any]:
    """The data on the first of these, which end on the disk."""
    return {
        "block_devices": [*healthy().raw["block_devices"], *rows],
        "file_systems./var/lib/mysql.block_device": rows[0]["name"],
    }


def served(name: str, writes: float, write_ms: float) -> dict[str, float]:
    """Writes per second, and how long each takes; few reads."""
    return {
        f"disk.reads.{name}": 10.0,
        f"disk.read_ms.{name}": 1.0,
        f"disk.writes.{name}": writes,
        f"disk.write_ms.{name}": writes * write_ms,
        f"disk.io_ms.{name}": 400.0,
        f"disk.weighted_io_ms.{name}": writes * write_ms,
    }


#: A fast disk before a slow one.
BCACHE = mapped(
    {
        **layer("bcache0", "sdz", DISK),
        "bcache": {"mode": "writeback", "state": "dirty", "backing": "sdz"},
    },
    {**next(row for row in healthy().raw["block_devices"] if row["name"] == DISK), "name": "sdz"},
)
#: Two encrypted members of one array.
CRYPTS = mapped(
    {**layer("md0", "dm-0", "dm-1"), "kind": "md"},
    dm(0, "data0", "CRYPT-LUKS2-0a1b-data0", DISK),
    dm(1, "data1", "CRYPT-LUKS2-2c3d-data1", "sda"),
)
CRYPT = mapped(dm(0, "data", "CRYPT-LUKS2-0a1b-data", DISK))
SNAPSHOT = mapped(
    dm(0, "vg-data", f"{LVM}{'o' * 32}", "dm-1"),
    dm(1, "vg-data-real", f"{LVM}{'o' * 32}-real", DISK),
    dm(2, "vg-backup", f"{LVM}{'s' * 32}", "dm-1", "dm-3"),
    dm(3, "vg-backup-cow", f"{LVM}{'s' * 32}-cow", DISK),
)

#: As lvmcache(7) makes it: the volume, its slow device, and a fast one for data and for what is where.
CACHED = mapped(
    dm(0, "vg-data", f"{LVM}{'o' * 32}", "dm-1", "dm-2", "dm-3"),
    dm(1, "vg-data_corig", f"{LVM}{'c' * 32}-real", "sda"),
    dm(2, "vg-fast_cdata", f"{LVM}{'d' * 32}-cdata", DISK),
    dm(3, "vg-fast_cmeta", f"{LVM}{'m' * 32}-cmeta", DISK),
)


def lvm(end: str) -> dict[str, Any]:
    """A logical volume on a hidden one whose uuid ends so."""
    return mapped(dm(0, "vg-data", f"{LVM}{'o' * 32}", "dm-1"), dm(1, "vg-x", f"{LVM}{'p' * 32}{end}", DISK))


def held(facts: dict[str, Any], beneath: str) -> Callable[[], Evidence]:
    """The layer takes far longer than the device beneath."""
    return lambda: unwell(facts=facts, rates={**served("dm-0", 400.0, 9.0), **served(beneath, 400.0, 0.1)})


PATHS = {
    **mapped(dm(0, "mpatha", "mpath-3600508b4", "sda", "sdb")),
}
MIRROR = mapped({**layer("md0", "sda", "sdb"), "kind": "md"})

CASES = [
    Case(
        "BLK15",
        "a server under ionice, beside a backup",
        lambda: unwell(facts=scheduled("bfq", idle=90, none=6), rates=BESIDE),
        (DISK,),
        (
            "mysqld has the I/O priority idle (90 of 96 threads), which counts on nvme1n1 (scheduler bfq): behind "
            "others that read and write 300.0 MB/s",
        ),
        steps=("ionice -c 2 -n 4 -p $(ls /proc/1322/task)",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK15",
        "mq-deadline knows the class idle",
        lambda: unwell(facts=scheduled("mq-deadline", idle=96), rates=BESIDE),
        (DISK,),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK15",
        "the lowest level",
        lambda: unwell(facts=scheduled("bfq", best_effort_7=96), rates=BESIDE),
        (DISK,),
        ("best-effort/7",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK15",
        "a level that mq-deadline does not know",
        lambda: unwell(facts=scheduled("mq-deadline", best_effort_7=96), rates=BESIDE),
    ),
    Case(
        "BLK15",
        "a nice server",
        lambda: unwell(facts={**scheduled("bfq", none=96), "servers.1322.nice": 19}, rates=BESIDE),
        (DISK,),
        ("best-effort/7 by its nice value 19",),
        steps=("renice -n 0 -p",),
    ),
    Case(
        "BLK15",
        "others that do little",
        lambda: unwell(
            facts=scheduled("bfq", idle=96),
            rates={**BESIDE, "process.read_bytes.77/fio": 1e6, "process.read_bytes.1322/mysqld": 1e6},
        ),
        (DISK,),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "BLK15",
        "nobody else works",
        lambda: unwell(facts=scheduled("bfq", idle=96)),
        (DISK,),
        ("no other program is ahead of it now",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("BLK15", "only one thread", lambda: unwell(facts=scheduled("bfq", idle=1, none=95), rates=BESIDE)),
    Case(
        "BLK15", "the usual priority", lambda: unwell(facts=scheduled("bfq", best_effort_4=96), rates=BESIDE)
    ),
    Case("BLK15", "no scheduler", lambda: unwell(facts=scheduled("none", idle=96), rates=BESIDE)),
    Case(
        "BLK15",
        "mq-deadline before 5.14",
        lambda: unwell(
            facts={**scheduled("mq-deadline", idle=96), "kernel.release": "5.10.0-28-amd64"}, rates=BESIDE
        ),
    ),
    Case(
        "BLK15",
        "a group with a small weight",
        lambda: unwell(facts={**scheduled("bfq", none=96), **weighted("io.bfq.weight", 10)}, rates=BESIDE),
        (DISK,),
        ("io.bfq.weight 10 of the control group mysql.service",),
        steps=("set-property --runtime mysql.service IOWeight=100",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK15",
        "a small weight where I/O is shared by cost",
        lambda: unwell(
            facts={**weighted("io.weight", 10), "servers.1322.cgroup.io_cost_devices": ["259:4"]},
            rates=BESIDE,
        ),
        (DISK,),
        ("io.weight 10",),
    ),
    Case(
        "BLK15",
        "a small weight that nobody reads",
        lambda: unwell(facts=weighted("io.weight", 10), rates=BESIDE),
    ),
    Case(
        "BLK15",
        "an older agent",
        lambda: unwell(
            facts={"servers.1322.io_priorities": None, "servers.1322.cgroup.io_weights": None}, rates=BESIDE
        ),
        missing="the server's I/O priority",
    ),
    Case(
        "BLK16",
        "four requests",
        lambda: unwell(
            facts={f"{QUEUE}.nr_requests": 4, f"{QUEUE}.hardware_queues": 1},
            rates={**WAITS, f"disk.weighted_io_ms.{DISK}": 3_600.0},
        ),
        (DISK,),
        ("nvme1n1 may have 4 requests in flight (nr_requests 4) and has 3.6; tasks wait for I/O 40%",),
        sets=({f"volume.nr_requests@{DISK}": 128},),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK16",
        "threads wait for a tag",
        lambda: unwell(
            facts={f"{QUEUE}.nr_requests": 8, f"{QUEUE}.scheduler": "mq-deadline"},
            rates={f"disk.weighted_io_ms.{DISK}": 7_000.0},
            gauges={"threads.waiting.ib_io_rd-1/blk_mq_get_tag": 2.0},
        ),
        (DISK,),
    ),
    Case(
        "BLK16",
        "four in each of eight queues",
        lambda: unwell(
            facts={f"{QUEUE}.nr_requests": 4},
            rates={**WAITS, f"disk.weighted_io_ms.{DISK}": 3_600.0},
        ),
    ),
    Case(
        "BLK16",
        "a short queue that is not full",
        lambda: unwell(facts={f"{QUEUE}.nr_requests": 4, f"{QUEUE}.hardware_queues": 1}, rates=WAITS),
    ),
    Case(
        "BLK16",
        "a full one that nobody waits for",
        lambda: unwell(
            facts={f"{QUEUE}.nr_requests": 4, f"{QUEUE}.hardware_queues": 1},
            rates={f"disk.weighted_io_ms.{DISK}": 3_600.0},
        ),
    ),
    Case(
        "BLK16",
        "a drive without command queueing",
        lambda: unwell(
            facts={f"block_devices.{DISK}.queue_depth": 1, f"block_devices.{DISK}.driver": "sd"},
            rates={**WAITS, f"disk.weighted_io_ms.{DISK}": 12_000.0},
        ),
        (DISK,),
        ("may have 1 request in flight (queue_depth 1) and has 12.0",),
        steps=("/sys/block/nvme1n1/device/queue_depth",),
    ),
    Case("BLK16", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not sampled"),
    Case(
        "BLK17",
        "encryption that holds writes",
        lambda: unwell(facts=CRYPT, rates={**served("dm-0", 800.0, 6.0), **served(DISK, 800.0, 0.1)}),
        ("dm-0",),
        (
            "data (dm-0), encryption (dm-crypt), takes 6.0 ms per write, of which the device beneath takes 0.1 ms",
        ),
        steps=("dmsetup table data", "no_write_workqueue"),
        severity=Severity.COST,
    ),
    Case(
        "BLK17",
        "a delay that everybody waits for",
        lambda: unwell(
            facts=mapped(dm(0, "slow", "", DISK)),
            rates={**WAITS, **served("dm-0", 800.0, 6.0), **served(DISK, 800.0, 0.1)},
        ),
        ("dm-0",),
        ("slow (dm-0), a mapped device, takes 6.0 ms",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK17",
        "a flush beneath counts as a write above",
        lambda: unwell(
            facts=CRYPT,
            rates={
                **served("dm-0", 800.0, 3.2),
                **served(DISK, 800.0, 0.1),
                f"disk.flushes.{DISK}": 300.0,
                f"disk.flush_ms.{DISK}": 900.0,
            },
        ),
    ),
    Case(
        "BLK17",
        "the device itself is slow",
        lambda: unwell(facts=CRYPT, rates={**served("dm-0", 800.0, 6.0), **served(DISK, 800.0, 5.0)}),
    ),
    Case(
        "BLK17",
        "a few microseconds",
        lambda: unwell(facts=CRYPT, rates={**served("dm-0", 800.0, 0.3), **served(DISK, 800.0, 0.1)}),
    ),
    Case(
        "BLK17",
        "a pool of thin volumes, and not the volume in it",
        lambda: unwell(
            facts=lvm("-tpool"),
            rates={**served("dm-0", 400.0, 9.0), **served("dm-1", 400.0, 8.9), **served(DISK, 400.0, 0.1)},
        ),
        ("dm-1",),
        ("vg-x (dm-1), a pool of thin volumes, takes 8.9 ms",),
    ),
    Case("BLK17", "no layer", unwell),
    Case(
        "BLK17",
        "two encrypted members of an array",
        lambda: unwell(
            facts=CRYPTS,
            rates={
                **served("dm-0", 800.0, 6.0),
                **served("dm-1", 800.0, 7.0),
                **served(DISK, 800.0, 0.1),
                **served("sda", 800.0, 0.1),
                **served("md0", 800.0, 7.1),
            },
        ),
        ("dm-1",),
        ("data1 (dm-1), encryption (dm-crypt), takes 7.0 ms", "; so does data0 (dm-0); tasks wait"),
    ),
    Case(
        "BLK17",
        "a kernel that does not count waits for I/O",
        lambda: unwell(
            facts=CRYPT,
            rates={**served("dm-0", 800.0, 6.0), **served(DISK, 800.0, 0.1)},
            without=["psi"],
        ),
        ("dm-0",),
        ("; how much tasks wait for I/O is unknown.",),
        severity=Severity.COST,
    ),
    Case(
        "BLK17",
        "a replicated device that names no member",
        lambda: unwell(
            facts=mapped(layer("drbd0")),
            rates={**WAITS, **served("drbd0", 400.0, 9.0), **served(DISK, 400.0, 0.05)},
        ),
        ("drbd0",),
        (
            "drbd0, a replicated device (DRBD), takes 9.0 ms per write, of which the slowest disk takes 0.05 ms",
        ),
        steps=("drbdadm status", "protocol C"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK17",
        "a cache in writeback whose slow device is copied to later",
        lambda: unwell(
            facts=BCACHE,
            rates={
                **WAITS,
                **served("bcache0", 400.0, 9.0),
                **served(DISK, 450.0, 0.1),
                **served("sdz", 150.0, 40.0),
            },
        ),
        ("bcache0",),
        (
            "bcache0, a cached device (bcache), takes 9.0 ms per write, of which the device beneath takes 0.1 ms",
        ),
        steps=("cache_mode",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK17",
        "writes that go past the cache",
        lambda: unwell(
            facts=BCACHE,
            rates={**served("bcache0", 400.0, 9.0), **served(DISK, 40.0, 0.1), **served("sdz", 360.0, 9.9)},
        ),
    ),
    Case(
        "BLK17",
        "an array that holds writes",
        lambda: unwell(
            facts=mapped({**layer("md7", DISK), "kind": "md"}),
            rates={**served("md7", 400.0, 9.0), **served(DISK, 400.0, 0.1)},
        ),
        ("md7",),
        ("md7, an array, takes 9.0 ms per write, of which the device beneath takes 0.1 ms",),
    ),
    Case(
        "BLK17",
        "a file as a device",
        lambda: unwell(
            facts=mapped({**layer("loop7"), "kind": "loop", "loop": {"backing_file": "/srv/data.img"}}),
            rates={**served("loop7", 400.0, 9.0), **served("nvme0n1", 400.0, 0.1)},
        ),
        ("loop7",),
        ("loop7, a file as a device (loop), takes 9.0 ms per write",),
    ),
    Case(
        "BLK17",
        "a cache that is no snapshot",
        lambda: unwell(
            facts=CACHED,
            rates={
                **WAITS,
                **served("dm-0", 400.0, 9.0),
                **served("dm-1", 400.0, 0.3),
                **served("dm-2", 400.0, 0.1),
            },
        ),
        ("dm-0",),
        ("vg-data (dm-0), a cached volume (dm-cache, dm-writecache), takes 9.0 ms per write",),
        steps=("dmsetup table vg-data", "cache_mode"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK18",
        "a cache's slow device is not a snapshot's origin",
        lambda: unwell(
            facts=CACHED,
            rates={**served("dm-0", 900.0, 1.0), **served("dm-1", 900.0, 0.2), **served("dm-3", 500.0, 0.3)},
        ),
    ),
    *(
        Case(
            "BLK17",
            f"a layer is called what it is: {what}",
            held(facts, beneath),
            ("dm-0",),
            (f"(dm-0), {what}, takes 9.0 ms per write",),
        )
        for what, facts, beneath in (
            ("a thin volume", lvm("-tpool"), "dm-1"),
            ("a deduplicated volume (VDO)", lvm("-vpool"), "dm-1"),
            ("the origin of a snapshot", lvm("-real"), "dm-1"),
            ("a logical volume", lvm(""), "dm-1"),
            ("verification (dm-verity)", mapped(dm(0, "data", "CRYPT-VERITY-0a1b-data", DISK)), DISK),
            ("checksums (dm-integrity)", mapped(dm(0, "data", "CRYPT-INTEGRITY-0a1b-data", DISK)), DISK),
            (
                "several paths to a volume (multipath)",
                mapped(dm(0, "mpatha-part1", "part1-mpath-3600508b4", DISK)),
                DISK,
            ),
        )
    ),
    Case(
        "BLK18",
        "a backup's snapshot",
        lambda: unwell(
            facts=SNAPSHOT,
            rates={**served("dm-0", 900.0, 1.0), **served("dm-1", 900.0, 0.2), **served("dm-3", 500.0, 0.3)},
        ),
        ("dm-0",),
        (
            "vg-data (dm-0) has a snapshot: 500 writes/s copy old blocks there, beside 900 writes/s of its own",
        ),
        steps=("dmsetup status vg-data", "Remove the snapshot"),
        severity=Severity.COST,
    ),
    Case(
        "BLK18",
        "a snapshot that has all blocks by now",
        lambda: unwell(facts=SNAPSHOT, rates={**served("dm-0", 900.0, 0.2), **served("dm-3", 1.0, 0.3)}),
    ),
    Case("BLK18", "no snapshot", lambda: unwell(facts=CRYPT, rates=served("dm-0", 900.0, 0.2))),
    Case(
        "BLK19",
        "one path of two",
        lambda: unwell(
            facts=PATHS, rates={**WAITS, **served("sda", 200.0, 0.05), **served("sdb", 200.0, 17.9)}
        ),
        ("sdb",),
        ("sdb, a path of mpatha, takes 17.9 ms per write; its other paths take at most 0.05 ms",),
        steps=("multipath -ll mpatha", "multipathd fail path sdb"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK19",
        "one member of a mirror",
        lambda: unwell(facts=MIRROR, rates={**served("sda", 200.0, 0.2), **served("sdb", 200.0, 8.0)}),
        ("sdb",),
        ("sdb, a member of md0, takes 8.0 ms per write; its other members take at most 0.2 ms",),
        steps=("smartctl -a /dev/sdb", "mdadm /dev/md0"),
        severity=Severity.COST,
    ),
    Case(
        "BLK19",
        "both are slow",
        lambda: unwell(
            facts=PATHS, rates={**WAITS, **served("sda", 200.0, 9.0), **served("sdb", 200.0, 17.9)}
        ),
    ),
    Case(
        "BLK19",
        "a path in reserve",
        lambda: unwell(facts=PATHS, rates={**WAITS, **served("sda", 400.0, 0.1), **served("sdb", 0.5, 30.0)}),
    ),
    Case(
        "BLK19",
        "one path of an NVMe drive",
        lambda: unwell(
            rates={**WAITS, **served("nvme1c0n1", 200.0, 0.1), **served("nvme1c1n1", 200.0, 8.0)},
        ),
        ("nvme1c1n1",),
        ("nvme1c1n1, a path of nvme1n1, takes 8.0 ms per write; its other paths take at most 0.1 ms",),
        steps=("nvme list-subsys /dev/nvme1n1", "iopolicy"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK19",
        "paths of an NVMe drive that are alike",
        lambda: unwell(
            rates={**WAITS, **served("nvme1c0n1", 200.0, 0.1), **served("nvme1c1n1", 150.0, 0.2)},
        ),
    ),
    Case("BLK19", "no layer", unwell),
    Case(
        "BLK21",
        "a volume over the network",
        lambda: unwell(facts=mapped(layer("rbd0")), rates={**WAITS, **served("rbd0", 400.0, 9.0)}),
        ("rbd0",),
        ("rbd0 takes 9.0 ms per write, against 1 ms", "tasks wait for I/O 40% of the time"),
        steps=("headrace latencies", "smartctl"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK21",
        "as fast as usual",
        lambda: unwell(facts=mapped(layer("rbd0")), rates={**WAITS, **served("rbd0", 400.0, 1.5)}),
    ),
    Case(
        "BLK21",
        "slow, and nobody waits",
        lambda: unwell(facts=mapped(layer("rbd0")), rates=served("rbd0", 400.0, 9.0)),
    ),
    Case(
        "BLK21",
        "a queue explains it",
        lambda: unwell(
            facts=mapped(layer("rbd0")),
            rates={**WAITS, **served("rbd0", 4_000.0, 9.0), "disk.weighted_io_ms.rbd0": 36_000.0},
        ),
    ),
    Case(
        "BLK21",
        "a layer that has its own finding",
        lambda: unwell(
            facts=mapped(layer("drbd0")),
            rates={**WAITS, **served("drbd0", 400.0, 9.0), **served(DISK, 400.0, 0.05)},
        ),
    ),
    Case(
        "BLK21",
        "a path that has its own finding",
        lambda: unwell(
            facts=PATHS, rates={**WAITS, **served("sda", 200.0, 0.05), **served("sdb", 200.0, 17.9)}
        ),
    ),
    Case(
        "BLK21",
        "a spindle seeks",
        lambda: unwell(
            facts={f"block_devices.{DISK}.driver": "sd", f"block_devices.{DISK}.rotational": True},
            rates={**WAITS, **served(DISK, 60.0, 70.0)},
        ),
    ),
]
