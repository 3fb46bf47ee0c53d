"""Rules about other programs on the server's host: what they take of a resource that is short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.hunt.resources import PRESSURE_HIGH, Level
from headrace.hunt.rules.block import reads_buffered
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.waited import Waited, waited_for_io
from headrace.hunt.users import OURS, TICKS_PER_SECOND, Group, Program

#: Share of a short resource from which on a program that is no server is a neighbour worth a finding.
MUCH = 0.20
#: Share of all I/O, and bytes per second, from which on it is worth a word also where no device is saturated.
MOST_IO, MOST_IO_S = 0.5, 10e6

#: CPU time of a tracer from which on it is at work, and not only attached.
TRACING_CPUS = 0.02
#: Share of the readings of its threads that find the server stopped: a healthy one never is.
STOPPED = 0.02
#: Where a thread waits in the kernel while its control group is frozen, by version 1 and 2.
FROZEN = ("/__refrigerator", "/do_freezer_trap")
#: Times per hour since the boot, and times at all, from which on it is a habit to drop caches.
DROPS_PER_HOUR, DROPS = 0.9, 24
#: Reads per second of the data's device that may be pages which were cached before.
READ_AGAIN_S = 100.0
#: CPU time of an event that the kernel records, a low estimate: those of system calls took 350 ns. And shares
#: of the CPUs from which on all of them are a cost, and a limit.
EVENT_NS, RECORDING, RECORDING_MUCH = 100.0, 0.01, 0.05
#: What handles audit records, and the CPU time of all of it from which on it is a cost.
AUDITORS = ("kauditd", "auditd", "audispd", "auditbeat")
AUDITING_CPUS = 0.10
#: Flushes of the device for one sync of the server, at most: a journal flushes before and after its commit. And
#: what is too little to be felt, per second.
FLUSHES_PER_SYNC, SOME_FLUSHES_S, OWN_SYNCS_S = 3.0, 100.0, 20.0
#: Threads that wait, on average, for room in the kernel's queue of records.
AUDIT_WAITS = 0.1

_USE = "B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012)"


def neighbours(evidence: Evidence) -> list[Program]:
    """The programs of the host that are not its servers. Raises NotEnough if there is no server or no sample."""
    if "process" not in evidence.window.samplers():
        raise NotEnough("the processes were not sampled")
    found = evidence.programs
    if not any(program.is_server for program in found) and not evidence.rows("servers"):
        raise NotEnough("no server runs on this host")
    return [p for p in found if not (p.is_server or p.is_kernel or p.name in OURS)]


def _pids(program: Program) -> str:
    shown = ", ".join(str(pid) for pid in program.pids[:4])
    return shown if len(program.pids) <= 4 else f"{shown} and {len(program.pids) - 4} more"


def _unit(program: Program) -> str:
    """Its unit, to set a property of; a name that a shell could take for more is not repeated."""
    name = program.groups[0] if len(program.groups) == 1 else ""
    return name if re.fullmatch(r"[A-Za-z0-9:_.@-]+\.(service|scope)", name) else "UNIT"


def _where(program: Program) -> str:
    return ", ".join(program.groups[:3]) or "none, or unknown"


def _crowds(evidence: Evidence, named: set[str]) -> Iterator[Group]:
    """Control groups without a server and without a program that is named: many small ones together."""
    for group in evidence.control_groups:
        if not group.has_server and named.isdisjoint(group.programs):
            yield group


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


@rule(
    "HOST01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_USE}; Linux Documentation/admin-guide/cgroup-v2.rst, cpu.weight",
    refute="With the other program stopped, throughput and p99 of the server are equivalent.",
)
def another_program_uses_the_cpus(evidence: Evidence) -> Iterator[Match]:
    """Another program, or another control group, uses the CPUs that the server waits for.

    No server setting recovers that time. The scheduler shares the CPUs by weight, regardless of urgency. Many
    short-lived programs of one service, such as a build, are counted together.
    """
    cpu = evidence.use("cpu")
    others = neighbours(evidence)
    if cpu is None or cpu.level is not Level.SATURATED or not evidence.is_server_held_up:
        return
    # On a full host processes are looked at later than the CPUs, and seem to have had more than there was.
    seen = sum(program.cpus for program in evidence.programs)
    busy = max(cpu.numbers["busy"] * len(evidence.cores), seen)
    own = sum(p.cpus for p in evidence.programs if p.is_server)
    much = [program for program in others if program.cpus >= MUCH * busy]
    for group in _crowds(evidence, {program.name for program in much}):
        if group.cpus >= MUCH * busy:
            as_program = Program(group.name, (), groups=(group.name,))
            yield Match(
                group.name,
                f"{group.name} ({_some(group.programs)}) uses {share(group.cpus / busy)} of the busy CPU "
                f"time, the server {share(own / busy)}.",
                (
                    number(f"{group.name}, CPUs", group.cpus, ".2f"),
                    number("the server, CPUs", f"{own:.2f} of {len(evidence.cores)}"),
                    number("programs", _some(group.programs)),
                    number("waiting", cpu.saturation or "the CPUs are full"),
                ),
                (_less_cpu(as_program),),
            )
    for program in much:
        yield Match(
            program.name,
            f"{program.name} uses {share(program.cpus / busy)} of the busy CPU time, the server "
            f"{share(own / busy)}.",
            (
                number(f"{program.name}, CPUs", program.cpus, ".2f"),
                number("the server, CPUs", f"{own:.2f} of {len(evidence.cores)}"),
                number("processes", _pids(program)),
                number("control group", _where(program)),
                number("waiting", cpu.saturation or "the CPUs are full"),
            ),
            (_less_cpu(program),),
        )


def _less_cpu(program: Program) -> Remedy:
    return Remedy(
        steps=(
            f"Move {program.name} to another host, or run it at another time.",
            f"Or give it less CPU time: systemctl set-property {_unit(program)} CPUWeight=10 (cgroup v2), or "
            "nice 19.",
        )
    )


@rule(
    "HOST02",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_USE}; Linux Documentation/admin-guide/cgroup-v2.rst, io.max; proc_pid_io(5)",
    refute="With the other program stopped, the device's latency and the server's p99 are equivalent.",
)
def another_program_uses_the_device(evidence: Evidence) -> Iterator[Match]:
    """Another program keeps a saturated device busy, or does most of the host's I/O while tasks wait for I/O.

    The server's reads and syncs queue behind its requests. While the device has room, its cost to the server is
    unknown: stop the other program for a while and compare.
    """
    full = [use for use in evidence.verdict.uses if use.resource == "block" and use.level is Level.SATURATED]
    others = neighbours(evidence)
    waited = waited_for_io(evidence.window)
    if not full and not waited.is_high:
        return
    total = sum(program.io_bytes_s for program in evidence.programs)
    own = sum(p.io_bytes_s for p in evidence.programs if p.is_server)
    names = ", ".join(use.instance for use in full)
    for program in sorted(others, key=lambda p: -p.io_bytes_s):
        least = MUCH * max(total, 1.0) if full else max(MOST_IO * total, MOST_IO_S)
        if program.io_bytes_s < least:
            continue
        moved = f"reads and writes {program.io_bytes_s / 1e6:,.1f} MB/s, the server {own / 1e6:,.1f}"
        yield Match(
            program.name,
            f"{program.name} {moved}, while {names} {'is' if len(full) == 1 else 'are'} saturated."
            if full
            else f"{program.name} {moved}, while {waited.said}.",
            (
                number(f"{program.name}, MB/s", program.io_bytes_s / 1e6, ",.1f"),
                number("the server, MB/s", own / 1e6, ",.1f"),
                number("processes", _pids(program)),
                number("control group", _where(program)),
                number("waiting", full[0].saturation if full else waited.said),
            ),
            (
                Remedy(
                    steps=(
                        f"Move {program.name} to another device or host, or run it at another time.",
                        f"Or limit it: systemctl set-property {_unit(program)} IOReadBandwidthMax= and "
                        "IOWriteBandwidthMax= (cgroup v2).",
                    )
                ),
            ),
            None if full else Severity.ADVICE,
        )


@rule(
    "HOST03",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=f"{_USE}; Linux Documentation/admin-guide/cgroup-v2.rst, memory.high",
    refute="With the other program stopped, tasks wait for memory as before.",
)
def another_program_holds_the_memory(evidence: Evidence) -> Iterator[Match]:
    """Another program holds much of the memory that tasks wait for.

    The kernel reclaims pages from every program, including the server.
    """
    memory = evidence.use("memory")
    others = neighbours(evidence)
    if memory is None or memory.level is not Level.SATURATED or "total_bytes" not in memory.numbers:
        return
    total = memory.numbers["total_bytes"]
    for program in sorted(others, key=lambda p: -p.rss_bytes):
        if program.rss_bytes < MUCH * total:
            continue
        yield Match(
            program.name,
            f"{program.name} holds {size(program.rss_bytes)} of {size(total)}.",
            (
                number(f"{program.name}, resident", size(program.rss_bytes)),
                number("processes", _pids(program)),
                number("control group", _where(program)),
                number("available at least", size(memory.numbers["available_bytes"])),
                number("waiting", memory.saturation or memory.errors),
            ),
            (
                Remedy(
                    steps=(
                        f"Move {program.name} to another host, or give it less memory.",
                        f"Or limit it: systemctl set-property {_unit(program)} MemoryHigh= (cgroup v2).",
                    )
                ),
            ),
        )


@rule(
    "HOST04",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux ptrace(2); proc_pid_status(5), TracerPid; strace(1), BUGS: a traced process runs slowly",
    refute="Without the tracer, throughput and p99 are equivalent.",
)
def another_program_traces_the_server(evidence: Evidence) -> Iterator[Match]:
    """Another program traces the server with ptrace: strace, ltrace or a debugger.

    A traced thread stops at each system call until the tracer has looked at it: two context switches, twice per
    call, through one thread for all threads of the server. It is left over from a diagnosis, or a monitoring
    script starts it again and again. Sampling tools (perf, BPF) cost far less. A single traced thread makes the
    others wait for the locks that it holds.
    """
    process = evidence.server_process
    pid = process.get("tracer_pid")
    if pid is None:
        raise NotEnough("the host does not report whether the server is traced")
    if pid == 0:
        return
    name = process.get("tracer") or "unknown program"
    found = [program for program in evidence.programs if pid in program.pids]
    cpus = sum(program.cpus for program in found)
    works = cpus >= TRACING_CPUS
    traced, threads = process.get("traced_threads"), process.get("threads") or 0
    some = f"{traced} of {threads} threads of " if traced and traced < threads else ""
    yield Match(
        str(name),
        f"{name} (process {pid}) traces {some}{process['program']} with ptrace"
        + (f", and uses {cpus:.2f} CPUs for it." if found else "."),
        (
            number("tracer", f"{name}, process {pid}"),
            number("traced threads", "unknown" if traced is None else traced),
            number("CPUs of the tracer", cpus if found else "unknown", ".2f"),
        ),
        (Remedy(steps=(f"End it (kill {pid}): the server runs on. Look with perf or bpftrace instead.",)),),
        Severity.LIMIT if works else None,
    )


@rule(
    "HOST05",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux signal(7), SIGSTOP; proc_pid_stat(5), state T; cpulimit(1); "
    "Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst",
    refute="Without the program that stops it, throughput and p99 are equivalent.",
)
def server_is_stopped(evidence: Evidence) -> Iterator[Match]:
    """Another program stops the server and lets it continue, over and over, or has left it stopped.

    A tool such as cpulimit sends SIGSTOP and SIGCONT several times per second to keep a process below a share of
    the CPUs; a pause of a container freezes its group. No thread runs meanwhile, and the locks that they hold stay
    locked. The CPUs look idle.
    """
    states = {
        state: float(evidence.window.values("threads", "states", state).sum())
        for state in evidence.window.labels("threads", "states")
    }
    if not (total := sum(states.values())):
        raise NotEnough("the server's threads were not sampled (sampler threads)")
    frozen = sum(
        float(evidence.window.values("threads", "waiting", label).sum())
        for label in evidence.window.labels("threads", "waiting")
        if label.endswith(FROZEN)
    )
    stopped = states.get("T", 0.0)
    part = (stopped + frozen) / total
    if part < STOPPED:
        return
    tools = [program for program in evidence.programs if program.name == "cpulimit"]
    name = str((evidence.process or {}).get("program") or "the server")
    how = "stopped by a signal" if stopped >= frozen else "frozen with their control group"
    who = f", and cpulimit runs (process {_pids(tools[0])})" if tools else ""
    # The threads of all servers were read together: of one of several only its own tool tells which it is.
    servers = sum(1 for each in evidence.facts.servers if each.get("program") != "memcached")
    is_sure = servers <= 1 or bool(tools)
    if not is_sure:
        name = f"one of the {servers} servers on this host"
    yield Match(
        tools[0].name if tools else "",
        f"threads of {name} were {how} in {share(part)} of the readings{who}.",
        (
            number("stopped", share(stopped / total)),
            number("frozen", share(frozen / total)),
            number("cpulimit", _pids(tools[0]) if tools else "does not run"),
        ),
        (
            Remedy(
                steps=(
                    "End cpulimit, or what stops the server; kill -CONT lets it continue. To share the CPUs, give "
                    "its unit a weight: systemctl set-property UNIT CPUWeight=."
                    if stopped >= frozen
                    else "Find out what freezes its control group (docker pause, systemctl freeze), and thaw it.",
                )
            ),
        ),
        None if is_sure else Severity.RISK,
    )


@rule(
    "HOST06",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/sysctl/vm.rst, drop_caches; mm/vmstat.c, drop_pagecache and drop_slab",
    refute="While nobody drops caches, reads per second of the device and throughput are equivalent.",
)
def caches_are_dropped(evidence: Evidence) -> Iterator[Match]:
    """Another program drops the kernel's caches again and again (vm.drop_caches).

    What was cached is read from the devices again: tables of MyISAM, Aria and other engines, binary logs for
    replicas, InnoDB without O_DIRECT, and the programs themselves. A script does it to make memory look free.
    """
    pages = evidence.growth("vmstat", "drop_pagecache")
    slab = evidence.growth("vmstat", "drop_slab")
    now = max(pages, slab)
    since_boot = max(evidence.last("vmstat", "drop_pagecache"), evidence.last("vmstat", "drop_slab"))
    hours = float(evidence.raw.get("uptime_s") or 0.0) / 3600
    is_habit = since_boot >= DROPS and hours > 0 and since_boot >= DROPS_PER_HOUR * hours
    if not now and not is_habit:
        return
    disk = evidence.disk_of(evidence.device_of(evidence.data_directory) or "")
    reads = evidence.window.rate("disk", "reads", disk) or 0.0
    waits = waited_for_io(evidence.window)
    is_felt = pages > 0 and reads >= READ_AGAIN_S and evidence.has_server and reads_buffered(evidence)
    when = (
        f"{now:,.0f} times in {evidence.window.seconds:,.0f} s"
        if now
        else f"{since_boot:,.0f} times since the boot, {since_boot / hours:,.1f} per hour"
    )
    through = "; the server reads its data through them" if is_felt else ""
    yield Match(
        "",
        f"the kernel's caches were dropped {when}{through}, at {reads:,.0f} reads/s.",
        (
            number("dropped in the window", now, ",.0f"),
            number("dropped since the boot", since_boot, ",.0f"),
            number("reads/s of the data's device", reads, ",.0f"),
            waits.number,
        ),
        (
            Remedy(
                steps=(
                    "Find what writes to /proc/sys/vm/drop_caches: grep -r drop_caches /etc/cron* /etc/systemd "
                    "/usr/local; journalctl -k -g drop_caches names the program. Remove it: the kernel gives "
                    "cached pages up when programs need memory.",
                )
            ),
        ),
        _felt(waits) if is_felt else None,
    )


def _felt(waits: Waited) -> Severity:
    return Severity.LIMIT if waits.is_high else Severity.COST


@rule(
    "HOST07",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/trace/ftrace.rst, current_tracer, set_event and per_cpu/cpu0/stats",
    refute="With current_tracer nop and without events, CPU time in the kernel and throughput are equivalent.",
)
def kernel_is_traced(evidence: Evidence) -> Iterator[Match]:
    """The kernel records its own functions or events, many times per second.

    A function tracer adds work to every function that the kernel calls, and an event of the scheduler or of system
    calls comes thousands of times per second. A diagnosis left it on, or an agent of a monitoring product did.
    """
    if "tracing" not in evidence.window.samplers():
        raise NotEnough(evidence.window.errors.get("tracing", "the kernel's tracing was not sampled"))
    cores = len(evidence.cores)
    for name, rate in evidence.window.rates("tracing", "events").items():
        part = rate * EVENT_NS / 1e9 / cores
        if part < RECORDING:
            continue
        buffer: Mapping[str, Any] = next(
            (each for each in evidence.rows("tracing") if each["name"] == name), {}
        )
        tracer, events = buffer.get("tracer") or "unknown", buffer.get("events") or 0
        what = f"the tracer {tracer}" if tracer != "nop" else f"{events:,} enabled events"
        folder = "/sys/kernel/tracing" + ("" if name == "top" else f"/instances/{name}")
        yield Match(
            name,
            f"the kernel records {rate:,.0f} events/s for {what}: at least {share(part)} of the CPUs.",
            (
                number("events/s", rate, ",.0f"),
                number("tracer", tracer),
                number("enabled events", ", ".join(map(str, buffer.get("first_events") or ())) or "none"),
            ),
            (
                Remedy(
                    steps=(
                        "Find out who traces: fuser -v /sys/kernel/tracing/trace_pipe, or trace-cmd, perf-tools "
                        "and agents among the processes.",
                        f"Turn it off: echo nop > {folder}/current_tracer; echo > {folder}/set_event.",
                    )
                ),
            ),
            Severity.LIMIT if part >= RECORDING_MUCH else None,
        )


@rule(
    "HOST08",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux auditctl(8), -b and --backlog_wait_time; audit.rules(7), performance tips; kernel/audit.c, "
    "audit_log_start",
    refute="With auditctl -D (no rules), throughput and p99 are equivalent.",
)
def kernel_audits(evidence: Evidence) -> Iterator[Match]:
    """The kernel's audit rules record so many system calls that it costs CPU time, or that threads wait.

    A rule that matches reads, writes or network calls of every process makes a record for each call of the server.
    When auditd is slower than that, the kernel makes the threads wait for room in its queue.
    """
    if "process" not in evidence.window.samplers():
        raise NotEnough("the processes were not sampled")
    used = dict.fromkeys(AUDITORS, 0.0)
    for metric in ("utime_ticks", "stime_ticks"):
        for label, rate in evidence.window.rates("process", metric).items():
            if (program := label.partition("/")[2]) in used:
                used[program] += rate / TICKS_PER_SECOND
    # A sample in which none waits has no value for it.
    samples = max(
        (
            len(evidence.window.values("threads", "states", s))
            for s in evidence.window.labels("threads", "states")
        ),
        default=0,
    )
    waiting = sum(
        float(evidence.window.values("threads", "waiting", label).sum()) / max(samples, 1)
        for label in evidence.window.labels("threads", "waiting")
        if label.endswith("/audit_log_start")
    )
    cpus = sum(used.values())
    if waiting < AUDIT_WAITS and (cpus < AUDITING_CPUS or not used["kauditd"]):
        return
    who = ", ".join(f"{name} {value:.2f}" for name, value in used.items() if value)
    waits = (
        f"; {waiting:.1f} threads of the server wait for room in its queue" if waiting >= AUDIT_WAITS else ""
    )
    yield Match(
        "",
        f"the kernel's audit of system calls uses {cpus:.2f} CPUs{f' ({who})' if who else ''}{waits}.",
        (
            number("CPUs", who or "none seen"),
            number("threads that wait for the queue", waiting, ".1f"),
        ),
        (
            Remedy(
                steps=(
                    "See the rules: auditctl -l, and the queue: auditctl -s. Exclude the server's user from rules "
                    "about reads, writes and network calls (-F auid!=unset or -F uid!=mysql), or remove them from "
                    "/etc/audit/rules.d.",
                    "If the records must be kept: a longer queue (auditctl -b 65536), and flush = "
                    "INCREMENTAL_ASYNC in auditd.conf.",
                )
            ),
        ),
        Severity.LIMIT if waiting >= AUDIT_WAITS else None,
    )


@rule(
    "HOST09",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux fsync(2), sync(2); Documentation/ABI/stable/sysfs-block, stat, fields 16 and 17; "
    "Documentation/filesystems/ext4/journal.rst",
    refute="With the other programs stopped, flushes of the device take as long and commits are as slow.",
)
def others_sync(evidence: Evidence) -> Iterator[Match]:
    """Other programs sync their files on the device of the server's data, more often than the server.

    Each sync flushes the device's cache, and on a journaling file system it also commits the journal, for which
    the server's own syncs wait. Few bytes are written, so the programs look harmless: a logger that syncs each
    line, a queue or a small database with its own log.
    """
    others = neighbours(evidence)
    own = _own_syncs(evidence)
    for name in evidence.beneath(evidence.data_directory):
        record = evidence.facts.block_device(name) or {}
        flushes = evidence.window.rate("disk", "flushes", name)
        if record.get("slaves") or flushes is None:
            continue
        flushing = (evidence.window.rate("disk", "flush_ms", name) or 0.0) / 1e3
        waits = waited_for_io(evidence.window)
        # What the server never waits for costs it nothing.
        if own < OWN_SYNCS_S or flushes < FLUSHES_PER_SYNC * own + SOME_FLUSHES_S or flushing < PRESSURE_HIGH:
            continue
        writers = _that_block(evidence, others)
        if not writers:
            continue
        shown = ", ".join(f"{program.name} ({switches:,.0f} waits/s)" for program, switches in writers)
        yield Match(
            writers[0][0].name,
            f"{name} is flushed {flushes:,.0f} times per second, and the server syncs {own:,.0f} times: others "
            f"sync there. Those that write and wait: {shown}.",
            (
                number("flushes/s", flushes, ",.0f"),
                number("syncs/s of the server", own, ",.0f"),
                number("time in flushes", share(flushing)),
                waits.number,
                number("processes", _pids(writers[0][0])),
                number("control group", _where(writers[0][0])),
            ),
            (
                Remedy(
                    steps=(
                        f"Look what it syncs: strace -f -e trace=fsync,fdatasync,sync -p {writers[0][0].pids[0]}.",
                        f"Move the files of {writers[0][0].name} to another device, or let it sync less often.",
                    )
                ),
            ),
            Severity.LIMIT if waits.is_high else None,
        )


def _own_syncs(evidence: Evidence) -> float:
    """Syncs per second of the server, of data and logs; of MySQL's binary log one per commit at most."""
    syncs = evidence.status_rate("innodb_data_fsyncs")
    syncs += evidence.window.rate("mysql_status", "innodb_os_log_fsyncs") or 0.0
    if evidence.has_variable("log_bin") and evidence.is_on("log_bin") and evidence.number("sync_binlog") == 1:
        groups = evidence.window.rate("mysql_status", "binlog_group_commits")
        written = ("com_commit", "com_insert", "com_update", "com_delete", "com_replace", "com_load")
        commits = sum(evidence.window.rate("mysql_status", name) or 0.0 for name in written)
        syncs += commits if groups is None else groups
    return syncs


def _that_block(evidence: Evidence, others: list[Program]) -> list[tuple[Program, float]]:
    """Programs that write to devices and wait often, with their waits per second: at most three."""
    waits, written = (
        {label.partition("/")[0]: rate for label, rate in evidence.window.rates("process", metric).items()}
        for metric in ("voluntary_switches", "write_bytes")
    )
    of: dict[str, float] = {}
    for program in others:
        ids = [str(pid) for pid in program.pids]
        if sum(written.get(pid, 0.0) for pid in ids) > 0:
            of[program.name] = sum(waits.get(pid, 0.0) for pid in ids)
    found = [(program, of[program.name]) for program in others if of.get(program.name, 0.0) >= SOME_FLUSHES_S]
    return sorted(found, key=lambda pair: -pair[1])[:3]
