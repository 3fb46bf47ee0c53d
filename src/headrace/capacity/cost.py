"""What a plan costs, how sure that is, and which plan is regretted least.

A scenario is one draw of everything that is uncertain: which days repeat, growth, limits and knees. In each
scenario a plan costs its price and, for each host that is then too full, a penalty; the regret is what the plan
costs more than the best of the plans in that scenario (Savage 1951, The Theory of Statistical Decision). The
plan with the least mean regret is proposed; the regret that 5% of the scenarios exceed is shown with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.base.intervals import Interval
from headrace.capacity.catalogue import knee_of
from headrace.capacity.model import Capacity, Resource
from headrace.capacity.together import DRAWS, Peak

Values = NDArray[np.float64]
#: What a host that is too full costs, in its monthly prices: one bought in a hurry, and the move. An assumption.
PENALTY = 3.0
MONTH_DAYS = 30.4
#: A limit whose interval reaches to 0 still carries this share of its estimate: a share of it has a value then.
LEAST = 1e-6
#: A normal law's 95% interval is so many standard deviations wide.
WIDTH = 3.92


@dataclass(frozen=True)
class Growth:
    """How demand grows until the plan ends, as a factor. Between ``low`` and ``high`` all are as likely; with an
    ``estimate`` they are its 95% interval, of a normal law."""

    low: float = 1.0
    high: float = 1.0
    estimate: float | None = None

    def draws(self, seed: int = 1) -> Values:
        """Never below 1: hosts are not bought for a demand that is hoped to shrink."""
        random = np.random.default_rng(seed)
        if self.estimate is None:
            return np.maximum(random.uniform(self.low, self.high, DRAWS), 1.0)
        return np.maximum(_draws(Interval(self.estimate, self.low, self.high), random), 1.0)


def carried(capacity: Capacity, resource: Resource, seed: int = 2) -> Values | None:
    """Draws of what a host carries while the objective is kept: limit times knee. None if no limit is known."""
    if resource not in capacity.limit:
        return None
    random = np.random.default_rng([seed, list(Resource).index(resource)])
    return _draws(capacity.limit[resource], random) * np.minimum(
        _draws(knee_of(capacity, resource)[0], random), 1.0
    )


def _draws(found: Interval, random: np.random.Generator) -> Values:
    low = found.estimate if found.low is None else found.low
    high = found.estimate if found.high is None else found.high
    return np.maximum(random.normal(found.estimate, (high - low) / WIDTH, DRAWS), 0.0)


@dataclass(frozen=True)
class Use:
    """A resource of a planned host at its peak; ``grown`` includes the growth. ``share`` is of what it carries: 1
    is the knee. ``usual``: draws of the share at today's mean daily peak, before any growth."""

    resource: Resource
    peak: Interval
    share: Interval
    risk: float
    draws: Values
    usual: Values
    grown: Interval


def use_of(found: Peak, capacity: Capacity, growth: Values) -> Use | None:
    carries = carried(capacity, found.resource)
    if carries is None:
        return None
    # The day draws and those of the limit are independent of each other.
    carries = np.maximum(carries, LEAST * capacity.limit[found.resource].estimate)
    draws = found.draws * growth / carries
    low, high = np.quantile(draws, [0.025, 0.975])
    share = Interval(float(np.median(draws)), float(low), float(high))
    return Use(
        found.resource, found.interval, share, float((draws > 1).mean()), draws, found.usual / carries,
        _interval(found.draws * growth),
    )  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """``too_full``: chance that any host is too full before the plan ends. Regrets in the currency, a month; in
    hosts if the price of any plan is unknown."""

    name: str
    price: float | None
    hosts: int
    too_full: float
    mean_regret: float
    worst_regret: float


def regrets(
    plans: Mapping[str, tuple[Sequence[Capacity], Sequence[Sequence[Use]]]], ahead_days: float = MONTH_DAYS
) -> list[Scored]:
    """The plans, that with the least mean regret first. If a price is missing every host costs 1: beside hosts of
    500 one that costs 1 would be the cheapest. A host that gets too full is paid for once in ``ahead_days``, its
    price each month."""
    penalty = PENALTY * MONTH_DAYS / ahead_days
    known = all(h.price is not None for hosts, _ in plans.values() for h in hosts)
    prices = {
        name: np.array([h.price if known else 1.0 for h in hosts], dtype=np.float64)
        for name, (hosts, _) in plans.items()
    }
    costs, full = {}, {}
    for name, (_, uses) in plans.items():
        over = np.stack([_over(each) for each in uses]) if uses else np.zeros((0, DRAWS), dtype=bool)
        costs[name] = prices[name].sum() + penalty * (over * prices[name][:, None]).sum(axis=0)
        full[name] = float(over.any(axis=0).mean())
    best = np.min(list(costs.values()), axis=0)
    found = []
    for name, (hosts, _) in plans.items():
        regret = costs[name] - best
        price = total([h.price for h in hosts])
        found.append(
            Scored(
                name, price, len(hosts), full[name], float(regret.mean()), float(np.quantile(regret, 0.95))
            )
        )
    return sorted(found, key=lambda each: (each.mean_regret, prices[each.name].sum()))


def total(values: Sequence[float | None]) -> float | None:
    """None if there is none, or any is unknown."""
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _over(uses: Sequence[Use]) -> NDArray[np.bool_]:
    return np.any([use.draws > 1 for use in uses], axis=0) if uses else np.zeros(DRAWS, dtype=bool)


@dataclass(frozen=True)
class Worth:
    """Queries per second at the mean daily peak: of today's demand, and of as many times that as the fullest host
    carries; and what one of these is paid with."""

    queries: Interval
    at_knee: Interval
    per_price: Interval | None
    per_watt: Interval | None


def worth(
    daily_queries: Values, uses: Sequence[Sequence[Use]], price: float | None, watts: float | None,
    chosen: NDArray[np.int64],
) -> Worth:  # fmt: skip
    """``daily_queries``: the fleet's peak of queries per second of each day. ``chosen``: the days of each draw."""
    means = daily_queries[chosen].mean(axis=1)
    fullest = np.max([use.usual for host in uses for use in host], axis=0)
    at_knee = means / np.maximum(fullest, 1e-300)
    return Worth(
        _interval(means),
        _interval(at_knee),
        _interval(at_knee / price) if price else None,
        _interval(at_knee / watts) if watts else None,
    )


def _interval(draws: Values) -> Interval:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(np.median(draws)), float(low), float(high))
