"""The tables of a tuning."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.base.model import Value
from headrace.experiment.plan.tables import AS_IS, RESPONSE_NAMES, DesignTable, Settings, Table


class KnobRange(Table):
    """A knob that a tuning searches: from ``low`` to ``high``, or ``levels``.

    ``start`` is its value if a starting point does not set it, and should be the current value.
    """

    knob: str
    low: int | float | str | None = None
    high: int | float | str | None = None
    levels: list[Value] | None = None
    start: Value | None = None

    @model_validator(mode="after")
    def _one_form(self) -> KnobRange:
        if (self.levels is None) == (self.low is None or self.high is None):
            raise ValueError("either low and high, or levels")
        if self.levels is not None:
            if len(self.levels) < 2 or len({repr(v) for v in self.levels}) != len(self.levels):
                raise ValueError("at least two levels, each once")
        elif not 0 <= self.number(self.low) < self.number(self.high):
            raise ValueError("low must be 0 or more, and below high")
        return self

    @property
    def is_size(self) -> bool:
        return isinstance(self.low, str) or isinstance(self.high, str)

    @property
    def is_whole(self) -> bool:
        return self.is_size or (isinstance(self.low, int) and isinstance(self.high, int))

    def ends(self) -> list[Value]:
        """The ends of the range; all values for levels."""
        if self.levels is not None:
            return list(self.levels)
        assert self.low is not None  # the table's own check
        assert self.high is not None
        return [self.low, self.high]

    def number(self, value: Any) -> float:
        """A value of a range as a number; sizes in KiB."""
        if not self.is_size:
            return float(value)
        match = re.fullmatch(r"(\d{1,18})([KMGTP]?)", str(value), flags=re.IGNORECASE)
        if not match:
            raise ValueError(f"{value!r} is not a size, such as 128M")
        return int(match[1]) * 1024.0 ** (" KMGTP".index(match[2].upper() or " ") - 1)

    def parameter(self, value: Value) -> str | int | float | bool:
        """A value in the search's form."""
        if self.levels is not None:
            return ",".join(value) if isinstance(value, list) else value
        return round(self.number(value)) if self.is_whole else self.number(value)

    def value(self, parameter: Any) -> Value:
        """A value from the search's form."""
        if self.levels is not None:
            return next(v for v in self.levels if self.parameter(v) == parameter)
        if self.is_size:
            # In whole MiB if that is precise enough: servers round sizes, and it is easier to read.
            kib = int(parameter)
            return f"{round(kib / 1024)}M" if kib >= 64 * 1024 or kib % 1024 == 0 else f"{kib}K"
        return int(parameter) if self.is_whole else float(parameter)


class TuneTable(Table):
    """Many knobs searched together, instead of ``[design]`` and factors: see docs/howto/tune.md.

    The search ends after ``trials`` or ``minutes``, whichever comes first; then the best are confirmed against the
    base in ``blocks``. ``objective`` is throughput or a percentile, or two of these; ``constraints`` are limits
    such as ``p99=10ms`` and ``memory=2G``. ``start`` lists settings to try first.
    """

    knobs: Annotated[dict[str, KnobRange], Field(min_length=1, max_length=100)]
    trials: Annotated[int, Field(ge=1, le=10_000)] = 60
    minutes: Annotated[float, Field(gt=0)] | None = None
    objective: str | list[str] = "throughput"
    constraints: list[str] = Field(default_factory=list)
    start: list[Settings] = Field(default_factory=list)
    sampler: Literal["auto", "tpe", "gp", "random"] = "auto"
    confirm: Annotated[int, Field(ge=1, le=10)] = 2
    blocks: Annotated[int, Field(ge=2, le=1000)] = 5
    seed: int = 1
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    equivalence: Annotated[float, Field(gt=0, lt=1)] = 0.03
    allow_weaker_durability: list[str] = Field(default_factory=list)

    @property
    def objectives(self) -> list[str]:
        return [self.objective] if isinstance(self.objective, str) else list(self.objective)

    @field_validator("objective")
    @classmethod
    def _known(cls, value: str | list[str]) -> str | list[str]:
        names = [value] if isinstance(value, str) else value
        if not 1 <= len(names) <= 2 or len(set(names)) != len(names):
            raise ValueError("one objective, or two different ones")
        for name in names:
            if name not in RESPONSE_NAMES:
                raise ValueError(f"one of {', '.join(RESPONSE_NAMES)}")
        return value

    def tables(self) -> dict[str, Any]:
        """The confirmation as a cumulative design, with rungs that are known after the search."""
        design = DesignTable(
            kind="cumulative",
            baseline=AS_IS,
            rungs={AS_IS: []},
            blocks=self.blocks,
            seed=self.seed,
            alpha=self.alpha,
            equivalence=self.equivalence,
            allow_weaker_durability=self.allow_weaker_durability,
        )
        return {"design": design}
