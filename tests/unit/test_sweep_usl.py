"""The Universal Scalability Law on data whose law is known: the fit, its refusals, its intervals' coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import least_squares

from headrace.base.intervals import Interval
from headrace.experiment.stats import usl

LOADS = np.array([1, 2, 4, 8, 16, 32, 64], dtype=float)
ALPHA = 0.05


def law(load: NDArray[np.float64], lambda_ops_s: float, sigma: float, kappa: float) -> NDArray[np.float64]:
    return lambda_ops_s * load / (1 + sigma * (load - 1) + kappa * load * (load - 1))


def points_of(table: NDArray[np.float64], loads: NDArray[np.float64] = LOADS) -> list[usl.Point]:
    """A row a pass, a column a level."""
    return [
        usl.Point(float(load), block, float(value))
        for block, row in enumerate(table, start=1)
        for load, value in zip(loads, row, strict=True)
    ]


def study(
    rng: np.random.Generator,
    passes: int,
    truth: NDArray[np.float64],
    noise: NDArray[np.float64] | float = 0.03,
) -> list[usl.Point]:
    """Passes that each have a pace of their own (5%), and trials that are off by themselves."""
    pace = rng.normal(0, 0.05, (passes, 1))
    return points_of(truth * np.exp(pace + rng.normal(0, 1, (passes, len(truth))) * noise))


def holds(interval: Interval, truth: float) -> bool:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low <= truth <= interval.high


def three_errors(rate: float, n: int) -> float:
    return 3 * math.sqrt(rate * (1 - rate) / n)


def test_exact_data_give_the_law_back() -> None:
    found = usl.fit(points_of(np.tile(law(LOADS, 1000, 0.05, 0.0008), (3, 1))), ALPHA)
    assert found.lambda_ops_s.estimate == pytest.approx(1000)
    assert found.sigma.estimate == pytest.approx(0.05)
    assert found.kappa.estimate == pytest.approx(0.0008)
    assert found.peak_load.estimate == pytest.approx(math.sqrt(0.95 / 0.0008))
    at = found.peak_load.estimate
    assert found.peak_ops_s == pytest.approx(float(law(np.array([at]), 1000, 0.05, 0.0008)[0]))
    assert found.peak_ops_s > found.throughput_ops_s(at * 1.01)
    assert found.peak_ops_s > found.throughput_ops_s(at / 1.01)
    assert max(map(abs, found.residuals.values())) < 1e-9
    assert found.doubt == ""


@pytest.mark.parametrize(("sigma", "kappa"), [(0.05, 0.0008), (0.4, 0.004), (0.02, 0.0), (0.0, 0.0005)])
def test_it_is_the_least_squares_of_the_relative_errors(sigma: float, kappa: float) -> None:
    """Against a search over the law's own parameters, from a start away from the answer."""
    points = study(np.random.default_rng(5), 3, law(LOADS, 1000, sigma, kappa))
    load = np.array([p.load for p in points])
    seen = np.array([p.throughput_ops_s for p in points])

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(seen / law(load, 1000 * at[0], at[1], at[2] / 1000) - 1)

    peer = least_squares(errors, x0=[0.5, 0.5, 5.0], bounds=([0, 0, 0], np.inf), xtol=1e-13, ftol=1e-13)
    found = usl.fit(points, ALPHA)
    ours = [found.lambda_ops_s.estimate / 1000, found.sigma.estimate, found.kappa.estimate * 1000]
    assert float(np.sum(errors(np.array(ours)) ** 2)) <= float(np.sum(peer.fun**2)) * (1 + 1e-6)
    assert ours == pytest.approx(peer.x, rel=1e-3, abs=2e-4)


@pytest.mark.parametrize("levels", [0, 1, 3, 5])
def test_below_six_levels_it_refuses_and_says_how_many_there_are(levels: int) -> None:
    truth = law(LOADS[:levels], 1000, 0.05, 0.001)
    points = points_of(np.tile(truth, (4, 1)), LOADS[:levels])
    said = usl.refusal(points)
    assert said.startswith("the Universal Scalability Law needs 6 distinct levels")
    assert said.endswith(f" {levels}")


def test_six_levels_are_enough() -> None:
    assert usl.refusal(points_of(law(LOADS[:6], 1000, 0.05, 0.001)[None, :], LOADS[:6])) == ""


def test_a_fall_beyond_every_law_is_refused() -> None:
    loads = 2 * LOADS
    assert "no fit" in usl.refusal(points_of((1000 / loads**5)[None, :], loads))


def test_growth_beyond_every_law_is_doubted() -> None:
    points = points_of((1000 * LOADS**1.5)[None, :])
    assert usl.refusal(points) == ""
    assert "deviate by up to" in usl.fit(points, ALPHA).doubt


def test_one_pass_gives_estimates_without_intervals_and_cannot_be_tested() -> None:
    found = usl.fit(study(np.random.default_rng(1), 1, law(LOADS, 1000, 0.05, 0.001)), ALPHA)
    assert found.kappa.low is None
    assert found.peak_load.high is None
    assert found.p_value is None


@pytest.mark.slow
@pytest.mark.parametrize("is_uneven", [False, True], ids=["even", "noisier at the top"])
@pytest.mark.parametrize("passes", [3, 5])
def test_intervals_hold_the_truth_as_often_as_they_say(passes: int, is_uneven: bool) -> None:
    rng = np.random.default_rng(100 + passes)
    sigma, kappa = 0.08, 0.0009
    noise = np.linspace(0.01, 0.06, len(LOADS)) if is_uneven else 0.03
    n = 600
    held = np.zeros(4)
    for _ in range(n):
        found = usl.fit(study(rng, passes, law(LOADS, 1000, sigma, kappa), noise), ALPHA)
        held += (
            holds(found.lambda_ops_s, 1000),
            holds(found.sigma, sigma),
            holds(found.kappa, kappa),
            holds(found.peak_load, math.sqrt((1 - sigma) / kappa)),
        )
    # Not narrower than they say, nor wide for safety's sake alone.
    assert held / n == pytest.approx(np.full(4, 0.95), abs=three_errors(0.95, n) + 0.01)


def test_without_crosstalk_the_interval_of_kappa_holds_0_and_the_peak_has_no_end() -> None:
    rng = np.random.default_rng(9)
    n, held, endless = 400, 0, 0
    for _ in range(n):
        found = usl.fit(study(rng, 3, law(LOADS, 1000, 0.1, 0.0)), ALPHA)
        held += found.kappa.low == 0
        endless += found.peak_load.high == math.inf
        assert (found.kappa.low == 0) == (found.peak_load.high == math.inf)
    assert held == endless
    # Cut at 0, only the upper half of the errors is left.
    assert held / n == pytest.approx(0.975, abs=three_errors(0.975, n))


def test_a_law_that_holds_is_seldom_doubted() -> None:
    rng = np.random.default_rng(3)
    n = 400
    doubted = sum(
        usl.fit(study(rng, 3, law(LOADS, 1000, 0.08, 0.0009), 0.08), ALPHA).doubt != "" for _ in range(n)
    )
    assert doubted / n <= ALPHA + three_errors(ALPHA, n)


def test_a_server_that_collapses_at_once_is_no_such_law() -> None:
    truth = law(LOADS, 1000, 0.02, 0.0)
    truth[-2:] *= 0.25
    found = usl.fit(study(np.random.default_rng(2), 4, truth), ALPHA)
    assert "measurements deviate by up to" in found.doubt
    assert found.p_value is not None
    assert found.p_value < 0.001


def test_a_misfit_too_small_to_matter_raises_no_doubt() -> None:
    truth = law(LOADS, 1000, 0.05, 0.0009)
    truth[3] *= 1.02
    found = usl.fit(study(np.random.default_rng(2), 5, truth, 0.0005), ALPHA)
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert found.doubt == ""


def test_pure_contention_levels_off_and_has_no_peak() -> None:
    found = usl.fit(points_of(np.tile(law(LOADS, 1000, 0.25, 0.0), (3, 1))), ALPHA)
    assert found.kappa.estimate == pytest.approx(0, abs=1e-12)
    assert found.peak_load.estimate > 1e4
    assert found.peak_ops_s == pytest.approx(4000, rel=0.01)


def test_one_client_at_a_time_peaks_at_one() -> None:
    flat = np.full(len(LOADS), 1000.0)
    found = usl.fit(study(np.random.default_rng(4), 4, flat), ALPHA)
    assert found.sigma.estimate == pytest.approx(1, abs=0.1)
    assert found.peak_ops_s == pytest.approx(1000, rel=0.1)


@given(
    st.lists(
        st.lists(st.floats(1e-3, 1e9), min_size=7, max_size=7),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_was_measured_no_number_is_nan_and_every_interval_holds_its_estimate(
    table: list[list[float]],
) -> None:
    points = points_of(np.array(table))
    if usl.refusal(points):
        return
    found = usl.fit(points, ALPHA)
    assert not math.isnan(found.peak_ops_s)
    for interval in (found.lambda_ops_s, found.sigma, found.kappa, found.peak_load):
        assert interval.estimate >= 0
        for end in (interval.low, interval.high):
            assert end is None or not math.isnan(end)
        if interval.low is not None and interval.high is not None:
            assert interval.low <= interval.estimate * (1 + 1e-9)
            assert interval.high >= interval.estimate * (1 - 1e-9)
