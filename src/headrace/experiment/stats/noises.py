"""Machines on which nothing differs, simulated: what a verdict must survive, and what it costs in power.

An experiment has a baseline, twice in each block, and seven candidates, over five blocks. Trials vary by 15%,
blocks by 10%. Others take CPU time in bursts along the order of trials: a third of the trials lose 10 to 40% of
it. In some models others also take a device's time, which costs half as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.base import intervals
from headrace.experiment.stats import estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CANDIDATES, BLOCKS, BETWEEN_TRIALS, BETWEEN_BLOCKS = 7, 5, 0.15, 0.10

#: The gain that the power is stated for, and the equivalence margin of a plan.
GAIN, MARGIN = 1.5, 0.03

#: Trials that a burst lasts on average, and the drift's autocorrelation from trial to trial.
BURST, AUTOCORRELATION = 6, 0.9

#: What a device's time costs, relative to CPU time.
DEVICE_COST = 0.5

#: A candidate with something special: the one that is named in advance.
NAMED = 3

#: Studies that are fitted at the same time.
_AT_ONCE = 250


@dataclass(frozen=True)
class Model:
    """``spread``: treatments that vary this many times as much (0 is the baseline). ``slopes``: how strongly a
    treatment reacts to what others take, if not in proportion. ``is_random``: each treatment has its own slope.
    ``disturbed`` and ``device``: the share of trials that lose CPU time, and a device's time. ``is_confounded``:
    every trial of the baseline loses about the same, so that none shows how it reacts.
    """

    name: str
    spread: Mapping[int, float] = field(default_factory=dict)
    slopes: Mapping[int, float] = field(default_factory=dict)
    is_random: bool = False
    is_correlated: bool = False
    is_missing: bool = False
    disturbed: float = 1 / 3
    device: float = 0.0
    is_confounded: bool = False


MODELS = (
    Model("an undisturbed machine", disturbed=0.0),
    Model("bursts of steal in a third of the trials"),
    Model("... and a candidate five times noisier", {NAMED: 5.0}),
    Model("... and the baseline five times noisier", {0: 5.0}),
    Model("... and half of them three times noisier", {1: 3.0, 2: 3.0, NAMED: 3.0, 4: 3.0}),
    Model("... and treatments that react differently", is_random=True),
    Model("... and a candidate that reacts four times as much", slopes={NAMED: 4.0}),
    Model("... and a baseline that reacts twice as much", slopes={0: 2.0}),
    # A program of low priority takes only what a slow configuration leaves idle, so it costs that one nothing.
    Model(
        "... and a fifth of each of the baseline's trials, to which it does not react",
        slopes={0: 0.0},
        is_confounded=True,
    ),
    Model("... and drift from trial to trial", is_correlated=True),
    Model("... and half of the slow trials missing", is_missing=True),
    Model("... and bursts of others' reads and writes", device=1 / 3),
    Model(
        "... and treatments to which others' reads and writes matter differently",
        is_random=True,
        device=1 / 3,
    ),
)


class Drawn(NamedTuple):
    """Logs, lost shares (of CPU time, and of a device's time as well: x 2) and whether a trial is there: studies x
    trials.
    """

    y: Floats
    lost: Floats
    is_there: NDArray[np.bool_]


#: The treatment and the block of each trial.
CODES = np.tile(np.concatenate([[0], np.arange(CANDIDATES + 1)]), BLOCKS)
PLACES = np.repeat(np.arange(BLOCKS), CANDIDATES + 2)


class Reactions(NamedTuple):
    """How strongly each treatment reacts to lost CPU time and to a device's lost time: studies x treatments."""

    cpu: Floats
    device: Floats


def unlike(rng: np.random.Generator, studies: int, treatments: int) -> Floats:
    """How many times as much each treatment reacts to what others take, where all react differently."""
    return np.exp(rng.normal(0, 0.5, (studies, treatments)))


def reactions(rng: np.random.Generator, model: Model, studies: int) -> Reactions:
    shape = (studies, CANDIDATES + 1)
    cpu, device = np.ones(shape), np.full(shape, DEVICE_COST)
    if model.is_random:
        cpu *= unlike(rng, *shape)
        device *= unlike(rng, *shape)
    for treatment, slope in model.slopes.items():
        cpu[:, treatment] = slope
    return Reactions(cpu, device)


def draw(rng: np.random.Generator, model: Model, studies: int, slopes: Reactions | None = None) -> Drawn:
    """Studies of this model; ``slopes`` if another experiment of the same treatments has them."""
    slopes = slopes or reactions(rng, model, studies)
    count = len(CODES)
    own = np.full(CANDIDATES + 1, BETWEEN_TRIALS)
    for treatment, factor in model.spread.items():
        own[treatment] *= factor
    noise = rng.normal(0, 1, (studies, count))
    if model.is_correlated:
        noise = 0.5 * noise + math.sqrt(0.75) * in_blocks(rng, _drift(rng, studies, count))
    lost = np.where(
        in_blocks(rng, bursts(rng, model.disturbed, studies, count)),
        rng.uniform(0.1, 0.4, (studies, count)),
        rng.uniform(0, 0.005, (studies, count)),
    )
    if model.is_confounded:
        lost = np.where(CODES == 0, rng.uniform(0.2, 0.25, lost.shape), lost)
    blocks = rng.normal(0, BETWEEN_BLOCKS, (studies, BLOCKS))[:, PLACES]
    y = noise * own[CODES] + blocks + slopes.cpu[:, CODES] * np.log1p(-lost)
    is_there = np.ones(y.shape, dtype=bool)
    if model.device:
        taken = np.where(
            in_blocks(rng, bursts(rng, model.device, studies, count)),
            rng.uniform(0.1, 0.5, (studies, count)),
            rng.uniform(0, 0.005, (studies, count)),
        )
        y = y + slopes.device[:, CODES] * np.log1p(-taken)
        lost = np.stack([lost, taken], axis=2)
    if model.is_missing:
        is_there = (noise > -0.8) | (rng.random(y.shape) < 0.5)
    return Drawn(y, lost, is_there)


def bursts(rng: np.random.Generator, share: float, studies: int, count: int) -> NDArray[np.bool_]:
    """Which trials others disturb, in the order of time."""
    found = np.zeros((studies, count), dtype=bool)
    state = rng.random(studies) < share
    enter = share / (1 - share) / BURST
    for i in range(count):
        chance = rng.random(studies)
        state = np.where(state, chance > 1 / BURST, chance < enter)
        found[:, i] = state
    return found


def _drift(rng: np.random.Generator, studies: int, count: int) -> Floats:
    found = np.zeros((studies, count))
    value = rng.normal(0, 1, studies)
    for i in range(count):
        value = AUTOCORRELATION * value + math.sqrt(1 - AUTOCORRELATION**2) * rng.normal(0, 1, studies)
        found[:, i] = value
    return found


def in_blocks(rng: np.random.Generator, along: NDArray[Any], per_block: int = CANDIDATES + 2) -> NDArray[Any]:
    """From the order of time to that of treatments, which is random in each block."""
    shape = (len(along), along.shape[1] // per_block, per_block)
    order = np.argsort(rng.random(shape), axis=2)
    return np.take_along_axis(along.reshape(shape), order, axis=2).reshape(along.shape)


class Counts(NamedTuple):
    """Of all studies: any false verdict; the named candidate called beaten; a true gain found; single intervals
    that cover the truth, of so many.
    """

    alarms: int
    beaten: int
    found: int
    covered: int
    intervals: int


def judge(rng: np.random.Generator, model: Model, studies: int, alpha: float) -> Counts:
    """What the estimator says of studies of this model."""
    total = np.zeros(5, dtype=np.int64)
    for start in range(0, studies, _AT_ONCE):
        total += _judged(draw(rng, model, min(_AT_ONCE, studies - start)), alpha)
    return Counts(*map(int, total))


def _judged(drawn: Drawn, alpha: float) -> NDArray[np.int64]:
    found = estimate.fit(drawn.y, drawn.lost, drawn.is_there, CODES, PLACES)
    to_baseline = np.eye(CANDIDATES + 1)[1:] - np.eye(CANDIDATES + 1)[0]
    verdicts = found.contrasts(to_baseline)
    half = np.nan_to_num(verdicts.half_width(alpha / CANDIDATES / 2), nan=np.inf)
    single = verdicts.half_width(alpha / 2)
    is_there = np.isfinite(single)
    value = np.nan_to_num(verdicts.estimate)
    margin = math.log1p(MARGIN)
    is_equal = (value - half >= -margin) & (value + half <= margin)
    others = np.delete(np.eye(CANDIDATES + 1), NAMED, axis=0) - np.eye(CANDIDATES + 1)[NAMED]
    choice = found.contrasts(others)
    beaten = np.nan_to_num(choice.estimate - choice.half_width(alpha / CANDIDATES / 2), nan=-1.0) > 0
    return np.array(
        [
            ((np.abs(value) > half) & ~is_equal).any(axis=1).sum(),
            beaten.any(axis=1).sum(),
            # The response is additive in logs: a true gain shifts the estimate.
            (value + math.log(GAIN) > half)[:, NAMED - 1].sum(),
            (is_there & (np.abs(value) <= single)).sum(),
            is_there.sum(),
        ]
    )


def compared(rng: np.random.Generator, model: Model, studies: int, alpha: float) -> int:
    """False verdicts of two experiments of the same treatments, treatment by treatment."""
    slopes = reactions(rng, model, studies)
    a, b = draw(rng, model, studies, slopes), draw(rng, model, studies, slopes)
    return sum(
        any(not low <= 1 <= high for low, high in _welch(a, b, i, alpha / (CANDIDATES + 1)))
        for i in range(studies)
    )


def _welch(a: Drawn, b: Drawn, study: int, alpha: float) -> Iterator[tuple[float, float]]:
    for treatment in range(CANDIDATES + 1):
        sides = []
        for one in (a, b):
            own = (treatment == CODES) & one.is_there[study]
            blocks = np.unique(PLACES[own])
            sides.append({int(k): float(one.y[study, own & (k == PLACES)].mean()) for k in blocks})
        if min(map(len, sides)) < 2:
            continue
        ratio = intervals.welch(sides[0], sides[1], alpha)
        if ratio.low is not None and ratio.high is not None:
            yield ratio.low, ratio.high
