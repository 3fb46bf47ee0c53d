"""A soak: the baseline alone, once, for hours. What it shows is growth, not a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.base.errors import PlanError
from headrace.base.model import Role, TrialSpec
from headrace.experiment import design as designs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing
from headrace.experiment.plan import Plan
from headrace.experiment.stats.growth import LEAST_S
from headrace.experiment.store import TrialRecord

#: Kinds of plans whose baseline is a configuration like any other.
_WITH_BASELINE = ("factorial", "cumulative", "leave-one-out", "screening", "optimal")


class Soak(Kind):
    """One trial of each condition's baseline."""

    name = "soak"
    page = "soak"
    # It would take as long again: that is for a person to decide.
    repeats = False

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.design.soak

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        design = designs.build(plan, place=place, is_root=is_root)
        names = list(design.baselines.values())
        return replace(
            design,
            experiment=cls.name,
            blocks=1,
            treatments=tuple(each for each in design.treatments if each.name in names),
            trials=tuple(TrialSpec(i, 1, i, name, Role.BASELINE) for i, name in enumerate(names, start=1)),
        ).frozen()

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        return Ask([(trial,) for trial in missing(self.design.trials, records)[:1]], len(self.design.trials))


def soaked(plan: Plan, seconds: float, place: str) -> Plan:
    """The plan as a soak of so many seconds. Raises PlanError with ``place``."""
    if seconds < LEAST_S:
        raise PlanError(
            f"--soak: shorter than {LEAST_S / 60:g} minutes shows no growth", place=place, hint="--soak 12h"
        )
    design = plan.design
    if plan.sweep is not None or plan.tune is not None or design.kind not in _WITH_BASELINE:
        kind = "sweep" if plan.sweep else "tune" if plan.tune else design.kind
        raise PlanError(
            f"--soak: for plans with a baseline, and this is a {kind}",
            place=place,
            hint=f"a plan of kind {', '.join(_WITH_BASELINE)}",
        )
    alone = {"soak": True, "blocks": 1, "sessions": 1, "duet": False, "until_decided": False}
    return plan.model_copy(
        update={
            "design": design.model_copy(update={**alone, "minutes": None, "asked": []}),
            "workload": plan.workload.model_copy(update={"seconds": seconds}),
        }
    )
