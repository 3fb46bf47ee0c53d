"""A healthy memcached on the healthy host, that tests of rules make ill.

Its statistics are those of a real, fresh memcached 1.6.18 with 1 GiB, and then those of one that has been up for
ten days under a light load.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from tests.rules.hosts import CPUS, GIB, UPTIME_S, unwell

NAME = "10.0.0.5:11211"
PID = 4711
#: Growth per second.
RATES = {
    "uptime": 1.0, "time": 1.0, "cmd_get": 5_000.0, "get_hits": 4_800.0, "get_misses": 200.0, "cmd_set": 220.0,
    "total_items": 220.0, "bytes_read": 3e5, "bytes_written": 2e6, "total_connections": 0.2,
}  # fmt: skip
#: Counters of ten days.
STARTS = {
    "uptime": UPTIME_S, "cmd_get": 4e9, "get_hits": 3.84e9, "get_misses": 1.6e8, "cmd_set": 1.8e8,
    "total_items": 1.8e8, "total_connections": 20_000.0,
}  # fmt: skip
COUNTED = (
    "evictions", "evicted_unfetched", "expired_unfetched", "get_expired", "store_too_large", "store_no_memory",
    "cmd_touch", "cmd_flush", "rejected_connections", "listen_disabled_num", "conn_yields", "read_buf_oom",
    "response_obj_oom", "delete_hits", "delete_misses",
)  # fmt: skip
VALUES = {"curr_connections": 300.0, "bytes": 0.6 * GIB, "curr_items": 1_500_000.0, "hash_power_level": 21.0}
OF_CLASS = ("evicted", "outofmemory", "get_hits")


@functools.cache
def _saved() -> str:
    return (Path(__file__).parent / "memcached-1.6.json").read_text()


def process(pid: int = PID) -> dict[str, Any]:
    """Its row among the host's servers."""
    return {
        "pid": pid,
        "program": "memcached",
        "command_line": ["memcached", "-m", "1024", "-c", "4096"],
        "sockets": [],
        "threads": 10,
        "rss_bytes": GIB,
        "swap_bytes": 0,
        "nofile_soft": 4096,
        "cpus_allowed_list": f"0-{CPUS - 1}",
        "cgroup": {"memory_max_bytes": "max"},
    }


def cached(
    rates: Mapping[str, float] | None = None,
    values: Mapping[str, float] | None = None,
    *,
    starts: Mapping[str, float] | None = None,
    settings: Mapping[str, str | None] | None = None,
    classes: Mapping[int, Mapping[str, float]] | None = None,
    server: Mapping[str, Any] | None = None,
    name: str = NAME,
    without: Sequence[str] = (),
    why: str | None = None,
    is_restarted: bool = False,
    host: Mapping[str, float] | None = None,
    gauges: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
    beside: Sequence[Mapping[str, Any]] = (),
) -> Callable[[], Evidence]:
    """The healthy one with changes.

    ``rates``: growth per second of counters of ``stats``; ``values``: what else it shows; ``classes``: slab class
    -> growth of ``OF_CLASS`` per second, and values; ``without``: statistics that it does not have, ``*`` for all;
    ``host``: rates of the host, ``gauges``: its gauges; ``others``: stores that are not covered; ``beside``:
    rows of other memcached servers.
    """

    def make() -> Evidence:
        saved = json.loads(_saved())
        known = {**saved["stats"], "max_connections": 4096.0, "limit_maxbytes": float(GIB), **VALUES}
        growing = {**dict.fromkeys(COUNTED, 0.0), **RATES, **(rates or {})}
        shown = {f"memcached.{metric}.{name}": value for metric, value in {**known, **(values or {})}.items()}
        grown = {f"memcached.{metric}.{name}": rate for metric, rate in growing.items()}
        begun = {f"memcached.{metric}.{name}": 0.0 for metric in COUNTED}
        begun |= {
            f"memcached.{metric}.{name}": value for metric, value in {**STARTS, **(starts or {})}.items()
        }
        for number, content in {
            **saved["classes"],
            **{str(n): c for n, c in (classes or {}).items()},
        }.items():
            for metric, value in content.items():
                where = grown if metric in OF_CLASS and classes else shown
                where[f"memcached_slabs.{metric}.{name}#{number}"] = value
        gone = {f"memcached.{metric}.{name}" for metric in without}
        keep = "*" not in without
        row = {
            "pid": PID,
            "name": name,
            "why": why,
            "version": "1.6.18",
            "settings": {k: v for k, v in {**saved["settings"], **(settings or {})}.items() if v is not None},
            "is_restarted": is_restarted,
            "connections": {"states": {}, "peers": {"10.0.0.9": 250}, "longest_idle_s": 7200},
        }
        return unwell(
            has_server=False,
            rates={
                f"process.utime_ticks.{PID}/memcached": 20.0,
                f"process.stime_ticks.{PID}/memcached": 30.0,
                **({k: v for k, v in grown.items() if k not in gone} if keep else {}),
                **(host or {}),
            },
            gauges={
                **({k: v for k, v in shown.items() if k not in gone | grown.keys()} if keep else {}),
                **(gauges or {}),
            },
            starts=begun,
            facts={
                "memcached": {"instances": [row, *beside], "not_covered": list(others)},
                "servers": [{**process(), **(server or {})}],
                **(facts or {}),
            },
        )

    return make
