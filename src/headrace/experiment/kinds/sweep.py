"""A saturation sweep: which levels of load are measured, how often, and in which order.

A search goes up level by level (block 0) until more load does not raise throughput. Then every level it reached is
measured once in each pass (blocks 1, 2, ...), in a new random order. Only the passes are analysed, for two
reasons: in the search, drift over time (caches that fill, tables that grow, a machine that heats up) is mixed with
load; and its last levels are those that happened to be slow, because that ended it. Explicit levels need no
search, only passes.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured, PlanError
from headrace.base.model import Role, Treatment, TrialSpec, TrialState
from headrace.base.percentiles import MIN_BEYOND
from headrace.experiment import design as designs
from headrace.experiment import workloads
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing, require_complete
from headrace.experiment.plan import Plan, SweepTable
from headrace.experiment.stats.sweep import SEARCH, is_driver_saturated, parse_objective
from headrace.experiment.stats.trials import trial_responses
from headrace.experiment.stats.usl import MIN_LEVELS
from headrace.experiment.store import ExperimentFolder, TrialRecord


def _trials(levels: Sequence[str], searched: Sequence[str], passes: int, seed: int) -> Iterator[TrialSpec]:
    """The search over ``searched``, then ``levels`` in random order per pass: deterministic for a seed."""
    for i, name in enumerate(searched, start=1):
        yield TrialSpec(i, SEARCH, i, name, Role.CANDIDATE)
    generator = random.Random(seed)
    number = len(searched)
    for block in range(1, passes + 1):
        order = list(levels)
        generator.shuffle(order)
        for position, name in enumerate(order, start=1):
            number += 1
            yield TrialSpec(number, block, position, name, Role.CANDIDATE)


def asking(folder: ExperimentFolder, objectives: Sequence[str], place: str) -> ExperimentFolder:
    """The same sweep with other objectives, such as ``p99=10ms``.

    Raises PlanError, with ``place``, for an invalid objective, and for an experiment that is not a sweep.
    """
    for text in objectives:
        parse_objective(text, place)
    if folder.design.sweep is None:
        raise PlanError("only a sweep has objectives", place=str(folder.path))
    table = folder.design.sweep.model_copy(update={"objective": list(objectives)})
    return ExperimentFolder(folder.path, replace(folder.design, sweep=table))


@dataclass(frozen=True)
class Search:
    """The search's progress. ``levels`` are those to repeat; ``end`` is why it ended, "" before."""

    levels: tuple[str, ...]
    end: str


def throughput_of(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> dict[int, float]:
    """The operations/s of the search's complete trials among ``records``, by their numbers."""
    sound = [r for r in records if r.block == SEARCH and r.state is TrialState.COMPLETE]
    return {r.number: r.throughput_ops_s for r in trial_responses(folder, sound)} if sound else {}


def search(design: Design, records: Sequence[TrialRecord], throughput: Mapping[int, float]) -> Search:
    """Decided from the search's own trials, so that a killed sweep continues with the same levels.

    A failed level ends the search, because higher levels would fail as well; so does a driver that is saturated at
    ``patience`` levels in a row. A disturbed trial is not a gain, and does not count against the patience.
    """
    sweep = table_of(design)
    names = [t.name for t in design.treatments]
    if not sweep.has_search:
        return Search(tuple(names), "the plan names the levels")
    tried = {r.treatment: r for r in records if r.block == SEARCH}
    ops_s = {name: throughput[r.number] for name, r in tried.items() if r.number in throughput}
    best, flat, full = 0.0, 0, 0
    for i, name in enumerate(names):
        record = tried.get(name)
        if record is None:
            return Search(tuple(names[:i]), "")
        if record.state is TrialState.FAILED:
            return Search(tuple(names[:i]), f"{name} failed")
        full = full + 1 if is_driver_saturated(record) else 0
        if full >= sweep.patience:
            return Search(
                tuple(names[: i + 1 - full]), f"the last {counted(full, 'level')} saturated the driver"
            )
        if name in ops_s:
            flat = 0 if ops_s[name] >= best * (1 + sweep.gain) else flat + 1
            best = max(best, ops_s[name])
        if flat >= sweep.patience and i + 1 >= _fewest_levels(sweep):
            why = f"the last {counted(flat, 'level')} brought less than {100 * sweep.gain:g}% more throughput"
            return Search(tuple(names[: i + 1]), why)
    return Search(tuple(names), f"{names[-1]} is the highest level of the plan")


def _fewest_levels(sweep: SweepTable) -> int:
    """The minimum number of levels: the scalability law needs this many. It does not apply to a rate."""
    return 1 if sweep.is_open else MIN_LEVELS


def with_trials(folder: ExperimentFolder, records: Sequence[TrialRecord], found: Search) -> ExperimentFolder:
    """The folder with the trials that the search decided on; until it has ended, those of the frozen design."""
    if not found.end:
        return folder
    design = folder.design
    tried = {r.treatment for r in records if r.block == SEARCH}
    searched = [t.name for t in design.treatments if t.name in tried]
    trials = tuple(_trials(found.levels, searched, table_of(design).passes, design.seed))
    return ExperimentFolder(folder.path, replace(design, trials=trials))


def table_of(design: Design) -> SweepTable:
    assert design.sweep is not None  # every design of this kind has one
    return design.sweep


def _too_few_operations(design: Design) -> Iterator[str]:
    """Levels with too few operations for an objective: for a rate, their number is known in advance."""
    table, seconds = table_of(design), design.workload.seconds
    for objective in (parse_objective(text, "") for text in table.objective if table.is_open):
        least = MIN_BEYOND / objective.room / table.passes / seconds
        low = [load for load in table.loads() if load < least]
        if low:
            yield (
                f"{objective}: at {max(low):,} operations/s and below, "
                f"{counted(table.passes, 'pass', 'passes')} of {seconds:g} s "
                f"are too few operations to state {objective.percentile}; raise [workload] seconds"
            )


class Sweep(Kind):
    """The next level depends on what was measured, so ask after each trial."""

    name = "sweep"
    page = "sweep.page"
    #: The search counts a disturbed trial as no gain, and each level has several passes.
    repeats = False

    def __init__(self, folder: ExperimentFolder) -> None:
        super().__init__(folder)
        self._has_begun = False
        self._was_searching = True
        self._throughput: dict[int, float] = {}

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.sweep is not None

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """One treatment per level, ascending. ``trials`` is the maximum: the search goes to the top."""
        table = _table(plan, place)
        for text in table.objective:
            parse_objective(text, place)
        _check(plan, table, place)
        base = designs.build(plan, place=place, is_root=is_root)
        # With a single factor that is a condition, a treatment's name is only that condition.
        treatments = tuple(Treatment(t.condition, t.levels, t.settings) for t in base.treatments)
        names = [t.name for t in treatments]
        design = replace(
            base,
            experiment=cls.name,
            kind=cls.name,
            adaptive=True,
            treatments=treatments,
            # No level is the baseline of the others, because they are different questions.
            baselines={},
            trials=tuple(_trials(names, names if table.has_search else [], table.passes, table.seed)),
            sweep=table,
        )
        # Objectives do not change trials, so another objective does not need another folder.
        return design.frozen({"sweep": table.model_dump(mode="json", exclude={"objective"})})

    @classmethod
    def as_decided(cls, folder: ExperimentFolder) -> ExperimentFolder:
        """Until the search has ended, it may go to the top, so the trials are those of the frozen design."""
        records = folder.trials()
        found = search(folder.design, records, throughput_of(folder, records))
        return with_trials(folder, records, found)

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        # A trial of the search never changes during the run, so each is read only once.
        new = [r for r in records if r.number not in self._throughput]
        self._throughput |= throughput_of(self.folder, new)
        found = search(self.design, records, self._throughput)
        if found.end and not found.levels:
            raise NothingMeasured(
                f"the first level cannot be measured: {records[0].reason}",
                place=str(self.folder.trial_path(records[0].number)),
                hint="fix the cause and rerun with --retry; a changed plan needs another --output",
            )
        trials = with_trials(self.folder, records, found).design.trials
        left = missing(trials, records)
        return Ask([(trial,) for trial in left[:1]], len(trials), tuple(self._notes(found, len(left))))

    def _notes(self, found: Search, left: int) -> Iterator[str]:
        if not self._has_begun:
            self._has_begun = True
            yield from _too_few_operations(self.design)
        if found.end and self._was_searching:
            self._was_searching = False
            passes = table_of(self.design).passes
            yield (
                f"{counted(len(found.levels), 'level')}, because {found.end}; "
                f"{counted(passes, 'pass', 'passes')} over them, {counted(left, 'trial')} to go"
            )

    def settled(self, records: Sequence[TrialRecord]) -> set[int]:
        """Once a pass has started, the search is over: its trials are never repeated."""
        searched = {r.number for r in records if r.block == SEARCH}
        return searched if len(searched) < len(records) else set()

    def check(self, records: Collection[TrialRecord]) -> None:
        require_complete([r for r in records if r.block != SEARCH], "trial of a pass")


def asked(plan: Plan, objectives: Sequence[str], passes: int | None, place: str) -> Plan:
    """The plan with these objectives and passes, if given, instead of its own. Raises PlanError."""
    given: dict[str, object] = {"objective": list(objectives), "passes": passes}
    table = _table(plan, place).model_copy(update={key: value for key, value in given.items() if value})
    return plan.model_copy(update={"sweep": table, **table.tables()})


def _table(plan: Plan, place: str) -> SweepTable:
    if plan.sweep is None:
        raise PlanError(
            "the plan has no [sweep]",
            place=place,
            hint="--objective and --passes are for sweeps: `headrace docs sweep`",
        )
    return plan.sweep


def _check(plan: Plan, table: SweepTable, place: str) -> None:
    for option in ("rate", "rate_iops", "profile"):
        if not table.is_open and plan.workload.options.get(option):
            raise PlanError(
                f"workload.{option}: with a fixed rate, {table.knob} cannot raise the load",
                place=place,
                hint=f'leave workload.{option} out, or sweep it: [sweep] knob = "workload.rate"',
            )
    if table.knob == "workload.sessions" and plan.workload.options.get("speed") != "max":
        raise PlanError(
            "workload.speed: sessions that keep the recorded pace do not saturate a server",
            place=place,
            hint='speed = "max": each session sends its next statement as soon as it has the answer',
        )
    options = {option.name for option in workloads.option_docs(plan.workload.kind)}
    if table.knob == "workload.threads" and "connections" in options:
        raise PlanError(
            f"sweep.knob = {table.knob!r}: the threads of {plan.workload.kind} belong to its driver and are "
            "not a load",
            place=place,
            hint='knob = "workload.connections"',
        )
