"""Knobs of the volume under test: how it is made, mounted, and how its queue is set."""

from __future__ import annotations

from headrace.knobs.knob import Cost, Durability, Kind, Knob

_QUEUE = "Linux Documentation/ABI/stable/sysfs-block"


def _queue(
    name: str,
    kind: Kind,
    doc: str,
    *,
    source: str = _QUEUE,
    unit: str = "",
    allowed: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    formerly: str = "",
) -> Knob:
    return Knob(
        f"volume.{name}",
        kind,
        Cost.DYNAMIC,
        doc,
        source,
        unit=unit,
        allowed=allowed,
        low=low,
        high=high,
        location=f"/sys/block/{{device}}/queue/{name}",
        formerly=formerly,
    )


KNOBS = (
    Knob(
        "volume.device",
        Kind.TEXT,
        Cost.REBUILD,
        "What the volume stands on: directory, loop, zram, or a real device listed in volume.devices.",
        "headrace: Volumes",
    ),
    Knob(
        "volume.filesystem",
        Kind.CHOICE,
        Cost.REBUILD,
        "The file system that is made on the device for every trial.",
        "Linux Documentation/filesystems",
        allowed=("xfs", "ext4", "btrfs"),
    ),
    Knob(
        "volume.mkfs_options",
        Kind.LIST,
        Cost.REBUILD,
        "Options for mkfs, one string a word: block size, stripe geometry, features.",
        "mkfs.xfs(8), mke2fs(8), mkfs.btrfs(8)",
        durability=Durability.BY_VALUE,
        weak_values=r".*\^has_journal.*",
        weak_reason="without a journal ext4 may need a repair after a crash, and can lose files",
    ),
    Knob(
        "volume.mount_options",
        Kind.LIST,
        Cost.REMOUNT,
        "Mount options, such as noatime or data=ordered.",
        "mount(8); Linux Documentation/admin-guide/{xfs,ext4}.rst, filesystems/btrfs.rst",
        durability=Durability.BY_VALUE,
        weak_values=r"(.*,)?(nobarrier|barrier=0|data=writeback|journal_async_commit|norecovery|noload)(,.*)?",
        weak_reason="what was synced may be lost, or stale content appear in files, after a power cut",
    ),
    _queue(
        "scheduler",
        Kind.CHOICE,
        "The I/O scheduler; fast devices need none.",
        allowed=("none", "mq-deadline", "kyber", "bfq"),
        source="Linux Documentation/block/switching-sched.rst",
        formerly="noop is now none, deadline is mq-deadline; cfq is gone, bfq is what remains of its idea",
    ),
    _queue(
        "nr_requests",
        Kind.INTEGER,
        "Requests a queue may hold; without a scheduler the device limits it.",
        low=4,
    ),
    _queue(
        "rq_affinity",
        Kind.INTEGER,
        "Where a request completes: 0 any CPU, 1 a CPU of the submitter's group, 2 the submitter's own.",
        low=0,
        high=2,
    ),
    _queue("read_ahead_kb", Kind.INTEGER, "Read-ahead of buffered reads.", unit="KiB", low=0),
    _queue(
        "nomerges", Kind.INTEGER, "Merging of requests: 0 all, 1 simple ones only, 2 none.", low=0, high=2
    ),
    _queue("max_sectors_kb", Kind.INTEGER, "The largest request the kernel sends.", unit="KiB", low=4),
    _queue("iostats", Kind.INTEGER, "Whether the device's requests are counted.", low=0, high=1),
    _queue("add_random", Kind.INTEGER, "Whether requests feed the pool of random numbers.", low=0, high=1),
    _queue("discard_max_bytes", Kind.INTEGER, "The largest discard sent at once.", unit="bytes", low=0),
    _queue(
        "wbt_lat_usec",
        Kind.INTEGER,
        "Read latency that write-back throttling protects; 0 turns it off, -1 gives the default.",
        unit="us",
        low=-1,
    ),
    _queue("io_poll", Kind.INTEGER, "Whether a reader may poll for its completion instead.", low=0, high=1),
    _queue(
        "rotational",
        Kind.INTEGER,
        "Whether the kernel takes the device for a disk that seeks.",
        low=0,
        high=1,
    ),
    Knob(
        "volume.write_cache",
        Kind.CHOICE,
        Cost.DYNAMIC,
        "What the kernel believes of the device's cache: with `write through` it sends no flushes.",
        _QUEUE,
        allowed=("write back", "write through"),
        durability=Durability.BY_VALUE,
        weak_values="write through",
        weak_reason="what was synced may be lost in a power cut unless every cache survives one",
        location="/sys/block/{device}/queue/write_cache",
        formerly="the mount option nobarrier, which XFS has no more",
        never="a flush that was not sent cannot be undone: use a device whose cache survives a power cut",
    ),
)
