"""Rules about block devices: their queues, their caches, and whether requests wait for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.host.devices import ARRAY, FLASH_SLOW_MS, SPINDLE, Device, class_of
from headrace.hunt.resources import Level, ResourceUsage
from headrace.hunt.rules.evidence import MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.stacked import stacks

#: Below this many requests per second the kernel's cost per request does not matter.
MANY_REQUESTS_S = 1_000.0
#: At 5 us per request, this many use a tenth of a core.
VERY_MANY_REQUESTS_S = 20_000.0
#: A device that is rarely idle: an experiment on its queue can show an effect.
OFTEN_BUSY = 0.50
#: Share of all completions on one core, and of that core's time, above which spreading them can matter.
ON_ONE_CORE, CORE_SOFTIRQ = 0.50, 0.20
#: A flush of a volatile cache is reported if it takes this long ...
FLUSH_MS = 1.0
#: ... and comes this often: a handful of commits per second wait for something else.
FLUSHES_S = 20.0
#: The largest discard before it is split. No manual names a size: the experiment decides.
SMALL_DISCARD = 64 * MIB
#: Share of the time that the device works on discards: what few ones cost is not felt.
DISCARDING = 0.05
#: Share of the measured limit, and requests in flight, below which a device is underused; share of time spent
#: waiting.
FAR_BELOW, HARDLY_ASKED, WAITS_FOR_IO = 0.25, 2.0, 0.25

_SYSFS = "Linux Documentation/ABI/stable/sysfs-block"


def _worked(
    evidence: Evidence, least: float
) -> Iterator[tuple[Device, Mapping[str, Any], Mapping[str, Any]]]:
    """Whole devices that did at least this many operations per second, each with its record and queue."""
    for device in evidence.devices.values():
        record = evidence.facts.block_device(device.name)
        if record is None or record.get("kind") == "partition" or device.operations < least:
            continue
        yield device, record, record.get("queue") or {}


def _synced(evidence: Evidence) -> Iterator[tuple[Device, Mapping[str, Any], Mapping[str, Any]]]:
    """The devices that commits wait for, as far as that is known."""
    own = evidence.own_devices
    for device, record, queue in _worked(evidence, 0.0):
        if own is None or device.name in own:
            yield device, record, queue


def _numbers(device: Device) -> tuple[Any, ...]:
    return (
        number("reads/s", device.reads, ",.0f"),
        number("writes/s", device.writes, ",.0f"),
        number("requests in flight", device.queue, ".1f"),
    )


@rule(
    "BLK01",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Red Hat Enterprise Linux 9, Monitoring and managing system status and performance, Setting the disk "
    "scheduler; Linux Documentation/block/switching-sched.rst",
    refute="With the scheduler none, CPU time per request and p99 are equivalent.",
)
def nvme_scheduler(evidence: Evidence) -> Iterator[Match]:
    """An NVMe device uses an I/O scheduler.

    The device orders requests itself and has a queue per core. A scheduler puts a lock shared by all cores in
    front of these queues, and costs CPU time for every request.
    """
    for device, record, queue in _worked(evidence, MANY_REQUESTS_S):
        scheduler = queue.get("scheduler")
        if record.get("driver") != "nvme" or scheduler in (None, "none"):
            continue
        yield Match(
            device.name,
            f"{device.name} uses the scheduler {scheduler} at {device.operations:,.0f} requests/s.",
            (*_numbers(device), number("scheduler", scheduler)),
            (Remedy({f"volume.scheduler@{device.name}": "none"}),),
            # A few microseconds for each of few requests are felt by nobody.
            None if device.operations >= VERY_MANY_REQUESTS_S else Severity.HOUSEKEEPING,
        )


@rule(
    "BLK02",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Red Hat Enterprise Linux 9, Setting the disk scheduler; Red Hat solution 5427 (guests: test both)",
    refute="With the other scheduler, throughput and p99 are equivalent.",
    disputed="Red Hat recommends mq-deadline for most loads and none for fast storage, and advises testing "
    "in guests.",
)
def another_scheduler(evidence: Evidence) -> Iterator[Match]:
    """A busy device behind one queue might do better with another scheduler.

    mq-deadline keeps reads from waiting behind writes; without a scheduler the device or the hypervisor decides.
    On SATA flash and on virtual disks, tests have gone either way. bfq shares a device fairly at a price for each
    request, and a disk that seeks needs some scheduler to sort its requests.
    """
    for device, record, queue in _worked(evidence, 0.0):
        scheduler, known = queue.get("scheduler"), queue.get("schedulers") or ()
        is_own = record.get("kind") == "disk" and not record.get("slaves") and record.get("driver") != "nvme"
        if not is_own or scheduler is None or device.utilisation < OFTEN_BUSY:
            continue
        # By its class: virtual disks report that they rotate.
        if class_of(record) in (SPINDLE, ARRAY):
            is_asked = scheduler == "none" and device.queue >= HARDLY_ASKED
            others = [name for name in ("mq-deadline", "bfq") if is_asked and name in known]
        else:
            is_asked = device.operations >= MANY_REQUESTS_S
            others = [n for n in ("none", "mq-deadline") if is_asked and n in known and n != scheduler]
        if not others:
            continue
        yield Match(
            device.name,
            f"{device.name} uses the scheduler {scheduler} at {device.operations:,.0f} requests/s and "
            f"{device.wait_ms:.2f} ms per request.",
            (*_numbers(device), number("scheduler", scheduler), number("driver", record.get("driver"))),
            tuple(Remedy({f"volume.scheduler@{device.name}": name}, label=name) for name in others),
        )


@rule(
    "BLK03",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_SYSFS}, rq_affinity",
    refute="With rq_affinity 2, the core's softirq time spreads, but throughput and p99 are equivalent.",
)
def completions_on_one_core(evidence: Evidence) -> Iterator[Match]:
    """One core completes most requests of a fast device.

    With rq_affinity 1 a request completes on any core that shares a cache with the submitting core; with 2, on
    that core itself.
    """
    fast = [(d, q) for d, _, q in _worked(evidence, VERY_MANY_REQUESTS_S) if q.get("rq_affinity") in (0, 1)]
    if not fast:
        return
    done = evidence.window.rates("softirqs", "BLOCK")
    if not done:
        raise NotEnough("software interrupts were not sampled")
    hot = max(done, key=lambda cpu: done[cpu])
    core = next((core for core in evidence.cores if core.name == hot), None)
    if core is None or done[hot] < ON_ONE_CORE * sum(done.values()) or core.softirq < CORE_SOFTIRQ:
        return
    for device, queue in fast:
        yield Match(
            device.name,
            f"{hot} completes {share(done[hot] / sum(done.values()))} of the requests and spends "
            f"{share(core.softirq)} of its time on softirqs; rq_affinity of {device.name} is "
            f"{queue['rq_affinity']}.",
            (
                *_numbers(device),
                number(f"BLOCK/s on {hot}", done[hot], ",.0f"),
                number(f"softirq on {hot}", share(core.softirq)),
            ),
            (Remedy({f"volume.rq_affinity@{device.name}": 2}),),
        )


@rule(
    "BLK04",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_SYSFS}, nomerges: for known random loads",
    refute="With nomerges 0, requests per second and throughput are equivalent.",
)
def merging_is_off(evidence: Evidence) -> Iterator[Match]:
    """Merging of adjacent requests is turned off.

    This saves a lookup per request under a random load. Redo logs, binary logs, doublewrite and scans are not
    random: there every merge saves a request.
    """
    for device, _, queue in _worked(evidence, MANY_REQUESTS_S):
        if not queue.get("nomerges"):
            continue
        mean = device.bytes_s / max(device.operations, 1.0)
        yield Match(
            device.name,
            f"nomerges of {device.name} is {queue['nomerges']}; the mean request is {size(mean)}.",
            (*_numbers(device), number("bytes per request", mean, ",.0f")),
            (Remedy({f"volume.nomerges@{device.name}": 0}),),
        )


@rule(
    "BLK05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_SYSFS}, wbt_lat_usec",
    refute="With wbt_lat_usec 0, write throughput and the p99 of reads are equivalent.",
)
def writes_are_throttled(evidence: Evidence) -> Iterator[Match]:
    """Write-back throttling may hold the server's buffered writes back.

    The kernel sends fewer writes while reads take longer than a target. This protects readers from page cache
    write-back, but slows the page flushing of a server that writes its data through the page cache.
    """
    slow = [
        (device, queue)
        for device, _, queue in _worked(evidence, MANY_REQUESTS_S)
        if (queue.get("wbt_lat_usec") or 0) > 0 and (device.write_ms or 0.0) >= FLASH_SLOW_MS
    ]
    if not slow or not reads_buffered(evidence):
        return
    for device, queue in slow:
        yield Match(
            device.name,
            f"writes to {device.name} take {device.write_ms:.1f} ms; throttling targets reads of "
            f"{queue['wbt_lat_usec'] / 1e3:g} ms.",
            (*_numbers(device), number("wbt_lat_usec", queue["wbt_lat_usec"])),
            (Remedy({f"volume.wbt_lat_usec@{device.name}": 0}),),
        )


def reads_buffered(evidence: Evidence) -> bool:
    """Whether InnoDB reads and writes its data through the page cache. Raises NotEnough without a server."""
    if evidence.has_variable("innodb_data_file_buffering"):  # MariaDB 11.0
        return evidence.is_on("innodb_data_file_buffering")
    return "DIRECT" not in evidence.variable("innodb_flush_method").upper()


def _flushes(evidence: Evidence, name: str) -> tuple[float, float]:
    """Flushes per second and milliseconds each. Raises NotEnough before Linux 5.5, which does not count them."""
    each = evidence.rate("disk", "flushes", name)
    spent = evidence.rate("disk", "flush_ms", name)
    return each, spent / each if each else 0.0


@rule(
    "BLK06",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_SYSFS}, write_cache and stat (fields 16 and 17); Documentation/block/writeback_cache_control.rst",
    refute="On a device with a protected cache, commits per second and their p99 are equivalent.",
)
def flushes_of_a_volatile_cache(evidence: Evidence) -> Iterator[Match]:
    """Commits wait for a volatile write cache to be flushed.

    The device loses its cache when the power fails, so the kernel flushes it for every fsync, and a commit takes
    at least as long as a flush. Telling the kernel that there is no cache makes commits fast but loses committed
    transactions in a power cut, so it is not a fix.
    """
    for device, record, queue in _synced(evidence):
        # An array's members have the caches, and are counted separately. A device without one gets no flushes.
        if queue.get("write_cache") not in ("write back", None) or record.get("slaves"):
            continue
        flushes, each_ms = _flushes(evidence, device.name)
        if flushes < FLUSHES_S or each_ms < FLUSH_MS:
            continue
        yield Match(
            device.name,
            f"{device.name} has a volatile cache: {flushes:,.0f} flushes/s of {each_ms:.1f} ms each.",
            (
                number("flushes/s", flushes, ",.0f"),
                number("a flush", f"{each_ms:.2f} ms"),
                number("writes/s", device.writes, ",.0f"),
                number("write_cache", queue.get("write_cache") or "unknown"),
            ),
            (
                Remedy(
                    steps=(
                        "Use a device whose cache survives a power cut (it reports write through).",
                        "Or flush less often without losing commits: let more transactions share one flush "
                        "(more concurrent connections; binlog_group_commit_sync_delay, "
                        "binlog_commit_wait_usec).",
                    )
                ),
            ),
        )


@rule(
    "BLK07",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/block/writeback_cache_control.rst; kernel-parameters.txt, libata.fua",
    refute="With FUA, flushes per second fall, but commits per second and their p99 are equivalent.",
)
def no_forced_unit_access(evidence: Evidence) -> Iterator[Match]:
    """A device with a volatile cache has no FUA, so a journal's commit takes two flushes.

    With forced unit access (FUA) the kernel marks a single write to go straight to the medium. Without it, the
    kernel flushes before and after that write.
    """
    for device, record, queue in _synced(evidence):
        if queue.get("write_cache") != "write back" or queue.get("fua") is not False:
            continue
        flushes, each_ms = _flushes(evidence, device.name)
        if flushes < FLUSHES_S or each_ms < FLUSH_MS or record.get("driver") != "sd":
            continue
        yield Match(
            device.name,
            f"{device.name} has a volatile cache and no FUA: {flushes:,.0f} flushes/s of {each_ms:.1f} ms.",
            (
                number("flushes/s", flushes, ",.0f"),
                number("a flush", f"{each_ms:.2f} ms"),
                number("fua", 0),
            ),
            (
                Remedy(
                    steps=(
                        "If it is a SATA disk that supports FUA (hdparm -I): boot with libata.fua=1, and "
                        "check fua.",
                    )
                ),
            ),
        )


@rule(
    "BLK08",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source=f"{_SYSFS}, iostats",
    refute="With iostats 1, throughput is lower by more than the noise floor.",
)
def counters_are_off(evidence: Evidence) -> Iterator[Match]:
    """The kernel does not count the requests of a device, so its load cannot be seen.

    Every number about this device is missing here and in other tools, so headrace cannot say whether it limits the
    host.
    """
    for record in evidence.rows("block_devices"):
        queue = record.get("queue") or {}
        # Arrays and mappings are counted regardless of their own setting.
        if queue.get("iostats") is not False or not record.get("size_bytes") or record.get("slaves"):
            continue
        yield Match(
            str(record["name"]),
            f"iostats of {record['name']} ({size(record['size_bytes'])}) is off.",
            (number("iostats", 0), number("driver", record.get("driver") or "none")),
            (Remedy({f"volume.iostats@{record['name']}": 1}),),
        )


@rule(
    "BLK09",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_SYSFS}, add_random",
    refute="With add_random 0, CPU time per request and throughput are equivalent.",
)
def entropy_from_flash(evidence: Evidence) -> Iterator[Match]:
    """Every request to a solid-state device feeds the entropy pool.

    A disk's seek times are random and those of flash barely are, but every request still costs the work.
    """
    for device, record, queue in _worked(evidence, VERY_MANY_REQUESTS_S):
        if not queue.get("add_random") or record.get("rotational"):
            continue
        yield Match(
            device.name,
            f"add_random of {device.name} is on at {device.operations:,.0f} requests/s.",
            (*_numbers(device), number("add_random", 1)),
            (Remedy({f"volume.add_random@{device.name}": 0}),),
        )


@rule(
    "BLK10",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_SYSFS}, discard_max_bytes: a smaller value keeps latencies low",
    refute="With discard_max_bytes 64 MiB, writes during fstrim or DROP TABLE are as slow as before.",
)
def large_discards(evidence: Evidence) -> Iterator[Match]:
    """Writes wait while the device handles large discards.

    A freed file of many gigabytes is reported to the device in one request, and many devices do nothing else until
    they have handled it.
    """
    for device, _, queue in _worked(evidence, 0.0):
        largest = queue.get("discard_max_bytes") or 0
        discards = evidence.window.rate("disk", "discards", device.name) or 0.0
        spent = (evidence.window.rate("disk", "discard_ms", device.name) or 0.0) / 1e3
        if largest <= SMALL_DISCARD or spent < DISCARDING or max(device.wait_ms, 0.0) < FLASH_SLOW_MS:
            continue
        yield Match(
            device.name,
            f"{discards:,.1f} discards/s of up to {size(largest)} run on {device.name} while a request takes "
            f"{device.wait_ms:.1f} ms.",
            (
                *_numbers(device),
                number("discards/s", discards, ",.1f"),
                number("of the time in discards", share(spent)),
                number("largest", size(largest)),
            ),
            (Remedy({f"volume.discard_max_bytes@{device.name}": SMALL_DISCARD}),),
            None if evidence.asks_disks else Severity.HOUSEKEEPING,
        )


@rule(
    "BLK12",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012); Linux "
    "Documentation/admin-guide/iostats.rst",
    refute="With a tenth less load on it, or on a faster device, throughput and p99 of the server are equivalent.",
)
def device_saturated(evidence: Evidence) -> Iterator[Match]:
    """A block device is saturated, and requests queue for it.

    More threads or connections only lengthen the queue. Only fewer requests or a faster device help. Layers of one
    stack that are saturated together, such as the paths of one volume, are one finding.
    """
    if "disk" not in evidence.window.samplers():
        raise NotEnough("block devices were not sampled")
    full = {use.instance: use for use in _saturated(evidence)}
    for stack in stacks(evidence.window, evidence.facts, list(full.values()), evidence.used_devices):
        use = full[stack.named]
        kind = "reads" if use.numbers["reads"] > use.numbers["writes"] else "writes"
        less = (
            "Read less: a larger buffer pool, an index for the statements that scan."
            if kind == "reads"
            else "Write less: a larger redo log, fewer secondary indexes, a binary log on another device."
        )
        if _is_of_others(evidence):
            less = (
                "Most of the I/O is not from the server: find the programs that read and write, and move or "
                "limit them."
            )
        is_apart = evidence.used_devices is not None and use.instance not in evidence.used_devices
        yield Match(
            use.instance,
            f"{use.instance}: {use.load}; {use.saturation}.{stack.said}"
            + (" None of the server's files is known to be on it." if is_apart else ""),
            (
                number("requests/s", use.numbers["operations"], ",.0f"),
                number("requests in flight", use.numbers["queue"], ".1f"),
                number("time per request", f"{use.numbers['wait_ms']:.2f} ms"),
                number("limit", use.limit or "not measured"),
            ),
            (Remedy(steps=(less, "Or use a faster device: measure both under the same load.")),),
            Severity.ADVICE if is_apart else None,
        )


def _saturated(evidence: Evidence) -> list[ResourceUsage]:
    return [use for use in evidence.verdict.uses if use.resource == "block" and use.level is Level.SATURATED]


def _is_of_others(evidence: Evidence) -> bool:
    """Whether programs other than the servers do most of the host's reads and writes."""
    found = evidence.programs
    own = sum(program.io_bytes_s for program in found if program.is_server)
    return own < sum(program.io_bytes_s for program in found) / 2


def _waited_for_io(evidence: Evidence) -> str:
    """Evidence that tasks wait for devices; empty if they rarely do. Without PSI only blocked tasks show it."""
    pressure = evidence.window.rate("psi", "some_total_us", "io")
    if pressure is not None:
        waits = pressure / 1e6
        return f"tasks wait for I/O {share(waits)} of the time" if waits >= WAITS_FOR_IO else ""
    blocked = evidence.gauge("cpu", "procs_blocked").mean
    return f"{blocked:.1f} tasks are blocked in I/O on average" if blocked >= 1 else ""


@rule(
    "BLK13",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/accounting/psi.rst; this project's founding case: a RAID-0 of four SSDs doing 800 "
    "requests a second",
    refute="With more requests in flight (more I/O threads, more connections), the device still does no "
    "more.",
)
def far_below_its_limit(evidence: Evidence) -> Iterator[Match]:
    """Tasks wait for I/O from a device that runs far below its measured limit.

    The device has one or two requests in flight and could serve many. Something above it issues them one at a
    time: a lock, a single thread, a single queue.
    """
    if not evidence.limits:
        raise NotEnough("no device limit was measured: headrace latencies measures it")
    for device, _, _ in _worked(evidence, 1.0):
        limit = evidence.limits.get(device.name)
        if limit is None or device.operations > FAR_BELOW * limit or device.queue > HARDLY_ASKED:
            continue
        waited = _waited_for_io(evidence)
        if not waited:
            continue
        settings: dict[str, Any] = {
            f"server.{name}": 16
            for name in ("innodb_read_io_threads", "innodb_write_io_threads")
            if evidence.has_variable(name) and evidence.number(name) < 16
        }
        look = Remedy(
            steps=(
                "Find where threads wait: kernel stacks per thread, performance_schema waits, a profile.",
            ),
            label="find the lock",
        )
        more = (Remedy(settings, label="more I/O threads"),) if settings else ()
        yield Match(
            device.name,
            f"{waited}, yet {device.name} does {device.operations:,.0f} of the {limit:,.0f} requests/s "
            # Old kernels count the requests of an array, but not their time.
            f"measured{f', {device.queue:.1f} in flight' if device.queue else ''}.",
            (
                *_numbers(device),
                number("measured, requests/s", limit, ",.0f"),
                number("waiting", waited),
            ),
            (look, *more),
        )


@rule(
    "BLK14",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="Linux block/elevator.c: elevator= does not have any effect anymore (no single queue since 5.0)",
    refute="/sys/block/*/queue/scheduler changes with the parameter at the next boot.",
)
def scheduler_of_the_past(evidence: Evidence) -> Iterator[Match]:
    """The kernel command line sets an I/O scheduler that this kernel ignores.

    Advice from 2015 says elevator=noop or deadline. These schedulers went away with the single-queue block layer;
    their replacements, none and mq-deadline, are set per device.
    """
    found = re.search(r"\belevator=(\S+)", str((evidence.raw.get("kernel") or {}).get("command_line") or ""))
    if found is None or not evidence.kernel_at_least(5, 0):
        return
    now = {"noop": "none", "deadline": "mq-deadline", "cfq": "bfq"}.get(found[1], found[1])
    in_use = {
        str(d["name"]): str((d.get("queue") or {}).get("scheduler"))
        for d in evidence.rows("block_devices")
        if d.get("kind") == "disk"
    }
    yield Match(
        "",
        f"elevator={found[1]} is on the command line of kernel {evidence.facts.kernel_release}, which ignores it; "
        f"{found[1]} is called {now} now.",
        (
            number("kernel", evidence.facts.kernel_release),
            number("schedulers in use", ", ".join(f"{name} {value}" for name, value in in_use.items())),
        ),
        (
            Remedy(
                steps=(
                    f"Remove elevator={found[1]} from the kernel command line; if you want {now}, set it "
                    f'with a udev rule: ATTR{{queue/scheduler}}="{now}".',
                )
            ),
        ),
    )
