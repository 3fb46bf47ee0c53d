"""Single cores that are full, or fill up, while the others have room: which, and what fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.host.cores import Core
from headrace.host.window import Window
from headrace.hunt import users

#: Above it a core, or all of them, count as full: the rest is within the error of the clock's ticks.
FULL = 0.90
#: A core carries the load alone if the others are less busy than this on average.
OTHERS_IDLE = 0.60
#: A core with this share of softirqs, many times the others' share, carries the network alone and fills up first.
HOT_SOFTIRQ, TIMES_OTHERS = 0.30, 4.0
#: Of the time that a core works, from which on interrupts and their softirqs are what fills it.
BY_INTERRUPTS = 0.5
#: CPUs that one thread uses, from which on it fills a core: all of it, less the error of clock ticks.
ONE_THREAD = 0.85
#: Of the cores that a server may use, that it must use itself to be what fills them.
OF_ITS_CPUS = 0.5
#: Cores that are named with their numbers; of more only how many there are.
MOST_NAMED = 8


@dataclass(frozen=True)
class Hot:
    """A core; ``others``: how busy the ``count`` cores are on average that are not full, this one left out."""

    core: Core
    others: float
    count: int

    @property
    def is_full(self) -> bool:
        return self.core.busy >= FULL

    @property
    def by_interrupts(self) -> bool:
        return self.core.softirq + self.core.irq >= BY_INTERRUPTS * self.core.busy


def hot(each: Sequence[Core]) -> list[Hot]:
    """Cores that are full, or whose softirqs fill them, while the others have room; the busiest first.

    With nearly all of them full it is no problem of a core: the host's own line says it.
    """
    full = [core for core in each if core.busy >= FULL]
    softirq = sum(core.softirq for core in each)
    found = []
    for core in each:
        rest = [other for other in each if other is not core and other not in full]
        if not rest:
            continue
        others = sum(other.busy for other in rest) / len(rest)
        carries = core.softirq >= max(HOT_SOFTIRQ, TIMES_OTHERS * (softirq - core.softirq) / (len(each) - 1))
        if others < OTHERS_IDLE and (core in full or carries):
            found.append(Hot(core, others, len(rest)))
    return sorted(found, key=lambda one: -one.core.busy)


def shares(core: Core) -> str:
    """``94% user, 1.0% softirq``."""
    parts = (("user", core.user), ("system", core.system), ("softirq", core.softirq), ("irq", core.irq))
    return ", ".join(f"{percent(share)} {name}" for name, share in parts if share >= 0.005)


def percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}%"


def sentence(window: Window, process: Mapping[str, Any], full: Sequence[Hot]) -> str:
    """Several full cores by what fills them. ``process``: the server's among the facts, empty if it is unknown."""
    interrupts = [one for one in full if one.by_interrupts]
    rest = [one for one in full if not one.by_interrupts]
    allowed = _allowed(process)
    kept = [one for one in rest if one.core.name in allowed] if _fills(window, rest, allowed) else []
    rest = [one for one in rest if one not in kept]
    alone = _alone(window)
    is_one_each = len(alone) >= len(rest)
    parts = []
    if interrupts:
        parts.append(f"interrupts and packets fill {_named(interrupts)}")
    if kept:
        listed = process.get("cpus_allowed_list")
        program = process.get("program") or "the server"
        parts.append(f"{program}, which may use only CPUs {listed}, fills {_named(kept)}")
    if rest and is_one_each:
        parts.append(f"single threads ({', '.join(alone[:MOST_NAMED])}) fill {_named(rest)}")
    elif rest:
        one = f" (of single threads: {', '.join(alone)})" if alone else ""
        parts.append(f"other work{one} fills {_named(rest)}")
    others = (
        f"the other {full[0].count} are {percent(full[0].others)} busy on average"
        if full[0].count > 1
        else f"the other is {percent(full[0].others)} busy"
    )
    return f"{len(full)} cores limit this host, {others}: {'; '.join(parts)}."


def _named(each: Sequence[Hot]) -> str:
    named = [f"{one.core.name} ({percent(one.core.busy)} busy: {shares(one.core)})" for one in each]
    if len(named) > MOST_NAMED:
        named = [*named[:MOST_NAMED], f"{len(named) - MOST_NAMED} more"]
    return " and ".join((", ".join(named[:-1]), named[-1])) if len(named) > 1 else named[0]


def _allowed(process: Mapping[str, Any]) -> frozenset[str]:
    """Names of the CPUs that the server may use: ``0-1,6``; empty where that is not known."""
    names: set[str] = set()
    for part in str(process.get("cpus_allowed_list") or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit() and int(last or first) < 1 << 16:
            names |= {f"cpu{number}" for number in range(int(first), int(last or first) + 1)}
    return frozenset(names)


def _fills(window: Window, full: Sequence[Hot], allowed: frozenset[str]) -> bool:
    """Whether all CPUs that the server may use are full, and mostly of the server itself."""
    mine = [one for one in full if one.core.name in allowed]
    used = users.busiest_server(window)[1]
    return bool(mine) and len(mine) == len(allowed) and used >= OF_ITS_CPUS * len(mine)


def _alone(window: Window) -> list[str]:
    """Threads of servers, and programs of one process, that use a whole core each."""
    user, system = (window.rates("threads", f"{kind}time_ticks") for kind in "us")
    found = []
    for label, rate in user.items():
        cpus = (rate + system.get(label, 0.0)) / users.TICKS_PER_SECOND
        if cpus >= ONE_THREAD:
            tid, _, name = label.partition("/")
            found.append((cpus, f"thread {tid} {name} {cpus:.2f} CPUs"))
    for program in users.programs(window):
        each = program.cpus / max(len(program.pids), 1)
        if ONE_THREAD <= each <= users.ONE_CORE and not (program.is_server or program.is_kernel):
            found += [(each, f"{program.name} (pid {pid}) {each:.2f} CPUs") for pid in program.pids]
    return [text for _, text in sorted(found, key=lambda pair: -pair[0])]
