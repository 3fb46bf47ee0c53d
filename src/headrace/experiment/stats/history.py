"""Results over versions or days: changes of level, distinguished from noise.

A point is one version (or day): the mean of its trials' logs. Neighbouring points are often alike for reasons of
the machine (an ageing disk, a neighbour that stays for a week), and noise may grow or shrink. So the order of
points is not random even if no version differs, and random orders would call such a run of like points a change.

Instead the changes of a stretch are compared with those of noise series that resemble it: its residuals around the
levels, with the part that the point before explains taken out, random signs, and that part put back.
The signs keep the size of the noise where it was. How much of a point is carried over to the next is not known,
and few points hardly tell: noise series are made with every share up to MOST_CARRIED, and each counts by how well
the autocorrelation of its own residuals agrees with that of the stretch.

All changes of a stretch are looked for together, up to levels.MOST_CHANGES: levels that come and go hide in a test
of one. The first test asks whether a steady series explains as much, whatever the number of changes; then each
change must explain more than the largest one of noise. Only long series are searched again between changes, with
half of alpha each time. If points are known to share nothing, their order is random, and random orders of the
points themselves are compared: this sees more.

One point far from its neighbours on both sides is an outlier (``outliers``). It is named, and counts only as far
as noise reaches, so that it is no change and does not take the place of one.

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

from headrace.base import intervals
from headrace.base.effect import Verdict
from headrace.base.intervals import Interval
from headrace.experiment.stats import levels, outliers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Noise series that the changes of a stretch are compared with.
SERIES = 999

#: So many come first: a stretch that many times alpha of them reach has no change, and needs no more of them.
FIRST_SERIES, CLEAR = 199, 4

#: The fewest points that are searched.
MIN_POINTS = 8

#: A short stretch says too little about what its noise carries over. It is held to a part of alpha that grows from
#: none at FEW_POINTS to all of it at MANY_POINTS: with these, alarms in series that carry 0.7 over stay near 7%.
FEW_POINTS, MANY_POINTS = 7, 30

#: Weight of a noise series whose autocorrelation differs from that of the stretch: normal, of this width.
AGREEMENT = 0.1

#: What a change costs, in logs of the number of points: about that of its place and its level.
COST = 2.5


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
class Outlier:
    """One point far from those on both sides of it: ``ratio`` to the nearer of the two."""

    at: int
    name: str
    ratio: float


@dataclass(frozen=True)
class History:
    """A whole series.

    ``changes`` and ``outliers`` in order; ``noise`` is the standard deviation of points around their level, in log
    units; ``latest`` is the last change if it is still the current level.
    """

    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    noise: float
    outliers: tuple[Outlier, ...] = ()

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
    raw = np.array([p.log for p in points])
    values = outliers.without(raw)
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
    far = tuple(Outlier(at, points[at].name, math.exp(away)) for at, away in outliers.named(raw))
    return History(tuple(points), tuple(changes), noise, far)


@dataclass(frozen=True)
class _Search:
    values: Floats
    alpha: float
    is_independent: bool
    generator: np.random.Generator

    def between(self, start: int, end: int, depth: int = 0) -> list[tuple[int, float]]:
        """(first point of the new level, p) of every change in ``values[start:end]``."""
        part = self.values[start:end]
        if len(part) < MIN_POINTS or np.ptp(part) == 0:
            return []
        found = self.test(part, self.level(len(part)) / 2**depth)
        if not found:
            return []
        # All changes of a short stretch were looked for together.
        if len(found) < levels.MOST_CHANGES and len(part) <= levels.MOST_PLACES:
            return [(start + at, p) for at, p in found]
        edges = [start, *(start + at for at, _ in found), end]
        inside = [self.between(a, b, depth + 1) for a, b in itertools.pairwise(edges)]
        return [*((start + at, p) for at, p in found), *itertools.chain.from_iterable(inside)]

    def level(self, points: int) -> float:
        known = 1.0 if self.is_independent else (points - FEW_POINTS) / (MANY_POINTS - FEW_POINTS)
        return self.alpha * min(1.0, known)

    def test(self, part: Floats, alpha: float) -> list[tuple[int, float]]:
        """The changes of a stretch: (place, p)."""
        own = _Fit(part[None, :], self.is_independent)
        chosen = max(1, own.chosen)
        noise, weights = self.noise(part, own, chosen, FIRST_SERIES)
        if _share(own.gain, noise.gain, weights) > CLEAR * alpha:
            return []
        noise, weights = self.noise(part, own, chosen, SERIES)
        if _share(own.gain, noise.gain, weights) > alpha:
            return []
        proven: list[tuple[int, float]] = []
        for changes in range(chosen, 0, -1):
            cuts = own.cuts[changes][0]
            shares = [_share(own.loss(changes, k), noise.by[1], weights) for k in range(changes)]
            # Each of several might be the one too many.
            if max(shares) <= alpha / changes:
                return [(int(at), share) for at, share in zip(cuts, shares, strict=True)]
            # A change is certain: if no set is proven as a whole, those of the best one that are.
            proven = proven or [(int(cuts[k]), shares[k]) for k in _holm(shares, alpha)]
        return proven

    def noise(self, part: Floats, own: _Fit, chosen: int, count: int) -> tuple[_Fit, Floats]:
        """So many noise series, and how well each agrees with the stretch."""
        if self.is_independent:
            series = self.generator.permuted(np.tile(part, (count, 1)), axis=1)
            return _Fit(series, True), np.ones(count)
        noise = _Fit(_noise(own.left[chosen], count, self.generator), False)
        away = levels.autocorrelation(noise.left[chosen]) - levels.autocorrelation(own.left[chosen])
        return noise, np.exp(-0.5 * (away / AGREEMENT) ** 2)


class _Fit:
    """Series (N, n) with their best levels for each number of changes: ``cuts``, ``left`` (the residuals), ``by``
    (N,): what so many changes explain, as twice the difference of log-likelihoods, and ``gain`` (N,): the largest
    of these, less what each change costs.
    """

    def __init__(self, series: Floats, is_independent: bool) -> None:
        self.series = series
        self.is_independent = is_independent
        n = series.shape[1]
        self.cuts = levels.paths(series, levels.most_changes(n))
        self.left = [levels.residuals(series, cuts) for cuts in self.cuts]
        told = [levels.likelihood(left, is_independent=is_independent) for left in self.left]
        self.by = [own - told[0] for own in told]
        net = np.array([own - COST * k * math.log(n) for k, own in enumerate(self.by)])
        self.gain = net[1:].max(axis=0)
        self.chosen = int(net[:, 0].argmax())

    def loss(self, changes: int, number: int) -> Floats:
        """What the best fit with so many changes loses without this one."""
        cuts = np.delete(self.cuts[changes], number, axis=1)
        left = levels.residuals(self.series, cuts)
        without = levels.likelihood(left, is_independent=self.is_independent)
        with_it = levels.likelihood(self.left[changes], is_independent=self.is_independent)
        return with_it - without


def _noise(left: Floats, count: int, generator: np.random.Generator) -> Floats:
    """So many series without a change that resemble the residuals (1, n)."""
    carried = generator.choice(_SHARES, count, p=_WEIGHTS)
    series = np.repeat(left, count, axis=0)
    series[:, 1:] -= carried[:, None] * left[:, :-1]
    series *= generator.choice((-1.0, 1.0), series.shape)
    for at in range(1, left.shape[1]):
        series[:, at] += carried * series[:, at - 1]
    return series


def _share(own: Floats, of_noise: Floats, weights: Floats) -> float:
    """The weighted share of noise series that reach ``own`` (1,); the stretch itself counts as one."""
    reached = weights[of_noise >= own[0] - 1e-9].sum()
    one = max(float(weights.mean()), 1e-300)
    return float((reached + one) / (weights.sum() + one))


def _holm(shares: Sequence[float], alpha: float) -> list[int]:
    """The hypotheses that are rejected together, in order (Holm 1979, Scandinavian Journal of Statistics 6)."""
    rejected = []
    for step, at in enumerate(sorted(range(len(shares)), key=lambda k: shares[k])):
        if shares[at] > alpha / (len(shares) - step):
            break
        rejected.append(at)
    return sorted(rejected)


_SHARES = np.linspace(0.0, levels.MOST_CARRIED, 10)
#: How many noise series carry each share. More have a large one: there, few points look least like what they are.
_WEIGHTS = (0.1 + _SHARES**3) / (0.1 + _SHARES**3).sum()


def _verdict(ratio: Interval, margin: float, is_higher_better: bool) -> Verdict:
    if ratio.low is None or ratio.high is None:
        return Verdict.NOT_ENOUGH_DATA
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return Verdict.EQUIVALENT
    # The level changed, but if the interval includes 1, the points do not yet show by how much.
    if ratio.low <= 1 <= ratio.high:
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.BETTER if (ratio.low > 1) == is_higher_better else Verdict.WORSE
