"""Switchbacks without any effect, simulated: neighbouring turns are alike, and verdicts still hold.

A server has 20 blocks of four turns (the baseline twice, two candidates), each of 3 s after 2 s that do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.experiment.stats import carryover, estimate
from headrace.experiment.stats.noises import MARGIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CANDIDATES, BLOCKS, SECONDS, WASHOUT_S = 2, 20, 3, 2
TURNS = CANDIDATES + 2

#: Spread of a second around the slow part, and the gain that the power is stated for.
NOISE, GAIN = 0.1, 1.1

CODES = np.tile(np.array([0, 0, 1, 2]), BLOCKS)
PLACES = np.repeat(np.arange(BLOCKS), TURNS)


def _carried(rho: float, size: float) -> Callable[[np.random.Generator, tuple[int, int]], Floats]:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        from scipy.signal import lfilter

        scale = size * math.sqrt(1 - rho**2)
        first = rng.normal(0, size, (shape[0], 1))
        return np.asarray(lfilter([scale], [1, -rho], rng.normal(size=shape), axis=1, zi=rho * first)[0])

    return draw


def _checkpoints(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Every 40 s (the length of two blocks) a server is half as fast for 8 s."""
    phase = rng.integers(0, 40, (shape[0], 1))
    return np.where((np.arange(shape[1]) + phase) % 40 < 8, math.log(0.5), 0.0)


def _growing(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """The buffer pool fills, and the last third is five times as noisy."""
    time = np.arange(shape[1]) / shape[1]
    return 0.5 * time + rng.normal(0, 0.5, shape) * (time > 2 / 3)


#: The slow part of a server's noise, as logs: studies x seconds.
MODELS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "independent seconds": _carried(0.0, 0.0),
    "seconds that carry 0.9 over": _carried(0.9, 0.15),
    "drift that carries 0.99 over": _carried(0.99, 0.3),
    "a checkpoint every 40 s": _checkpoints,
    "a server that warms up and becomes noisier": _growing,
}


class Counts(NamedTuple):
    """Of all studies: any false verdict; carry-over seen where none is; a true gain found."""

    alarms: int
    carried: int
    found: int


def judge(rng: np.random.Generator, name: str, studies: int, alpha: float) -> Counts:
    length = WASHOUT_S + SECONDS
    shape = (studies, BLOCKS * TURNS * length)
    logs = MODELS[name](rng, shape) + rng.normal(0, NOISE, shape)
    rates = np.exp(logs).reshape(studies, -1, length)[:, :, WASHOUT_S:]
    # From the order of time to that of treatments, which is random in each block.
    order = np.argsort(rng.random((studies, BLOCKS, TURNS)), axis=2)
    by_block = np.log(rates.mean(axis=2)).reshape(studies, BLOCKS, TURNS)
    y = np.take_along_axis(by_block, order, axis=2).reshape(studies, -1)
    found = estimate.fit(y, np.zeros(y.shape), np.ones(y.shape, dtype=bool), CODES, PLACES)
    result = found.contrasts(np.eye(CANDIDATES + 1)[1:] - np.eye(CANDIDATES + 1)[0])
    half = np.nan_to_num(result.half_width(alpha / CANDIDATES / 2), nan=np.inf)
    value, margin = np.nan_to_num(result.estimate), math.log1p(MARGIN)
    is_equal = (value - half >= -margin) & (value + half <= margin)
    carried = sum(_is_carried(one, np.argsort(own, axis=1)) for one, own in zip(rates, order, strict=True))
    return Counts(
        int(((np.abs(value) > half) & ~is_equal).any(axis=1).sum()),
        carried,
        int((value + math.log(GAIN) > half)[:, 0].sum()),
    )


def _is_carried(rates: Floats, places: NDArray[np.int64]) -> bool:
    """Whether the test for carry-over alarms; ``places`` are the treatments in the order of time."""
    names = [str(CODES[place]) for place in places.ravel()]
    turns = [
        carryover.Turn(names[i], names[i - 1], float(rates[i, 0]), float(rates[i, -1]))
        for i in range(1, len(names))
    ]
    found = carryover.find(turns)
    return found is not None and found.shows
