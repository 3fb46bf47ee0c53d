"""The facts of many hosts on one screen: each line of a host's digest once, with the hosts that have it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from headrace.facts import HostFacts
from headrace.fleet.folded import Folded, named
from headrace.fleet.runner import Outcome
from headrace.model import Facts
from headrace.report import terminal as show
from headrace.report.fleet.hosts import Roll
from headrace.report.parts import Cell, Cells, Gap, Part, Table


def terminal(outcomes: Iterable[Outcome], hosts: Mapping[str, Any]) -> RenderableType:
    roll, folded = Roll(len(hosts)), Folded()
    for outcome in roll.call(outcomes):
        folded.host(outcome.host)
        for key, value in _digest(outcome.answer):
            folded.add(key, value)
    rows: list[Cells] = [
        [Cell(key, style="bold") if is_first else "", value, named(found, folded.size)]
        for key in folded.keys
        for is_first, (value, found) in _with_first(folded.groups(key))
    ]
    table = Table((("what", ""), ("value", "wrap"), ("hosts", "wrap")), rows)
    parts: list[Part] = [*roll.parts(), Gap(), table]
    return show.show(parts if rows else parts[:-2])


def _with_first(groups: list[tuple[str, tuple[str, ...]]]) -> Iterable[tuple[bool, Any]]:
    return ((number == 0, group) for number, group in enumerate(groups))


def _digest(answer: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The lines of ``headrace facts``, without what each process has of its own."""
    facts = HostFacts(Facts("", answer))
    if facts.server_vendor:
        yield "database", f"{facts.server_vendor} {facts.server_version}"
    for key, value in facts.digest():
        if key == "host":
            continue
        if key.startswith("server "):
            value = re.sub(r"pid \d+, |, [\d.]+ GiB resident", "", value)
        yield key, value
