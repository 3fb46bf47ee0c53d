"""A race: after each block, treatments that are worse with confidence are eliminated.

Results decide which trials run, so the frozen design holds the longest race; the remaining trials depend only on
those on disk. A killed race continues with the same decisions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.base.errors import PlanError
from headrace.base.model import Role, TrialSpec, TrialState
from headrace.experiment import design as designs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing
from headrace.experiment.plan import Plan
from headrace.experiment.stats import race as analysis
from headrace.experiment.stats.trials import THROUGHPUT, trial_responses
from headrace.experiment.store import ExperimentFolder, TrialRecord


class Value(NamedTuple):
    """The natural log of a trial's response and its precision, in log units: ``TrialResponse.resolution_log``."""

    log: float
    resolution: float = 0.0


#: Trial's number -> its value; None for an invalid trial or one without the response.
Values = Mapping[int, Value | None]

#: A trial that failed has no response, ever: its treatment is eliminated.
_FAILED = Value(math.nan)


def _trials(runners: Sequence[Sequence[str]], seed: int) -> Iterator[TrialSpec]:
    """The trials of each block in random order: deterministic for a seed, block and set of treatments."""
    number = 0
    for block, names in enumerate(runners, start=1):
        order = list(names)
        random.Random(f"{seed}/{block}").shuffle(order)
        for position, name in enumerate(order, start=1):
            number += 1
            yield TrialSpec(number, block, position, name, Role.CANDIDATE)


@dataclass(frozen=True)
class Progress:
    """A race's progress: the trials of each block (the last may be incomplete) and the state of each condition.

    ``is_over`` when every condition is decided or the plan's blocks are used up.
    """

    runners: tuple[tuple[str, ...], ...]
    races: Mapping[str, analysis.Race]
    is_over: bool


def follow(design: Design, records: Sequence[TrialRecord], values: Values) -> Progress:
    """The decisions that follow from the trials on disk."""
    conditions = {name: [t.name for t in treatments] for name, treatments in design.conditions.items()}
    measured = {
        (r.block, r.treatment): _FAILED if r.state is TrialState.FAILED else values.get(r.number)
        for r in records
    }
    judges = {condition: _judge(design, names) for condition, names in conditions.items()}
    alive = {condition: list(names) for condition, names in conditions.items()}
    races: dict[str, analysis.Race] = {}
    runners: list[tuple[str, ...]] = []
    for block in range(1, design.blocks + 1):
        running = [name for names in alive.values() for name in names]
        if not running:
            break
        runners.append(tuple(running))
        if any((block, name) not in measured for name in running):
            return Progress(tuple(runners), races, is_over=False)
        for condition, names in alive.items():
            if not names:
                continue
            seen = {name: value for name in names if (value := measured[block, name])}
            judges[condition].after(
                {name: value.log for name, value in seen.items()},
                {name: value.resolution for name, value in seen.items()},
            )
            races[condition] = judges[condition].race()
            alive[condition] = [] if races[condition].is_decided else list(races[condition].survivors)
    return Progress(tuple(runners), races, is_over=True)


def _judge(design: Design, names: Sequence[str]) -> analysis.Judge:
    return analysis.Judge(
        names,
        alpha=design.alpha,
        margin=design.equivalence,
        is_higher_better=design.response == THROUGHPUT,
    )


def values_of(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> dict[int, Value | None]:
    """The values of the complete trials among ``records``."""
    sound = [r for r in records if r.state is TrialState.COMPLETE]
    found: dict[int, Value | None] = {}
    for trial in trial_responses(folder, sound):
        value = trial.value(response := folder.design.response)
        found[trial.number] = Value(math.log(value), trial.resolution_log(response)) if value else None
    return found


def progress_of(folder: ExperimentFolder) -> Progress:
    """The state of the race in this folder."""
    records = folder.trials()
    return follow(folder.design, records, values_of(folder, records))


def with_trials(folder: ExperimentFolder, found: Progress) -> ExperimentFolder:
    """The folder with the trials that the race ran; until it is over, those of the frozen design."""
    if not found.is_over:
        return folder
    trials = tuple(_trials(found.runners, folder.design.seed))
    return ExperimentFolder(folder.path, replace(folder.design, trials=trials))


class Race(Kind):
    """Block by block; after each, treatments that are worse with confidence are eliminated."""

    name = "race"
    page = "race.page"
    #: What it promises holds for any number of blocks.
    extends = True

    def __init__(self, folder: ExperimentFolder) -> None:
        super().__init__(folder)
        self._values: dict[int, Value | None] = {}
        self._told = 0

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.design.kind == cls.name

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """Every treatment once per block.

        There is no A/A pair: a race estimates its noise from the spread of all treatments around their blocks.
        """
        design = designs.build(plan, place=place, is_root=is_root)
        if design.hard:
            raise PlanError(
                f"factors.{design.hard[0]}: each level needs a reboot, and a race has no blocks with a fixed "
                "order",
                place=place,
                hint='kind = "factorial" reboots once per level and block',
            )
        if any(len(treatments) < 2 for treatments in design.conditions.values()):
            raise PlanError("a race needs at least two treatments", place=place)
        everyone = [t.name for t in design.treatments]
        trials = tuple(_trials([everyone] * design.blocks, design.seed))
        return replace(design, experiment=cls.name, adaptive=True, trials=trials).frozen()

    @classmethod
    def as_decided(cls, folder: ExperimentFolder) -> ExperimentFolder:
        return with_trials(folder, progress_of(folder))

    @classmethod
    def why_no_longer(cls, folder: ExperimentFolder) -> str:
        races = progress_of(folder).races.values()
        return "the race is decided" if races and all(race.is_decided for race in races) else ""

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        new = [r for r in records if r.number not in self._values]
        self._values |= values_of(self.folder, new)
        found = follow(self.design, records, self._values)
        trials = list(_trials(found.runners, self.design.seed))
        # Disturbed trials are repeated at the end of the block, before it is judged.
        now = [] if found.is_over else missing(trials, records)
        return Ask([(trial,) for trial in now], len(trials), tuple(self._left(found)))

    def settled(self, records: Sequence[TrialRecord]) -> set[int]:
        """Those of all blocks but the last: they decided who runs after them, and so each later trial's number."""
        last = max((r.block for r in records), default=0)
        return {r.number for r in records if r.block < last}

    def _left(self, found: Progress) -> Iterator[str]:
        """A line for each block that ended since: which treatments were eliminated."""
        over = len(found.runners) - (0 if found.is_over else 1)
        if over <= self._told or not found.races:
            return
        self._told = over
        for race in found.races.values():
            gone = [s.treatment for s in race.standings if s.dropped_after == over]
            left = f"{', '.join(gone)} eliminated" if gone else "none eliminated"
            yield f"block {over}: {left}; {len(race.survivors)} remain, {race.leader} leads"
