"""Devices with a fast one in front of a slow one: which of the two the server's requests wait for.

In writeback a write is done when the fast one has it, and the kernel copies it to the slow one later. That one may
then be as slow and as full as can be, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headrace.host.devices import Device
from headrace.host.facts import HostFacts

#: Ends of the uuids of a logical volume's fast devices.
FAST = ("-cdata", "-cmeta", "-cvol", "-cpool")
#: Of the layer's requests, so many reach the fast device where all do; others went past it.
ALL = 0.95
#: A request that waits for the slow device takes at least this part of the slow device's time.
PART = 0.5


class Layered(Protocol):
    """What is asked of the evidence."""

    @property
    def facts(self) -> HostFacts: ...
    @property
    def devices(self) -> Mapping[str, Device]: ...
    @property
    def data_directory(self) -> str: ...
    def beneath(self, path: str) -> list[str]: ...
    def below(self, name: str) -> list[str]: ...
    def disk_of(self, name: str) -> str: ...


def aside(evidence: Layered, path: str, kind: str) -> frozenset[str]:
    """Devices beneath a path that its requests of this kind (``read``, ``write``) do not wait for."""
    names = evidence.beneath(path)
    unwaited: set[str] = set()
    for name in names:
        slow = _slow_of(evidence, evidence.facts.block_device(name) or {})
        if slow and not _waits_for(evidence, name, slow, kind):
            unwaited |= {slow, *_below(evidence, slow)}
    return frozenset(unwaited)


def waited_for(evidence: Layered, devices: Sequence[Device], kind: str) -> list[Device]:
    """Of devices beneath the data those that its requests of this kind wait for."""
    unwaited = aside(evidence, evidence.data_directory, kind)
    return [device for device in devices if device.name not in unwaited]


def _below(evidence: Layered, name: str) -> list[str]:
    return [each for direct in evidence.below(name) for each in (direct, *_below(evidence, direct))]


def _slow_of(evidence: Layered, record: Mapping[str, Any]) -> str:
    """The slow device of a cached one; empty for any other device, and where it is not known."""
    slaves = [str(each) for each in record.get("slaves") or ()]
    if backing := (record.get("bcache") or {}).get("backing"):
        return evidence.disk_of(str(backing))
    uuids = {
        each: str(((evidence.facts.block_device(each) or {}).get("dm") or {}).get("uuid") or "")
        for each in slaves
    }
    slow = [each for each, uuid in uuids.items() if not uuid.endswith(FAST)]
    return slow[0] if len(slow) == 1 < len(slaves) and record.get("dm") else ""


def _waits_for(evidence: Layered, name: str, slow: str, kind: str) -> bool:
    """Whether the layer's requests wait for its slow device, by its mode; else by its times, which are no shorter
    than what they wait for, and by how many its fast one had."""
    record = evidence.facts.block_device(name) or {}
    mode = (record.get("bcache") or {}).get("mode")
    if kind == "write" and mode in ("writethrough", "writearound", "none"):
        return True
    fast = [each for each in evidence.below(name) if each != slow]
    top, low = evidence.devices.get(name), evidence.devices.get(slow)
    served = [evidence.devices[each] for each in fast if each in evidence.devices]
    if top is None or low is None or not served:
        return True
    asked = top.reads if kind == "read" else top.writes
    had = sum(device.reads if kind == "read" else device.writes for device in served)
    if (low.reads if kind == "read" else low.writes) < (1 - ALL) * asked:
        return False
    times = [(each.read_ms if kind == "read" else each.write_ms) or 0.0 for each in (top, low)]
    return had < ALL * asked or times[0] >= PART * times[1]
