"""The latencies of many hosts: the middle of each row, and the hosts that are far from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.host.ranges import fold
from headrace.hunt.ladder.published import duration
from headrace.show.parts import Cell, Cells, Gap, Part, Table

#: A host so many times slower than the middle one is named.
FAR = 1.5


@dataclass
class Rows:
    """``add`` host by host: row -> host -> median in ns."""

    medians: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, host: str, answer: Mapping[str, Any]) -> None:
        for rung in answer["rungs"]:
            self.medians.setdefault(rung["name"], {})[host] = float(rung["median_ns"])

    def parts(self) -> Iterator[Part]:
        rows: list[Cells] = []
        for name, found in self.medians.items():
            middle = statistics.median(found.values())
            slow = [host for host, median in found.items() if median > FAR * middle > 0]
            rows.append(
                [
                    Cell(name, style="bold"),
                    duration(middle),
                    f"{duration(min(found.values()))} – {duration(max(found.values()))}",
                    str(len(found)),
                    Cell(fold(slow), style="yellow"),
                ]
            )
        if rows:
            yield Gap()
            far = f"over {FAR:g}x the middle"
            yield Table((("row", ""), ("middle", "n"), ("range", "n"), ("hosts", "n"), (far, "wrap")), rows)

    def to_json(self) -> dict[str, Any]:
        return {"median_ns": {name: dict(found) for name, found in self.medians.items()}}
