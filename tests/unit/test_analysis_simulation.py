"""What the statistics promise, checked on studies in which the truth is known.

A simulated trial has what a real one has: it shares its block's hour with the others, it is off by itself
(placement on disk, cache state), and its seconds are autocorrelated. Seeds are fixed: the tolerances are those of
the binomial, so that a correct method fails none of them and a wrong one nearly all.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from headrace.base.buckets import bucket_of
from headrace.base.effect import Effect, Verdict
from headrace.base.model import Role
from headrace.base.percentiles import Histogram, jackknife
from headrace.experiment.stats.compare import effects, noise_floor
from headrace.experiment.stats.trials import TrialResponse

pytestmark = pytest.mark.slow

ALPHA = 0.05
BETWEEN_TRIALS = 0.02
BETWEEN_BLOCKS = 0.05
SECONDS = 60


def seconds_of(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """AR(1) seconds around 1 with 10% variation and a correlation of 0.8 from one to the next."""
    shocks = rng.normal(0, 0.1 * math.sqrt(1 - 0.8**2), (*shape, SECONDS + 50))
    return np.asarray(1 + signal.lfilter([1], [1, -0.8], shocks, axis=-1)[..., 50:])


def throughputs(rng: np.random.Generator, studies: int, blocks: int, slots: int) -> NDArray[np.float64]:
    """One number a trial, shape (studies, blocks, slots): slots 0 and 1 of a block are the baseline's two."""
    block = rng.normal(0, BETWEEN_BLOCKS, (studies, blocks, 1))
    trial = rng.normal(0, BETWEEN_TRIALS, (studies, blocks, slots))
    return np.asarray(4000 * np.exp(block + trial) * seconds_of(rng, trial.shape).mean(axis=-1))


def trials_of(study: NDArray[np.float64], slot: int) -> list[TrialResponse]:
    role = (Role.BASELINE, Role.REPEAT)[slot] if slot < 2 else Role.CANDIDATE
    name = "STOCK" if slot < 2 else f"T{slot}"
    return [
        TrialResponse(block * 100 + slot, block, name, role, float(value))
        for block, value in enumerate(study[:, slot])
    ]


def effects_of(study: NDArray[np.float64], *, adjusted: bool = True) -> list[Effect]:
    stock = [*trials_of(study, 0), *trials_of(study, 1)]
    own = {f"T{slot}": trials_of(study, slot) for slot in range(2, study.shape[1])}
    comparisons = len(own) if adjusted else 1
    return effects("throughput", {"STOCK": stock, **own}, "STOCK", alpha=ALPHA, comparisons=comparisons)[0]


def covers(effect: Effect, truth: float) -> bool:
    assert effect.ratio.low is not None
    assert effect.ratio.high is not None
    return effect.ratio.low <= truth <= effect.ratio.high


def three_errors(rate: float, n: int) -> float:
    return 3 * math.sqrt(rate * (1 - rate) / n)


@pytest.mark.parametrize("blocks", [3, 5])
def test_studies_without_any_effect_raise_no_more_false_alarms_than_alpha(blocks: int) -> None:
    """Seven candidates that are all the baseline: a study is wrong when any of them is called better or worse."""
    studies = throughputs(np.random.default_rng(11), 1500, blocks, 9)
    wrong_verdict = wrong_interval = 0
    for study in studies:
        found = effects_of(study)
        assert len(found) == 7
        wrong_verdict += any(e.verdict in (Verdict.BETTER, Verdict.WORSE) for e in found)
        wrong_interval += not all(covers(e, 1.0) for e in found)
    n = len(studies)
    assert wrong_verdict / n <= ALPHA + three_errors(ALPHA, n)
    assert wrong_interval / n <= ALPHA + three_errors(ALPHA, n)
    # Not by never saying anything. With three blocks, what holds for a far noisier candidate is cautious here.
    assert wrong_interval / n >= {3: 0.001, 5: 0.01}[blocks]


def test_a_single_interval_covers_as_often_as_it_says() -> None:
    truth = 1.2
    studies = throughputs(np.random.default_rng(12), 3000, 5, 3)
    studies[:, :, 2] *= truth
    covered = np.mean([covers(effects_of(study, adjusted=False)[0], truth) for study in studies])
    assert covered == pytest.approx(0.95, abs=three_errors(0.95, len(studies)))


def test_the_noise_floors_interval_covers_1() -> None:
    studies = throughputs(np.random.default_rng(13), 2000, 5, 2)
    covered = 0
    for study in studies:
        found = noise_floor("throughput", [*trials_of(study, 0), *trials_of(study, 1)], alpha=ALPHA)
        assert found is not None
        assert found.ratio.low is not None
        assert found.ratio.high is not None
        covered += found.ratio.low <= 1 <= found.ratio.high
    assert covered / len(studies) == pytest.approx(0.95, abs=three_errors(0.95, len(studies)))


def test_real_effects_are_found_more_often_than_by_each_pair_alone() -> None:
    rng = np.random.default_rng(14)
    studies, blocks, truth = 1000, 5, 1.15
    drawn = throughputs(rng, studies, blocks, 9)
    drawn[:, :, 2] *= truth
    drawn[:, :, 3] /= truth
    found = [effects_of(study) for study in drawn]
    # A mean of AR(1) seconds varies by (1 + r) / (1 - r) more than one of independent ones; a candidate is one
    # trial and its baseline the mean of two.
    trial = math.hypot(BETWEEN_TRIALS, 0.1 * math.sqrt((1 + 0.8) / (1 - 0.8) / SECONDS))
    error = trial * math.sqrt(1.5 / blocks)

    def power(degrees: int) -> float:
        critical = stats.t.ppf(1 - ALPHA / 7 / 2, degrees)
        return float(stats.nct.sf(critical, degrees, math.log(truth) / error))

    # Between a test of each pair by itself and one that takes all variances for equal.
    paired, pooled = power(blocks - 1), power(8 * (blocks - 1))
    assert 0.5 < paired < pooled - 0.1
    for slot, wanted in ((0, Verdict.BETTER), (1, Verdict.WORSE)):
        share = np.mean([own[slot].verdict is wanted for own in found])
        assert paired + 0.05 < share < pooled


def test_equality_is_recognised_with_blocks_enough() -> None:
    drawn = throughputs(np.random.default_rng(17), 100, 80, 3)
    equal = [effects_of(study, adjusted=False)[0].verdict is Verdict.EQUIVALENT for study in drawn]
    assert np.mean(equal) > 0.95


def test_seconds_taken_for_replicates_would_raise_false_alarms() -> None:
    """Why no function here accepts pooled seconds: the same A/A data, tested second by second."""
    rng = np.random.default_rng(15)
    trial = np.exp(rng.normal(0, BETWEEN_TRIALS, (1000, 2, 1)))
    pairs = trial * seconds_of(rng, (1000, 2))
    p_values = stats.ttest_ind(pairs[:, 0], pairs[:, 1], axis=1).pvalue
    assert np.mean(p_values < ALPHA) > 0.5


@pytest.mark.parametrize(
    ("blocks", "between", "at_least"),
    [
        (3, 0.05, 0.94),
        (5, 0.05, 0.94),
        (10, 0.05, 0.94),
        # Where blocks differ by 20% the slowest of them makes the tail, and 5 have seldom seen a slow one.
        (5, 0.20, 0.90),
    ],
)
def test_jackknife_intervals_of_a_merged_percentile_cover_the_true_one(
    blocks: int, between: float, at_least: float
) -> None:
    """Lognormal latencies whose scale differs by trial and block, so that the true mixture is lognormal too."""
    rng = np.random.default_rng(16)
    studies, operations, spread = 600, 4000, 0.5
    truth = math.exp(14 + stats.norm.ppf(0.99) * math.hypot(spread, between))
    covered = 0
    for _ in range(studies):
        scale = rng.normal(0, between, (blocks, 1))
        values = np.exp(14 + scale + rng.normal(0, spread, (blocks, operations))).astype(np.int64)
        histograms = [Histogram.of(*np.unique(bucket_of(row), return_counts=True)) for row in values]
        interval = jackknife(histograms, "p99", ALPHA)
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= truth <= interval.high
    assert covered / studies >= at_least - three_errors(at_least, studies)
