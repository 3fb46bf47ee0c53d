"""Which instances of a knob a host has, and which files they are: ``host.rps_cpus@eth0`` -> its receive queues."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.base.errors import PlanError
from headrace.host.facts import HostFacts
from headrace.knobs.knob import Knob


@dataclass(frozen=True)
class Instance:
    """One thing that a knob sets. ``name`` is empty if there is only one; ``paths`` are its files."""

    knob: Knob
    name: str
    paths: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{self.knob.name}@{self.name}" if self.name else self.knob.name


def instances(knob: Knob, facts: HostFacts) -> list[Instance]:
    """All of them, in the host's order; none if the host has none, or if the knob is not a file."""
    if not knob.location:
        return []
    if not knob.placeholder:
        return [Instance(knob, "", (knob.location,))]
    places = _PLACES[knob.placeholder](facts)
    whole = "{" + knob.placeholder + "}"
    return [
        Instance(knob, name, tuple(knob.location.replace(whole, value) for value in values))
        for name, values in places
        if values
    ]


def resolve(knob: Knob, name: str, facts: HostFacts) -> Instance:
    """The instance of this name. Without a name: all of them, if one value makes sense for all (processors).

    Raises PlanError with the existing names.
    """
    found = instances(knob, facts)
    wanted = name.removeprefix("/dev/").removeprefix("disk/by-id/")
    for instance in found:
        if instance.name == wanted:
            return instance
    if knob.placeholder == "device" and (device := facts.block_device(name)):
        return resolve(knob, str(device["name"]), facts)
    if not name and knob.placeholder == "policy" and found:
        return Instance(knob, "", tuple(dict.fromkeys(path for each in found for path in each.paths)))
    names = [each.name for each in found]
    place = f"{knob.name}@{name}" if name else knob.name
    if not names or names == [""]:
        has = "has no instances" if names else "this host has none"
        raise PlanError(f"no such instance: {has}", place=place)
    missing = "no such instance" if name else "needs an instance"
    raise PlanError(missing, place=place, hint=f"{knob.name}@NAME, of {', '.join(names[:20])}")


def matches(instance: Instance, pattern: str) -> bool:
    """Whether an area (``host``), a part of the name or a pattern (``*swap*``, ``*@eth0``) means it."""
    full = instance.full_name
    if any(c in pattern for c in "*?["):
        return fnmatch.fnmatch(full, pattern)
    return full.startswith(f"{pattern}.") or pattern in full


def _devices(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    for device in facts.block_devices:
        if device.get("queue"):
            yield str(device["name"]), [str(device["name"])]


def _queues(facts: HostFacts, key: str, short: str) -> Iterator[tuple[str, list[str]]]:
    for nic in facts.network_interfaces:
        queues = [f"{short}-{queue['queue']}" for queue in nic.get(key) or ()]
        paths = [f"{nic['name']}/queues/{queue}" for queue in queues]
        yield str(nic["name"]), paths
        for queue, path in zip(queues, paths, strict=True):
            yield f"{nic['name']}/{queue}", [path]


def _rx(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    return _queues(facts, "rx_queues", "rx")


def _tx(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    return _queues(facts, "tx_queues", "tx")


def _interfaces(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    for nic in facts.network_interfaces:
        yield str(nic["name"]), [str(nic["name"])]


def _irqs(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    for line in facts.interrupts:
        if line.get("smp_affinity_list") is not None:
            yield str(line["irq"]), [str(line["irq"])]


def _arrays(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    for array in facts.md_arrays:
        yield str(array["name"]), [str(array["name"])]


def _policies(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    """A policy is the processors that share a frequency; it has the name of its first one."""
    for policy in facts.frequency_policies:
        if cpus := policy.get("cpus"):
            yield f"policy{cpus[0]}", [str(cpus[0])]


def _idle_states(facts: HostFacts) -> Iterator[tuple[str, list[str]]]:
    for number, state in enumerate(facts.idle_states):
        if state.get("name"):
            yield str(state["name"]), [f"{cpu}/cpuidle/state{number}" for cpu in facts.online_cpus]


_PLACES = {
    "device": _devices,
    "rx": _rx,
    "tx": _tx,
    "interface": _interfaces,
    "irq": _irqs,
    "array": _arrays,
    "policy": _policies,
    "idle": _idle_states,
}


def managed(instance: Instance, facts: HostFacts) -> bool:
    """Whether an interrupt is known to be managed by the kernel, so that it cannot be moved."""
    if instance.knob.placeholder != "irq":
        return False
    line: Mapping[str, object] = next((i for i in facts.interrupts if str(i["irq"]) == instance.name), {})
    return line.get("managed") is True
