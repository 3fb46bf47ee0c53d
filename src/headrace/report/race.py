"""What a race says: who stands, who left when and why, and what it saved against a full study."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.analysis.race import Race, Standing
from headrace.analysis.trials import THROUGHPUT
from headrace.experiment import race as races
from headrace.report import tables, text
from headrace.store import ExperimentFolder

#: The format of this ``report.json``.
FORMAT_VERSION = 1


def is_race(folder: ExperimentFolder) -> bool:
    return folder.design.experiment == races.KIND


class RaceReport:
    """One race's folder, judged once, for terminal and JSON. Raises StoreError when its tables cannot be read."""

    def __init__(self, folder: ExperimentFolder) -> None:
        self.records = folder.trials()
        self.folder = races.as_decided(folder)
        self.progress = races.progress_of(folder)
        self.response = folder.design.response
        everyone = len(folder.design.treatments)
        #: All treatments in all blocks of the plan, and in those that the race came to.
        self.full_trials = everyone * folder.design.blocks
        self.same_trials = everyone * len(self.progress.runners)

    def headline(self, condition: str, race: Race) -> str:
        """One sentence: the winner, or the class that stands, or what is still open."""
        margin = f"{100 * self.folder.design.equivalence:g}%"
        where = f" at {condition}" if condition else ""
        if not race.survivors:
            return f"No treatment could be measured{where}."
        if len(race.survivors) == 1:
            return f"{race.leader} wins{where}: every other treatment is worse, or failed."
        count = len(race.survivors) - 1
        others = f"{count} of the others stand{'s' if count == 1 else ''}"
        if race.is_decided:
            return f"{race.leader} is within {margin} of the best{where}; {others}, not told apart."
        if self.progress.is_over:
            return f"Not decided{where} in {race.blocks} blocks: {race.leader} leads, {others}."
        return f"After {race.blocks} blocks{where} {race.leader} leads; {others}."

    def saved(self) -> str:
        """What the race ran, beside full studies of all treatments."""
        ran = len(self.records)
        part = f"{100 * ran / self.full_trials:.0f}%" if self.full_trials else "–"
        took, full, same = (
            f", {text.seconds(seconds)}" if self.seconds else ""
            for seconds in (self.seconds, self.full_seconds, self.same_seconds)
        )
        said = f"{ran} trials ran{took}; {self.full_trials}{full} would have been "
        said += f"all treatments in all blocks ({part})"
        if self.same_trials < self.full_trials:
            said += f", {self.same_trials}{same} all in as many blocks as the race came to"
        said += "."
        again = sum(len(r.earlier) for r in self.records)
        if again:
            said += f" {again} more {'was' if again == 1 else 'were'} disturbed, and measured again."
        return said

    @property
    def seconds(self) -> float:
        """How long the trials took, with all that is set up for them."""
        return sum(
            (r.times_ns["finished"] - r.times_ns["started"]) / 1e9
            for r in self.records
            if {"started", "finished"} <= r.times_ns.keys()
        )

    @property
    def full_seconds(self) -> float:
        """How long all treatments in all blocks of the plan would have taken."""
        return self._block_seconds * self.folder.design.blocks

    @property
    def same_seconds(self) -> float:
        """How long all treatments in as many blocks as the race came to would have taken."""
        return self._block_seconds * len(self.progress.runners)

    @property
    def _block_seconds(self) -> float:
        """A block of all treatments, each in its own mean time."""
        own: dict[str, list[float]] = {}
        for r in self.records:
            if {"started", "finished"} <= r.times_ns.keys():
                own.setdefault(r.treatment, []).append((r.times_ns["finished"] - r.times_ns["started"]) / 1e9)
        return sum(sum(times) / len(times) for times in own.values())

    def to_json(self) -> dict[str, Any]:
        """The content of ``report.json``."""
        design = self.folder.design.to_json()
        kept = ("name", "description", "kind", "seed", "alpha", "equivalence", "response", "workload", "hash")
        return {
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": {key: design[key] for key in kept},
            "is_over": self.progress.is_over,
            "trials": len(self.records),
            "full_trials": self.full_trials,
            "same_trials": self.same_trials,
            "seconds": self.seconds,
            "full_seconds": self.full_seconds,
            "same_seconds": self.same_seconds,
            "measured_again": sum(len(r.earlier) for r in self.records),
            "races": [
                {
                    "condition": condition,
                    "headline": self.headline(condition, race),
                    "blocks": race.blocks,
                    "is_decided": race.is_decided,
                    "leader": race.leader,
                    "survivors": list(race.survivors),
                    "deviation": race.deviation,
                    "standings": [asdict(standing) for standing in race.standings],
                }
                for condition, race in self.progress.races.items()
            ],
            "cautions": tables.cautions(self.records),
            "versions": tables.versions(self.records),
        }

    def write(self) -> Path:
        """Write ``report.json`` and ``report.html`` into the folder; the page's path. Raises DiskFull when there
        is no room."""
        from headrace.report import race_html

        content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        self.folder.write_output("report.json", content)
        return self.folder.write_output("report.html", race_html.page_of(self))

    def terminal(self) -> RenderableType:
        parts: list[RenderableType] = []
        for condition, race in self.progress.races.items():
            parts += [
                Text(text.clean(self.headline(condition, race)), style="bold"),
                "",
                self._table(race),
                "",
            ]
        if not parts:
            parts.append(Text("No block is complete yet."))
        parts.append(Text(self.saved()))
        alpha = self.folder.design.alpha
        parts.append(
            Text(
                f"The best is dropped with probability {100 * alpha:g}% at most, whenever the race stops. The "
                "leader's mean is flattered by having been chosen: measure it once more beside what you have."
            )
        )
        parts += [Text(f"Caution: {text.clean(c)}.", style="yellow") for c in tables.cautions(self.records)]
        return Group(*parts)

    def _table(self, race: Race) -> Table:
        form = text.count if self.response == THROUGHPUT else text.milliseconds
        unit = "ops/s" if self.response == THROUGHPUT else f"{self.response}, ms"
        table = tables.of_columns(
            ("treatment", False),
            ("blocks", True),
            (unit, True),
            ("/ leader", True),
            ("interval", True),
            ("", False),
        )
        order = {name: i for i, name in enumerate(race.survivors)}
        for s in sorted(race.standings, key=lambda s: (order.get(s.treatment, len(order)), -s.blocks)):
            table.add_row(
                Text(text.clean(s.treatment), style="bold" if s.treatment == race.leader else ""),
                str(s.blocks),
                form(s.mean),
                text.ratio(s.to_leader.estimate if s.to_leader else None),
                "leader" if s.treatment == race.leader else text.between(s.to_leader) if s.to_leader else "–",
                Text(_fate(s), style="dim"),
            )
        return table


def _fate(standing: Standing) -> str:
    if standing.is_failed:
        return f"failed in block {standing.dropped_after}"
    if standing.dropped_after is None:
        return "stands"
    return f"left after block {standing.dropped_after}, beaten by {text.clean(standing.dropped_by)}"
