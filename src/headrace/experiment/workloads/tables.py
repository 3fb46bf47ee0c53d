"""From a tool's counts to the tables of the store, for every workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.buckets import bucket_of, bucket_value
from headrace.base.errors import WorkloadFailed
from headrace.experiment.workloads.workload import Measurement

if TYPE_CHECKING:
    import pyarrow as pa

#: Reports closer than this to another one or to the end are merged: a rate over a few ms is noise.
SHORTEST_SLICE_NS = 500_000_000

#: A histogram in the store's buckets: bucket -> count.
Histogram = Mapping[int, int]


@dataclass(frozen=True)
class Slice:
    """One operation over one interval; times in ns since the epoch on the target's clock.

    ``count`` are successful operations with a latency. ``min_ns`` and ``max_ns`` bound their latencies; over all
    slices of a window the smallest and the largest are exact. ``histogram`` is None if the tool has none for the
    interval.
    """

    start_ns: int
    end_ns: int
    operation: str
    count: int
    errors: int = 0
    bytes: int | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    p99_ns: int | None = None
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Phase:
    """The warm-up or the window: its slices, and per operation the histogram of the whole."""

    start_ns: int
    end_ns: int
    slices: Sequence[Slice]
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


def to_histogram(values_ns: Iterable[float], counts: Iterable[int]) -> dict[int, int]:
    """Counts of latencies in ns, as buckets; counts of 0 are omitted, the total is preserved."""
    number = np.fromiter(counts, dtype=np.int64)
    value = np.fromiter(values_ns, dtype=np.float64, count=len(number))
    buckets, where = np.unique(bucket_of(np.rint(value).astype(np.int64)), return_inverse=True)
    totals = np.zeros(len(buckets), dtype=np.int64)
    np.add.at(totals, where, number)
    return {int(b): int(n) for b, n in zip(buckets, totals, strict=True) if n}


def percentile_ns(histogram: Histogram, quantile: float) -> int | None:
    """The latency in ns below which this share (0 to 1) of the operations is; None without operations."""
    buckets = sorted(histogram)
    reached = np.cumsum([histogram[b] for b in buckets])
    if not buckets or reached[-1] == 0:
        return None
    rank = max(1, int(np.ceil(quantile * reached[-1])))
    return int(bucket_value(buckets[int(np.searchsorted(reached, rank))]))


def boundaries(reports_ns: Iterable[int], start_ns: int, end_ns: int) -> list[int]:
    """Which reports end a slice: those far enough from the previous one and from the end. Indices, ascending."""
    kept: list[int] = []
    previous = start_ns
    for index, report_ns in enumerate(reports_ns):
        if report_ns - previous >= SHORTEST_SLICE_NS and end_ns - report_ns >= SHORTEST_SLICE_NS:
            kept.append(index)
            previous = report_ns
    return kept


def measurement(
    window: Phase, warmup: Phase | None, *, seconds: float, what: str, kind: str = "service"
) -> Measurement:
    """The tables of a window planned for ``seconds``; ``what`` names the tool in errors.

    ``kind`` is ``service`` if the tool counts from the send, ``response`` if from the intended start. Raises
    WorkloadFailed when nothing was measured, when the tool stopped early, or when the histogram and the counts
    disagree, because then neither can be trusted.
    """
    lasted_s = _seconds(window.end_ns - window.start_ns)
    if lasted_s < 0.9 * seconds:
        raise WorkloadFailed(f"{what} stopped after {lasted_s:.1f} s of {seconds:g}")
    slices = [*(warmup.slices if warmup else ()), *window.slices]
    counted: dict[str, int] = {}
    for s in window.slices:
        counted[s.operation] = counted.get(s.operation, 0) + s.count
    if not any(counted.values()):
        raise WorkloadFailed(f"{what} completed no operation in the measured window")
    histograms = _window_histograms(window)
    for operation, count in counted.items():
        held = sum(sum(h.values()) for (_, o), h in histograms.items() if o == operation)
        if held != count:
            raise WorkloadFailed(
                f"{what} counted {count} operations of {operation} but its histogram holds {held}"
            )
    return Measurement(
        _intervals(slices, window.start_ns), _latency(histograms, kind), window.start_ns, window.end_ns
    )


def with_bounds(slices: Iterable[Slice], min_ns: int, max_ns: int) -> list[Slice]:
    """The same bounds for each slice with operations, for a tool that has them only for the whole run."""
    return [replace(s, min_ns=min_ns, max_ns=max_ns) if s.count else s for s in slices]


def _window_histograms(window: Phase) -> dict[tuple[float | None, str], Histogram]:
    found: dict[tuple[float | None, str], Histogram] = {
        (None, operation): histogram for operation, histogram in window.histograms.items()
    }
    for s in window.slices:
        if s.histogram is not None:
            found[_seconds(s.start_ns - window.start_ns), s.operation] = s.histogram
    return found


def _seconds(ns: int) -> float:
    return ns / 1e9


def _intervals(slices: Sequence[Slice], window_start_ns: int) -> pa.Table:
    columns = {
        "t_s": [_seconds(s.start_ns - window_start_ns) for s in slices],
        "duration_s": [_seconds(s.end_ns - s.start_ns) for s in slices],
        "operation": [s.operation for s in slices],
        "count": [s.count for s in slices],
        "errors": [s.errors for s in slices],
        "rows": [None] * len(slices),  # no tool here reports the rows that a statement returned
        "bytes": [s.bytes for s in slices],
        "min_ns": [s.min_ns for s in slices],
        "max_ns": [s.max_ns for s in slices],
        "p99_ns": [s.p99_ns for s in slices],
    }
    import pyarrow as pa

    from headrace.host.arrow import INTERVALS

    return pa.table(columns, schema=INTERVALS)


def _latency(histograms: Mapping[tuple[float | None, str], Histogram], kind: str) -> pa.Table:
    rows = [
        (t_s, operation, kind, bucket, count)
        for (t_s, operation), histogram in histograms.items()
        for bucket, count in sorted(histogram.items())
    ]
    import pyarrow as pa

    from headrace.host.arrow import LATENCY

    columns = list(zip(*rows, strict=True)) or [()] * len(LATENCY)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, LATENCY, strict=True)], schema=LATENCY)
