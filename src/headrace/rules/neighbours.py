"""Rules about other programs on the server's host: what they take of a resource that is short."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.analysis.resources import PRESSURE_HIGH, Level
from headrace.analysis.users import OURS, Group, Program, groups, programs
from headrace.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Share of a short resource from which on a program that is no server is a neighbour worth a finding.
MUCH = 0.20
#: Share of all I/O, and bytes per second, from which on it is worth a word also where no device is saturated.
MOST_IO, MOST_IO_S = 0.5, 10e6

#: CPU time of a tracer from which on it is at work, and not only attached.
TRACING_CPUS = 0.02

_USE = "B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012)"


def neighbours(evidence: Evidence) -> list[Program]:
    """The programs of the host that are not its servers. Raises NotEnough if there is no server or no sample."""
    if "process" not in evidence.window.samplers():
        raise NotEnough("the processes were not sampled")
    found = programs(evidence.window)
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
    for group in groups(evidence.window):
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
    if cpu is None or cpu.level is not Level.SATURATED:
        return
    busy = cpu.numbers["busy"] * len(evidence.cores)
    own = sum(p.cpus for p in programs(evidence.window) if p.is_server)
    much = [program for program in others if program.cpus >= MUCH * busy]
    for group in _crowds(evidence, {program.name for program in much}):
        if group.cpus >= MUCH * busy:
            as_program = Program(group.name, (), groups=(group.name,))
            yield Match(
                group.name,
                f"{group.name} ({_some(group.programs)}) uses {share(group.cpus / busy)} of the busy CPU "
                f"time, the server {share(own / busy)}.",
                (
                    number(f"{group.name}, CPUs", f"{group.cpus:.2f}"),
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
                number(f"{program.name}, CPUs", f"{program.cpus:.2f}"),
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
    waited = (evidence.window.rate("psi", "some_total_us", "io") or 0.0) / 1e6
    if not full and waited < PRESSURE_HIGH:
        return
    total = sum(program.io_bytes_s for program in programs(evidence.window))
    own = sum(p.io_bytes_s for p in programs(evidence.window) if p.is_server)
    names = ", ".join(use.instance for use in full)
    for program in sorted(others, key=lambda p: -p.io_bytes_s):
        least = MUCH * max(total, 1.0) if full else max(MOST_IO * total, MOST_IO_S)
        if program.io_bytes_s < least:
            continue
        moved = f"reads and writes {program.io_bytes_s / 1e6:,.1f} MB/s, the server {own / 1e6:,.1f}"
        yield Match(
            program.name,
            f"{program.name} {moved}, while {names} is saturated."
            if full
            else f"{program.name} {moved}, while tasks wait for I/O {share(waited)} of the time.",
            (
                number(f"{program.name}, MB/s", f"{program.io_bytes_s / 1e6:,.1f}"),
                number("the server, MB/s", f"{own / 1e6:,.1f}"),
                number("processes", _pids(program)),
                number("control group", _where(program)),
                number("waiting", full[0].saturation if full else f"for I/O {share(waited)} of the time"),
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
    script starts it again and again. Sampling tools (perf, BPF) cost far less.
    """
    process = evidence.server_process
    pid = process.get("tracer_pid")
    if pid is None:
        raise NotEnough("the host does not report whether the server is traced")
    if pid == 0:
        return
    name = process.get("tracer") or "unknown program"
    found = [program for program in programs(evidence.window) if pid in program.pids]
    cpus = sum(program.cpus for program in found)
    works = cpus >= TRACING_CPUS
    yield Match(
        str(name),
        f"{name} (process {pid}) traces {process['program']} with ptrace"
        + (f", and uses {cpus:.2f} CPUs for it." if found else "."),
        (
            number("tracer", f"{name}, process {pid}"),
            number("CPUs of the tracer", f"{cpus:.2f}" if found else "unknown"),
        ),
        (Remedy(steps=(f"End it (kill {pid}): the server runs on. Look with perf or bpftrace instead.",)),),
        Severity.LIMIT if works else None,
    )
