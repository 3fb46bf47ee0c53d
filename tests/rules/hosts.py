"""A healthy database host that tests of rules make ill, one change at a time.

The facts are those of tests/hosts/nvme-8core as the agent reads them; the server's variables and status were taken
from real, fresh servers (MariaDB 10.11.19, MySQL 8.0.31) and then set as a careful DBA would for this host.

    unwell(rates={"softnet.dropped.cpu0": 12.5}, variables={"sort_buffer_size": "268435456"})
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.model import Facts
from headrace.host.activity import Activity
from headrace.host.samples import Name, Samples
from headrace.host.snapshot import Snapshot
from headrace.host.window import Window
from headrace.hunt.rules.evidence import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER = Path(__file__).parent
SECONDS = 60
STEP_S = 5
CPUS = 8
GIB = 1 << 30
#: A server that has been up for ten days.
UPTIME_S = 864_000.0

SERVERS = {"mariadb": "mariadb-10.11", "mysql": "mysql-8.0"}

#: The variables that differ from a fresh server's, on a host of 64 GiB with 40 GiB of data.
TUNED = {
    "innodb_buffer_pool_size": str(44 * GIB),
    "innodb_io_capacity": "2000",
    "innodb_io_capacity_max": "4000",
    "innodb_flush_method": "O_DIRECT",
    "innodb_flush_neighbors": "0",
    "max_connections": "500",
    "table_open_cache": "4000",
    "table_definition_cache": "2000",
    "thread_cache_size": "100",
    "log_bin": "ON",
    "sync_binlog": "1",
    "binlog_expire_logs_seconds": "604800",
    "performance_schema": "ON",
    "open_files_limit": "65535",
    "skip_name_resolve": "ON",
}
TUNED_FOR = {
    "mariadb": {"innodb_log_file_size": str(8 * GIB), "query_cache_type": "OFF", "query_cache_size": "0"},
    "mysql": {
        "innodb_redo_log_capacity": str(8 * GIB),
        "innodb_buffer_pool_instances": "8",
        "innodb_buffer_pool_chunk_size": "134217728",
    },
}

#: Changes of the saved host's facts that make it one without a fault.
FACTS: dict[str, Any] = {
    "memory.transparent_huge_pages.enabled.selected": "madvise",
    "cpu.idle.states.C2_ACPI.disabled": True,
    "cpu.idle.states.C3_ACPI.disabled": True,
    "file_systems./var/lib/mysql.kind": "xfs",
    "file_systems./var/lib/mysql.options": ["rw", "noatime"],
    "file_systems./var/lib/mysql.super_options": ["rw", "logbufs=8", "logbsize=256k"],
}

#: Growth a second of counters, by ``sampler.metric.label``. A light, even load.
RATES: dict[str, float] = {
    **{f"cpu.user.cpu{n}": 12.0 for n in range(CPUS)},
    **{f"cpu.system.cpu{n}": 5.0 for n in range(CPUS)},
    **{f"cpu.softirq.cpu{n}": 1.0 for n in range(CPUS)},
    **{f"cpu.iowait.cpu{n}": 0.5 for n in range(CPUS)},
    **{f"cpu.idle.cpu{n}": 81.5 for n in range(CPUS)},
    **{f"cpu.{state}.cpu{n}": 0.0 for n in range(CPUS) for state in ("nice", "irq", "steal")},
    **{f"softirqs.NET_RX.cpu{n}": 900.0 for n in range(CPUS)},
    # One queue a core, of the interface (150 to 157) and of the disk (140 to 147).
    **{f"interrupts.count.{150 + n}/cpu{n}": 800.0 for n in range(CPUS)},
    **{f"interrupts.count.{140 + n}/cpu{n}": 290.0 for n in range(CPUS)},
    **{f"softnet.dropped.cpu{n}": 0.0 for n in range(CPUS)},
    **{f"softnet.time_squeeze.cpu{n}": 0.0 for n in range(CPUS)},
    **{f"softnet.processed.cpu{n}": 900.0 for n in range(CPUS)},
    "network.rx_packets.enp1s0f0np0": 7_000.0,
    "network.tx_packets.enp1s0f0np0": 7_000.0,
    "network.rx_bytes.enp1s0f0np0": 2e6,
    "network.tx_bytes.enp1s0f0np0": 8e6,
    **{
        f"network.{metric}.enp1s0f0np0": 0.0
        for metric in ("rx_errors", "rx_dropped", "rx_fifo", "tx_errors", "tx_dropped")
    },
    "disk.reads.nvme1n1": 800.0,
    "disk.writes.nvme1n1": 1_500.0,
    "disk.reads_merged.nvme1n1": 0.0,
    "disk.writes_merged.nvme1n1": 200.0,
    "disk.sectors_read.nvme1n1": 800.0 * 32,
    "disk.sectors_written.nvme1n1": 1_500.0 * 32,
    "disk.read_ms.nvme1n1": 80.0,
    "disk.write_ms.nvme1n1": 60.0,
    "disk.io_ms.nvme1n1": 120.0,
    "disk.weighted_io_ms.nvme1n1": 140.0,
    "disk.flushes.nvme1n1": 0.0,
    "disk.flush_ms.nvme1n1": 0.0,
    **{f"psi.some_total_us.{resource}": 4_000.0 for resource in ("cpu", "memory", "io")},
    **{f"psi.full_total_us.{resource}": 1_000.0 for resource in ("cpu", "memory", "io")},
    "psi.some_total_us.memory": 0.0,
    "psi.full_total_us.memory": 0.0,
    **{
        f"vmstat.{name}.": 0.0
        for name in ("pswpin", "pswpout", "pgscan_direct", "oom_kill", "allocstall_normal", "compact_stall")
    },
    "vmstat.pgmajfault.": 0.1,
    "vmstat.drop_pagecache.": 0.0,
    "vmstat.drop_slab.": 0.0,
    "snmp.Tcp.OutSegs.": 9_000.0,
    "snmp.Tcp.RetransSegs.": 0.2,
    "snmp.TcpExt.ListenOverflows.": 0.0,
    "snmp.TcpExt.ListenDrops.": 0.0,
    "snmp.TcpExt.TCPReqQFullDrop.": 0.0,
    "snmp.TcpExt.TCPReqQFullDoCookies.": 0.0,
    "snmp.TcpExt.TCPTimeouts.": 0.1,
    "snmp.Tcp.ActiveOpens.": 0.2,
    "threads.utime_ticks.1330/ib_log_writer": 6.0,
    "threads.stime_ticks.1330/ib_log_writer": 4.0,
    "threads.utime_ticks.1401/connection": 20.0,
    "threads.stime_ticks.1401/connection": 8.0,
    "cgroup.nr_periods.system.slice/mysql.service": 10.0,
    "cgroup.nr_throttled.system.slice/mysql.service": 0.0,
    "cgroup.throttled_us.system.slice/mysql.service": 0.0,
    "process.utime_ticks.1322/mysqld": 90.0,
    "process.stime_ticks.1322/mysqld": 40.0,
    "mysql_waits.count.wait/io/file/innodb/innodb_data_file": 2_000.0,
    "mysql_waits.time_ns.wait/io/file/innodb/innodb_data_file": 2e8,
}

GAUGES: dict[str, float] = {
    "objects.mounts.": 60.0,
    "objects.groups_by_controller.memory": 150.0,
    "sockstat.TCP.tw.": 40.0,
    "cpu.procs_running.": 2.0,
    "qdisc.disciplines.": 9.0,
    "tracing.buffers.": 1.0,
    "threads.states.S": 95.0,
    "threads.states.R": 1.0,
    "cpu.procs_blocked.": 0.0,
    "memory.MemTotal.": 67_283_980_288.0,
    "memory.MemAvailable.": 14.0 * GIB,
    "memory.MemFree.": 3.0 * GIB,
    "memory.Cached.": 9.0 * GIB,
    "memory.SwapTotal.": 0.0,
    "memory.SwapFree.": 0.0,
    "memory.Dirty.": 20e6,
    "memory.PageTables.": 120e6,
    "memory.Slab.": 800e6,
    "memory.CommitLimit.": 33e9,
    "memory.Committed_AS.": 50e9,
    "memory.AnonHugePages.": 0.0,
    "server_process.open_files.1322/mysqld": 1_400.0,
    "file_systems.size_bytes./var/lib/mysql": 1_800.0 * GIB,
    "file_systems.available_bytes./var/lib/mysql": 900.0 * GIB,
    "file_systems.inodes./var/lib/mysql": 900e6,
    "file_systems.available_inodes./var/lib/mysql": 899e6,
    "vmstat.nr_dirty.": 5_000.0,
    "vmstat.nr_writeback.": 10.0,
    "vmstat.nr_dirty_background_threshold.": 65_536.0,
    "vmstat.nr_dirty_threshold.": 262_144.0,
    "process.rss_bytes.1322/mysqld": 45_580_603_392.0,
    "file_systems.size_bytes./": 1_700.0 * GIB,
    "file_systems.available_bytes./": 1_500.0 * GIB,
}

#: Status counters that grow, a second. Everything else stands where the fresh server had it.
STATUS_RATES: dict[str, float] = {
    "uptime": 1.0,
    "questions": 4_000.0,
    "queries": 4_000.0,
    "com_select": 3_000.0,
    "com_insert": 400.0,
    "com_update": 400.0,
    "com_commit": 300.0,
    "binlog_cache_use": 300.0,
    "bytes_sent": 8e6,
    "bytes_received": 2e6,
    "connections": 0.5,
    "threads_created": 0.001,
    "handler_read_rnd_next": 3_000.0,
    "handler_read_key": 40_000.0,
    "innodb_buffer_pool_read_requests": 400_000.0,
    "innodb_buffer_pool_reads": 40.0,
    "innodb_data_fsyncs": 350.0,
    "innodb_log_writes": 400.0,
    "innodb_os_log_written": 1e6,
    "innodb_os_log_fsyncs": 300.0,
    "innodb_rows_read": 100_000.0,
    "innodb_rows_inserted": 400.0,
    "innodb_rows_updated": 400.0,
    "innodb_pages_written": 800.0,
    "innodb_buffer_pool_pages_flushed": 800.0,
    "created_tmp_tables": 20.0,
    "table_open_cache_hits": 4_000.0,
}
STATUS: dict[str, float] = {
    "uptime": UPTIME_S,
    "threads_connected": 60.0,
    "threads_running": 3.0,
    "max_used_connections": 140.0,
    "open_tables": 900.0,
    "opened_tables": 1_100.0,
}

#: Counters since the boot of what nobody does here.
STARTS = {"vmstat.drop_pagecache.": 0.0, "vmstat.drop_slab.": 0.0}

IN_FORCE = {"mysql": {"innodb_redo_log_capacity_resized": 8.0 * GIB}}


def saved(**changes: Any) -> Snapshot:
    """The host with changes as the file that ``headrace hunt --save`` writes."""
    evidence = unwell(**changes)
    facts = Facts("0" * 16, evidence.raw)
    samples, errors = evidence.window.samples, evidence.window.errors
    return Snapshot("db1", "2026-01-31T12:00:00+00:00", float(SECONDS), facts, samples, errors)


def healthy(vendor: str = "mariadb", **changes: Any) -> Evidence:
    """The host without a fault."""
    return unwell(vendor=vendor, **changes)


def cores(**rates: float) -> dict[str, float]:
    """Every core alike: ``user=93.0``, in percent."""
    return {f"cpu.{state}.cpu{n}": rate for state, rate in rates.items() for n in range(CPUS)}


def unwell(
    *,
    vendor: str = "mariadb",
    version: str | None = None,
    facts: Mapping[str, Any] | None = None,
    rates: Mapping[str, float] | None = None,
    gauges: Mapping[str, float] | None = None,
    series: Mapping[str, Sequence[float]] | None = None,
    starts: Mapping[str, float] | None = None,
    variables: Mapping[str, str | None] | None = None,
    status: Mapping[str, float] | None = None,
    status_rates: Mapping[str, float] | None = None,
    engines: Iterable[Mapping[str, Any]] | None = None,
    without: Iterable[str] = (),
    has_server: bool = True,
    limits: Mapping[str, float] | None = None,
    alone_ms: Mapping[str, float] | None = None,
    activity: Activity | None = None,
) -> Evidence:
    """The healthy host with changes.

    ``facts``: dotted path -> value; an element of a list is named by its ``name``, ``mount_point``, ``pid`` or
    number; a value of None stays null. ``rates`` and ``gauges``: ``sampler.metric.label`` -> growth a second, or
    value; ``series``: growth a second in each of the steps, from ``starts`` on. ``status``: what a status
    variable shows; ``status_rates``: its growth a second. ``variables``: None takes one away. ``without``:
    samplers that gave nothing, or keys of the facts to make null.
    """
    dead = set(without)
    content = _facts(vendor)
    for path, value in {**FACTS, **(facts or {})}.items():
        # Another path of the same case may change what this one holds.
        _set(content, path.split("."), copy.deepcopy(value))
    for key in dead & set(content):
        content[key] = None
    settings = content["server_settings"]
    if version:
        settings["version"] = version
    for name, text in (variables or {}).items():
        if text is None:
            settings["variables"].pop(name, None)
        else:
            settings["variables"][name] = text
    if engines is not None:
        settings["engines"] = list(engines)
    if not has_server:
        content["server_settings"] = None
        dead |= {"mysql_status", "innodb_metrics", "replication"}
    values = {"rate": dict(RATES), "gauge": dict(GAUGES)}
    values["rate"].update(rates or {})
    values["gauge"].update(gauges or {})
    if any(key.startswith("processlist.") for key in gauges or ()):
        # Every look says how many serve clients.
        values["gauge"].setdefault("processlist.serving.", 1.0)
    for key in series or ():
        values["rate"].pop(key, None)
        values["gauge"].pop(key, None)
    _sum_cpus(values["rate"])
    start = _status(vendor, status or {}, status_rates or {}, values)
    errors = dict.fromkeys(dead, "was not sampled in this test")
    return Evidence(
        Facts("0" * 16, content),
        Window(_samples(values, {**STARTS, **start, **(starts or {})}, dead, series or {}), errors),
        limits,
        alone_ms,
        activity,
    )


def _sum_cpus(rates: dict[str, float]) -> None:
    """The kernel's own sum over its CPUs."""
    totals: dict[str, float] = {}
    for key, rate in rates.items():
        sampler, metric, label = _split(key)
        if sampler == "cpu" and label.startswith("cpu"):
            totals[f"cpu.{metric}.all"] = totals.get(f"cpu.{metric}.all", 0.0) + rate
    rates.update(totals)


def _status(
    vendor: str, status: Mapping[str, float], rates: Mapping[str, float], values: dict[str, dict[str, float]]
) -> dict[str, float]:
    """Adds the status variables to the rates; where each starts."""
    # The capacity in force is the one that was set, unless a case says otherwise.
    start = {**_server(vendor)["status"], **STATUS, **IN_FORCE.get(vendor, {}), **status}
    for name in start.keys() | rates.keys() | STATUS_RATES.keys():
        rate = rates.get(name, STATUS_RATES.get(name, 0.0))
        values["rate"][f"mysql_status.{name}."] = rate
    return {
        f"mysql_status.{name}.": start.get(name, rates.get(name, STATUS_RATES.get(name, 0.0)) * UPTIME_S)
        for name in start.keys() | rates.keys() | STATUS_RATES.keys()
    }


@functools.cache
def _saved_facts() -> str:
    return (FOLDER / "host.json").read_text()


@functools.cache
def _server(vendor: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{SERVERS[vendor]}.json").read_text())
    return content


def _facts(vendor: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_saved_facts())
    variables = {**_server(vendor)["variables"], **TUNED, **TUNED_FOR[vendor]}
    content["server_settings"] = {
        "vendor": vendor,
        "version": variables["version"].partition("-")[0],
        "version_text": variables["version"],
        "version_comment": variables["version_comment"],
        "variables": variables,
        "plugins": [],
        "engines": [
            {
                "engine": "InnoDB",
                "tables": 120,
                "rows": 10**8,
                "data_bytes": 30 * GIB,
                "index_bytes": 10 * GIB,
            }
        ],
        "tables_without_primary_key": 0,
        "auto_increment": [],
        "stale_statistics": [],
        "init_connect": [],
        "temporary_tablespace_bytes": 12 << 20,
        "replication": [],
        "performance_schema": {
            "enabled": True,
            "wait_instruments_enabled": 300,
            "statement_digests": True,
            "consumers": ["global_instrumentation", "statements_digest", "thread_instrumentation"],
        },
        "pid": 1322,
        "place": {
            "answer": "here",
            "pid": 1322,
            "namespaces": [],
            "answered_by": None,
            "evidence": ["process 1322 has a thread of the number that serves the connection"],
            "missing": "",
        },
        "privileges_missing": [],
    }
    return content


def _set(content: Any, path: list[str], value: Any) -> None:
    """A list's element by its name; names may have dots (``file_systems./srv/a.b.kind``, sysctls)."""
    for length in range(1, len(path) + 1):
        key = ".".join(path[:length])
        child = _child(content, key)
        if child is None:
            continue
        if length == len(path):
            content[child] = value
        else:
            _set(content[child], path[length:], value)
        return
    if not isinstance(content, dict):
        raise KeyError(".".join(path))
    content[".".join(path)] = value


def _child(content: Any, key: str) -> Any:
    if isinstance(content, dict):
        return key if key in content else None
    for number, element in enumerate(content):
        if isinstance(element, dict):
            names = [
                str(element.get(k))
                for k in ("name", "mount_point", "pid", "irq", "engine", "queue")
                if k in element
            ]
            if key in names:
                return number
    return int(key) if key.isdigit() and int(key) < len(content) else None


def _samples(
    values: dict[str, dict[str, float]],
    start: Mapping[str, float],
    dead: set[str],
    series: Mapping[str, Sequence[float]],
) -> Samples:
    """Built as columns: tests make thousands of hosts, and a row per value took most of their time."""
    seconds = np.arange(0.0, SECONDS + 1, STEP_S)
    lines: dict[Name, NDArray[np.float64]] = {}
    for kind, numbers in values.items():
        for key, number in numbers.items():
            first, slope = (start.get(key, 1e6), number) if kind == "rate" else (number, 0.0)
            if (name := _split(key))[0] not in dead:
                lines[name] = first + slope * seconds
    for key, steps in series.items():
        assert len(steps) == SECONDS // STEP_S, f"{key} needs a number for each step"
        lines[_split(key)] = start.get(key, 1e6) + np.append(0.0, np.cumsum(steps) * STEP_S)
    names = sorted(lines)
    return Samples(
        names,
        np.arange(len(names)) * len(seconds),
        np.tile((seconds * 1e9).astype(np.int64), len(names)),
        np.concatenate([lines[name] for name in names]),
    )


@functools.cache
def _split(key: str) -> tuple[str, str, str]:
    """``snmp.Tcp.OutSegs.`` and ``cpu.user.cpu0``: the sampler, the metric (may have a dot), the label."""
    sampler, _, rest = key.partition(".")
    if sampler in ("snmp",) or rest.endswith("."):
        metric, _, label = rest.rpartition(".")
    else:
        metric, _, label = rest.partition(".")
    return sampler, metric, label
