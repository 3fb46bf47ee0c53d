"""Looks at accumulating data: their levels beside what is published, and beside a simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from headrace.base import looks
from headrace.base.looks import nominal_level, spent


def test_all_looks_together_spend_alpha_and_no_more() -> None:
    parts = [spent(look) for look in range(2, 1000)]
    assert spent(1) == 0
    assert nominal_level(0.05, 1) == 0
    assert parts == sorted(parts)
    assert 0.9 < parts[-1] < 1
    assert nominal_level(0.05, 2) == pytest.approx(0.05 * spent(2))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_random_walks_are_rejected_as_often_as_promised(alpha: float) -> None:
    rng = np.random.default_rng(3)
    walks, blocks = 100_000, 20
    z = np.cumsum(rng.standard_normal((walks, blocks)), axis=1) / np.sqrt(np.arange(1, blocks + 1))
    limits = [norm.isf(nominal_level(alpha, look)) for look in range(2, blocks + 1)]
    wrong = float((z[:, 1:] > limits).any(axis=1).mean())
    promised = alpha * spent(blocks)
    assert abs(wrong - promised) < 4 * math.sqrt(promised / walks)


def test_the_recursion_gives_back_a_published_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five looks at unit steps, each at z = 2.413, err together in 5% (two sides: Pocock 1977, Biometrika 64;
    Jennison & Turnbull 2000, table 2.1), so in 2.5% on one side. Spending what they spend, each must come out
    at 2.413."""
    sums = np.cumsum(np.random.default_rng(4).standard_normal((2_000_000, 5)), axis=1) / np.sqrt(
        np.arange(1, 6)
    )
    is_over = sums > 2.413
    cumulative = [float(is_over[:, : k + 1].any(axis=1).mean()) for k in range(5)]
    assert cumulative[-1] == pytest.approx(0.025, rel=0.02)
    monkeypatch.setattr(looks, "spent", lambda look: cumulative[look - 1] / 0.025)
    found = looks._Looks(0.025, 1)
    assert [norm.isf(found.level(k)) for k in range(1, 6)] == pytest.approx([2.413] * 5, abs=0.02)


def test_a_later_look_costs_less_than_an_independent_one() -> None:
    """The union bound gives the look after the tenth block what it may spend and no more."""
    level = nominal_level(0.05, 10)
    assert level > 3 * 0.05 * (spent(10) - spent(9))
    assert level < 0.05 * spent(10)


def test_many_looks_and_small_levels() -> None:
    levels = [nominal_level(1e-6, look) for look in range(2, 300)]
    assert all(a > b > 0 for a, b in itertools.pairwise(levels))
    assert looks.nominal_level(1e-6, 300) > 0
