"""What blocks say about an index: intervals that hold together, and verdicts. Pure: times in, words out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.base import intervals
from headrace.base.intervals import ByBlock, Interval

#: All intervals of a proof miss the truth together with this probability at most.
ALPHA = 0.05
#: A ratio within this share of 1 makes no difference.
MARGIN = 0.05


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Effect:
    """Time with the index relative to the time without, over ``blocks``; the interval holds with all others."""

    ratio: Interval
    verdict: Verdict
    blocks: int


def effect(logs: ByBlock, comparisons: int) -> Effect:
    """Of one log ratio per block. ``comparisons`` share ``ALPHA`` (Bonferroni)."""
    if not logs:
        return Effect(Interval(math.nan, None, None), Verdict.NOT_ENOUGH_DATA, 0)
    ratio = intervals.geometric(logs, ALPHA / max(comparisons, 1))
    return Effect(ratio, verdict(ratio), len(logs))


def verdict(ratio: Interval) -> Verdict:
    low, high = ratio.low, ratio.high
    if low is None or high is None:
        return Verdict.NOT_ENOUGH_DATA
    if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN:
        return Verdict.SAME
    if high < 1:
        return Verdict.FASTER
    return Verdict.SLOWER if low > 1 else Verdict.NOT_ENOUGH_DATA


def weighted(ratios: Mapping[str, Mapping[int, float]], weights: Mapping[str, float]) -> dict[int, float]:
    """The log ratio of the whole per block: each class's ratio by its share of the recorded time.

    Only blocks in which every class was measured: leaving one out would change what the whole is.
    """
    total = math.fsum(weights[name] for name in ratios)
    if not ratios or total <= 0:
        return {}
    blocks = set.intersection(*(set(logs) for logs in ratios.values()))
    return {
        block: math.log(
            math.fsum(weights[name] * math.exp(logs[block]) for name, logs in ratios.items()) / total
        )
        for block in sorted(blocks)
    }


@dataclass(frozen=True)
class Worth:
    """What the reads save and the writes cost, as shares of the recorded time, with their bounds."""

    saved: Interval
    cost: Interval

    @property
    def pays(self) -> bool | None:
        """None: the bounds do not say."""
        saved, cost = self.saved, self.cost
        if saved.low is None or saved.high is None or cost.low is None or cost.high is None:
            return None
        if saved.low > max(cost.high, 0.0):
            return True
        return False if saved.high < max(cost.low, 0.0) or (saved.high <= 0 <= cost.high) else None
