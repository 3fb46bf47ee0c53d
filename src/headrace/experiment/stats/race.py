"""A race: after every block, treatments that are worse with confidence are eliminated, until a winner remains.

Of ``K`` treatments the best is eliminated with probability at most alpha, whenever the race stops: only the ``K -
1`` others can eliminate it, each with probability at most ``alpha / (K - 1)`` over all its looks (``looks.py``
spends it over them). So neither the number of looks nor the stopping time has to be fixed in advance.

The test is Student's, on the paired differences of two treatments over the blocks that both ran. Each treatment
has its own variance. With two or three blocks that is imprecise, so it is drawn towards the variance of all
treatments, the more the treatments' variances agree, but only upwards: below its own estimate a noisy treatment
would look certain. With fewer than four treatments, each pair has the variance of its own differences.

A percentile comes from a histogram, so trials in one bucket look identical and their spread may be 0. Every
half-width therefore includes the resolution of both treatments, as in ``compare``.

Sources: Even-Dar, Mannor & Mansour 2006, Action elimination and stopping conditions for the multi-armed bandit,
JMLR 7 (successive elimination); Smyth 2004, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol.
Biol. 3 (moderated t, section 6.2 for the prior's degrees of freedom); Grubbs 1948, JASA 43 (variances of rows).
tests/unit/test_race_simulation.py checks this on simulated races; benches/race.py compares the cost of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval, scaled
from headrace.base.looks import nominal_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Degrees of freedom that the common spread lends per degree of freedom of a pair.
MOST_LENT = 1.5

#: A treatment's own variance is corrected for noise of the others down to this share of what is there.
LEAST_OWN = 0.35

#: More blocks in total than this are not predicted.
MOST_BLOCKS = 1000

#: With fewer treatments, the agreement of their variances cannot be estimated: every pair has its own.
MIN_TO_POOL = 4


@dataclass(frozen=True)
class RaceStatus:
    """One treatment in a race.

    ``to_leader`` is its response relative to the leader's in the blocks that both ran, 1 for the leader itself;
    None without such a block. ``mean`` is the geometric mean over its own blocks.

    ``dropped_after`` is the block after which it was eliminated, with the treatment that beat it; None while it
    runs. ``is_failed``: eliminated because it cannot be measured.
    """

    treatment: str
    blocks: int
    mean: float | None
    to_leader: Interval | None
    dropped_after: int | None = None
    dropped_by: str | None = None
    is_failed: bool = False


@dataclass(frozen=True)
class Race:
    """The state of a race after ``blocks`` complete blocks.

    ``survivors`` are the unbeaten treatments; ``leader`` has the best mean of them. ``is_decided`` when one
    survivor is left, or when with confidence no survivor is better than the leader by more than the margin.

    A survivor is only not proven worse. ``interchangeable`` are those of them than which, with confidence, none is
    better by more than the margin: the leader too, once it is decided.
    """

    blocks: int
    standings: tuple[RaceStatus, ...]
    survivors: tuple[str, ...]
    interchangeable: tuple[str, ...]
    leader: str
    is_decided: bool
    prior_degrees: float
    deviation: float


class Judge:
    """One race, block by block; each block is judged once."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        alpha: float = 0.05,
        margin: float = 0.03,
        is_higher_better: bool = True,
    ) -> None:
        self._names = list(names)
        self._alpha, self._margin = alpha, margin
        self._sign = 1.0 if is_higher_better else -1.0
        self._table = np.zeros((len(self._names), 0))
        self._resolution = np.zeros((len(self._names), 0))
        self._left: dict[int, tuple[int, int | None]] = {}
        self._pooled = Pooled(0.0, 0.0, 0)

    def after(self, block: Mapping[str, float | None], resolution: Mapping[str, float] | None = None) -> None:
        """Take a block's natural-log responses: None if a treatment was not measured (it was eliminated, or its
        trial was invalid), NaN if it failed, which eliminates it. Elimination is final.

        ``resolution`` is the precision of each, in log units (``TrialResponse.resolution_log``); 0 if it is left
        out.
        """
        values = [block.get(name) for name in self._names]
        own = [(resolution or {}).get(name, 0.0) for name in self._names]
        self._resolution = np.column_stack([self._resolution, np.array(own)])
        column = np.array([math.nan if v is None else self._sign * v for v in values])
        self._table = np.column_stack([self._table, column])
        number = self._table.shape[1]
        for i, value in enumerate(values):
            if value is not None and math.isnan(value):
                self._left.setdefault(i, (number, None))
        if number < 2:
            return
        alive = [i for i in range(len(self._names)) if i not in self._left]
        self._pooled = pool(self._table)
        if len(alive) > 1:
            alpha = self._alpha / (len(self._names) - 1)
            found = pairs(self._table[alive], self._pooled.of(alive), self._resolution[alive])
            for i, j in _drops(found, alpha):
                self._left[alive[i]] = (number, alive[j])

    def race(self) -> Race:
        """The current state."""
        found = pairs(self._table, self._pooled, self._resolution)
        half = found.sequential_half_width(self._alpha / max(len(self._names) - 1, 1))
        return _race(
            self._names, self._table, self._left, self._pooled, found.mean, half, self._margin, self._sign
        )


def blocks_needed(race: Race, margin: float) -> int | None:
    """About how many blocks in total would decide the race, if means and spreads stay as they are; None with fewer
    than two blocks, and beyond ``MOST_BLOCKS``.
    """
    needed = 0.0
    for standing in race.standings:
        if standing.treatment not in race.survivors or standing.treatment == race.leader:
            continue
        found = standing.to_leader
        if found is None or not found.low or not found.high:
            return None
        half = math.log(found.high / found.low) / 2
        # Then it is worse with confidence, or no better than the leader by more than the margin.
        needed = max(needed, race.blocks * (half / (abs(math.log(found.estimate)) + math.log1p(margin))) ** 2)
    return math.ceil(needed) if race.blocks < needed <= MOST_BLOCKS else None


def run_race(
    logs: Mapping[str, Sequence[float | None]],
    *,
    alpha: float = 0.05,
    margin: float = 0.03,
    is_higher_better: bool = True,
) -> Race:
    """The state of a whole race.

    ``logs`` maps each treatment to one natural-log response per block, as ``Judge.after`` takes them.
    """
    judge = Judge(list(logs), alpha=alpha, margin=margin, is_higher_better=is_higher_better)
    for block in range(max((len(values) for values in logs.values()), default=0)):
        judge.after({name: values[block] for name, values in logs.items() if block < len(values)})
    return judge.race()


@dataclass(frozen=True)
class Pooled:
    """The spread of one trial, pooled over all treatments: variance, its weight in degrees of freedom relative to
    a pair's own variance, and the degrees of freedom that it was computed with.
    """

    variance: float
    prior_degrees: float
    degrees: int
    own: NDArray[np.float64] | None = None
    own_degrees: NDArray[np.float64] | None = None

    def of(self, rows: Sequence[int]) -> Pooled:
        """For some of the rows."""
        if self.own is None or self.own_degrees is None:
            return self
        return replace(self, own=self.own[rows], own_degrees=self.own_degrees[rows])


def pool(table: NDArray[np.float64]) -> Pooled:
    """The residual variance of a table (treatments x blocks, NaN if not run) after both effects."""
    residuals, degrees = _residuals(table)
    if degrees < 1:
        return Pooled(0.0, 0.0, 0)
    variance = float(np.nansum(residuals**2)) / degrees
    return Pooled(variance, _prior_degrees(residuals, degrees), degrees, *_own(residuals, variance))


def _own(
    residuals: NDArray[np.float64], variance: float
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Each row's variance and its degrees of freedom; None with too few rows to separate them."""
    present = ~np.isnan(residuals)
    counts = present.sum(axis=1)
    blocks = np.maximum(present.sum(axis=0), 1)
    if int((counts > 1).sum()) < MIN_TO_POOL:
        return None, None
    # A row's residuals also hold a share of the others' noise, through the blocks (Grubbs 1948, JASA 43).
    width = (present * blocks[None, :]).sum(axis=1) / np.maximum(counts, 1)
    left = np.maximum(counts - 1.0, 1.0)
    squares = np.nansum(residuals**2, axis=1) / left
    share = 1 / np.maximum(width, 3.0)
    own = np.maximum((squares - share * variance) / (1 - 2 * share), LEAST_OWN * squares)
    return np.where(counts > 1, own, np.nan), left * (1 - share)


def _residuals(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """The residuals of the additive model, by least squares: treatments are swept out, blocks are solved for."""
    present = ~np.isnan(table)
    used = present.sum(axis=1) > 1
    present &= used[:, None]
    rows, columns = present.sum(axis=1), present.sum(axis=0)
    there = present.astype(np.float64)
    shares = there / np.maximum(rows, 1)[:, None]
    values = np.where(present, table, 0.0)
    values = np.where(present, values - (values.sum(axis=1) / np.maximum(rows, 1))[:, None], 0.0)
    # What blocks add beyond treatments (Searle 1971, Linear Models, sec. 7.1); minimum norm, because they sum to
    # 0.
    normal = np.diag(columns.astype(np.float64)) - there.T @ shares
    effects = np.linalg.lstsq(normal, values.sum(axis=0), rcond=1e-10)[0]
    values -= there * (effects[None, :] - (shares @ effects)[:, None])
    degrees = int(present.sum() - (rows > 0).sum() - (columns > 0).sum() + 1)
    return np.where(present, values, np.nan), degrees


def _prior_degrees(residuals: NDArray[np.float64], degrees: int) -> float:
    counts = (~np.isnan(residuals)).sum(axis=1)
    used = counts > 1
    if int(used.sum()) < MIN_TO_POOL:
        return 0.0
    # Each row's share of the residual degrees of freedom.
    own = (counts[used] - 1) * degrees / (counts[used] - 1).sum()
    return prior_degrees(np.nansum(residuals[used] ** 2, axis=1) / own, own)


def prior_degrees(variances: NDArray[np.float64], degrees: NDArray[np.float64]) -> float:
    """The weight of the common variance relative to a treatment's own, in degrees of freedom (Smyth 2004, section
    6.2). Infinite if the treatments' variances differ no more than by chance.
    """
    from scipy.special import polygamma

    z = np.log(np.maximum(variances, np.finfo(float).tiny))
    e = z - (polygamma(0, degrees / 2) - np.log(degrees / 2))
    excess = float(np.var(e, ddof=1) - polygamma(1, degrees / 2).mean())
    return math.inf if excess <= 0 else 2 * _inverse_trigamma(excess)


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        slope = float(polygamma(2, x))
        step = float(polygamma(1, x)) * (1 - float(polygamma(1, x)) / value) / slope
        x += step
        if -step / x < 1e-8:
            break
    return x


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every pair of the rows of a table: ``mean[i, j]`` of row i minus row j over the ``blocks`` that both ran,
    its standard error and degrees of freedom; NaN if fewer than two blocks have both. ``resolution`` is what their
    precision adds to a half-width, regardless of the number of blocks.
    """

    blocks: NDArray[np.float64]
    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    degrees: NDArray[np.float64]
    resolution: NDArray[np.float64]

    def half_width(self, level: float) -> NDArray[np.float64]:
        """One-sided: the true difference exceeds ``mean + half_width`` with probability ``level``, at one look."""
        return self._width(lambda blocks: level)

    def sequential_half_width(self, alpha: float) -> NDArray[np.float64]:
        """The same with probability at most ``alpha`` over all looks, starting with the second block."""
        return self._width(lambda blocks: nominal_level(alpha, blocks))

    def _width(self, level: Callable[[int], float]) -> NDArray[np.float64]:
        from scipy.special import stdtrit

        # There are few distinct degrees of freedom, and a quantile is the most expensive step here.
        looks = np.stack([np.nan_to_num(self.blocks), np.nan_to_num(self.degrees)], axis=-1).reshape(-1, 2)
        values, places = np.unique(looks, axis=0, return_inverse=True)
        quantiles = [-stdtrit(degrees, level(int(n))) if degrees else math.nan for n, degrees in values]
        critical = np.array(quantiles)[places.ravel()].reshape(self.degrees.shape)
        return np.asarray(critical * self.error + self.resolution)


def pairs(rows: NDArray[np.float64], pooled: Pooled, resolution: NDArray[np.float64] | float = 0.0) -> Pairs:
    """The comparisons of rows (treatments x blocks, NaN if not run), with the moderated variance.

    ``resolution`` is a value's precision, in log units; a pair has the sum of both means over its blocks, as in
    ``compare``.
    """
    differences = rows[:, None, :] - rows[None, :, :]
    present = ~np.isnan(differences)
    n = present.sum(axis=2).astype(np.float64)
    n[n < 2] = np.nan
    filled = np.where(present, differences, 0.0)
    mean = filled.sum(axis=2) / n
    precision = np.broadcast_to(resolution, rows.shape)
    both = precision[:, None, :] + precision[None, :, :]
    coarse = np.where(present, both, 0.0).sum(axis=2) / n
    if pooled.own is None or pooled.own_degrees is None:
        squares = (np.where(present, differences - mean[:, :, None], 0.0) ** 2).sum(axis=2)
        return Pairs(n, mean, np.sqrt(squares / (n - 1) / n), n - 1, coarse)
    own, left = pooled.own, pooled.own_degrees
    # The prior must not weigh more than the data it came from, nor more than the few blocks of a pair allow: the
    # agreement of a few spreads is itself uncertain. Below its own variance a noisy pair would look certain.
    prior = min(pooled.prior_degrees, float(pooled.degrees))
    drawn = (prior * pooled.variance + left * own) / (prior + left)
    variance = own[:, None] + own[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = variance**2 / ((own**2 / left)[:, None] + (own**2 / left)[None, :])
    degrees = np.where(variance > 0, degrees, n - 1)
    degrees = np.minimum(degrees + np.minimum(prior, MOST_LENT * degrees), np.maximum(pooled.degrees, n - 1))
    variance = np.maximum(variance, drawn[:, None] + drawn[None, :])
    return Pairs(n, mean, np.sqrt(variance / n), degrees, coarse)


def _drops(found: Pairs, alpha: float) -> list[tuple[int, int]]:
    """(eliminated, the one that beat it by most), each comparison with ``alpha`` over all its looks."""
    lower = found.mean - found.sequential_half_width(alpha)
    lower[np.isnan(lower)] = -np.inf
    np.fill_diagonal(lower, -np.inf)
    best = lower.argmax(axis=0)
    return [(int(i), int(best[i])) for i in np.flatnonzero(lower.max(axis=0) > 0)]


def _race(
    names: list[str],
    table: NDArray[np.float64],
    left: Mapping[int, tuple[int, int | None]],
    pooled: Pooled,
    mean: NDArray[np.float64],
    half: NDArray[np.float64],
    margin: float,
    sign: float,
) -> Race:
    """``mean`` and ``half`` are those of every pair."""
    blocks = table.shape[1]
    alive = [i for i in range(len(names)) if i not in left]
    if not alive:
        return Race(blocks, (), (), (), "", True, pooled.prior_degrees, 0.0)
    counts = (~np.isnan(table)).sum(axis=1)
    means = np.divide(np.nansum(table, axis=1), counts, out=np.full(len(names), -np.inf), where=counts > 0)
    leader = max(alive, key=lambda i: means[i])
    # By how much another may be better: each claim is wrong only if its bound misses the best one's lead, so all
    # of them together with probability at most alpha.
    behind = np.where(np.isnan(mean + half), np.inf, mean + half)
    np.fill_diagonal(behind, 0.0)
    equal = {i for i in alive if behind[alive, i].max() <= math.log1p(margin)}
    standings = []
    for i, name in enumerate(names):
        both = table[i] - table[leader]
        both = both[~np.isnan(both)]
        # A single block gives an estimate but no interval.
        width = 0.0 if i == leader else float(half[i, leader])
        after, by = left.get(i, (None, None))
        standings.append(
            RaceStatus(
                treatment=name,
                blocks=int(counts[i]),
                mean=math.exp(sign * means[i]) if counts[i] else None,
                to_leader=_ratio(sign * float(both.mean()), width) if len(both) else None,
                dropped_after=after,
                dropped_by=None if by is None else names[by],
                is_failed=after is not None and by is None,
            )
        )
    order = sorted(alive, key=lambda i: -means[i])
    return Race(
        blocks=blocks,
        standings=tuple(standings),
        survivors=tuple(names[i] for i in order),
        interchangeable=tuple(names[i] for i in order if i in equal),
        leader=names[leader],
        is_decided=leader in equal,
        prior_degrees=pooled.prior_degrees,
        deviation=math.sqrt(pooled.variance),
    )


def _ratio(log: float, half: float) -> Interval:
    if math.isnan(half):
        return Interval(math.exp(log), None, None)
    return Interval(math.exp(log), scaled(math.exp(log), -half), scaled(math.exp(log), half))
