"""Forty hosts with nothing wrong: quiet and busy, small and large pools, both vendors, young and old servers.

A third of them are in containers with limits that leave room. Each is the healthy host of ``hosts`` with all that
depends on its load scaled together, as a real one has it: a host of half the load reads half the pages. Nothing is
near a limit: CPUs are at most two thirds busy.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from tests.rules import hosts
from tests.rules.hosts import CPUS, GIB, unwell

COUNT = 40


@dataclass(frozen=True)
class Well:
    """One of them, with what tells it apart from the others."""

    name: str
    evidence: Evidence


def well(number: int, rates: Mapping[str, float] | None = None) -> Well:
    """The host of this number; ``rates`` change what its counters show."""
    draw = random.Random(number)
    vendor = ("mariadb", "mysql")[number % 2]
    load = draw.choice((0.02, 0.1, 0.5, 1.0, 2.0, 3.0))
    pool = draw.choice((12, 24, 36, 44))
    # Data up to what the pool holds; the rest of the memory is the system's and its cache's.
    data = pool * draw.uniform(0.1, 0.9)
    connected = draw.randint(5, 200)
    uptime_s = draw.choice((5, 30, 200)) * 86_400.0
    changes: dict[str, Any] = {
        "rates": _rates(load, draw) | dict(rates or {}),
        "gauges": _gauges(load, pool),
        "status_rates": _status_rates(load, draw),
        "status": {
            "uptime": uptime_s,
            "threads_connected": float(connected),
            "threads_running": max(1.0, 2.0 * load),
            "max_used_connections": connected * 1.5,
        },
        "facts": {
            "servers.1322.rss_bytes": _resident(pool),
            "servers.1322.cgroup.memory_max_bytes": int(1.3 * pool * GIB) if number % 3 == 0 else "max",
        },
        "variables": {"innodb_buffer_pool_size": str(pool * GIB)},
        "engines": [
            {
                "engine": "InnoDB",
                "tables": draw.randint(20, 900),
                "rows": int(data * 3e6),
                "data_bytes": int(data * 0.75 * GIB),
                "index_bytes": int(data * 0.25 * GIB),
            }
        ],
    }
    name = f"{number}: {vendor}, load {load:g}, pool {pool} GiB, {connected} sessions"
    return Well(name, unwell(vendor=vendor, **changes))


def _resident(pool: int) -> int:
    return int(1.02 * pool * GIB)


def _rates(load: float, draw: random.Random) -> dict[str, float]:
    """Counters of the host. An idle CPU is idle for the rest of its time."""
    found = {
        key: rate * load
        for key, rate in hosts.RATES.items()
        if not key.startswith(("cpu.", "cgroup.nr_periods"))
    }
    for cpu in range(CPUS):
        share = draw.uniform(0.85, 1.15)
        used = {"user": 12.0, "system": 5.0, "softirq": 1.0, "iowait": 0.5}
        own = {state: value * load * share for state, value in used.items()}
        found |= {f"cpu.{state}.cpu{cpu}": value for state, value in own.items()}
        found[f"cpu.idle.cpu{cpu}"] = 100.0 - sum(own.values())
    return found


def _gauges(load: float, pool: int) -> dict[str, float]:
    resident = float(_resident(pool))
    rest = hosts.GAUGES["memory.MemTotal."] - resident
    return {
        "cpu.procs_running.": 1.0 + 2.0 * load,
        "process.rss_bytes.1322/mysqld": resident,
        "memory.MemAvailable.": rest * 0.8,
        "memory.MemFree.": rest * 0.3,
        "memory.Cached.": rest * 0.45,
    }


def _status_rates(load: float, draw: random.Random) -> dict[str, float]:
    still = ("uptime",)
    return {
        name: rate * (1.0 if name in still else load * draw.uniform(0.8, 1.2))
        for name, rate in hosts.STATUS_RATES.items()
    }
