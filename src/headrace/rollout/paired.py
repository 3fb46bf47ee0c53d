"""Evidence of a change that takes a restart: pairs of equal hosts, one of each changed by lot, in blocks of time.

Both hosts of a pair are measured in the same blocks, before and after one of them is changed. A block's gap is the
log of the changed host relative to its partner, so what moves both (the hour, the season) is not in it. The cost
is the gap after minus the gap before: a difference in differences. The unit is a pair in a block after the change.

Gaps drift, because each host also varies by itself. So blocks are worth less than their number
(``contrast.correlation_of``). A drift slower than all blocks together, and the effect of the restart itself,
cannot be distinguished from the change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.change.contrast import MIN_DEGREES, correlation_of
from headrace.rollout.judge import LEAST_SPREAD, Block, Evidence, Pair

#: Blocks of a pair before the change without which it counts for nothing.
LEAST_BEFORE = 3


@dataclass(frozen=True)
class Moment:
    """One block of time of a pair: what its changed host and its partner did."""

    host: str
    changed: Block
    partner: Block
    is_after: bool

    @cached_property
    def gaps(self) -> Mapping[str, float | None]:
        """Metric -> log of how much worse the host fares than its partner; None without both values."""
        return Pair(self.host, self.changed, self.partner).costs


@dataclass(frozen=True)
class Paired:
    moments: Sequence[Moment]
    unit: str = "blocks"

    @property
    def tried(self) -> int:
        return sum(moment.is_after for moment in self.moments)

    def evidence(self, metric: str, host: str = "", first: int | None = None) -> Evidence:
        sides = list(self._sides(metric, host, first))
        count = sum(len(after) for _, after in sides)
        both = [(before, after) for before, after in sides if len(before) >= LEAST_BEFORE and after]
        if not both:
            return Evidence(count)
        weights = [len(before) * len(after) / (len(before) + len(after)) for before, after in both]
        information = math.fsum(weights)
        changes = [math.fsum(a) / len(a) - math.fsum(b) / len(b) for b, a in both]
        estimate = math.fsum(w * change for w, change in zip(weights, changes, strict=True)) / information
        degrees, squares = _worth([side for pair in both for side in pair])
        if degrees < MIN_DEGREES:
            return Evidence(count, estimate)
        spread = max(math.sqrt(squares / degrees), LEAST_SPREAD)
        return Evidence(count, estimate, spread, information, degrees)

    def _sides(self, metric: str, host: str, first: int | None) -> Iterator[tuple[list[float], list[float]]]:
        """Each pair's gaps before and after, in the order of time; only the ``first`` after, over all pairs."""
        sides: dict[str, tuple[list[float], list[float]]] = {}
        taken = 0
        for moment in self.moments:
            gap = moment.gaps[metric]
            is_over = moment.is_after and first is not None and taken >= first
            if gap is None or is_over or (host and moment.host != host):
                continue
            taken += moment.is_after
            sides.setdefault(moment.host, ([], []))[moment.is_after].append(gap)
        yield from sides.values()


def _worth(sides: Sequence[Sequence[float]]) -> tuple[float, float]:
    """How many independent blocks there are beyond the sides' means, and the sum of squares about those."""
    rest = np.concatenate([np.array(side) - math.fsum(side) / len(side) for side in sides])
    near = np.ones(len(rest) - 1, dtype=np.bool_)
    near[np.cumsum([len(side) for side in sides])[:-1] - 1] = False
    rho = correlation_of(rest, near, len(sides))
    return len(rest) * (1 - rho) / (1 + rho) - len(sides), float((rest**2).sum())
