"""Which databases share a host: the fewest hosts, or the cheapest, under the rules of ``placement``.

A host is filled with the database that leaves the least room in the resources that are short (norm-based greedy
for vector bin packing: Panigrahy et al. 2011, Heuristics for Vector Bin Packing). Then one host less carries all,
or a cheaper one does, as long as swaps make that fit (``squeeze``). Small fleets are solved by OR-Tools' CP-SAT
where it is installed (``exact``). No plan can be better than ``bound``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from headrace.capacity.clock import Clock
from headrace.capacity.placement import TINY, Kind, Placement, Problem, fullness
from headrace.capacity.squeeze import Squeeze
from headrace.capacity.steps import broken, extended, joined

Values = NDArray[np.float64]
#: How often an attempt makes room for hosts that stay too full: at first, and after attempts that failed.
FEWEST_ROUNDS, MOST_ROUNDS = 10, 10_000
#: Prices that differ by a smaller share are the same: the bound of several kinds of host is that exact.
SAME_PRICE = 2e-6
#: So many attempts without success, and more of the same finds nothing.
PATIENCE = 60


@dataclass(frozen=True)
class Solution:
    """``bound``: no plan is cheaper; ``is_proven``: it has been shown that none is cheaper than this one."""

    placement: Placement
    bound: float
    seconds: float
    solver: str
    is_proven: bool = False

    @property
    def gap(self) -> float | None:
        """How far the plan may be from the best one, as a share of the bound; None if that is not known, as of a
        plan without some of the databases."""
        return None if self.placement.unplaced or self.bound <= 0 else self.placement.price / self.bound - 1


def solve(problem: Problem, clock: Clock | None = None, *, seed: int = 0, exact: bool = True) -> Solution:
    """The best plan found in time. Databases that no host carries remain unplaced."""
    clock = clock or Clock()
    best, problem = settled(problem, clock)
    bound = lower_bound(problem)
    solver = "greedy"

    def found(is_proven: bool = False) -> Solution:
        return Solution(
            best.tidy(),
            best.price if is_proven else bound,
            time.monotonic() - clock.started,
            solver,
            is_proven,
        )

    clock.listen(found())
    if best.unplaced or _is_best(best, bound):
        return found(not best.unplaced)
    cpsat = _cpsat() if exact else None
    if cpsat is not None and len(problem.names) <= cpsat.MOST_DATABASES and not best.problem.is_joined:
        solver = "CP-SAT"
        best, is_proven = _exactly(cpsat, best, clock)
        if is_proven or clock.left_s <= 0:
            return found(is_proven)
    solver = "greedy and swaps"
    search = _Search(best, bound, np.random.default_rng(seed))
    while clock.left_s > 0 and not _is_best(search.best, bound) and not search.is_exhausted:
        if search.step(clock):
            best = search.best
            clock.listen(found())
    best = search.best
    return found(_is_best(best, bound))


def _is_best(plan: Placement, bound: float) -> bool:
    return plan.price * (1 - SAME_PRICE) <= bound + TINY


def settled(problem: Problem, clock: Clock) -> tuple[Placement, Problem]:
    """A plan made in one go that holds at all steps; and its problem, of which bounds are true."""
    while True:
        plan = first(problem)
        if not (more := broken(plan)):
            return plan, problem
        problem = extended(problem, more)
        if clock.left_s <= 0:
            return first(joined(problem)), problem


def _exactly(cpsat: ModuleType, best: Placement, clock: Clock) -> tuple[Placement, bool]:
    """The best plan, and whether it is proven to be. Steps at which a plan breaks are rows of the next model."""
    while True:
        plan, is_proven = cpsat.whole(best.problem, best, clock)
        more = broken(plan)
        if not more:
            return plan, is_proven
        best = best.tidy(extended(best.problem, more))
        if clock.left_s <= 0:
            return best, False


def _cpsat() -> ModuleType | None:
    from importlib.util import find_spec

    if find_spec("ortools") is None:
        return None
    from headrace.capacity import exact

    return exact


def first(problem: Problem) -> Placement:
    """The cheapest of the plans that open hosts of one kind first, each host then made as small as possible."""
    plans = []
    for kind in _worth_opening(problem):
        plan = Placement(problem)
        weight = weights(problem, kind)
        left = list(range(len(problem.names)))
        for each in [kind, *(k for k in problem.kinds if k is not kind)]:
            left = fill(plan, left, each, weight)
        plans.append(smaller(plan))
    return min(plans, key=lambda plan: (len(plan.unplaced), plan.price, len(plan.used)))


#: Kinds that are tried as the one that hosts are opened of.
MOST_KINDS = 6


def _worth_opening(problem: Problem) -> list[Kind]:
    """The kinds with the lowest bound on the price of a fleet of only this kind."""
    total = problem.need.sum(axis=0)

    def price(kind: Kind) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            hosts = float(np.nanmax(np.where(total > 0, total / kind.carries, 0.0)))
        return kind.price * hosts

    return sorted(problem.kinds, key=price)[:MOST_KINDS]


#: So many rows choose what fits best; all rows decide what is allowed.
MOST_KEY_ROWS = 256


def weights(problem: Problem, kind: Kind) -> Values:
    """How short each row is: the share of its capacity that all databases together need."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(kind.carries > 0, problem.need.sum(axis=0) / kind.carries, 0.0)
    share = np.where(np.isfinite(share), share, 0.0)
    top = share.max(initial=0.0)
    # Rows far from the tightest hardly matter; the power keeps the order of those close to it.
    return (share / top) ** 4 if top > 0 else np.ones_like(share)


#: So many databases are candidates for a host first: those that need the most room for a failure. A host keeps the
#: largest of its databases' reserves free, so databases of similar reserves share hosts; of fewer, too many would
#: have two groups in common.
ALIKE = 30


def fill(plan: Placement, left: Sequence[int], kind: Kind, weight: Values) -> list[int]:
    """Open hosts of ``kind`` and fill one after the other; the databases that no host of it takes."""
    opened = sum(each.name == kind.name for each in plan.kinds)
    limit = kind.most - opened if kind.most is not None else len(left)
    is_limited = np.isfinite(kind.carries) & (kind.carries > 0)
    share = np.where(is_limited, weight / np.where(is_limited, kind.carries, 1.0), 0.0)
    reserve = plan.problem.reserve @ share
    unplaced = np.array(sorted(left, key=lambda item: (-reserve[item], item)), dtype=np.int64)
    alike = ALIKE if reserve.any() else len(unplaced)
    while len(unplaced) and limit > 0:
        host = plan.open(kind)
        placed = fill_one(plan, host, unplaced[:alike], weight)
        placed += fill_one(plan, host, unplaced[alike:], weight)
        if not placed:
            break
        limit -= 1
        unplaced = unplaced[~np.isin(unplaced, placed)]
    return [int(i) for i in unplaced]


def fill_one(plan: Placement, host: int, candidates: NDArray[np.int64], weight: Values) -> list[int]:
    """Fill one host, the database that is hardest to place first; what it took."""
    problem, carries = plan.problem, plan.kinds[host].carries
    usable = np.flatnonzero(np.isfinite(carries) & (carries > 0))
    key = usable[np.argsort(-weight[usable], kind="stable")[:MOST_KEY_ROWS]]
    scale, w = carries[key], weight[key]
    need, reserve = (
        problem.need[np.ix_(candidates, key)] / scale,
        problem.reserve[np.ix_(candidates, key)] / scale,
    )
    open_ = np.ones(len(candidates), dtype=bool)
    placed: list[int] = []
    while open_.any():
        at = np.flatnonzero(open_)
        load, taken_over = plan.load(host)[key] / scale, plan.taken_over(host)[key] / scale
        # A replica's reserve costs room only beyond what the host keeps free anyway.
        cost = need[at] + np.maximum(reserve[at] - taken_over, 0.0)
        room = 1.0 - load - taken_over
        fits = (cost <= room + TINY).all(axis=1)
        open_[at[~fits]] = False
        at, cost = at[fits], cost[fits]
        is_empty = not plan.members[host]
        score = -((need[at] + 5 * reserve[at]) @ w) if is_empty else ((room - cost) ** 2) @ w
        order = np.argsort(score, kind="stable")
        for chosen in at[order]:
            # What a rule refuses now it refuses later: members only add load.
            open_[chosen] = False
            if plan.allows(int(candidates[chosen]), host):
                plan.put(int(candidates[chosen]), host)
                placed.append(int(candidates[chosen]))
                break
    return placed


def smaller(plan: Placement) -> Placement:
    """Each host of the cheapest kind that still carries its databases, whichever other host fails."""
    plan = plan.tidy()
    problem = plan.problem
    by_price = sorted(problem.kinds, key=lambda kind: kind.price)
    counts = {kind.name: sum(k.name == kind.name for k in plan.kinds) for kind in problem.kinds}
    for host in plan.used:
        worst = plan.worst(host)
        for kind in by_price:
            now = plan.kinds[host]
            if kind.price >= now.price:
                break
            if (kind.most is None or counts[kind.name] < kind.most) and (worst <= kind.carries + TINY).all():
                counts[now.name] -= 1
                counts[kind.name] += 1
                plan.kinds[host] = kind
                break
    return plan


class _Search:
    """One host fewer, or a cheaper one, as long as that succeeds: see ``squeeze``."""

    def __init__(self, start: Placement, bound: float, random: np.random.Generator) -> None:
        self.best, self.bound, self.random = start.tidy(), bound, random
        self.failures = 0
        self.rounds = FEWEST_ROUNDS

    @property
    def is_exhausted(self) -> bool:
        return self.failures > PATIENCE or not self._options()

    def step(self, clock: Clock) -> bool:
        """One attempt; whether there is a better plan."""
        options = self._options()
        odds = np.array([odds for _, _, odds in options])
        host, instead, _ = options[int(self.random.choice(len(options), p=odds / odds.sum()))]
        attempt = Squeeze(self.best, host, instead, self.random)
        if attempt.run(clock, self.rounds) and not (plan := attempt.plan()).violations():
            plan = smaller(plan)
            if more := broken(plan):
                # The same again with these steps.
                self.best = self.best.tidy(extended(self.best.problem, more))
                return False
            self.best = plan
            self.failures, self.rounds = 0, FEWEST_ROUNDS
            return True
        self.failures += 1
        self.rounds = min(2 * self.rounds, MOST_ROUNDS)
        return False

    def _options(self) -> list[tuple[int, Kind | None, float]]:
        """(host, kind instead of its own or None to do without it, odds): what saves much and displaces little."""
        plan, found = self.best, list[tuple[int, Kind | None, float]]()
        counts = {kind.name: sum(k.name == kind.name for k in plan.kinds) for kind in plan.problem.kinds}
        least = self.bound - TINY
        for host in plan.used:
            own = plan.kinds[host]
            if len(plan.used) > 1 and plan.price - own.price >= least:
                found.append((host, None, max(fullness(plan.worst(host), own.carries), 0.01) ** -4.0))
            for kind in plan.problem.kinds:
                saved = own.price - kind.price
                if saved <= TINY or plan.price - saved < least or counts[kind.name] == kind.most:
                    continue
                over = (fullness(plan.worst(host), kind.carries) - 1) * kind.price
                if np.isfinite(over):
                    found.append((host, kind, (saved / max(over, 0.01 * saved)) ** 4.0))
        return found


def lower_bound(problem: Problem) -> float:
    """No plan is cheaper.

    At each row the hosts together carry what all databases need. If any host may fail, then the others together
    carry what is left: all that moves, and on average the share of the databases without replicas that did not
    fail. A group needs a host per member.
    """
    kinds = problem.kinds
    if len(kinds) == 1:
        return kinds[0].price * _hosts(problem, kinds[0])
    from scipy.optimize import Bounds, LinearConstraint, milp

    total = problem.need.sum(axis=0)
    carries = np.stack(
        [np.where(np.isfinite(k.carries), k.carries, total.max(initial=0.0)) for k in kinds], axis=1
    )
    group = max((len(m) + 1 for m in problem.mates), default=1)
    answer = milp(
        np.array([kind.price for kind in kinds]),
        constraints=[
            LinearConstraint(carries, total, np.inf),
            LinearConstraint(np.ones((1, len(kinds))), group, np.inf),
        ],
        integrality=np.ones(len(kinds)),
        bounds=Bounds(0, [k.most if k.most is not None else np.inf for k in kinds]),
        options={"time_limit": 10.0, "mip_rel_gap": 0.0},
    )
    if answer.mip_dual_bound is None:
        return 0.0
    return float(answer.mip_dual_bound) * (1 - SAME_PRICE / 2)


def _hosts(problem: Problem, kind: Kind) -> int:
    """The fewest hosts of the only kind."""
    finite = np.isfinite(kind.carries)
    need, carries = problem.need[:, finite], kind.carries[finite]
    total = need.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(total > 0, total / carries, 0.0)
    if not np.isfinite(shares).all():
        return 0  # it carries nothing of a resource: no plan places everything
    hosts = max(1, math.ceil(float(shares.max(initial=0.0)) - 1e-9))
    hosts = max(hosts, max((len(m) + 1 for m in problem.mates), default=1))
    if not problem.survives:
        return hosts
    moved = (problem.moved * np.array([len(m) for m in problem.mates])[:, None]).sum(axis=0)[finite]
    rows = moved > 0
    # Loads that move stay; the rest may be lost with the host, on average its share of one host.
    while ((total - (total - moved) / hosts) > (hosts - 1) * carries + TINY)[rows].any():
        hosts += 1
        if hosts > 2 * len(problem.names):
            break
    reserve = problem.reserve[:, finite]
    # Only a row that is nearly the tightest can need more hosts, for its reserves are of the same size.
    for row in np.flatnonzero(rows & (shares > 0.7 * shares.max(initial=0.0))):
        hosts = max(hosts, _with_reserves(need[:, row], reserve[:, row], float(carries[row])))
    return hosts


def _with_reserves(need: Values, reserve: Values, carries: float) -> int:
    """The fewest hosts of one row if databases could be cut: each host keeps the largest reserve of its databases
    free, the room that their replicas need if one of them fails.

    Databases of similar reserve share hosts, the largest reserves first: then the k-th largest reserve of a
    host is as small as it can be, for every k.
    """
    order = np.argsort(-reserve, kind="stable")
    ends = np.cumsum(need[order])
    hosts, carried, at = 0, 0.0, 0
    while at < len(order) and ends[-1] > carried + TINY:
        # The first database that is not carried yet sets this host's reserve.
        at = int(np.searchsorted(ends, carried + TINY, side="right"))
        room = carries - float(reserve[order[at]])
        if room <= 0:
            return hosts
        carried += room
        hosts += 1
    return hosts
