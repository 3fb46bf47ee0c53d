"""Rules about what stands between the server and its device: priorities of I/O, tags, and mapped layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.host.devices import ARRAY, DEEP_QUEUE, SPINDLE, Device, class_of, devices, unloaded
from headrace.host.paths import drive_of
from headrace.hunt.resources import Level
from headrace.hunt.rules.cached import waited_for
from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.waited import Waited, waited_for_io

#: Share of the bytes that others read and write from which on a low priority can be felt.
OTHERS_IO = 0.20
#: ... and bytes per second.
OTHERS_IO_S = 5e6
#: A device that is often busy makes somebody wait.
OFTEN_BUSY = 0.50
#: Share of the server's threads that must have a low priority: new ones have that of the first.
LOW_THREADS = 0.25
#: The level of best effort that a thread has by default, 0 is the highest; the weight of a group.
USUAL_LEVEL, USUAL_WEIGHTS = (
    4,
    {"io.weight": 100, "io.bfq.weight": 100, "blkio.bfq.weight": 100, "blkio.weight": 500},
)
#: Schedulers that know classes; and those that also know levels, with the weights that they take.
KNOW_CLASSES, KNOW_LEVELS = ("mq-deadline", "bfq", "cfq"), ("bfq", "cfq")
WEIGHTS_OF = {"bfq": ("io.bfq.weight", "blkio.bfq.weight"), "cfq": ("blkio.weight",)}
#: Fewer tags than this are no default of any driver for a device that serves many requests at a time.
FEW_TAGS = 16
#: Share of the tags that are in use on average from which on requests wait for one.
TAGS_USED = 0.70
#: Where a thread waits for a tag in the kernel; threads that do, on average.
FOR_A_TAG, WAIT_FOR_A_TAG = ("/blk_mq_get_tag", "/get_request"), 0.5
#: What a layer adds to a request, in ms and against what the devices beneath take; and requests per second.
HELD_MS, HELD_TIMES, SOME_S = 1.0, 2.0, 20.0
#: One of several devices beneath a layer is the slow one: times the slowest of the others, ms more, requests/s.
SLOW_TIMES, SLOW_MS, SLOW_SOME_S = 4.0, 2.0, 5.0
#: A request takes this many times as long as without load, though few are in flight.
UNUSUAL_TIMES = 5.0
#: Copies per write of an origin with snapshots from which on they are a cost.
COPIES, MANY_COPIES_S = 0.10, 20.0


def _leaves(evidence: Evidence) -> list[tuple[Device, Mapping[str, Any]]]:
    """The devices that the server's data end up on, with their records, as far as they did anything."""
    found = []
    for name in evidence.beneath(evidence.data_directory):
        device, record = evidence.devices.get(name), evidence.facts.block_device(name)
        if device is not None and record is not None and not record.get("slaves"):
            found.append((device, record))
    return [pair for pair in found if waited_for(evidence, [pair[0]], pair[0].main_kind)]


@dataclass(frozen=True)
class _Low:
    """Why the server's requests come last: ``what`` in words, ``steps`` to change it."""

    what: str
    step: str


def _low_priority(evidence: Evidence, scheduler: str, nice: int) -> _Low | None:
    """Of its threads, as far as the scheduler knows priorities."""
    known: Mapping[str, int | None] = evidence.server_process.get("io_priorities") or {}
    counts = {name: threads or 0 for name, threads in known.items()}
    total = sum(counts.values())
    low = 0
    worst = ""
    for name, threads in counts.items():
        kind, _, level = name.partition("/")
        by_nice = kind == "none" and (nice + 20) // 5 > USUAL_LEVEL
        is_level = scheduler in KNOW_LEVELS and (
            (kind == "best-effort" and int(level) > USUAL_LEVEL) or (by_nice and nice > 0)
        )
        if kind == "idle" or is_level:
            low += threads
            shown = f"best-effort/{(nice + 20) // 5} by its nice value {nice}" if kind == "none" else name
            worst = shown if kind == "idle" or not worst else worst
    if not total or low < LOW_THREADS * total:
        return None
    pid = evidence.server_process["pid"]
    again = "renice -n 0" if "nice" in worst else "ionice -c 2 -n 4"
    return _Low(
        f"the I/O priority {worst} ({low} of {total} threads)",
        f"{again} -p $(ls /proc/{pid}/task); permanently: remove IOSchedulingClass= and IOSchedulingPriority= (or "
        "Nice=) from the unit, or start the server without ionice.",
    )


def _low_weight(evidence: Evidence, record: Mapping[str, Any], scheduler: str) -> _Low | None:
    """Of its control group or one above, as far as it counts on this device."""
    limits = evidence.server_process.get("cgroup") or {}
    files = WEIGHTS_OF.get(scheduler, ())
    if record.get("device_number") in (limits.get("io_cost_devices") or ()):
        files = (*files, "io.weight")
    rows = [
        row
        for row in limits.get("io_weights") or ()
        if row["file"] in files
        and isinstance(row["weight"], int)
        and row["weight"] < USUAL_WEIGHTS[row["file"]]
    ]
    if not rows:
        return None
    row = min(rows, key=lambda row: row["weight"] / USUAL_WEIGHTS[row["file"]])
    group = str(row["path"]).rpartition("/")[2]
    return _Low(
        f"{row['file']} {row['weight']} of the control group {group}",
        f"systemctl set-property --runtime {group if '.' in group else 'UNIT'} IOWeight=100 (usual: "
        f"{USUAL_WEIGHTS[row['file']]} in {row['path']}/{row['file']}).",
    )


@rule(
    "BLK15",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/block/ioprio.rst and bfq-iosched.rst; ioprio_get(2); "
    "Documentation/admin-guide/cgroup-v2.rst, io.weight",
    refute="With the usual I/O priority, throughput and p99 are equivalent while the other programs run.",
)
def io_behind_others(evidence: Evidence) -> Iterator[Match]:
    """The server's reads and writes come after those of other programs: a low I/O priority or weight.

    A scheduler that knows priorities serves the class idle when no other program wants the device, and a small
    weight in proportion. Typical causes: the server was restarted from a backup script that runs under ionice, or
    its control group was given a small weight. Without such a scheduler the priority has no effect.
    """
    process = evidence.server_process
    nice = int(process.get("nice") or 0)
    if process.get("io_priorities") is None and (process.get("cgroup") or {}).get("io_weights") is None:
        raise NotEnough("the host does not report the server's I/O priority")
    found = evidence.programs
    others = sum(program.io_bytes_s for program in found if not (program.is_server or program.is_kernel))
    total = sum(program.io_bytes_s for program in found)
    waits = waited_for_io(evidence.window)
    for device, record in _leaves(evidence):
        scheduler = str((record.get("queue") or {}).get("scheduler"))
        # mq-deadline knows priorities since Linux 5.14.
        knows = scheduler in KNOW_CLASSES and (scheduler != "mq-deadline" or evidence.kernel_at_least(5, 14))
        low = (_low_priority(evidence, scheduler, nice) if knows else None) or _low_weight(
            evidence, record, scheduler
        )
        if low is None:
            continue
        is_felt = (
            device.utilisation >= OFTEN_BUSY
            and others >= max(OTHERS_IO * total, OTHERS_IO_S)
            and waits.is_high
        )
        beside = (
            f"behind others that read and write {others / 1e6:,.1f} MB/s"
            if is_felt
            else "no other program is ahead of it now"
        )
        yield Match(
            device.name,
            f"{process['program']} has {low.what}, which counts on {device.name} (scheduler {scheduler}): "
            f"{beside}.",
            (
                number("scheduler", scheduler),
                number("I/O of others, MB/s", others / 1e6, ",.1f"),
                number("I/O of all, MB/s", total / 1e6, ",.1f"),
                number("time per request", f"{device.wait_ms:.2f} ms"),
                waits.number,
            ),
            (Remedy(steps=(low.step,)),),
            None if is_felt else Severity.HOUSEKEEPING,
        )


@rule(
    "BLK16",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/ABI/stable/sysfs-block, nr_requests; Documentation/block/blk-mq.rst, tags; "
    "Documentation/scsi/scsi_mid_low_api.rst, queue_depth",
    refute="With a queue four times as long, the device completes no more requests/s, and throughput is "
    "unchanged.",
)
def few_tags(evidence: Evidence) -> Iterator[Match]:
    """A device's queue is too short: requests wait for a free slot.

    Each request needs a tag. With few of them (nr_requests, or queue_depth of a SCSI device) most of the device's
    parallel units idle, while threads wait in the kernel where no counter of the device sees them. Somebody made
    the queue short to bound latencies of a disk that seeks, or command queueing (NCQ) is off.
    """
    waiting = _waiting_for_a_tag(evidence)
    waits = waited_for_io(evidence.window)
    for device, record in _leaves(evidence):
        use = evidence.use("block", device.name)
        queue = record.get("queue") or {}
        allowed, depth = queue.get("nr_requests"), record.get("queue_depth")
        if isinstance(allowed, int) and queue.get("scheduler") == "none":
            allowed *= max(queue.get("hardware_queues") or 1, 1)
        tags = min((n for n in (allowed, depth) if isinstance(n, int) and n > 0), default=None)
        if tags is None or tags > FEW_TAGS or device.queue < TAGS_USED * tags:
            continue
        is_depth = tags == depth
        # What waits for a SCSI device is counted as in flight; what waits for a tag of the queue is not.
        has_more = device.queue >= 2 * tags if is_depth else waiting >= WAIT_FOR_A_TAG or waits.is_high
        is_own_limit = not is_depth and use is not None and use.level is Level.SATURATED
        if not has_more or is_own_limit or (record.get("rotational") and tags >= FEW_TAGS / 2):
            continue
        where = f"queue_depth {depth}" if is_depth else f"nr_requests {queue['nr_requests']}"
        yield Match(
            device.name,
            f"{device.name} may have {tags} request{'s' if tags > 1 else ''} in flight ({where}) and has "
            f"{device.queue:.1f}; {waits.said}.",
            (
                number("requests/s", device.operations, ",.0f"),
                number("requests in flight", device.queue, ".1f"),
                number("time per request", f"{device.wait_ms:.2f} ms"),
                number("threads that wait for a tag", waiting, ".1f"),
                waits.number,
            ),
            (
                Remedy(
                    steps=(
                        f"echo 32 > /sys/block/{device.name}/device/queue_depth; if the kernel refuses it, "
                        "command queueing is off in the controller's settings or by libata.force=noncq.",
                    )
                )
                if is_depth
                else Remedy({f"volume.nr_requests@{device.name}": 128}),
            ),
        )


def _waiting_for_a_tag(evidence: Evidence) -> float:
    """Threads of the servers that do, on average. A sample in which none waits has no value for it."""
    window = evidence.window
    samples = max(
        (len(window.values("threads", "states", s)) for s in window.labels("threads", "states")), default=0
    )
    labels = [label for label in window.labels("threads", "waiting") if label.endswith(FOR_A_TAG)]
    return sum(float(window.values("threads", "waiting", label).sum()) for label in labels) / max(samples, 1)


#: Layers that do not say in /sys which devices are beneath them: beginning of the name -> what it is.
SILENT_LAYERS = {
    "drbd": "a replicated device (DRBD)",
    "zd": "a ZFS volume",
    "bcache": "a cached device (bcache)",
}
#: Other kinds of layers.
LAYERS = {"md": "an array", "loop": "a file as a device (loop)"}
#: Beginning of a mapped device's uuid -> what it is, the longest first.
MADE_BY = {
    "CRYPT-VERITY": "verification (dm-verity)",
    "CRYPT-INTEGRITY": "checksums (dm-integrity)",
    "CRYPT-": "encryption (dm-crypt)",
    "mpath-": "several paths to a volume (multipath)",
    "stratis-": "a layer of Stratis",
    "LVM-": "a logical volume",
    "VDO-": "deduplication (VDO)",
}


#: End of the uuid of a device beneath a logical volume -> what the volume is (lvm2, lib/activate/dev_manager.c).
LVM_ROLES = {
    ("-cdata", "-cmeta", "-cvol"): "a cached volume (dm-cache, dm-writecache)",
    ("-cow",): "a snapshot",
    ("-tpool",): "a thin volume",
    ("-vpool",): "a deduplicated volume (VDO)",
}


#: End of a hidden volume's own uuid -> what it is.
OWN_ROLES = {"-tpool": "a pool of thin volumes", "-vpool": "a pool of deduplicated blocks (VDO)"}


def _uuid(evidence: Evidence, name: str) -> str:
    return str(((evidence.facts.block_device(name) or {}).get("dm") or {}).get("uuid") or "")


def _kind(evidence: Evidence, record: Mapping[str, Any]) -> str:
    """What a layer is. A mapped device says it by its uuid and those beneath it: LVM ends them with the role."""
    if silent := _silent(record):
        return silent
    if record.get("kind") in LAYERS:
        return LAYERS[str(record["kind"])]
    beneath = [_uuid(evidence, str(slave)) for slave in record.get("slaves") or ()]
    # A cache's slow device is an origin, too, but no snapshot's: the fast one beside it tells.
    for ends, what in LVM_ROLES.items():
        if any(uuid.endswith(ends) for uuid in beneath):
            return what
    if len(beneath) == 1 and beneath[0].endswith("-real"):
        return "the origin of a snapshot"
    uuid = _uuid(evidence, str(record["name"]))
    if own := next((what for end, what in OWN_ROLES.items() if uuid.endswith(end)), ""):
        return own
    # A partition of a mapped device has its uuid after its own number.
    uuid = re.sub(r"^part\d+-", "", uuid)
    return next((kind for start, kind in MADE_BY.items() if uuid.startswith(start)), "a mapped device")


def _mapped(evidence: Evidence) -> Iterator[Mapping[str, Any]]:
    for name in evidence.beneath(evidence.data_directory):
        record = evidence.facts.block_device(name) or {}
        if record.get("kind") == "dm" and record.get("slaves"):
            yield record


def _silent(record: Mapping[str, Any]) -> str:
    """What a layer is that does not say which devices are beneath it; empty for others."""
    name = str(record["name"])
    return next((kind for start, kind in SILENT_LAYERS.items() if re.match(rf"{start}\d", name)), "")


def _layers(evidence: Evidence) -> Iterator[tuple[Mapping[str, Any], list[Device]]]:
    """The layers beneath the data, each with the devices beneath it that did anything.

    For a layer that does not say which these are, all disks: it is never slower than the slowest of them.
    """
    for name in evidence.beneath(evidence.data_directory):
        record = evidence.facts.block_device(name) or {"name": name}
        below = evidence.below(name)
        if not below and _silent(record):
            disks = (str(row["name"]) for row in evidence.rows("block_devices") if row.get("kind") == "disk")
            below = [disk for disk in disks if disk != name]
        lower = [evidence.devices[each] for each in below if each in evidence.devices]
        if lower:
            yield record, lower


@rule(
    "BLK17",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/device-mapper (dm-crypt.rst, delay.rst, snapshot.rst, "
    "thin-provisioning.rst); Documentation/admin-guide/iostats.rst",
    refute="On the device beneath, without the layer, time per request and the server's p99 are equivalent.",
)
def layer_holds_requests(evidence: Evidence) -> Iterator[Match]:
    """A layer between the server and its device holds requests longer than the device needs for them.

    A layer (LVM, encryption, snapshots, multipath, an array, DRBD, bcache, a ZFS volume, a loop device) takes a
    request, works on it or waits, and passes it on. The time that is lost there shows in no counter of the device:
    it looks fast, and the server waits.
    """
    waits = waited_for_io(evidence.window)
    by_kind: dict[str, list[_Held]] = {}
    for held in _held(evidence):
        by_kind.setdefault(held.what, []).append(held)
    # Several members of an array that are encrypted are slow for one reason.
    for what, alike in by_kind.items():
        yield _held_by(what, sorted(alike, key=lambda held: -held.ms), waits)


@dataclass(frozen=True)
class _Held:
    """A layer that holds requests: ``what`` it is, and how long one takes in it, with what is ``beneath``."""

    record: Mapping[str, Any]
    what: str
    kind: str
    per_second: float
    ms: float
    beneath: str
    beneath_ms: Mapping[str, float]

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def label(self) -> str:
        return str((self.record.get("dm") or {}).get("name") or self.name)

    @property
    def known_as(self) -> str:
        return self.label if self.label == self.name else f"{self.label} ({self.name})"


def _held(evidence: Evidence) -> Iterator[_Held]:
    for record, lower in _layers(evidence):
        upper = evidence.devices.get(str(record["name"]))
        if upper is None:
            continue
        kind = upper.main_kind
        per_second = upper.reads if kind == "read" else upper.writes
        lower = waited_for(evidence, lower, kind)
        each_ms = {device.name: _beneath_ms(evidence, device, kind) for device in lower}
        beneath_ms = max(each_ms.values())
        held_ms = upper.main_ms - beneath_ms
        if per_second < SOME_S or held_ms < HELD_MS or upper.main_ms < HELD_TIMES * beneath_ms:
            continue
        beneath = (
            "the slowest disk" if _silent(record) and not evidence.below(upper.name) else "the device beneath"
        )
        yield _Held(record, _kind(evidence, record), kind, per_second, upper.main_ms, beneath, each_ms)


def _held_by(what: str, alike: list[_Held], waits: Waited) -> Match:
    worst = alike[0]
    others = f"; so {'does' if len(alike) == 2 else 'do'} {' and '.join(held.known_as for held in alike[1:])}"
    numbers = []
    for held in alike:
        numbers.append(number(f"{held.kind}s/s of {held.name}", held.per_second, ",.0f"))
        numbers.append(number(f"a {held.kind} of {held.name}", f"{held.ms:.2f} ms"))
        numbers += [number(f"a {held.kind} of {n}", f"{ms:.2f} ms") for n, ms in held.beneath_ms.items()]
    return Match(
        worst.name,
        f"{worst.known_as}, {what}, takes {worst.ms:.1f} ms per {worst.kind}, of which {worst.beneath} "
        f"takes {max(worst.beneath_ms.values()):.2g} ms{others if alike[1:] else ''}; {waits.said}.",
        (*numbers, waits.number),
        (Remedy(steps=_without_the_layer(what, worst.label)),),
        Severity.LIMIT if waits.is_high else None,
    )


def _beneath_ms(evidence: Evidence, device: Device, kind: str) -> float:
    """With its flush: a mapped device counts a write and the flush before it as one."""
    own = (device.read_ms if kind == "read" else device.write_ms) or 0.0
    flushes = evidence.window.rate("disk", "flushes", device.name) or 0.0
    spent_ms = evidence.window.rate("disk", "flush_ms", device.name) or 0.0
    return own + (spent_ms / flushes if kind == "write" and flushes else 0.0)


def _without_the_layer(what: str, name: str) -> tuple[str, ...]:
    if "DRBD" in what:
        return (
            f"See whether it waits for its peer: drbdadm status; drbdsetup status --statistics {name}.",
            "With protocol C each write waits for the peer's disk: look at the network and at the peer's device.",
        )
    if "bcache" in what:
        return (
            f"See its mode and how much is dirty: /sys/block/{name}/bcache/cache_mode, .../state, .../dirty_data.",
        )
    if "ZFS" in what:
        return (
            "See the pool: zpool iostat -v 1; zpool status. A synchronous write waits for the intent log.",
        )
    if "loop" in what:
        return (f"See its file and whether it bypasses the page cache: losetup -l /dev/{name}.",)
    if "array" in what:
        return (f"See whether it resyncs or lost a member: mdadm --detail /dev/{name}; cat /proc/mdstat.",)
    look = f"See what it does: dmsetup table {name}; dmsetup status {name}."
    if "snapshot" in what:
        return (
            look,
            "Remove the snapshot when the backup is done (lvs; lvremove), or use snapshots of a thin pool.",
        )
    if "encryption" in what:
        return (
            look,
            "Let the kernel encrypt without its queues (Linux 5.9): cryptsetup refresh --perf-no_read_workqueue "
            f"--perf-no_write_workqueue --persistent {name}. Check that the CPUs have AES: cryptsetup benchmark.",
        )
    if "cached" in what:
        return (
            look,
            "See what it hits and how much is dirty: lvs -o+cache_read_hits,cache_read_misses,cache_write_misses,"
            f"cache_dirty_blocks,cache_mode. With writethrough a write waits for the slow device: {name}'s cache "
            "helps reads only.",
        )
    if "thin" in what:
        return (look, "See how full its pool is, data and metadata: lvs -a -o+data_percent,metadata_percent.")
    if "paths" in what:
        return (look, "See whether paths have failed: multipath -ll.")
    return (look,)


@rule(
    "BLK18",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/device-mapper/snapshot.rst; lvcreate(8), --snapshot",
    refute="Without the snapshot, writes per second and their p99 are equivalent.",
)
def snapshot_copies_blocks(evidence: Evidence) -> Iterator[Match]:
    """The server's volume has a snapshot, and the first write to each block copies the old one there.

    Such a write becomes a read and two writes, one after the other. The cost peaks after the snapshot and lasts
    until its removal. Failed backups leave snapshots behind. A snapshot that fills up becomes invalid.
    """
    for record in _mapped(evidence):
        real = [str(slave) for slave in record["slaves"] if _uuid(evidence, str(slave)).endswith("-real")]
        # Of the origin: a snapshot itself also reads from it.
        if len(real) != 1 or len(record["slaves"]) != 1:
            continue
        cows = [
            str(slave)
            for snapshot in evidence.rows("block_devices")
            if real[0] in (snapshot.get("slaves") or ()) and snapshot["name"] != record["name"]
            for slave in snapshot["slaves"]
            if _uuid(evidence, str(slave)).endswith("-cow")
        ]
        origin = evidence.devices.get(str(record["name"]))
        copies = sum(evidence.devices[name].writes for name in cows if name in evidence.devices)
        if origin is None or copies < max(MANY_COPIES_S, COPIES * origin.writes):
            continue
        name = (record.get("dm") or {}).get("name") or record["name"]
        yield Match(
            origin.name,
            f"{name} ({origin.name}) has {'a snapshot' if len(cows) == 1 else f'{len(cows)} snapshots'}: "
            f"{copies:,.0f} writes/s copy old blocks there, beside {origin.writes:,.0f} writes/s of its own.",
            (
                number("writes/s", origin.writes, ",.0f"),
                number("copies/s", copies, ",.0f"),
                number("time per write", f"{origin.write_ms or 0.0:.2f} ms"),
                number("copied to", ", ".join(cows)),
            ),
            (Remedy(steps=_without_the_layer("a snapshot", str(name))),),
        )


@rule(
    "BLK19",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/md.rst; multipath.conf(5), path_selector; "
    "Documentation/admin-guide/iostats.rst",
    refute="Without the slow path or member, the layer's time per request and the server's p99 are equivalent.",
)
def one_beneath_is_slow(evidence: Evidence) -> Iterator[Match]:
    """One path of a volume, or one member of an array, takes far longer per request than the others.

    A write to a mirror waits for the slowest member, one to a stripe for all of them, and a round of paths meets
    the bad one every time. No average shows it: the layer looks a little slow, and its devices look fine.
    """
    waits = waited_for_io(evidence.window)
    for name in evidence.beneath(evidence.data_directory):
        record = evidence.facts.block_device(name) or {}
        lower = [evidence.devices[each] for each in record.get("slaves") or () if each in evidence.devices]
        of_drive = [path for path in devices(evidence.window, "path") if drive_of(path.name) == name]
        is_paths = bool(of_drive) or _uuid(evidence, name).startswith("mpath-")
        if not (is_paths or record.get("kind") == "md"):
            continue
        lower = of_drive or lower
        for kind in ("write", "read"):
            slow = _slowest(lower, kind)
            if slow is None:
                continue
            device, slow_ms, others_ms = slow
            what = "path" if is_paths else "member"
            known_as = (record.get("dm") or {}).get("name") or name
            yield Match(
                device.name,
                f"{device.name}, a {what} of {known_as}, takes {slow_ms:.1f} ms per {kind}; its other "
                f"{what}s take at most {others_ms:.2g} ms.",
                (
                    *(number(f"a {kind} of {d.name}", f"{_kind_ms(d, kind):.2f} ms") for d in lower),
                    waits.number,
                ),
                (Remedy(steps=_slow_one(device.name, str(known_as), what)),),
                Severity.LIMIT if waits.is_high else None,
            )
            break


def _kind_ms(device: Device, kind: str) -> float:
    return (device.read_ms if kind == "read" else device.write_ms) or 0.0


def _slowest(lower: list[Device], kind: str) -> tuple[Device, float, float] | None:
    """The device, its ms per request, and the most that any other takes; None if they are alike."""
    busy = [d for d in lower if (d.reads if kind == "read" else d.writes) >= SLOW_SOME_S]
    if len(busy) < 2:
        return None
    slow = max(busy, key=lambda device: _kind_ms(device, kind))
    slow_ms, others_ms = _kind_ms(slow, kind), max(_kind_ms(d, kind) for d in busy if d is not slow)
    return (slow, slow_ms, others_ms) if slow_ms >= max(SLOW_TIMES * others_ms, others_ms + SLOW_MS) else None


def _slow_one(device: str, layer: str, what: str) -> tuple[str, ...]:
    if drive_of(device):
        return (
            f"See the path's state and address: nvme list-subsys /dev/{layer}; dmesg | grep nvme; the counters of "
            "the switch and of the controller.",
            "Let the kernel prefer the quick one: echo queue-depth (Linux 6.11) or numa > "
            "/sys/class/nvme-subsystem/nvme-subsysN/iopolicy.",
        )
    if what == "path":
        return (
            f"See the path's state, errors and port: multipath -ll {layer}; dmesg | grep -w {device}; the "
            "counters of the switch and of the controller.",
            f"Take it out while you look (multipathd fail path {device}), or let the selector see it: "
            "path_selector service-time in multipath.conf.",
        )
    return (
        f"Look for errors and retries of the drive: smartctl -a /dev/{device}; dmesg | grep -w {device}.",
        f"Replace it: mdadm /dev/{layer} --add a spare, then --replace /dev/{device}. Until then: "
        "--write-mostly keeps a mirror's reads away from it.",
    )


@rule(
    "BLK21",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012); Linux "
    "Documentation/admin-guide/iostats.rst",
    refute="One request at a time, without other load (headrace latencies), takes as long on this device.",
)
def device_is_slow_alone(evidence: Evidence) -> Iterator[Match]:
    """Each request to the data's device takes many times as long as usual, although few are in flight.

    No queue explains it, so it is what the device needs now: a volume over the network whose path or peers are
    slow, a limit of the cloud, a drive that retries, a controller without its cache. More requests at once may
    still get more done, but no commit gets faster.
    """
    waits = waited_for_io(evidence.window)
    if waits.share is None:
        raise NotEnough("how much tasks wait for I/O was not sampled (sampler psi)")
    # What a layer holds, and the one slow path or member, have findings of their own.
    explained = {
        *(held.name for held in _held(evidence)),
        *(match.subject for match in one_beneath_is_slow(evidence)),
    }
    for device, record in _leaves(evidence):
        if device.name in explained:
            continue
        alone = unloaded(evidence.window, device, record, evidence.alone_ms.get(device.name))
        if not waits.is_high or device.queue >= DEEP_QUEUE or device.operations < SOME_S:
            continue
        if device.main_kind == "request" or class_of(record) in (SPINDLE, ARRAY):
            continue
        if device.main_ms < max(UNUSUAL_TIMES * alone.ms, alone.ms + SLOW_MS):
            continue
        yield Match(
            device.name,
            f"{device.name} takes {device.main_ms:.1f} ms per {device.main_kind}, against {alone.ms:.2g} ms "
            f"{alone.source}, with {device.queue:.1f} requests in flight; {waits.said}.",
            (
                number(f"time per {device.main_kind}", f"{device.main_ms:.2f} ms"),
                number("without load", f"{alone.ms:.2f} ms {alone.source}"),
                number("requests in flight", device.queue, ".1f"),
                number("operations/s", device.operations, ",.0f"),
                waits.number,
            ),
            (
                Remedy(
                    steps=(
                        "Measure it alone, at a quiet hour: headrace latencies. Over a network: its latency and "
                        "lost packets to the storage, and the load of the storage itself.",
                        f"In a cloud: whether it has reached its limit. A drive: smartctl -a /dev/{device.name}, "
                        "and dmesg for retries. A controller: its cache and battery.",
                    )
                ),
            ),
            Severity.LIMIT,
        )
