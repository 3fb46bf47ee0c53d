"""Results over versions or days: changes of level, distinguished from noise.

A point is one version (or day): the mean of its trials' logs. Neighbouring points are often alike for reasons of
the machine (an ageing disk, a neighbour that stays for a week), and noise may grow or shrink. So the order of
points is not random even if no version differs, and random orders would call such a run of like points a change.

Instead the largest changes of a stretch are compared with those of noise series that resemble it: its residuals
around the levels, with the part that the point before explains taken out, random signs, and that part put back.
The signs keep the size of the noise where it was. How much of a point is carried over to the next is not known,
and few points hardly tell: noise series are made with every share up to MOST_CARRIED, and each counts by how well
the autocorrelation of its own residuals agrees with that of the stretch.

A stretch has one change or two (a level that came and went would hide in one); the parts between are then examined
in the same way. Only the first test decides whether a steady series raises an alarm. If points are known to share
nothing, their order is random, and random orders of the points themselves are compared: this sees more.

Sources: Wu 1986, Jackknife, bootstrap and other resampling methods in regression analysis, Annals of Statistics
14 (random signs); Matteson & James 2014, A nonparametric approach for multiple change point analysis, JASA 109
(random orders); Beaumont, Zhang & Balding 2002, Approximate Bayesian computation in population genetics,
Genetics 162 (weights by agreement of a statistic); Daly et al. 2020, The use of change point detection to identify
software performance regressions, ICPE; Page 1954, Continuous inspection schemes, Biometrika 41 (CUSUM).
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

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

#: Noise series that the changes of a stretch are compared with.
SERIES = 1999

#: The fewest points that are searched.
MIN_POINTS = 8

#: A short stretch says too little about what its noise carries over. It is held to a part of alpha that grows from
#: none at FEW_POINTS to all of it at MANY_POINTS: with these, alarms in series that carry 0.7 over stay near 7%.
FEW_POINTS, MANY_POINTS = 7, 22

#: The largest share of a point's deviation that noise series carry over to the next.
MOST_CARRIED = 0.9

#: Weight of a noise series whose autocorrelation differs from that of the stretch: normal, of this width.
AGREEMENT = 0.1

#: One point is not a level.
MIN_LEVEL = 2

#: Places where a change is looked for in noise series; a longer stretch has them at equal distances.
MOST_PLACES = 120

#: Memory for the candidates of one batch of noise series.
BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Point:
    """One version or day: the natural logs of its trials' responses.

    ``slow`` says why other trials have none although they ran: they failed, did no work, or too little for the
    percentile. They may be its slow ones, so the rest flatters it. ``disturbed`` is how many are invalid.
    """

    name: str
    logs: tuple[float, ...]
    slow: tuple[str, ...] = ()
    disturbed: int = 0

    @property
    def log(self) -> float:
        return math.fsum(self.logs) / len(self.logs)


@dataclass(frozen=True)
class Change:
    """A change at ``at`` (the first point of the new level): the ratio of the new level to the old one, with an
    interval that treats points as replicates, and the share of noise series with as large a change.
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
    is_independent: bool = False,
    seed: int = 1,
) -> History:
    """The changes of a series; none if it is too short (fewer than MIN_POINTS).

    ``margin``: a change that is certainly smaller is ``equivalent``: real, but unimportant. ``is_independent``:
    the points share nothing, as if each were measured beside its own baseline, or all in random order.
    """
    if not points:
        return History((), (), 0.0)
    values = np.array([p.log for p in points])
    search = _Search(values, alpha, is_independent, np.random.default_rng(seed))
    found = sorted(search.between(0, len(values)))
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


@dataclass(frozen=True)
class _Search:
    values: Floats
    alpha: float
    is_independent: bool
    generator: np.random.Generator

    def between(self, start: int, end: int) -> list[tuple[int, float]]:
        """(first point of the new level, p) of every change in ``values[start:end]``."""
        part = self.values[start:end]
        if len(part) < MIN_POINTS or np.ptp(part) == 0:
            return []
        p, cuts = self.test(part)
        if p > self.level(len(part)):
            return []
        edges = [start, *(start + cut for cut in cuts), end]
        inside = [self.between(a, b) for a, b in itertools.pairwise(edges)]
        return [*((at, p) for at in edges[1:-1]), *itertools.chain.from_iterable(inside)]

    def level(self, points: int) -> float:
        known = 1.0 if self.is_independent else (points - FEW_POINTS) / (MANY_POINTS - FEW_POINTS)
        return self.alpha * min(1.0, known)

    def test(self, part: Floats) -> tuple[float, list[int]]:
        """(p, the places of the changes) of the hypothesis that a stretch has none, against one or two of them.

        Two, if the second explains more than it does in noise.
        """
        own = _fit(part[None, :])
        if self.is_independent:
            orders = _fit(self.generator.permuted(np.tile(part, (SERIES, 1)), axis=1))
            reached = int((orders.gain(1) >= own.gain(1) * (1 - 1e-12)).sum())
            return (1 + reached) / (SERIES + 1), _refined(part, [int(own.one[0])])
        noise = _Noise(part, own, 2, self.generator)
        if noise.share(own.second(), noise.fit.second()) <= self.alpha:
            p = noise.share(own.gain(2), noise.fit.gain(2))
            return p, _refined(part, [int(at) for at in own.two[0]])
        noise = _Noise(part, own, 1, self.generator)
        return noise.share(own.gain(1), noise.fit.gain(1)), _refined(part, [int(own.one[0])])


@dataclass(frozen=True)
class _Fit:
    """For each of N series its best cut in two and in three: ``one`` (N,) and ``two`` (N, 2) hold the lengths
    before the cuts, ``by_one`` and ``by_two`` (N,) the squares that they explain of ``total``.
    """

    total: Floats
    by_one: Floats
    by_two: Floats
    one: Places
    two: Places

    def gain(self, changes: int) -> Floats:
        """Explained over left, which does not depend on the noise's size."""
        explained = self.by_one if changes == 1 else self.by_two
        return explained / np.maximum(self.total - explained, 1e-300)

    def second(self) -> Floats:
        """What the second change explains over what both leave."""
        return (self.by_two - self.by_one) / np.maximum(self.total - self.by_two, 1e-300)

    def cuts(self, changes: int) -> Places:
        return self.one[:, None] if changes == 1 else self.two


class _Noise:
    """Series without a change that resemble ``part``, and how well each agrees with it."""

    def __init__(self, part: Floats, own: _Fit, changes: int, generator: np.random.Generator) -> None:
        residuals = _residuals(part[None, :], own.cuts(changes))
        carried = generator.choice(_SHARES, SERIES, p=_WEIGHTS[changes])
        series = np.repeat(residuals, SERIES, axis=0)
        series[:, 1:] -= carried[:, None] * residuals[:, :-1]
        series *= generator.choice((-1.0, 1.0), series.shape)
        for at in range(1, len(part)):
            series[:, at] += carried * series[:, at - 1]
        self.fit = _fit(series)
        away = _autocorrelation(_residuals(series, self.fit.cuts(changes))) - _autocorrelation(residuals)
        self.weights = np.exp(-0.5 * (away / AGREEMENT) ** 2)

    def share(self, own: Floats, of_noise: Floats) -> float:
        """The weighted share of noise series that reach ``own`` (1,); the stretch itself counts as one."""
        reached = self.weights[of_noise >= own[0] * (1 - 1e-12)].sum()
        one = max(float(self.weights.max()), 1e-300)
        return float((reached + one) / (self.weights.sum() + one))


_SHARES = np.linspace(0.0, MOST_CARRIED, 10)


def _weights(least: float) -> Floats:
    weights = least + _SHARES**2
    return np.asarray(weights / weights.sum())


#: How many noise series carry each share, by the number of changes looked for. More have a large one: there, a few
#: points look least like what they are. The weights were chosen so that alarms stay rare at 0.7.
_WEIGHTS = {1: _weights(0.5), 2: _weights(1.5)}


def _fit(series: Floats) -> _Fit:
    n = series.shape[1]
    places = np.arange(MIN_LEVEL, n - MIN_LEVEL + 1)
    if len(places) > MOST_PLACES:
        places = places[np.unique(np.linspace(0, len(places) - 1, MOST_PLACES).round().astype(int))]
    first, then = np.triu_indices(len(places), 1)
    apart = places[then] - places[first] >= MIN_LEVEL
    first, then = first[apart], then[apart]
    batch = max(1, BATCH_BYTES // (8 * len(first)))
    parts = [_fit_batch(rows, places, first, then) for rows in _batches(series, batch)]
    return _Fit(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _batches(series: Floats, size: int) -> list[Floats]:
    return [series[at : at + size] for at in range(0, len(series), size)]


def _fit_batch(
    series: Floats, places: Places, first: Places, then: Places
) -> tuple[Floats, Floats, Floats, Places, Places]:
    n = series.shape[1]
    centred = series - series.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred, axis=1)[:, places - 1]
    squares = sums**2
    one = _explained(sums, places, n)
    middle = (sums[:, then] - sums[:, first]) ** 2 / (places[then] - places[first])
    two = (squares / places)[:, first] + middle + (squares / (n - places))[:, then]
    at_one, at_two = one.argmax(axis=1), two.argmax(axis=1)
    row = np.arange(len(series))
    cuts = np.stack([places[first[at_two]], places[then[at_two]]], axis=1)
    return (centred**2).sum(axis=1), one[row, at_one], two[row, at_two], places[at_one], cuts


def _explained(sums: Floats, places: Places, n: int) -> Floats:
    """The squares that a cut at each place explains of n deviations from their mean with these sums before it."""
    return sums**2 * (1 / places + 1 / (n - places))


def _residuals(series: Floats, cuts: Places) -> Floats:
    """Each series (N, n) less the means of its levels, which ``cuts`` (N, changes) separate."""
    at = np.arange(series.shape[1])[None, :, None]
    level = (at >= cuts[:, None, :]).sum(axis=2)
    left = np.empty_like(series)
    for number in range(cuts.shape[1] + 1):
        own = level == number
        mean = (series * own).sum(axis=1) / np.maximum(own.sum(axis=1), 1)
        left = np.where(own, series - mean[:, None], left)
    return left


def _autocorrelation(residuals: Floats) -> Floats:
    products = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)
    return np.asarray(products / np.maximum((residuals**2).sum(axis=1), 1e-300))


def _refined(part: Floats, cuts: list[int]) -> list[int]:
    """Cuts moved to the best place between their neighbours: a long stretch was searched at some places only."""
    if len(part) - 2 * MIN_LEVEL + 1 <= MOST_PLACES:
        return cuts
    for number in range(len(cuts)):
        low = cuts[number - 1] if number else 0
        high = cuts[number + 1] if number + 1 < len(cuts) else len(part)
        cuts[number] = low + int(_best_split(part[low:high]))
    return cuts


def _best_split(stretch: Floats) -> int:
    n = len(stretch)
    left = np.arange(MIN_LEVEL, n - MIN_LEVEL + 1)
    sums = np.cumsum(stretch - stretch.mean())[left - 1]
    return int(left[np.argmax(_explained(sums, left, n))])


def _verdict(ratio: Interval, margin: float, is_higher_better: bool) -> Verdict:
    if ratio.low is None or ratio.high is None:
        return Verdict.NOT_ENOUGH_DATA
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return Verdict.EQUIVALENT
    # The level changed, but if the interval includes 1, the points do not yet show by how much.
    if ratio.low <= 1 <= ratio.high:
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.BETTER if (ratio.low > 1) == is_higher_better else Verdict.WORSE
