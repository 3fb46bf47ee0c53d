"""What is saturated? Utilisation, saturation and errors of every resource over a window, worst first.

After the USE method (B. Gregg, "Thinking Methodically about Performance", ACM Queue 10.12, 2012). A value that
cannot be known (a virtual machine without the counter, an interface without a speed) is UNKNOWN, never fine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.base.counted import counted
from headrace.host.cores import Core, cores
from headrace.host.devices import (
    DEEP_QUEUE,
    NEVER_RESTS,
    Device,
    Unloaded,
    devices,
    is_timed,
    scaling,
    serves_one_at_a_time,
    unloaded,
    waits_of_queue,
)
from headrace.host.facts import HostFacts, link_speed_mbit_s
from headrace.host.window import Window
from headrace.hunt import gaps, io_waits, namespaced, sessions, stacked, users
from headrace.hunt.hot_cores import BY_INTERRUPTS, FULL, Hot, hot, shares
from headrace.hunt.hot_cores import percent as _percent
from headrace.hunt.hot_cores import sentence as of_several
from headrace.hunt.reclaim import (
    MUCH_SWAPPED_IN_S,
    direct_reclaim,
    in_groups_only,
    is_memory_short,
    reclaimable_cache_bytes,
    waits_in_other_groups,
)
from headrace.hunt.segments import RETRANSMITTED, lost_segments

#: Above this a resource is worth a look, though nothing waits for it yet.
BUSY = 0.70
#: Maximum single cores to name; if there are more, it is a problem of the host, not of a core.
MOST_CORES = 4
#: Share of the time in which some task waited (PSI): above which it is more than noise, and above which it
#: dominates.
PRESSURE_SEEN, PRESSURE_HIGH = 0.05, 0.25
#: Share of CPU time that the hypervisor gave to others.
STEAL_SEEN, STEAL_HIGH = 0.02, 0.10
#: Share of the CPU time that a server wanted, below which what its quota took is a burst.
QUOTA_COSTS = 0.05
#: Packets dropped of those that a core received, above which clients notice; below it is one burst per day.
LOST = 1e-4
#: Connections per second that a full accept queue refuses; less often it is a burst.
REFUSED_S = 1.0
#: The slowest Ethernet.
SLOWEST_MBIT_S = 10.0
#: Threads at work in a server above which they are more than a hand-over between two statements ...
MANY_RUNNING = 4.0
#: ... and more than this many times the CPUs that they use: most of them wait.
TIMES_CORES = 2.0
#: Of CPUs that are full: pressure and the run queue tell it, and a dump may have neither.
QUEUE_UNKNOWN = "whether tasks wait for a CPU is unknown"
#: Of a dump, which does not tell what is in the control group that it has.
OF_SAVED_GROUP = "the CPU quota of the saved control group"
#: A server that uses less than this share of a CPU is not mentioned.
MENTIONED = 0.2


class Level(StrEnum):
    SATURATED = "saturated"  # requests are queued
    BUSY = "busy"  # much used, and little or nothing waits
    UNKNOWN = "unknown"  # the data is missing
    FINE = "fine"


_WORST_FIRST = list(Level)


@dataclass(frozen=True)
class ResourceUsage:
    """One resource over the window.

    ``resource`` is its kind (cpu, core, block, memory, network, ...), ``instance`` which one. ``utilisation`` is
    0 to 1 or None if it cannot be known; ``saturation`` and ``errors`` are sentences with numbers, empty if there
    is nothing to say; ``load`` is what it did; ``limit`` what it can do, with the source of that number; ``traps``
    say how the bare number would mislead a reader; ``users`` who uses it, the most first, where it is short.
    """

    resource: str
    instance: str
    level: Level
    utilisation: float | None
    load: str = ""
    saturation: str = ""
    errors: str = ""
    limit: str = ""
    traps: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    users: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.resource} {self.instance}".strip()


@dataclass(frozen=True)
class Verdict:
    """``limiting`` is the saturated resource, None if there is none or it is unknown; ``sentence`` says it, and
    ``causes`` are the ids of the findings that it names."""

    sentence: str
    limiting: ResourceUsage | None
    uses: tuple[ResourceUsage, ...]
    causes: tuple[str, ...] = ()


def of_server(window: Window, facts: HostFacts) -> Window:
    """The window as of the server that was asked: without the control groups of others, whose limits hold up only
    those, and with its process; without any counters of a host, or network namespace, that is not the server's."""
    if facts.only_sql:
        return window.without_host(facts.only_sql)
    found = window.kept("cgroup", lambda label: facts.has_group(label.partition(" ")[0]))
    found.server_pid = (facts.server_process or {}).get("pid")
    if why := namespaced.why_not_of_server(facts):
        found = found.without(namespaced.SAMPLERS, why)
    return found


def judge(
    window: Window,
    facts: HostFacts,
    limits: Mapping[str, float] | None = None,
    alone_ms: Mapping[str, float] | None = None,
    own_devices: Collection[str] | None = None,
) -> Verdict:
    """The verdict on a window. ``limits`` are measured limits: device -> operations per second; ``alone_ms`` what
    a request of a device was measured to take without load; ``own_devices`` hold the server's files, None
    if that is not known: another one may be full, and limits others."""
    window = of_server(window, facts)
    changed = None if window.only_server else gaps.changed_cpus(window)
    now = changed.window if changed else window
    uses = [
        *_cpu(now, facts),
        *_softirq(window),
        *_block(window, facts, limits or {}, alone_ms or {}),
        *_memory(window, facts),
        *_network(window, facts),
    ]
    uses = [_with_users(now if use.resource in ("cpu", "core") else window, use) for use in uses]
    uses.sort(key=lambda use: (_WORST_FIRST.index(use.level), -(use.utilisation or 0.0)))
    full = [use for use in uses if use.level is Level.SATURATED]
    apart = _apart(window, full, own_devices)
    limiting = next((use for use in full if use not in apart), None)
    if limiting is not None and limiting.resource == "block":
        limiting = _of_stack(window, facts, full, own_devices, limiting.instance)
    seen = [u for u in uses if u not in apart or u.resource != "core"]
    sentence = _sentence(window, facts, seen, limiting, len(cores(now)) - 1)
    others = {use.instance for use in apart}
    several = [one for one in hot(cores(now)[1:]) if one.is_full and one.core.name not in others]
    if limiting is not None and limiting.resource == "core" and len(several) > 1:
        sentence = of_several(window, facts.server_process or {}, several)
    if apart and limiting is None:
        for nothing in ("Nothing limits this host", "Nothing is saturated", "No hardware is saturated"):
            sentence = sentence.replace(nothing, "Nothing that the server uses is saturated", 1)
        sentence += "".join(
            f" {use.instance} is full of other work ({use.load}), and no thread of the server waits for it"
            + (f": used by {', '.join(use.users)}." if use.users else ".")
            if use.resource == "core"
            else f" {use.instance} is saturated ({use.load}; {use.saturation}), but nothing that "
            "the server waits for is known to be on it."
            for use in apart
        )
    if changed:
        sentence += f" {changed.said}."
    return Verdict(sentence, limiting, tuple(uses))


def _of_stack(
    window: Window, facts: HostFacts, full: Sequence[ResourceUsage], own: Collection[str] | None, name: str
) -> ResourceUsage:
    """Of a stack of devices that are full the layer that findings name, too."""
    blocks = {use.instance: use for use in full if use.resource == "block"}
    stacks = stacked.stacks(window, facts, list(blocks.values()), own)
    return blocks[next(stack.named for stack in stacks if name in stack.names)]


def _by_interrupts(use: ResourceUsage) -> bool:
    return use.numbers["softirq"] + use.numbers["irq"] >= BY_INTERRUPTS * use.numbers["busy"]


def _apart(
    window: Window, full: Sequence[ResourceUsage], own_devices: Collection[str] | None
) -> list[ResourceUsage]:
    """What is full, and not of the server: devices without its files, and cores with other programs."""
    found = [use for use in full if use.resource != "core" and _is_apart(window, use, own_devices)]
    of_programs = [use for use in full if use.resource == "core" and not _by_interrupts(use)]
    busy = sum(use.numbers["busy"] for use in of_programs)
    # Which core is whose is not counted: other programs have all of them, or nobody knows which.
    if of_programs and window.server_pid is not None and users.fills_cores(window, busy, len(of_programs)):
        found += of_programs
    return found


def _is_apart(window: Window, use: ResourceUsage, own_devices: Collection[str] | None) -> bool:
    """Whether a device has none of the server's files; where the host swaps, any device may have its memory."""
    swaps = any((window.rate("vmstat", name) or 0.0) >= 1 for name in ("pswpin", "pswpout"))
    return (
        use.resource == "block" and own_devices is not None and use.instance not in own_devices and not swaps
    )


def _with_users(window: Window, use: ResourceUsage) -> ResourceUsage:
    """Who uses it, where it is short and the host counts that per process."""
    if use.level not in (Level.SATURATED, Level.BUSY):
        return use
    if use.resource == "cpu":
        return replace(use, users=users.of_cpu(window, use.numbers["busy"] * (len(cores(window)) - 1)))
    if use.resource == "core" and not _by_interrupts(use):
        return replace(use, users=users.of_core(window))
    if use.resource == "block":
        return replace(use, users=users.of_io(window))
    if use.resource == "memory" and "total_bytes" in use.numbers:
        return replace(use, users=users.of_memory(window, use.numbers["total_bytes"]))
    return use


def _rate(rate: float) -> str:
    """``0.017``: one in a minute is not none."""
    return f"{rate:,.1f}" if rate >= 0.0995 or rate == 0 else f"{rate:.2g}"


def _pressure(window: Window, resource: str, kind: str = "some") -> float | None:
    """The share of the time in which some (or all) tasks waited for a resource."""
    rate = window.rate("psi", f"{kind}_total_us", resource)
    return None if rate is None else rate / 1e6


def _cpu(window: Window, facts: HostFacts) -> Iterator[ResourceUsage]:
    found = cores(window)
    if not found:
        yield ResourceUsage("cpu", "", Level.UNKNOWN, None, saturation=gaps.why_unknown(window))
        return
    everything, each = found[0], found[1:]
    yield _all_cores(window, len(each) or facts.cpus_known, everything)
    if len(each) < 2:
        return
    alone = [_of_core(one) for one in hot(each)]
    for use in alone[:MOST_CORES]:
        more = f"; {len(alone) - MOST_CORES} more cores look the same" if len(alone) > MOST_CORES else ""
        trap = f"the average over all cores, {_percent(everything.busy)}, hides it"
        yield replace(use, saturation=use.saturation + more, traps=(trap,))


def _of_core(one: Hot) -> ResourceUsage:
    core = one.core
    return ResourceUsage(
        "core",
        core.name,
        Level.SATURATED if one.is_full else Level.BUSY,
        core.busy,
        load=f"{_percent(core.busy)} busy: {shares(core)}",
        saturation=(
            f"the other {one.count} are {_percent(one.others)} busy on average"
            if one.count > 1
            else f"the other is {_percent(one.others)} busy"
        ),
        numbers={"busy": core.busy, "softirq": core.softirq, "irq": core.irq, "others": one.others},
    )


def _all_cores(window: Window, count: int, core: Core) -> ResourceUsage:
    pressure = _pressure(window, "cpu")
    running = window.gauge("cpu", "procs_running")
    throttled = window.total_growth("cgroup", "throttled_us")
    waits, traps = [], []
    if pressure is not None and pressure >= PRESSURE_SEEN:
        waits.append(f"tasks waited for a CPU {_percent(pressure)} of the time")
    if running is not None and count and running.mean > count + 0.5:
        waits.append(f"{running.mean:.1f} tasks were runnable on {count} CPUs")
    if throttled and throttled > 0.01e6 * window.seconds:
        # Counted on each CPU, so that it may be more than the time that passed.
        kind = " of CPU time in" if throttled > 1e6 * window.seconds else " of"
        whose = OF_SAVED_GROUP if window.labels("cgroup", "members_unknown") else "the cgroup's quota"
        waits.append(f"{whose} throttled it for {throttled / 1e6:.1f} s{kind} {window.seconds:.0f}")
    if core.busy >= FULL and pressure is None and (running is None or not count):
        waits.append(QUEUE_UNKNOWN)
    if core.steal >= STEAL_SEEN:
        waits.append(f"{_percent(core.steal)} was stolen by the hypervisor")
    if core.iowait >= PRESSURE_SEEN:
        traps.append(f"{_percent(core.iowait)} iowait is idle time: the CPUs had room")
    if pressure is None:
        traps.append("no pressure counters (/proc/pressure): only the run queue shows whether tasks waited")
    if jumps := gaps.jumps(window):
        traps.append(jumps)
    is_full = core.busy >= FULL or core.busy + core.steal >= FULL
    queued = running is not None and count > 0 and running.mean > count
    is_short = (pressure or 0) >= PRESSURE_HIGH or (pressure is None and queued)
    lost = (throttled or 0.0) / 1e6 / window.seconds
    held_back = (
        lost > max(0.1, QUOTA_COSTS * (lost + users.busiest_server(window)[1])) or core.steal >= STEAL_HIGH
    )
    level = Level.BUSY if core.busy >= BUSY else Level.FINE
    if (is_full and is_short) or held_back:
        level = Level.SATURATED
    return ResourceUsage(
        "cpu",
        "",
        level,
        core.busy,
        load=f"{_percent(core.busy)} of {counted(count, 'CPU') if count else 'all CPUs'}: {shares(core)}",
        saturation="; ".join(waits),
        traps=tuple(traps),
        numbers={
            "busy": core.busy,
            "idle": 1 - core.busy - core.steal,
            "iowait": core.iowait,
            "steal": core.steal,
            "pressure": pressure if pressure is not None else float("nan"),
        },
    )


def _softirq(window: Window) -> Iterator[ResourceUsage]:
    """The network's receive path on each core: drops there are lost packets that no interface counts."""
    dropped = window.rates("softnet", "dropped")
    for cpu, rate in dropped.items():
        if rate > 0:
            processed = window.rate("softnet", "processed", cpu) or 0.0
            yield ResourceUsage(
                "softirq",
                cpu,
                Level.SATURATED if rate >= LOST * processed else Level.BUSY,
                None,
                load=f"{processed:,.0f} packets/s",
                errors=f"{_rate(rate)} packets/s dropped: the core's backlog was full",
                numbers={"dropped": rate, "processed": processed},
            )


def _block(
    window: Window, facts: HostFacts, limits: Mapping[str, float], alone_ms: Mapping[str, float]
) -> Iterator[ResourceUsage]:
    if "disk" not in window.samplers():
        yield ResourceUsage("block", "", Level.UNKNOWN, None, saturation="block devices were not sampled")
        return
    for uncounted in facts.block_devices:
        # Arrays and mappings are counted regardless of their own setting.
        if (uncounted.get("queue") or {}).get("iostats") is False and not uncounted.get("slaves"):
            why = "the kernel does not count its requests (iostats is 0)"
            yield ResourceUsage("block", str(uncounted["name"]), Level.UNKNOWN, None, saturation=why)
    for line in window.labels("disk", "unread"):
        yield ResourceUsage(
            "block", line[:40], Level.UNKNOWN, None, saturation="/proc/diskstats has no numbers"
        )
    for device in devices(window):
        record = facts.block_device(device.name)
        if record is not None and record.get("kind") == "partition":
            continue
        yield _one_device(window, device, record, limits.get(device.name), alone_ms.get(device.name))


def _one_device(
    window: Window,
    device: Device,
    record: Mapping[str, Any] | None,
    limit: float | None,
    alone_ms: float | None,
) -> ResourceUsage:
    done = f"{device.reads:,.0f} reads/s, {device.writes:,.0f} writes/s"
    if device.mixed:
        done = f"{device.mixed:,.0f} requests/s (reads and writes not told apart)"
    load = f"{done}, {device.bytes_s / 1e6:,.1f} MB/s"
    if not limit and not is_timed(window, device.name):
        if (record or {}).get("slaves"):
            # Old kernels count an array's requests, but not their time.
            why = "its members show how long they take"
            return ResourceUsage("block", device.name, Level.FINE, None, load, why, numbers=device.numbers())
        uncounted = window.growth("disk", "io_ms", device.name) is not None
        why = "neither the time of its requests nor how many are in flight is known; iostat -x prints both"
        why = "the kernel counts its requests and not their time" if uncounted else why
        numbers = {"operations": device.operations}
        return ResourceUsage("block", device.name, Level.UNKNOWN, None, load, why, numbers=numbers)
    waiting = [
        f"{ms:.2f} ms per {kind}"
        for kind, ms in (("read", device.read_ms), ("write", device.write_ms), ("request", device.mixed_ms))
        if ms is not None
    ]
    if not device.is_each_timed and device.operations:
        waiting.append(f"{device.wait_ms:.2f} ms per request")
    saturation = f"{device.queue:.1f} requests in flight, {', '.join(waiting) or 'flushes only'}"
    if not device.queue and (record or {}).get("slaves"):
        saturation = "its members show how long they take"
    spindle = serves_one_at_a_time(record)
    traps: tuple[str, ...] = ()
    if device.utilisation >= BUSY and not spindle:
        traps = (
            f"%util {100 * device.utilisation:.0f} only means that it was rarely idle: it serves many "
            "requests concurrently",
        )
    alone = unloaded(window, device, record, alone_ms)
    level, known = _level_of(window, device, spindle, limit, alone)
    if level is Level.SATURATED and not spindle and device.main_ms > alone.ms:
        saturation += f", against {alone.ms:.2f} ms {alone.source}"
    utilisation = device.utilisation if spindle else None
    if limit:
        utilisation = device.operations / limit
        if level is Level.SATURATED and utilisation < BUSY:
            traps = (
                *traps,
                "far below the measured limit: the mix of requests differs, or something holds it back",
            )
    numbers = {**device.numbers(), "alone_ms": alone.ms}
    return ResourceUsage(
        "block", device.name, level, utilisation, load, saturation, "", known, traps, numbers
    )


def _level_of(
    window: Window, device: Device, spindle: bool, limit: float | None, alone: Unloaded
) -> tuple[Level, str]:
    """The level, and what the device can do with the source of that number."""
    measured = f"{limit:,.0f} operations/s, measured" if limit else ""
    if limit and device.operations >= FULL * limit:
        return Level.SATURATED, measured
    if spindle and device.utilisation >= NEVER_RESTS and device.queue >= 2:
        mix = f"about {device.operations:,.0f} operations/s with this mix: it is never idle"
        return Level.SATURATED, measured or mix
    # A limit holds for the mix that it was measured with, so current waits weigh more.
    if not spindle and device.utilisation >= NEVER_RESTS and device.queue >= DEEP_QUEUE:
        more = scaling(window, device.name)
        if more == "flat" or (more != "room" and waits_of_queue(device, alone)):
            is_flat = more == "flat"
            why = "more requests in flight brought no more throughput" if is_flat else "requests queue in it"
            return Level.SATURATED, measured or (
                f"about {device.operations:,.0f} operations/s with this mix: {why}"
            )
    is_busy = device.operations >= BUSY * limit if limit else spindle and device.utilisation >= BUSY
    return Level.BUSY if is_busy else Level.FINE, measured


def _memory(window: Window, facts: HostFacts) -> Iterator[ResourceUsage]:
    available = window.gauge("memory", "MemAvailable")
    total = window.last("memory", "MemTotal")
    swapped_in = window.rate("vmstat", "pswpin")
    swapped_out = window.rate("vmstat", "pswpout")
    reclaim = direct_reclaim(window)
    kills = window.growth("vmstat", "oom_kill") or 0.0
    pressure, full = _pressure(window, "memory"), _pressure(window, "memory", "full")
    waits = []
    if pressure is not None and pressure >= 0.01:
        waits.append(f"tasks waited for memory {_percent(pressure)} of the time")
    if swapped_in and swapped_in >= 1:
        waits.append(f"{swapped_in:,.0f} pages/s swapped in, {swapped_out or 0:,.0f} out")
    of_others = bool(waits) and waits_in_other_groups(window)
    if of_others:
        waits.append("at the limits of other control groups: the host had enough")
    if reclaim and reclaim >= 1:
        waits.append(f"{reclaim:,.0f} pages/s scanned by tasks that had to free memory themselves")
    is_short = is_memory_short(window, MUCH_SWAPPED_IN_S)
    is_short |= kills > 0 and not in_groups_only(window)
    if available is None or not total:
        # Kernels before 3.14 do not have it. The absence of swapping means little: the page cache may be almost
        # empty.
        was = (
            "available memory was not reported" if "memory" in window.samplers() else "memory was not sampled"
        )
        level = Level.SATURATED if is_short else Level.UNKNOWN
        yield ResourceUsage("memory", "", level, None, saturation="; ".join([*waits, was]))
        return
    cache = reclaimable_cache_bytes(window)
    if cache is None and facts.has_zfs and not is_short:
        yield ResourceUsage(
            "memory",
            "",
            Level.UNKNOWN,
            None,
            load=f"{total / 2**30:.1f} GiB in all",
            saturation="; ".join(waits),
            traps=("ZFS's cache counts as used memory, and its size was not sampled: how much is available",),
        )
        return
    low = min(available.low + (cache or 0.0), total)
    used = 1 - low / total
    level = Level.SATURATED if is_short else Level.BUSY if used >= FULL or kills else Level.FINE
    where = "" if is_short else ", in control groups of their own: the host had enough"
    yield ResourceUsage(
        "memory",
        "",
        level,
        used,
        load=f"at least {low / 2**30:.1f} GiB of {total / 2**30:.1f} GiB available"
        + (f", {cache / 2**30:.1f} of these in ZFS's cache" if cache else ""),
        saturation="; ".join(waits),
        errors=f"{kills:.0f} processes killed for lack of memory{where}" if kills else "",
        traps=() if full is not None else ("no pressure counters: only swapping shows waits for memory",),
        numbers={"available_bytes": low, "total_bytes": total},
    )


def _network(window: Window, facts: HostFacts) -> Iterator[ResourceUsage]:
    if "network" not in window.samplers():
        yield ResourceUsage("network", "", Level.UNKNOWN, None, saturation="interfaces were not sampled")
    for name in window.labels("network", "rx_bytes"):
        received, sent = (window.rate("network", f"{way}_bytes", name) or 0.0 for way in ("rx", "tx"))
        if received + sent <= 0:
            continue
        yield _interface(window, facts, name, received, sent)
    yield from _unread(window)
    lost, out = lost_segments(window), window.rate("snmp", "Tcp.OutSegs")
    overflows = window.rate("snmp", "TcpExt.ListenOverflows") or 0.0
    if out and out >= 100 and lost is not None:
        share = lost / out
        bad = share >= RETRANSMITTED or overflows >= REFUSED_S
        errors = (
            [f"{_percent(share)} of the segments lost and retransmitted"] if share >= RETRANSMITTED else []
        )
        if overflows > 0:
            errors.append(f"{_rate(overflows)} connections/s refused: an accept queue was full")
        yield ResourceUsage(
            "tcp",
            "",
            Level.SATURATED if bad else Level.BUSY if overflows > 0 else Level.FINE,
            None,
            load=f"{out:,.0f} segments/s sent",
            errors="; ".join(errors),
            numbers={"retransmitted": share, "overflows": overflows},
        )


def _unread(window: Window) -> Iterator[ResourceUsage]:
    """Interfaces whose line in /proc/net/dev has no numbers: one may be a card that is full."""
    for name in window.labels("network", "unread"):
        card = name.partition(":")[0]
        is_alias = card != name and card in window.labels("network", "rx_bytes")
        why = f"{card} counts its packets" if is_alias else "its line in /proc/net/dev has no numbers"
        level = Level.FINE if is_alias else Level.UNKNOWN
        yield ResourceUsage("network", name, level, None, saturation=why)


def _interface(window: Window, facts: HostFacts, name: str, received: float, sent: float) -> ResourceUsage:
    record = facts.network_interface(name) or {}
    packets = [window.rate("network", f"{way}_packets", name) or 0.0 for way in ("rx", "tx")]
    flows = [
        (p, b * 8 / 1e6, way) for p, b, way in zip(packets, (received, sent), ("in", "out"), strict=True)
    ]
    lost = {
        metric: window.rate("network", metric, name) or 0.0
        for metric in ("rx_errors", "rx_dropped", "rx_fifo", "tx_errors", "tx_dropped")
    }
    carried = max(received, sent) * 8 / 1e6
    speed = link_speed_mbit_s(record, carried)
    utilisation = carried / speed if speed else None
    # Bridges, bonds and the like have no speed; the interfaces beneath them have one.
    beneath = any(each.get("physical") for each in facts.network_interfaces)
    is_own = name == "lo" or (bool(record) and not record.get("physical") and beneath)
    traps: tuple[str, ...] = ()
    if utilisation is None and (claimed := link_speed_mbit_s(record)):
        traps = (f"it reports {claimed:,} Mbit/s and carried more: its speed is not known",)
    elif utilisation is None and not is_own:
        traps = ("the interface does not report its speed",)
    # Without its speed, too: no interface is slower than this.
    is_own = is_own or carried < BUSY * SLOWEST_MBIT_S
    if (
        utilisation is not None
        and utilisation >= BUSY
        and (clients := sessions.client_mbit_s(window)) is not None
    ):
        traps = (*traps, f"the server's clients have {_percent(min(clients / carried, 1.0))} of it")
    errors = ", ".join(f"{rate:,.1f} {metric}/s" for metric, rate in lost.items() if rate > 0)
    level = Level.FINE if utilisation is not None or is_own else Level.UNKNOWN
    if utilisation is not None and utilisation >= FULL:
        level = Level.SATURATED
    elif utilisation is not None and utilisation >= BUSY:
        level = Level.BUSY
    return ResourceUsage(
        "network",
        name,
        level,
        utilisation,
        load=", ".join(f"{p:,.0f} packets/s ({m:,.1f} Mbit/s) {way}" for p, m, way in flows),
        errors=errors,
        limit=f"{speed:,} Mbit/s, as the interface reports" if utilisation is not None else "",
        traps=traps,
        numbers={"rx_packets": packets[0], "tx_packets": packets[1], **lost},
    )


def _sentence(
    window: Window,
    facts: HostFacts,
    uses: list[ResourceUsage],
    limiting: ResourceUsage | None,
    sampled_cpus: int,
) -> str:
    if limiting is not None:
        what = "; ".join(filter(None, (limiting.load, limiting.errors or limiting.saturation)))
        used = f" Used by {', '.join(limiting.users)}." if limiting.users else ""
        if limiting.resource == "network" and limiting.traps:
            what += f"; {limiting.traps[-1]}"
        if OF_SAVED_GROUP in limiting.saturation and limiting.numbers["busy"] < FULL:
            who = "what runs in it, and whether the server does is unknown"
            return f"T{OF_SAVED_GROUP[1:]} limits {who} (the machine: {what}).{used}"
        return f"{_titled(limiting)} limits this host: {what}.{used}"
    cpu = next((use for use in uses if use.resource == "cpu"), None)
    if cpu is None or cpu.utilisation is None:
        return f"The bottleneck of this host is unknown: {gaps.why_unknown(window)}."
    unknown = [use.name for use in uses if use.level is Level.UNKNOWN]
    are = "is" if len(unknown) == 1 else "are"
    blind = f" Not known: how busy {', '.join(unknown)} {are}." if unknown else ""
    if cpu.level is Level.BUSY:
        busy = _percent(cpu.utilisation)
        if QUEUE_UNKNOWN in cpu.saturation:
            return f"The CPUs are {busy} busy; {QUEUE_UNKNOWN}: {gaps.what_tells_the_queue(window)}.{blind}"
        if cpu.utilisation >= FULL:  # nobody would believe that nothing is saturated
            return f"The CPUs are {busy} busy, and hardly any task waits for one yet: more work would.{blind}"
        return f"Nothing is saturated; the CPUs are {busy} busy and will saturate next.{blind}"
    idle = _percent(1 - cpu.utilisation)
    if waits := io_waits.clause(window, facts, uses):
        return f"No hardware is saturated: the CPUs are {idle} idle, yet {waits}{blind}"
    core = next((use for use in uses if use.resource == "core"), None)
    if core is not None:
        return (
            f"Nothing is saturated; {core.name} is {core.load} ({core.saturation}), and will saturate "
            f"next.{blind}"
        )
    program, cpus = users.busiest_server(window)
    running = sessions.running(window, len(facts.replicas or ()))
    count = sampled_cpus or facts.cpus_known
    # Where processes are not seen, it uses no more than is used in all.
    most = cpus if program else cpu.utilisation * count
    if running is not None and running - 1 >= max(MANY_RUNNING, TIMES_CORES * most):
        uses_only = f"threads use {'only' if program else 'at most'} {most:.1f} CPUs"
        return (
            f"No hardware is saturated: the CPUs are {idle} idle, but {running:.0f} active server "
            f"{uses_only}: they wait on each other (locks or hot code paths).{blind}"
        )
    works = f", {program} uses {cpus:.1f} of {count or 'an unknown number'}" if cpus >= MENTIONED else ""
    nothing = "Nothing that could be measured limits this host" if unknown else "Nothing limits this host"
    return f"{nothing}: the CPUs are {idle} idle{works}.{blind}"


def _titled(use: ResourceUsage) -> str:
    names = {"cpu": "CPU time", "memory": "Memory", "tcp": "TCP", "core": "Core", "block": "The device"}
    names |= {"network": "The interface", "softirq": "Packet receive work on"}
    return f"{names.get(use.resource, use.resource)} {use.instance}".strip()
