"""The results of a sweep, frozen: its levels, its knee, and what holds an objective. See ``sweep``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.base.intervals import Interval
from headrace.experiment.stats import usl
from headrace.experiment.stats.result import Analysis, TreatmentSummary

#: Why a pending level has no numbers.
NOT_RUN = "not run yet"

UNITS_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Objective:
    """A percentile of latency that must not exceed a limit."""

    percentile: str
    limit_ns: float

    def __str__(self) -> str:
        return f"{self.percentile} within {self.limit}"

    @property
    def room(self) -> float:
        """The share of the operations that may take longer."""
        return 1 - float(self.percentile.removeprefix("p")) / 100

    @property
    def limit(self) -> str:
        unit = next((u for u in ("s", "ms", "us") if self.limit_ns >= UNITS_NS[u]), "ns")
        return f"{self.limit_ns / UNITS_NS[unit]:g} {unit}"


#: The share of failed operations if none can: a workload that retries them or ends with the first.
NONE_FAILED = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Level:
    """One level of load.

    If no trial of a pass is valid, ``summary`` is None and ``missing`` says why. ``step`` is its throughput
    relative to the best smaller level, ``rise`` to the nearest one, paired by pass; None for the first, and if no
    pass has both. ``search_ops_s`` is the search's value, which no result uses. ``failed_share`` is the share of
    its operations that failed, ``failed_passes`` counts passes that failed or in which none completed.
    ``is_driver_saturated``: in a pass, or in the search if that ended it.
    """

    treatment: str
    load: float
    summary: TreatmentSummary | None
    step: Interval | None
    rise: Interval | None
    search_ops_s: float | None
    missing: str
    failed_share: Interval = NONE_FAILED
    failed_passes: int = 0
    is_driver_saturated: bool = False

    @property
    def trials(self) -> tuple[int, ...]:
        """The valid trials of the passes."""
        return self.summary.trials if self.summary else ()

    def meets(self, objective: Objective, end: str) -> bool | None:
        """Whether an ``end`` (low, estimate, high) of the percentile is within the limit; None if unknown.

        A failed operation counts with the time it took. If more operations fail than the percentile allows (by the
        same end of their share), the limit is missed regardless of their times: a fast error is not an answer. If
        a whole pass failed, the good ones are left, which cannot show that the limit is met.
        """
        share = getattr(self.failed_share, end)
        if share is not None and share > objective.room:
            return False
        found = self.summary.latency_ns.get(objective.percentile) if self.summary else None
        value = None if found is None else getattr(found, end)
        if value is None or share is None or (value <= objective.limit_ns and self.failed_passes):
            return None
        return bool(value <= objective.limit_ns)


@dataclass(frozen=True)
class Knee:
    """The last level that brought ``gain`` more throughput than any smaller one.

    ``low`` and ``high`` are also levels, the range that contains the knee with the sweep's confidence; None with
    one pass. ``is_top``: it is the highest level measured, so the true knee may be higher. ``may_be_top``: the
    range reaches that level.
    """

    load: float
    low: float | None
    high: float | None
    ops_s: Interval
    is_top: bool
    may_be_top: bool


@dataclass(frozen=True)
class Answer:
    """The result for one objective.

    ``holds`` is the largest level up to which all levels are shown to hold it; ``fails`` the smallest from which
    on all are shown to fail; ``open_levels`` the undecided ones in between, with ``why``. ``estimate`` is what
    ``holds`` would be if the estimates were certain.
    """

    objective: Objective
    holds: float | None
    ops_s: Interval | None
    fails: float | None
    open_levels: tuple[float, ...]
    estimate: float | None
    why: str


@dataclass(frozen=True)
class Sweep:
    """Everything concluded about one sweep, finished or not.

    If no fit is possible (or for a rate, which is not a number of clients), ``law`` is None and ``law_refusal``
    says why. ``latency_kind`` is ``response`` (from the intended start) or ``service`` (from the send).
    ``excluded`` maps a pass's trial to why it is not analysed.
    """

    name: str
    knob: str
    unit: str
    is_open: bool
    alpha: float
    gain: float
    passes: int
    levels: tuple[Level, ...]
    knee: Knee | None
    answers: tuple[Answer, ...]
    law: usl.Law | None
    law_refusal: str
    latency_kind: str
    excluded: Mapping[int, str]
    done: int
    planned: int
    headline: str = ""

    @property
    def measured(self) -> list[tuple[Level, TreatmentSummary]]:
        return [(level, level.summary) for level in self.levels if level.summary]

    def as_analysis(self) -> Analysis:
        """Each level as a treatment, without comparisons: for the parts of a report that show trials."""
        return Analysis(
            name=self.name,
            alpha=self.alpha,
            equivalence=self.gain,
            summaries=tuple(summary for _, summary in self.measured),
            effects=(),
            noise=(),
            excluded=self.excluded,
            headline=self.headline,
        )

    def at(self, *loads: float) -> str:
        """``1 connection``, ``32 and 64 connections``, ``2,000 operations/s offered``."""
        *first, last = some([f"{load:,.6g}" for load in loads])
        listed = f"{', '.join(first)} {'' if last.startswith('and') else 'and '}{last}" if first else last
        if self.is_open:
            return f"{listed} {self.unit} offered"
        word = self.unit if loads != (1,) else re.sub(r"s\b", "", self.unit, count=1)
        return f"{listed} {word}"

    @property
    def unreached(self) -> Level | None:
        """The first level above all measured ones that could not be measured."""
        top = max((level.load for level, _ in self.measured), default=0.0)
        above = (level for level in self.levels if level.load > top)
        return next((level for level in above if level.missing != NOT_RUN), None)

    @property
    def driver_saturated(self) -> list[float]:
        """The levels at which the driver used all of its CPU."""
        return [level.load for level in self.levels if level.is_driver_saturated]


def some(words: Sequence[str], most: int = 4) -> list[str]:
    """All, or the first with how many more there are."""
    return [*words] if len(words) <= most else [*words[: most - 1], f"and {len(words) - most + 1} more"]
