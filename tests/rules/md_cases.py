"""Cases of the rules about software RAID."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

MEMBERS = ("sda", "sdb", "sdc", "sdd")
QUEUE = {"scheduler": "none", "iostats": True}


def device(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "disk",
        "rotational": False,
        "driver": "sd",
        "queue": QUEUE,
        "partitions": [],
        "slaves": [],
        "size_bytes": 1 << 40,
        **changes,
    }


def array(level: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "md0",
        "level": level,
        "raid_disks": 4,
        "degraded": 0,
        "chunk_bytes": 524_288,
        "members": [{"name": n, "slot": i, "state": "in_sync"} for i, n in enumerate(MEMBERS)],
        "bitmap": {"location": "none", "chunk_bytes": None},
        "sync_action": "idle",
        "stripe_cache_size": 256,
        "group_thread_cnt": 0,
        **changes,
    }


def on(
    level: str,
    *,
    writes: float = 1_500.0,
    kernel: str = "6.1.0-18-amd64",
    options: str = "sunit=1024,swidth=3072",
    without: tuple[str, ...] = (),
    waited_us: float = 4_000.0,
    available: float = 14e9,
    driver: str = "sd",
    **changes: Any,
) -> Callable[[], Evidence]:
    """The host with its data on an array of four."""
    facts: dict[str, Any] = {
        "kernel.release": kernel,
        "block_devices": [
            *(device(name, driver=driver) for name in MEMBERS),
            device("md0", kind="md", driver=None, slaves=list(MEMBERS)),
        ],
        "md_arrays": [array(level, **changes)],
        "file_systems./var/lib/mysql.block_device": "md0",
        "file_systems./var/lib/mysql.super_options": ["rw", *options.split(",")],
    }
    rates = {f"disk.{metric}.md0": 0.0 for metric in ("reads", "flushes", "io_ms", "weighted_io_ms")}
    rates |= {
        f"disk.{metric}.md0": 0.0 for metric in ("read_ms", "write_ms", "sectors_read", "sectors_written")
    }
    rates |= {"disk.writes.md0": writes, "psi.some_total_us.io": waited_us}
    return lambda: unwell(
        facts=facts, rates=rates, gauges={"memory.MemAvailable.": available}, without=without
    )


CASES = [
    Case(
        "RAID01",
        "RAID5",
        on("raid5"),
        ("md0",),
        ("md0 is a raid5 of 4 members and takes 1,500 writes/s: up to 6,000 requests/s",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "RAID01",
        "RAID5 that is waited for",
        on("raid5", waited_us=200_000.0),
        ("md0",),
        severity=Severity.COST,
    ),
    Case(
        "RAID01", "nobody counts the waits", on("raid5", without=("psi",)), ("md0",), severity=Severity.COST
    ),
    Case("RAID01", "RAID10", on("raid10")),
    Case("RAID01", "few writes", on("raid6", writes=20.0)),
    Case("RAID01", "no array", unwell),
    Case("RAID01", "not sampled", on("raid5", without=("disk",)), missing="disk.writes was not sampled"),
    Case("RAID01", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case(
        "RAID02",
        "the default",
        on("raid5"),
        ("md0",),
        ("stripe_cache_size of md0 is 256",),
        sets=({"host.md_stripe_cache_size@md0": 4096},),
    ),
    Case("RAID02", "no memory for more", on("raid5", available=1e9)),
    Case("RAID02", "a larger one", on("raid5", stripe_cache_size=4096)),
    Case("RAID02", "no parity", on("raid10", stripe_cache_size=None)),
    Case("RAID02", "not sampled", on("raid5", without=("disk",)), missing="disk.writes was not sampled"),
    Case("RAID03", "none", on("raid5"), ("md0",), ("group_thread_cnt of md0 is 0 at 1,500 writes/s",)),
    Case("RAID03", "four", on("raid5", group_thread_cnt=4)),
    Case("RAID03", "a kernel without them", on("raid5", kernel="3.10.0-1160.el7.x86_64")),
    Case("RAID03", "not sampled", on("raid5", without=("disk",)), missing="disk.writes was not sampled"),
    Case(
        "RAID04",
        "four KiB",
        on("raid0", chunk_bytes=4096),
        ("md0",),
        ("chunks of md0 are 4 KiB, pages 16 KiB",),
    ),
    Case("RAID04", "no multiple", on("raid0", chunk_bytes=20_480), ("md0",), ("20 KiB",)),
    Case("RAID04", "512 KiB", on("raid0")),
    Case("RAID04", "a mirror has no chunks", on("raid1", chunk_bytes=0)),
    Case("RAID04", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case(
        "RAID05",
        "a bitmap",
        on("raid10", bitmap={"location": "+8", "chunk_bytes": 64 << 20}),
        ("md0",),
        ("md0 keeps a bitmap at +8 with 64 MiB per bit",),
    ),
    Case("RAID05", "coarse already", on("raid10", bitmap={"location": "+8", "chunk_bytes": 1 << 30})),
    Case("RAID05", "of a cluster", on("raid1", bitmap={"location": "clustered", "chunk_bytes": 64 << 20})),
    Case("RAID05", "none", on("raid10")),
    Case("RAID05", "few writes", on("raid10", writes=3.0, bitmap={"location": "+8", "chunk_bytes": None})),
    Case("RAID05", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case(
        "RAID06",
        "a check",
        on("raid10", sync_action="check", sync_done_bytes=25, sync_total_bytes=100),
        ("md0",),
        ("md0 is in check, 25% done",),
    ),
    Case("RAID06", "idle", on("raid10")),
    Case("RAID06", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case("RAID07", "one lost", on("raid10", degraded=1), ("md0",), ("md0 (raid10) lacks 1 of 4 members",)),
    Case("RAID07", "whole", on("raid10")),
    Case("RAID07", "no redundancy", on("raid0", degraded=None)),
    Case("RAID07", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case(
        "RAID08",
        "another array's",
        on("raid5", options="sunit=128,swidth=256"),
        ("/var/lib/mysql",),
        ("a stripe of 64 KiB by 128 KiB; md0 has 512 KiB by 1.5 MiB",),
    ),
    Case("RAID08", "none", on("raid5", options="noquota"), ("/var/lib/mysql",), ("0 bytes by 0 bytes",)),
    Case("RAID08", "its own", on("raid5")),
    Case("RAID08", "a mirror", on("raid1", chunk_bytes=0, options="noquota")),
    Case("RAID08", "unknown", lambda: unwell(without=["md_arrays"]), missing="md arrays"),
    Case(
        "RAID09",
        "four on 3.13",
        on("raid0", kernel="3.13.0-74-generic"),
        ("md0",),
        ("md0 stripes 4 flash devices on kernel 3.13.0-74-generic", "8 CPUs; it does 1,500 requests/s"),
    ),
    Case(
        "RAID09",
        "NVMe had queues of its own",
        on("raid0", kernel="3.13.0-74-generic", driver="nvme"),
    ),
    Case("RAID09", "a newer kernel", on("raid0", kernel="3.14.0")),
    Case("RAID09", "no array", lambda: unwell(facts={"kernel.release": "3.13.0-74-generic"})),
    Case(
        "RAID09",
        "no CPUs",
        on("raid0", kernel="3.13.0-74-generic", without=("cpu",)),
        missing="CPUs were not sampled",
    ),
]
