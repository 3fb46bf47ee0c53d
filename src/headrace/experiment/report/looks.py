"""The look of each line, the same in every chart of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.experiment.report import tables
from headrace.show import charts


@dataclass(frozen=True)
class Look:
    colour: str
    dash: str
    width: float

    @property
    def is_telling(self) -> bool:
        """Whether it is in the legend; other lines are grey and named on hover."""
        return "muted" not in self.colour


def line_styles(names: Sequence[str], group: tables.Group) -> dict[str, Look]:
    """Looks by configuration. If there are more lines than colours, only the important ones are coloured."""
    others = [n for n in names if n != group.baseline_configuration]
    styles = {n: Look("@{ink}", "dot", 2.4) for n in names if n not in others}
    if len(others) <= len(charts.LINE_COLOURS):
        return styles | {n: Look(charts.LINE_COLOURS[i], charts.DASHES[i], 2.0) for i, n in enumerate(others)}
    speed = {
        r.configuration: r.effects[tables.THROUGHPUT].ratio.estimate
        for r in group.rows
        if tables.THROUGHPUT in r.effects
    }
    telling = sorted((n for n in others if n in speed), key=lambda n: speed[n], reverse=True)
    styles |= dict.fromkeys(others, Look("@{muted/0.6}", "solid", 1.0))
    if telling:
        styles[telling[-1]] = Look(charts.LINE_COLOURS[1], "dash", 2.2)
        styles[telling[0]] = Look(charts.LINE_COLOURS[0], "solid", 2.4)
    return styles
