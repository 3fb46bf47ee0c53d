"""How well experiments predict production: a change's effect in an experiment next to the one that was judged.

The unit is a rollout. What its pairs of blocks say is one effect; more blocks of one rollout say nothing about the
next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.intervals import USELESS, Interval, geometric
from headrace.rollout.judge import Bound


class Agreement(StrEnum):
    CONTAINED = "production's interval contains the lab's estimate"
    OVERLAP = "the intervals overlap, but production's does not contain the lab's estimate"
    BETTER = "the intervals do not overlap: production is better than the lab said"
    WORSE = "the intervals do not overlap: production is worse than the lab said"
    UNKNOWN = "an interval is missing or too wide, so the two cannot be compared"


@dataclass(frozen=True)
class Prediction:
    """Log costs of one change in the same metric, more is worse."""

    lab: Bound
    production: Bound

    @property
    def difference(self) -> float:
        """How much more the change cost in production than in the lab."""
        return self.production.estimate - self.lab.estimate

    @property
    def agreement(self) -> Agreement:
        lab, production = self.lab, self.production
        widths = [each.high - each.low for each in (lab, production)]
        if not all(width <= math.log(USELESS) for width in widths):
            return Agreement.UNKNOWN
        if production.low <= lab.estimate <= production.high:
            return Agreement.CONTAINED
        if production.high < lab.low:
            return Agreement.BETTER
        return Agreement.WORSE if production.low > lab.high else Agreement.OVERLAP


@dataclass(frozen=True)
class Record:
    """Over rollouts: ``ratio`` is what the change cost in production relative to the lab, its geometric mean; None
    without a rollout. Below 2 rollouts it has no interval."""

    rollouts: int
    agreements: Mapping[Agreement, int]
    ratio: Interval | None

    @property
    def overlapping(self) -> int:
        return self.agreements[Agreement.CONTAINED] + self.agreements[Agreement.OVERLAP]

    @property
    def compared(self) -> int:
        """Those with both intervals."""
        return self.rollouts - self.agreements[Agreement.UNKNOWN]


def record(predictions: Mapping[str, Prediction], alpha: float = 0.05) -> Record:
    """Of one prediction per rollout, by its id."""
    agreements = dict.fromkeys(Agreement, 0)
    for each in predictions.values():
        agreements[each.agreement] += 1
    differences = {number: each.difference for number, each in enumerate(predictions.values())}
    return Record(len(predictions), agreements, geometric(differences, alpha) if differences else None)
