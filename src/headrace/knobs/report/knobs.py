"""The knob catalogue for people: a table of a host's values, a page per knob."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.base.errors import HeadraceError
from headrace.host.facts import HostFacts
from headrace.host.target.fixture import FixtureTarget
from headrace.knobs import catalogue as knobs
from headrace.knobs import servers
from headrace.knobs.catalogue import Instance, Kind, Knob, instances, matches
from headrace.knobs.provider import managed_by
from headrace.knobs.servers import Listed, ServerList
from headrace.show.text import clean

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from headrace.base.model import ServerLogin
    from headrace.host.agent import Agent


#: Bytes of a file that are a knob's value: a list of one per CPU is longer, and no value.
MOST_VALUE = 4096


@dataclass(frozen=True)
class Row:
    """One knob of a host with its current value; None if it cannot be read. ``range`` is what it may be, in words;
    for a server of which there is no list, that it is unknown.
    """

    name: str
    knob: Knob
    value: str | None
    range: str = ""
    #: How a provider lets it be changed, for a managed server's variable.
    way: str = ""


async def rows(agent: Agent, login: ServerLogin | None, pattern: str = "") -> tuple[list[Row], str]:
    """The catalogue's knobs that this host and its server have, with values as the kernel and the server print
    them. And why the server that was named is not among them, empty if it is.
    """
    facts = HostFacts(await agent.facts(login))
    found: list[Instance] = []
    for knob in knobs.CATALOGUE.values():
        found += [i for i in instances(knob, facts) if not pattern or matches(i, pattern)]
    values = await _read(agent, [each.paths[0] for each in found])
    host = [Row(each.full_name, each.knob, values.get(each.paths[0]), _range(each.knob)) for each in found]
    variables = []
    vendor, version = facts.vendor, facts.server_version or ""
    own = servers.of(vendor, version)
    managed = managed_by(facts.variables, facts.server_asked)
    for knob in knobs.CATALOGUE.values():
        variable = knob.variable_on(vendor, version)
        value = facts.variable(variable) if knob.name.startswith("server.") else None
        if value is not None and (not pattern or matches(Instance(knob, "", ()), pattern)):
            words = _range(knob.on(vendor, version)) if own else f"unknown: no list of {vendor} {version}"
            cost = knob.cost_on(vendor, version, value)
            way = managed.provider.how(variable) if managed is not None else ""
            variables.append(Row(knob.name, replace(knob, cost=cost), value, words, way))
    return [*(row for row in host if row.value is not None), *variables], facts.server_silence


async def _read(agent: Agent, paths: list[str]) -> dict[str, str]:
    """All files with one command, because each one costs a round trip over SSH; and with one program, because one
    for each of hundreds of files takes seconds. A shell's own `read` takes bytes one by one, and a file of
    /proc/sys has only the first.
    """
    found: dict[str, str] = {}
    if isinstance(agent.target, FixtureTarget):  # which runs nothing
        for path in paths:
            with contextlib.suppress(FileNotFoundError, HeadraceError, OSError):
                value = (await agent.target.read(path))[:MOST_VALUE].decode("utf-8", "replace")
                found |= {path: " ".join(value.split())} if value.strip() else {}
        return found
    # A queue's and an interface's knob may be one file.
    paths = list(dict.fromkeys(paths))
    wanted = set(paths)
    for start in range(0, len(paths), 500):
        command = ["env", "LC_ALL=C", "grep", "-s", "", "/dev/null", *paths[start : start + 500]]
        for line in (await agent.target.run(command, check=False)).text.splitlines():
            # A path may hold colons, as that of a PCI device does.
            ends = (end.start() for end in re.finditer(":", line))
            path = next((line[:end] for end in ends if line[:end] in wanted), "")
            value = f"{found.get(path, '')} {line[len(path) + 1 :]}"[: MOST_VALUE + 1]
            if path and value.strip():
                found[path] = " ".join(value.split())
    return found


#: Kinds whose values are numbers, as kernels and servers print them.
_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.SIZE)


def _value(row: Row) -> str | float | None:
    """A number if the knob's kind is one and it is printed as one, which "max" and "16M" are not."""
    if row.knob.kind in _NUMBERS and row.value and re.fullmatch(r"-?\d+(\.\d+)?", row.value):
        return float(row.value) if "." in row.value else int(row.value)
    return row.value


def row_json(row: Row) -> dict[str, Any]:
    cost = row.knob.cost
    return {
        "name": row.name, "value": _value(row), "unit": row.knob.unit, "cost": cost, "range": row.range,
        "way": row.way or None,
    }  # fmt: skip


def table(found: list[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    view = Table("knob", "now", "unit", "range", "cost", box=None, pad_edge=False)
    for row in found:
        view.add_row(row.name, Text(clean(row.value or "")), row.knob.unit, row.range, row.knob.cost)
    return view


def notes(found: list[Row]) -> list[str]:
    """What has to be known of a managed server's variables: how the first is changed, and which do not apply."""
    there = [row for row in found if row.way]
    fixed = [row for row in there if "does not apply" in row.way]
    usual = next((row for row in there if row not in fixed), None)
    lines = [f"This server is managed. {usual.name}: {usual.way}."] if usual else []
    if fixed:
        lines.append(f"Without effect there: {', '.join(row.name for row in fixed)}.")
    return lines


def knob_json(knob: Knob) -> dict[str, Any]:
    return {
        "name": knob.name,
        "kind": knob.kind,
        "cost": knob.cost,
        "doc": knob.doc,
        "source": knob.source,
        "unit": knob.unit,
        "allowed": list(knob.allowed),
        "low": knob.low,
        "high": knob.high,
        "durability": knob.durability,
        "weakens": knob.weak_reason,
        "formerly": knob.formerly,
        "location": knob.location,
        "servers": {
            own.name: _listed_json(listed)
            for own in servers.lists()
            if (listed := knob.listed_on(own.vendor, own.version))
        },
        "applies_to": {vendor: _versions(versions) for vendor, versions in knob.applies_to.items()},
    }


def _listed_json(own: Listed) -> dict[str, Any]:
    return {
        "low": own.low,
        "high": own.high,
        "allowed": list(own.names),
        "default": own.usual,
        "dynamic": own.is_dynamic,
        "variable": own.is_variable,
        "option": own.option or None,
        "deprecated": own.deprecated or None,
    }


def page(knob: Knob) -> Text:
    from rich.text import Text

    text = Text.assemble((knob.name, "bold"), f"\n{knob.doc}\n")
    for label, value in _details(knob):
        text.append(f"  {label:<16} {value}\n")
    return text


def _details(knob: Knob) -> list[tuple[str, str]]:
    ends = _range(knob)
    values = ", ".join(word for word in (str(knob.kind), ends) if word)
    details = [("values", f"{values} {knob.unit}".rstrip()), ("cost", str(knob.cost))]
    if knob.placeholder:
        details.append(("set as", f"{knob.name}@{knob.placeholder.upper()}=VALUE"))
    for label, value in (
        ("file", knob.location),
        ("weakens", knob.weak_reason),
        ("never", knob.never),
        ("formerly", knob.formerly),
    ):
        if value:
            details.append((label, value))
    if knob.dynamic_in:
        there = ", ".join(f"{v} {_versions(r)}".rstrip() for v, r in knob.dynamic_in.items())
        details.append(("dynamic in", there))
    for own in servers.lists():
        if listed := knob.listed_on(own.vendor, own.version):
            details.append((own.name, _listed(knob, own, listed)))
    if knob.applies_to:
        details.append(
            (
                "documents say",
                ", ".join(f"{v} {_versions(r)}".rstrip() for v, r in knob.applies_to.items()),
            )
        )
    return [*details, ("source", knob.source)]


def _range(knob: Knob) -> str:
    """What the value may be, in words; empty if it has neither ends nor names."""
    return Listed("", knob.low, knob.high, knob.allowed).range


def _listed(knob: Knob, server: ServerList, own: Listed) -> str:
    """What a server says of it: its range, default, cost, the option's name, and that it is deprecated."""
    words = [own.range] if own.range and own.kind != "switch" else []
    words += [f"default {own.usual}"] if own.usual else []
    words += [str(knob.cost_on(server.vendor, server.version))]
    words += [f"sets {variable}" for variable in _renamed(knob, server)]
    if not own.is_variable:
        words.append("an option, no variable")
    elif not own.option:
        words.append("no option sets it")
    elif own.option.replace("-", "_") != knob.variable_on(server.vendor, server.version):
        words.append(f"in option files: {own.option}")
    words += [f"deprecated: {own.deprecated}"] if own.deprecated else []
    return ", ".join(words)


def _renamed(knob: Knob, server: ServerList) -> list[str]:
    variable = knob.variable_on(server.vendor, server.version)
    return [] if variable == knob.name.removeprefix("server.") else [variable]


def _versions(versions: knobs.Versions) -> str:
    since = f"from {versions.since}" if versions.since else ""
    until = f"before {versions.until}" if versions.until else ""
    return " ".join(part for part in (since, until) if part)
