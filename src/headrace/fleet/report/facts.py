"""The facts of many hosts on one screen: each line of a host's digest once, with the hosts that have it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from headrace.base.errors import HeadraceError
from headrace.base.model import Facts
from headrace.fleet.folded import Folded, named
from headrace.fleet.report.hosts import Roll
from headrace.fleet.runner import Outcome
from headrace.host.facts import HostFacts
from headrace.host.ranges import fold
from headrace.show import terminal as show
from headrace.show.parts import Cell, Cells, Gap, Part, Sentence, Table


def terminal(outcomes: Iterable[Outcome], hosts: Mapping[str, Any]) -> RenderableType:
    roll, folded, strange = Roll(len(hosts)), Folded(), dict[str, str]()
    for outcome in roll.call(outcomes):
        try:
            lines = list(_digest(outcome.answer))
        except HeadraceError as error:
            strange[outcome.host] = error.message[:200]
            continue
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # Another version's facts, or a host that answers anything: it costs its own lines.
            strange[outcome.host] = f"{type(error).__name__}: {error}"[:200]
            continue
        folded.host(outcome.host)
        for key, value in lines:
            folded.add(key, value)
    rows: list[Cells] = [
        [Cell(key, style="bold") if is_first else "", value, named(found, folded.size)]
        for key in folded.keys
        for is_first, (value, found) in _with_first(folded.groups(key))
    ]
    table = Table((("what", ""), ("value", "wrap"), ("hosts", "wrap")), rows)
    parts: list[Part] = [*roll.parts(), *_strange(strange)]
    return show.show([*parts, Gap(), table] if rows else parts)


def _strange(hosts: Mapping[str, str]) -> Iterable[Part]:
    for why in dict.fromkeys(hosts.values()):
        names = [name for name, each in hosts.items() if each == why]
        yield Sentence(f"the facts of {fold(names)} cannot be read: {why}", "red")


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
