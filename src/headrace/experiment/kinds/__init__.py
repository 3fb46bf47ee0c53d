"""The kinds of experiment: the only list of them, and the only place that distinguishes them."""

from __future__ import annotations

from headrace.base.errors import PlanError
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.decided import Decided
from headrace.experiment.kinds.duet import Duet
from headrace.experiment.kinds.fixed import Fixed
from headrace.experiment.kinds.kind import Kind
from headrace.experiment.kinds.race import Race
from headrace.experiment.kinds.search import Search
from headrace.experiment.kinds.soak import Soak
from headrace.experiment.kinds.sweep import Sweep
from headrace.experiment.kinds.switchback import Switchback
from headrace.experiment.plan import Plan
from headrace.experiment.store import ExperimentFolder

#: A plan belongs to the first kind that accepts it.
KINDS: tuple[type[Kind], ...] = (Soak, Search, Sweep, Duet, Race, Switchback, Decided, Fixed)


def of_plan(plan: Plan) -> type[Kind]:
    return next(kind for kind in KINDS if kind.is_of(plan))


def of_design(design: Design) -> type[Kind]:
    """Raises PlanError for a kind that this version does not know."""
    for kind in KINDS:
        if kind.name == design.experiment:
            return kind
    known = ", ".join(kind.name for kind in KINDS)
    raise PlanError(
        f"experiment = {design.experiment!r}: no such kind; there are: {known}", place=design.name
    )


def build(plan: Plan, *, place: str, is_root: bool = True) -> Design:
    """The design of a plan of any kind. Raises PlanError with ``place`` and the key."""
    kind = of_plan(plan)
    if plan.target.addresses and not kind.spreads:
        raise PlanError(
            f"target.addresses: a {kind.name} runs on one machine",
            place=place,
            hint="name one address; only designs whose blocks do not depend on earlier results can use several",
        )
    return kind.build(plan, place=place, is_root=is_root)


def as_decided(folder: ExperimentFolder) -> ExperimentFolder:
    """The folder with the trials still to run in its design, if that is decided during the run."""
    return of_design(folder.design).as_decided(folder)
