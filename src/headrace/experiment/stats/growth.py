"""Did something grow over a long trial? Memory, files, latency and throughput as trends, each with an interval.

The window is divided into batches of equal length, and a line is laid through their means by least squares. What a
server does in one batch resembles the next, so the interval is as wide as that of the number of independent
batches that have the same autocorrelation (Thiébaux & Zwiers 1984, The interpretation and estimation of effective
sample size, J. Climate Appl. Meteor. 23). Its estimate is too low in short series; the correction is Marriott &
Pope's (1954, Bias in the estimation of autocorrelations, Biometrika 41), half as much again. The intervals are of
this one run: another start of the server is another observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval, t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCHES = 24
#: A batch is then 25 s: simulated seconds with an autocorrelation of 0.99 raise an alarm in 6% at this length.
LEAST_S = 600.0
#: More would claim that no two batches tell more than one.
MOST_CORRELATED = 0.9
LEAST_DEGREES = 3.0


@dataclass(frozen=True)
class Trend:
    """``mean`` over the window, and by how much the value changed from its begin to its end, on the line."""

    mean: float
    change: Interval

    @property
    def shows(self) -> bool:
        low, high = self.change.low, self.change.high
        return low is not None and high is not None and (low > 0 or high < 0)

    def left_s(self, value: float, seconds: float) -> Interval | None:
        """Seconds until what falls is used up, from ``value`` on at this pace; None if it is not shown to fall.

        ``seconds`` is the length of the window.
        """
        low, high = self.change.low, self.change.high
        if low is None or high is None or high >= 0:
            return None
        soonest, latest = (value * seconds / -pace for pace in (low, high))
        return Interval(value * seconds / -self.change.estimate, soonest, latest)


def batch_means(
    times_s: NDArray[np.float64], values: NDArray[np.float64], seconds: float
) -> NDArray[np.float64]:
    """The mean of each batch of a window from 0 to ``seconds``; NaN where it has no value."""
    inside = (times_s >= 0) & (times_s < seconds) & np.isfinite(values)
    batch = np.minimum((times_s[inside] * BATCHES / seconds).astype(np.int64), BATCHES - 1)
    sums = np.bincount(batch, values[inside], BATCHES)
    counts = np.bincount(batch, minlength=BATCHES)
    means: NDArray[np.float64] = np.full(BATCHES, np.nan)
    return np.divide(sums, counts, out=means, where=counts > 0)


def trend(batches: NDArray[np.float64], alpha: float) -> Trend | None:
    """The trend of a window's batches; None if one of them is missing."""
    if len(batches) != BATCHES or not np.isfinite(batches).all():
        return None
    mean = float(batches.mean())
    x = (np.arange(BATCHES) - (BATCHES - 1) / 2) / BATCHES
    slope = float(x @ (batches - mean) / (x @ x))
    residuals = batches - mean - slope * x
    squares = float(residuals @ residuals)
    # Rounding of a value that does not vary is no variation, and no slope.
    rounding = 1e-9 * abs(mean)
    slope = slope if abs(slope) > rounding else 0.0
    if squares <= max(rounding, 1e-9 * abs(slope)) ** 2 * BATCHES:
        return Trend(mean, Interval(slope, slope, slope))
    correlation = float(residuals[1:] @ residuals[:-1]) / squares
    correlation += 1.5 * (1 + 4 * correlation) / BATCHES
    correlation = min(max(correlation, 0.0), MOST_CORRELATED)
    inflation = (1 + correlation) / (1 - correlation)
    error = float(np.sqrt(squares / (BATCHES - 2) / (x @ x) * inflation))
    half = t_quantile(max(BATCHES / inflation - 2, LEAST_DEGREES), alpha) * error
    return Trend(mean, Interval(slope, slope - half, slope + half))
