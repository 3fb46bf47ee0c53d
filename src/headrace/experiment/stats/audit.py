"""A/A audit: the false-alarm rate of headrace's verdicts when nothing differs. It must be at most alpha.

Simulated studies resemble real ones: noise between trials, drift shared within blocks, seconds with an
autocorrelation of 0.9; and machines that others disturb (``noises``), where the audit also states what the
verdicts find and how often intervals cover the truth. The audit of an experiment takes the baseline's two trials
of each block, swaps them at random, and computes a verdict each time: under the swaps nothing differs, regardless
of the machine's noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from headrace.base import intervals
from headrace.base.counted import counted
from headrace.base.model import Role
from headrace.experiment.stats import noises, turns, unequal, untold
from headrace.experiment.stats.history import Point, watch
from headrace.experiment.stats.race import run_race
from headrace.experiment.stats.trials import TrialResponse

if TYPE_CHECKING:
    from numpy.typing import NDArray

BETWEEN_TRIALS = 0.02
BETWEEN_BLOCKS = 0.05
WITHIN_TRIAL = 0.1
AUTOCORRELATION = 0.9
SECONDS = 60

#: What a point of a series carries over to the next in the hardest case that watch promises anything for, and its
#: promise there, in alphas.
CARRIED = 0.7
CARRIED_LIMIT = 1.4

#: The share of true effects of 1.5x that verdicts find on a disturbed machine: trials off by 15%, five blocks.
POWER = 0.85

#: ... and if others take a device's time as well, from another third of the trials.
POWER_WITH_DEVICE = 0.70

#: The share of true effects of a factor of 1.5x that three blocks of a whole factorial find in any unknown noise,
#: unless one treatment is far noisier than the rest.
POWER_OF_FACTORS = 0.90

#: The share of 95% intervals that cover the truth, at least.
COVERED = 0.93

#: Swaps of an experiment's pairs: all of them up to this many, else as many at random.
SWAPS = 4096

#: Simulated experiments of normal noise that show how far the rate over all swaps of a few pairs varies, and the
#: share of them below the limit.
REFERENCES, RARE = 2000, 0.9987


@dataclass(frozen=True)
class Rate:
    """``alarms`` of ``studies`` in which nothing differed.

    ``limit`` is the rate that a true rate of alpha can reach by chance: three standard errors of the binomial, or
    ``most`` if the studies are not independent. With ``least``, ``alarms`` are wanted: true effects that were
    found (the power), or intervals that cover the truth; at most alpha of these may be missing beyond ``least``.
    """

    what: str
    studies: int
    alarms: int
    alpha: float
    least: float | None = None
    most: float | None = None

    @property
    def rate(self) -> float:
        return self.alarms / self.studies

    @property
    def interval(self) -> tuple[float, float]:
        """The rate's own 95% interval (Wilson 1927, JASA 22)."""
        z, n = 1.96, self.studies
        center, width = self.rate + z * z / 2 / n, self.rate * (1 - self.rate) / n + z * z / 4 / n / n
        scale = 1 + z * z / n
        return (center - z * math.sqrt(width)) / scale, (center + z * math.sqrt(width)) / scale

    @property
    def limit(self) -> float:
        if self.most is not None:
            return self.most
        return self.alpha + 3 * math.sqrt(self.alpha * (1 - self.alpha) / self.studies)

    @property
    def holds(self) -> bool:
        if self.least is not None:
            return self.rate >= self.least - 3 * math.sqrt(self.least * (1 - self.least) / self.studies)
        return self.rate <= self.limit


def trial_logs(
    rng: np.random.Generator, shape: tuple[int, ...], seconds: int = SECONDS
) -> NDArray[np.float64]:
    """Log throughputs of trials without any effect: the mean of autocorrelated seconds, plus noise of
    BETWEEN_TRIALS. The mean of an AR(1) series is drawn directly from its exact distribution.
    """
    part = _mean_variance(AUTOCORRELATION, seconds)
    return np.asarray(
        rng.normal(0, BETWEEN_TRIALS, shape) + np.log1p(rng.normal(0, WITHIN_TRIAL * math.sqrt(part), shape))
    )


@cache
def _mean_variance(rho: float, n: int) -> float:
    """The variance of the mean of n values of an AR(1) series, relative to that of one value."""
    lags = np.arange(1, n)
    return (1 + 2 * float(((1 - lags / n) * rho**lags).sum())) / n


def simulate(studies: int, *, alpha: float = 0.05, seed: int = 1) -> Iterator[Rate]:
    """The rates of run, choice, compare, effects, until decided, race and watch."""
    rng = np.random.default_rng(seed)
    for model in noises.MODELS:
        found = noises.judge(rng, model, studies, alpha)
        yield Rate(f"run: {model.name}", studies, found.alarms, alpha)
        yield Rate(f"choice: {model.name}, one named in advance is beaten", studies, found.beaten, alpha)
        # Blocks of one experiment cannot show how far two experiments are apart in a drift longer than a block.
        if not model.is_correlated:
            alarms = noises.compared(rng, model, studies, alpha)
            yield Rate(f"compare: {model.name}", studies, alarms, alpha)
        if 0 in model.slopes:
            what = f"intervals: {model.name}, the truth is covered"
            yield Rate(what, found.intervals, found.covered, alpha, COVERED)
        if not (model.spread or model.slopes or model.is_random or model.is_missing or model.is_correlated):
            what = f"{model.name}, {noises.GAIN:g}x is found"
            least = POWER_WITH_DEVICE if model.device else POWER
            yield Rate(f"power: {what}", studies, found.found, alpha, least)
            what = f"intervals: {model.name}, the truth is covered"
            yield Rate(what, found.intervals, found.covered, alpha, COVERED)
    yield from _untold(rng, studies, alpha)
    yield from _unequal(rng, studies, alpha)
    yield from _switchbacks(rng, studies, alpha)
    for what, factor in (("12 equals", 1.0), ("11 equals and one five times noisier", 5.0)):
        alarms = _race(rng, studies, alpha, factor)
        yield Rate(f"race: {what}, 12 blocks, one named in advance leaves", studies, alarms, alpha)
    yield Rate("watch: 20 points of 3 trials, any change", studies, _watch(rng, studies, alpha), alpha)
    yield Rate(
        f"watch: 20 points that carry {CARRIED:g} over, any change",
        studies,
        _watch_carried(rng, studies, alpha),
        CARRIED_LIMIT * alpha,
    )


def _untold(rng: np.random.Generator, studies: int, alpha: float) -> Iterator[Rate]:
    for factors, (what, noise) in itertools.product((2, 3), untold.NOISES.items()):
        found = untold.judge(rng, noise, factors, studies, 3, alpha)
        where = f"{2**factors} treatments, 3 blocks, {what}"
        yield Rate(f"factors: {where}, anything claimed", studies, found.alarms, alpha)
        yield Rate(f"factors: {where}, claimed beside a true {noises.GAIN:g}x", studies, found.beside, alpha)
        if noise.noisy is None:
            named = f"power of a factor: {where}, {noises.GAIN:g}x is found"
            yield Rate(named, studies, found.found, alpha, POWER_OF_FACTORS)


def _unequal(rng: np.random.Generator, studies: int, alpha: float) -> Iterator[Rate]:
    for who, noisy in unequal.WHO.items():
        for blocks, is_random in ((3, False), (4, False), (4, True), (5, False), (5, True)):
            found = unequal.judge(rng, noisy, studies, blocks, alpha, is_random=is_random)
            what = (
                f"2 factors, {counted(blocks, 'block')}, {who}{', reacting differently' if is_random else ''}"
            )
            yield Rate(f"effects: {what}, any misses", studies, found.factors, alpha)
            yield Rate(
                f"intervals: {what}, the truth is covered", found.intervals, found.covered, alpha, COVERED
            )
        for blocks in (3, 5):
            alarms = unequal.matter(rng, noisy, studies, blocks, alpha)
            yield Rate(
                f"effects: 3 and 4 levels, {counted(blocks, 'block')}, {who}, any matters",
                studies,
                alarms,
                alpha,
            )
        alarms = unequal.until_decided(rng, noisy, studies, alpha)
        yield Rate(f"until decided: 3 to {unequal.LAST_LOOK} blocks, {who}", studies, alarms, alpha)


def _switchbacks(rng: np.random.Generator, studies: int, alpha: float) -> Iterator[Rate]:
    for name in turns.MODELS:
        found = turns.judge(rng, name, studies, alpha)
        yield Rate(f"switchback: {name}", studies, found.alarms, alpha)
        yield Rate(f"switchback: {name}, carry-over is seen", studies, found.carried, alpha)


def _race(rng: np.random.Generator, studies: int, alpha: float, factor: float = 1.0) -> int:
    """Each of twelve equals is the best; count eliminations of the noisiest."""
    alarms = 0
    for _ in range(studies):
        logs = trial_logs(rng, (12, 12))
        logs[0] *= factor
        logs += rng.normal(0, BETWEEN_BLOCKS, (1, 12))
        rows = {str(i): list(map(float, row)) for i, row in enumerate(logs)}
        alarms += "0" not in run_race(rows, alpha=alpha).survivors
    return alarms


def _watch(rng: np.random.Generator, studies: int, alpha: float) -> int:
    alarms = 0
    for number in range(studies):
        points = [Point(str(i), tuple(map(float, row))) for i, row in enumerate(trial_logs(rng, (20, 3)))]
        alarms += bool(watch(points, alpha=alpha, seed=number).changes)
    return alarms


def _watch_carried(rng: np.random.Generator, studies: int, alpha: float) -> int:
    from scipy.signal import lfilter

    alarms = 0
    for number in range(studies):
        noise = lfilter([1], [1, -CARRIED], rng.normal(size=70))[50:]
        points = [Point(str(i), (float(value),)) for i, value in enumerate(noise)]
        alarms += bool(watch(points, alpha=alpha, seed=number).changes)
    return alarms


def of_pairs(
    response: str, baseline: Sequence[TrialResponse], *, alpha: float = 0.05, seed: int = 1
) -> Rate | None:
    """The audit of one experiment's A/A pairs; None with fewer than two complete pairs."""
    logs: dict[int, dict[Role, float]] = {}
    for trial in baseline:
        value = trial.value(response)
        if value is not None:
            logs.setdefault(trial.block, {})[trial.role] = math.log(value)
    pairs = [own[Role.REPEAT] - own[Role.BASELINE] for own in logs.values() if len(own) == 2]
    if len(pairs) < 2:
        return None
    found = int(_alarms(np.array([pairs]), alpha, seed)[0])
    what = f"{response}: {counted(len(pairs), 'pair')} of the baseline, swapped"
    return Rate(what, len(_swaps(len(pairs), seed)), found, alpha, most=_most(len(pairs), alpha, seed))


@cache
def _most(pairs: int, alpha: float, seed: int) -> float:
    """The rate that so many pairs rarely exceed (three standard errors of a normal). All swaps are of the same few
    pairs, so their rate varies from experiment to experiment much more than that of as many studies. Percentiles
    have steps: pairs that are equal, or zero, are no rarity.
    """
    equal = np.tril(np.ones((pairs, pairs)))
    normal = np.random.default_rng(seed).normal(size=(REFERENCES, pairs))
    # In parts, because each of them meets all swaps at once.
    alarms = np.concatenate([_alarms(part, alpha, seed) for part in np.array_split(normal, 20)])
    most = max(np.quantile(alarms, RARE, method="higher"), _alarms(equal, alpha, seed).max())
    return float(most) / len(_swaps(pairs, seed))


def _alarms(pairs: NDArray[np.float64], alpha: float, seed: int) -> NDArray[np.int64]:
    """Of each experiment (a row of log ratios): the swaps whose interval (``intervals.geometric``) excludes 1."""
    count = pairs.shape[1]
    sums = pairs @ _swaps(count, seed).T
    # Swaps change the mean, never the squares.
    spread = np.maximum((pairs**2).sum(axis=1)[:, None] - sums**2 / count, 0.0) / (count - 1)
    half = intervals.t_quantile(count - 1, alpha) * np.sqrt(spread / count)
    return np.asarray((np.abs(sums) / count > half * (1 + 1e-9)).sum(axis=1))


@cache
def _swaps(pairs: int, seed: int) -> NDArray[np.float64]:
    if 2**pairs <= SWAPS:
        return np.array(list(itertools.product((1.0, -1.0), repeat=pairs)))
    return np.random.default_rng(seed).choice((1.0, -1.0), size=(SWAPS, pairs))
