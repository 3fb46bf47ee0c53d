"""The results of an analysis, frozen. The report and ``--json`` only print these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import Interval
from headrace.experiment.stats.decision import Decision
from headrace.experiment.stats.factors import Study
from headrace.experiment.stats.machines import Spread

__all__ = [
    "Adjustment",
    "Analysis",
    "Comparison",
    "Effect",
    "Interval",
    "NoiseFloor",
    "TreatmentSummary",
    "Verdict",
]


@dataclass(frozen=True)
class TreatmentSummary:
    """One treatment over its complete trials.

    ``throughput_ops_s`` is the geometric mean with its t interval on the log scale; the block is the unit (in a
    switchback the start of the server), so that the baseline's two trials in a block do not count as two
    independent observations. ``latency_ns`` maps p50,
    p90, p95, p99, p99.9, p99.99 and max to the exact percentile of the merged histogram, with a delete-one-block
    jackknife interval (none for max). A percentile with too few operations beyond it is omitted: see
    ``percentiles.MIN_BEYOND``. ``operations`` and ``errors`` are totals.
    """

    treatment: str
    configuration: str
    condition: str
    trials: tuple[int, ...]
    throughput_ops_s: Interval
    latency_ns: Mapping[str, Interval]
    latency_kind: str
    operations: int
    errors: int


@dataclass(frozen=True)
class Uneven:
    """The mean share that others took in the trials of a treatment (``lost``) and of its baseline."""

    treatment: str
    lost: float
    baseline: str
    baseline_lost: float


@dataclass(frozen=True)
class Adjustment:
    """How the comparisons of one condition and response account for what others took: CPU time, or the time of a
    device (``kind``, one of ``estimate.KINDS``).

    ``slope`` relates the log of the response to the log of the share that was left, in ``trials``. It is None if
    slopes clearly differ between treatments: then the disturbed trials (``left_out``) take no part. ``most_lost``
    is the largest share that others took. ``uneven`` is the treatment, if any, whose trials clearly lost
    another share than the baseline's.
    """

    condition: str
    response: str
    slope: float | None
    trials: int
    left_out: int
    most_lost: float
    kind: str = "CPU time"
    uneven: Uneven | None = None


@dataclass(frozen=True)
class Analysis:
    """Everything concluded about one experiment. ``excluded`` maps a trial's number to why it is not analysed.

    ``operations`` summarises each kind of operation separately, by name, if there are several. A treatment is
    omitted there if none of a kind succeeded in some trial: a mean over the other trials would be optimistic.
    ``studies`` are of the factors, for each condition and response: see ``matters.studies``. ``decision`` says
    which configuration to choose; None with only two in one condition, because their effect suffices. ``machines``
    is how far several machines differ; None for one. ``adjustments`` are of the comparisons in which it mattered.
    """

    name: str
    alpha: float
    equivalence: float
    summaries: tuple[TreatmentSummary, ...]
    effects: tuple[Effect, ...]
    noise: tuple[NoiseFloor, ...]
    excluded: Mapping[int, str]
    headline: str
    operations: Mapping[str, tuple[TreatmentSummary, ...]] = field(default_factory=dict)
    studies: tuple[Study, ...] = ()
    decision: Decision | None = None
    machines: Spread | None = None
    adjustments: tuple[Adjustment, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The result of ``headrace compare A B``: each treatment in experiment B relative to the same one in A.

    The ratios are B / A and unpaired: the trials shared no blocks, so changes between the two times do not cancel.
    Intervals are Welch's; ``blocks`` of an effect is that of the side with fewer, and ``blocks_needed`` is None.
    ``notes`` are sentences that must be shown with the numbers. ``weaker`` says which treatments failed in B, or
    have no valid trial there: what is left of them are their good trials.
    """

    a: str
    b: str
    alpha: float
    equivalence: float
    effects: tuple[Effect, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    notes: tuple[str, ...]
    headline: str
    weaker: tuple[str, ...] = ()
