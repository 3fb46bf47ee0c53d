"""Placing databases: the rules hold, and small fleets are as cheap as any plan that brute force finds."""

from __future__ import annotations

import importlib.util
import itertools
import threading

import numpy as np
import pytest

from headrace.capacity import merge
from headrace.capacity.clock import Clock
from headrace.capacity.placement import Kind, Placement, Problem
from headrace.capacity.rows import undominated
from headrace.capacity.squeeze import Squeeze

HAS_ORTOOLS = importlib.util.find_spec("ortools") is not None


def small(seed: int, items: int, *, survives: bool = True, rows: int = 4, kinds: int = 1) -> Problem:
    random = np.random.default_rng(seed)
    need = random.uniform(0.05, 0.5, (items, rows))
    groups = [set(range(start, min(start + 2, items))) for start in range(0, items - 2, 3)]
    mates = tuple(
        tuple(sorted(next((g for g in groups if i in g and len(g) > 1), {i}) - {i})) for i in range(items)
    )
    share = np.array([1 / len(m) if m else 0.0 for m in mates])
    moved = need * share[:, None]
    moved[:, -1] = 0  # memory stays
    offers = [Kind("small", np.ones(rows), 1.0)]
    if kinds == 2:
        offers.append(Kind("large", np.full(rows, 2.2), 1.9, most=1))
    names = tuple(f"db{i}" for i in range(items))
    return Problem(names, need, moved, mates, tuple(offers), np.arange(rows), survives)


def partitions(items: int) -> itertools.chain[list[list[int]]]:
    def parts(left: list[int]) -> list[list[list[int]]]:
        if not left:
            return [[]]
        found = []
        for rest in parts(left[1:]):
            found.append([[left[0]], *rest])
            for at, part in enumerate(rest):
                found.append([*rest[:at], [left[0], *part], *rest[at + 1 :]])
        return found

    return itertools.chain(parts(list(range(items))))


def cheapest(problem: Problem) -> float:
    """By trying every partition, with every kind for each part."""
    best = np.inf
    for parts in partitions(len(problem.names)):
        host_of = np.full(len(problem.names), -1, dtype=np.int64)
        for host, part in enumerate(parts):
            host_of[part] = host
        able = [[k for k in problem.kinds if problem.fits(part, k, host_of)] for part in parts]
        if not all(able):
            continue
        for chosen in itertools.product(*able):
            counts = {k.name: sum(c.name == k.name for c in chosen) for k in problem.kinds}
            if all(k.most is None or counts[k.name] <= k.most for k in problem.kinds):
                best = min(best, sum(k.price for k in chosen))
    return float(best)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("survives", "kinds"), [(False, 1), (True, 1), (True, 2)])
def test_a_small_fleet_against_every_partition(seed: int, survives: bool, kinds: int) -> None:
    problem = small(seed, 7, survives=survives, kinds=kinds)
    best = cheapest(problem)
    assert merge.lower_bound(problem) <= best + 1e-6
    found = merge.solve(problem, Clock(0.5), seed=seed, exact=False)
    assert not found.placement.unplaced
    assert not found.placement.violations()
    assert best - 1e-6 <= found.placement.price <= best * 1.34
    assert found.bound <= best + 1e-6


@pytest.mark.skipif(not HAS_ORTOOLS, reason="needs ortools")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("survives", "kinds"), [(False, 1), (True, 1), (True, 2)])
def test_the_exact_solver_finds_what_brute_force_finds(seed: int, survives: bool, kinds: int) -> None:
    problem = small(seed, 7, survives=survives, kinds=kinds)
    found = merge.solve(problem, Clock(60.0), seed=seed)
    assert not found.placement.violations()
    assert found.is_proven
    assert found.placement.price == pytest.approx(cheapest(problem))


def test_members_of_a_group_never_share_a_host_even_if_one_would_carry_all() -> None:
    need = np.full((3, 1), 0.01)
    mates = ((1, 2), (0, 2), (0, 1))
    problem = Problem(
        ("a", "b", "c"), need, need / 2, mates, (Kind("h", np.ones(1)),), np.zeros(1, dtype=np.int64)
    )
    found = merge.solve(problem, Clock(1.0))
    assert sorted(map(len, found.placement.members)) == [1, 1, 1]
    assert found.bound == 3


def test_replicas_carry_a_failed_hosts_load() -> None:
    """Two pairs of 0.4: two hosts carry them, but not each other's as well, nor do three; with 0.2 they do."""
    for size, hosts in ((0.4, 4), (0.2, 2)):
        need = np.full((4, 1), size)
        mates = ((1,), (0,), (3,), (2,))
        problem = Problem(
            ("a1", "a2", "b1", "b2"), need, need, mates, (Kind("h", np.ones(1)),), np.zeros(1, dtype=np.int64)
        )
        found = merge.solve(problem, Clock(1.0))
        assert not found.placement.violations()
        assert len(found.placement.used) == hosts
        assert found.placement.price == cheapest(problem)


@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("kinds", [1, 2])
def test_the_swaps_know_how_full_hosts_are(survives: bool, kinds: int) -> None:
    """Without one host others are too full; whatever is swapped, each is as full as the finished plan says."""
    problem = small(3, 40, survives=survives, kinds=kinds)
    plan = merge.first(problem)
    attempt = Squeeze(plan, plan.used[-1], None, np.random.default_rng(1))
    before = attempt.fullness.max()
    attempt.run(Clock(5.0), 3)
    assert before > 1
    found = attempt.plan()
    assert not found.unplaced
    assert len(found.used) == len(plan.used) - 1
    use = [(found.worst(h) / found.kinds[h].carries).max() for h in found.used]
    np.testing.assert_allclose(use, attempt.fullness, rtol=1e-5)
    for host in found.used:
        assert not {m for i in found.members[host] for m in problem.mates[i]} & set(found.members[host])


def test_swaps_find_what_filling_one_host_after_the_other_does_not() -> None:
    """Ten hosts filled to the brim, cut into four parts each: the greedy needs more, the swaps do not."""
    random = np.random.default_rng(4)
    need = np.concatenate([random.dirichlet(np.full(4, 4.0), 3).T for _ in range(10)]) * 0.92
    names = tuple(f"db{i}" for i in range(40))
    kinds = (Kind("h", np.ones(3)),)
    problem = Problem(names, need, need * 0, ((),) * 40, kinds, np.zeros(3, dtype=np.int64))
    assert len(merge.first(problem).used) > 10
    found = merge.solve(problem, Clock(30.0), exact=False)
    assert not found.placement.violations()
    assert len(found.placement.used) == 10
    assert found.is_proven


@pytest.mark.parametrize("price", [0.01, 1.0, 1e6])
def test_the_best_mix_of_two_kinds_is_known_to_be_the_best(price: float) -> None:
    """Too many databases for the exact solver: the search must stop at a plan that meets the bound."""
    need = np.full((60, 1), 0.5)
    kinds = (Kind("small", np.ones(1), 60 * price), Kind("large", np.full(1, 2.0), 100 * price))
    names = tuple(f"db{i}" for i in range(60))
    problem = Problem(names, need, need * 0, ((),) * 60, kinds, np.zeros(1, dtype=np.int64), survives=False)
    found = merge.solve(problem, Clock(30.0))
    assert found.placement.price == pytest.approx(1500 * price)
    assert (found.is_proven, found.gap, found.solver) == (True, 0, "greedy")


def test_a_group_without_a_host_left_is_no_attempt() -> None:
    """Three replicas on three hosts: without one of them nothing can be swapped."""
    need = np.full((3, 1), 0.01)
    names, mates = ("a", "b", "c"), ((1, 2), (0, 2), (0, 1))
    problem = Problem(names, need, need / 2, mates, (Kind("h", np.ones(1)),), np.zeros(1, dtype=np.int64))
    plan = merge.first(problem)
    assert not Squeeze(plan, plan.used[0], None, np.random.default_rng(1)).run(Clock(5.0), 3)


def test_a_database_that_no_host_carries_is_left_out_and_the_others_are_placed() -> None:
    need = np.array([[1.5], [0.5]])
    problem = Problem(
        ("huge", "fine"), need, need * 0, ((), ()), (Kind("h", np.ones(1)),), np.zeros(1, dtype=np.int64)
    )
    found = merge.solve(problem, Clock(1.0))
    assert found.placement.unplaced == [0]
    assert not found.is_proven


def test_no_more_hosts_of_a_kind_than_there_are() -> None:
    need = np.full((4, 1), 0.9)
    kinds = (Kind("few", np.ones(1), 1.0, most=3),)
    problem = Problem(tuple("abcd"), need, need * 0, ((),) * 4, kinds, np.zeros(1, dtype=np.int64))
    found = merge.solve(problem, Clock(1.0))
    assert len(found.placement.used) == 3
    assert len(found.placement.unplaced) == 1


def test_a_search_that_is_stopped_returns_its_best_plan() -> None:
    problem = small(1, 30)
    clock = Clock(3600.0)
    clock.listen = lambda found: clock.stop()
    found = merge.solve(problem, clock, exact=False)
    assert not found.placement.unplaced
    assert not found.placement.violations()


@pytest.mark.skipif(not HAS_ORTOOLS, reason="needs ortools")
def test_the_exact_solver_is_stopped_as_well() -> None:
    problem = small(1, 36, rows=40)
    clock = Clock(3600.0)
    threading.Timer(0.5, clock.stop).start()
    found = merge.solve(problem, clock)
    assert not found.placement.unplaced
    assert not found.placement.violations()


def test_times_that_never_exceed_another_one_are_left_out() -> None:
    rows = np.array([[1.0, 2.0, 2.0, 0.5], [1.0, 1.0, 1.0, 3.0]])
    assert undominated(rows) in ([1, 3], [2, 3])


def test_the_bound_knows_that_replicas_need_room() -> None:
    """Ten pairs of 0.5: ten hosts by sums, but each must keep 0.5 free."""
    need = np.full((20, 1), 0.5)
    mates = tuple((i + 1,) if i % 2 == 0 else (i - 1,) for i in range(20))
    names = tuple(map(str, range(20)))
    problem = Problem(names, need, need, mates, (Kind("h", np.ones(1)),), np.zeros(1, dtype=np.int64))
    assert merge.lower_bound(problem) == 20
    found = merge.solve(problem, Clock(1.0))
    assert found.placement.price == 20
    assert found.is_proven


def test_an_empty_plan_has_no_violation() -> None:
    assert not Placement(small(0, 3)).violations()


@pytest.mark.skipif(not HAS_ORTOOLS, reason="needs ortools")
@pytest.mark.parametrize(
    ("needs", "kinds", "price"),
    [
        # The cheapest plan has more hosts than the one to begin with.
        ([3.703, 3.798, 2.512, 3.805, 7.342, 6.885, 2.901], [(9.5, 92), (14.5, 129), (21.5, 208)], 313),
        # Sizes that fill a host to the brim.
        ([5, 8, 3, 7, 3], [(14, 141), (12, 130), (22, 221)], 271),
    ],
)
def test_what_is_proven_to_be_the_best_is_the_best(
    needs: list[float], kinds: list[tuple[float, float]], price: float
) -> None:
    need = np.array(needs)[:, None]
    offers = tuple(Kind(f"k{n}", np.array([size]), price) for n, (size, price) in enumerate(kinds))
    names = tuple(map(str, range(len(needs))))
    problem = Problem(names, need, need * 0, ((),) * len(needs), offers, np.zeros(1, dtype=np.int64))
    assert cheapest(problem) == price
    found = merge.solve(problem, Clock(60.0))
    assert found.is_proven
    assert found.placement.price == price


@pytest.mark.skipif(not HAS_ORTOOLS, reason="needs ortools")
def test_what_holds_only_because_it_was_rounded_is_not_proven() -> None:
    """Three thirds and a hair more than a host: rounded down they fit."""
    need = np.full((3, 1), (1 + 1e-7) / 3)
    kinds = (Kind("h", np.ones(1)),)
    problem = Problem(tuple("abc"), need, need * 0, ((),) * 3, kinds, np.zeros(1, dtype=np.int64))
    found = merge.solve(problem, Clock(10.0))
    assert not found.placement.violations()
    assert len(found.placement.used) == 2
