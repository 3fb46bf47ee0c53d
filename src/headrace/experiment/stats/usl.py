"""The Universal Scalability Law: X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)).

lambda is the throughput of a single client, sigma the share of serialised work (contention), kappa the cost per
pair of staying coherent (crosstalk): only kappa makes throughput fall again.

Source: Gunther 2007, Guerrilla Capacity Planning, ch. 4 to 6; Gunther, Puglia & Tomasette 2015, Hadoop superlinear
scalability, CACM 58(4), for the form with lambda.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.intervals import Interval, scaled, t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Three parameters fit any three points; six leave as many points to test the fit.
MIN_LEVELS = 6

#: Passes are compared with the law by an F test, which any misfit fails if passes agree well enough. Only a misfit
#: larger than this affects conclusions: see ``_residuals``.
MISFIT = 0.05

#: One pass allows no test: a misfit beyond this raises doubt.
MISFIT_UNTESTED = 0.10


class Point(NamedTuple):
    """One trial: ``block`` is its pass."""

    load: float
    block: int
    throughput_ops_s: float


@dataclass(frozen=True)
class Law:
    """The fitted law. Every interval is over passes, at the given level; None with only one pass.

    ``peak_load`` is N* = sqrt((1 - sigma) / kappa), infinite if kappa may be 0; ``peak_ops_s`` is X(N*), the limit
    lambda / sigma if N* is infinite, and infinite if there is also no contention. ``residuals`` maps each load to
    the relative deviation of its mean from the law; ``p_value`` is the probability of residuals as large if the
    law holds, None with one pass. ``doubt`` says why the law does not describe these levels; empty if it may.
    """

    lambda_ops_s: Interval
    sigma: Interval
    kappa: Interval
    peak_load: Interval
    peak_ops_s: float
    residuals: dict[float, float]
    p_value: float | None
    doubt: str

    def throughput_ops_s(self, load: float) -> float:
        sigma, kappa = self.sigma.estimate, self.kappa.estimate
        return self.lambda_ops_s.estimate * load / (1 + sigma * (load - 1) + kappa * load * (load - 1))


def refusal(points: Sequence[Point]) -> str:
    """Why these trials allow no fit; empty when they do."""
    levels = len({p.load for p in points})
    if levels < MIN_LEVELS:
        return (
            f"the Universal Scalability Law needs {MIN_LEVELS} distinct levels, and there "
            f"{'is' if levels == 1 else 'are'} {levels}"
        )
    if not _coefficients(points, bounded=True)[0] > 0:
        return "throughput falls from the first level: the Universal Scalability Law has no fit"
    return ""


def fit(points: Sequence[Point], alpha: float) -> Law:
    """The law through the trials' throughputs, each with the same relative weight. ``refusal`` must be empty.

    Intervals are delete-one-pass jackknife with t on (passes - 1) degrees of freedom: whole passes are left out,
    so that neither dependence within a pass nor a noisy level makes them falsely narrow. They come from the
    unbounded fit and are cut at 0 afterwards: at a bound every left-out fit would be exactly 0, and so would the
    interval. With two passes they are valid but nearly useless.

    Source of the jackknife: Shao & Tu 1995, The Jackknife and Bootstrap, ch. 2.
    """
    estimate = _parameters(_coefficients(points, bounded=True))
    free = _parameters(_coefficients(points, bounded=False))
    half = _half_widths(points, alpha)
    sigma = _cut(estimate.sigma, free.sigma, half.sigma)
    kappa = _cut(estimate.kappa, free.kappa, half.kappa)
    curvature = _cut(estimate.curvature, free.curvature, half.curvature)
    residuals, p_value, doubt = _residuals(points, estimate, alpha)
    return Law(
        lambda_ops_s=_scale(estimate.log_lambda, free.log_lambda, half.log_lambda),
        sigma=sigma,
        kappa=kappa,
        peak_load=_peak(curvature, kappa),
        peak_ops_s=_peak_ops_s(estimate),
        residuals=residuals,
        p_value=p_value,
        doubt=doubt,
    )


class _Parameters(NamedTuple):
    """``curvature`` is kappa / (1 - sigma) = 1 / N*^2: unlike N*, it is regular at kappa = 0."""

    log_lambda: float
    sigma: float
    kappa: float
    curvature: float

    def log_throughput(self, load: Floats) -> Floats:
        growth = 1 + self.sigma * (load - 1) + self.kappa * load * (load - 1)
        return np.asarray(self.log_lambda + np.log(load) - np.log(growth))


_UNKNOWN = _Parameters(math.nan, math.nan, math.nan, math.nan)


def _coefficients(points: Sequence[Point], *, bounded: bool) -> tuple[float, float, float]:
    """1 / lambda, sigma / lambda and kappa / lambda, by least squares of relative errors.

    N / X is linear in the three. A row is weighted by X / N, so its residual is X / X(N) - 1, the relative error
    of the throughput itself: the least squares of the law on its own scale, with one minimum and no starting
    values.
    """
    # Lazy: SciPy takes longer to load than most commands take to run.
    from scipy.optimize import nnls

    load = np.array([p.load for p in points])
    rows = np.column_stack([np.ones_like(load), load - 1, load * (load - 1)])
    rows *= (np.array([p.throughput_ops_s for p in points]) / load)[:, None]
    scale = np.linalg.norm(rows, axis=0)
    ones = np.ones(len(load))
    if bounded:
        found, _ = nnls(rows / scale, ones)
    else:
        found = np.linalg.lstsq(rows / scale, ones, rcond=None)[0]
    first, second, third = (float(v) for v in found / scale)
    return first, second, third


def _parameters(coefficients: tuple[float, float, float]) -> _Parameters:
    first, second, third = coefficients
    if first <= 0:
        return _UNKNOWN
    rest = first - second
    return _Parameters(-math.log(first), second / first, third / first, third / rest if rest else math.inf)


def _half_widths(points: Sequence[Point], alpha: float) -> _Parameters:
    """Half the width of each parameter's interval; NaN with one pass, or if the fit depends on a single pass."""
    blocks = sorted({p.block for p in points})
    n = len(blocks)
    rest = [[p for p in points if p.block != block] for block in blocks]
    if n < 2 or any(len({p.load for p in part}) < MIN_LEVELS for part in rest):
        return _UNKNOWN
    left_out = np.array([_parameters(_coefficients(part, bounded=False)) for part in rest])
    with np.errstate(invalid="ignore"):  # an infinite curvature has no interval
        errors = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean(axis=0)) ** 2, axis=0))
    return _Parameters(*(t_quantile(n - 1, alpha) * float(error) for error in errors))


def _cut(estimate: float, free: float, half: float) -> Interval:
    """An interval of a parameter that cannot be negative; it always includes its estimate."""
    if not math.isfinite(free + half):
        return Interval(estimate, None, None)
    return Interval(estimate, max(min(free - half, estimate), 0.0), max(free + half, estimate))


def _scale(estimate: float, free: float, half: float) -> Interval:
    """The same for a parameter known by its logarithm."""
    value = math.exp(estimate)
    if not math.isfinite(free + half):
        return Interval(value, None, None)
    return Interval(
        value,
        scaled(value, min(free - half - estimate, 0.0)),
        scaled(value, max(free + half - estimate, 0.0)),
    )


def _peak(curvature: Interval, kappa: Interval) -> Interval:
    """N* from 1 / N*^2. Its upper bound is infinite if and only if kappa's interval includes 0."""

    def at(value: float | None) -> float | None:
        if value is None:
            return None
        return max(1.0, value**-0.5) if value > 0 else math.inf

    low, high = at(curvature.high), at(curvature.low)
    if kappa.low == 0:
        high = math.inf
    if (
        not math.isfinite(curvature.estimate) or curvature.estimate < 0
    ):  # sigma of 1 or more: the first is the best
        return Interval(1.0, None if low is None else 1.0, high)
    estimate = at(curvature.estimate)
    assert estimate is not None
    return Interval(estimate, low, high)


def _peak_ops_s(found: _Parameters) -> float:
    if found.kappa > 0:
        load = math.sqrt(max(1 - found.sigma, 0.0) / found.kappa)
        return math.exp(float(found.log_throughput(np.array([max(load, 1.0)]))[0]))
    return math.exp(found.log_lambda) / found.sigma if found.sigma > 0 else math.inf


def _residuals(
    points: Sequence[Point], law: _Parameters, alpha: float
) -> tuple[dict[float, float], float | None, str]:
    """Each level's deviation from the law, the F test for lack of fit, and the resulting doubt.

    The test compares the deviation of levels common to all passes with their variation between passes, after
    removing each pass's overall speed. Source: Draper & Smith 1998, Applied Regression Analysis, 3rd ed., sec.
    2.1.
    """
    from scipy.special import fdtrc

    load = np.array([p.load for p in points])
    errors = np.log([p.throughput_ops_s for p in points]) - law.log_throughput(load)
    loads, level = np.unique(load, return_inverse=True)
    blocks, block = np.unique([p.block for p in points], return_inverse=True)
    errors = errors - _means(errors, block)[block]
    by_level = _means(errors, level)
    residuals = {float(n): float(np.expm1(r)) for n, r in zip(loads, by_level, strict=True)}
    worst = max(residuals, key=lambda n: abs(residuals[n]))
    distance = f"{residuals[worst]:+.0%} at {worst:g}"
    freedom = len(points) - len(loads) - len(blocks) + 1
    if freedom < 1:
        is_far = abs(residuals[worst]) > MISFIT_UNTESTED
        return residuals, None, f"measurements deviate by up to {distance}" if is_far else ""
    lack = float(np.sum(np.bincount(level) * by_level**2)) / (len(loads) - 3)
    noise = float(np.sum((errors - by_level[level]) ** 2)) / freedom
    p_value = float(fdtrc(len(loads) - 3, freedom, lack / noise)) if noise > 0 else float(lack == 0)
    is_far = p_value < alpha and abs(residuals[worst]) > MISFIT
    doubt = f"measurements deviate by up to {distance}, more than passes vary"
    return residuals, p_value, doubt if is_far else ""


def _means(values: Floats, group: NDArray[np.int64]) -> Floats:
    return np.asarray(np.bincount(group, weights=values) / np.bincount(group))
