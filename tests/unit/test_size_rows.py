"""The rows of long histories: few of them, and plans that hold at all steps nevertheless."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from headrace.capacity import merge, steps
from headrace.capacity.clock import Clock
from headrace.capacity.model import Demand, Resource
from headrace.capacity.placement import Kind, Placement, problem
from headrace.capacity.rows import MOST_TIMES, Rows, heaviest, rows_of
from headrace.capacity.steps import broken
from headrace.capacity.together import Together, together

HAS_ORTOOLS = importlib.util.find_spec("ortools") is not None
HOURS = 90 * 24


def by_day_and_by_night(hours: int) -> Together:
    """Three databases that are busy from 8 to 20 o'clock, three that are busy in the other hours."""
    is_day = (np.arange(hours) % 24 >= 8) & (np.arange(hours) % 24 < 20)
    return together([
        Demand(f"db{i}", 0, 3600, {Resource.CPU: np.where(is_day if i < 3 else ~is_day, 8.0, 0.5)})
        for i in range(6)
    ])  # fmt: skip


@pytest.mark.parametrize("days", [14, 30, 90, 365])
def test_databases_of_day_and_night_share_hosts_however_long_they_were_watched(days: int) -> None:
    fleet = by_day_and_by_night(24 * days)
    some = rows_of(fleet, 1.0)
    found = merge.solve(
        problem(fleet, [Kind("h", np.full(len(some.resource), 16.0))], some), Clock(0.5), exact=False
    )
    assert len(found.placement.used) == 3


def bursts(seed: int, databases: int) -> Together:
    """Little all the time, and bursts in hours of its own; every third pair of databases are replicas."""
    random = np.random.default_rng(seed)
    demands = []
    for i in range(databases):
        used = {r: random.uniform(0.05, 0.15, HOURS) for r in (Resource.CPU, Resource.WRITES)}
        for values in used.values():
            values[random.integers(HOURS, size=200)] += random.uniform(0.2, 0.34)
        demands.append(Demand(f"db{i}", 0, 3600, used, f"g{i // 2}" if i % 6 < 2 else ""))
    return together(demands)


def holds(plan: Placement, fleet: Together, carries: float) -> bool:
    """At every step, whichever host fails, computed from nothing but the loads."""
    moved = np.where([r is Resource.CPU for r in fleet.resources], 1.0, 0.0)[:, None]
    for failed in [None, *plan.used]:
        for host in (h for h in plan.used if h != failed):
            load = fleet.values[plan.members[host]].sum(axis=0)
            mates = [
                m for i in plan.members[host] for m in plan.problem.mates[i] if plan.host_of[m] == failed
            ]
            load = load + (fleet.values[mates] * moved).sum(axis=0)
            if load.max() > carries * (1 + 1e-6):
                return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_from_some_of_the_steps_holds_at_all_of_them(seed: int) -> None:
    fleet = bursts(seed, 20)
    some = rows_of(fleet, 1.0)
    assert len(some.resource) <= 2 * MOST_TIMES < HOURS
    found = merge.solve(
        problem(fleet, [Kind("h", np.ones(len(some.resource)))], some), Clock(3.0), exact=False
    )
    assert not found.placement.unplaced
    assert holds(found.placement, fleet, 1.0)
    # The first rows alone do not show that.
    first = merge.first(problem(fleet, [Kind("h", np.ones(len(some.resource)))], some))
    assert bool(broken(first)) == (not holds(first, fleet, 1.0))


def test_the_first_rows_alone_miss_bursts() -> None:
    """What the tests above rely on: some first plan does break at a step that is no row yet."""
    firsts = []
    for seed in range(4):
        some = rows_of(fleet := bursts(seed, 20), 1.0)
        firsts.append(merge.first(problem(fleet, [Kind("h", np.ones(len(some.resource)))], some)))
    assert any(broken(each) for each in firsts)


@pytest.mark.skipif(not HAS_ORTOOLS, reason="needs ortools")
@pytest.mark.parametrize("seed", range(3))
def test_the_best_plan_of_some_steps_is_the_best_of_all_steps(seed: int) -> None:
    fleet = bursts(seed, 7)
    some = rows_of(fleet, 1.0)
    every = Rows(np.concatenate([fleet.values[:, 0], fleet.values[:, 1]], axis=1), np.repeat([0, 1], HOURS))
    prices = []
    for each in (some, every):
        asked = problem(fleet, [Kind("h", np.ones(each.need.shape[1]))], each)
        found = merge.solve(asked, Clock(60.0))
        assert found.is_proven
        assert holds(found.placement, fleet, 1.0)
        prices.append(found.placement.price)
    assert prices[0] == prices[1]


def test_without_time_for_the_steps_a_plan_holds_but_may_be_dear() -> None:
    fleet = bursts(1, 20)
    some = rows_of(fleet, 1.0)
    asked = problem(fleet, [Kind("h", np.ones(len(some.resource)))], some)
    found = merge.solve(asked, Clock(0.0))
    assert holds(found.placement, fleet, 1.0)
    assert not found.is_proven or found.placement.price == found.bound
    assert steps.joined(asked).need.shape[1] <= len(some.resource) + 2 * MOST_TIMES


def test_each_time_of_day_is_among_the_first_rows() -> None:
    values = np.zeros((1, HOURS))
    values[0] = np.arange(HOURS) % 24 + np.arange(HOURS) / HOURS
    chosen = heaviest(values, 24)
    assert len(chosen) == MOST_TIMES
    assert set(chosen % 24) == set(range(24))
    # The last day is the busiest, and the last hours of the last days the busiest of all.
    assert set(range(HOURS - 24, HOURS)) <= set(chosen)
    assert {HOURS - 1 - 24 * day for day in range(10)} <= set(chosen)
