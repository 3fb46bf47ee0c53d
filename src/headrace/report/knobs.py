"""The knob catalogue for people: a table of a host's values, a page per knob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace import knobs
from headrace.facts import HostFacts
from headrace.knobs import Instance, Knob, instances, matches
from headrace.report.text import clean

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from headrace.agent import Agent
    from headrace.model import ServerLogin


@dataclass(frozen=True)
class Row:
    """One knob of a host with its current value; None if it cannot be read."""

    name: str
    knob: Knob
    value: str | None


async def rows(agent: Agent, login: ServerLogin | None, pattern: str = "") -> list[Row]:
    """The catalogue's knobs that this host and its server have, with values as the kernel and the server print
    them.
    """
    facts = HostFacts(await agent.facts(login))
    found: list[Instance] = []
    for knob in knobs.CATALOGUE.values():
        found += [i for i in instances(knob, facts) if not pattern or matches(i, pattern)]
    values = await _read(agent, [each.paths[0] for each in found])
    host = [Row(each.full_name, each.knob, values.get(each.paths[0])) for each in found]
    variables = []
    for knob in knobs.CATALOGUE.values():
        value = facts.variable(knob.name.removeprefix("server.")) if knob.name.startswith("server.") else None
        if value is not None and (not pattern or matches(Instance(knob, "", ()), pattern)):
            variables.append(Row(knob.name, knob, value))
    return [*(row for row in host if row.value is not None), *variables]


async def _read(agent: Agent, paths: list[str]) -> dict[str, str]:
    """All files with one command, because each one costs a round trip over SSH."""
    script = (
        'for f; do v=$(cat "$f" 2>/dev/null | head -c 4096 | tr "\n" " ") '
        '&& printf "%s\t%s\n" "$f" "$v"; done'
    )
    found: dict[str, str] = {}
    for start in range(0, len(paths), 500):
        completed = await agent.target.run(
            ["sh", "-c", script, "sh", *paths[start : start + 500]], check=False
        )
        for line in completed.text.splitlines():
            path, _, value = line.partition("\t")
            if value.strip():
                found[path] = " ".join(value.split())
    return found


def row_json(row: Row) -> dict[str, Any]:
    return {"name": row.name, "value": row.value, "unit": row.knob.unit, "cost": row.knob.cost}


def table(found: list[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    view = Table("knob", "now", "unit", "cost", box=None, pad_edge=False)
    for row in found:
        view.add_row(row.name, Text(clean(row.value or "")), row.knob.unit, row.knob.cost)
    return view


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
        "applies_to": {vendor: _versions(versions) for vendor, versions in knob.applies_to.items()},
    }


def page(knob: Knob) -> Text:
    from rich.text import Text

    text = Text.assemble((knob.name, "bold"), f"\n{knob.doc}\n")
    for label, value in _details(knob):
        text.append(f"  {label:<12} {value}\n")
    return text


def _details(knob: Knob) -> list[tuple[str, str]]:
    values = " ".join(knob.allowed) or str(knob.kind)
    if knob.low is not None or knob.high is not None:
        low = "" if knob.low is None else f"{knob.low:.12g}"
        high = "" if knob.high is None else f"{knob.high:.15g}"
        values += f", {low} to {high}" if high else f", from {low}"
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
    if knob.high_in:
        details.append(("at most", ", ".join(f"{high:g} ({v})" for v, high in knob.high_in.items())))
    if knob.applies_to:
        details.append(
            ("servers", ", ".join(f"{v} {_versions(r)}".rstrip() for v, r in knob.applies_to.items()))
        )
    return [*details, ("source", knob.source)]


def _versions(versions: knobs.Versions) -> str:
    since = f"from {versions.since}" if versions.since else ""
    until = f"before {versions.until}" if versions.until else ""
    return " ".join(part for part in (since, until) if part)
