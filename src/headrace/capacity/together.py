"""How demands combine on one host, and how sure its peak is.

CPU, packets and device requests of several databases add up step by step: peaks that coincide count together,
others do not. So do bytes read and written, because requests of different databases are not merged. Three do
not simply add up:

- memory. With a server each, a buffer pool keeps what it once took, so each database counts with its own
  largest value. In one shared server pages of a database at rest are evicted, so the values of each step add
  up. Both are right only if ``memory`` is a working set, not the size of a pool that happens to be full; Curino
  et al. measure it by shrinking the pool until reads rise (Workload-aware Database Monitoring and
  Consolidation, SIGMOD 2011, "buffer pool gauging").
- the redo log. Transactions of one server that commit together share a write and its padding (group commit), so
  the joint log is at least the largest and at most the sum of the streams. The plan counts with the sum.
- space, of which each database counts with its largest value.

A peak is judged by days, not by steps, which are alike within a day. Each day has one joint peak, the load that it
exceeds for ``1 - quantile`` of its time. The largest peak of the next ``days`` days is estimated by a Gumbel law
fitted to them by moments (Gumbel 1958, Statistics of Extremes), and its interval by drawing whole days again
(bootstrap): all hosts' days together, so that what coincides stays together. The chances under this law are as
correlated between two hosts as their daily peaks were (Gaussian copula: Nelsen 2006, An Introduction to Copulas).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.base.intervals import Interval
from headrace.capacity.model import Demand, Resource
from headrace.history.archive.files import DAY_S

Values = NDArray[np.float64]

#: A failed host's load of these continues on its replicas. They hold its data and apply its writes anyway.
MOVES = (Resource.CPU, Resource.SOFTIRQ, Resource.PACKETS, Resource.READS, Resource.READ_BYTES)
#: A chance below 1 in 500 is not told from none.
DRAWS = 2000
#: Longer steps hide peaks.
COARSE_S = 3600
#: Fewer days show neither a week nor how peaks vary.
FEWEST_DAYS = 7


@dataclass(frozen=True)
class Together:
    """Demands on the same steps, ready to be added. ``values`` is (host, resource, step), without gaps."""

    hosts: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[Resource, ...]
    values: Values
    step_s: int
    notes: tuple[str, ...]

    @property
    def steps_per_day(self) -> int:
        return max(1, DAY_S // self.step_s)

    @property
    def days(self) -> int:
        return max(1, int(self.values.shape[2]) // self.steps_per_day)


def together(
    demands: Sequence[Demand], *, is_one_server: bool = False, without: Sequence[Resource] = ()
) -> Together:
    """Fill gaps with the largest value of the same time of day, and let memory and space count as above."""
    resources = tuple(r for r in Resource if r not in without and any(r in each.used for each in demands))
    steps, step_s = demands[0].steps, demands[0].step_s
    values = np.zeros((len(demands), len(resources), steps))
    per_day = max(1, DAY_S // step_s)
    for i, demand in enumerate(demands):
        for j, resource in enumerate(resources):
            if resource not in demand.used:
                continue
            own = filled(demand.used[resource], per_day)
            is_held = resource is Resource.SPACE or (resource is Resource.MEMORY and not is_one_server)
            values[i, j] = own.max() if is_held else own
    notes = []
    days = steps / per_day
    if days < FEWEST_DAYS:
        notes.append(
            f"{days:.1f} days of history: fewer than {FEWEST_DAYS} show no week, and peaks may be larger "
            "than planned"
        )
    if step_s > COARSE_S:
        notes.append(f"steps of {step_s / 3600:g} h: a peak that is shorter than a step is not known")
    if Resource.LOG_BYTES in resources:
        notes.append("log_bytes add up at most: group commit shares writes, the plan counts with their sum")
    hosts, groups = tuple(d.host for d in demands), tuple(d.group for d in demands)
    return Together(hosts, groups, resources, values, step_s, tuple(notes))


def filled(values: Values, per_day: int, usual: Callable[..., Any] = np.nanmax) -> Values:
    """Gaps with the ``usual`` (largest) known value of the same time of day, of all where there is none. Some
    value must be known.
    """
    if np.isfinite(values).all():
        return values
    padded = np.concatenate([values, np.full(-len(values) % per_day, np.nan)]).reshape(-1, per_day)
    known = np.isfinite(padded)
    by_time = np.full(per_day, usual(values))
    by_time[known.any(axis=0)] = usual(padded[:, known.any(axis=0)], axis=0)
    return np.where(known, padded, by_time).reshape(-1)[: len(values)]


def clipped(values: Values, per_day: int, quantile: float) -> Values:
    """Each day's values, at most the day's quantile: a burst of a few steps is no peak that is planned for."""
    if quantile >= 1:
        return values
    found = values.copy()
    for start in range(0, values.shape[-1], per_day):
        day = values[..., start : start + per_day]
        found[..., start : start + per_day] = np.minimum(
            day, np.quantile(day, quantile, axis=-1, keepdims=True, method="higher")
        )
    return found


def daily_peaks(total: Values, per_day: int, quantile: float) -> Values:
    """The peak of each day: the last axis becomes days. A day that was cut short counts with its neighbour."""
    steps = total.shape[-1]
    days = max(1, steps // per_day)
    bounds = [(d * per_day, (d + 1) * per_day if d + 1 < days else steps) for d in range(days)]
    return np.stack(
        [np.quantile(total[..., a:b], quantile, axis=-1, method="higher") for a, b in bounds], axis=-1
    )


@dataclass(frozen=True)
class Peak:
    """A host's peak of one resource, and its draws, which plans compare. ``usual``: draws of the mean daily
    peak."""

    resource: Resource
    interval: Interval
    draws: Values
    usual: Values


@dataclass(frozen=True)
class Futures:
    """What all hosts, resources and plans share: the days that each draw repeats, shape (draw, days), and the
    chances of the days to come, shape (draw, days of the history)."""

    days: NDArray[np.int64]
    chances: Values

    @classmethod
    def of(cls, days: int, seed: int = 0, draws: int = DRAWS) -> Futures:
        random = np.random.default_rng(seed)
        return cls(random.integers(0, days, (draws, days)), random.standard_normal((draws, days)))

    def gumbel(self, peaks: Values) -> Values:
        """Draws of a Gumbel law with the mean 0, for these daily peaks: two hosts whose peaks rise on the same
        days have high draws together."""
        from scipy.special import log_ndtr

        away = peaks - peaks.mean()
        length = float(np.sqrt((away**2).sum()))
        if length <= 0:
            return np.zeros(len(self.chances))
        normal = self.chances @ (away / length)
        found: Values = -np.log(-log_ndtr(normal)) - np.euler_gamma
        return found


def peak(peaks: Values, futures: Futures, ahead_days: int = 30) -> tuple[Interval, Values]:
    """The largest daily peak of the next ``ahead_days`` days, from those of the history.

    Its draws are of the days that the law is fitted to, and of the largest under this law.
    """
    count = len(peaks)
    if count < 2:
        return Interval(float(peaks[0]), None, None), np.full(len(futures.days), float(peaks[0]))
    estimate = float(_ahead(peaks[None, :], ahead_days, 0.0)[0])
    # Days drawn again vary less than the days they are drawn from.
    draws = _ahead(peaks[futures.days], ahead_days, futures.gumbel(peaks), math.sqrt(count / (count - 1)))
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(estimate, float(min(low, estimate)), float(max(high, estimate))), draws


def _ahead(peaks: Values, days: int, chance: float | Values, widened: float = 1.0) -> Values:
    """The largest of ``days`` values of a Gumbel law with the mean and spread of each row; ``chance`` is 0 for its
    mean. At least what was seen: no plan is for less.
    """
    scale = widened * peaks.std(axis=-1, ddof=1) * math.sqrt(6) / math.pi
    largest = peaks.mean(axis=-1) + scale * (math.log(max(days, 1)) + chance)
    found: Values = np.maximum(largest, peaks.max(axis=-1))
    return found
