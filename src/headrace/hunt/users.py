"""Who uses a resource: the programs of the host by CPU time, by I/O and by memory, and the server's own threads.

A program is all its processes of one name, a group all processes of one control group: a service, a session, a
container. Kernel threads work for others, so they are counted apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from headrace.host.window import Window

#: /proc counts CPU time in USER_HZ, which is 100 on every architecture that Linux servers use: proc(5).
TICKS_PER_SECOND = 100
SERVERS = ("mysqld", "mariadbd", "memcached")
#: Before the name of servers that are not asked about, of the same program as the one that is.
OTHER = "other "
#: What looks at the host; it names its own cost elsewhere.
OURS = ("headrace", "headrace-agent")
#: A share below this is not named ...
NAMED = 0.05
#: ... and not more names than this.
MOST_NAMED = 3
#: An id as Docker, containerd, CRI-O and others make them.
_CONTAINER = re.compile(r"[0-9a-f]{32,}")
#: CPUs from which on a program or thread may be what fills a core.
HALF_A_CORE, ONE_CORE = 0.5, 1.05
#: Part of a core's work that is nearly all of it; and of what threads want, that they wait for a CPU.
OF_A_CORE, WAITS = 0.8, 0.05
#: Share of the CPUs' work that no process was seen to do, above which it is worth a word.
UNSEEN = 0.15


@dataclass(frozen=True)
class Program:
    """All processes of one name: CPUs used, bytes read and written per second by devices, resident bytes now.

    ``is_server``: the server that the window is of, any if that is not known; ``is_kernel``: kernel threads;
    ``groups``: names of the control groups that its processes are in.
    """

    name: str
    pids: tuple[int, ...]
    cpus: float = 0.0
    io_bytes_s: float = 0.0
    rss_bytes: float = 0.0
    is_server: bool = False
    is_kernel: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """All processes of one control group; ``programs``: their names, the one that uses most CPU first."""

    name: str
    programs: tuple[str, ...]
    cpus: float
    io_bytes_s: float
    rss_bytes: float
    has_server: bool = False


@dataclass
class _Sum:
    pids: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    ticks: float = 0.0
    io_bytes: float = 0.0
    rss_bytes: float = 0.0
    threads_of_kernel: int = 0
    is_server: bool = False


def programs(window: Window) -> list[Program]:
    """Every program that was seen in the window, by CPU time; other servers of the same name apart."""
    own = _own(window)
    return _by(window, lambda pid, name: name if not own or name != own[1] or pid == own[0] else OTHER + name)


def _own(window: Window) -> tuple[str, str] | None:
    """Process id and name of the server that the window is of, if it was seen to run."""
    labels = window.labels("process", "utime_ticks") if window.server_pid is not None else []
    return next(
        (
            (pid, name)
            for pid, _, name in (each.partition("/") for each in labels)
            if pid == str(window.server_pid)
        ),
        None,
    )


def groups(window: Window) -> list[Group]:
    """Every control group but the root that a process was seen in, without what looks at the host, by CPU time."""
    known = _groups(window)
    members: dict[str, list[Program]] = {}
    # No line of /proc/PID/cgroup holds a line break; a program's name may.
    for each in _by(window, lambda pid, name: f"{known.get(pid, '')}\n{name}"):
        group, _, name = each.name.partition("\n")
        if group and not each.is_kernel and name not in OURS:
            members.setdefault(group, []).append(replace(each, name=name))
    found = [
        Group(
            group,
            tuple(program.name for program in own),
            sum(program.cpus for program in own),
            sum(program.io_bytes_s for program in own),
            sum(program.rss_bytes for program in own),
            any(program.is_server for program in own),
        )
        for group, own in members.items()
    ]
    return sorted(found, key=lambda group: (-group.cpus, group.name))


def unit(path: str) -> str:
    """What a control group's path is known by: its innermost service or scope, a container by 12 digits of its id.

    ``/system.slice/docker-<64 digits>.scope`` -> ``docker-0123456789ab.scope``; the root has no name.
    """
    parts = [part for part in path.split("/") if part]
    named = [part for part in parts if part.endswith((".service", ".scope"))]
    # Without systemd a container's group is its id, in the group of what made it.
    is_id = bool(parts) and _CONTAINER.fullmatch(parts[-1]) is not None
    last = named[-1] if named else "/".join(parts[-2:] if is_id else parts[-1:])
    return _CONTAINER.sub(lambda found: found.group()[:12], last)


def _groups(window: Window) -> dict[str, str]:
    """Process id -> name of its control group."""
    found: dict[str, str] = {}
    for label in window.labels("process", "in_group"):
        pid, slash, path = label.partition("/")
        if name := unit(slash + path):
            found[pid] = name
    return found


def _by(window: Window, key: Callable[[str, str], str]) -> list[Program]:
    """Processes summed by a key of their id and name, by CPU time."""
    seconds = window.seconds
    if seconds <= 0:
        return []
    since, known, server = _start_of_sampling(window), _groups(window), _own(window)
    sums: dict[str, _Sum] = {}
    for label in window.labels("process", "utime_ticks"):
        pid, _, name = label.partition("/")
        own = sums.setdefault("kernel threads" if _is_of_kernel(window, label) else key(pid, name), _Sum())
        own.pids.add(int(pid) if pid.isdigit() else 0)
        own.groups |= {known[pid]} if pid in known else set()
        own.ticks += sum(_grown(window, metric, label, since) for metric in ("utime_ticks", "stime_ticks"))
        own.io_bytes += sum(_grown(window, metric, label, since) for metric in ("read_bytes", "write_bytes"))
        own.rss_bytes += window.last("process", "rss_bytes", label) or 0.0
        own.threads_of_kernel += own is sums.get("kernel threads")
        own.is_server |= pid == server[0] if server else name in SERVERS
    total = sum(own.ticks for own in sums.values()) / TICKS_PER_SECOND / seconds
    # All together have no more than there is.
    scale = min(1.0, _cpus(window) / total) if total > 0 else 1.0
    found = [
        Program(
            name,
            tuple(sorted(own.pids)),
            scale * own.ticks / TICKS_PER_SECOND / seconds,
            own.io_bytes / seconds,
            own.rss_bytes,
            own.is_server,
            bool(own.threads_of_kernel),
            tuple(sorted(own.groups)),
        )
        for name, own in sums.items()
    ]
    return sorted(found, key=lambda program: (-program.cpus, program.name))


def _is_of_kernel(window: Window, label: str) -> bool:
    """A kernel thread has no memory of its own."""
    gauge = window.gauge("process", "rss_bytes", label)
    return gauge is not None and gauge.high == 0


def _start_of_sampling(window: Window) -> float | None:
    """When the sampler's own process started, in ticks since the boot; the last, where there are several."""
    own = [label for label in window.labels("process", "start_ticks") if label.endswith("/headrace-agent")]
    starts = [start for label in own if (start := window.last("process", "start_ticks", label)) is not None]
    return max(starts, default=None)


def _grown(window: Window, metric: str, label: str, since: float | None) -> float:
    """What a counter grew by; all of it for a process that started after the sampler."""
    grown = window.growth("process", metric, label) or 0.0
    start = window.last("process", "start_ticks", label)
    if since is None or start is None or start <= since:
        return grown
    values = window.values("process", metric, label)
    return grown + (float(values[0]) if len(values) else 0.0)


def busiest_server(window: Window) -> tuple[str, float]:
    """Its program, and how many CPUs it uses; where it is not known, the busiest one. No name without one."""
    used: dict[str, float] = {}
    own = _own(window)
    for label, user in window.rates("process", "utime_ticks").items():
        pid, _, program = label.partition("/")
        if (pid, program) == own or (own is None and program in SERVERS):
            ticks = user + (window.rate("process", "stime_ticks", label) or 0.0)
            used[program] = max(used.get(program, 0.0), ticks / TICKS_PER_SECOND)
    name, cpus = max(used.items(), key=lambda pair: pair[1], default=("", 0.0))
    return name, min(cpus, _cpus(window))


def _cpus(window: Window) -> float:
    """Of the host, as far as they were sampled. Processes are not read at the very time of the CPUs, so that what
    one used may come to a little more than there is."""
    return len({*window.labels("cpu", "user")} - {"all"}) or math.inf


def fills_cores(window: Window, busy: float, cores: int) -> bool:
    """Whether programs of others have nearly all the time of some full cores, ``busy`` CPUs in all; false if a
    thread of the server may have one, or waits for a CPU."""
    found = [each for each in programs(window) if not each.is_kernel]
    # A program that uses less than a core fills none, however many of its kind there are.
    other = sum(each.cpus for each in found if not each.is_server and each.cpus >= OF_A_CORE * busy / cores)
    own = sum(each.cpus for each in found if each.is_server)
    user, system = (window.rates("threads", f"{kind}time_ticks") for kind in "us")
    each_ticks = [rate + system.get(label, 0.0) for label, rate in user.items()]
    largest = max(each_ticks, default=TICKS_PER_SECOND * own) / TICKS_PER_SECOND
    waited = sum(window.rates("threads", "runqueue_ns").values()) / 1e9
    if largest >= busy / cores / 2 or waited >= WAITS * (own + waited) > 0:
        return False
    return other >= OF_A_CORE * busy


def of_cpu(window: Window, busy_cpus: float) -> tuple[str, ...]:
    """Who does the work of the CPUs, by share of it; ``busy_cpus`` is the work of all."""
    found = programs(window)
    if not found or busy_cpus <= 0:
        return ()
    # Processes are not looked at at the very time of the CPUs: a part is never more than the whole.
    busy_cpus = max(busy_cpus, sum(program.cpus for program in found))
    shares = [(program.cpus / busy_cpus, program) for program in found]
    worst = _worst(shares)
    named = [f"{_called(program)} {_percent(share)}" for share, program in worst]
    own = next((place for place, (_, program) in enumerate(worst) if program.is_server), None)
    # Samples of threads do not say whose they are.
    working = [
        program for program in found if program.cpus > 0 and program.name.removeprefix(OTHER) in SERVERS
    ]
    if own is not None and len(working) == 1:
        named[own] += _by_threads(window, worst[own][1], busy_cpus)
    unseen = 1 - sum(share for share, _ in shares)
    if unseen >= UNSEEN:
        # In a PID namespace of its own, and where /proc hides what is another user's, no kernel thread is shown.
        what = (
            "interrupts and processes too short-lived to be seen"
            if any(program.is_kernel for program in found)
            else "interrupts and processes not seen from here (too short-lived, or outside this container)"
        )
        named.append(f"{what} {_percent(unseen)}")
    return tuple(named)


def _by_threads(window: Window, server: Program, busy_cpus: float) -> str:
    """What the server's work is, by the names of its threads; nothing where all have the program's own."""
    shares = [(cpus / busy_cpus, name) for name, cpus in threads(window) if name != server.name]
    found = [f"{name} {_percent(share)}" for share, name in shares if share >= NAMED][:MOST_NAMED]
    return f" (threads: {', '.join(found)})" if found else ""


def of_core(window: Window) -> tuple[str, ...]:
    """What could fill one core: programs whose processes use no more than one each, and threads of the servers.

    On which core they run is not counted.
    """
    alone = [
        (program.cpus, f"{_called(program)} {program.cpus:.1f} CPUs")
        for program in programs(window)
        if HALF_A_CORE <= program.cpus / max(len(program.pids), 1) <= ONE_CORE and not program.is_server
    ]
    of_server = [
        (cpus, f"thread {name} {cpus:.1f} CPUs") for name, cpus in threads(window) if cpus >= HALF_A_CORE
    ]
    found = sorted([*alone, *of_server], key=lambda pair: -pair[0])
    return tuple(text for _, text in found[:MOST_NAMED])


def of_io(window: Window) -> tuple[str, ...]:
    """Who reads and writes, by bytes; the kernel counts them per process, not per device."""
    found = [program for program in programs(window) if program.io_bytes_s > 0]
    total = sum(program.io_bytes_s for program in found)
    if total <= 0:
        return ()
    return tuple(
        f"{_called(program)} {program.io_bytes_s / 1e6:,.1f} MB/s ({_percent(share)})"
        for share, program in _worst([(program.io_bytes_s / total, program) for program in found])
    )


def of_memory(window: Window, total_bytes: float) -> tuple[str, ...]:
    """Who holds memory, by resident size, which counts shared pages for each that maps them."""
    found = [program for program in programs(window) if program.rss_bytes > 0 and not program.is_kernel]
    return tuple(
        f"{_called(program)} {program.rss_bytes / 2**30:,.1f} GiB"
        for _, program in _worst([(program.rss_bytes / total_bytes, program) for program in found])
    )


def threads(window: Window) -> list[tuple[str, float]]:
    """CPUs used by the servers' threads of each name, most first."""
    used: dict[str, float] = {}
    for label, user in window.rates("threads", "utime_ticks").items():
        name = label.partition("/")[2]
        ticks = user + (window.rate("threads", "stime_ticks", label) or 0.0)
        used[name] = used.get(name, 0.0) + ticks / TICKS_PER_SECOND
    return sorted(used.items(), key=lambda pair: (-pair[1], pair[0]))


def _worst(shares: Iterable[tuple[float, Program]]) -> list[tuple[float, Program]]:
    named = [(share, program) for share, program in shares if share >= NAMED]
    return sorted(named, key=lambda pair: (-pair[0], pair[1].name))[:MOST_NAMED]


def _called(program: Program) -> str:
    if program.is_kernel:
        return program.name
    count = len(program.pids)
    who = f"pid {program.pids[0]}" if count == 1 else f"{count} processes"
    return f"{program.name} ({', '.join((who, *place(program)))})"


def place(program: Program) -> tuple[str, ...]:
    """Its control group in words, if it has one; the number where there are several."""
    if len(program.groups) > 1:
        return (f"{len(program.groups)} control groups",)
    return tuple(f"in {name}" for name in program.groups)


def _percent(share: float) -> str:
    return f"{100 * min(share, 1.0):.0f}%"
