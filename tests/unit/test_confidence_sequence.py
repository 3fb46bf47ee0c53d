"""The confidence sequence that judges harm, against independent computations.

- Known spread: bounds by confseq 0.0.11 (Howard, Ramdas, McAuliffe & Sekhon 2021, Time-uniform, nonparametric,
  nonasymptotic confidence sequences, Annals of Statistics 49). Its Python module does not build for Python 3.11,
  so its C++ header was compiled once (``uniform_boundaries.h`` with Boost 1.74): for each (v_opt, alpha_opt),
  ``TwoSidedNormalMixture::best_rho(v_opt, alpha_opt)`` and ``normal_mixture_bound(v, alpha, v_opt, alpha_opt,
  false)``. confseq has no sequence for an unknown spread.
- Unknown spread, as the judge has it: the mixture of likelihood ratios of noncentral t, integrated numerically.
- Its promise, by simulation: effects and units that the other two do not know.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from headrace.rollout.judge import WEIGHT, Evidence, sequence

#: rho, alpha, v, and the bound of the sum of v units of spread 1.
BY_CONFSEQ = [
    (1.26005609793, 0.05, 2, 4.7572556441),
    (1.26005609793, 0.05, 6, 7.49749333433),
    (1.26005609793, 0.05, 1000, 112.628978972),
    (1.26005609793, 0.001, 24, 20.6085404625),
    (12.6005609793, 0.05, 2, 9.46729517405),
    (12.6005609793, 0.05, 100, 30.3520899038),
    (12.6005609793, 0.0125, 24, 18.9683224878),
    (12.6005609793, 0.001, 1000, 135.762300847),
    (0.794256533478, 0.05, 6, 7.43578635981),
    (0.794256533478, 0.0125, 100, 37.0345267967),
    (0.794256533478, 0.001, 2, 6.4899165969),
    (0.794256533478, 0.001, 1000, 144.81385201),
]
#: So many degrees of freedom that the spread is known.
KNOWN = 1e7


@pytest.mark.parametrize(("rho", "alpha", "v", "expected"), BY_CONFSEQ)
def test_with_a_known_spread_it_is_that_of_confseq(rho: float, alpha: float, v: int, expected: float) -> None:
    bound = sequence(Evidence(v, 0.25, 1.0, v, KNOWN), alpha, weight=rho)
    assert (bound.high - 0.25) * v == pytest.approx(expected, rel=1e-5)
    assert bound.high - 0.25 == pytest.approx(0.25 - bound.low)


@pytest.mark.parametrize(("count", "alpha"), [(4, 0.1), (6, 0.05), (12, 0.0125), (24, 0.05), (60, 0.001)])
def test_with_an_unknown_spread_its_bound_is_where_the_mixture_reaches_1_over_alpha(
    count: int, alpha: float
) -> None:
    """Effects in units of the spread are mixed over a normal of variance 1 / WEIGHT; t is all that is seen."""
    spread = 0.3
    bound = sequence(Evidence(count, 0.0, spread, count, count - 1.0), alpha)
    assert mixed(bound.high / (spread / math.sqrt(count)), count) == pytest.approx(1 / alpha, rel=1e-3)


def test_where_the_mixture_never_reaches_1_over_alpha_there_is_no_bound() -> None:
    assert sequence(Evidence(3, 0.0, 0.3, 3, 2.0), 0.1).high == math.inf
    assert mixed(10.0, 3) < mixed(1000.0, 3) < 10


def mixed(t: float, count: int) -> float:
    """The likelihood of t with the mixture of effects, relative to that with none."""

    def density(effect: float) -> float:
        shifted = float(stats.nct.pdf(t, count - 1, effect * math.sqrt(count)))
        return shifted * float(stats.norm.pdf(effect, scale=WEIGHT**-0.5))

    # Beyond 8 spreads of the mixture there is nothing to the last digit.
    whole = integrate.quad(density, -8, 8, points=[-1.0, 0.0, 1.0, 2.0], limit=200)[0]
    return float(whole / stats.t.pdf(t, count - 1))


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1.0), (0.4, 0.02), (-3.0, 5.0)])
def test_all_of_its_intervals_together_cover_the_mean(mean: float, spread: float) -> None:
    """2,000 series of 200 units, looked at after each one: 10% may miss it once. Fixed intervals would in most."""
    series, length, alpha = 2000, 200, 0.1
    values = np.random.default_rng(8).normal(mean, spread, (series, length))
    count = np.arange(1, length + 1)
    means = values.cumsum(axis=1) / count
    squares = np.maximum((values**2).cumsum(axis=1) - count * means**2, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spreads = np.sqrt(squares / (count - 1))
    # Relative to the spread, its radius depends only on the count.
    units = [sequence(Evidence(n, 0.0, 1.0, n, n - 1.0), alpha).high for n in count.tolist()]
    missed = (np.abs(means - mean)[:, 1:] > np.array(units)[1:] * spreads[:, 1:]).any(axis=1)
    assert missed.mean() <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / series)
    fixed = stats.t.ppf(1 - alpha / 2, count[1:] - 1) / np.sqrt(count[1:])
    assert (np.abs(means - mean)[:, 1:] > fixed * spreads[:, 1:]).any(axis=1).mean() > 4 * alpha
