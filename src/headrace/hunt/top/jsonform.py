"""The overview as JSON: shares from 0 to 1, rates per second; unknown values are null."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headrace.host import devices
from headrace.host.cores import cores as all_cores
from headrace.host.spared import resting
from headrace.hunt.memcached import caches
from headrace.hunt.top.shot import Shot


def overview(shot: Shot) -> dict[str, Any]:
    """Keys: target, host, verdict, cpus, memory, pressure, devices, network, tcp, server (null without one),
    memcached."""
    window = shot.now
    metrics = (
        "rx_bytes",
        "tx_bytes",
        "rx_packets",
        "tx_packets",
        "rx_dropped",
        "tx_dropped",
        "rx_errors",
        "tx_errors",
    )
    return {
        "target": shot.target,
        "host": shot.facts.hostname,
        "verdict": {
            "sentence": shot.verdict.sentence,
            "limiting": shot.verdict.limiting.name if shot.verdict.limiting else None,
        },
        "cpus": [asdict(core) for core in all_cores(window)],
        "memory": {
            "available_bytes": window.last("memory", "MemAvailable"),
            "total_bytes": window.last("memory", "MemTotal"),
        },
        "pressure": {
            name: None if rate is None else rate / 1e6
            for name in ("cpu", "io", "memory")
            for rate in [window.rate("psi", "some_total_us", name)]
        },
        "devices": [asdict(device) for device in devices.devices(window)],
        "network": {
            name: {metric: window.rate("network", metric, name) for metric in metrics}
            for name in window.labels("network", "rx_bytes")
        },
        "tcp": {
            "segments_out": window.rate("snmp", "Tcp.OutSegs"),
            "retransmitted": window.rate("snmp", "Tcp.RetransSegs"),
            "overflows": window.rate("snmp", "TcpExt.ListenOverflows"),
        },
        "server": _server(shot),
        "memcached": [cache.to_json() for cache in caches(shot.facts, shot.now)],
        "errors": dict(shot.errors),
        "spared": list(resting(shot.recent)),
    }


def _server(shot: Shot) -> dict[str, Any] | None:
    window = shot.now
    if "mysql_status" not in window.samplers():
        return None
    names = [name for name in window.metrics("mysql_status") if name.startswith("com_")] + [
        "questions",
        "slow_queries",
    ]
    names += [
        f"innodb_{n}"
        for n in ("buffer_pool_reads", "buffer_pool_read_requests", "data_fsyncs", "row_lock_waits")
    ]
    names += [f"innodb_rows_{kind}" for kind in ("read", "inserted", "updated", "deleted")]
    rates = {name: window.rate("mysql_status", name) for name in names}
    gauges = ("threads_running", "threads_connected", "innodb_checkpoint_age", "innodb_history_list_length")
    return {
        "name": shot.server or None,
        "rates_s": {name: rate for name, rate in rates.items() if rate or not name.startswith("com_")},
        **{name: window.last("mysql_status", name) for name in gauges},
    }
