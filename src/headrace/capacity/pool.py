"""Reads per call as a function of the buffer pool's size. docs: explanation/sizing.md.

Measured at a few sizes. In between and beyond: pages that are hit by Zipf's law, in a cache that drops the least
recently used (Che, Tung & Wang 2002, Hierarchical Web caching systems, IEEE JSAC 20), drawn through what was
measured. The interval needs no law: under independent accesses the curve falls, ever more slowly (it is convex),
so that chords are above it and the extensions of chords are below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval
from headrace.capacity.device import ALPHA, DRAWS, drawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: How far a pool is from the cache of the model, as a log, that an interval allows for: InnoDB drops from the
#: middle of its list, keeps free pages, and reads ahead.
MODEL_ERROR = 0.05
#: Zipf's exponents that are tried.
EXPONENTS = np.arange(0.0, 2.01, 0.05)
#: Ranks in one bin of the popularity, and points on the curve.
_BINS, _TIMES = 400, 400


@dataclass(frozen=True)
class Point:
    """``pages`` of data in the pool, and ``reads`` from the device per call with so many."""

    pages: float
    reads: Interval


@dataclass(frozen=True)
class Curve:
    """``points`` by pages, at least two. ``data_pages``: all there are, or more, infinite if nobody knows;
    ``accesses``: to pages per call, or more, for sizes below the smallest point.
    """

    points: Sequence[Point]
    data_pages: float = math.inf
    accesses: float = math.inf

    def reads(self, pages: float, seed: int = 1) -> Interval:
        """Per call, with so many pages in the pool."""
        if pages >= self.data_pages:
            return Interval(0.0, 0.0, 0.0)
        rng = np.random.default_rng(seed)
        sizes = np.array([point.pages for point in self.points])
        if (at := np.flatnonzero(np.isclose(sizes, pages, rtol=1e-6))).size:
            return self.points[int(at[0])].reads
        draws = np.array([drawn(point.reads, rng) for point in self.points])
        low, high = self._between(pages, sizes, draws)
        lowest = float(np.quantile(low, ALPHA / 2)) * math.exp(-MODEL_ERROR)
        estimate = max(self._estimate(pages, sizes), lowest)
        if high is None:
            return Interval(estimate, lowest, None)
        highest = float(np.quantile(high, 1 - ALPHA / 2)) * math.exp(MODEL_ERROR)
        return Interval(min(estimate, highest), lowest, highest)

    def _between(self, pages: float, sizes: Floats, draws: Floats) -> tuple[Floats, Floats | None]:
        """Bounds from convexity alone, for each draw of what was measured; None: there is no upper one."""
        ends_x, ends_y = [*sizes], [*draws]
        if math.isfinite(self.accesses):
            ends_x, ends_y = [0.0, *ends_x], [np.full(DRAWS, self.accesses), *ends_y]
        if math.isfinite(self.data_pages):
            ends_x, ends_y = [*ends_x, self.data_pages], [*ends_y, np.zeros(DRAWS)]
        after = int(np.searchsorted(ends_x, pages))
        low = np.zeros(DRAWS) if after == len(ends_x) else ends_y[after]
        if after >= 2:
            low = np.maximum(low, _line(ends_x, ends_y, after - 2, after - 1, pages))
        # The point at 0 reads may be too far out: its line bounds from above only.
        known = len(ends_x) - math.isfinite(self.data_pages)
        if after + 1 < known:
            low = np.maximum(low, _line(ends_x, ends_y, after, after + 1, pages))
        if after == 0:
            return low, None
        high = ends_y[after - 1] if after == len(ends_x) else _line(ends_x, ends_y, after - 1, after, pages)
        # Noise may contradict convexity.
        return np.minimum(low, high), np.maximum(low, high)

    def _estimate(self, pages: float, sizes: Floats) -> float:
        measured = np.array([math.log(max(point.reads.estimate, 1e-12)) for point in self.points])
        of_data = self.data_pages if math.isfinite(self.data_pages) else 4.0 * float(sizes[-1])
        best, law = math.inf, (0.0, 0.0)
        for exponent in EXPONENTS:
            missed = np.log(misses(float(exponent), of_data, sizes))
            apart = measured - missed
            # Of one size any law would do; one that is halfway between even and much skewed.
            cost = (
                float(((apart - apart.mean()) ** 2).sum()) if len(sizes) > 1 else abs(float(exponent) - 0.8)
            )
            if cost < best:
                best, law = cost, (float(exponent), float(apart.mean()))
        exponent, scale = law
        left = measured - np.log(misses(exponent, of_data, sizes)) - scale
        off = scale + float(np.interp(pages, sizes, left))
        return math.exp(float(np.log(misses(exponent, of_data, np.array([pages])))[0]) + off)


#: Fewer reads than this share of today's are none.
NO_READS = 1e-3


@dataclass(frozen=True)
class Pool:
    """A host's pool of today, and ``sizes`` in bytes of the curve's points, ascending, at least two."""

    size_bytes: float
    sizes: Sequence[float]
    curve: Curve

    def reads(self, size_bytes: float) -> Interval:
        """Per call, with a pool of so many bytes. What it keeps free does not grow with it."""
        pages = [point.pages for point in self.curve.points]
        slope = (pages[-1] - pages[0]) / (self.sizes[-1] - self.sizes[0])
        found = float(np.interp(size_bytes, self.sizes, pages))
        found += slope * (max(size_bytes - self.sizes[-1], 0.0) + min(size_bytes - self.sizes[0], 0.0))
        return self.curve.reads(max(found, 1.0))

    def saves(self, size_bytes: float) -> Interval:
        """How many times as many calls the same reads of the device are enough for."""
        now, then = self.reads(self.size_bytes).estimate, self.reads(size_bytes)
        least = NO_READS * now
        ends = [
            now / max(each if each is not None else then.estimate, least) for each in (then.high, then.low)
        ]
        return Interval(now / max(then.estimate, least), ends[0], ends[1])


def _line(x: Sequence[float], y: Sequence[Floats], a: int, b: int, at: float) -> Floats:
    return np.asarray(y[a] + (y[b] - y[a]) * (at - x[a]) / (x[b] - x[a]))


def misses(exponent: float, data_pages: float, pages: Floats) -> Floats:
    """The share of accesses that a cache of so many pages misses."""
    sizes, missed = _cache(exponent, data_pages)
    return np.maximum(np.interp(pages, sizes, missed), 1e-9)


@lru_cache(maxsize=256)
def _cache(exponent: float, data_pages: float) -> tuple[Floats, Floats]:
    """(pages in the cache, share missed): a page is in it if it was hit within a time that all share."""
    edges = np.unique(np.floor(np.geomspace(1, max(data_pages, 2.0) + 1, _BINS)))
    count = np.diff(edges)
    rank = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))
    weight = rank**-exponent
    share = weight / float((count * weight).sum())
    t = np.geomspace(0.01 / share.max(), 50.0 / share.min(), _TIMES)[:, None]
    out = np.exp(-share * t)
    sizes = (count * (1 - out)).sum(axis=1)
    missed = (count * share * out).sum(axis=1)
    return np.concatenate([[0.0], sizes, [data_pages]]), np.concatenate([[1.0], missed, [0.0]])
