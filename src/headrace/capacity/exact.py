"""Small fleets solved to the end by OR-Tools' CP-SAT (``pip install 'headrace[size]'``).

The model starts with the tightest rows and no failure. What its plan breaks is added, until it breaks nothing:
then the plan is the best of all, because a model with fewer rules cannot have a dearer best plan.

The solver counts in whole units. Needs are rounded down and capacities up, so that no plan is lost. Where a plan
holds only because of that, the same is asked again with the opposite rounding: if that costs as much, it is best.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from itertools import permutations
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from headrace.capacity.clock import Clock
from headrace.capacity.placement import TINY, Placement, Problem

#: Beyond that the search by neighbourhoods is better within a minute.
MOST_DATABASES = 40
#: Needs and capacities are counted in this share of a row's largest capacity, prices in that of the largest price.
UNITS = 1_000_000
#: What floats add to a whole number of units.
NOISE = 1e-3
FIRST_ROWS = 16


class Model:
    """``hosts`` slots, each of one kind or unused. Slots are numbered by their first database. ``is_strict``: what
    fits here fits; otherwise what does not fit here does not fit."""

    def __init__(self, problem: Problem, most_price: float, *, is_strict: bool = False) -> None:
        self.problem, self.is_strict, self.items = problem, is_strict, range(len(problem.names))
        # A cheaper plan may have more hosts, if they are cheaper.
        least = min(kind.price for kind in problem.kinds)
        hosts = self.hosts = min(len(self.items), int(most_price / least + NOISE))
        self.model = model = cp_model.CpModel()
        self.on = {
            (i, h): model.new_bool_var(f"on{i}_{h}") for i in self.items for h in range(min(i + 1, hosts))
        }
        self.is_kind = [
            [model.new_bool_var(f"k{h}_{k}") for k in range(len(problem.kinds))] for h in range(hosts)
        ]
        for i in self.items:
            model.add_exactly_one(self.on[i, h] for h in range(min(i + 1, hosts)))
            for mate in problem.mates[i]:
                if mate > i:
                    for h in range(min(i + 1, hosts)):
                        model.add_at_most_one(self.on[i, h], self.on[mate, h])
        for h in range(hosts):
            model.add_at_most_one(self.is_kind[h])
        for k, kind in enumerate(problem.kinds):
            if kind.most is not None:
                model.add(sum(self.is_kind[h][k] for h in range(hosts)) <= kind.most)
        self.unit = max(kind.price for kind in problem.kinds) / UNITS
        prices = [round(kind.price / self.unit) for kind in problem.kinds]
        self.price = sum(prices[k] * self.is_kind[h][k] for h in range(hosts) for k in range(len(prices)))
        model.minimize(self.price)
        # Each host's price may be rounded by half a unit.
        model.add(self.price <= int(most_price / self.unit) + hosts)
        self.rows: set[int] = set()
        self.failures: set[int] = set()
        self._both: dict[tuple[int, int, int, int], Any] = {}

    def _scaled(self, row: int) -> tuple[list[int], list[int], list[int]]:
        problem = self.problem
        top = max((k.carries[row] for k in problem.kinds if np.isfinite(k.carries[row])), default=1.0) or 1.0
        total = float(problem.need[:, row].sum()) + top
        units = UNITS / top
        carries = [
            self._whole(min(float(k.carries[row]), total) * units, not self.is_strict) for k in problem.kinds
        ]
        need = [self._whole(v * units, self.is_strict) for v in problem.need[:, row]]
        moved = [self._whole(v * units, self.is_strict) for v in problem.moved[:, row]]
        return need, moved, carries

    @staticmethod
    def _whole(value: float, is_up: bool) -> int:
        return int(np.ceil(value - NOISE)) if is_up else int(np.floor(value + NOISE))

    def add_row(self, row: int) -> None:
        self.rows.add(row)
        need, _, carries = self._scaled(row)
        for h in range(self.hosts):
            room = sum(c * k for c, k in zip(carries, self.is_kind[h], strict=True))
            self.model.add(sum(need[i] * self.on[i, h] for i in self.items if (i, h) in self.on) <= room)

    def add_failures(self, row: int) -> None:
        """At this row any one host may fail."""
        self.failures.add(row)
        need, moved, carries = self._scaled(row)
        for h, failed in permutations(range(self.hosts), 2):
            extra = [
                moved[m] * self._at_both(i, h, m, failed)
                for i in self.items
                for m in self.problem.mates[i]
                if (i, h) in self.on and (m, failed) in self.on
            ]
            if extra:
                room = sum(c * k for c, k in zip(carries, self.is_kind[h], strict=True))
                load = sum(need[i] * self.on[i, h] for i in self.items if (i, h) in self.on)
                self.model.add(load + sum(extra) <= room)

    def _at_both(self, i: int, h: int, m: int, failed: int) -> Any:
        key = (i, h, m, failed)
        if key not in self._both:
            self._both[key] = both = self.model.new_bool_var("both")
            self.model.add_bool_or(both, self.on[i, h].negated(), self.on[m, failed].negated())
        return self._both[key]


def whole(problem: Problem, start: Placement, clock: Clock) -> tuple[Placement, bool]:
    """The best plan, and whether it is proven to be the best; ``start`` if none is found in time."""
    if start.unplaced:
        return start, False
    plan, is_best = _cheapest(Model(problem, start.price), clock)
    if plan is None:
        return start, False
    if not plan.violations():
        return plan, is_best
    strict, _ = _cheapest(Model(problem, start.price, is_strict=True), clock)
    if strict is None or strict.violations() or strict.price > start.price:
        strict = start
    return strict, is_best and strict.price <= plan.price * (1 + 1e-6)


def _cheapest(model: Model, clock: Clock) -> tuple[Placement | None, bool]:
    """The cheapest plan of this model, or the best one found in time; and whether it is the cheapest. It may break
    rows by what they were rounded."""
    problem = model.problem
    total = problem.need.sum(axis=0)
    shares = np.max([total / np.where(k.carries > 0, k.carries, 1e-12) for k in problem.kinds], axis=0)
    for row in np.argsort(-shares)[:FIRST_ROWS]:
        model.add_row(int(row))
    while clock.left_s > 0:
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(clock.left_s, 0.1)
        solver.parameters.num_workers = 2
        solver.parameters.catch_sigint_signal = False
        status = _solved(solver, model, clock)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, False
        plan = _plan(model, solver)
        broken, failing = _broken(plan)
        new = (broken - model.rows, failing - model.failures)
        if not new[0] and not new[1]:
            return plan, status == cp_model.OPTIMAL
        for row in new[0]:
            model.add_row(row)
        for row in new[1]:
            model.add_failures(row)
    return None, False


def _solved(solver: Any, model: Model, clock: Clock) -> Any:
    """The status. In a thread: Python hears of Ctrl-C only outside the solver."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(solver.solve, model.model)
        while not answer.done():
            if clock.is_stopped:
                solver.stop_search()
            wait([answer], timeout=0.2)
        return answer.result()


def _plan(model: Model, solver: Any) -> Placement:
    plan = Placement(model.problem)
    for h in range(model.hosts):
        chosen = [k for k, var in enumerate(model.is_kind[h]) if solver.value(var)]
        members = [i for i in model.items if (i, h) in model.on and solver.value(model.on[i, h])]
        if members:
            host = plan.open(model.problem.kinds[chosen[0]])
            for item in members:
                plan.put(item, host)
    return plan


def _broken(plan: Placement) -> tuple[set[int], set[int]]:
    """The worst broken row of each host, and the worst that breaks only when another host fails."""
    broken, failing = set(), set()
    for host in plan.used:
        carries = plan.kinds[host].carries
        over = plan.load(host) - carries
        if over.max() > TINY:
            broken.add(int(over.argmax()))
        elif (worst := plan.worst(host) - carries).max() > TINY:
            failing.add(int(worst.argmax()))
    return broken, failing
