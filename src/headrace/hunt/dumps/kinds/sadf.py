"""sadf -j: what sar recorded, as JSON. Every part that has a counter of ours; the others are left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.received import BadContent, Bound, parsed
from headrace.hunt.dumps.kinds.sysstat import cpu_numbers
from headrace.hunt.dumps.piece import About, Numbers, Piece, Rates, Unread, time_of

NAME = "sadf -j"

#: A day of sar -A on a large host.
MOST = Bound(128 << 20, 8_000_000)
#: The share has two decimals: from a smaller one the total would be wrong by more than a per cent.
LEAST_PERCENT = 1.0
_CPU = {
    "user": "user", "usr": "user", "nice": "nice", "system": "system", "sys": "system", "iowait": "iowait",
    "irq": "irq", "soft": "softirq", "steal": "steal", "idle": "idle",
}  # fmt: skip
_MEMORY = {
    "memfree": "MemFree", "avail": "MemAvailable", "buffers": "Buffers", "cached": "Cached", "dirty": "Dirty",
    "slab": "Slab", "swpfree": "SwapFree", "commit": "Committed_AS", "anonpg": "AnonPages", "pgtbl": "PageTables",
}  # fmt: skip
_NETWORK = {
    "rxpck": ("rx_packets", 1.0), "txpck": ("tx_packets", 1.0), "rxkB": ("rx_bytes", 1024.0),
    "txkB": ("tx_bytes", 1024.0), "rxerr": ("rx_errors", 1.0), "txerr": ("tx_errors", 1.0),
    "rxdrop": ("rx_dropped", 1.0), "txdrop": ("tx_dropped", 1.0),
}  # fmt: skip


def read(text: str) -> list[Piece]:
    if '"sysstat"' not in text[:4096]:
        return []
    try:
        hosts = parsed(text, MOST)["sysstat"]["hosts"]
    except BadContent as error:
        return [Unread(f"the JSON of sadf is damaged or cut off: {error}")]
    except (KeyError, TypeError, IndexError):
        return []
    found: list[Piece] = []
    for host in hosts if isinstance(hosts, list) else ():
        if isinstance(host, dict):
            found += _about(host)
            for statistics in host.get("statistics") or ():
                if isinstance(statistics, dict):
                    found += _rates(statistics)
    return found


def _about(host: Mapping[str, Any]) -> list[Piece]:
    names = {
        ("hostname",): "nodename",
        ("kernel", "release"): "release",
        ("cpu", "online_count"): "number-of-cpus",
    }
    return [About({path: host[name] for path, name in names.items() if host.get(name)})]


def _rates(statistics: Mapping[str, Any]) -> Iterator[Piece]:
    stamp = statistics.get("timestamp")
    if not isinstance(stamp, dict):
        return
    seconds = _number(stamp.get("interval"))
    at_s = time_of(str(stamp.get("date", "")), str(stamp.get("time", "")))
    if at_s is None or not seconds:
        return
    for sampler, (numbers, gauges) in parts(statistics).items():
        if any(numbers.values()) or any(gauges.values()):
            yield Rates(NAME, sampler, numbers, gauges, seconds, at_s)


def parts(statistics: Mapping[str, Any]) -> dict[str, tuple[Numbers, Numbers]]:
    network = statistics.get("network")
    network = network if isinstance(network, dict) else {}
    queue = statistics.get("queue")
    running: dict[str, dict[str, float]] = {}
    if isinstance(queue, dict):
        for name, metric in (("runq-sz", "procs_running"), ("blocked", "procs_blocked")):
            if (value := _number(queue.get(name))) is not None:
                running[metric] = {"": value}
    interfaces = _network(_rows(network.get("net-dev")), "iface")
    for metric, values in _network(_rows(network.get("net-edev")), "iface").items():
        interfaces.setdefault(metric, {}).update(values)
    memory: dict[str, dict[str, float]] = {}
    described = statistics.get("memory")
    for name, value in described.items() if isinstance(described, dict) else ():
        if name in _MEMORY and (number := _number(value)) is not None:
            memory[_MEMORY[name]] = {"": 1024 * number}
    if (total := _total(described)) is not None:
        memory["MemTotal"] = {"": total}
    return {
        "cpu": (_cpu(_rows(statistics.get("cpu-load") or statistics.get("cpu-load-all"))), running),
        "disk": (_disks(_rows(statistics.get("disk"))), {}),
        "network": (interfaces, {}),
        "memory": ({}, memory),
        "vmstat": (_swap(statistics.get("swap-pages")), {}),
    }


def _total(memory: Any) -> float | None:
    """From what is used and its share of all, to a tenth of a per cent; None if that would be too rough."""
    if not isinstance(memory, dict):
        return None
    used, percent = _number(memory.get("memused")), _number(memory.get("memused-percent"))
    return 1024 * used / percent * 100 if used and percent and percent >= LEAST_PERCENT else None


def _cpu(rows: list[Mapping[str, Any]]) -> Numbers:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        numbers = {_CPU[name]: _number(value) for name, value in row.items() if name in _CPU}
        if "idle" in numbers and None not in numbers.values():
            found[str(row.get("cpu"))] = {state: value or 0.0 for state, value in numbers.items()}
    return cpu_numbers(found)


def _disks(rows: list[Mapping[str, Any]]) -> Numbers:
    """sar has requests of both kinds in one number: only size and time are told apart as far as they are."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        device = str(row.get("disk-device", ""))
        parts = {
            "rkB": ("sectors_read", 2.0),
            "wkB": ("sectors_written", 2.0),
            "dkB": ("sectors_discarded", 2.0),
        }
        parts |= {
            "aqu-sz": ("weighted_io_ms", 1000.0),
            "util-percent": ("io_ms", 10.0),
            "%util": ("io_ms", 10.0),
        }
        for name, (counter, scale) in parts.items():
            if (value := _number(row.get(name))) is not None:
                found.setdefault(counter, {})[device] = value * scale
        tps, wait_ms = _number(row.get("tps")), _number(row.get("await"))
        sizes = {kind: _number(row.get(name)) or 0.0 for kind, name in (("read", "rkB"), ("write", "wkB"))}
        only = [kind for kind, size in sizes.items() if size > 0]
        if tps is not None and len(only) == 1:
            found.setdefault(f"{only[0]}s", {})[device] = tps
            if wait_ms is not None:
                found.setdefault(f"{only[0]}_ms", {})[device] = tps * wait_ms
        if tps is not None:
            found.setdefault("requests", {})[device] = tps
            found.setdefault("request_ms", {})[device] = tps * (wait_ms or 0.0)
    return found


def _network(rows: list[Mapping[str, Any]], key: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for name, (counter, scale) in _NETWORK.items():
            if (value := _number(row.get(name))) is not None:
                found.setdefault(counter, {})[str(row.get(key, ""))] = value * scale
    return found


def _swap(part: Any) -> Numbers:
    if not isinstance(part, dict):
        return {}
    names = {"pswpin": _number(part.get("pswpin")), "pswpout": _number(part.get("pswpout"))}
    return {name: {"": value} for name, value in names.items() if value is not None}


def _rows(part: Any) -> list[Mapping[str, Any]]:
    return [row for row in part if isinstance(row, dict)] if isinstance(part, list) else []


def _number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        else None
    )
