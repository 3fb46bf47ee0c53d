"""What a change must not cost, beside the response that decides: differences by block, each within a limit.

Ratios do not serve here: a server that evicts nothing has a rate of 0. A guard holds if the whole interval of the
mean difference is within its limit, so too little data is no pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.intervals import Interval, arithmetic
from headrace.base.watched import Watched


class Holds(StrEnum):
    YES = "holds"
    NO = "broken"
    UNKNOWN = "not enough data"


@dataclass(frozen=True)
class Guard:
    """``difference`` is treatment minus baseline, in the unit; None where no block has both."""

    watched: Watched
    usual: float | None
    difference: Interval | None
    blocks: int

    @property
    def holds(self) -> Holds:
        difference = self.difference
        if difference is None or difference.low is None or difference.high is None:
            return Holds.UNKNOWN
        best, worst = sorted(self.watched.worse * end for end in (difference.low, difference.high))
        # Rounding may make 0.1 of the difference of two equal rates.
        limit = self.watched.limit + 1e-9
        return Holds.YES if worst <= limit else Holds.NO if best > limit else Holds.UNKNOWN


@dataclass(frozen=True)
class Block:
    """Values of the trials of one block, by what is guarded; a trial without one is left out."""

    treatment: Sequence[Mapping[str, float | None]]
    baseline: Sequence[Mapping[str, float | None]]


def guard(watched: Watched, blocks: Sequence[Block], alpha: float) -> Guard:
    """Over blocks that have both sides; each trial is one value, and trials of a side are averaged."""
    pairs = [(_mean(watched.name, each.treatment), _mean(watched.name, each.baseline)) for each in blocks]
    both = [(own, usual) for own, usual in pairs if own is not None and usual is not None]
    if not both:
        return Guard(watched, None, None, 0)
    usual = math.fsum(usual for _, usual in both) / len(both)
    return Guard(watched, usual, arithmetic([own - usual for own, usual in both], alpha), len(both))


def _mean(name: str, trials: Sequence[Mapping[str, float | None]]) -> float | None:
    values = [value for each in trials if (value := each.get(name)) is not None]
    return math.fsum(values) / len(values) if values else None
