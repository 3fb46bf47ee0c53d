"""Exact percentiles of merged latency histograms, and their intervals.

Merging adds counts bucket by bucket, so a percentile over seconds, trials or hosts is the exact percentile of all
operations; a mean of p99s is not a p99. Only the paired ratio of two treatments is computed over trials, one ratio
per block (``compare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.buckets import bucket_bounds, bucket_of, bucket_value
from headrace.base.intervals import Interval, scaled, t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Name -> (numerator, denominator): as fractions, because 0.999 * n in floating point misses ranks.
PERCENTILES: Mapping[str, tuple[int, int]] = {
    "p50": (50, 100),
    "p90": (90, 100),
    "p95": (95, 100),
    "p99": (99, 100),
    "p99.9": (999, 1000),
    "p99.99": (9999, 10000),
}

#: A percentile is stated only with at least this many operations beyond it. With k beyond, its rank is uncertain
#: by about sqrt(k): 32% at 10; below 10 it is mostly the luck of a few operations.
MIN_BEYOND = 10

#: One more than the bucket of the largest latency that fits the tables' signed 64 bits.
BUCKETS = int(bucket_of(2**63 - 1)) + 1

_VALUES_NS = bucket_value(np.arange(BUCKETS, dtype=np.int32)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Operations by latency bucket: ``counts`` has shape (BUCKETS,).

    ``min_ns`` and ``max_ns`` are the exact extremes if the workload recorded them for every operation, else None.
    """

    counts: NDArray[np.int64]
    min_ns: int | None = None
    max_ns: int | None = None

    @staticmethod
    def of(
        buckets: NDArray[np.int32],
        counts: NDArray[np.int64],
        min_ns: int | None = None,
        max_ns: int | None = None,
    ) -> Histogram:
        """From rows (bucket, count); a bucket may appear in several rows."""
        dense = np.zeros(BUCKETS, dtype=np.int64)
        np.add.at(dense, buckets, counts)
        return Histogram(dense, min_ns, max_ns)

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The histogram of all operations. An extreme is unknown if any part lacks it."""
    parts = [h for h in histograms if h.total]
    counts = np.zeros(BUCKETS, dtype=np.int64)
    for part in parts:
        counts += part.counts
    minima = [h.min_ns for h in parts if h.min_ns is not None]
    maxima = [h.max_ns for h in parts if h.max_ns is not None]
    return Histogram(
        counts,
        min(minima) if parts and len(minima) == len(parts) else None,
        max(maxima) if parts and len(maxima) == len(parts) else None,
    )


def percentile_ns(histogram: Histogram, name: str) -> float | None:
    """A percentile by nearest rank in ns, or ``max``; None if fewer than MIN_BEYOND operations are beyond it.

    The value is the middle of the bucket with that rank, clamped to the recorded minimum and maximum, so it is at
    most 0.4% off (plus the error of the workload's own histogram).
    """
    total = histogram.total
    if total == 0:
        return None
    if name == "max":
        top = float(_VALUES_NS[np.flatnonzero(histogram.counts)[-1]])
        return top if histogram.max_ns is None else float(histogram.max_ns)
    rank = _rank(total, name)
    if total - rank < MIN_BEYOND:
        return None
    return _value_at(histogram, rank)


def resolution_log(histogram: Histogram, name: str) -> float:
    """Half the distance, in log units, from a percentile to the nearest other value the histogram can show; half
    the widest of its bucket and the two next to it, if that is more.

    Some workloads print coarser histograms (sysbench: 1.8% per bin), and trials in the same bin look identical.
    Without this, the spread between blocks would be 0 and any interval falsely narrow.
    """
    total = histogram.total
    if total == 0:
        return 0.0
    filled = np.flatnonzero(histogram.counts)
    cumulative = np.cumsum(histogram.counts[filled])
    at = int(np.searchsorted(cumulative, _rank(total, name)))
    # Above a power of two buckets are twice as wide: a value near it may be in either.
    own = max(_width_log(int(filled[at]) + step) for step in (-1, 0, 1))
    near = _VALUES_NS[filled[max(at - 1, 0) : at + 2]]
    gaps = np.diff(np.log(np.maximum(near, 1.0)))
    return max(own, float(gaps.min()) if gaps.size else 0.0) / 2


def _width_log(bucket: int) -> float:
    """In log units; 0 if the bucket has no lower bound above 0, or does not exist."""
    if not 0 <= bucket < BUCKETS:
        return 0.0
    low, high = (float(bound) for bound in bucket_bounds(bucket))
    return math.log((high + 1) / low) if low > 0 else 0.0


def jackknife(blocks: Sequence[Histogram], name: str, alpha: float) -> Interval | None:
    """A percentile of all blocks merged, with a delete-one-block jackknife interval on its log.

    Whole blocks are left out, because operations of one trial are not independent: the jackknife measures how much
    the merged percentile depends on each block. t with B - 1 degrees of freedom, widened by the histogram's
    resolution; no interval with fewer than 2 blocks, for ``max`` (the jackknife is not consistent for an extreme)
    and if one block has all operations. None if ``percentile_ns`` is None.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, ch. 11; Shao & Tu 1995, The Jackknife and
    Bootstrap, sec. 2.3 (deleting groups is what makes it consistent for quantiles).
    """
    whole = merge(blocks)
    estimate = percentile_ns(whole, name)
    if estimate is None:
        return None
    rest = _leave_one_out(blocks, whole)
    if name == "max" or len(blocks) < 2 or not all(h.total for h in rest):
        return Interval(estimate, None, None)
    n = len(blocks)
    logs = np.log([max(_value_at(h, _rank(h.total, name)), 1.0) for h in rest])
    error = math.sqrt((n - 1) / n * float(np.sum((logs - logs.mean()) ** 2)))
    half = t_quantile(n - 1, alpha) * error + resolution_log(whole, name)
    return Interval(estimate, scaled(estimate, -half), scaled(estimate, half))


def _leave_one_out(blocks: Sequence[Histogram], whole: Histogram) -> list[Histogram]:
    """The total without each block in turn, by subtraction, because merging the others each time is quadratic in
    blocks.
    """
    minima = sorted(h.min_ns for h in blocks if h.total and h.min_ns is not None)
    maxima = sorted((h.max_ns for h in blocks if h.total and h.max_ns is not None), reverse=True)
    return [
        Histogram(
            whole.counts - block.counts,
            _next(minima, block.min_ns) if whole.min_ns is not None else None,
            _next(maxima, block.max_ns) if whole.max_ns is not None else None,
        )
        for block in blocks
    ]


def _next(ordered: Sequence[int], own: int | None) -> int | None:
    """The first of the values once ``own`` is taken out; None when nothing is left."""
    at = 1 if ordered[0] == own else 0
    return ordered[at] if at < len(ordered) else None


def _rank(total: int, name: str) -> int:
    numerator, denominator = PERCENTILES[name]
    return -(-total * numerator // denominator)


def _value_at(histogram: Histogram, rank: int) -> float:
    bucket = int(np.searchsorted(np.cumsum(histogram.counts), rank))
    value = float(_VALUES_NS[bucket])
    if histogram.max_ns is not None:
        value = min(value, float(histogram.max_ns))
    if histogram.min_ns is not None:
        value = max(value, float(histogram.min_ns))
    return value
