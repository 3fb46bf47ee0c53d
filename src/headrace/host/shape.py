"""The shape of a host's facts. What a saved file or a dump has in another shape is left out, and named.

The agent writes each fact in one shape, or null. A file may have been written by another program, by an older or
newer agent, or by hand. What has another shape is unknown, and named; it never reaches a rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.base.model import Vendor

#: A number, a text, a yes or no; a limit of a control group, which may be ``max``; a server's vendor.
N, S, B, LIMIT, VENDOR = "number", "text", "yes or no", "number or max", "vendor"
#: Names of any kind with texts.
TEXTS = "texts"
#: Places named in a message.
MOST_NAMED = 4

#: Of what rules read: tables by name, ``[...]`` for lists of it. ``!``: without it the whole row is unknown. Keys
#: that do not stand here are left as they are; ``*`` is any other.
SHAPE: Mapping[str, Any] = {
    "format": N,
    "agent_version": S,
    "read_at_ns": N,
    "hostname": S,
    "uptime_s": N,
    "kernel": {
        "release": S,
        "version": S,
        "command_line": S,
    },
    "os": {
        "id": S,
        "version_id": S,
        "name": S,
    },
    "virtualization": {
        "hypervisor_flag": B,
        "hypervisor": S,
        "guest_kind": S,
        "dmi_vendor": S,
        "dmi_product": S,
    },
    "clock_source": {
        "selected": S,
        "available": [S],
    },
    "mitigations": TEXTS,
    "pressure": [S],
    "cpu": {
        "model": S,
        "vendor": S,
        "family": S,
        "model_number": S,
        "stepping": S,
        "microcode": S,
        "flags": [S],
        "online": [N],
        "online_count": N,
        "offline": [N],
        "isolated": [N],
        "sockets": N,
        "cores": N,
        "threads_per_core": N,
        "smt": S,
        "topology": [
            {
                "cpu!": N,
                "socket": N,
                "core": N,
                "siblings": [N],
            }
        ],
        "caches": [
            {
                "level": N,
                "kind": S,
                "size_bytes": N,
                "shared_by": [N],
            }
        ],
        "frequency": {
            "boost": B,
            "policies": [
                {
                    "cpus": [N],
                    "driver": S,
                    "governor": S,
                    "energy_performance_preference": S,
                    "min_khz": N,
                    "max_khz": N,
                    "hardware_min_khz": N,
                    "hardware_max_khz": N,
                }
            ],
        },
        "idle": {
            "driver": S,
            "governor": S,
            "states": [
                {
                    "name!": S,
                    "exit_latency_us": N,
                    "target_residency_us": N,
                    "disabled": B,
                }
            ],
        },
    },
    "numa_nodes": [
        {
            "node!": N,
            "cpus": [N],
            "memory_total_bytes": N,
            "memory_free_bytes": N,
            "distances": [N],
        }
    ],
    "memory": {
        "total_bytes": N,
        "free_bytes": N,
        "available_bytes": N,
        "cached_bytes": N,
        "swap_total_bytes": N,
        "swap_free_bytes": N,
        "commit_limit_bytes": N,
        "swaps": [
            {
                "path!": S,
                "kind": S,
                "size_bytes": N,
                "used_bytes!": N,
                "priority": N,
            }
        ],
        "huge_pages": [
            {
                "size_bytes": N,
                "pages": N,
                "free_pages": N,
                "reserved_pages": N,
                "surplus_pages": N,
                "overcommit_pages": N,
            }
        ],
        "transparent_huge_pages": {
            "enabled": {
                "selected": S,
                "available": [S],
            },
            "defrag": {
                "selected": S,
                "available": [S],
            },
            "shmem_enabled": {
                "selected": S,
                "available": [S],
            },
            "khugepaged_defrag": B,
            "khugepaged_max_ptes_none": N,
        },
        "ksm_run": N,
    },
    "block_devices": [
        {
            "name!": S,
            "kind": S,
            "device_number": S,
            "size_bytes": N,
            "rotational": B,
            "controller_driver": S,
            "numa_node": N,
            "queue_depth": N,
            "removable": B,
            "read_only": B,
            "model": S,
            "serial": S,
            "firmware": S,
            "wwid": S,
            "stable_ids": [S],
            "driver": S,
            "pci_address": S,
            "queue": {
                "scheduler": S,
                "schedulers": [S],
                "nr_requests": N,
                "rq_affinity": N,
                "read_ahead_kb": N,
                "nomerges": N,
                "max_sectors_kb": N,
                "max_hw_sectors_kb": N,
                "wbt_lat_usec": N,
                "write_cache": S,
                "fua": B,
                "add_random": B,
                "iostats": B,
                "io_poll": B,
                "discard_max_bytes": N,
                "discard_granularity_bytes": N,
                "logical_block_bytes": N,
                "physical_block_bytes": N,
                "minimum_io_bytes": N,
                "optimal_io_bytes": N,
                "hardware_queues": N,
            },
            "partitions": [
                {
                    "name!": S,
                    "device_number": S,
                    "start_bytes": N,
                    "size_bytes": N,
                    "stable_ids": [S],
                    "holders": [S],
                }
            ],
            "slaves": [S],
            "holders": [S],
            "dm": {"name": S, "uuid": S},
            "loop": {
                "backing_file": S,
                "direct_io": B,
                "offset_bytes": N,
            },
        }
    ],
    "md_arrays": [
        {
            "name!": S,
            "level": S,
            "members": [{"name!": S, "slot": N, "state": S}],
            "raid_disks": N,
            "degraded": N,
            "chunk_bytes": N,
            "bitmap": {"location": S, "chunk_bytes": N},
            "sync_action": S,
            "stripe_cache_size": N,
            "group_thread_cnt": N,
            "sync_done_bytes": N,
            "sync_total_bytes": N,
        }
    ],
    "file_systems": [
        {
            "mount_point!": S,
            "kind": S,
            "source": S,
            "root": S,
            "device_number": S,
            "block_device": S,
            "options": [S],
            "super_options": [S],
            "size_bytes": N,
            "free_bytes": N,
            "available_bytes": N,
        }
    ],
    "network_interfaces": [
        {
            "name!": S,
            "physical": B,
            "driver": S,
            "pci_address": S,
            "operstate": S,
            "speed_mbit_s": N,
            "duplex": S,
            "mtu_bytes": N,
            "tx_queue_len": N,
            "gro_flush_timeout_ns": N,
            "napi_defer_hard_irqs": N,
            "threaded_napi": B,
            "numa_node": N,
            "offloads": {"*": B},
            "lower": [S],
            "rx_queues": [
                {
                    "queue": N,
                    "rps_cpus": S,
                    "rps_flow_cnt": N,
                }
            ],
            "tx_queues": [
                {
                    "queue": N,
                    "xps_cpus": S,
                }
            ],
        }
    ],
    "irqs": {
        "cpus": [N],
        "default_smp_affinity": S,
        "lines": [
            {
                "irq!": N,
                "chip": S,
                "action": S,
                "device": S,
                "smp_affinity_list": S,
                "effective_affinity_list": S,
                "affinity_hint": S,
                "counts": [N],
            }
        ],
    },
    "irqbalance": {
        "pid": N,
        "version": S,
    },
    "sysctls": TEXTS,
    "cgroup": {
        "groups": TEXTS,
        "cpu_quota_us": LIMIT,
        "cpu_period_us": N,
        "cpuset_cpus": S,
        "cpuset_mems": S,
        "memory_max_bytes": LIMIT,
        "memory_high_bytes": LIMIT,
        "memory_swap_max_bytes": LIMIT,
        "io": [{"device_number!": S}],
    },
    "tracing": [
        {
            "name!": S,
            "tracer": S,
            "is_on": B,
            "events": N,
            "first_events": [S],
        }
    ],
    "memcached": {
        "instances": [
            {
                "pid!": N,
                "name!": S,
                "why": S,
                "version": S,
                "settings": TEXTS,
                "is_restarted": B,
                "connections": {"states": {"*": N}, "peers": {"*": N}, "longest_idle_s": N},
            }
        ],
        "not_covered": [{"program!": S, "pid!": N}],
    },
    "servers": [
        {
            "pid!": N,
            "program!": S,
            "exe": S,
            "working_directory": S,
            "working_device_number": S,
            "command_line": [S],
            "user_id": N,
            "threads": N,
            "rss_bytes": N,
            "swap_bytes": N,
            "huge_pages_bytes": N,
            "nofile_soft": N,
            "nofile_hard": N,
            "memlock_soft_bytes": N,
            "oom_score_adj": N,
            "tracer_pid": N,
            "tracer": S,
            "nice": N,
            "scheduling_policy": S,
            "io_priorities": {"*": N},
            "traced_threads": N,
            "cpus_allowed_list": S,
            "mems_allowed_list": S,
            "numa_policy": S,
            "allocator": {
                "name": S,
                "path": S,
            },
            "cgroup": {
                "groups": TEXTS,
                "folders": TEXTS,
                "cpu_quota_us": LIMIT,
                "cpu_period_us": N,
                "cpu_weight": N,
                "cpu_weights": [
                    {
                        "path!": S,
                        "file!": S,
                        "weight!": N,
                    }
                ],
                "io_weights": [{"path!": S, "file!": S, "weight!": N}],
                "pids_max": LIMIT,
                "io_cost_devices": [S],
                "cpuset_cpus": S,
                "cpuset_mems": S,
                "memory_max_bytes": LIMIT,
                "memory_high_bytes": LIMIT,
                "memory_swap_max_bytes": LIMIT,
                "io": [
                    {
                        "path": S,
                        "device_number!": S,
                        "read_bytes_s": LIMIT,
                        "write_bytes_s": LIMIT,
                        "read_ios_s": LIMIT,
                        "write_ios_s": LIMIT,
                    }
                ],
            },
        }
    ],
    "errors": [{}],
    "only_sql": S,
    "server_asked": S,
    "given": {"cpus": N, "memory_bytes": N},
    "zfs": {"properties": {"*": TEXTS}},
    "server_settings": {
        "vendor!": VENDOR,
        "version!": S,
        "version_text": S,
        "version_comment": S,
        "variables": TEXTS,
        "engines": [
            {
                "engine!": S,
                "tables": N,
                "rows": N,
                "data_bytes": N,
                "index_bytes": N,
            }
        ],
        "tables_without_primary_key": N,
        "auto_increment": [{"column": S, "column_type": S, "next": N, "limit": N}],
        "stale_statistics": [
            {
                "table!": S,
                "rows!": N,
                "changed!": N,
                "bytes": {"described!": N, "used!": N},
            }
        ],
        "init_connect": [S],
        "temporary_tablespace_bytes": N,
        "replication": [
            {"channel": S, "is_by_gtid": B, "io_running": S, "last_io_errno": N, "last_sql_errno": N}
        ],
        "group": {
            "name": S,
            "members": [{"id": S, "host": S, "port": N, "state": S, "role": S, "is_own": B}],
            "applier": S,
            "lag_s": N,
        },
        "innodb_size": {"engine!": S, "tables": N, "rows": N, "data_bytes": N, "index_bytes": N},
        "performance_schema": {
            "enabled": B,
            "wait_instruments_enabled": N,
            "statement_digests": B,
            "consumers": [S],
        },
        "pid": N,
        "privileges_missing": [S],
        "place": {
            "answer": S,
            "pid": N,
            "namespaces": [S],
            "answered_by": {"program!": S, "pid!": N},
            "evidence": [S],
            "missing": S,
        },
    },
}


def shaped(facts: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Facts as the agent writes them, and the places of what was left out because it had another shape."""
    wrong: list[str] = []
    return _table(facts, SHAPE, "", wrong) or {}, tuple(wrong)


def told(wrong: tuple[str, ...]) -> str:
    """What was left out, in a sentence; empty if nothing was."""
    if not wrong:
        return ""
    more = f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
    return f"taken for unknown, because no agent writes them so: {', '.join(wrong[:MOST_NAMED])}{more}"


def _table(
    found: Mapping[str, Any], shape: Mapping[str, Any], at: str, wrong: list[str]
) -> dict[str, Any] | None:
    """None if it lacks what names it."""
    known = {key.removesuffix("!"): (each, key.endswith("!")) for key, each in shape.items()}
    kept: dict[str, Any] = {}
    for key, value in found.items():
        place = f"{at}.{key}" if at else str(key)
        own = known.get(key) or known.get("*")
        kept[key] = _one(value, own[0], place, wrong) if own is not None else value
    if missing := [key for key, (_, is_needed) in known.items() if is_needed and kept.get(key) is None]:
        wrong.append(f"{at} without {' and '.join(missing)}")
        return None
    return kept


def _one(value: Any, shape: Any, at: str, wrong: list[str]) -> Any:
    """The value, or null where it has another shape."""
    if value is None:
        return None
    if isinstance(shape, str):
        if shape == TEXTS and isinstance(value, Mapping):
            return {key: _one(each, S, f"{at}.{key}", wrong) for key, each in value.items()}
        if _fits(value, shape):
            return value
    elif isinstance(shape, list) and isinstance(value, list):
        each = [_one(one, shape[0], f"{at}.{number}", wrong) for number, one in enumerate(value)]
        return [one for one in each if one is not None]
    elif isinstance(shape, Mapping) and isinstance(value, Mapping):
        return _table(value, shape, at, wrong)
    wrong.append(at)
    return None


def _fits(value: Any, shape: str) -> bool:
    if shape == B:
        return isinstance(value, bool)
    if shape == S:
        return isinstance(value, str)
    if shape == VENDOR:
        return value in list(Vendor)
    if shape == TEXTS:
        return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return is_number or (shape == LIMIT and value == "max")
