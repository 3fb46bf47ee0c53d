"""The CPUs of a machine, divided into sets of whole cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.target import Target

#: With fewer cores than this, server and driver share all of them: the server would lose too large a part.
LEAST_CORES = 4

#: One core in this number is the driver's. It uses about a fifth of what a server needs for a point select.
CORES_PER_DRIVER = 4


def whole_cores(cpu: Mapping[str, Any], allowed: Sequence[int]) -> list[list[int]]:
    """The usable CPUs by core, in order. ``cpu`` is from the host's facts."""
    place = {row["cpu"]: (row.get("socket") or 0, row.get("core") or 0) for row in cpu.get("topology") or ()}
    cores: dict[tuple[int, int], list[int]] = {}
    for number in sorted(allowed):
        cores.setdefault(place.get(number, (0, number)), []).append(number)
    return [cores[key] for key in sorted(cores)]


def of_driver_and_server(
    cpu: Mapping[str, Any], allowed: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """The CPUs of the driver and of the server: whole cores, disjoint. None if there are too few.

    The driver's are the first ones, where most interrupts arrive.
    """
    cores = whole_cores(cpu, allowed)
    if len(cores) < LEAST_CORES:
        return None
    count = len(cores) // CORES_PER_DRIVER
    first, rest = cores[:count], cores[count:]
    return [n for core in first for n in core], [n for core in rest for n in core]


async def usable(target: Target, facts: Facts) -> list[int]:
    """The CPUs on which headrace's processes may run."""
    status = (await target.read("/proc/self/status")).decode("ascii", "replace")
    return next(
        (cpu_list(line.partition(":")[2]) for line in status.splitlines() if "Cpus_allowed_list" in line),
        HostFacts(facts).online_cpus,
    )


def cpu_list(text: str) -> list[int]:
    """``0-3,8`` -> [0, 1, 2, 3, 8]."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def as_text(cpus: Sequence[int]) -> str:
    """As taskset takes them."""
    return ",".join(map(str, cpus))
