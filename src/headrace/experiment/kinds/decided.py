"""Blocks until every comparison has a verdict, or the time is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from headrace.base.errors import PlanError
from headrace.base.intervals import Needed, span
from headrace.experiment import design as designs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing
from headrace.experiment.plan import Plan
from headrace.experiment.stats import sequential
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.store import ExperimentFolder, TrialRecord

#: It ends after this many blocks: what they cannot decide is too small to matter, or too noisy to measure.
MOST_BLOCKS = 60

#: Most comparisons named in a line.
MOST_NAMED = 4


class Decided(Kind):
    """The plan's blocks first, then one after the other, with a look at the result after each."""

    name = "until-decided"

    def __init__(self, folder: ExperimentFolder) -> None:
        super().__init__(folder)
        minutes = self.design.minutes
        self._until = math.inf if minutes is None else monotonic() + 60 * minutes
        self._told = 0

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.design.until_decided

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """``trials`` are those of MOST_BLOCKS blocks; ``blocks`` is the first look."""
        first = plan.design.blocks
        if first < 2:
            raise PlanError("design.blocks: the first look needs two blocks", place=place)
        most = plan.model_copy(
            update={"design": plan.design.model_copy(update={"blocks": max(first, MOST_BLOCKS)})}
        )
        design = designs.build(most, place=place, is_root=is_root)
        names = [t.name for t in design.treatments]
        for name in plan.design.asked:
            if name not in names:
                known = ", ".join(names)
                raise PlanError(
                    f"design.asked = {name!r}: no such treatment; there are: {known}", place=place
                )
        design = replace(
            design,
            experiment=cls.name,
            blocks=first,
            until_decided=True,
            minutes=plan.design.minutes,
            asked=tuple(plan.design.asked),
        )
        return design.frozen()

    @classmethod
    def as_decided(cls, folder: ExperimentFolder) -> ExperimentFolder:
        return ExperimentFolder(folder.path, sequential.begun(folder.design, folder.trials()))

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        done = sequential.whole_blocks(self.design, records)
        ahead = max(done + 1, self.design.blocks)
        trials = [trial for trial in self.design.trials if trial.block <= ahead]
        now = missing([trial for trial in trials if trial.block <= done + 1], records)
        block = [trial for trial in trials if trial.block == done + 1]
        ask = Ask([(trial,) for trial in now], len(trials), until=self._until)
        # A part of a block cannot be compared, and is no look: a block that was begun is finished.
        if done < self.design.blocks or len(now) < len(block):
            return ask
        is_open, note = self._look(records, done)
        notes = [note] if done > self._told else []
        self._told = done
        if not is_open:
            return Ask([], len(records), notes)
        if not block:
            return Ask([], len(records), [*notes, f"{done} blocks are the most: it ends undecided"])
        if monotonic() > self._until:
            over = f"{self.design.minutes:g} minutes have passed: run it again to continue"
            return Ask([], len(records), [*notes, over])
        return replace(ask, notes=notes)

    def _look(self, records: Sequence[TrialRecord], done: int) -> tuple[bool, str]:
        """Whether more blocks may decide anything, and what this look says."""
        analysis = analyse_experiment(self.folder)
        open_ones = [
            effect
            for effect in sequential.undecided(self.design, analysis.effects)
            if sequential.can_decide(records, effect.treatment)
        ]
        what = " and ".join(self.design.asked) or "every comparison"
        if not open_ones:
            return False, f"block {done}: {what} is decided"
        told = [
            (f"{e.treatment} {e.ratio.estimate:.3g} x" if math.isfinite(e.ratio.estimate) else e.treatment)
            + (f" ({e.ratio.low:.3g} to {e.ratio.high:.3g})" if e.ratio.low and e.ratio.high else "")
            for e in open_ones[:MOST_NAMED]
        ]
        more = f" and {len(open_ones) - MOST_NAMED} more" if len(open_ones) > MOST_NAMED else ""
        known = [e.needed for e in open_ones if e.needed]
        needed = Needed(max(n.least for n in known), max(n.most for n in known)) if known else None
        outlook = (
            f"; about {span(needed)} blocks in all would decide" if needed and needed.most > done else ""
        )
        return True, f"block {done}: open: {', '.join(told)}{more}{outlook}"
