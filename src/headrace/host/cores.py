"""What each CPU did with its time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.host.window import Window

#: States of the CPU that are work for it, in /proc/stat.
WORKING = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True)
class Core:
    """One CPU's activity: shares of its time, 0 to 1. ``busy`` is all work; waiting for I/O is idle time."""

    name: str
    busy: float
    softirq: float
    irq: float
    system: float
    user: float
    iowait: float
    steal: float


def cores(window: Window) -> list[Core]:
    """Every CPU, ``all`` first, in their order. Steal counts as time of other guests, not as work."""
    states = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    rates = {state: window.rates("cpu", state) for state in states}
    found = []
    # Without its idle time it is unknown how busy a CPU is; other states are young, or rare.
    for name in sorted(rates["user"].keys() & rates["idle"].keys(), key=_cpu_number):
        share = {state: rates[state].get(name, 0.0) for state in states}
        total = sum(share.values())
        if total <= 0:
            continue
        share = {state: value / total for state, value in share.items()}
        busy = sum(share[state] for state in WORKING)
        found.append(
            Core(
                name,
                busy,
                softirq=share["softirq"],
                irq=share["irq"],
                system=share["system"],
                user=share["user"] + share["nice"],
                iowait=share["iowait"],
                steal=share["steal"],
            )
        )
    return found if len(found) < 2 or found[0].name == "all" else [_mean(found), *found]


def _mean(each: list[Core]) -> Core:
    """All CPUs alike, where the kernel's own sum was not sampled, or was left out as impossible."""
    shares = {
        field.name: sum(getattr(core, field.name) for core in each) / len(each) for field in fields(Core)[1:]
    }
    return Core("all", **shares)


def _cpu_number(name: str) -> int:
    return int(name.removeprefix("cpu")) if name != "all" else -1
