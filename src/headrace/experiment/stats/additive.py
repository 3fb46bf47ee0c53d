"""Whole factorials as sums of their factors: every trial speaks for every factor, and no trial decides alone.

The log of a response is the sum of the levels of its factors (and, where asked, what pairs of them have beyond
both), its block, a slope times what others took from the machine, and noise. A treatment's own mean is no part of
it. So a factor of two levels is the difference of two halves of the trials, where a treatment alone would be the
difference of a few; and trials that do not fit are recognised by all others.

- **Robust weights.** A trial's weight falls with its residual, to nothing beyond ``BISQUARE`` deviations (Tukey's
  bisquare), around a start by least absolute deviations. The deviation is that of the start's residuals (their
  median, without as many zeros as there are coefficients).
- **Moderated variances.** A treatment's variance is estimated from its few residuals, drawn towards the common one
  by ``PRIOR`` degrees of freedom. A treatment that varies more weighs less; none weighs more than usual.
- **Critical values.** Such a statistic has no exact distribution with a dozen trials. Its largest absolute value
  over all contrasts is simulated for the layout: with equal normal noise, and with one treatment ``NOISIER`` times
  as noisy. Errors are widened by the larger ratio to Student's quantile, which hardly depends on the level.

``audit`` simulates what this promises in other noise: trials at half speed, unknown disturbances, heavy tails.

Sources: Beaton & Tukey 1974, Technometrics 16 (bisquare); Huber & Ronchetti 2009, Robust Statistics, 2nd ed., sec.
7.6 (standard errors); Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3, and Ritchie et al. 2006, BMC Bioinformatics 7
(prior degrees of freedom, weights of arrays); Dunn 1961, JASA 56.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from headrace.experiment.stats.aliasing import contrasts as codings
from headrace.experiment.stats.estimate import DISTURBED, FAR, MIN_LOST, Contrasts, Seen
from headrace.experiment.stats.estimate import fit as fit_treatments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

#: Residuals beyond this many deviations have no weight; 95% as efficient as least squares in normal noise.
BISQUARE = 4.685

#: What the common variance is worth, in degrees of freedom of a treatment's own.
PRIOR = 4.0

#: One treatment may be this many times as noisy as the others.
NOISIER = 5.0

#: With fewer degrees of freedom, outliers cannot be told from the rest.
MIN_DEGREES = 4

#: Layouts of more trials are not simulated, and widened by this: more than any that was.
MOST_SIMULATED, WIDENED = 300, 1.15

#: Simulated studies of a layout, the levels at which they are compared with Student's quantiles, and what the
#: comparison may be off by.
STUDIES, LEVELS, SAFETY = 1500, (0.1, 0.05, 0.04, 0.02), 1.02

#: Steps of the start, of the first weights, and of the weights after each of the treatments' variances. They need
#: not converge: what is simulated takes the same steps.
_START, _FIRST, _ROUNDS, _STEPS = 8, 6, 3, 5

#: A deviation is at least this share of all residuals' root mean square: some responses have steps, and then most
#: residuals can be equal.
_LEAST = 0.05

#: The median of the absolute values of standard normal noise.
MEDIAN = 0.6745


@dataclass(frozen=True, eq=False)
class Layout:
    """``rows`` (treatments x columns) are the terms of each treatment; ``codes`` and ``blocks`` those of each
    trial, from 0.
    """

    rows: Floats
    codes: Codes
    blocks: Codes

    @property
    def columns(self) -> Floats:
        """Trials x columns: a constant, the terms, the blocks."""
        count = int(self.blocks.max()) + 1
        of_blocks = np.eye(count)[self.blocks][:, 1:] - 1 / count
        return np.hstack([np.ones((len(self.codes), 1)), self.rows[self.codes], of_blocks])

    @property
    def degrees(self) -> int:
        """What is left for the noise; at most 0 if the trials cannot determine the terms."""
        columns = self.columns
        rank = int(np.linalg.matrix_rank(columns))
        return len(columns) - rank if rank == columns.shape[1] else 0


def rows_of(
    factors: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]], *, with_pairs: bool
) -> Floats:
    """Cells x columns: contrasts of each factor that sum to zero, and their products for each pair."""
    own = {
        name: codings(len(levels))[[list(levels).index(cell[name]) for cell in cells]]
        for name, levels in factors.items()
    }
    parts = list(own.values())
    if with_pairs:
        for a, b in itertools.combinations(own.values(), 2):
            parts.append((a[:, :, None] * b[:, None, :]).reshape(len(cells), -1))
    return np.hstack(parts)


@dataclass(frozen=True, eq=False)
class Additive:
    """A batch of fitted studies of one layout; ``covariance`` includes what the layout's errors are widened by."""

    layout: Layout
    coefficients: Floats
    covariance: Floats
    degrees: int
    _solve: Floats | None = None
    _x: Floats | None = None
    _spread: Floats | None = None

    def contrasts(self, weights: Floats) -> Contrasts:
        """Sums of the treatments' log means; ``weights`` is contrasts x treatments, each summing to 0."""
        rows = _along(self.layout, weights, self.coefficients.shape[1])
        variance = np.einsum("cp,spq,cq->sc", rows, self.covariance, rows)
        if self._solve is not None and self._x is not None and self._spread is not None:
            # What is left of a disturbance if the treatments' slopes are not the common one.
            along = rows[None] @ self._solve
            indicator = np.eye(len(self.layout.rows))[self.layout.codes]
            for kind in range(self._x.shape[2]):
                rest = (along * self._x[:, None, :, kind]) @ indicator
                variance = variance + (self._spread[:, None, :, kind] * rest**2).sum(axis=2)
        error = np.sqrt(np.where(variance > 0, variance, np.nan))
        return Contrasts(self.coefficients @ rows.T, error, np.full(error.shape, float(self.degrees)))

    def ratios(self, weights: Floats) -> Contrasts:
        """Those of a single study, as one row: as ``estimate.One.ratios``."""
        found = self.contrasts(weights)
        return Contrasts(found.estimate[0], found.error[0], found.degrees[0])


def fit(y: Floats, lost: Floats, layout: Layout, weights: Floats) -> Additive:
    """Fit studies of one layout: ``y`` (logs) is studies x trials, ``lost`` as in ``estimate.fit``. Critical
    values are for all contrasts of ``weights`` together.
    """
    design = np.broadcast_to(layout.columns, (len(y), *layout.columns.shape))
    lost = lost if lost.ndim == 3 else lost[:, :, None]
    x = disturbance(lost)
    kinds = x.any(axis=(0, 1))
    more: dict[str, Floats] = {}
    if kinds.any():
        design = np.concatenate([design, x[:, :, kinds]], axis=2)
        is_there = np.ones(y.shape, dtype=bool)
        own = fit_treatments(y, lost, is_there, layout.codes, layout.blocks)
        more = {"_x": x, "_spread": own.spread}
    coefficients, covariance, weight = _fitted(y, design, layout.codes)
    if more:
        scaled = np.swapaxes(design, 1, 2) * weight[:, None, :]
        more["_solve"] = np.linalg.pinv(scaled @ design, rcond=1e-10, hermitian=True) @ scaled
    covariance = covariance * widening(layout, weights) ** 2
    return Additive(layout, coefficients, covariance, max(layout.degrees - int(kinds.sum()), 1), **more)


def weights_of(trials: Sequence[Seen], names: Sequence[str], rows: Floats) -> Floats:
    """The weight of each trial, from 1 to 0 (it does not fit the others); all 1 if too few degrees of freedom are
    left to tell. ``rows`` as in ``fit_one``.
    """
    layout = _layout(trials, names, rows)
    if layout.degrees < MIN_DEGREES:
        return np.ones(len(trials))
    weights = _fitted(np.array([[t.log for t in trials]]), layout.columns[None], layout.codes)[2]
    return np.asarray(weights[0])


def _layout(trials: Sequence[Seen], names: Sequence[str], rows: Floats) -> Layout:
    blocks = {block: i for i, block in enumerate(sorted({t.block for t in trials}))}
    places = {name: i for i, name in enumerate(names)}
    return Layout(
        rows,
        np.array([places[t.treatment] for t in trials]),
        np.array([blocks[t.block] for t in trials]),
    )


def fit_one(
    trials: Sequence[Seen],
    names: Sequence[str],
    rows: Floats,
    weights: Floats,
) -> Additive | None:
    """The trials of one experiment; ``rows`` are those of the treatments ``names``.

    None if too little is left for the noise, or if others disturbed some treatments much more than the rest: then
    a common slope would decide, and it may not be theirs.
    """
    layout = _layout(trials, names, rows)
    lost = np.array([[(t.lost, t.lost_device) for t in trials]])
    x = disturbance(lost)
    if layout.degrees - int(x.any(axis=(0, 1)).sum()) < MIN_DEGREES or is_uneven(x, layout.codes)[0]:
        return None
    return fit(np.array([[t.log for t in trials]]), lost, layout, weights)


def is_uneven(x: Floats, codes: Codes) -> NDArray[np.bool_]:
    """Of each study: whether treatments were disturbed so unequally that the slope decides; ``x`` are logs of the
    share that was left (studies x trials x kinds).
    """
    indicator = np.eye(int(codes.max()) + 1)[codes]
    means = np.einsum("snk,nt->stk", x, indicator / indicator.sum(axis=0))
    return np.asarray((np.ptp(means, axis=1) > FAR).any(axis=1))


def disturbance(lost: Floats) -> Floats:
    """The log of the share that others left, as in ``estimate.fit``: 0 where nothing was disturbed (studies x
    trials x kinds).
    """
    x = np.where(lost < MIN_LOST, 0.0, -np.log1p(-np.clip(lost, 0.0, 0.99)))
    return np.asarray(np.where(lost.max(axis=1, keepdims=True) < DISTURBED, 0.0, x))


def _along(layout: Layout, weights: Floats, count: int) -> Floats:
    """Contrasts of treatments as contrasts of coefficients."""
    found = np.zeros((len(weights), count))
    found[:, 1 : 1 + layout.rows.shape[1]] = weights @ layout.rows
    return found


def _solved(design: Floats, y: Floats, weight: Floats) -> Floats:
    scaled = np.swapaxes(design, 1, 2) * weight[:, None, :]
    gram = scaled @ design
    gram += 1e-10 * np.eye(gram.shape[1]) * np.trace(gram, axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.linalg.solve(gram, scaled @ y[:, :, None])[:, :, 0])


def _fitted(y: Floats, design: Floats, codes: Codes) -> tuple[Floats, Floats, Floats]:
    """Coefficients, their covariance (NaN where nothing varies), and the trials' weights."""
    count, width = design.shape[1:]
    center = y.mean(axis=1, keepdims=True)
    y = y - center

    def residual(found: Floats) -> Floats:
        return np.asarray(y - (design @ found[:, :, None])[:, :, 0])

    found = _solved(design, y, np.ones(y.shape))
    # Trials that are equal to the last digit show no noise, not that there is none.
    size = np.sqrt((residual(found) ** 2).mean(axis=1))
    is_known = size > 1e-7 * np.maximum(np.abs(center[:, 0]), 1.0)
    for _ in range(_START):
        rest = np.abs(residual(found))
        least = 1e-2 * np.median(rest, axis=1, keepdims=True) + 1e-12
        found = _solved(design, y, 1 / np.hypot(rest, least))
    rest = residual(found)
    size = np.sqrt((rest**2).mean(axis=1))
    deviation = np.median(np.sort(np.abs(rest), axis=1)[:, min(width, count - 1) :], axis=1) / MEDIAN
    deviation = np.maximum(deviation, _LEAST * size)
    deviation = np.where(is_known, deviation, 1.0)[:, None]
    share = np.ones(y.shape)
    indicator = np.eye(int(codes.max()) + 1)[codes]
    own = indicator.sum(axis=0) * (count - width) / count
    for turn in range(_ROUNDS + 1):
        if turn:
            squares = residual(found) ** 2 @ indicator
            precision = deviation**2 * (PRIOR + own) / (PRIOR * deviation**2 + squares)
            usual = np.median(precision, axis=1, keepdims=True)
            share = np.minimum(precision / usual, 1.0)[:, codes]
        for _ in range(_STEPS if turn else _FIRST):
            u = residual(found) * np.sqrt(share) / (BISQUARE * deviation)
            found = _solved(design, y, np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0.0) * share + 1e-9)
    u = residual(found) * np.sqrt(share) / (BISQUARE * deviation)
    is_inside = np.abs(u) < 1
    scores = np.where(is_inside, (1 - u**2) ** 2, 0.0) * u * BISQUARE * deviation
    slope = np.where(is_inside, (1 - u**2) * (1 - 5 * u**2), 0.0).mean(axis=1)
    variance = (scores**2).sum(axis=1) / max(count - width, 1) / np.maximum(slope, 0.1) ** 2
    gram = (np.swapaxes(design, 1, 2) * share[:, None, :]) @ design
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    found = found.copy()
    found[:, 0] += center[:, 0]
    weight = np.where(is_inside, (1 - u**2) ** 2, 0.0) * share + 1e-9
    return found, np.where(is_known, variance, np.nan)[:, None, None] * inverse, weight


def widening(layout: Layout, weights: Floats) -> float:
    """How many times as large as Student's quantile the largest of the contrasts becomes, in noise alone."""
    if len(layout.codes) > MOST_SIMULATED:
        return WIDENED
    return _widening(
        layout.rows.tobytes(),
        layout.rows.shape,
        layout.codes.astype(np.int64).tobytes(),
        layout.blocks.astype(np.int64).tobytes(),
        np.ascontiguousarray(weights, dtype=np.float64).tobytes(),
    )


@lru_cache(maxsize=256)
def _widening(rows: bytes, shape: tuple[int, int], codes: bytes, blocks: bytes, weights: bytes) -> float:
    from scipy.special import stdtrit

    layout = Layout(
        np.frombuffer(rows).reshape(shape),
        np.frombuffer(codes, dtype=np.int64),
        np.frombuffer(blocks, dtype=np.int64),
    )
    asked = np.frombuffer(weights).reshape(-1, shape[0])
    along = _along(layout, asked, layout.columns.shape[1])
    degrees = layout.degrees
    rng = np.random.default_rng(20240229)
    most = 1.0
    design = np.broadcast_to(layout.columns, (STUDIES, *layout.columns.shape))
    for noisy in _noisy(layout):
        y = rng.normal(size=(STUDIES, len(layout.codes)))
        if noisy is not None:
            y = np.where(layout.codes == noisy, NOISIER, 1.0) * y
        found, covariance, _ = _fitted(y, design, layout.codes)
        error = np.sqrt(np.einsum("cp,spq,cq->sc", along, covariance, along))
        largest = np.abs(found @ along.T / error).max(axis=1)
        ratios = [
            np.quantile(largest, 1 - level) / stdtrit(degrees, 1 - level / 2 / len(asked)) for level in LEVELS
        ]
        most = max(most, SAFETY * float(np.mean(ratios)))
    return most


def _noisy(layout: Layout) -> list[int | None]:
    """Which treatment is noisier than the others. With many treatments, one of them matters less than the equal
    noise of all; those with the most trials are recognised best.
    """
    counts = np.bincount(layout.codes)
    few = [int(i) for i in np.flatnonzero(counts == counts.min())]
    return [None, *few[:3]] if len(counts) <= 6 else [None, few[0]]
