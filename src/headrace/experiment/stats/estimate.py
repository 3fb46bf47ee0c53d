"""What the trials of an experiment say about its treatments: the one estimator of all verdicts and choices.

The log of a response is the sum of its treatment, its block, a slope times what others took from the machine
during the trial (the disturbance: CPU time, and time of a device, each with a slope of its own), and noise whose
variance is the treatment's own. Every measured trial takes part. Without disturbances, one treatment and the
baseline twice in each block give Student's paired test.

- **Variances.** A treatment's own variance is estimated without bias whatever the others are (MINQUE). It is then
  drawn towards the common one as far as the treatments' variances agree: upwards always, downwards only in part
  (``DOWNWARDS``) and as far as it is like the others' (``MOST_UNLIKE``), because a noisy treatment would look
  certain. Degrees of freedom are Satterthwaite's for the least favourable treatment's variance (``DOUBTED``), plus
  those that the agreement lends: at most as many as the blocks allow, and none to a treatment that is noisier than
  the others. Each treatment borrows its own, and Satterthwaite's formula adds them up.
- **Disturbance.** One slope of a kind for all treatments is estimated with everything else, so its uncertainty
  is part of each interval. A treatment's own slope may differ from it: by ``SLOPE_SPREAD``, or more if all
  treatments show more, or this one. That widens intervals, and makes a disturbed trial weigh less the quieter the
  others are. If slopes clearly differ (an F test at ``SLOPE_TEST``), no slope is used, and disturbed trials are
  left out; unless a treatment would have none left: then they stay, and slopes may differ by ``MOST_SPREAD``.
  Where a treatment was disturbed much more than the rest, nothing tells what it would do undisturbed: its slope is
  not believed beyond ``FAR``, and only larger effects get a verdict.

All rules are fixed here, before any data are seen; ``audit`` simulates what they promise. Functions take a batch
of studies of the same layout, because the audit judges thousands; an experiment is a batch of one.

Sources: Rao 1971, Estimation of variance and covariance components: MINQUE theory, J. Multivariate Analysis 1;
Grubbs 1948, JASA 43 (variances of rows in a two-way table); Satterthwaite 1946, Biometrics Bulletin 2; Smyth 2004
(see ``race``); Fisher 1932, Statistical Methods for Research Workers, 4th ed., sec. 49.1 (covariance).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.experiment.stats.race import prior_degrees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: What others can take, in the order of ``Seen``.
KINDS = ("CPU time", "device time")

#: A disturbance below this share is noise like any other ...
MIN_LOST = 0.02

#: ... and there is a slope to estimate only if a trial lost more than this.
DISTURBED = 0.05

#: The slope of a treatment differs from the common one by this standard deviation, unless the trials show more. A
#: slope is 1 if a response is in proportion to the CPU time that was left; on a busy virtual machine it was 1.7.
SLOPE_SPREAD = 0.28

#: How far the spread that the trials show is believed (at least the above, at most this).
MOST_SPREAD = 2.0

#: How much of what a treatment's own slope differs by, beyond chance, is believed of that treatment alone. With
#: all of it, power on an ordinary busy machine falls below what is promised; with none, one treatment that differs
#: is lost in the mean of all.
OWN_SHARE = 0.2

#: Where a treatment was disturbed more than the rest by this (the log of the share that was left, as it enters a
#: contrast), the adjustment rests on the slope alone ...
FAR = 0.16

#: ... and beyond that the slope is not believed: another treatment may have any up to this.
FAR_SPREAD = 4.0

#: The level of the test for slopes that differ.
SLOPE_TEST = 0.02

#: With fewer treatments, the agreement of their variances cannot be estimated.
MIN_TO_BORROW = 4

#: With so few treatments and at least this many blocks, a variance below the common one is not believed: rare
#: stalls that happened to miss one treatment would make it look certain.
MANY_BLOCKS = 10

#: The agreement lends at most this many times a treatment's own degrees of freedom: nothing with two blocks, and
#: so much more with each further block.
MOST_LENT, LENT_PER_BLOCK = 6.0, 3.0

#: A treatment whose variance is this many times the others' borrows nothing: few variances seem to agree by chance
#: even if one is 25 times as large, and its interval would miss twice as often as it may. Up to the others'
#: variance it borrows in full, in between in proportion. The fewer the blocks, the more often a large variance
#: seems small, so the limit is lower with three blocks and rises with each further one.
MOST_UNLIKE, UNLIKE_AT_3_BLOCKS, UNLIKE_PER_BLOCK = 4.0, 1.5, 1.25

#: The share of the way down to the common variance that is taken. Degrees of freedom decide how wide joint
#: intervals are, which hold anyway if one of many comparisons is noisy; its own interval depends on its variance.
DOWNWARDS = 0.5

#: A variance that dominates a contrast has few degrees of freedom, and dominates least where it is estimated too
#: low. So degrees of freedom are those that are left if any one of the variances were this many times as large.
DOUBTED = 1.5

#: A treatment's variance is known only with at least this much of a residual.
_MIN_RESIDUAL = 0.2

#: ... and shows whether variances agree only with this much.
_MIN_TO_AGREE = 0.5

#: The own estimate corrects for noise of the others in the block effects, down to this share
#: of what is there.
_LEAST_OWN = 0.35

#: Numbers in one part of the work on many contrasts.
_MOST_AT_ONCE = 20_000_000


class Seen(NamedTuple):
    """One trial: the natural log of its response, and the shares that others took of the CPU time (``lost``) and
    of a device's time.
    """

    treatment: str
    block: int
    log: float
    lost: float = 0.0
    lost_device: float = 0.0


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Estimates, standard errors (NaN: no interval) and degrees of freedom; studies x contrasts."""

    estimate: Floats
    error: Floats
    degrees: Floats

    def half_width(self, level: float) -> Floats:
        """One-sided: the true value exceeds the estimate by more with probability ``level``."""
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.degrees, 1 - level) * self.error)


@dataclass(frozen=True, eq=False)
class Fit:
    """A batch of fitted studies. ``slopes`` (studies x kinds of disturbance) are NaN without disturbances of the
    kind, and if disturbed trials are left out (``is_robust``).
    """

    treatments: int
    slopes: Floats
    is_robust: NDArray[np.bool_]
    used: Floats
    _solve: Floats
    _design: Floats
    _y: Floats
    _x: Floats
    _codes: NDArray[np.int64]
    _variances: _Variances
    spread: Floats

    def contrasts(self, weights: Floats) -> Contrasts:
        """Sums of the treatments' log means; ``weights`` is contrasts x treatments, each summing to 0."""
        size = max(int(_MOST_AT_ONCE / max(self._y.size, self.treatments * len(self._y)) / 2), 1)
        parts = [self._contrasts(weights[i : i + size]) for i in range(0, len(weights), size)]
        return Contrasts(
            *(
                np.concatenate([getattr(p, n) for p in parts], axis=1)
                for n in ("estimate", "error", "degrees")
            )
        )

    def _contrasts(self, weights: Floats) -> Contrasts:
        indicator = np.eye(self.treatments)[self._codes]
        rows = weights[None] @ self._solve[:, : self.treatments]
        estimate = (rows @ self._y[:, :, None])[:, :, 0]
        own = self._variances
        shares = rows**2 @ indicator
        unbiased, least, plain, drawn = np.moveaxis(shares @ own.columns, 2, 0)
        variance = np.maximum(np.maximum(unbiased, least), drawn)
        precision = ((shares @ own.covariance) * shares).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            degrees = np.where(precision > 0, 2 * plain**2 / precision, own.total[:, None])
        most = np.maximum(own.total, 1.0)[:, None]
        degrees = np.clip(degrees, 1.0, most)
        if self.treatments >= MIN_TO_BORROW:
            doubted = np.clip(_doubted(shares, plain, precision, own), 1.0, degrees)
            degrees = np.minimum(doubted + _lent(shares, degrees, own), most)
        # What is left of a disturbance if the treatment's slope is not the common one.
        for kind in range(self._x.shape[2]):
            rest = (rows * self._x[:, None, :, kind]) @ indicator
            far = FAR_SPREAD * np.maximum(np.abs(rest) - FAR, 0.0)
            variance = variance + (self.spread[:, None, :, kind] * rest**2 + far**2).sum(axis=2)
        unknown = (shares * ~own.is_known[:, None, :]).sum(axis=2) > 1e-9 * shares.sum(axis=2)
        # A contrast that the trials do not determine: treatments that nothing connects.
        target = np.zeros((len(weights), self._design.shape[2]))
        target[:, : self.treatments] = weights
        missed = np.abs(rows @ self._design - target[None]).max(axis=2) > 1e-6
        estimate = np.where(missed, np.nan, estimate)
        return Contrasts(
            estimate,
            np.where(unknown | missed | (own.total < 1)[:, None], np.nan, np.sqrt(variance)),
            degrees,
        )


@dataclass(frozen=True, eq=False)
class _Variances:
    """Of one trial of each treatment. ``columns`` are the unbiased estimate (which can be negative), the least it
    can be, the larger of both, and what the common variance makes of it (0 if it lends nothing); the first two
    less what the common variance takes of them. ``covariance`` is that of the estimates, ``total`` all degrees of
    freedom, ``prior`` those that the common variance is worth. ``alike`` is 1 for a treatment that varies no more
    than the others, and 0 for one that is much noisier.
    """

    columns: Floats
    covariance: Floats
    alike: Floats
    prior: Floats
    total: Floats
    is_known: NDArray[np.bool_]
    lend: float


def _lent(shares: Floats, degrees: Floats, own: _Variances) -> Floats:
    """Degrees of freedom that a contrast borrows: each treatment borrows as far as it is like the others.

    Satterthwaite's degrees of freedom weigh treatments by the squares of their parts of the variance. So a noisy
    treatment decides what may be lent to a contrast of many, as the effect of a factor is.
    """
    most = 1 + np.minimum(own.prior[:, None] / degrees, own.lend)[:, :, None] * own.alike[:, None, :]
    squares = (shares * own.columns[:, None, :, 2]) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        times = squares.sum(axis=2) / (squares / most).sum(axis=2)
    return np.asarray(degrees * (np.nan_to_num(times, nan=1.0) - 1))


def _doubted(shares: Floats, plain: Floats, precision: Floats, own: _Variances) -> Floats:
    """The least degrees of freedom if one of the variances were ``DOUBTED`` times as large as it seems."""
    more = (DOUBTED - 1) * shares
    variance = plain[:, :, None] + more * own.columns[:, None, :, 2]
    own_precision = np.diagonal(own.covariance, axis1=1, axis2=2)[:, None, :]
    spread = precision[:, :, None] + 2 * more * (shares @ own.covariance) + more**2 * own_precision
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(spread > 0, 2 * variance**2 / spread, np.inf).min(axis=2))


def fit(
    y: Floats,
    lost: Floats,
    is_there: NDArray[np.bool_],
    codes: NDArray[np.int64],
    blocks: NDArray[np.int64],
) -> Fit:
    """Fit studies of one layout: ``y`` (logs) and ``is_there`` are studies x trials, ``lost`` is studies x trials,
    or x kinds of disturbance; ``codes`` are the trials' treatments and ``blocks`` their blocks, both from 0.
    """
    lost = lost if lost.ndim == 3 else lost[:, :, None]
    kinds = lost.shape[2]
    count = int(codes.max()) + 1
    indicator = np.eye(count)[codes]
    fixed = np.hstack([indicator, np.eye(int(blocks.max()) + 1)[blocks][:, 1:]])
    x = -np.log1p(-np.clip(lost, 0.0, 0.99))
    there = is_there.astype(np.float64)
    x = np.where((lost < MIN_LOST) | ~is_there[:, :, None], 0.0, x)
    x = np.where((lost * there[:, :, None]).max(axis=1, keepdims=True) < DISTURBED, 0.0, x)
    # Where nothing was disturbed, the slope's column is empty and changes nothing.
    design = np.concatenate([np.broadcast_to(fixed, (len(y), *fixed.shape)), x], axis=2)
    _, residual = _project(design, _diagonal(there))
    logs = np.where(is_there, y, 0.0)
    spread, differs, noise = _all_slopes(logs, x, residual, indicator)
    left = np.where((differs[:, None] & (lost > DISTURBED)).any(axis=2), 0.0, there)
    # If a treatment would have no trials left, none is left out, and slopes may differ by ``MOST_SPREAD``.
    is_emptied = ((left @ indicator == 0) & (there @ indicator > 0)).any(axis=1)[:, None]
    spread = np.where((is_emptied & differs)[:, None], MOST_SPREAD**2, spread)
    differs &= ~is_emptied
    is_robust = np.asarray(differs.any(axis=1))
    there = np.where(is_emptied, there, left)
    x = np.where(differs[:, None], 0.0, x)
    design[:, :, -kinds:] = x
    solve, residual = _project(design, _weights(there, x, indicator, spread, noise))
    y = np.where(there > 0, y, 0.0)
    slopes = -(solve[:, -kinds:] @ y[:, :, None])[:, :, 0]
    return Fit(
        treatments=count,
        slopes=np.where(np.abs(x).max(axis=1) > 0, slopes, np.nan),
        is_robust=is_robust,
        used=there,
        _solve=solve,
        _design=np.where(there[:, :, None] > 0, design, 0.0),
        _y=y,
        _x=x,
        _codes=codes,
        _variances=_variances(y, residual, indicator, len(np.unique(blocks))),
        spread=spread,
    )


def _diagonal(values: Floats) -> Floats:
    """A diagonal matrix of each row."""
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))


def _weights(there: Floats, x: Floats, indicator: Floats, spread: Floats, noise: Floats) -> Floats:
    """The inverse of the trials' covariance, times their variance: studies x trials x trials.

    Trials of a treatment share its slope's deviation, so that adds a matrix of rank one, which is inverted by
    Sherman & Morrison's formula (1950, Annals of Mathematical Statistics 21).
    """
    found = _diagonal(there)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(spread / noise[:, None, None], nan=0.0, posinf=1e12)
    for kind in range(x.shape[2]):
        for treatment in range(indicator.shape[1]):
            own = x[:, :, kind] * indicator[:, treatment]
            if not own.any():
                continue
            along = (found @ own[:, :, None])[:, :, 0]
            added = share[:, treatment, kind]
            part = added / (1 + added * (own * along).sum(axis=1))
            found -= part[:, None, None] * along[:, :, None] * along[:, None, :]
    return found


def _project(design: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Coefficients and residuals of weighted least squares, as matrices that act on the logs."""
    scaled = np.swapaxes(design, 1, 2) @ weight
    solve = np.linalg.pinv(scaled @ design, rcond=1e-10, hermitian=True) @ scaled
    residual = -(design @ solve)
    places = np.arange(residual.shape[1])
    residual[:, places, places] += 1
    there = (weight[:, places, places] > 0).astype(np.float64)
    residual *= there[:, :, None]
    residual *= there[:, None, :]
    return solve, residual


def _all_slopes(
    y: Floats, x: Floats, residual: Floats, indicator: Floats
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """``_slopes`` of every kind of disturbance, which is the last dimension of the first two."""
    found = [_slopes(y, x[:, :, kind], residual, indicator) for kind in range(x.shape[2])]
    spreads, differ, noise = zip(*found, strict=True)
    return np.stack(spreads, axis=2), np.stack(differ, axis=1), noise[0]


def _slopes(
    y: Floats, x: Floats, residual: Floats, indicator: Floats
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Each treatment's slope variance (studies x treatments), whether slopes clearly differ, and the trials'
    variance.

    The treatments' slopes beyond the common one are fitted on what the model leaves (Frisch & Waugh 1933).
    """
    from scipy.special import fdtrc

    rest = (residual @ y[:, :, None])[:, :, 0]
    squares = (rest**2).sum(axis=1)
    degrees = np.trace(residual, axis1=1, axis2=2)
    columns = x[:, :, None] * indicator
    gram = np.swapaxes(columns, 1, 2) @ residual @ columns
    sides = (np.swapaxes(columns, 1, 2) @ rest[:, :, None])[:, :, 0]
    inverse = np.linalg.pinv(gram, rcond=1e-6, hermitian=True)
    rank = np.round(np.trace(gram @ inverse, axis1=1, axis2=2))
    beyond = (inverse @ sides[:, :, None])[:, :, 0]
    gain = (sides * beyond).sum(axis=1)
    left = np.maximum(degrees - rank, 0.0)
    size = np.trace(gram, axis1=1, axis2=2)
    can_test = (rank >= 1) & (left >= 1) & (size > 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.maximum(squares - gain, 0.0) / left
        p = fdtrc(np.maximum(rank, 1), np.maximum(left, 1), np.maximum(gain, 0) / rank / noise)
        found = (gain - rank * noise) / size / 2
        chance = noise[:, None] * np.diagonal(inverse, axis1=1, axis2=2)
    found = np.where(can_test & np.isfinite(found), found, 0.0)
    # A single treatment that differs hardly shows in the mean over all.
    own = beyond**2 - chance
    own = np.where(can_test[:, None] & np.isfinite(own), own, 0.0)
    spread = np.clip(np.maximum(found[:, None], OWN_SHARE * own), SLOPE_SPREAD**2, MOST_SPREAD**2)
    is_robust = can_test & (np.nan_to_num(p, nan=1.0) < SLOPE_TEST)
    return spread, is_robust, squares / np.maximum(degrees, 1.0)


def _variances(y: Floats, residual: Floats, indicator: Floats, blocks: int) -> _Variances:
    rest = (residual @ y[:, :, None])[:, :, 0]
    # Rounding leaves a residual of its own where there is none: equal trials have no spread.
    rest = np.where(np.abs(rest) < 1e-12 * np.maximum(np.abs(y).max(axis=1, keepdims=True), 1.0), 0.0, rest)
    squares = rest**2 @ indicator
    shares = residual**2
    parts = indicator.T @ shares @ indicator
    # Weights of disturbed trials leave residuals whose matrix is not symmetric, and so neither is this one.
    inverse = np.linalg.pinv(parts, rcond=1e-9)
    degrees = shares.sum(axis=2) @ indicator
    total = degrees.sum(axis=1)
    is_known = degrees > _MIN_RESIDUAL
    with np.errstate(divide="ignore", invalid="ignore"):
        common = np.where(total > 0, squares.sum(axis=1) / total, 0.0)[:, None]
        crude = np.where(is_known, squares / degrees, common)
    unbiased = (inverse @ squares[:, :, None])[:, :, 0]
    own = np.where(is_known, np.maximum(unbiased, _LEAST_OWN * crude), common)
    around = residual * (own @ indicator.T)[:, None, :] @ np.swapaxes(residual, 1, 2)
    covariance = inverse @ (2 * indicator.T @ around**2 @ indicator) @ np.swapaxes(inverse, 1, 2)
    prior = np.array(
        [
            prior_degrees(c[k], d[k]) if k.sum() >= MIN_TO_BORROW else 0.0
            for c, d, k in zip(crude, degrees, degrees > _MIN_TO_AGREE, strict=True)
        ]
    )
    prior = np.minimum(prior, total)[:, None]
    drawn = (prior * common + degrees * own) / np.maximum(prior + degrees, 1e-12)
    lend = min(MOST_LENT, LENT_PER_BLOCK * max(blocks - 2, 0))
    drawn = np.where((prior > 0) & (lend > 0), drawn, 0.0)
    others = _others(own, degrees)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.minimum(np.nan_to_num(own / others, nan=1.0), MOST_UNLIKE)
    unlike = min(MOST_UNLIKE, UNLIKE_AT_3_BLOCKS + UNLIKE_PER_BLOCK * max(blocks - 3, 0))
    alike = np.clip((unlike - ratio) / (unlike - 1), 0.0, 1.0)
    downwards = np.clip((MOST_UNLIKE - ratio) / (MOST_UNLIKE - 1), 0.0, 1.0) * DOWNWARDS
    taken = downwards * np.where(drawn > 0, np.maximum(own - drawn, 0.0), 0.0)
    if indicator.shape[1] < MIN_TO_BORROW and blocks >= MANY_BLOCKS:
        drawn = np.maximum(drawn, common)
    columns = np.stack([unbiased - taken, _LEAST_OWN * crude - taken, own, drawn], axis=2)
    return _Variances(columns, covariance, alike, prior[:, 0], total, is_known, lend)


def _others(own: Floats, degrees: Floats) -> Floats:
    """The common variance of all treatments but one, for each of them."""
    weighted = own * degrees
    rest = weighted.sum(axis=1, keepdims=True) - weighted
    return np.asarray(rest / np.maximum(degrees.sum(axis=1, keepdims=True) - degrees, 1e-12))


class Taken(NamedTuple):
    """What others took of one kind (of ``KINDS``) in one experiment.

    ``slope`` is how a log response follows the log of the share that was left; None if slopes differ. ``most`` is
    the largest share; ``adjusted`` and ``left_out`` count trials. ``means`` is the mean share of each treatment.
    """

    kind: str
    slope: float | None
    most: float
    adjusted: int
    left_out: int
    means: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class One:
    """One fitted experiment, by the names of its treatments; ``taken`` has the disturbances that the fit accounts
    for, or leaves out.
    """

    names: tuple[str, ...]
    fit: Fit
    taken: tuple[Taken, ...]

    def ratios(self, weights: Floats) -> Contrasts:
        """The contrasts of ``weights`` (contrasts x treatments), as one row."""
        found = self.fit.contrasts(weights)
        return Contrasts(found.estimate[0], found.error[0], found.degrees[0])

    def to(self, baseline: str) -> Contrasts:
        """Every treatment relative to this one, in the order of the names (0 for itself)."""
        weights = np.eye(len(self.names))
        weights[:, self.names.index(baseline)] -= 1
        return self.ratios(weights)


def fit_one(trials: Sequence[Seen]) -> One:
    """Fit the trials of one experiment; treatments in order of appearance."""
    names = tuple(dict.fromkeys(t.treatment for t in trials))
    blocks = {block: i for i, block in enumerate(sorted({t.block for t in trials}))}
    places = {name: i for i, name in enumerate(names)}
    lost = np.array([[(t.lost, t.lost_device) for t in trials]])
    found = fit(
        np.array([[t.log for t in trials]]),
        lost,
        np.ones((1, len(trials)), dtype=bool),
        np.array([places[t.treatment] for t in trials]),
        np.array([blocks[t.block] for t in trials]),
    )
    return One(names, found, tuple(_taken(lost[0], found)))


def _taken(lost: Floats, found: Fit) -> Iterator[Taken]:
    for kind, shares, slope in zip(KINDS, lost.T, found.slopes[0], strict=True):
        means = tuple(float(shares[found._codes == code].mean()) for code in range(found.treatments))
        if not math.isnan(slope):
            yield Taken(kind, float(slope), float(shares.max()), int((shares >= MIN_LOST).sum()), 0, means)
        elif left := int(((shares > DISTURBED) & (found.used[0] == 0)).sum()):
            yield Taken(kind, None, float(shares.max()), 0, left, means)
