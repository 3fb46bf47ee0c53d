"""What block devices did, and whether requests queue in them: against what one takes when it is alone.

A threshold in milliseconds fits no two classes of device: 3 ms are thirty times what an NVMe drive needs, and a
third of a disk's seek. So a device is judged against its own latency without load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.host.window import Window

#: %util assumes one request at a time: that a device was never idle means something for a single spindle only.
NEVER_RESTS = 0.95
#: Mean requests in flight above which a device that serves many concurrently has a queue, and a long one.
DEEP_QUEUE, LONG_QUEUE = 8.0, 16.0
#: A request that takes this many times as long as alone waited for others; behind a long queue fewer will do.
TIMES_UNLOADED, TIMES_UNLOADED_LONG = 5.0, 3.0
#: Twice the queue should bring more throughput from a device that has room; a gain below this factor is none.
FLAT = 1.10
#: Share of a longer queue that must come back as throughput for a device to have room.
SCALES = 0.7
#: Intervals of the window, at least, and requests in each, for a latency without load.
QUIET_INTERVALS, QUIET_REQUESTS = 3, 20.0
#: Requests in flight up to which a device gets one request at a time.
FEW_AT_ONCE = 2.0
#: Requests in flight below which they do not meet.
ALONE = 1.5
#: So many requests do not take less than a millisecond together.
TOO_MANY_FOR_NO_TIME = 1_000.0
#: Names of partitions, with their disk's.
PARTITIONS = (re.compile(r"(.*\d)p\d+"), re.compile(r"(.*[a-z])\d+"))
SECTOR_BYTES = 512
#: Reads and writes on any flash that take this long on average. Above the slowest p99 of data sheets.
FLASH_SLOW_MS = 5.0

#: Drivers that make a virtual disk, whatever is beneath it.
VIRTUAL_DRIVERS = ("virtio_blk", "vbd", "loop", "nbd", "rbd", "drbd", "ublk")
#: Controllers that a hypervisor emulates: what they call a rotating disk is a file or a volume elsewhere.
VIRTUAL_CONTROLLERS = ("virtio", "vmw_pvscsi", "hv_storvsc", "mptspi", "mptscsih", "xen", "storvsc")
#: Controllers that show a whole array as one disk.
ARRAY_CONTROLLERS = (
    "megaraid",
    "aacraid",
    "hpsa",
    "smartpqi",
    "cciss",
    "arcmsr",
    "3w",
    "ips",
    "qla2",
    "lpfc",
    "iscsi",
)
#: Models of virtual disks and volumes behind drivers that real drives have, too.
VIRTUAL_MODELS = ("qemu", "vmware", "vbox", "virtual disk", "msft")
NETWORK_MODELS = ("elastic block store", "nvme_card-pd", "persistentdisk", "network")
ARRAY_MODELS = ("perc", "logical volume", "raid", "lun", "mr9", "serveraid")


@dataclass(frozen=True)
class Device:
    """What a block device did: rates per second, and means over its requests."""

    name: str
    utilisation: float
    reads: float
    writes: float
    flushes: float
    bytes_s: float
    read_ms: float | None
    write_ms: float | None
    queue: float
    #: Requests whose kind is not known, as sar counts them, and how long each takes.
    mixed: float = 0.0
    mixed_ms: float | None = None
    flush_ms: float | None = None

    @property
    def operations(self) -> float:
        return self.reads + self.writes + self.mixed

    @property
    def wait_ms(self) -> float:
        """From the request to its completion, the mean over reads and writes."""
        if not self.operations:
            return 0.0
        if not self.is_each_timed:
            # Little's law: what is in flight is the rate times the time of each.
            return 1e3 * self.queue / self.operations
        time = (self.read_ms or 0.0) * self.reads + (self.write_ms or 0.0) * self.writes
        time += (self.mixed_ms or 0.0) * self.mixed
        return time / self.operations

    @property
    def is_each_timed(self) -> bool:
        """Whether the time of requests was counted, and not only how many were in flight."""
        return self.read_ms is not None or self.write_ms is not None or self.mixed_ms is not None

    @property
    def main_kind(self) -> str:
        """``read`` or ``write``: which takes more of its time; ``request`` if they are not told apart."""
        if self.mixed:
            return "request"
        reading = (self.read_ms or 0.0) * self.reads
        return "read" if reading >= (self.write_ms or 0.0) * self.writes else "write"

    @property
    def main_ms(self) -> float:
        each = {"read": self.read_ms, "write": self.write_ms, "request": self.mixed_ms}
        return each[self.main_kind] or (0.0 if self.is_each_timed else self.wait_ms)

    def numbers(self) -> dict[str, float]:
        """Its load as a resource's numbers: requests/s, in flight, ms, shares of 1."""
        return {
            "operations": self.operations,
            "queue": self.queue,
            "wait_ms": self.wait_ms,
            "util": self.utilisation,
            "flushes": self.flushes,
            "flush_ms": self.flush_ms or 0.0,
            "writes": self.writes,
            "reads": self.reads,
        }


@dataclass(frozen=True)
class DeviceClass:
    """What kind of device it is: the usual time of one small request alone, and bytes per ms of larger ones."""

    name: str
    alone_ms: float
    bytes_per_ms: float


NVME = DeviceClass("an NVMe drive", 0.15, 2e6)
SSD = DeviceClass("a solid-state drive", 0.25, 0.5e6)
VIRTUAL = DeviceClass("a virtual disk", 1.0, 0.5e6)
#: No fact tells what it is.
UNKNOWN = DeviceClass("a device of unknown kind", 1.0, 0.5e6)
NETWORK = DeviceClass("a network volume", 1.5, 0.25e6)
FLASH_ARRAY = DeviceClass("a volume of a storage controller", 1.0, 0.5e6)
ARRAY = DeviceClass("an array of rotating disks", 10.0, 0.2e6)
SPINDLE = DeviceClass("a rotating disk", 12.0, 0.15e6)


@dataclass(frozen=True)
class Unloaded:
    """What one request takes without others, and how that is known."""

    ms: float
    source: str


def devices(window: Window, sampler: str = "disk") -> list[Device]:
    """Every block device that did anything in the window; ``path``: the paths of drives that have several."""
    found = []
    names = dict.fromkeys([*window.labels(sampler, "reads"), *window.labels(sampler, "requests")])
    for name in names:
        # The kernel counts a partition's requests as its disk's, too.
        if any(match[1] in names for match in (part.fullmatch(name) for part in PARTITIONS) if match):
            continue

        def rate(metric: str, name: str = name) -> float:
            return window.rate(sampler, metric, name) or 0.0

        reads, writes, flushes = rate("reads"), rate("writes"), rate("flushes")
        mixed = rate("requests")
        if mixed > 1.01 * (reads + writes):
            # Some intervals have one kind only, and would stand for all.
            reads = writes = 0.0
        else:
            mixed = 0.0
        if reads + writes + flushes + mixed <= 0:
            continue
        found.append(
            Device(
                name,
                min(rate("io_ms") / 1e3, 1.0),
                reads,
                writes,
                flushes,
                sum(rate(f"sectors{way}") for way in ("", "_read", "_written")) * SECTOR_BYTES,
                _each(window.rate(sampler, "read_ms", name), reads),
                _each(window.rate(sampler, "write_ms", name), writes),
                rate("weighted_io_ms") / 1e3,
                mixed,
                _each(window.rate(sampler, "request_ms", name), mixed),
                _each(window.rate(sampler, "flush_ms", name), flushes),
            )
        )
    return found


def _each(ms: float | None, requests: float) -> float | None:
    return ms / requests if ms is not None and requests else None


def is_timed(window: Window, name: str) -> bool:
    """Whether anything tells how busy a device is: iostat without -x counts its requests alone, and old kernels no
    time of some drivers."""
    times = ("io_ms", "weighted_io_ms", "read_ms", "write_ms", "request_ms", "flush_ms")
    known = [grown for metric in times if (grown := window.growth("disk", metric, name)) is not None]
    done = sum(window.growth("disk", metric, name) or 0.0 for metric in ("reads", "writes", "requests"))
    return bool(known) and (any(known) or done < TOO_MANY_FOR_NO_TIME)


def class_of(record: Mapping[str, Any] | None) -> DeviceClass:
    """By driver, controller and model. What is not known to be a drive is a virtual disk: it may be anything."""
    if not record:
        return UNKNOWN
    driver, controller, model = (
        str(record.get(key) or "").lower() for key in ("driver", "controller_driver", "model")
    )
    if any(word in model for word in NETWORK_MODELS):
        return NETWORK
    if driver.startswith(VIRTUAL_DRIVERS) or any(word in model for word in VIRTUAL_MODELS):
        return VIRTUAL
    if controller.startswith(VIRTUAL_CONTROLLERS) and driver != "nvme":
        return VIRTUAL
    if record.get("kind") != "disk" or record.get("slaves"):
        return VIRTUAL
    rotates = record.get("rotational")
    is_array = controller.startswith(ARRAY_CONTROLLERS) or driver.startswith(("cciss", "ida"))
    if is_array or any(word in model for word in ARRAY_MODELS):
        return ARRAY if rotates else FLASH_ARRAY
    if driver == "nvme":
        return NVME
    if rotates is None:
        return VIRTUAL
    return SPINDLE if rotates else SSD


def serves_one_at_a_time(record: Mapping[str, Any] | None) -> bool:
    """Whether %util means what its name says: a spindle of its own. Virtual and stacked ones may not be."""
    return class_of(record) is SPINDLE


def unloaded(
    window: Window, device: Device, record: Mapping[str, Any] | None, measured_ms: float | None = None
) -> Unloaded:
    """What a request of the device's main kind takes alone: measured, seen, or usual for its class."""
    if measured_ms:
        return Unloaded(measured_ms, "measured without load")
    seen = _quiet_ms(window, device)
    if seen is not None:
        return Unloaded(seen, "in its quiet seconds")
    kind = class_of(record)
    size = device.bytes_s / device.operations if device.operations else 0.0
    how = "assumed" if kind is UNKNOWN else "usual"
    return Unloaded(kind.alone_ms + size / kind.bytes_per_ms, f"{how} for {kind.name}")


def _quiet_ms(window: Window, device: Device) -> float | None:
    """The median time of requests in those intervals in which they hardly met; None if there are too few."""
    kind = device.main_kind
    parts = _series(window, device.name, ("weighted_io_ms", f"{kind}s", f"{kind}_ms"))
    if parts is None:
        return None
    queue, done, time = parts
    quiet = (queue < 1e3 * ALONE) & (done >= QUIET_REQUESTS)
    if quiet.sum() < QUIET_INTERVALS:
        return None
    return float(np.median(time[quiet] / done[quiet]))


def waits_of_queue(device: Device, alone: Unloaded) -> bool:
    """Whether requests take so much longer than alone that they queue in a device with many in flight."""
    if device.queue < DEEP_QUEUE or alone.ms <= 0:
        return False
    times = device.main_ms / alone.ms
    return times >= (TIMES_UNLOADED_LONG if device.queue >= LONG_QUEUE else TIMES_UNLOADED)


def scaling(window: Window, name: str) -> str:
    """``flat`` if twice the queue brought no more throughput within the window, ``room`` if it brought about as
    much more; empty if the queue did not change enough to say."""
    parts = _series(window, name, ("weighted_io_ms", "reads", "writes"))
    if parts is None or len(parts[0]) < 6:
        return ""
    queue, reads, writes = parts
    order = np.argsort(queue)
    third = len(order) // 3
    low, high = order[:third], order[-third:]
    done = reads + writes
    if queue[low].mean() <= 0 or done[low].mean() <= 0:
        return ""
    longer, more = queue[high].mean() / queue[low].mean(), done[high].mean() / done[low].mean()
    if longer < 2:
        return ""
    return "flat" if more <= FLAT else "room" if more >= SCALES * longer else ""


def _series(window: Window, name: str, metrics: tuple[str, ...]) -> list[np.ndarray[Any, Any]] | None:
    """Rates between samples, of equal length; None if they are not."""
    found = [window.series("disk", metric, name) for metric in metrics]
    rates = [part.rate for part in found if part is not None]
    if len(rates) != len(metrics) or len({len(rate) for rate in rates}) != 1:
        return None
    return rates
