"""From rows or trials to one study per response: its effects and its cells."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.experiment.stats import additive, misfits, whole
from headrace.experiment.stats.aliasing import Aliasing
from headrace.experiment.stats.choice import Cell
from headrace.experiment.stats.claims import Claim
from headrace.experiment.stats.decision import Question
from headrace.experiment.stats.effects import Effects, Observation, Term, analyse
from headrace.experiment.stats.estimate import Seen

if TYPE_CHECKING:
    from headrace.experiment.foreign import Row


@dataclass(frozen=True)
class Study:
    """One response of a table of trials.

    ``cells`` are geometric means over repeats, named by the levels of ``factors``; ``alpha`` and ``margin`` are
    for the sentences. For an experiment, ``condition`` is the question, ``names`` the treatments by cell,
    ``aliasing`` a screening's confounding, and ``claims`` what is proven of its factors.
    """

    response: str
    is_higher_better: bool
    effects: Effects
    cells: Mapping[Cell, float]
    alpha: float = 0.05
    margin: float = 0.03
    condition: str = ""
    names: Mapping[Cell, str] = field(default_factory=dict)
    aliasing: Aliasing | None = None
    #: By block if ``is_blocked``, else by number of repeat.
    logs: Mapping[Cell, Mapping[int, float]] = field(default_factory=dict)
    is_blocked: bool = False
    claims: tuple[Claim, ...] = ()
    #: Runs that do not fit the others, by place: how many times the middle of its cell each is.
    misfits: Mapping[str, float] = field(default_factory=dict)
    #: All runs of the response, with those.
    runs: int = 0

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(self.effects.factors)

    @property
    def title(self) -> str:
        """The response, and the condition it was measured in."""
        return f"{self.response} @ {self.condition}" if self.condition else self.response

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
    """``pairs``, ``hard`` and ``planned`` are those of ``effects.analyse``.

    Raises ValueError if no factor has two levels.
    """
    effects = analyse(observations, alpha=alpha, pairs=pairs, hard=hard, planned=planned)
    is_blocked = all(seen.block is not None for seen in observations)
    means, logs = _cells(observations, effects.factors, is_blocked=is_blocked)
    return Study(response, is_higher_better, effects, means, alpha, margin, logs=logs, is_blocked=is_blocked)


def _cells(
    observations: Sequence[Observation], factors: Iterable[str], *, is_blocked: bool
) -> tuple[dict[Cell, float], dict[Cell, dict[int, float]]]:
    """Each cell's geometric mean, and its logs: by block, or by number of repeat."""
    logs: dict[Cell, list[tuple[int | None, float]]] = {}
    for seen in observations:
        logs.setdefault(tuple(seen.levels[f] for f in factors), []).append((seen.block, seen.log))
    by = _by_block if is_blocked else _by_repeat
    means = {cell: math.exp(math.fsum(v for _, v in own) / len(own)) for cell, own in logs.items()}
    return means, {cell: by(own) for cell, own in logs.items()}


def _robust(one: Study, observations: Sequence[Observation], places: Sequence[str]) -> Study:
    """A table with repeats, without the runs that do not fit; if it is a whole factorial, with intervals and p
    values that allow for cells that vary more than others.

    What does not fit decides nothing: no effect, no share of the variation, no cell, no choice.
    """
    names = list(one.effects.factors)
    cells = {" ".join(cell): dict(zip(names, cell, strict=True)) for cell in one.cells}
    if one.effects.error != "repeats" or len(cells) < len(one.cells):
        return one
    # Sorted, so that the order of a file's rows changes nothing.
    placed = sorted(
        zip(observations, places, strict=True),
        key=lambda run: ([run[0].levels[name] for name in names], run[0].block or 0, run[0].log, run[1]),
    )
    seen = [Seen(_cell(run, names), run.block or 0, run.log) for run, _ in placed]
    outside = misfits.of_runs(seen)
    kept = [i for i in range(len(seen)) if i not in outside]
    if outside:
        one = _again(one, [placed[i][0] for i in kept])
    if len(seen) <= additive.MOST_SIMULATED and whole.is_whole(one.effects, cells):
        fitted, weightless = whole.resistant([seen[i] for i in kept], one.effects.factors, cells)
        one = replace(one, effects=whole.with_own_variances(one.effects, fitted, one.alpha))
        if weightless:
            outside = sorted([*outside, *(kept[i] for i in weightless)])
            rest = [run for i, (run, _) in enumerate(placed) if i not in outside]
            means, logs = _cells(rest, names, is_blocked=one.is_blocked)
            # A cell of which nothing else is left keeps it.
            one = replace(one, cells={**one.cells, **means}, logs={**one.logs, **logs})
    middles = {
        name: statistics.median(s.log for s in own)
        for name, own in itertools.groupby(seen, key=lambda s: s.treatment)
    }
    away = {placed[i][1]: math.exp(seen[i].log - middles[seen[i].treatment]) for i in outside}
    return replace(one, misfits=away, runs=len(seen))


def _cell(run: Observation, names: Iterable[str]) -> str:
    return " ".join(run.levels[name] for name in names)


def _again(one: Study, kept: Sequence[Observation]) -> Study:
    return study(
        one.response, kept, is_higher_better=one.is_higher_better, alpha=one.alpha, margin=one.margin
    )


def _by_block(own: Sequence[tuple[int | None, float]]) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for block, value in own:
        found.setdefault(block or 0, []).append(value)
    return {block: math.fsum(values) / len(values) for block, values in found.items()}


def _by_repeat(own: Sequence[tuple[int | None, float]]) -> dict[int, float]:
    return {i: value for i, (_, value) in enumerate(own)}


def questions_of(studies: Sequence[Study]) -> list[Question]:
    """The questions that a table's studies ask about its configurations."""
    return [
        Question(
            one.response,
            one.condition,
            one.is_higher_better,
            {one.name(cell): own for cell, own in one.logs.items()},
            one.is_blocked,
        )
        for one in studies
    ]


def comparing(rows: Sequence[Row], factors: Sequence[str], block: str, notes: list[str]) -> str:
    """The column of blocks, empty if it can be none; ``notes`` gets what has to be said of it."""
    cells: dict[str, set[Cell]] = {}
    for row in rows:
        cells.setdefault(row.levels.get(block, ""), set()).add(tuple(row.levels.get(f, "") for f in factors))
    alone = sum(len(own) == 1 for own in cells.values())
    if not block or not alone:
        return block
    if alone < len(cells):
        notes.append(
            f"{alone} of {counted(len(cells), 'block')} ({block}) have one combination of levels "
            "only, and compare nothing"
        )
    elif len(cells) < len(rows):
        notes.append(
            f"no {block} has two combinations of levels: what differs between them may differ between the values "
            f"of {block} alone"
        )
    else:
        notes.append(
            f"each {block} is there once, so that no two runs share one: they are compared without blocks. A "
            "block is what runs were measured together in, such as the day or the round"
        )
        return ""
    return block


def studies_of(
    rows: Sequence[Row],
    factors: Sequence[str],
    responses: Mapping[str, bool],
    *,
    block: str = "",
    condition: str = "",
    alpha: float = 0.05,
    margin: float = 0.03,
) -> list[Study]:
    """A study for each of ``responses`` (name -> more is better) that was measured, in each condition.

    ``block`` names the level that identifies repeats measured together, ``condition`` the one that identifies
    workloads: its levels are never compared. Raises PlanError for a factor or a response that a row does not have,
    and if no factor has two levels.
    """
    blocks = {name: i for i, name in enumerate(dict.fromkeys(row.levels.get(block, "") for row in rows))}
    for row in rows:
        for name in (*factors, *filter(None, (block, condition))):
            if not row.levels.get(name):
                raise PlanError(
                    f"the cell of {name!r} is empty",
                    place=row.place,
                    hint=f"write the level of {name} into every line: which one an empty cell means is not known",
                )
    for response in responses:
        if not any(response in row.responses for row in rows):
            there = ", ".join(sorted({name for row in rows for name in row.responses})) or "none"
            raise PlanError(f"no row has a {response!r}; there are: {there}")
    asked = list(dict.fromkeys(row.levels[condition] for row in rows)) if condition else [""]
    found = []
    for at, (response, is_higher_better) in itertools.product(asked, responses.items()):
        own = [r for r in rows if response in r.responses and (not condition or r.levels[condition] == at)]
        if not own:
            continue
        observations = [
            Observation(
                {name: row.levels[name] for name in factors},
                math.log(row.responses[response]),
                blocks[row.levels[block]] if block else None,
            )
            for row in own
        ]
        try:
            one = study(response, observations, is_higher_better=is_higher_better, alpha=alpha, margin=margin)
            one = _robust(one, observations, [row.place for row in own])
        except ValueError as error:
            raise PlanError(f"{response}: {error}", hint="use --factor with a column that varies") from error
        found.append(replace(one, condition=f"{condition}={at}" if condition else ""))
    return found
