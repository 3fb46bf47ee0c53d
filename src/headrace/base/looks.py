"""The level of each interim look, so that all looks together are wrong with probability at most alpha.

A comparison tested after each block errs at some look more often than at a given one. The union bound treats looks
as independent, although successive looks share nearly all of their data. Here alpha is spent over the looks by a
function that reaches 1 only after infinitely many, and a look's share is converted into its nominal level given
the earlier looks: the density of the sum of observations, given that no look has rejected yet, is carried from
look to look by numerical integration. No look depends on how many will follow, so one may stop at any.

The integration is for a normal sum with known variance; its levels are used with Student's distribution (the
significance level approach). tests/unit/test_race_simulation.py checks that on simulated races with few degrees of
freedom.

Sources: Lan & DeMets 1983, Discrete sequential boundaries for clinical trials, Biometrika 70; Armitage, McPherson
& Rowe 1969, Repeated significance tests on accumulating data, JRSS A 132 (the recursion); Jennison & Turnbull
2000, Group Sequential Methods (the significance level approach, spending, quadrature).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

#: A single block has no spread.
FIRST = 2

#: Points of the quadrature, and how many standard deviations below 0 it starts.
_POINTS, _REACH = 400, 8.0


def spent(look: int) -> float:
    """The share of alpha that may be spent up to and including the look after this many blocks."""
    return 1.0 - 1.0 / math.sqrt(look) if look >= FIRST else 0.0


def nominal_level(alpha: float, look: int, first: int = FIRST) -> float:
    """The one-sided level of the look after ``look`` blocks; all looks up to it jointly err with probability
    ``alpha * spent(look)``. 0 before the ``first`` look.
    """
    return _Looks.of(alpha, first).level(look) if look >= first else 0.0


class _Looks:
    """The levels for one alpha and first look, computed on demand."""

    def __init__(self, alpha: float, begins: int) -> None:
        from scipy.special import ndtri

        self._alpha = alpha
        first = alpha * spent(begins)
        self._levels = {begins: first}
        self._sums, weights = _quadrature(-float(ndtri(first)), begins)
        self._mass = weights * np.exp(-(self._sums**2) / (2 * begins)) / math.sqrt(2 * math.pi * begins)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(alpha: float, begins: int) -> _Looks:
        return _Looks(alpha, begins)

    def level(self, look: int) -> float:
        for following in range(max(self._levels) + 1, look + 1):
            self._levels[following] = self._next(following)
        return self._levels[look]

    def _next(self, look: int) -> float:
        from scipy.optimize import brentq
        from scipy.special import log_ndtr

        wanted = math.log(self._alpha * (spent(look) - spent(look - 1)))

        def excess(z: float) -> float:
            """The log ratio of the probability of a first rejection here to the allowance."""
            tails = log_ndtr(self._sums - z * math.sqrt(look))
            top = float(tails.max())
            return top + math.log(float(self._mass @ np.exp(tails - top))) - wanted

        z = float(brentq(excess, 0.0, 30.0, xtol=1e-10))
        sums, weights = _quadrature(z, look)
        steps = np.exp(-0.5 * (sums[:, None] - self._sums[None, :]) ** 2) / math.sqrt(2 * math.pi)
        self._sums, self._mass = sums, weights * (steps @ self._mass)
        return math.exp(float(log_ndtr(-z)))


def _quadrature(z: float, look: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights over the sums of ``look`` unit normals that are not rejected at ``z``."""
    points, weights = _gauss()
    low, high = -_REACH * math.sqrt(look), z * math.sqrt(look)
    return low + (points + 1) / 2 * (high - low), weights * (high - low) / 2


@lru_cache(maxsize=1)
def _gauss() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    return points, weights
