"""Levels inside a trial: hardly any alarm where nothing changes, and the right word where something does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.experiment.plan import WorkloadTable
from headrace.experiment.stats import changes
from headrace.experiment.stats.changes import Kind, judge, sentence
from headrace.experiment.stats.disturbance import find_disturbance
from headrace.experiment.stats.steady import unsteady
from headrace.host.arrow import LATENCY, SAMPLES, TrialData
from tests.synthetic import bare_design
from tests.unit.test_analysis_disturbance import RECORD, START_NS, intervals

Floats = NDArray[np.float64]


def noise(trials: int, seconds: int, *, variation: float, rho: float = 0.9, seed: int = 1) -> Floats:
    """Series around 1,000, a row a trial, autocorrelated by ``rho``."""
    rng = np.random.default_rng(seed)
    shocks = rng.normal(0, variation * np.sqrt(1 - rho**2), (trials, seconds + 200))
    from scipy import signal  # half a second, in each process that collects the tests

    return np.asarray(1000 * (1 + signal.lfilter([1], [1, -rho], shocks, axis=1)[:, 200:]), dtype=np.float64)


@pytest.mark.parametrize("variation", [0.05, 0.2])
@pytest.mark.parametrize("seconds", [120, 240, 600, 900, 1800, 3600])
def test_a_steady_series_raises_hardly_any_alarm(seconds: int, variation: float) -> None:
    """5% are allowed, and three standard errors of 400 series on top."""
    alarms = np.mean([unsteady(row) is not None for row in noise(400, seconds, variation=variation, seed=9)])
    assert alarms <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def shapes(shape: Callable[[Floats], Floats], seconds: int, variation: float = 0.05) -> Counter[str]:
    at = np.arange(seconds) / seconds
    found = (judge(row * shape(at)) for row in noise(60, seconds, variation=variation, seed=3))
    return Counter(str(each.kind) for each in found if each)


@pytest.mark.parametrize("seconds", [600, 1800])
def test_each_shape_has_its_word(seconds: int) -> None:
    drop = shapes(lambda at: np.where(at < 0.7, 1, 0.85), seconds)
    ramp = shapes(lambda at: 1 - 0.3 * at, seconds)
    warm = shapes(lambda at: 1 - 0.5 * np.exp(-10 * at), seconds)
    waves = shapes(lambda at: 1 + 0.2 * np.sign(np.sin(8 * np.pi * at)), 3600)
    assert drop[Kind.SHIFTS] >= 55
    assert ramp[Kind.DRIFTING] >= 55
    assert warm[Kind.WARMING_UP] >= 55
    assert waves[Kind.DRIFTING] >= 55


def test_it_says_when_and_by_how_much() -> None:
    (row,) = noise(1, 1200, variation=0.03)
    row[800:] *= 0.8
    found = judge(row)
    assert found is not None
    (shift,) = found.shifts
    assert abs(shift.at_s - 800) <= found.batch_s
    assert abs(shift.ratio - 0.8) < 0.03
    said = sentence(found) or ""
    assert "throughput shifts inside the measured 1200 s: -19% at 800 s" in said
    assert said == unsteady(row)


def test_a_shift_below_five_percent_is_none() -> None:
    (row,) = noise(1, 1800, variation=0.001)
    row[900:] *= 0.96
    assert judge(row) == changes.Steadiness(Kind.STEADY, (), 30, 1800)
    row[900:] *= 0.96
    assert judge(row) != changes.Steadiness(Kind.STEADY, (), 30, 1800)


def test_checkpoints_that_come_again_and_again_are_steady() -> None:
    at = np.arange(1800)
    rows = noise(40, 1800, variation=0.02, rho=0.8) * np.where(at % 97 > 90, 0.7, 1.0)
    assert all(unsteady(row) is None for row in rows)


@pytest.mark.parametrize("series", [np.zeros(600), np.ones(119), np.full(600, np.nan), np.array([])])
def test_what_cannot_be_judged_is_not(series: Floats) -> None:
    assert judge(series) is None


def test_a_constant_series_is_steady_and_an_exact_step_is_not() -> None:
    assert judge(np.full(600, 7.0)) == changes.Steadiness(Kind.STEADY, (), 20, 600)
    step = np.where(np.arange(600) < 400, 7.0, 14.0)
    assert judge(step) == changes.Steadiness(Kind.SHIFTS, (changes.Shift(400, 2.0),), 20, 600)
    dead = judge(np.where(np.arange(600) < 400, 7.0, 0.0))
    assert dead is not None
    assert dead.kind is Kind.SHIFTS


@given(st.lists(st.floats(0, 1e12), min_size=0, max_size=400))
def test_any_series_has_an_answer(values: list[float]) -> None:
    text = unsteady(np.array(values))
    assert text is None or "throughput" in text


def test_a_trial_that_shifts_has_a_warning_and_stays_valid() -> None:
    seconds = 600
    record = replace(RECORD, window_end_ns=START_NS + seconds * 10**9)
    work = intervals(seconds=seconds)
    counts = [800 if t >= 420 else 1000 + t % 7 for t in range(-10, seconds)]
    work = work.set_column(work.schema.get_field_index("count"), "count", pa.array(counts, pa.int64()))
    data = TrialData(work, LATENCY.empty_table(), SAMPLES.empty_table())
    found = find_disturbance(record, data, bare_design(workload=WorkloadTable(kind="fio", seconds=600)))
    told = [text for text in found.warnings if "throughput" in text]
    assert told == [
        "throughput shifts inside the measured 600 s: -20% at 420 s; its mean mixes several states"
    ]
    assert not found.invalid
