"""Resources, amounts and dates for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from headrace.base.counted import counted
from headrace.capacity.model import Resource
from headrace.capacity.outlook import Outlook, State
from headrace.capacity.table import named
from headrace.capacity.used import Part
from headrace.show import text

NAMES = {
    Resource.CPU: "CPU",
    Resource.SOFTIRQ: "network interrupts",
    Resource.PACKETS: "packets",
    Resource.READS: "device reads",
    Resource.WRITES: "device writes",
    Resource.READ_BYTES: "bytes read",
    Resource.WRITE_BYTES: "bytes written",
    Resource.LOG_BYTES: "log bytes",
    Resource.MEMORY: "memory",
    Resource.SPACE: "disk space",
    Resource.DEVICE_REQUESTS: "device requests",
    Resource.DEVICE_BYTES: "bytes read and written",
    Part.USER: "CPU, user",
    Part.SYSTEM: "CPU, system",
    Part.SOFTIRQ: "CPU, softirq",
    Part.SERVER: "CPU of the server",
}
_BYTES = {Resource.READ_BYTES, Resource.WRITE_BYTES, Resource.LOG_BYTES, Resource.DEVICE_BYTES}


def name(resource: str) -> str:
    return next((words for each, words in NAMES.items() if each == resource), resource)


def notes_of(hosts: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The notes of hosts, each once, in front of it the hosts that it is of."""
    found: dict[str, list[str]] = {}
    for host, notes in hosts:
        for note in notes:
            found.setdefault(note, []).append(host)
    return [f"{named(own)}: {note}" for note, own in found.items()]


def amount(resource: Resource, value: float) -> str:
    """A use or a limit with its unit."""
    if resource in (Resource.CPU, Resource.SOFTIRQ):
        return f"{value:.2f} cores"
    if resource in (Resource.MEMORY, Resource.SPACE):
        return f"{value / 2**30:,.1f} GiB"
    if resource in _BYTES:
        return f"{value / 1e6:,.3g} MB/s"
    return f"{text.count(value)}/s"


def cost(resource: str, value: float | None) -> str:
    """Of one call: a time, a count or bytes."""
    if value is None or not math.isfinite(value):
        return "–"
    if resource.startswith("cpu"):
        # As they are rounded: 999.6 µs are 1 ms.
        for unit, factor in (("µs", 1e6), ("ms", 1e3)):
            if value * factor < 999.5:
                return f"{value * factor:.3g} {unit}"
        return f"{_number(value)} s"
    if resource in _BYTES:
        return f"{value:,.0f} B" if value < 1e4 else f"{value / 1e3:,.0f} kB"
    return _number(value)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else text.count(value)


def day_of(end_s: int, days: float | None) -> str:
    """The date so many days after the end of the history."""
    if days is None:
        return "–"
    if not math.isfinite(days) or days > 36_500:
        return "never"
    return f"{datetime.fromtimestamp(end_s, UTC) + timedelta(days=days):%Y-%m-%d}"


def on(t_s: int) -> str:
    return f"{datetime.fromtimestamp(t_s, UTC):%Y-%m-%d}"


def beyond(each: Outlook) -> str:
    """How often what was seen reached the knee, and when; "" if never."""
    seen = each.seen
    if seen.last_s is None:
        return ""
    said = f"on {seen.beyond} of {counted(seen.days, 'day')}"
    if seen.beyond > 1:
        said += f", last on {on(seen.last_s)}"
    return f"{said}, highest {amount(each.resource, seen.highest)} on {on(seen.on_s)}"


def when(end_s: int, each: Outlook) -> str:
    if each.state is State.NOW:
        return "now"
    if each.state is State.DATED and each.day is not None:
        return _or_later(each, day_of(end_s, each.day.estimate))
    if each.state is State.LATER:
        return "in years, if at all"
    return {State.MAYBE: "may be now", State.NEVER: "never, as it is", State.NO_DATE: "no date"}[each.state]


def dates(end_s: int, each: Outlook) -> str:
    """The interval; an end beyond what can be said is open."""
    if each.state is State.NO_DATE or each.day is None:
        return "–"
    low, high = day_of(end_s, each.day.low), day_of(end_s, each.day.high)
    if each.is_at_least:
        return _or_later(each, low)
    return low if low == high else f"{low} – {high}"


def _or_later(each: Outlook, day: str) -> str:
    """The date of a lower bound is the earliest one."""
    return f"{day} or later" if each.is_at_least and day not in ("–", "never") else day


def times(room: float) -> str:
    return f"{room:.2f}x" if math.isfinite(room) and room < 1000 else "unlimited"
