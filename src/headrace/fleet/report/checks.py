"""Short answers of many hosts, name by name: doctor, status, ladder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.fleet.folded import Folded, named
from headrace.show.parts import Cell, Cells, Gap, Part, Table


def parts(folded: Folded) -> Iterator[Part]:
    """Each name once, its values with their hosts, the most frequent first."""
    rows: list[Cells] = []
    last = ""
    for key, value, hosts in folded.rows():
        rows.append([Cell(key if key != last else "", style="bold"), value, named(hosts, folded.size)])
        last = key
    if rows:
        yield Gap()
        yield Table((("what", ""), ("answer", "wrap"), ("hosts", "wrap")), rows)


def to_json(folded: Folded) -> dict[str, Any]:
    return {
        key: [{"value": value, "hosts": list(hosts)} for value, hosts in folded.groups(key)]
        for key in folded.keys
    }
