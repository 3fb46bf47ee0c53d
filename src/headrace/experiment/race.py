"""A race: blocks are run treatment by treatment, and those that are worse with confidence leave after a block.

The trials are decided by what was measured, so the frozen design holds the longest race; which trials of it are
still to run follows from those on disk alone. A race that was killed goes on with the same decisions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace import plan as plans
from headrace.analysis.race import Judge, Race
from headrace.analysis.trials import THROUGHPUT, trial_responses
from headrace.design import Design
from headrace.errors import PlanError
from headrace.experiment import design as designs
from headrace.experiment.again import Again
from headrace.experiment.runner import Listener, Note, Run, require_complete, run_design
from headrace.model import Role, TrialSpec, TrialState
from headrace.store import ExperimentFolder, TrialRecord

KIND = "race"

#: Trial's number -> the natural log of its response; None for an invalid trial or one that cannot answer.
Values = Mapping[int, float | None]


def as_race(design: Design, place: str) -> Design:
    """The design of a plan whose kind is ``race``: every treatment once a block, none twice.

    There is no A/A pair: a race tells its noise from the spread of all treatments about their blocks.
    """
    if any(len(treatments) < 2 for treatments in design.conditions.values()):
        raise PlanError("a race needs two treatments at least", place=place)
    everyone = [t.name for t in design.treatments]
    trials = tuple(_trials([everyone] * design.blocks, design.seed))
    return replace(design, experiment=KIND, trials=trials).frozen()


def _trials(runners: Sequence[Sequence[str]], seed: int) -> Iterator[TrialSpec]:
    """The trials of each block in a random order: the same one for the same seed, block and runners."""
    number = 0
    for block, names in enumerate(runners, start=1):
        order = list(names)
        random.Random(f"{seed}/{block}").shuffle(order)
        for position, name in enumerate(order, start=1):
            number += 1
            yield TrialSpec(number, block, position, name, Role.CANDIDATE)


@dataclass(frozen=True)
class Progress:
    """How far a race has come: what ran in each block (the last may be under way); where each condition stands.

    ``is_over`` when every condition is decided, or the plan's blocks are used up.
    """

    runners: tuple[tuple[str, ...], ...]
    races: Mapping[str, Race]
    is_over: bool


def follow(design: Design, records: Sequence[TrialRecord], values: Values) -> Progress:
    """What the trials on disk decide."""
    conditions = {name: [t.name for t in treatments] for name, treatments in design.conditions.items()}
    measured = {(r.block, r.treatment): _log(r, values) for r in records}
    judges = {condition: _judge(design, names) for condition, names in conditions.items()}
    alive = {condition: list(names) for condition, names in conditions.items()}
    races: dict[str, Race] = {}
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
            judges[condition].after({name: measured[block, name] for name in names})
            races[condition] = judges[condition].race()
            alive[condition] = [] if races[condition].is_decided else list(races[condition].survivors)
    return Progress(tuple(runners), races, is_over=True)


def _judge(design: Design, names: Sequence[str]) -> Judge:
    return Judge(
        names,
        alpha=design.alpha,
        margin=design.equivalence,
        is_higher_better=design.response == THROUGHPUT,
    )


def _log(record: TrialRecord, values: Values) -> float | None:
    return math.nan if record.state is TrialState.FAILED else values.get(record.number)


def values_of(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> dict[int, float | None]:
    """The log responses of the complete trials among ``records``."""
    sound = [r for r in records if r.state is TrialState.COMPLETE]
    found: dict[int, float | None] = {}
    for trial in trial_responses(folder, sound):
        value = trial.value(folder.design.response)
        found[trial.number] = math.log(value) if value else None
    return found


def progress_of(folder: ExperimentFolder) -> Progress:
    """Where the race in this folder stands."""
    records = folder.trials()
    return follow(folder.design, records, values_of(folder, records))


def as_decided(folder: ExperimentFolder) -> ExperimentFolder:
    """The folder with the trials that the race has left in its design; any other experiment as it is."""
    if folder.design.experiment != KIND:
        return folder
    found = progress_of(folder)
    if not found.is_over:
        return folder
    trials = tuple(_trials(found.runners, folder.design.seed))
    return ExperimentFolder(folder.path, replace(folder.design, trials=trials))


async def run_race_plan(
    plan_path: Path, folder_path: Path | None, listen: Listener, *, retry: bool = False
) -> ExperimentFolder:
    """Run or continue the race of a plan file: as ``runner.run_experiment``."""
    plan, text = plans.load(plan_path)

    def build(is_root: bool) -> Design:
        return as_race(designs.build(plan, place=str(plan_path), is_root=is_root), str(plan_path))

    return await run_design(plan, text, build, _RaceRun, folder_path, listen, retry=retry)


class _RaceRun(Run):
    """The loop over the trials; after each block those that are beaten leave."""

    async def all_trials(self) -> None:
        again = self._again()
        longest = len(self._design.trials)
        repeats = Again(self._folder.trials(), longest, lambda text: self._listen(Note(text)))
        measured: set[int] = set()
        values: dict[int, float | None] = {}
        told = 0
        while True:
            records = [r for r in self._folder.trials() if r.number not in again]
            # What was disturbed is not there yet: its block is judged when it was measured again.
            disturbed = {r.number: r for r in records if r.number in measured and repeats.wants(r)}
            records = [r for r in records if r.number not in disturbed]
            values |= values_of(self._folder, [r for r in records if r.number not in values])
            found = follow(self._folder.design, records, values)
            told = self._tell(found, told)
            if found.is_over:
                break
            done = {r.number for r in records}
            trials = list(_trials(found.runners, self._folder.design.seed))
            missing = [t for t in trials if t.number not in done]
            # At the end of the block: by then it may be over.
            following = next((t for t in missing if t.number not in disturbed), missing[0])
            if following.number in disturbed:
                repeats.begin(disturbed[following.number])
            await self._one(following, len(done), len(trials))
            measured.add(following.number)
            again.discard(following.number)
        require_complete(records)

    def _tell(self, found: Progress, told: int) -> int:
        """A line a block that ended since: who left."""
        over = len(found.runners) - (0 if found.is_over else 1)
        if over <= told or not found.races:
            return told
        for race in found.races.values():
            gone = [s.treatment for s in race.standings if s.dropped_after == over]
            left = f"{', '.join(gone)} left" if gone else "nobody left"
            self._listen(Note(f"block {over}: {left}; {len(race.survivors)} stand, {race.leader} leads"))
        return over
