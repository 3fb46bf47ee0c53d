"""Effects, groups, choices: on the published tables beside independent computations, and on tables made here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from headrace.experiment.stats import choice
from headrace.experiment.stats.effects import Effects, Observation, analyse, holm
from tests import published

FACTORS = ("kernel", "filesystem", "chunk")
WRITES, READS = published.random_writes(), published.random_reads()


def observed(table: Mapping[choice.Cell, float], names: Sequence[str] = FACTORS) -> list[Observation]:
    return [
        Observation(dict(zip(names, cell, strict=True)), math.log(value)) for cell, value in table.items()
    ]


def term(found: Effects, *names: str):  # type: ignore[no-untyped-def]
    return next(t for t in found.terms if set(t.term) == set(names))


@pytest.mark.parametrize("table", [WRITES, READS])
def test_sums_of_squares_are_those_of_the_textbook(table: Mapping[choice.Cell, float]) -> None:
    """A balanced table: every sum of squares is that of its means (Box, Hunter & Hunter, ch. 5): plain loops."""
    found = analyse(observed(table))
    logs = {cell: math.log(value) for cell, value in table.items()}
    grand = mean(logs.values())

    def marginal(places: tuple[int, ...], key: tuple[str, ...]) -> float:
        return mean(v for c, v in logs.items() if tuple(c[p] for p in places) == key)

    total = sum((v - grand) ** 2 for v in logs.values())
    shares = 0.0
    for i in range(3):
        own = sum((marginal((i,), (c[i],)) - grand) ** 2 for c in logs) / total
        shares += own
        assert term(found, FACTORS[i]).share == pytest.approx(own)
    for i, j in itertools.combinations(range(3), 2):
        own = (
            sum(
                (marginal((i, j), (c[i], c[j])) - marginal((i,), (c[i],)) - marginal((j,), (c[j],)) + grand)
                ** 2
                for c in logs
            )
            / total
        )
        shares += own
        assert term(found, FACTORS[i], FACTORS[j]).share == pytest.approx(own)
    assert found.error == "interactions"
    assert found.error_degrees == 1 * 2 * 3
    assert found.deviation is not None
    assert found.deviation**2 * 6 == pytest.approx((1 - shares) * total)


def test_p_values_are_those_of_the_f_distribution() -> None:
    found = analyse(observed(WRITES))
    file_system = term(found, "filesystem")
    rest = 1 - sum(t.share for t in found.terms)
    ratio = file_system.share / 2 / (rest / 6)
    assert file_system.p == pytest.approx(stats.f.sf(ratio, 2, 6))
    assert [t.p_holm for t in found.terms] == holm([t.p for t in found.terms if t.p is not None])


def test_marginal_means_are_geometric_means_of_cells() -> None:
    found = analyse(observed(WRITES))
    for level in found.levels:
        place = FACTORS.index(level.factor)
        own = [math.log(v) for c, v in WRITES.items() if c[place] == level.level]
        assert level.mean == pytest.approx(math.exp(mean(own)))


def test_the_chunk_matters_on_the_old_kernel_and_on_ext4() -> None:
    """What the study concluded, with the cells' own geometric means beside."""
    found = analyse(observed(WRITES))
    spread = {(c.by, c.at): c.spread for c in found.conditionals if c.factor == "chunk"}
    assert spread["kernel", "3.13"] > 3.5
    assert spread["kernel", "3.18"] < 1.2
    assert spread["filesystem", "xfs"] < 1.25
    assert min(spread["filesystem", f"ext4 data={mode}"] for mode in ("ordered", "journal")) > 2.5
    for conditional in found.conditionals:
        if (conditional.factor, conditional.by, conditional.at) == ("chunk", "kernel", "3.13"):
            for chunk, value in conditional.means.items():
                cells = [math.log(v) for c, v in WRITES.items() if c[0] == "3.13" and c[2] == chunk]
                assert value == pytest.approx(math.exp(mean(cells)))


def test_which_cells_collapsed_and_which_are_merely_slower() -> None:
    fast, slow, collapsed = choice.groups(WRITES)
    assert (collapsed.best, collapsed.worst) == (102.61, 86.96)
    assert [g.is_collapsed for g in (fast, slow, collapsed)] == [False, False, True]
    assert {c[0] for c in collapsed.cells} == {"3.13"}
    assert {c[1] for c in collapsed.cells} == {"ext4 data=journal", "ext4 data=ordered"}
    assert {c[2] for c in collapsed.cells} == {"4K", "64K"}
    assert {c[:2] for c in slow.cells} == {("3.18", "ext4 data=journal")}
    (reads,) = choice.groups(READS)
    assert not reads.is_collapsed


@pytest.mark.parametrize(("table", "worst"), [(WRITES, 0.362), (READS, 0.681)])
def test_the_newer_kernel_is_at_least_as_good_except_where_it_is_not(
    table: Mapping[choice.Cell, float], worst: float
) -> None:
    found = choice.level_pair(table, FACTORS, "kernel", "3.18", "3.13")
    named = {
        (fs, chunk)
        for (kernel, fs, chunk), value in table.items()
        if kernel == "3.18" and value < table["3.13", fs, chunk] / 1.03
    }
    assert set(found.behind) == named
    assert not found.is_at_least_as_good
    assert found.behind[0] == ("ext4 data=journal", "256K")
    assert found.ratios[found.behind[0]] == pytest.approx(worst, abs=0.001)


def test_trade_offs() -> None:
    points: dict[choice.Cell, Sequence[float]] = {
        ("a",): (10.0, 5.0),
        ("b",): (8.0, 2.0),
        ("c",): (7.0, 3.0),
        ("d",): (10.0, 6.0),
        ("e",): (1.0, 2.0),
    }
    assert choice.pareto(points, [True, False]) == [("a",), ("b",)]


# Tables with a known truth.


def test_repeats_in_blocks_are_the_error() -> None:
    """The interval covers the truth in about 95% of the studies, simultaneously over both factors' levels."""
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        table = [
            Observation(
                {"a": a, "b": b}, 0.2 * (a == "a2") + 0.1 * (b == "b3") + blocks[k] + rng.normal(0, 0.02), k
            )
            for blocks in [rng.normal(0, 0.1, 4)]
            for k in range(4)
            for a in ("a1", "a2")
            for b in ("b1", "b2", "b3")
        ]
        found = analyse(table)
        assert found.error == "repeats"
        truth = {"a1": 1, "a2": math.exp(0.2), "b1": 1, "b2": 1, "b3": math.exp(0.1)}
        ends = [(r.ratio.low, truth[r.level], r.ratio.high) for r in found.levels if r.ratio.low is not None]
        assert len(ends) == 3
        covered += all(low <= value <= high for low, value, high in ends if low and high)
    assert covered >= 200 * 0.95 - 3 * math.sqrt(200 * 0.95 * 0.05)


def test_nothing_matters_in_noise() -> None:
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(200):
        table = [
            Observation({"a": str(a), "b": str(b)}, rng.normal(0, 0.02), k)
            for k in range(3)
            for a in range(3)
            for b in range(3)
        ]
        wrong += any(t.p_holm is not None and t.p_holm < 0.05 for t in analyse(table).terms)
    assert wrong <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_two_factors_once_each_have_no_interval() -> None:
    found = analyse(
        observed({("a", "x"): 1.0, ("a", "y"): 2.0, ("b", "x"): 3.0, ("b", "y"): 9.0}, ("f", "g"))
    )
    assert found.error == "none"
    assert all(t.p is None for t in found.terms)
    assert all(r.ratio.low is None for r in found.levels)


def test_a_cell_that_is_missing_is_named() -> None:
    table = {cell: value for cell, value in WRITES.items() if cell != ("3.13", "xfs", "4K")}
    found = analyse(observed(table))
    assert found.missing == ({"kernel": "3.13", "filesystem": "xfs", "chunk": "4K"},)
    assert found.observations == 23


def test_one_level_is_no_factor() -> None:
    with pytest.raises(ValueError, match="two levels"):
        analyse([Observation({"a": "x"}, 1.0), Observation({"a": "x"}, 2.0)])


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
