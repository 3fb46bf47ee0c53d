"""Rules about software RAID under the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.host.devices import SECTOR_BYTES
from headrace.hunt.resources import PRESSURE_SEEN
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import MIB, Evidence, NotEnough, number, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Below it parity, bitmaps and stripe caches cost nothing noticeable.
MANY_WRITES_S = 200.0
#: A bitmap with this many bytes for each bit is coarse already.
COARSE_BYTES = 512 * MIB
#: The default of stripe_cache_size: md.rst.
STRIPE_CACHE_DEFAULT = 256
#: The next step to try: 16 MiB of memory per member, an eighth of what the kernel allows.
STRIPE_CACHE_TO_TRY = 4_096
#: Worker threads per NUMA node to start with.
GROUP_THREADS_TO_TRY = 4
#: With fewer cores than this, the lock in front of flash is not the limit.
FEW_CORES = 4
#: One page of InnoDB: a chunk below it sends every page to two members.
PAGE_BYTES = 16_384

_MD = "Linux Documentation/admin-guide/md.rst"
_PARITY = ("raid4", "raid5", "raid6")


def _arrays(evidence: Evidence) -> list[Mapping[str, Any]]:
    found = evidence.raw.get("md_arrays")
    if found is None:
        raise NotEnough("the host does not report its md arrays")
    return list(found)


def _under_data(evidence: Evidence) -> list[Mapping[str, Any]]:
    """The arrays under the data directory; empty on a host without arrays."""
    arrays = _arrays(evidence)
    if not arrays:
        return []
    beneath = evidence.beneath(evidence.data_directory)
    return [array for array in arrays if array["name"] in beneath]


def _writes(evidence: Evidence, name: str) -> float:
    return evidence.rate("disk", "writes", name)


def _members(array: Mapping[str, Any]) -> int:
    return int(array.get("raid_disks") or len(array.get("members") or ()))


@rule(
    "RAID01",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux md(4), RAID4 and RAID5",
    refute="On a RAID10 of the same members, writes per second and their p99 are equivalent.",
)
def parity_under_data(evidence: Evidence) -> Iterator[Match]:
    """The server's data is on a parity array with many writes.

    InnoDB writes 16 KiB pages at random. Each is far smaller than a stripe, so the array reads old data and old
    parity, computes, and writes both: four requests for one, six with RAID6.
    """
    for array in _under_data(evidence):
        writes = _writes(evidence, array["name"]) if array.get("level") in _PARITY else 0.0
        if writes < MANY_WRITES_S:
            continue
        requests = 6 if array["level"] == "raid6" else 4
        yield Match(
            str(array["name"]),
            f"{array['name']} is a {array['level']} of {_members(array)} members and takes {writes:,.0f} "
            f"writes/s: up to {requests * writes:,.0f} requests/s to its members.",
            (
                number("level", array.get("level")),
                number("members", _members(array)),
                number("writes/s", writes, ",.0f"),
                number("chunk", size(array.get("chunk_bytes") or 0)),
            ),
            (
                Remedy(
                    steps=(
                        "Build the volume as RAID10 on the same members, and measure both under one load.",
                    )
                ),
            ),
            _unless_nobody_waits(evidence),
        )


def _unless_nobody_waits(evidence: Evidence) -> Severity | None:
    """Housekeeping where the kernel counts waits for I/O and saw hardly any; else the rule's own."""
    waited = evidence.window.rate("psi", "some_total_us", "io")
    return Severity.HOUSEKEEPING if waited is not None and waited / 1e6 < PRESSURE_SEEN else None


@rule(
    "RAID02",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source=f"{_MD}, stripe_cache_size; md(4)",
    refute="With a stripe cache of 4096, writes per second and their p99 are equivalent.",
)
def small_stripe_cache(evidence: Evidence) -> Iterator[Match]:
    """A parity array uses the default stripe cache.

    Parity is computed in the stripe cache. With few entries, writes wait for a free one, and adjacent writes are
    merged into full stripes less often. Each entry costs a page per member.
    """
    for array in _arrays(evidence):
        entries = array.get("stripe_cache_size")
        if array.get("level") not in _PARITY or entries is None or entries > STRIPE_CACHE_DEFAULT:
            continue
        writes = _writes(evidence, array["name"])
        if writes < MANY_WRITES_S:
            continue
        each = 4_096 * max(_members(array), 1)
        room = entries + sizes.OF_SPARE * sizes.spare_bytes(evidence) / each
        wanted = sizes.power_of_two(STRIPE_CACHE_TO_TRY, room)
        if wanted <= entries:
            continue
        yield Match(
            str(array["name"]),
            f"stripe_cache_size of {array['name']} is {entries} at {writes:,.0f} writes/s.",
            (
                number("stripe_cache_size", entries),
                number("writes/s", writes, ",.0f"),
                number(f"memory for {wanted}", size(wanted * each)),
            ),
            (Remedy({f"host.md_stripe_cache_size@{array['name']}": wanted}),),
        )


@rule(
    "RAID03",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux drivers/md/raid5.c, group_thread_cnt (since 3.12)",
    refute="With four worker threads, writes per second and their p99 are equivalent.",
)
def one_parity_thread(evidence: Evidence) -> Iterator[Match]:
    """One kernel thread computes the parity of a whole array.

    On flash, that thread's core saturates before the members do. More workers share the stripes.
    """
    if not evidence.kernel_at_least(3, 12):
        return
    for array in _arrays(evidence):
        if array.get("level") not in _PARITY or array.get("group_thread_cnt") != 0:
            continue
        writes = _writes(evidence, array["name"])
        record = evidence.facts.block_device(str(array["name"])) or {}
        if writes < MANY_WRITES_S or record.get("rotational"):
            continue
        yield Match(
            str(array["name"]),
            f"group_thread_cnt of {array['name']} is 0 at {writes:,.0f} writes/s to {_members(array)} members.",
            (
                number("group_thread_cnt", 0),
                number("writes/s", writes, ",.0f"),
                number("level", array["level"]),
            ),
            (Remedy({f"host.md_group_thread_cnt@{array['name']}": GROUP_THREADS_TO_TRY}),),
        )


@rule(
    "RAID04",
    severity=Severity.ADVICE,
    confidence=Confidence.HIGH,
    source=f"{_MD}, chunk_size; mdadm(8), --chunk (default 512 KiB)",
    refute="On an array with chunks of 512 KiB, requests to the members and p99 are equivalent.",
)
def chunk_smaller_than_page(evidence: Evidence) -> Iterator[Match]:
    """An InnoDB page does not fit into one chunk of the array.

    Every page is then read from and written to two or more members, so the array does half the requests that its
    members could.
    """
    page = (
        int(evidence.number("innodb_page_size")) if evidence.has_variable("innodb_page_size") else PAGE_BYTES
    )
    for array in _under_data(evidence):
        chunk = array.get("chunk_bytes") or 0
        if chunk == 0 or (chunk >= page and chunk % page == 0):
            continue
        yield Match(
            str(array["name"]),
            f"chunks of {array['name']} are {size(chunk)}, pages {size(page)}.",
            (
                number("chunk", size(chunk)),
                number("innodb_page_size", size(page)),
                number("level", array["level"]),
            ),
            (Remedy(steps=("Build the array with mdadm --chunk=512 (KiB), and copy the data.",)),),
        )


@rule(
    "RAID05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux md(4), Bitmap write-intent logging; mdadm(8), --bitmap-chunk; "
    "Documentation/admin-guide/md.rst, bitmap/location",
    refute="With a coarser bitmap, writes per second and their p99 are equivalent.",
    disputed="Without a bitmap, a crash costs a full resync, during which the array is slow and less safe; "
    "with one, every first write to a region also updates the bitmap. A coarser bitmap is a compromise.",
)
def bitmap_under_writes(evidence: Evidence) -> Iterator[Match]:
    """An array with many writes keeps a write-intent bitmap.

    Before the first write to a region in a while, its bit is written to all members. Random writes touch many
    regions; a coarser bitmap has fewer.
    """
    for array in _under_data(evidence):
        bitmap: Any = array.get("bitmap") or {}
        # Nodes of a cluster share theirs.
        if bitmap.get("location") in (None, "none", "clustered"):
            continue
        chunk = bitmap.get("chunk_bytes")
        writes = _writes(evidence, array["name"])
        if writes < MANY_WRITES_S or (chunk or 0) >= COARSE_BYTES:
            continue
        name = array["name"]
        yield Match(
            str(name),
            f"{name} keeps a bitmap at {bitmap['location']} with {size(chunk) if chunk else 'unknown bytes'} "
            f"per bit, at {writes:,.0f} writes/s.",
            (
                number("bitmap", bitmap["location"]),
                number("bytes per bit", size(chunk) if chunk else "unknown"),
                number("writes/s", writes, ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        f"mdadm --grow --bitmap=none /dev/{name}; a crash before the next step means a resync",
                        f"mdadm --grow --bitmap=internal --bitmap-chunk=512M /dev/{name}",
                    ),
                    label="a coarser bitmap",
                ),
            ),
        )


@rule(
    "RAID06",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_MD}, sync_action, sync_speed_max; sysctl dev.raid.speed_limit_max",
    refute="When it has finished, throughput and p99 are unchanged.",
)
def synchronising(evidence: Evidence) -> Iterator[Match]:
    """An array is being checked or rebuilt now.

    It reads all members, and a rebuild also writes them, in addition to the server's load. Measurements taken
    meanwhile include this load. Do not stop a rebuild; a monthly check can wait until night.
    """
    for array in _arrays(evidence):
        action = array.get("sync_action")
        if action in (None, "idle", "frozen"):
            continue
        done, total = array.get("sync_done_bytes"), array.get("sync_total_bytes")
        progress = f"{100 * done / total:.0f}%" if done is not None and total else "unknown"
        steps: tuple[str, ...] = ("Wait until it has finished before you measure.",)
        if action == "check":
            steps = (*steps, f"Or stop the check: echo idle > /sys/block/{array['name']}/md/sync_action.")
        yield Match(
            str(array["name"]),
            f"{array['name']} is in {action}, {progress} done.",
            (
                number("sync_action", action),
                number("done", progress),
                number("highest speed", f"{array.get('sync_speed_max_kib_s') or 'unknown'} KiB/s"),
            ),
            (Remedy(steps=steps),),
        )


@rule(
    "RAID07",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{_MD}, degraded",
    refute="mdadm --detail shows all members active.",
)
def degraded(evidence: Evidence) -> Iterator[Match]:
    """An array has lost a member.

    The next failure may lose the data. Until the member is replaced, a parity array has to compute what it cannot
    read.
    """
    for array in _arrays(evidence):
        missing = array.get("degraded") or 0
        if missing <= 0:
            continue
        name = array["name"]
        yield Match(
            str(name),
            f"{name} ({array.get('level')}) lacks {missing} of {_members(array)} members.",
            (
                number("degraded", missing),
                number(
                    "members", " ".join(f"{m['name']}:{m.get('state')}" for m in array.get("members") or ())
                ),
            ),
            (Remedy(steps=(f"Replace the member: mdadm --detail /dev/{name}, then mdadm --add.",)),),
        )


@rule(
    "RAID08",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="Linux xfs(5) and mkfs.xfs(8), sunit and swidth; Documentation/admin-guide/xfs.rst",
    refute="On a file system made for the geometry, requests to the members and p99 are equivalent.",
)
def stripe_unknown_to_xfs(evidence: Evidence) -> Iterator[Match]:
    """XFS was created for a different geometry than the array's.

    Allocations that do not start at a stripe boundary cause requests that touch one more member. mkfs.xfs reads
    the geometry from the array: a file system that differs was created before a reshape, or copied from elsewhere.
    """
    for array in _arrays(evidence):
        chunk = array.get("chunk_bytes") or 0
        data = _data_members(array)
        mounts = [
            fs
            for fs in evidence.rows("file_systems")
            if fs.get("kind") == "xfs" and fs.get("block_device") == array["name"]
        ]
        if not chunk or not data:
            continue
        for mount in mounts:
            options = [*(mount.get("options") or ()), *(mount.get("super_options") or ())]
            unit, width = (_option(options, name) * SECTOR_BYTES for name in ("sunit", "swidth"))
            if unit == chunk and width == chunk * data:
                continue
            yield Match(
                str(mount["mount_point"]),
                f"XFS on {mount['mount_point']} assumes a stripe of {size(unit)} by {size(width)}; "
                f"{array['name']} has {size(chunk)} by {size(chunk * data)}.",
                (
                    number("sunit and swidth, bytes", f"{unit:,} and {width:,}"),
                    number("chunk and stripe of the array, bytes", f"{chunk:,} and {chunk * data:,}"),
                    number("level and members", f"{array.get('level')}, {_members(array)}"),
                ),
                (
                    Remedy(
                        steps=(
                            f"Mount with sunit={chunk // SECTOR_BYTES},swidth={chunk * data // SECTOR_BYTES} "
                            "if XFS allows the change (new files only), or recreate the file system.",
                        )
                    ),
                ),
            )


def _data_members(array: Mapping[str, Any]) -> int:
    """Members that hold data in a stripe; 0 if the level and its layout do not determine it."""
    members = _members(array)
    level = array.get("level")
    if level in ("raid0", "raid4", "raid5", "raid6"):
        return members - {"raid0": 0, "raid4": 1, "raid5": 1, "raid6": 2}[str(level)]
    # Near 2 (258 is far 2): the common RAID10.
    return members // 2 if level == "raid10" and members % 2 == 0 else 0


def _option(options: list[str], name: str) -> int:
    found = [text.partition("=")[2] for text in options if text.startswith(f"{name}=")]
    return int(found[-1]) if found and found[-1].isdigit() else 0


#: Requests per second above which a device's single lock is more than noise; in the paper it dominated at some
#: 100,000s.
LOCK_FELT = 50_000


@rule(
    "RAID09",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="M. Bjorling, J. Axboe, D. Nellans, P. Bonnet, Linux Block IO: Introducing Multi-queue SSD Access on "
    "Multi-core Systems, SYSTOR 2013 (one lock a device before blk-mq, which came with 3.13); Linux commit "
    "a4aea5623d4a (NVMe had queues of its own before), kernel-parameters.txt, scsi_mod.use_blk_mq",
    refute="On a kernel with the multi-queue block layer, the same array does no more requests.",
)
def single_queue_kernel(evidence: Evidence) -> Iterator[Match]:
    """A flash array runs on a kernel with one lock per device queue.

    All cores take one lock per request, and the array adds its own. Flash is faster than that lock: four devices
    do no more than one.
    """
    if evidence.kernel_at_least(3, 14):
        return
    count = len(evidence.cores)
    for array in _arrays(evidence):
        names = [evidence.disk_of(str(m["name"])) for m in array.get("members") or ()]
        flash = [n for n in names if _has_one_queue(evidence.facts.block_device(n) or {})]
        if len(flash) < 2 or count < FEW_CORES:
            continue
        device = evidence.devices.get(str(array["name"]))
        done = device.operations if device else 0.0
        yield Match(
            str(array["name"]),
            f"{array['name']} stripes {len(flash)} flash devices on kernel {evidence.facts.kernel_release}, "
            f"which has one queue per device for {count} CPUs; it does {done:,.0f} requests/s.",
            (
                number("kernel", evidence.facts.kernel_release),
                number("flash members", " ".join(flash)),
                number("requests/s", done, ",.0f"),
                number("CPUs", count),
            ),
            (
                Remedy(
                    steps=(
                        "Run a newer kernel, and measure the array under the same load. Drivers followed one by "
                        "one: SCSI and SATA disks (sd) from 3.17 on with scsi_mod.use_blk_mq=1, always from 5.0.",
                    )
                ),
            ),
            None if done >= LOCK_FELT else Severity.ADVICE,
        )


def _has_one_queue(device: Mapping[str, Any]) -> bool:
    """Whether it is flash behind one queue: the driver of NVMe had a queue for each CPU before the kernel did."""
    return device.get("rotational") is False and device.get("driver") != "nvme"
