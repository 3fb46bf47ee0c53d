"""Runs that do not fit the others of their treatment, and those of which nothing tells."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.experiment.stats import misfits
from headrace.experiment.stats.estimate import Seen


def runs(
    treatments: int, repeats: int, rng: np.random.Generator, noise: float = 0.03, blocks: float = 0.0
) -> list[Seen]:
    of_blocks = rng.normal(0, blocks, repeats)
    return [
        Seen(str(t), block if blocks else 0, float(rng.normal(0.1 * t, noise) + of_blocks[block]))
        for t in range(treatments)
        for block in range(repeats)
    ]


def spoiled(seen: list[Seen], places: set[int], by: float = -0.7) -> list[Seen]:
    return [run._replace(log=run.log + by) if i in places else run for i, run in enumerate(seen)]


@pytest.mark.parametrize(
    ("treatments", "repeats", "blocks"), [(2, 4, 0.0), (4, 3, 0.0), (4, 5, 0.2), (2, 8, 0.0)]
)
def test_the_one_at_half_speed_is_told_wherever_it_is(treatments: int, repeats: int, blocks: float) -> None:
    rng = np.random.default_rng(1)
    seen = runs(treatments, repeats, rng, blocks=blocks)
    told = [misfits.of_runs(spoiled(seen, {place})) == [place] for place in range(len(seen))]
    assert np.mean(told) >= 0.8
    assert misfits.of_runs(seen) == []


def test_of_two_runs_nothing_tells() -> None:
    assert misfits.of_runs(spoiled(runs(6, 2, np.random.default_rng(2)), {3})) == []


def test_where_many_are_spoiled_those_of_three_are_left_alone() -> None:
    """One treatment lost two of its three runs: its good run is the one that is far from the others."""
    seen = runs(9, 3, np.random.default_rng(3))
    assert misfits.of_runs(spoiled(seen, {0, 1, 9, 15})) == []


def test_what_varies_has_no_misfits_by_that_alone() -> None:
    rng = np.random.default_rng(4)
    named = 0
    for _ in range(300):
        seen = runs(4, 4, rng)
        named += bool(misfits.of_runs([r._replace(log=5 * r.log) if r.treatment == "0" else r for r in seen]))
    assert named <= 300 * 0.05


def test_normal_noise_has_hardly_any() -> None:
    rng = np.random.default_rng(5)
    assert sum(bool(misfits.of_runs(runs(4, 5, rng))) for _ in range(1000)) <= 4


def test_runs_that_are_equal_and_less_than_what_matters_are_none() -> None:
    seen = [Seen(str(i % 2), 0, 1.0) for i in range(8)]
    assert misfits.of_runs(spoiled(seen, {3}, by=0.02)) == []
