"""A/A audit: the false-alarm rate of headrace's verdicts when nothing differs. It must be at most alpha.

Simulated studies resemble real ones: noise between trials, drift shared within blocks, seconds with an
autocorrelation of 0.9. The audit of an experiment takes the baseline's two trials of each block, swaps them at
random, and computes a verdict each time: under the swaps nothing differs, regardless of the machine's noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from headrace.analysis import intervals
from headrace.analysis.compare import paired_effect
from headrace.analysis.history import Point, watch
from headrace.analysis.race import run_race
from headrace.analysis.result import Verdict
from headrace.analysis.trials import TrialResponse
from headrace.model import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

BETWEEN_TRIALS = 0.02
BETWEEN_BLOCKS = 0.05
WITHIN_TRIAL = 0.1
AUTOCORRELATION = 0.9
SECONDS = 60

#: Swaps of an experiment's pairs: all of them up to this many, else as many at random.
SWAPS = 4096


@dataclass(frozen=True)
class Rate:
    """``alarms`` of ``studies`` in which nothing differed.

    ``limit`` is the rate that a true rate of alpha can reach by chance (three standard errors of the binomial).
    """

    what: str
    studies: int
    alarms: int
    alpha: float

    @property
    def rate(self) -> float:
        return self.alarms / self.studies

    @property
    def limit(self) -> float:
        return self.alpha + 3 * math.sqrt(self.alpha * (1 - self.alpha) / self.studies)

    @property
    def holds(self) -> bool:
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
    """The rates of compare, race and watch."""
    rng = np.random.default_rng(seed)
    yield Rate("compare: 7 candidates, 5 blocks, any verdict", studies, _compare(rng, studies, alpha), alpha)
    yield Rate("race: 12 equals, 12 blocks, the best leaves", studies, _race(rng, studies, alpha), alpha)
    yield Rate("watch: 20 points of 3 trials, any change", studies, _watch(rng, studies, alpha), alpha)


def _compare(rng: np.random.Generator, studies: int, alpha: float) -> int:
    alarms = 0
    for _ in range(studies):
        logs = trial_logs(rng, (5, 9)) + rng.normal(0, BETWEEN_BLOCKS, (5, 1))

        def trials(slot: int, name: str, role: Role, logs: NDArray[np.float64] = logs) -> list[TrialResponse]:
            return [
                TrialResponse(9 * block + slot, block, name, role, math.exp(value))
                for block, value in enumerate(logs[:, slot])
            ]

        baseline = [*trials(0, "A", Role.BASELINE), *trials(1, "A", Role.REPEAT)]
        verdicts = [
            effect.verdict
            for slot in range(2, 9)
            if (
                effect := paired_effect(
                    "throughput",
                    trials(slot, str(slot), Role.CANDIDATE),
                    baseline,
                    alpha=alpha,
                    comparisons=7,
                )
            )
        ]
        alarms += any(verdict in (Verdict.BETTER, Verdict.WORSE) for verdict in verdicts)
    return alarms


def _race(rng: np.random.Generator, studies: int, alpha: float) -> int:
    """Each of twelve equals is the best; count eliminations of one chosen in advance."""
    alarms = 0
    for _ in range(studies):
        logs = trial_logs(rng, (12, 12)) + rng.normal(0, BETWEEN_BLOCKS, (1, 12))
        rows = {str(i): list(map(float, row)) for i, row in enumerate(logs)}
        alarms += "0" not in run_race(rows, alpha=alpha).survivors
    return alarms


def _watch(rng: np.random.Generator, studies: int, alpha: float) -> int:
    alarms = 0
    for number in range(studies):
        points = [Point(str(i), tuple(map(float, row))) for i, row in enumerate(trial_logs(rng, (20, 3)))]
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
    alarms = studies = 0
    for signs in _swaps(len(pairs), seed):
        ratio = intervals.geometric(
            {i: s * d for i, (s, d) in enumerate(zip(signs, pairs, strict=True))}, alpha
        )
        studies += 1
        alarms += ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high
    return Rate(f"{response}: {len(pairs)} pairs of the baseline, swapped", studies, alarms, alpha)


def _swaps(pairs: int, seed: int) -> Iterator[Sequence[int]]:
    if 2**pairs <= SWAPS:
        yield from itertools.product((1, -1), repeat=pairs)
        return
    rng = np.random.default_rng(seed)
    for row in rng.choice((1, -1), size=(SWAPS, pairs)):
        yield [int(sign) for sign in row]
