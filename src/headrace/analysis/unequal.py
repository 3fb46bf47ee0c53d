"""Small factorials on a disturbed machine, simulated, of which one treatment is far noisier: effects of factors
over few blocks, and experiments that end when they are decided.

Each has two factors of two levels, so four treatments, and the baseline twice in each block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.analysis import estimate
from headrace.analysis.looks import nominal_level
from headrace.analysis.noises import (
    BETWEEN_BLOCKS,
    BETWEEN_TRIALS,
    MARGIN,
    bursts,
    in_blocks,
    unlike,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TREATMENTS, PER_BLOCK = 4, 5

#: How many times as much the noisy treatment varies, and the share of trials that others disturb.
NOISIER, DISTURBED = 5.0, 1 / 3

#: Looks of an experiment until it is decided: after the third block and each following one, up to this.
FIRST_LOOK, LAST_LOOK = 3, 12

#: The named noisy treatment: 0 is the baseline. None: all vary alike.
WHO: Mapping[str, int | None] = {
    "all vary alike": None,
    "a candidate five times noisier": 1,
    "the baseline five times noisier": 0,
}

#: The mean of the second level less that of the first, of each factor.
FACTORS = np.array([[-1, -1, 1, 1], [-1, 1, -1, 1]]) / 2

_TO_BASELINE = np.eye(TREATMENTS)[1:] - np.eye(TREATMENTS)[0]

#: Studies that are fitted at the same time.
_AT_ONCE = 250


class Drawn(NamedTuple):
    """Logs and lost shares (studies x trials), and each trial's treatment and block."""

    y: Floats
    lost: Floats
    codes: NDArray[np.int64]
    places: NDArray[np.int64]

    def fit(self, blocks: int) -> estimate.Fit:
        """Of the first blocks."""
        own = slice(0, blocks * PER_BLOCK)
        y = self.y[:, own]
        return estimate.fit(
            y, self.lost[:, own], np.ones(y.shape, dtype=bool), self.codes[own], self.places[own]
        )


def draw(
    rng: np.random.Generator, noisy: int | None, studies: int, blocks: int, *, is_random: bool = False
) -> Drawn:
    """``is_random``: each treatment reacts differently to what others take."""
    codes = np.tile(np.array([0, 0, 1, 2, 3]), blocks)
    places = np.repeat(np.arange(blocks), PER_BLOCK)
    spread = np.full(TREATMENTS, BETWEEN_TRIALS)
    if noisy is not None:
        spread[noisy] *= NOISIER
    shape = (studies, len(codes))
    is_hit = in_blocks(rng, bursts(rng, DISTURBED, *shape), PER_BLOCK)
    lost = np.where(is_hit, rng.uniform(0.1, 0.4, shape), rng.uniform(0, 0.005, shape))
    drift = rng.normal(0, BETWEEN_BLOCKS, (studies, blocks))[:, places]
    slopes = unlike(rng, studies, TREATMENTS)[:, codes] if is_random else 1.0
    y = rng.normal(0, 1, shape) * spread[codes] + drift + slopes * np.log1p(-lost)
    return Drawn(y, lost, codes, places)


class Counts(NamedTuple):
    """Of all studies: any joint interval of a factor misses; single intervals that cover the truth, of as many as
    there are.
    """

    factors: int
    covered: int
    intervals: int


def judge(
    rng: np.random.Generator,
    noisy: int | None,
    studies: int,
    blocks: int,
    alpha: float,
    *,
    is_random: bool = False,
) -> Counts:
    total = np.zeros(3, dtype=np.int64)
    for start in range(0, studies, _AT_ONCE):
        drawn = draw(rng, noisy, min(_AT_ONCE, studies - start), blocks, is_random=is_random)
        found = drawn.fit(blocks)
        of_factors = found.contrasts(FACTORS)
        joint = np.nan_to_num(of_factors.half_width(alpha / len(FACTORS) / 2), nan=np.inf)
        single = found.contrasts(_TO_BASELINE)
        half = single.half_width(alpha / 2)
        is_there = np.isfinite(half)
        is_covered = is_there & (np.abs(single.estimate) <= half)
        missed = (np.abs(np.nan_to_num(of_factors.estimate)) > joint).any(axis=1)
        total += [missed.sum(), is_covered.sum(), is_there.sum()]
    return Counts(*map(int, total))


def until_decided(rng: np.random.Generator, noisy: int | None, studies: int, alpha: float) -> int:
    """Studies with a false verdict at any look."""
    margin, alarms = math.log1p(MARGIN), 0
    for start in range(0, studies, _AT_ONCE):
        drawn = draw(rng, noisy, min(_AT_ONCE, studies - start), LAST_LOOK)
        is_wrong = np.zeros(len(drawn.y), dtype=bool)
        for look in range(FIRST_LOOK, LAST_LOOK + 1):
            level = nominal_level(alpha / len(_TO_BASELINE) / 2, look, first=FIRST_LOOK)
            found = drawn.fit(look).contrasts(_TO_BASELINE)
            value, half = np.nan_to_num(found.estimate), np.nan_to_num(found.half_width(level), nan=np.inf)
            is_equal = (value - half >= -margin) & (value + half <= margin)
            is_wrong |= ((np.abs(value) > half) & ~is_equal).any(axis=1)
        alarms += int(is_wrong.sum())
    return alarms
