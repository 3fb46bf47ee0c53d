"""Rules about hardware that is full, slowed down, or kept from the server; and buffers of other engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.counted import counted
from headrace.base.model import Value
from headrace.host.cores import Core
from headrace.hunt.hot_cores import FULL
from headrace.hunt.rules import sizes
from headrace.hunt.rules.cached import aside
from headrace.hunt.rules.evidence import MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.pool import STEP_BYTES
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.users import busiest_server

#: Share of the CPU time in use that is the server's own, above which its statements are what to look at.
MOSTLY_SERVER = 0.5
#: Classes of statements to name, and the share of the time from which on one is the cause alone.
NAMED, ONE_CLASS = 3, 0.5
#: Idle time of CPUs that the server may not use, as a share of those that it may: below the first a gain is hard
#: to see, and from the second on the mask is a bottleneck.
LITTLE_ROOM, MUCH_ROOM = 0.10, 0.25
#: Times per second that a CPU slows itself down.
THROTTLED_S = 0.1
#: Below this the CPUs are mostly idle, and their frequency affects latency only.
WORTH_ITS_FREQUENCY = 0.30
#: A highest frequency below this share of the hardware's is a cap, not a rounding of the driver.
CAPPED = 0.95
#: Pages per second that a NUMA node could not give and another had to: 40 MB/s.
FOREIGN_S = 10_000.0
#: A sync of the log above this is not a local flash device; as a share of the time, the log is the limit.
SLOW_SYNC_MS, SYNCING, MOSTLY_SYNCING = 2.0, 0.20, 0.50
#: MyISAM index blocks read from files per second, and as a share of all that were asked for.
KEY_READS_S, KEY_READS = 200.0, 0.01

_SYSFS = "Linux Documentation/ABI/stable/sysfs-block"


@rule(
    "CPU10",
    severity=Severity.LIMIT,
    confidence=Confidence.LOW,
    source="Linux proc_stat(5), proc_pid_stat(5); MySQL Reference Manual, Performance Schema Statement Digests",
    refute="With the named statements faster or less frequent, throughput and p99 of the others are "
    "equivalent.",
)
def statements_use_all_cpus(evidence: Evidence) -> Iterator[Match]:
    """All CPUs are busy with the server's statements, and no class of them stands out.

    More memory or a faster device would not help now; statements that examine fewer rows would. The statements
    that take most of the time are named. If one class takes most of it, another rule reports that class.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    cores = evidence.cores
    busy = sum(core.busy for core in cores)
    program, mine = busiest_server(evidence.window)
    if not program:
        raise NotEnough("the CPU time of the server's process was not sampled (sampler process)")
    if busy < FULL * len(cores) or mine < MOSTLY_SERVER * busy:
        return
    top = _top(evidence)
    if top and top[0][1] >= ONE_CLASS:
        return
    running = evidence.running
    # It has no more than what all programs have together.
    mine = min(mine, busy)
    named = "; ".join(f"{text} ({share(part)})" for text, part in top)
    steps = (
        ("EXPLAIN them; add the missing index, read fewer rows, or run them less often.",)
        if top
        else (
            "Find the statements: turn on performance_schema (needs a restart), or sample the process list "
            "and the slow log for a while.",
        )
    )
    yield Match(
        "",
        f"{program} uses {mine:.1f} of {len(cores)} CPUs, which are {share(busy / len(cores))} busy, with "
        f"{running:.0f} threads running" + (f"; most of the time goes to: {named}." if top else "."),
        (
            number("CPUs used by the server", f"{mine:.2f} of {len(cores)}"),
            number("CPUs busy", share(busy / len(cores))),
            number("threads running, mean", running, ".1f"),
            *(number(text, share(part)) for text, part in top),
        ),
        (Remedy(steps=steps),),
    )


def _top(evidence: Evidence) -> list[tuple[str, float]]:
    """The classes of statements that take most of the time, by text, with their shares."""
    times = evidence.window.rates("statements", "time_ns")
    total = sum(times.values())
    if total > 0:
        worst = sorted(times.items(), key=lambda pair: -pair[1])[:NAMED]
        return [(evidence.statement(digest), time / total) for digest, time in worst]
    activity = evidence.activity
    seen = sum(each.sightings for each in activity.classes) if activity is not None else 0
    return [(each.short, each.sightings / seen) for each in evidence.executed(NAMED)] if seen else []


@rule(
    "CPU11",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/ABI/testing/sysfs-devices-system-cpu, thermal_throttle; x86 thermal interrupt",
    refute="With better cooling the counters stop growing, but throughput and p99 are equivalent.",
)
def slowed_down_by_heat(evidence: Evidence) -> Iterator[Match]:
    """CPUs are throttled because they are too hot.

    The clock rate drops while the load stays the same, so the CPUs look busier than the load explains. A benchmark
    on such a host measures its cooling.
    """
    if "thermal" not in evidence.window.samplers():
        raise NotEnough("thermal throttling was not sampled (sampler thermal)")
    rates: dict[str, float] = {}
    for metric in ("core_throttle_count", "package_throttle_count"):
        for cpu, rate in evidence.window.rates("thermal", metric).items():
            rates[cpu] = max(rates.get(cpu, 0.0), rate)
    hot = {cpu: rate for cpu, rate in rates.items() if rate >= THROTTLED_S}
    busy = sum(core.busy for core in evidence.cores) / len(evidence.cores)
    if not hot or busy < WORTH_ITS_FREQUENCY:
        return
    worst = max(hot, key=lambda cpu: hot[cpu])
    yield Match(
        "",
        f"{counted(len(hot), 'CPU')} {'throttles' if len(hot) == 1 else 'throttle'} for heat, {worst} "
        f"{hot[worst]:,.1f} times per second, while the CPUs are {share(busy)} busy.",
        (
            number("CPUs throttled", len(hot)),
            number(f"throttled/s, {worst}", hot[worst], ",.1f"),
            number("CPUs busy, mean", share(busy)),
        ),
        (
            Remedy(
                steps=(
                    "Check fans, dust, air flow and the firmware's power limit; on a rented host, ask for a "
                    "replacement.",
                )
            ),
        ),
    )


def _cpus(listed: str) -> set[int]:
    """``0-3,8`` -> the CPUs."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


@rule(
    "CPU12",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux sched_setaffinity(2): a mask is reduced to the CPUs of the thread's cpuset; cgroup-v2.rst, "
    "cpuset.cpus; kernel-parameters.txt, isolcpus=; systemd.exec(5), CPUAffinity=; systemd.resource-control(5), "
    "AllowedCPUs=",
    refute="With all CPUs allowed, throughput and p99 are equivalent.",
)
def kept_to_few_cpus(evidence: Evidence) -> Iterator[Match]:
    """The server is restricted to some of the CPUs; they are full while others are idle.

    taskset, CPUAffinity= or a cpuset pins it, often left over from an old benchmark or from a machine with fewer
    cores. The average over all CPUs looks fine. The idle ones add at most their idle time. A CPU that shares its
    core with an allowed one adds less, and one of another NUMA node is further from the memory.
    """
    process = evidence.server_process
    listed = process.get("cpus_allowed_list")
    if not listed:
        raise NotEnough("the host does not report which CPUs the server may use")
    allowed = _cpus(str(listed))
    # The kernel keeps ordinary tasks off isolated CPUs: those are idle on purpose.
    isolated = set((evidence.raw.get("cpu") or {}).get("isolated") or ())
    mine = [core for core in evidence.cores if _number(core) in allowed]
    others = [core for core in evidence.cores if _number(core) not in allowed | isolated]
    if not mine or not others:
        return
    busy, rest = (sum(core.busy for core in part) / len(part) for part in (mine, others))
    beside = _siblings(evidence, {_number(core) for core in mine})
    free, of_siblings = (
        sum(max(1.0 - core.busy, 0.0) for core in others if (_number(core) in beside) is is_sibling)
        for is_sibling in (False, True)
    )
    if busy < FULL or free + of_siblings < LITTLE_ROOM * len(mine) or not _fills(evidence, busy * len(mine)):
        return
    shared = f", {of_siblings:.1f} of them on cores that it has already" if of_siblings else ""
    yield Match(
        "",
        f"{process['program']} may use {len(mine)} of {len(mine) + len(others)} CPUs ({listed}): they are "
        f"{share(busy)} busy, the others {share(rest)}: room for {free + of_siblings:.1f} CPUs more{shared}.",
        (
            number("allowed CPUs", listed),
            number("busy", share(busy)),
            number("the other CPUs", share(rest)),
            number("idle there, CPUs", free + of_siblings, ".2f"),
            number("CPUs used by the server", busiest_server(evidence.window)[1], ".2f"),
        ),
        (Remedy(steps=_widen(evidence, process, {_number(core) for core in others} | allowed)),),
        None if free >= MUCH_ROOM * len(mine) else Severity.COST,
    )


def _number(core: Core) -> int:
    return int(core.name.removeprefix("cpu"))


def _siblings(evidence: Evidence, cpus: set[int]) -> set[int]:
    """CPUs that share a core with one of these."""
    rows = (evidence.raw.get("cpu") or {}).get("topology") or ()
    return {other for row in rows if row["cpu"] in cpus for other in row.get("siblings") or ()} - cpus


def _fills(evidence: Evidence, busy_cpus: float) -> bool:
    """Whether the server does half of the work of its CPUs, or its threads wait for them; if unknown, yes."""
    program, used = busiest_server(evidence.window)
    waited = sum(evidence.window.rates("threads", "runqueue_ns").values()) / 1e9
    return not program or used >= MOSTLY_SERVER * busy_cpus or waited >= MOSTLY_SERVER * busy_cpus


def _widen(evidence: Evidence, process: Mapping[str, Any], all_cpus: set[int]) -> tuple[str, ...]:
    """A mask cannot leave the cpuset; and a server is sometimes bound to a node on purpose."""
    cpuset = (process.get("cgroup") or {}).get("cpuset_cpus")
    widest = f"{min(all_cpus)}-{max(all_cpus)}"
    if cpuset and not _cpus(str(cpuset)) >= all_cpus:
        step = (
            f"Its cpuset allows {cpuset}, and taskset cannot exceed that: systemctl set-property --runtime UNIT "
            f"AllowedCPUs={widest}, or the container's cpuset (--cpuset-cpus)."
        )
    else:
        step = (
            f"Allow all: taskset -apc {widest} {process['pid']}; permanently: remove CPUAffinity= or AllowedCPUs= "
            "from the unit, or the container's cpuset."
        )
    if len(evidence.rows("numa_nodes")) < 2:
        return (step,)
    return (step, "If it was bound to a NUMA node on purpose, measure: memory of other nodes is slower.")


@rule(
    "CPU14",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/pm/cpufreq.rst, scaling_max_freq, cpuinfo_max_freq and bios_limit",
    refute="With the cap removed, throughput and p99 are equivalent: memory or heat limits the CPUs.",
)
def frequency_is_capped(evidence: Evidence) -> Iterator[Match]:
    """The CPUs are busy, but their frequency is capped.

    A cap is left over from a test, a power-saving profile or a machine that once overheated; firmware sets one
    when a power supply fails. Every statement takes longer in proportion, regardless of the governor.
    """
    policies = ((evidence.raw.get("cpu") or {}).get("frequency") or {}).get("policies")
    if policies is None:
        raise NotEnough("the host does not report how its CPUs choose their frequency")
    ranges = [(p.get("max_khz"), p.get("hardware_max_khz"), p.get("cpus") or ()) for p in policies]
    capped = [(now, most, cpus) for now, most, cpus in ranges if now and most and now < CAPPED * most]
    busy = sum(core.busy for core in evidence.cores) / len(evidence.cores)
    if not capped or busy < WORTH_ITS_FREQUENCY:
        return
    now, most, _ = min(capped, key=lambda each: each[0] / each[1])
    # One value for all, unless the cores differ.
    is_alike = len({each[1] for each in ranges}) == 1
    settings: dict[str, Value] = (
        {"host.cpu_max_khz": most}
        if is_alike
        else {f"host.cpu_max_khz@policy{min(cpus)}": top for _, top, cpus in capped if cpus}
    )
    yield Match(
        "",
        f"{len(capped)} of {len(ranges)} frequency policies allow at most {now / 1000:,.0f} of "
        f"{most / 1000:,.0f} MHz while the CPUs are {share(busy)} busy.",
        (
            number("scaling_max_freq", f"{now / 1000:,.0f} MHz"),
            number("cpuinfo_max_freq", f"{most / 1000:,.0f} MHz"),
            number("CPUs busy, mean", share(busy)),
        ),
        (
            Remedy(
                settings,
                (
                    "If it falls back: bios_limit of the same folder shows the firmware's cap (its power profile, "
                    "a failed power supply), thermald and tuned-adm others.",
                ),
            ),
        ),
        Severity.LIMIT if busy >= FULL else None,
    )


@rule(
    "CPU15",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/core-api/cpu_hotplug.rst; kernel-parameters.txt, maxcpus=",
    refute="With them online, throughput and p99 are equivalent.",
)
def cpus_are_offline(evidence: Evidence) -> Iterator[Match]:
    """The CPUs are full, and the host has others that are offline.

    A hypervisor adds processors to a running guest, but they stay offline until a udev rule or an administrator
    brings them online. Others were taken offline for a test, or by maxcpus= on the kernel command line.
    Hyperthreads that are off on purpose are not counted.
    """
    cpu = evidence.raw.get("cpu") or {}
    offline = cpu.get("offline")
    if offline is None:
        raise NotEnough("the host does not report which CPUs are offline")
    busy = sum(core.busy for core in evidence.cores) / len(evidence.cores)
    if not offline or cpu.get("smt") in ("off", "forceoff") or busy < FULL:
        return
    count = len(evidence.cores)
    words = str((evidence.raw.get("kernel") or {}).get("command_line") or "").split()
    limit = next((word for word in words if word.startswith("maxcpus=")), "")
    boot = f"remove {limit} from the kernel command line" if limit else "a udev rule brings added ones online"
    yield Match(
        "",
        f"{count} CPUs are {share(busy)} busy, and {len(offline)} others are offline.",
        (
            number("online", count),
            number("offline", ",".join(map(str, offline))),
            number("busy", share(busy)),
            number("on the command line", limit or "no limit"),
        ),
        (
            Remedy(
                steps=(
                    f"for n in {' '.join(map(str, offline))}; do echo 1 > /sys/devices/system/cpu/cpu$n/online; "
                    f"done; permanently: {boot}.",
                )
            ),
        ),
    )


@rule(
    "MEM20",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/numastat.rst, numa_foreign; MySQL Reference Manual, "
    "innodb_numa_interleave",
    refute="With the pool interleaved, numa_foreign stops growing, but throughput and p99 are equivalent.",
)
def one_node_is_full(evidence: Evidence) -> Iterator[Match]:
    """One NUMA node has no memory left, and allocations meant for it go to another.

    The pool filled the node of the thread that first touched it. Threads there now work on remote memory, and
    the kernel reclaims on that node although the host has memory to spare.
    """
    nodes = evidence.rows("numa_nodes")
    if len(nodes) < 2:
        return
    foreign = evidence.rate("vmstat", "numa_foreign")
    free = {n["node"]: n.get("memory_free_bytes") or 0 for n in nodes}
    if foreign < FOREIGN_S or max(free.values()) < 4 * max(min(free.values()), 1):
        return
    shown = ", ".join(f"node {node} {size(bytes_)}" for node, bytes_ in free.items())
    can = evidence.has_variable("innodb_numa_interleave") and not evidence.is_on("innodb_numa_interleave")
    remedy = (
        Remedy({"server.innodb_numa_interleave": True})
        if can
        else Remedy(
            steps=("Start the server with numactl --interleave=all (systemd: NUMAPolicy=interleave).",)
        )
    )
    megabytes = foreign * evidence.facts.page_bytes / 1e6
    yield Match(
        "",
        f"{foreign:,.0f} pages/s ({megabytes:,.0f} MB/s) meant for one node come from another; free: {shown}.",
        (number("numa_foreign/s", foreign, ",.0f"), number("free", shown)),
        (remedy,),
    )


@rule(
    "REDO05",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_SYSFS}, write_cache and stat; MySQL Reference Manual, Innodb_os_log_fsyncs",
    refute="On a volume with faster writes, commits per second and their p99 are equivalent.",
)
def commits_wait_for_a_distant_volume(evidence: Evidence) -> Iterator[Match]:
    """Each commit waits milliseconds for a log write, although the volume needs no flush.

    A network volume or a throttled one reports no volatile cache, so no flush is counted; the log write itself
    takes the time. The volume is neither full nor busy, yet every commit is as slow as one of its writes.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    counted = evidence.window.rate("mysql_status", "innodb_os_log_fsyncs")
    # MariaDB 10.8 and later count all syncs together.
    syncs = counted if counted is not None else evidence.status_rate("innodb_data_fsyncs")
    folder = evidence.data_directory
    if evidence.has_variable("innodb_log_group_home_dir"):
        own = evidence.variable("innodb_log_group_home_dir")
        folder = own if own.startswith("/") else folder
    slow = []
    unwaited = aside(evidence, folder, "write")
    for name in evidence.beneath(folder):
        record = evidence.facts.block_device(name) or {}
        device = evidence.devices.get(name)
        cache = (record.get("queue") or {}).get("write_cache")
        if device is None or record.get("slaves") or name in unwaited or cache != "write through":
            continue
        slow.append((device.write_ms or 0.0, device))
    if not slow:
        return
    each_ms, device = max(slow, key=lambda pair: pair[0])
    syncing = syncs * each_ms / 1e3
    if each_ms < SLOW_SYNC_MS or syncing < SYNCING:
        return
    commits = evidence.status_rate("com_commit")
    yield Match(
        device.name,
        f"a write to {device.name} takes {each_ms:.1f} ms, and the log is synced {syncs:,.0f} times per second: "
        f"{share(min(syncing, 1.0))} of the time.",
        (
            number("a write", f"{each_ms:.2f} ms"),
            number("syncs/s", syncs, ",.1f"),
            number("Com_commit/s", commits, ",.1f"),
            number("write_cache", "write through"),
        ),
        (
            Remedy(
                steps=(
                    "Put the redo log and the binary log on a volume with faster writes (local flash with "
                    "power-loss protection, or a volume type with lower latency); check its IOPS limit.",
                ),
                label="faster volume",
            ),
            Remedy(
                steps=(
                    "Let more transactions share a sync without losing any: more work per transaction, more "
                    "concurrent clients, binlog_group_commit_sync_delay (MariaDB: binlog_commit_wait_usec).",
                ),
                label="fewer syncs",
            ),
        ),
        Severity.LIMIT if syncing >= MOSTLY_SYNCING else None,
    )


@rule(
    "POOL10",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, The MyISAM Key Cache; Key_reads / Key_read_requests",
    refute="With the larger key cache, Key_reads falls, but throughput and p99 are equivalent.",
)
def key_cache_too_small(evidence: Evidence) -> Iterator[Match]:
    """Indexes of MyISAM tables do not fit into their cache.

    The buffer pool does not help them: MyISAM caches its indexes in the key cache, and its rows only in the
    kernel's page cache. With the tables in InnoDB, one cache holds both.
    """
    reads, asked = evidence.status_rate("key_reads"), evidence.status_rate("key_read_requests")
    cache = evidence.number("key_buffer_size")
    if reads < KEY_READS_S or reads < KEY_READS * asked:
        return
    engines = evidence.settings.get("engines") or ()
    indexes = sum(float(e.get("index_bytes") or 0) for e in engines if e["engine"] == "MyISAM")
    available = evidence.gauge("memory", "MemAvailable").low if evidence.has_host else 0.0
    idle = min(0.25 * available, sizes.spare_bytes(evidence))
    # All index blocks, if memory has room for them; what is in the key cache leaves the page cache.
    wanted = max(int(min(indexes, cache + idle)), min(8 * MIB, int(cache + idle))) // MIB * MIB
    larger = (
        (Remedy({"server.key_buffer_size": min(wanted, 4 << 30)}, label="a larger cache"),)
        if wanted > cache + STEP_BYTES / 128
        else ()
    )
    yield Match(
        "",
        f"{reads:,.0f} of {asked:,.0f} index blocks/s are read from files; the key cache has {size(cache)}"
        + (f" for {size(indexes)} of indexes." if indexes else "."),
        (
            number("Key_reads/s", reads, ",.0f"),
            number("Key_read_requests/s", asked, ",.0f"),
            number("key_buffer_size", size(cache)),
            number("indexes of MyISAM", size(indexes) if indexes else "unknown"),
        ),
        (*larger, Remedy(steps=("ALTER TABLE ... ENGINE=InnoDB, one table at a time.",), label="InnoDB")),
    )
