"""Results over versions or days: changes of level, distinguished from noise.

A point is one version (or day): the mean of its trials' logs. If a stretch of points is only noise, their order
carries no information; so the largest split of the stretch (by the CUSUM statistic) is compared with the largest
splits of the same points in random orders. A split that beats all but alpha of these is a change, and both sides
are tested again. Only the first test decides whether a steady series raises an alarm, so the false-alarm rate is
alpha for any noise, as long as the machine does not drift. Points may have different noise within a trial, but
successive points on a drifting machine are not in random order: if the machine is not trusted, interleave versions
or run the baseline next to each (``headrace run``).

Sources: Matteson & James 2014, A nonparametric approach for multiple change point analysis, JASA 109 (divisive, by
permutation); Daly et al. 2020, The use of change point detection to identify software performance regressions,
ICPE; Page 1954, Continuous inspection schemes, Biometrika 41 (CUSUM).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.analysis import intervals
from headrace.analysis.intervals import Interval
from headrace.analysis.result import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Random orders that a split is compared with.
ORDERS = 999

#: The fewest points at which a split can beat all but 5% of the orders: with six, 1 in 20 orders has a split as
#: large.
MIN_POINTS = 7


@dataclass(frozen=True)
class Point:
    """One version or day: the natural logs of its trials' responses."""

    name: str
    logs: tuple[float, ...]

    @property
    def log(self) -> float:
        return math.fsum(self.logs) / len(self.logs)


@dataclass(frozen=True)
class Change:
    """A change at ``at`` (the first point of the new level): the ratio of the new level to the old one, with an
    interval that treats points as replicates, and the share of random orders with as large a split.
    """

    at: int
    name: str
    ratio: Interval
    p: float
    verdict: Verdict


@dataclass(frozen=True)
class History:
    """A whole series.

    ``changes`` in order; ``noise`` is the standard deviation of points around their level, in log units;
    ``latest`` is the last change if it is still the current level.
    """

    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    noise: float

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Half-open ranges of points with the same level."""
        edges = [0, *(c.at for c in self.changes), len(self.points)]
        return list(itertools.pairwise(edges))

    @property
    def latest(self) -> Change | None:
        return self.changes[-1] if self.changes else None


def watch(
    points: Sequence[Point],
    *,
    alpha: float = 0.05,
    margin: float = 0.03,
    is_higher_better: bool = True,
    seed: int = 1,
) -> History:
    """The changes of a series; none if it is too short (fewer than MIN_POINTS).

    ``margin``: a change that is certainly smaller is ``equivalent``: real, but unimportant.
    """
    if not points:
        return History((), (), 0.0)
    values = np.array([p.log for p in points])
    generator = np.random.default_rng(seed)
    found = sorted(_split(values, 0, len(values), alpha, generator))
    edges = [0, *(at for at, _ in found), len(values)]
    residuals = np.concatenate([values[a:b] - values[a:b].mean() for a, b in itertools.pairwise(edges)])
    degrees = len(values) - len(edges) + 1
    noise = math.sqrt(float(residuals @ residuals) / degrees) if degrees > 0 else 0.0
    changes = []
    for place, (at, p) in enumerate(found, start=1):
        before = {i: float(values[i]) for i in range(edges[place - 1], at)}
        after = {i: float(values[i]) for i in range(at, edges[place + 1])}
        ratio = intervals.welch(before, after, alpha)
        changes.append(Change(at, points[at].name, ratio, p, _verdict(ratio, margin, is_higher_better)))
    return History(tuple(points), tuple(changes), noise)


def _split(
    values: NDArray[np.float64], start: int, end: int, alpha: float, generator: np.random.Generator
) -> list[tuple[int, float]]:
    """(first point of the new level, p) of every change in ``values[start:end]``."""
    part = values[start:end]
    if len(part) < MIN_POINTS:
        return []
    largest, at = _cusum(part[None, :])
    orders = generator.permuted(np.tile(part, (ORDERS, 1)), axis=1)
    p = (1 + int((_cusum(orders)[0] >= largest[0] * (1 - 1e-12)).sum())) / (ORDERS + 1)
    if p > alpha:
        return []
    middle = start + int(at[0])
    return [
        (middle, p),
        *_split(values, start, middle, alpha, generator),
        *_split(values, middle, end, alpha, generator),
    ]


def _cusum(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """For each row the largest standardised difference of means over all splits, and the length of its left
    side.

    One point is not a level, so splits have at least two points on each side.
    """
    n = rows.shape[1]
    left = np.arange(2, n - 1)
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, 1 : n - 2]
    sizes = np.abs(sums) / np.sqrt(left * (n - left) / n)
    best = sizes.argmax(axis=1)
    return sizes[np.arange(len(rows)), best], left[best]


def _verdict(ratio: Interval, margin: float, is_higher_better: bool) -> Verdict:
    if ratio.low is None or ratio.high is None:
        return Verdict.NOT_ENOUGH_DATA
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return Verdict.EQUIVALENT
    better = ratio.estimate > 1 if is_higher_better else ratio.estimate < 1
    return Verdict.BETTER if better else Verdict.WORSE
