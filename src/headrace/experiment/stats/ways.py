"""Which way of measuring decides soonest on this machine: from a minute in which nothing differs.

The baseline runs four times, twice in each of two blocks. From the seconds of these trials come the noise of
a trial of any length and of a switchback's turns; from the differences between the trials, what a new start
adds. Where the machine has two halves, a pair side by side shows what is left of the noise there. The
estimates are rough, and only choose how to measure: they decide no verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import MAX_BLOCKS
from headrace.experiment.stats.power import smallest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESTART, DUET, SWITCHBACK = "restart", "duet", "switchback"

#: Means of so many seconds are taken as independent.
BATCH_S = 5

#: Fewer blocks decide nothing, whatever the noise is.
LEAST_BLOCKS = 3

#: A machine is never as quiet as a minute may make it look.
LEAST_SD = 0.005


@dataclass(frozen=True)
class Way:
    """``block_s`` is what a block takes, ``begin_s`` what is spent once for every ``per_start`` blocks.

    ``sd`` is the log sd of a treatment's ratio to the baseline in one block. ``blocks`` and ``hours`` are until
    the effect is found four times out of five; None if never. ``why_not``: why it cannot be measured that way.
    """

    name: str
    sd: float = 0.0
    block_s: float = 0.0
    begin_s: float = 0.0
    per_start: int = 0
    blocks: int | None = None
    hours: float | None = None
    why_not: str = ""


def decided(way: Way, effect: float, comparisons: int, alpha: float) -> Way:
    """The way with its blocks and hours until a change by ``effect`` (0.05 is 5%) is found."""
    wanted = math.log1p(effect)

    def finds(blocks: int) -> bool:
        found = smallest(way.sd / math.sqrt(blocks), blocks - 1, alpha / comparisons)
        return found is not None and found <= wanted

    if way.why_not or not finds(MAX_BLOCKS):
        return way
    low, high = LEAST_BLOCKS - 1, MAX_BLOCKS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    starts = math.ceil(high / way.per_start) if way.per_start else 0
    return replace(way, blocks=high, hours=(high * way.block_s + starts * way.begin_s) / 3600)


def soonest(ways: Iterable[Way]) -> Way | None:
    """The possible way with the fewest hours; None if no way finds the effect."""
    possible = [way for way in ways if way.hours is not None]
    return min(possible, key=lambda way: (way.hours or 0.0, way.name), default=None)


def of_trial(series: Sequence[Floats], seconds: float) -> float:
    """The sd of a trial's log mean over so many seconds. ``series`` are operations per second of the baseline's
    trials, two of each block.
    """
    logs = [math.log(max(float(one.mean()), 1e-9)) for one in series]
    pairs = [(a - b) ** 2 / 2 for a, b in zip(logs[::2], logs[1::2], strict=False)]
    of_starts = max(float(np.mean(pairs)) - _within(series, len(series[0])), 0.0) if pairs else 0.0
    return max(math.sqrt(of_starts + _within(series, seconds)), LEAST_SD)


def of_turn(series: Sequence[Floats], turn_s: int, washout_s: int) -> float | None:
    """The sd of a turn's log mean beside that of the next turn; None if a series has no two turns."""
    squares = []
    for one in series:
        starts = range(0, len(one) - turn_s + 1, turn_s + washout_s)
        means = [math.log(max(float(one[at : at + turn_s].mean()), 1e-9)) for at in starts]
        squares += [(b - a) ** 2 / 2 for a, b in itertools.pairwise(means)]
    return max(math.sqrt(float(np.mean(squares))), LEAST_SD) if squares else None


def of_pair(first: Floats, second: Floats, seconds: float) -> float:
    """The sd of the log ratio of two sides over so many seconds; a lasting difference of the halves cancels."""
    length = min(len(first), len(second))
    ratio = _logs(first[:length]) - _logs(second[:length])
    return max(math.sqrt(_of_means([ratio], seconds)), LEAST_SD)


def _logs(series: Floats) -> Floats:
    """A second without any operation counts as a tenth of the others' mean, not as none."""
    return np.asarray(np.log(np.maximum(series, max(float(series.mean()) / 10, 1e-9))))


def _within(series: Sequence[Floats], seconds: float) -> float:
    return _of_means([_logs(one) for one in series], seconds)


def _of_means(logs: Sequence[Floats], seconds: float) -> float:
    """The variance of a mean of so many seconds, by that of means of BATCH_S."""
    squares, degrees = 0.0, 0
    for one in logs:
        count = len(one) // BATCH_S
        if count < 2:
            continue
        means = one[: count * BATCH_S].reshape(count, BATCH_S).mean(axis=1)
        squares += float(((means - means.mean()) ** 2).sum())
        degrees += count - 1
    return squares / degrees * BATCH_S / max(seconds, 1.0) if degrees else 0.0
