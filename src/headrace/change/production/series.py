"""Events by latency bucket of one host and one query class, over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: (host, class, start_s, end_s, upper bound in ns, events)
Row = tuple[str, str, float, float, float, float]

#: The class of a source that does not distinguish any, and of events whose class was not kept.
ALL, OTHERS = "", "*"

#: The bounds of a source that only counts events.
ONLY_COUNTS = np.array([0.0, np.inf])


@dataclass(frozen=True, eq=False)
class Series:
    """``counts`` has shape (n, k): events per stretch of time and bucket.

    Stretch i goes from ``start_s[i]`` to ``end_s[i]`` (Unix time); one that is absent is a gap, not a zero. Bucket
    j has latencies above ``edges_ns[j]``, up to ``edges_ns[j + 1]``; the first edge is 0 and the last infinite.
    """

    host: str
    query_class: str
    start_s: Floats
    end_s: Floats
    edges_ns: Floats
    counts: Floats

    def between(self, since_s: float, until_s: float) -> Series:
        """Only the stretches that lie within these times."""
        keep = (self.start_s >= since_s) & (self.end_s <= until_s)
        return Series(
            self.host,
            self.query_class,
            self.start_s[keep],
            self.end_s[keep],
            self.edges_ns,
            self.counts[keep],
        )


@dataclass(frozen=True, eq=False)
class Gets:
    """What a cache was asked for: ``gets`` and ``misses`` per stretch of time, all of shape (n,)."""

    host: str
    start_s: Floats
    end_s: Floats
    gets: Floats
    misses: Floats

    def between(self, since_s: float, until_s: float) -> Gets:
        """Only the stretches that lie within these times."""
        keep = (self.start_s >= since_s) & (self.end_s <= until_s)
        return Gets(self.host, self.start_s[keep], self.end_s[keep], self.gets[keep], self.misses[keep])


@dataclass(frozen=True, eq=False)
class Observed:
    """All series of a source, and what it could not read or had to assume."""

    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    gets: tuple[Gets, ...] = ()

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(each.host for each in self.series))

    def stretches(self, host: str) -> tuple[Floats, Floats]:
        """Starts of its stretches, ascending, and for each the latest end so far."""
        own = [each for each in self.series if each.host == host]
        starts = np.concatenate([each.start_s for each in own])
        order = np.argsort(starts)
        ends = np.concatenate([each.end_s for each in own])
        return starts[order], np.maximum.accumulate(ends[order])


def together(found: Iterable[Observed]) -> Observed:
    """Several sources as one."""
    parts = list(found)
    return Observed(
        tuple(each for part in parts for each in part.series),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        tuple(each for part in parts for each in part.gets),
    )


def common_edges(series: Iterable[Series]) -> Floats:
    """The edges that all have: buckets between these are exact sums of everybody's buckets.

    Bounds are compared with a tolerance of a millionth, because 0.005 s and 5 ms differ in the last digit.
    """
    layouts: dict[bytes, Floats] = {each.edges_ns.tobytes(): each.edges_ns for each in series}
    common: Floats | None = None
    for edges in layouts.values():
        common = edges if common is None else common[_is_in(common, edges)]
    return ONLY_COUNTS if common is None else common


def _is_in(values: Floats, edges: Floats) -> NDArray[np.bool_]:
    at = np.clip(np.searchsorted(edges, values * (1 - 1e-6)), 0, len(edges) - 1)
    near = edges[at]
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (near == values) | (np.abs(near - values) <= 1e-6 * np.abs(values))
    return found


def rebinned(counts: Floats, edges_ns: Floats, common_ns: Floats) -> Floats:
    """``counts`` (n, k) of these edges as sums between the common ones, which must be among them."""
    if len(edges_ns) == len(common_ns):
        return counts
    starts = np.searchsorted(edges_ns, common_ns[:-1] * (1 - 1e-6))
    found: Floats = np.add.reduceat(counts, starts, axis=1)
    return found


def of_rows(rows: Sequence[Row], bounds: Iterable[float]) -> tuple[Series, ...]:
    """Rows as series that have all of these bounds; equal rows add up.

    A bound without a row in some stretch has no event there.
    """
    edges = sorted({0.0, np.inf, *bounds})
    places = {bound: i - 1 for i, bound in enumerate(edges)}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[0], row[1]), []).append(row)
    found = []
    for (host, query_class), own in groups.items():
        times = sorted({(start, end) for _, _, start, end, _, _ in own})
        lines = {time: i for i, time in enumerate(times)}
        counts = np.zeros((len(times), len(edges) - 1))
        for _, _, start, end, bound, count in own:
            counts[lines[start, end], places[bound]] += count
        starts, ends = np.array(times).T
        found.append(Series(host, query_class, starts, ends, np.array(edges), counts))
    return tuple(found)
