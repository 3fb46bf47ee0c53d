"""A hash of a host's configuration: equal for two readings unless the configuration changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: Facts that change without configuration changes: clocks, fill levels, counters, process ids; changes by
#: irqbalance, md and the kernel's balancing; and automatic mounts (login sessions, containers). `*` is any element
#: of a list.
CHANGES_BY_ITSELF = frozenset(
    {
        "agent_version",
        "read_at_ns",
        "uptime_s",
        "errors",
        "memory.free_bytes",
        "memory.available_bytes",
        "memory.cached_bytes",
        "memory.swap_free_bytes",
        "memory.swaps.*.used_bytes",
        "memory.huge_pages.*.free_pages",
        "memory.huge_pages.*.reserved_pages",
        "memory.huge_pages.*.surplus_pages",
        "numa_nodes.*.memory_free_bytes",
        # Given in the order in which devices are found at boot.
        "block_devices.*.device_number",
        "block_devices.*.partitions.*.device_number",
        "file_systems.*.device_number",
        "cgroup.io.*.device_number",
        "servers.*.cgroup.io.*.device_number",
        # Only those whose module is loaded: choosing another loads it.
        "block_devices.*.queue.schedulers",
        "file_systems.*.free_bytes",
        "file_systems.*.available_bytes",
        "md_arrays.*.array_state",
        "md_arrays.*.sync_action",
        "md_arrays.*.sync_done_bytes",
        "md_arrays.*.sync_total_bytes",
        "md_arrays.*.members.*.errors",
        "irqs.lines.*.counts",
        "irqs.lines.*.effective_affinity_list",
        "irqbalance.pid",
        # Depends on the memory that was free at boot.
        "sysctls.fs.file-max",
        "sysctls.net.netfilter.nf_conntrack_count",
        "sysctls.vm.user_reserve_kbytes",
        "cgroup.groups",
        "cgroup.io.*.path",
        "servers.*.pid",
        "servers.*.threads",
        "servers.*.rss_bytes",
        "servers.*.swap_bytes",
        "servers.*.huge_pages_bytes",
        "servers.*.cgroup.groups",
        "servers.*.cgroup.io.*.path",
        "server_settings.engines",
        "server_settings.innodb_size",
        "server_settings.tables_without_primary_key",
        "server_settings.auto_increment",
        "server_settings.stale_statistics",
        "server_settings.temporary_tablespace_bytes",
        "server_settings.replication",
        "server_settings.replicas",
        "server_settings.replica_addresses",
        "server_settings.group",
        "server_settings.galera",
        # A setting that was changed and changed back.
        "server_settings.set_since_start",
        "server_settings.pid",
        "server_settings.variables.timestamp",
        "server_settings.variables.insert_id",
        "server_settings.variables.last_insert_id",
        "server_settings.variables.gtid_binlog_pos",
        "server_settings.variables.gtid_binlog_state",
        "server_settings.variables.gtid_current_pos",
        "server_settings.variables.gtid_executed",
        "server_settings.variables.gtid_purged",
        "server_settings.variables.gtid_slave_pos",
    }
)


def facts_hash(data: Mapping[str, Any]) -> str:
    """The hash of the output of ``headrace-agent facts``: 16 hexadecimal digits."""
    stable = json.dumps(without_what_changes_by_itself(data), sort_keys=True)
    return hashlib.sha256(stable.encode()).hexdigest()[:16]


def without_what_changes_by_itself(data: Mapping[str, Any]) -> dict[str, Any]:
    left_out = CHANGES_BY_ITSELF
    if (data.get("irqbalance") or {}).get("pid"):
        left_out = left_out | {"irqs.lines.*.smp_affinity_list"}
    mounts = [fs for fs in data.get("file_systems") or [] if fs.get("block_device")]
    stable: dict[str, Any] = _without({**data, "file_systems": mounts}, left_out, "")
    kernel = stable.get("kernel") or {}
    if kernel.get("command_line"):
        # The id of the virtual machine, which changes with each start.
        words = [w for w in str(kernel["command_line"]).split() if not w.startswith("headrace_id=")]
        stable["kernel"] = {**kernel, "command_line": " ".join(words)}
    return stable


def _without(value: Any, left_out: frozenset[str], place: str) -> Any:
    if isinstance(value, dict):
        children = ((key, f"{place}.{key}" if place else key, child) for key, child in value.items())
        return {key: _without(child, left_out, at) for key, at, child in children if at not in left_out}
    if isinstance(value, list):
        return [_without(child, left_out, f"{place}.*") for child in value]
    return value
