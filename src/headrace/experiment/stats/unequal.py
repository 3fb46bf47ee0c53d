"""Small factorials on a disturbed machine, simulated, of which one treatment is far noisier: effects of factors
over few blocks, and experiments that end when they are decided.

Each has two factors and runs the baseline twice in each block. For intervals the factors have two levels each
(four treatments), for what matters three and four (twelve treatments).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.looks import nominal_level
from headrace.experiment.stats import additive, estimate, untold, whole
from headrace.experiment.stats.noises import (
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

TREATMENTS = 4

#: Two factors with more levels, of which neither matters.
LEVELS: Mapping[str, Sequence[str]] = {"chunk": ("4K", "16K", "64K"), "depth": ("1", "2", "4", "8")}

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

PAIRS: Mapping[str, Sequence[str]] = {"first": ("1", "2"), "second": ("1", "2")}

#: The mean of the second level less that of the first, of each factor.
FACTORS = np.array([[-1, -1, 1, 1], [-1, 1, -1, 1]]) / 2

_TO_BASELINE = np.eye(TREATMENTS)[1:] - np.eye(TREATMENTS)[0]

#: Studies that are fitted at the same time.
_AT_ONCE = 250


def draw(
    rng: np.random.Generator,
    noisy: int | None,
    studies: int,
    blocks: int,
    *,
    treatments: int = TREATMENTS,
    is_random: bool = False,
) -> untold.Drawn:
    """``is_random``: each treatment reacts differently to what others take."""
    codes = np.tile([0, *range(treatments)], blocks)
    places = np.repeat(np.arange(blocks), treatments + 1)
    spread = np.full(treatments, BETWEEN_TRIALS)
    if noisy is not None:
        spread[noisy] *= NOISIER
    shape = (studies, len(codes))
    is_hit = in_blocks(rng, bursts(rng, DISTURBED, *shape), treatments + 1)
    lost = np.where(is_hit, rng.uniform(0.1, 0.4, shape), rng.uniform(0, 0.005, shape))
    drift = rng.normal(0, BETWEEN_BLOCKS, (studies, blocks))[:, places]
    slopes = unlike(rng, studies, treatments)[:, codes] if is_random else 1.0
    y = rng.normal(0, 1, shape) * spread[codes] + drift + slopes * np.log1p(-lost)
    return untold.Drawn(y, lost, codes, places)


def _fit(drawn: untold.Drawn, blocks: int) -> estimate.Fit:
    """Of the first blocks."""
    own = drawn.places < blocks
    y = drawn.y[:, own]
    there = np.ones(y.shape, dtype=bool)
    return estimate.fit(y, drawn.lost[:, own], there, drawn.codes[own], drawn.places[own])


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
        found = _fit(drawn, blocks)
        rows = additive.rows_of(PAIRS, _cells(PAIRS), with_pairs=False)
        estimates, joint = untold.contrasts(drawn, rows, FACTORS, alpha * whole.MAIN / len(FACTORS))
        single = found.contrasts(_TO_BASELINE)
        half = single.half_width(alpha / 2)
        is_there = np.isfinite(half)
        is_covered = is_there & (np.abs(single.estimate) <= half)
        missed = (np.abs(estimates) > joint).any(axis=1)
        total += [missed.sum(), is_covered.sum(), is_there.sum()]
    return Counts(*map(int, total))


def matter(rng: np.random.Generator, noisy: int | None, studies: int, blocks: int, alpha: float) -> int:
    """Studies in which a factor of ``LEVELS``, or their pair, is said to matter."""
    cells, alarms = _cells(LEVELS), 0
    for start in range(0, studies, _AT_ONCE):
        drawn = draw(rng, noisy, min(_AT_ONCE, studies - start), blocks, treatments=len(cells))
        mains, pairs = untold.claimed(drawn, LEVELS, cells, alpha)
        alarms += int((mains.any(axis=1) | pairs.any(axis=1)).sum())
    return alarms


def _cells(levels: Mapping[str, Sequence[str]]) -> list[Mapping[str, str]]:
    return [dict(zip(levels, cell, strict=True)) for cell in itertools.product(*levels.values())]


def until_decided(rng: np.random.Generator, noisy: int | None, studies: int, alpha: float) -> int:
    """Studies with a false verdict at any look."""
    margin, alarms = math.log1p(MARGIN), 0
    for start in range(0, studies, _AT_ONCE):
        drawn = draw(rng, noisy, min(_AT_ONCE, studies - start), LAST_LOOK)
        is_wrong = np.zeros(len(drawn.y), dtype=bool)
        for look in range(FIRST_LOOK, LAST_LOOK + 1):
            level = nominal_level(alpha / len(_TO_BASELINE) / 2, look, first=FIRST_LOOK)
            found = _fit(drawn, look).contrasts(_TO_BASELINE)
            value, half = np.nan_to_num(found.estimate), np.nan_to_num(found.half_width(level), nan=np.inf)
            is_equal = (value - half >= -margin) & (value + half <= margin)
            is_wrong |= ((np.abs(value) > half) & ~is_equal).any(axis=1)
        alarms += int(is_wrong.sum())
    return alarms
