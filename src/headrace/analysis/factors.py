"""From rows or trials to one study a response: its effects and its cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.analysis.aliasing import Aliasing
from headrace.analysis.choice import Cell
from headrace.analysis.effects import Effects, Observation, Term, analyse
from headrace.errors import PlanError
from headrace.foreign import Row


@dataclass(frozen=True)
class Study:
    """One response of a table of trials. ``cells`` are geometric means over repeats, named by the levels of
    ``factors``; ``alpha`` and ``margin`` are what sentences are told by. Of an experiment, ``condition`` is the
    question that was asked, ``names`` the treatments by cell, and ``aliasing`` what a screening cannot tell."""

    response: str
    is_higher_better: bool
    effects: Effects
    cells: Mapping[Cell, float]
    alpha: float = 0.05
    margin: float = 0.03
    condition: str = ""
    names: Mapping[Cell, str] = field(default_factory=dict)
    aliasing: Aliasing | None = None

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(self.effects.factors)

    def name(self, cell: Cell) -> str:
        return self.names.get(cell) or " ".join(cell)


def study(
    response: str,
    observations: Sequence[Observation],
    *,
    is_higher_better: bool,
    alpha: float = 0.05,
    margin: float = 0.03,
    pairs: Sequence[Term] | None = None,
    hard: Sequence[str] = (),
    planned: Sequence[Mapping[str, str]] | None = None,
) -> Study:
    """``pairs``, ``hard`` and ``planned`` are those of ``effects.analyse``. Raises ValueError where no factor has
    two levels."""
    effects = analyse(observations, alpha=alpha, pairs=pairs, hard=hard, planned=planned)
    logs: dict[Cell, list[float]] = {}
    for seen in observations:
        logs.setdefault(tuple(seen.levels[f] for f in effects.factors), []).append(seen.log)
    cells = {cell: math.exp(math.fsum(own) / len(own)) for cell, own in logs.items()}
    return Study(response, is_higher_better, effects, cells, alpha, margin)


def studies_of(
    rows: Sequence[Row],
    factors: Sequence[str],
    responses: Mapping[str, bool],
    *,
    block: str = "",
    alpha: float = 0.05,
    margin: float = 0.03,
) -> list[Study]:
    """A study for each of ``responses`` (name -> more is better). ``block`` names the level that tells repeats
    which were measured together.

    Raises PlanError for a factor or a response that a row does not have, and where no factor has two levels.
    """
    blocks = list(dict.fromkeys(row.levels.get(block, "") for row in rows))
    for row in rows:
        for name in (*factors, *([block] if block else [])):
            if not row.levels.get(name):
                raise PlanError(f"no {name!r} here", place=row.place)
    found = []
    for response, is_higher_better in responses.items():
        own = [row for row in rows if response in row.responses]
        if not own:
            there = ", ".join(sorted({name for row in rows for name in row.responses})) or "none"
            raise PlanError(f"no row has a {response!r}; there are: {there}")
        observations = [
            Observation(
                {name: row.levels[name] for name in factors},
                math.log(row.responses[response]),
                blocks.index(row.levels[block]) if block else None,
            )
            for row in own
        ]
        try:
            found.append(
                study(response, observations, is_higher_better=is_higher_better, alpha=alpha, margin=margin)
            )
        except ValueError as error:
            raise PlanError(f"{response}: {error}", hint="name a column that varies with --factor") from error
    return found
