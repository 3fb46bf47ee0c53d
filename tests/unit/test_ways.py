"""Which way of measuring decides soonest, from seconds of known noise."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.experiment.stats import ways
from headrace.experiment.stats.ways import Way


def seconds(starts: float, noise: float, trials: int = 400, length: int = 15) -> list[np.ndarray]:
    """Trials whose starts differ by this sd, and whose seconds vary independently by that."""
    rng = np.random.default_rng(1)
    levels = rng.normal(0, starts, trials)
    return [1000 * np.exp(level + rng.normal(0, noise, length)) for level in levels]


def test_a_trial_varies_by_its_start_and_its_seconds() -> None:
    found = ways.of_trial(seconds(0.1, 0.2), 20)
    assert found == pytest.approx((0.1**2 + 0.2**2 / 20) ** 0.5, rel=0.15)


def test_a_turn_does_not_vary_by_its_start() -> None:
    found = ways.of_turn(seconds(0.5, 0.1), 3, 2)
    assert found == pytest.approx(0.1 / 3**0.5, rel=0.15)


def test_a_lasting_difference_of_the_halves_cancels() -> None:
    first, second = seconds(0.0, 0.1, 2, 4000)
    assert ways.of_pair(first, 3 * second, 10) == pytest.approx((2 * 0.1**2 / 10) ** 0.5, rel=0.2)


def test_it_is_never_too_quiet_to_be_true() -> None:
    still = [np.full(15, 100.0)] * 4
    assert ways.of_trial(still, 10) == ways.of_turn(still, 3, 2) == ways.LEAST_SD


def test_turns_longer_than_the_minute_say_nothing() -> None:
    assert ways.of_turn(seconds(0.1, 0.1, 4), 12, 2) is None


def test_the_soonest_way_wins_and_one_that_never_ends_does_not() -> None:
    made = [
        Way("restart", 0.05, 100.0),
        Way("switchback", 0.10, 15.0, 20.0, 10),
        Way("duet", 5.0, 1.0),
        Way("other", why_not="no"),
    ]
    found = [ways.decided(way, 0.05, 1, 0.05) for way in made]
    assert [way.hours is None for way in found] == [False, False, True, True]
    best = ways.soonest(found)
    assert best is not None
    assert best.name == "switchback"
    # Twice the noise takes four times the blocks.
    assert (found[1].blocks or 0) / (found[0].blocks or 1) == pytest.approx(4, rel=0.4)
    assert found[1].hours == pytest.approx(
        ((found[1].blocks or 0) * 15 + -(-(found[1].blocks or 0) // 10) * 20) / 3600
    )
