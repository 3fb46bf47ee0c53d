"""From settings to what the agent changes on a live host: files, variables of the server, options of mounts."""

from __future__ import annotations

import re

from headrace.base.errors import Refused
from headrace.base.model import Value, Vendor
from headrace.host.facts import HostFacts
from headrace.knobs.instance import managed, resolve
from headrace.knobs.knob import Cost, Kind, Knob, size_bytes, value_text
from headrace.knobs.provider import managed_by

#: One entry of what ``headrace-agent journal apply`` reads: a ``path`` or ``variable`` and its ``value``, or a
#: ``mount`` and its ``options``.
Change = dict[str, str]


def changes(knob: Knob, instance: str, value: Value, facts: HostFacts) -> list[Change]:
    """The writes that give a knob of a live host this value.

    Raises PlanError if the host has no such instance, Refused if a live host cannot change it.
    """
    place = f"{knob.name}@{instance}" if instance else knob.name
    if knob.never:
        raise Refused(knob.never, place=place)
    if knob.name.startswith("server."):
        refuse_managed(knob, value, facts)
        vendor, version = facts.vendor, facts.server_version or ""
        name = knob.variable_on(vendor, version)
        cost = knob.cost_on(vendor, version, facts.variable(name), value)
        if cost is not Cost.DYNAMIC:
            raise Refused(f"a live server cannot change it: it needs a {cost}", place=place)
        if vendor:
            knob.check_on(vendor, version, value)
        return [{"variable": name, "value": text_of(knob.on(vendor, version), value)}]
    if knob.name == "volume.mount_options":
        return [{"mount": instance, "options": text_of(knob, value)}]
    if not knob.location:
        raise Refused(f"a live host cannot change it: it needs a {knob.cost}", place=place)
    found = resolve(knob, instance, facts)
    if managed(found, facts):
        raise Refused("the kernel manages this interrupt: it cannot be moved", place=place)
    return [{"path": path, "value": text_of(knob, value)} for path in found.paths]


def refuse_managed(knob: Knob, value: Value, facts: HostFacts) -> None:
    """Raises Refused, with the provider's own way, for a setting of a server that a provider manages."""
    found = managed_by(facts.variables, facts.server_asked)
    if found is None or not knob.name.startswith("server."):
        return
    vendor, version = facts.vendor, facts.server_version or ""
    own = knob.on(vendor, version) if vendor else knob
    raise Refused(
        f"{found.provider.name} manages this server ({found.sign}): its settings are changed by other means",
        place=knob.name,
        hint=found.provider.how(knob.variable_on(vendor, version), text_of(own, value)),
    )


def in_words(knob: Knob, value: Value, vendor: Vendor | None, version: str) -> Value:
    """A number of a choice or a set as the names that it stands for on this server; any other value as it is.

    The names of a choice are in the order of their numbers, those of a set by MariaDB's word only.
    """
    own = knob.listed_on(vendor, version)
    text = "" if isinstance(value, bool | list) else str(value).strip()
    # The flags of optimizer_switch are compared by their bits: a number says all of them.
    if own is None or not own.names or not re.fullmatch("[0-9]{1,18}", text) or "default" in own.names:
        return value
    number = int(text)
    if own.kind == "choice":
        return own.names[number] if number < len(own.names) else value
    if own.kind != "set" or vendor is not Vendor.MARIADB or number >> len(own.names):
        return value
    return ",".join(name for at, name in enumerate(own.names) if number >> at & 1)


def text_of(knob: Knob, value: Value) -> str:
    """The value as the kernel or the server accepts it: SQL rejects ``128M``, the kernel rejects ``ON``."""
    if isinstance(value, list):
        return ",".join(value)
    text = value_text(value)
    if knob.kind is Kind.SIZE and not isinstance(value, bool):
        return str(size_bytes(text))
    if knob.kind is Kind.SWITCH or (isinstance(value, bool) and knob.location):
        is_on = text.lower() in ("on", "1", "true")
        return str(int(is_on)) if knob.location else "ON" if is_on else "OFF"
    return text
