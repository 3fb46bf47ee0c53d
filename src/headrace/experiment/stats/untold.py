"""Few blocks of small whole factorials in noise of unknown causes, simulated: what of their factors is found, and
what is claimed of them where nothing differs.

Each runs the baseline twice in each block. Factors have two levels each, so there are four or eight treatments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.experiment.stats import additive, whole
from headrace.experiment.stats.estimate import fit as fit_treatments
from headrace.experiment.stats.noises import BETWEEN_BLOCKS, BETWEEN_TRIALS, GAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

#: Trials of a quiet machine vary by this, and by ``BETWEEN_TRIALS`` of a usual one.
QUIET = 0.03

#: Scale of Student's t with three degrees of freedom: its standard deviation is 1.7 times as much.
SCALE = 0.10

#: How many times as noisy as the rest one treatment is.
NOISIER = 5.0

#: Studies that are fitted at the same time.
_AT_ONCE = 250


class Noise(NamedTuple):
    """``noisy``: the treatment that is ``NOISIER`` than the rest."""

    deviation: float = QUIET
    has_halved: bool = False
    has_disturbed: bool = False
    is_heavy: bool = False
    noisy: int | None = None


NOISES: Mapping[str, Noise] = {
    "a quiet machine": Noise(),
    "one trial in nine at half speed": Noise(has_halved=True),
    "a third of the trials lose 10 to 40%": Noise(has_disturbed=True),
    "trials vary by 15%": Noise(BETWEEN_TRIALS),
    "heavy tails (t, 3 degrees of freedom)": Noise(is_heavy=True),
    "a candidate five times noisier": Noise(BETWEEN_TRIALS, noisy=1),
    "the baseline five times noisier": Noise(BETWEEN_TRIALS, noisy=0),
}


class Drawn(NamedTuple):
    """Logs and lost shares that are known (studies x trials), and each trial's treatment and block."""

    y: Floats
    lost: Floats
    codes: Codes
    places: Codes


class Counts(NamedTuple):
    """Of all studies: those that claim anything false; those that find a true gain of the first factor; those that
    claim anything false of the others then.
    """

    alarms: int
    found: int
    beside: int


def draw(rng: np.random.Generator, noise: Noise, studies: int, codes: Codes, blocks: Codes) -> Floats:
    """Logs without any effect: studies x trials."""
    shape = (studies, len(codes))
    y = SCALE * rng.standard_t(3, shape) if noise.is_heavy else rng.normal(0, noise.deviation, shape)
    if noise.noisy is not None:
        y = np.where(codes == noise.noisy, NOISIER, 1.0) * y
    if noise.has_halved:
        y = y + np.where(rng.random(shape) < 1 / 9, math.log(0.5), 0.0)
    if noise.has_disturbed:
        y = y + np.where(rng.random(shape) < 1 / 3, np.log1p(-rng.uniform(0.1, 0.4, shape)), 0.0)
    return np.asarray(y + rng.normal(0, BETWEEN_BLOCKS, (studies, int(blocks.max()) + 1))[:, blocks])


def judge(
    rng: np.random.Generator, noise: Noise, factors: int, studies: int, blocks: int, alpha: float
) -> Counts:
    """What is claimed of the factors of studies in this noise."""
    levels = {f"factor {i + 1}": ("without", "with") for i in range(factors)}
    cells = [dict(zip(levels, cell, strict=True)) for cell in itertools.product(*levels.values())]
    codes = np.tile([0, *range(len(cells))], blocks)
    places = np.repeat(np.arange(blocks), len(cells) + 1)
    gain = math.log(GAIN) * np.array([cell["factor 1"] == "with" for cell in cells])[codes]
    total = np.zeros(3, dtype=np.int64)
    for start in range(0, studies, _AT_ONCE):
        y = draw(rng, noise, min(_AT_ONCE, studies - start), codes, places)
        mains, paired = claimed(Drawn(y, np.zeros(y.shape), codes, places), levels, cells, alpha)
        better, beside = claimed(Drawn(y + gain, np.zeros(y.shape), codes, places), levels, cells, alpha)
        first = [i for i, pair in enumerate(itertools.combinations(levels, 2)) if "factor 1" in pair]
        is_found = better[:, 0] & ~beside[:, first].any(axis=1)
        total += [
            (mains.any(axis=1) | paired.any(axis=1)).sum(),
            is_found.sum(),
            (better[:, 1:].any(axis=1) | beside.any(axis=1)).sum(),
        ]
    return Counts(*map(int, total))


def claimed(
    drawn: Drawn, levels: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]], alpha: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """What ``whole`` says is proven: effects of levels, and what pairs have beyond them (studies x effects)."""
    found = []
    for with_pairs, weights, share in (
        (False, whole.of_levels(levels, cells), whole.MAIN),
        (True, whole.of_pairs(levels, cells), 1 - whole.MAIN),
    ):
        rows = additive.rows_of(levels, cells, with_pairs=with_pairs)
        estimate, half = contrasts(drawn, rows, weights, alpha * share / len(weights))
        found.append(np.abs(estimate) > half)
    return found[0], found[1]


def contrasts(drawn: Drawn, rows: Floats, weights: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Estimates and half-widths, each at ``alpha``, of the model that ``whole`` takes for each study; ``rows`` are
    the terms of its treatments.
    """
    y, lost, codes, places = drawn
    robust = additive.fit(y, lost, additive.Layout(rows, codes, places), weights).contrasts(weights)
    each, half = robust.estimate, robust.half_width(alpha / 2)
    if lost.any():
        usual = fit_treatments(y, lost, np.ones(y.shape, dtype=bool), codes, places).contrasts(weights)
        is_uneven = additive.is_uneven(additive.disturbance(lost[:, :, None]), codes)[:, None]
        each = np.where(is_uneven, usual.estimate, each)
        half = np.where(is_uneven, usual.half_width(alpha / 2), half)
    return np.nan_to_num(each), np.nan_to_num(half, nan=np.inf)
