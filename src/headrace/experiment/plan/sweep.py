"""The table of a sweep."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.base.model import Value
from headrace.experiment.plan.tables import DesignTable, FactorTable, Table

#: Knob of a sweep -> unit of its levels. A rate is offered regardless of the server: an open loop.
SWEEP_KNOBS = {
    "workload.connections": "connections",
    "workload.threads": "threads",
    "workload.iodepth": "requests in flight",
    "workload.numjobs": "jobs",
    "workload.sessions": "times the recorded sessions",
    "workload.rate": "operations/s",
}

#: The steps of a sweep are at least this many times the gain that counts as growth, so that a perfectly scaling
#: server is recognised.
STEP_TO_GAIN = 2.0

MAX_LEVELS = 200


class SweepTable(Table):
    """Load raised level by level, instead of ``[design]`` and factors: see docs/explanation/sweeps.md.

    Either ``levels``, or ``start`` growing by ``factor`` (or ``step``) up to ``max``: then a search decides up to
    which level to repeat.
    """

    knob: Literal[
        "workload.connections",
        "workload.threads",
        "workload.iodepth",
        "workload.numjobs",
        "workload.sessions",
        "workload.rate",
    ] = "workload.connections"
    levels: list[Annotated[int, Field(ge=1)]] | None = None
    start: Annotated[int, Field(ge=1)] = 1
    factor: Annotated[float, Field(ge=1.02, le=100)] = 2.0
    step: Annotated[int, Field(ge=1)] | None = None
    max: Annotated[int, Field(ge=1)] | None = None
    gain: Annotated[float, Field(gt=0, lt=1)] = 0.05
    patience: Annotated[int, Field(ge=1, le=20)] = 2
    passes: Annotated[int, Field(ge=1, le=1000)] = 3
    objective: list[str] = Field(default_factory=list)
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    allow_weaker_durability: list[str] = Field(default_factory=list)

    @field_validator("levels")
    @classmethod
    def _ascending(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (len(value) < 2 or sorted(set(value)) != value):
            raise ValueError("at least two levels in ascending order, each once")
        return value

    @model_validator(mode="after")
    def _grows(self) -> SweepTable:
        growth = self.model_fields_set & {"start", "factor", "step", "max"}
        if (self.levels is None) == (self.max is None) or (self.levels and growth):
            raise ValueError("either levels = [...], or start, factor (or step) and max")
        if {"factor", "step"} <= growth:
            raise ValueError("a factor or a step, not both")
        loads = self.loads()
        if not 2 <= len(loads) <= MAX_LEVELS:
            raise ValueError(f"2 to {MAX_LEVELS} levels")
        below, above = min(itertools.pairwise(loads), key=lambda pair: pair[1] / pair[0])
        if above / below - 1 < STEP_TO_GAIN * self.gain:
            raise ValueError(
                f"steps of at least {STEP_TO_GAIN:g} times the gain ({self.gain:g}): from {below} to {above} even "
                f"perfect scaling brings only {above / below - 1:.1%} more"
            )
        return self

    @property
    def has_search(self) -> bool:
        return self.levels is None

    @property
    def is_open(self) -> bool:
        """Whether load is offered regardless of the server (an open loop)."""
        return self.knob == "workload.rate"

    @property
    def unit(self) -> str:
        """The unit of its levels."""
        return SWEEP_KNOBS[self.knob]

    def loads(self) -> list[int]:
        """Every level that may be measured, ascending; rounded to whole numbers."""
        if self.levels is not None:
            return list(self.levels)
        top = self.max
        assert top is not None  # the table's own check
        if self.step is not None:
            return list(range(self.start, top + 1, self.step)[: MAX_LEVELS + 1])
        powers = (round(self.start * self.factor**k) for k in itertools.count())
        return list(dict.fromkeys(itertools.takewhile(lambda load: load <= top, powers)))[: MAX_LEVELS + 1]

    def tables(self) -> dict[str, Any]:
        """The sweep as a design with one factor, so that every check of a plan applies to it."""
        levels: list[Value] = [*self.loads()]
        design = DesignTable(
            kind="factorial",
            baseline={},
            blocks=self.passes,
            seed=self.seed,
            alpha=self.alpha,
            allow_weaker_durability=self.allow_weaker_durability,
        )
        factor = FactorTable(knob=self.knob, levels=levels)
        return {"design": design, "factors": {self.knob.removeprefix("workload."): factor}}
