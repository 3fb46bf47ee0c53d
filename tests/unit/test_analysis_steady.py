"""MSER-5 against its definition, and the warning it gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.experiment.stats.steady import mser5, warm_up_too_short


def by_definition(series: NDArray[np.float64]) -> int:
    batches = [series[i : i + 5].mean() for i in range(0, len(series) // 5 * 5, 5)]
    errors = []
    for cut in range(len(batches) // 2 + 1):
        rest = np.array(batches[cut:])
        errors.append(float(np.sum((rest - rest.mean()) ** 2) / len(rest) ** 2))
    return int(np.argmin(errors)) * 5


@given(st.integers(120, 400), st.integers(0, 10_000))
def test_the_cut_is_that_of_the_definition(n: int, seed: int) -> None:
    series = np.random.default_rng(seed).normal(1000, 100, n)
    assert mser5(series) == by_definition(series)


@pytest.mark.parametrize("transient", [60, 100, 200])
def test_a_transient_is_cut_where_it_ends(transient: int) -> None:
    rng = np.random.default_rng(1)
    series = np.where(np.arange(600) < transient, 600, 1000) + rng.normal(0, 20, 600)
    assert mser5(series) == transient


def test_a_long_transient_is_warned_of_and_a_short_one_is_not() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 20, 600)
    late = warm_up_too_short(np.where(np.arange(600) < 200, 600, 1000) + noise)
    assert late is not None
    assert "200 s into the measured 600 s" in late
    assert "+15" in late
    assert warm_up_too_short(np.where(np.arange(600) < 100, 600, 1000) + noise) is None
    assert warm_up_too_short(1000 + noise) is None


def test_a_shift_too_small_to_matter_is_not_warned_of() -> None:
    noise = np.random.default_rng(3).normal(0, 1, 600)
    assert warm_up_too_short(np.where(np.arange(600) < 200, 990, 1000) + noise) is None


def test_a_short_series_says_nothing() -> None:
    ramp = np.linspace(1, 1000, 119)
    assert mser5(ramp) is None
    assert warm_up_too_short(ramp) is None


def test_a_steady_but_noisy_series_is_seldom_warned_of() -> None:
    rng = np.random.default_rng(4)
    warned = [warm_up_too_short(rng.normal(1000, 200, 600)) is not None for _ in range(300)]
    assert np.mean(warned) < 0.02
