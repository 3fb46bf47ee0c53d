"""A fixed design: every trial is known before the first one runs."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.experiment import design as designs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing
from headrace.experiment.plan import Plan
from headrace.experiment.store import TrialRecord


class Fixed(Kind):
    """Trials in the design's order; disturbed ones are repeated at the end of their block."""

    name = "fixed"
    spreads = True
    extends = True

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return True

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        return designs.build(plan, place=place, is_root=is_root)

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        left = missing(self.design.trials, records)
        # Within a whole plot of a hard factor, repeat immediately, to avoid setting up its level again.
        now = left[:1] if self.design.hard else [trial for trial in left if trial.block == left[0].block]
        return Ask([(trial,) for trial in now], len(self.design.trials))
