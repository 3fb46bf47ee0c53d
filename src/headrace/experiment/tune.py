"""Tuning: search many knobs, confirm the best against the current settings, say which knobs could stay
unchanged.

The search starts from the current settings, the plan's starting points and the rules' suggestions. Its best points
are then measured against the base in interleaved blocks, together with a lean one (the best without the knobs that
barely mattered) and the rules' suggestions alone. Only that experiment supports a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w

from headrace.base import extras
from headrace.base.counted import counted
from headrace.base.effect import Effect, Verdict
from headrace.base.errors import NothingMeasured, PlanError
from headrace.base.model import Value
from headrace.base.whole import make_folder
from headrace.experiment import plan as plans
from headrace.experiment import space
from headrace.experiment.kinds import search
from headrace.experiment.kinds.search import Found
from headrace.experiment.plan import AS_IS, Settings, TuneTable
from headrace.experiment.prove import Bench, candidates
from headrace.experiment.run import run
from headrace.experiment.runner import Note
from headrace.experiment.stats.choice import Cell, pareto
from headrace.experiment.stats.study import analyse_experiment, failures
from headrace.experiment.store import ExperimentFolder

LEAN, ADVICE = "LEAN", "ADVICE"

#: Share of the response's variation in the search that the lean candidate's knobs explain together.
LEAN_EXPLAINS = 0.9


@dataclass(frozen=True)
class Confirmed:
    """A candidate relative to the base: ``effects`` by response, each from interleaved blocks; ``broken`` are the
    constraints that it breaks there, ``failed`` are (failed trials, trials) if any failed.
    """

    name: str
    settings: Mapping[str, Value]
    effects: Mapping[str, Effect]
    broken: tuple[str, ...] = ()
    failed: tuple[int, int] | None = None

    def is_better(self, response: str) -> bool:
        effect = self.effects.get(response)
        return effect is not None and effect.verdict is Verdict.BETTER


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning.

    ``winner`` is None if nothing was confirmed better than the current settings within the constraints; ``lean``
    may replace it if the two are indistinguishable. ``front`` are the points not beaten in both objectives (with
    one objective: the best).
    """

    table: TuneTable
    found: Sequence[Found]
    front: Sequence[Found]
    importance: Mapping[str, float]
    advice: Sequence[Settings]
    confirmed: Sequence[Confirmed]
    winner: Confirmed | None
    folder: Path
    confirm_folder: Path | None


async def tune(bench: Bench, *, advise: bool = True, retry: bool = False) -> Tuned:
    """Search, then confirm; continues where it was stopped. Raises a HeadraceError."""
    extras.require("optuna")
    table = search.table_of(bench.plan, bench.place)
    make_folder(bench.folder)
    advice = await _advice(bench, table) if advise else []
    table = table.model_copy(update={"start": [*table.start, *(a for a in advice if a not in table.start)]})
    plan = bench.plan.model_copy(update={"tune": table})
    text = tomli_w.dumps(bench.plan.model_dump(mode="json", exclude_none=True))
    file = plans.PlanFile(plan, text, bench.place)
    folder = await run(file, bench.folder / "search", bench.listen, retry=retry)
    found = search.found_in(folder, table)
    importance = space.importance(table.knobs, [f.seen for f in found if f.seen is not None])
    front = front_of(found, table)
    confirmed, confirm_folder = await _confirm(
        bench, table, candidates_of(table, found, front, importance, advice)
    )
    # Of many points some held a constraint, or started, by luck, in their one trial.
    sound = [c for c in confirmed if not c.broken and not c.failed]
    better = [c for c in sound if c.is_better(bench.response)]
    named = [c for c in better if c.name != LEAN] or better
    winner = max(named, key=lambda c: _gain(c, bench.response), default=None)
    return Tuned(
        table, found, front, importance, advice, confirmed, winner, bench.folder,
        confirm_folder.path if confirm_folder else None,
    )  # fmt: skip


async def _advice(bench: Bench, table: TuneTable) -> list[Settings]:
    """The rules' suggestions for the searched knobs, together as one starting point."""
    try:
        judgement, evidence = await bench.survey("survey", {})
    except NothingMeasured as error:
        bench.listen(Note(f"no suggestions to start from: {error.message}"))
        return []
    ready, _ = candidates(judgement, evidence, bench, bench.base)
    searched = {found.knob: found for found in table.knobs.values()}
    advised: Settings = {}
    for _, options in ready:
        for knob, value in options[0].items():
            if knob in searched and knob not in advised and _lies_in(searched[knob], value):
                advised[knob] = value
    if advised:
        bench.listen(Note("the rules suggest: " + ", ".join(f"{k}={v}" for k, v in advised.items())))
    return [advised] if advised else []


def _lies_in(found: plans.KnobRange, value: Value) -> bool:
    if found.levels is not None:
        return value in found.levels
    low, high = (found.number(v) for v in found.ends())
    try:
        return low <= found.number(value) <= high
    except ValueError:
        return False


def front_of(found: Sequence[Found], table: TuneTable) -> list[Found]:
    """The feasible points not beaten in every objective, best by the first objective first."""
    points: dict[Cell, Sequence[float]] = {
        (str(f.number),): f.seen.values
        for f in found
        if f.seen is not None and f.seen.values is not None and f.seen.is_feasible
    }
    best = pareto(points, [True] * len(table.objectives))
    by_number = {str(f.number): f for f in found}
    return [by_number[cell[0]] for cell in best]


def candidates_of(
    table: TuneTable,
    found: Sequence[Found],
    front: Sequence[Found],
    importance: Mapping[str, float],
    advice: Sequence[Settings],
) -> dict[str, Settings]:
    """What to confirm: the best points, the best one's lean form, and the rules' suggestions on their own.

    The suggestions are confirmed even if their one trial looked poor, unless it failed or broke a constraint:
    they are what a user would set without the search.
    """
    best = chosen(table, found, front)
    treatments: dict[str, Settings] = {search.name_of(f.number): dict(f.settings) for f in best}
    lean = lean_of(table, dict(best[0].settings), importance) if best else {}
    if lean and lean not in treatments.values():
        treatments[LEAN] = lean
    for advised in advice:
        point = space.settings_of(table.knobs, space.point_of(table.knobs, advised))
        seen = [f for f in found if f.settings in (point, advised) and f.seen is not None]
        is_refuted = any(not f.seen.is_feasible for f in seen if f.seen is not None)
        if not is_refuted and not any(own in (point, advised) for own in treatments.values()):
            treatments[ADVICE] = dict(advised)
    return treatments


async def _confirm(
    bench: Bench, table: TuneTable, treatments: Mapping[str, Settings]
) -> tuple[list[Confirmed], ExperimentFolder | None]:
    """The candidates against the base, interleaved."""
    if not treatments:
        bench.listen(Note("no point of the search looks better than the current settings"))
        return [], None
    bench.listen(
        Note(f"confirming {', '.join(treatments)} against {AS_IS}, {counted(table.blocks, 'block')}")
    )
    tested = replace(bench, blocks=table.blocks)
    try:
        compared = await tested.compare("confirm", treatments, {}, is_numbered=True)
        folder = compared.folder
    except PlanError as error:
        raise PlanError(error.message, place=bench.place, hint=error.hint) from error
    effects = analyse_experiment(folder).effects
    broken = search.broken_in(folder, table)
    failed = failures(folder.trials())
    confirmed = [
        Confirmed(
            name,
            settings,
            {e.response: e for e in effects if e.treatment == name},
            broken.get(name, ()),
            failed.get(name),
        )
        for name, settings in treatments.items()
    ]
    return confirmed, folder


def chosen(table: TuneTable, found: Sequence[Found], front: Sequence[Found]) -> list[Found]:
    """The points to confirm: with two objectives the ends of the front and what lies evenly between them, else the
    best points; never the current settings, and only points that looked better.
    """
    if len(table.objectives) > 1:
        others = [f for f in front if f.number != 1]
        count = min(table.confirm, len(others))
        return [others[round(i * (len(others) - 1) / max(count - 1, 1))] for i in range(count)]
    own = next((f.seen for f in found if f.number == 1), None)
    base = own.values if own else None
    order = sorted(
        (f for f in found if f.seen is not None and f.seen.is_feasible),
        key=lambda f: -(f.seen.values[0] if f.seen and f.seen.values else 0.0),
    )
    better = [f for f in order if base is None or (f.seen and f.seen.values and f.seen.values[0] > base[0])]
    return [f for f in better if f.number != 1][: table.confirm]


def lean_of(table: TuneTable, settings: Settings, importance: Mapping[str, float]) -> Settings:
    """The settings without the knobs that together explain the last tenth of the response's variation; empty if
    that leaves none or all. The confirmation shows whether they can stay unchanged.
    """
    kept, explained = set(), 0.0
    for name, share in sorted(importance.items(), key=lambda item: -item[1]):
        if explained < LEAN_EXPLAINS:
            kept.add(table.knobs[name].knob)
        explained += share
    lean = {knob: value for knob, value in settings.items() if knob in kept}
    return lean if 0 < len(lean) < len(settings) else {}


def _gain(confirmed: Confirmed, response: str) -> float:
    ratio = confirmed.effects[response].ratio.estimate
    return ratio if response == "throughput" else 1 / ratio
