"""Knobs of the volume under test: how it is made, mounted, and how its queue is set."""

from __future__ import annotations

from headrace.knobs.knob import Cost, Durability, Kind, Knob

_MD = "mdadm(8), md(4)"
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
        "What the volume is built on: directory, loop, logged, zram, a real device listed in volume.devices, or "
        "several of them as md, lvm, dm-stripe or btrfs-raid.",
        "headrace: Volumes",
    ),
    Knob(
        "volume.raid_level",
        Kind.CHOICE,
        Cost.REBUILD,
        "How several devices become one: 0 stripes, 1 mirrors, 10 both, 5 and 6 stripes with one or two parities.",
        _MD,
        allowed=("0", "1", "10", "5", "6"),
    ),
    Knob(
        "volume.raid_chunk",
        Kind.SIZE,
        Cost.REBUILD,
        "What one device holds before the next device's turn: a power of two, at least 4K; for every level "
        "but 1.",
        _MD,
        unit="bytes",
        low=4096,
        high=64 * 2**20,
        formerly="mdadm's default was 64K until version 3.1, and has been 512K since",
    ),
    Knob(
        "volume.raid_devices",
        Kind.INTEGER,
        Cost.REBUILD,
        "How many of volume.devices, or of loops, become one: the first ones; all of them if not set.",
        _MD,
        low=2,
        high=384,
    ),
    Knob(
        "volume.raid_bitmap",
        Kind.CHOICE,
        Cost.REBUILD,
        "Whether md records where it writes, so that it resyncs only that after a crash; internal unless "
        "set.",
        _MD,
        allowed=("none", "internal"),
    ),
    Knob(
        "volume.stripe_cache",
        Kind.INTEGER,
        Cost.REBUILD,
        "Stripes that a RAID 5 or 6 keeps in memory; each costs a page per member.",
        "Linux Documentation/admin-guide/md.rst: stripe_cache_size",
        unit="stripes",
        low=17,
        high=32768,
    ),
    Knob(
        "volume.initial_sync",
        Kind.CHOICE,
        Cost.REBUILD,
        "Whether a new array is assumed to be clean, or the trial waits for its first sync.",
        "mdadm(8): --assume-clean",
        allowed=("assume-clean", "wait"),
    ),
    Knob(
        "volume.filesystem_size",
        Kind.SIZE,
        Cost.REBUILD,
        "The size of the file system; the whole device if not set.",
        "mkfs.xfs(8): -d size; mke2fs(8): fs-size; mkfs.btrfs(8): -b",
        unit="bytes",
        low=16 * 2**20,
    ),
    Knob(
        "volume.filesystem",
        Kind.CHOICE,
        Cost.REBUILD,
        "The file system that is created on the device for every trial.",
        "Linux Documentation/filesystems",
        allowed=("xfs", "ext4", "btrfs"),
    ),
    Knob(
        "volume.mkfs_options",
        Kind.LIST,
        Cost.REBUILD,
        "Options for mkfs, one string per word: block size, stripe geometry, features.",
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
        weak_reason="synced data may be lost, or stale content appear in files, after a power cut",
    ),
    _queue(
        "scheduler",
        Kind.CHOICE,
        "The I/O scheduler; fast devices need none.",
        allowed=("none", "mq-deadline", "kyber", "bfq"),
        source="Linux Documentation/block/switching-sched.rst",
        formerly="noop is now none, deadline is mq-deadline; cfq is gone, bfq continues its idea",
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
    _queue("add_random", Kind.INTEGER, "Whether requests feed the entropy pool.", low=0, high=1),
    _queue(
        "discard_max_bytes", Kind.INTEGER, "The largest discard sent in one request.", unit="bytes", low=0
    ),
    _queue(
        "wbt_lat_usec",
        Kind.INTEGER,
        "Read latency that write-back throttling protects; 0 turns it off, -1 gives the default.",
        unit="us",
        low=-1,
    ),
    _queue(
        "io_poll",
        Kind.INTEGER,
        "Whether a reader may poll for its completion. Linux 5.16 and later ignore writes: polled queues "
        "are an option of the driver (nvme.poll_queues).",
        low=0,
        high=1,
    ),
    _queue(
        "rotational",
        Kind.INTEGER,
        "Whether the kernel treats the device as a disk that seeks.",
        low=0,
        high=1,
    ),
    Knob(
        "volume.write_cache",
        Kind.CHOICE,
        Cost.DYNAMIC,
        "What the kernel assumes about the device's cache: with `write through` it sends no flushes.",
        _QUEUE,
        allowed=("write back", "write through"),
        durability=Durability.BY_VALUE,
        weak_values="write through",
        weak_reason="synced data may be lost in a power cut unless every cache survives one",
        location="/sys/block/{device}/queue/write_cache",
        formerly="the mount option nobarrier, which XFS removed",
        never="a flush that was not sent cannot be undone: use a device whose cache survives a power cut",
    ),
)
