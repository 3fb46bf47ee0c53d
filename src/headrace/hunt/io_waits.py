"""Tasks that wait for I/O although no device is busy: names the device in the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.host.devices import FEW_AT_ONCE
from headrace.host.facts import HostFacts
from headrace.host.window import Window

#: Share of the time in which some task waited (PSI) from which on it dominates.
PRESSURE_HIGH = 0.25
#: A device with fewer requests in flight than this part of the time that tasks waited is not what they wait for.
EXPLAINS = 0.2
#: Devices without a medium, or backed by memory.
NO_DATA = re.compile(r"(?:loop|ram|zram|sr|fd)\d+")


class Use(Protocol):
    """A resource's use, as far as it matters here."""

    @property
    def resource(self) -> str: ...
    @property
    def instance(self) -> str: ...
    @property
    def limit(self) -> str: ...
    @property
    def numbers(self) -> Mapping[str, float]: ...


def clause(window: Window, facts: HostFacts, uses: Sequence[Use]) -> str:
    """How much tasks waited, and for which device as far as the counters tell; empty if they hardly waited."""
    rate = window.rate("psi", "some_total_us", "io")
    pressure = None if rate is None else rate / 1e6
    blocked = window.gauge("cpu", "procs_blocked")
    if pressure is not None and pressure >= PRESSURE_HIGH:
        waited = f"tasks waited for I/O {100 * pressure:.0f}% of the time"
    elif pressure is None and blocked is not None and blocked.mean >= 1:
        waited = f"{blocked.mean:.1f} tasks were blocked in I/O on average"
    else:
        return ""
    silent = _uncounted(window, facts)
    not_counted = f"; {', '.join(silent)} {'is' if len(silent) == 1 else 'are'} not counted" if silent else ""
    worked = [use for use in uses if use.resource == "block" and "queue" in use.numbers]
    # Of a stack the lowest device that has the queue: what is above only passes its waits on.
    leaves = [use for use in worked if not (facts.block_device(use.instance) or {}).get("slaves")]
    device = max(leaves or worked, key=_weight, default=None)
    above = max(worked, key=_weight, default=None)
    if device is None or above is None:
        return f"{waited}{not_counted}."
    if (above.limit and not device.limit) or above.numbers["queue"] > 2 * device.numbers["queue"]:
        device = above
    does = f"{device.instance} does {device.numbers['operations']:,.0f} operations/s"
    queue = device.numbers["queue"]
    if _flushing(device) >= EXPLAINS * (pressure or 1.0):
        flushes, flush_ms = (device.numbers[name] for name in ("flushes", "flush_ms"))
        return f"{waited}: {does}, and {flushes:,.0f} flushes/s of {flush_ms:.1f} ms each{not_counted}."
    if pressure is not None and queue < EXPLAINS * pressure:
        return (
            f"{waited}, and no counted device explains it: {does}, {queue:.2g} in flight, "
            f"{device.numbers['wait_ms']:.2f} ms each{not_counted}."
        )
    against = f" (of {device.limit})" if device.limit else ""
    # Old kernels count the requests of an array, but not their time.
    each = f", {queue:.1f} in flight, {device.numbers['wait_ms']:.2f} ms each" if queue else ""
    alone = " I/O is issued one request at a time." if queue <= FEW_AT_ONCE else ""
    return f"{waited}: {does}{against}{each}{not_counted}.{alone}"


def _weight(use: Use) -> tuple[bool, float]:
    return bool(use.limit), max(use.numbers["queue"], _flushing(use))


def _flushing(use: Use) -> float:
    """Share of the time in which it is flushed: that may be no part of what is in flight."""
    return use.numbers.get("flushes", 0.0) * use.numbers.get("flush_ms", 0.0) / 1e3


def _uncounted(window: Window, facts: HostFacts) -> list[str]:
    """Mounted block devices that /proc/diskstats does not count, as some layers are not."""
    counted = {label for metric in ("reads", "writes") for label in window.labels("disk", metric)}
    mounted = {str(mount["block_device"]) for mount in facts.block_file_systems}
    disks = {
        str(record["name"])
        for record in facts.block_devices
        if record.get("size_bytes") and not NO_DATA.fullmatch(str(record["name"]))
    }
    return sorted((mounted & disks) - counted)
