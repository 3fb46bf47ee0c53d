"""Rules about hardware that is full, slowed down, or kept from the server; and buffers of other engines."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.analysis.resources import FULL
from headrace.analysis.users import busiest_server
from headrace.rules.evidence import MIB, Evidence, NotEnough, number, share, size
from headrace.rules.pool import STEP_BYTES
from headrace.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Share of the CPU time in use that is the server's own, above which its statements are what to look at.
MOSTLY_SERVER = 0.5
#: Classes of statements to name, and the share of the time from which on one is the cause alone.
NAMED, ONE_CLASS = 3, 0.5
#: CPUs that the server may not use and that are less busy than this could take work over.
IDLE_ELSEWHERE = 0.75
#: Times per second that a CPU slows itself down.
THROTTLED_S = 0.1
#: Below this the CPUs are mostly idle, and their frequency affects latency only.
WORTH_ITS_FREQUENCY = 0.30
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
    running = evidence.gauge("mysql_status", "threads_running").mean
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
            number("threads running, mean", f"{running:.1f}"),
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
        f"{len(hot)} CPUs throttle for heat, {worst} {hot[worst]:,.1f} times per second, while they are "
        f"{share(busy)} "
        "busy.",
        (
            number("CPUs throttled", len(hot)),
            number(f"throttled/s, {worst}", f"{hot[worst]:,.1f}"),
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
    source="Linux sched_setaffinity(2); cgroup-v2.rst, cpuset.cpus; systemd.exec(5), CPUAffinity=",
    refute="With all CPUs allowed, throughput and p99 are equivalent.",
)
def kept_to_few_cpus(evidence: Evidence) -> Iterator[Match]:
    """The server is restricted to some of the CPUs; they are full while others are idle.

    taskset, CPUAffinity= or a cpuset pins it, often left over from an old benchmark or from a machine with fewer
    cores. The average over all CPUs looks fine.
    """
    process = evidence.server_process
    listed = process.get("cpus_allowed_list")
    if not listed:
        raise NotEnough("the host does not report which CPUs the server may use")
    allowed = _cpus(str(listed))
    mine = [core for core in evidence.cores if int(core.name.removeprefix("cpu")) in allowed]
    others = [core for core in evidence.cores if core not in mine]
    if not mine or not others:
        return
    busy, idle = (sum(core.busy for core in part) / len(part) for part in (mine, others))
    if busy < FULL or idle >= IDLE_ELSEWHERE:
        return
    yield Match(
        "",
        f"{process['program']} may use {len(mine)} of {len(mine) + len(others)} CPUs ({listed}): they are "
        f"{share(busy)} busy, the others {share(idle)}.",
        (
            number("allowed CPUs", listed),
            number("busy", share(busy)),
            number("the other CPUs", share(idle)),
        ),
        (
            Remedy(
                steps=(
                    "Allow all: taskset -apc "
                    f"0-{max(int(c.name.removeprefix('cpu')) for c in evidence.cores)} {process['pid']}; "
                    "permanently: remove CPUAffinity= or AllowedCPUs= from the unit, or the container's "
                    "cpuset.",
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
        (number("numa_foreign/s", f"{foreign:,.0f}"), number("free", shown)),
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
    for name in evidence.beneath(folder):
        record = evidence.facts.block_device(name) or {}
        device = evidence.devices.get(name)
        cache = (record.get("queue") or {}).get("write_cache")
        if device is None or record.get("slaves") or cache != "write through":
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
            number("syncs/s", f"{syncs:,.1f}"),
            number("Com_commit/s", f"{commits:,.1f}"),
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
    idle = 0.25 * evidence.gauge("memory", "MemAvailable").low
    # All index blocks, if memory has room for them; what is in the key cache leaves the page cache.
    wanted = max(int(min(indexes, cache + idle)), 8 * MIB) // MIB * MIB
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
            number("Key_reads/s", f"{reads:,.0f}"),
            number("Key_read_requests/s", f"{asked:,.0f}"),
            number("key_buffer_size", size(cache)),
            number("indexes of MyISAM", size(indexes) if indexes else "unknown"),
        ),
        (*larger, Remedy(steps=("ALTER TABLE ... ENGINE=InnoDB, one table at a time.",), label="InnoDB")),
    )
