"""A digest's figures: shares, percentiles, variation, Apdex, rankings, and comparisons of two digests.

A digest covers every event of a capture, so its figures describe that capture exactly (percentiles within half the
width of a bucket, 0.4%). None is an estimate with an error: events of one capture wait for the same locks, caches
and disks and are not independent trials, so pooling them into a test would make everything significant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.buckets import bucket_bounds, bucket_value
from headrace.base.percentiles import MIN_BEYOND
from headrace.traffic.digests.classes import Buckets
from headrace.traffic.digests.table import SQUARES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.traffic.digests.classes import Digest, QueryClass

#: Apdex: satisfied up to T, tolerating up to this many times T (apdex.org, Technical Specification 1.1).
TOLERATED = 4

#: Ranking criteria.
ORDERS: Mapping[str, Callable[[QueryClass], float]] = {
    "sum": lambda each: each.total_ns,
    "count": lambda each: each.count,
    "mean": lambda each: mean_ns(each) or 0.0,
    "p99": lambda each: percentile_ns(each, "p99") or 0.0,
    "max": lambda each: each.number("response_ns").most or 0,
    "rows": lambda each: each.number("rows_examined").sum,
    "sent": lambda each: each.number("rows_sent").sum,
    "bytes": lambda each: each.number("response_bytes").sum or each.number("event_bytes").sum,
    "changed": lambda each: each.number("rows_affected").sum,
    "lock": lambda each: each.number("lock_ns").sum,
    "errors": lambda each: each.failed or 0,
}
PERCENTILES: Mapping[str, tuple[int, int]] = {
    "p50": (50, 100), "p90": (90, 100), "p95": (95, 100), "p99": (99, 100), "p99.9": (999, 1000),
}  # fmt: skip


def ranked(digest: Digest, order: str = "sum") -> list[QueryClass]:
    """The classes, largest first; ties by their share of the response time. ``sum`` is by bytes in binary logs."""
    by = ORDERS["bytes" if order == "sum" and digest.is_binary_log else order]
    return sorted(digest.classes, key=lambda each: (-by(each), -each.total_ns, -each.count, each.name))


def share(each: QueryClass, whole: QueryClass) -> float | None:
    """The share of all response time; None if the source has no times."""
    return each.total_ns / whole.total_ns if whole.total_ns else None


def mean_ns(each: QueryClass) -> float | None:
    timed = each.number("response_ns")
    return timed.sum / timed.count if timed.count else None


def percentile_ns(each: QueryClass, name: str) -> float | None:
    """A percentile of all events of the class, by nearest rank; None if none has a response time.

    The middle of the bucket of that rank, clamped to the exact extremes: at most 0.4% off. Of a server's
    summary it is what the server states, or None.
    """
    if each.is_summarised:
        return each.stated_ns(name.replace(".", ""))
    timed = each.number("response_ns")
    return value_at(each.response, name, timed.least, timed.most)


def fast_ns(each: QueryClass) -> float | None:
    """The time that 5% of the calls took at most: that of a log of slow calls is near its limit."""
    found = each.response
    return _of_rank(found, -(-found.total // 20)) if found.total else None


def value_at(found: Buckets, name: str, least: int | None = None, most: int | None = None) -> float | None:
    """The same for any histogram."""
    if not found.total:
        return None
    numerator, denominator = PERCENTILES[name]
    rank = -(-found.total * numerator // denominator)
    value = _of_rank(found, rank)
    if most is not None:
        value = min(value, float(most))
    return max(value, float(least)) if least is not None else value


def _of_rank(found: Buckets, rank: int) -> float:
    """The middle of the bucket that has the event of this rank."""
    return float(bucket_value(found.buckets[int(np.searchsorted(np.cumsum(found.counts), rank))]))


def is_thin(found: Buckets, name: str) -> bool:
    """Whether fewer than MIN_BEYOND events are beyond a percentile, so that it describes only those few."""
    numerator, denominator = PERCENTILES[name]
    return found.total + -found.total * numerator // denominator < MIN_BEYOND


def dispersion_s(each: QueryClass) -> float | None:
    """Variance over mean (the index of dispersion) of the response times in seconds, exact; pt's V/M.

    0 if all calls take equally long; large if a few take much longer than the rest.
    """
    timed, squares = each.number("response_ns"), each.number("response_ns" + SQUARES).sum
    if not timed.count or not timed.sum or each.is_summarised:
        return None
    # Integers until the end: the difference of two nearly equal squares would lose all precision.
    scaled = timed.count * squares - timed.sum**2
    return scaled / (timed.count * timed.sum) / 1e9


def deviation(each: QueryClass, name: str = "response_ns") -> float | None:
    """Standard deviation of the response times or of a measure, exact; None if the source does not have it."""
    known, squares = each.number(name), each.numbers.get(name + SQUARES)
    if not known.count or squares is None or each.is_summarised:
        return None
    return math.sqrt(max(known.count * squares.sum - known.sum**2, 0)) / known.count


@dataclass(frozen=True)
class Attribute:
    """A measure over the events of which it is known, in its own unit.

    ``p95`` is at most 3.2% off. It and ``deviation`` are None in digests of agents that did not count them. Of a
    server's summary only ``total`` and ``mean`` are known.
    """

    total: int
    least: int | None
    mean: float
    p95: float | None
    most: int | None
    deviation: float | None


def attribute(each: QueryClass, name: str) -> Attribute:
    """One of ``each.measures``."""
    known = each.number(name)
    if each.is_summarised:
        return Attribute(known.sum, None, known.sum / known.count, None, None, None)
    p95 = value_at(each.buckets(name), "p95", known.least, known.most)
    return Attribute(known.sum, known.least, known.sum / known.count, p95, known.most, deviation(each, name))


@dataclass(frozen=True)
class Satisfaction:
    """Shares of the timed events: within T, within 4T, beyond; ``score`` is Apdex, 1 the best."""

    satisfied: float
    tolerated: float
    frustrated: float

    @property
    def score(self) -> float:
        return self.satisfied + self.tolerated / 2


def satisfaction(each: QueryClass, objective_ns: float) -> Satisfaction | None:
    """How many calls met an objective.

    A bucket counts by its start: a call of exactly T is within T, and so may be calls of up to 0.8% more. Only
    response times count: a call that failed fast counts as satisfied; failures are reported as errors.
    """
    total = each.response.total
    if not total:
        return None
    starts = bucket_bounds(each.response.buckets)[0]
    within = int(each.response.counts[starts <= objective_ns].sum())
    tolerated = int(each.response.counts[starts <= TOLERATED * objective_ns].sum()) - within
    return Satisfaction(within / total, tolerated / total, (total - within - tolerated) / total)


@dataclass(frozen=True)
class Bar:
    """Events between two latencies, ns; the last bound is open."""

    low_ns: float
    high_ns: float
    count: int


def distribution(found: Buckets, steps: int = 1, most: int | None = None) -> list[Bar]:
    """Events by latency in ``steps`` ranges per decade, equal on a log scale, from the first to the last non-empty
    one. Ranges start at powers of ten. A bucket counts by its end: a latency of exactly 10 ms is in the range that
    starts there, and so may be latencies of up to 0.8% less, unless ``most``, the largest of all, is below it.
    """
    if not found.total:
        return []
    at = np.floor(np.log10(np.maximum(_ends(found, most), 1)) * steps + 1e-9).astype(np.int64)
    counts = np.zeros(at[-1] - at[0] + 1, np.int64)
    np.add.at(counts, at - at[0], found.counts)
    edges = [10 ** (n / steps) for n in range(int(at[0]), int(at[-1]) + 2)]
    return [Bar(low, high, int(n)) for low, high, n in zip(edges, edges[1:], counts, strict=False)]


def _ends(found: Buckets, most: int | None = None) -> NDArray[np.int64]:
    """The largest latency in ns of each bucket, at most ``most``."""
    ends = bucket_bounds(found.buckets)[1]
    return ends if most is None else np.minimum(ends, most)


# -- Two digests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One class in two digests; a side without it is None.

    Ratios are after relative to before, None if either side is.
    """

    name: str
    before: QueryClass | None
    after: QueryClass | None
    #: Ratios of calls per second, of the mean and of the percentiles p50, p95, p99.
    rate: float | None
    mean: float | None
    percentiles: Mapping[str, float | None]
    #: Change of response time per second of traffic (a load: ns per second), after minus before.
    load_change: float
    #: The share of pairs of slices (one of before, one of after) in which after has the larger mean.
    slower_slices: float | None
    slices: tuple[int, int]

    @property
    def state(self) -> str:
        if self.before is None:
            return "new"
        return "gone" if self.after is None else "both"

    @property
    def either(self) -> QueryClass:
        found = self.after or self.before
        assert found is not None
        return found


def compare(before: Digest, after: Digest) -> list[Change]:
    """Every class of either, sorted by change of load (response time per second of traffic).

    Loads and rates are per second of each capture, so that captures of different lengths are comparable.
    """
    spans = (before.span_s or 1.0, after.span_s or 1.0)
    names = dict.fromkeys([*after.by_name, *before.by_name])
    changes = [_change(name, before.by_name.get(name), after.by_name.get(name), spans) for name in names]
    return sorted(changes, key=lambda each: (-abs(each.load_change), each.name))


def _change(
    name: str, before: QueryClass | None, after: QueryClass | None, spans: tuple[float, float]
) -> Change:
    loads = [each.total_ns / span if each else 0.0 for each, span in zip((before, after), spans, strict=True)]
    if before is None or after is None:
        return Change(name, before, after, None, None, {}, loads[1] - loads[0], None, (0, 0))
    percentiles = {}
    for key in ("p50", "p95", "p99"):
        thin = is_thin(before.response, key) or is_thin(after.response, key)
        percentiles[key] = None if thin else _ratio(percentile_ns(before, key), percentile_ns(after, key))
    slower, slices = slower_share(before, after)
    return Change(
        name,
        before,
        after,
        _ratio(before.count / spans[0], after.count / spans[1]),
        _ratio(mean_ns(before), mean_ns(after)),
        percentiles,
        loads[1] - loads[0],
        slower,
        slices,
    )


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after is not None else None


def slower_share(before: QueryClass, after: QueryClass) -> tuple[float | None, tuple[int, int]]:
    """The share of pairs of a slice of before and one of after in which after's mean is larger; ties count half.

    0.5: the slices overlap evenly; 1: each slice of after is slower than every one of before. It compares the
    difference of the captures with the variation within each; successive slices share conditions, so it does not
    imply significance (the common-language effect size, McGraw & Wong 1992). None with fewer than 4 slices on a
    side.
    """
    means = [each.slices.sum_ns / np.maximum(each.slices.count, 1) for each in (before, after)]
    sizes = (len(means[0]), len(means[1]))
    if min(sizes) < 4:
        return None, sizes
    ordered = np.sort(means[0])
    below = np.searchsorted(ordered, means[1], side="left")
    upto = np.searchsorted(ordered, means[1], side="right")
    return float((below + upto).sum() / 2 / (sizes[0] * sizes[1])), sizes


# -- Client and server ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """One class as the client and as the server saw it. Times in ns."""

    name: str
    client: QueryClass
    server: QueryClass
    mean_ns: tuple[float, float] | None
    #: p50 ... -> (client, server).
    percentiles_ns: Mapping[str, tuple[float, float]]

    @property
    def mean_share(self) -> float | None:
        """The part of the client's mean time spent in network and client; exact if both saw the same calls."""
        if self.mean_ns is None or not self.mean_ns[0]:
            return None
        return 1 - self.mean_ns[1] / self.mean_ns[0]

    @property
    def is_same_calls(self) -> bool:
        """Whether both counted the same number of calls; otherwise even the means cover different calls."""
        return self.client.count == self.server.count


def sides(client: Digest, server: Digest) -> tuple[list[Sides], list[QueryClass], list[QueryClass]]:
    """Classes seen by both, largest at the client first; and those seen by only one.

    The difference of two distributions is not the distribution of the differences: the slowest call at the client
    need not be the slowest at the server. Only means can be subtracted; percentiles are listed side by side.
    """
    both = []
    for each in client.classes:
        other = server.by_name.get(each.name)
        if other is None:
            continue
        means = (mean_ns(each), mean_ns(other))
        percentiles = {}
        for key in PERCENTILES:
            if is_thin(each.response, key) or is_thin(other.response, key):
                continue
            pair = (percentile_ns(each, key), percentile_ns(other, key))
            if pair[0] is not None and pair[1] is not None:
                percentiles[key] = (pair[0], pair[1])
        known = (means[0], means[1]) if means[0] is not None and means[1] is not None else None
        both.append(Sides(each.name, each, other, known, percentiles))
    only_client = [each for each in client.classes if each.name not in server.by_name]
    only_server = [each for each in server.classes if each.name not in client.by_name]
    return both, only_client, only_server


# -- Days -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A class of a history: the first and the last day with it, the number of days, and its total calls."""

    name: str
    first_day: str
    last_day: str
    days: int
    calls: int
    latest: QueryClass


def seen(days: Mapping[str, Digest]) -> list[Seen]:
    """Every class, most recently first-seen first; within a day by response time. Days in order."""
    found: dict[str, Seen] = {}
    for day, digest in days.items():
        for each in digest.classes:
            old = found.get(each.name)
            first, n, calls = (old.first_day, old.days, old.calls) if old else (day, 0, 0)
            found[each.name] = Seen(each.name, first, day, n + 1, calls + each.count, each)
    ordered = sorted(found.values(), key=lambda each: (-each.latest.total_ns, each.name))
    return sorted(ordered, key=lambda each: each.first_day, reverse=True)


# -- Time -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Course:
    """A course over time: slices of ``width_ns`` from ``start_ns``, without gaps. NaN if nothing ran.

    Shapes (n,); the first and the last slice may be only partly within the capture.
    """

    start_ns: int
    width_ns: int
    count: NDArray[np.int64]
    mean_ns: NDArray[np.float64]
    most_ns: NDArray[np.float64]


def course(each: QueryClass, first_ns: int, last_ns: int, width_ns: int, most: int = 512) -> Course:
    """A class over the whole time of its digest, in at most ``most`` slices (neighbours are joined)."""
    while last_ns // width_ns - first_ns // width_ns >= most:
        width_ns *= 2
    start = first_ns // width_ns
    size = last_ns // width_ns - start + 1
    count, total, top = np.zeros(size, np.int64), np.zeros(size), np.full(size, np.nan)
    at = each.slices.start_ns // width_ns - start
    np.add.at(count, at, each.slices.count)
    np.add.at(total, at, np.nan_to_num(each.slices.sum_ns))
    np.fmax.at(top, at, each.slices.most_ns)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    return Course(start * width_ns, width_ns, count, mean, top)


def heat_rows(
    digest: Digest, steps: int = 4, most: int = 512
) -> tuple[int, int, NDArray[np.float64], NDArray[np.int64]]:
    """The heat map: (start ns, width ns, edges of latency in ns (m + 1,), counts (m, n)).

    ``steps`` rows per decade of latency, columns without gaps.
    """
    width = digest.heat_slice_ns
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    while digest.last_ns // width - digest.first_ns // width >= most:
        width *= 2
    start = digest.first_ns // width
    size = digest.last_ns // width - start + 1
    bars = distribution(digest.all.response, steps)
    edges = np.array([bar.low_ns for bar in bars] + [bars[-1].high_ns] if bars else [])
    cells = np.zeros((len(bars), size), np.int64)
    for at_ns, found in digest.heat.items():
        rows = np.searchsorted(edges, _ends(found), side="right") - 1
        np.add.at(cells[:, at_ns // width - start], np.clip(rows, 0, len(bars) - 1), found.counts)
    return start * width, width, edges, cells


def percentile_course(
    digest: Digest, names: Sequence[str] = ("p50", "p95", "p99")
) -> tuple[int, Mapping[str, list[tuple[int, float]]]]:
    """(width ns, name -> (start of a slice in ns, percentile of all classes in it)); slices with too few events
    are omitted. Slices are joined until half of them have enough events for the last name, but at least 16 remain.
    """
    width, last = digest.heat_slice_ns, names[-1]
    slices = dict(digest.heat)
    while len(slices) > 32 and sum(is_thin(found, last) for found in slices.values()) > len(slices) / 2:
        width *= 2
        joined: dict[int, list[Buckets]] = {}
        for at_ns, buckets in slices.items():
            joined.setdefault(at_ns - at_ns % width, []).append(buckets)
        slices = {at_ns: _added(parts) for at_ns, parts in joined.items()}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for at_ns, buckets in sorted(slices.items()):
        for name in names:
            value = value_at(buckets, name)
            if value is not None and not is_thin(buckets, name):
                found[name].append((at_ns, value))
    return width, found


def _added(parts: Sequence[Buckets]) -> Buckets:
    if len(parts) == 1:
        return parts[0]
    buckets, where = np.unique(np.concatenate([part.buckets for part in parts]), return_inverse=True)
    counts = np.zeros(len(buckets), np.int64)
    np.add.at(counts, where, np.concatenate([part.counts for part in parts]))
    return Buckets(buckets, counts)
