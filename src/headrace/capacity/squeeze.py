"""A plan that costs less: one host is taken away, or a cheaper one takes its place, and databases are swapped
until no host is too full.

Hosts may be too full on the way. Their sum of ``exp(STEEP * (fullness - 1))`` falls with each swap, which evens
them out: the smaller their number, the less room there is to waste. Where no swap helps any more, hosts that are
still too full weigh more (guided local search: Voudouris & Tsang 1999, European Journal of Operational Research
113), which makes room for them at the others' expense.

A swap is judged at the few rows at which hosts are fullest, and by the largest load that one failure adds; the
best ones are then computed exactly, at all rows and with all failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.capacity.clock import Clock
from headrace.capacity.placement import Kind, Placement

#: How much a host that is too full costs more than one that is not.
STEEP = 60.0
#: So many rows choose swaps.
KEY_ROWS = 128
#: So many of the best swaps are computed exactly.
TRIED = 40
#: The weight of a host that stays too full grows by this.
HEAVIER = 1.3
#: Above this all weights are pulled together again.
HEAVIEST = 1e4
#: Sums of 32-bit floats are this exact. The finished plan is checked with 64 bits.
FITS = 1 - 1e-6
#: Swaps after which the rows are chosen again.
SWAPS = 200

Floats = NDArray[np.float32]


class Squeeze:
    """The hosts of a complete plan, but for one: ``without`` it, or with ``instead`` of its kind."""

    def __init__(
        self, plan: Placement, without: int, instead: Kind | None, random: np.random.Generator
    ) -> None:
        problem = self.problem = plan.problem
        self.random = random
        hosts = [h for h in plan.used if h != without or instead is not None]
        self.kinds = [instead if h == without and instead is not None else plan.kinds[h] for h in hosts]
        self.members = [list(plan.members[h]) for h in hosts]
        self.host_of = np.full(len(problem.names), -1, dtype=np.int64)
        for host, members in enumerate(self.members):
            self.host_of[members] = host
        carries = np.stack([kind.carries for kind in self.kinds])
        rows = np.isfinite(carries).any(axis=0)
        top = np.where(np.isfinite(carries), carries, 0.0).max(axis=0)[rows]
        top[top <= 0] = 1.0
        with np.errstate(divide="ignore"):
            self.inverse: Floats = np.minimum(top / carries[:, rows], 1e9).astype(np.float32)
        self.is_uniform = bool((self.inverse == 1).all())
        self.need, self.moved, self.reserve = (
            (each[:, rows] / top).astype(np.float32)
            for each in (problem.need, problem.moved, problem.reserve)
        )
        self.weight = np.ones(len(hosts))
        self.fullness = np.array([self._fullness(h) for h in range(len(hosts))])
        self._choose_rows()
        left = [] if instead is not None else plan.members[without]
        #: False: every host has a member of some database's group.
        self.is_possible = all(self._add(i) for i in sorted(left, key=lambda i: -float(self.need[i].max())))

    def plan(self) -> Placement:
        found = Placement(self.problem)
        for kind, members in zip(self.kinds, self.members, strict=True):
            host = found.open(kind)
            for item in members:
                found.put(item, host)
        return found.tidy()

    def run(self, clock: Clock, rounds: int) -> bool:
        """Swap until no host is too full; False if ``rounds`` of heavier weights did not help, or time is up."""
        stuck: set[int] = set()
        swaps = 0
        while self.is_possible and clock.left_s > 0:
            over = [int(h) for h in np.flatnonzero(self.fullness > FITS)]
            if not over:
                return True
            open_ = [h for h in over if h not in stuck]
            if not open_:
                if not rounds:
                    return False
                rounds -= 1
                self.weight[over] *= HEAVIER
                if self.weight.max() > HEAVIEST:
                    self.weight **= 0.5
                stuck.clear()
                continue
            host = max(open_, key=lambda h: float(self.fullness[h]))
            other = self._improve(host)
            if other is None:
                stuck.add(host)
                continue
            stuck.discard(other)
            swaps += 1
            if swaps % SWAPS == 0:
                self._choose_rows()
        return False

    def _cost(self, fullness: Any) -> Any:
        """Of one host, or of each."""
        return np.exp(STEEP * (np.minimum(fullness, 1.5) - 1.0))

    # The exact state.

    def _fullness(self, host: int) -> float:
        members = self.members[host]
        if not members:
            return 0.0
        load = self.need[members].sum(axis=0)
        if self.problem.survives:
            load += self._taken_over(members)
        return float((load * self.inverse[host]).max())

    def _taken_over(self, members: Sequence[int]) -> Floats:
        """What the worst failure adds."""
        by_host: dict[int, list[int]] = {}
        for member in members:
            for mate in self.problem.mates[member]:
                at = int(self.host_of[mate])
                by_host.setdefault(at if at >= 0 else -1 - mate, []).append(mate)
        most: Floats = self.moved[[own[0] for own in by_host.values()]].max(axis=0, initial=0.0)
        for own in by_host.values():
            if len(own) > 1:
                most = np.maximum(most, self.moved[own].sum(axis=0))
        return most

    # What chooses swaps: shapes (row, database) and (row, host).

    def _choose_rows(self) -> None:
        """The rows at which hosts are fullest."""
        use = np.stack([
            (self.need[m].sum(axis=0) + self.reserve[m].max(axis=0, initial=0.0)) * self.inverse[h]
            for h, m in enumerate(self.members)
        ])  # fmt: skip
        score = self._cost(use - use.max(axis=1, keepdims=True) + 1.0).sum(axis=0)
        self.rows = np.sort(np.argsort(-score, kind="stable")[:KEY_ROWS])
        self.key_need = np.ascontiguousarray(self.need[:, self.rows].T)
        self.key_reserve = np.ascontiguousarray(self.reserve[:, self.rows].T)
        self.key_inverse = np.ascontiguousarray(self.inverse[:, self.rows].T)
        self.rest, self.kept = np.zeros_like(self.key_need), np.zeros_like(self.key_need)
        self.load, self.most = np.zeros_like(self.key_inverse), np.zeros_like(self.key_inverse)
        for host in range(len(self.members)):
            self._refresh(host)

    def _refresh(self, host: int) -> None:
        """``rest`` and ``kept``: load and largest reserve of the other databases of each one's host."""
        members = self.members[host]
        if not members:
            self.load[:, host] = self.most[:, host] = 0
            return
        need, reserve = self.key_need[:, members], self.key_reserve[:, members]
        load = need.sum(axis=1)
        self.load[:, host] = load
        self.rest[:, members] = load[:, None] - need
        away = [int(self.host_of[m]) for each in members for m in self.problem.mates[each]]
        if self.problem.survives and len(set(away)) < len(away):
            # Two groups share this host and another, whose failure adds both.
            self.most[:, host] = self._taken_over(members)[self.rows]
            for member in members:
                self.kept[:, member] = self._taken_over([m for m in members if m != member])[self.rows]
            return
        ordered = np.sort(reserve, axis=1)
        most = self.most[:, host] = ordered[:, -1]
        second = ordered[:, -2] if len(members) > 1 else np.zeros_like(most)
        self.kept[:, members] = np.where(reserve == most[:, None], second[:, None], most[:, None])

    def _on_hosts(self, item: int) -> NDArray[np.floating]:
        """How full each host would be with ``item`` added."""
        use = self.load + self.key_need[:, [item]] + np.maximum(self.most, self.key_reserve[:, [item]])
        found: NDArray[np.floating] = (use * self.key_inverse).max(axis=0)
        found[[int(self.host_of[m]) for m in self.problem.mates[item] if self.host_of[m] >= 0]] = np.inf
        return found

    def _add(self, item: int) -> bool:
        """Put it where it costs least; False if every host has a member of its group."""
        then = self._on_hosts(item)
        more = np.where(np.isfinite(then), self._cost(then) - self._cost(self.fullness), np.inf)
        host = int(np.argmin(more + 1e-3 * then))
        if not np.isfinite(more[host]):
            return False
        self.host_of[item] = host
        self.members[host].append(item)
        for each in {host, *self._hosts_of_mates(item)}:
            self.fullness[each] = self._fullness(each)
            self._refresh(each)
        return True

    def _improve(self, host: int) -> int | None:
        """The best swap of a database of this host, or a move of it; the other host."""
        members, mates = list(self.members[host]), self.problem.mates
        count = len(self.problem.names)
        own = float(self.weight[host] * self._cost(self.fullness[host]))
        now = self.weight * self._cost(self.fullness)
        found = np.empty((len(members), count + len(self.members)))
        scale = None if self.is_uniform else self.key_inverse[:, self.host_of]
        here = self.key_inverse[:, [host]]
        # Mates of those that stay must not come.
        barred = np.zeros((len(members), count), dtype=bool)
        for at, member in enumerate(members):
            others = [m for k, each in enumerate(members) if k != at for m in mates[each]]
            barred[at, others] = True
            barred[at, members] = True
            away = np.zeros(len(self.members), dtype=bool)
            away[self.host_of[list(mates[member])]] = True
            barred[at] |= away[self.host_of]
            use = self.rest + self.key_need[:, [member]]
            use += np.maximum(self.kept, self.key_reserve[:, [member]])
            if scale is not None:
                use *= scale
            there = use.max(axis=0)
            use = self.key_need + self.rest[:, [member]]
            use += np.maximum(self.key_reserve, self.kept[:, [member]])
            if scale is not None:
                use *= here
            back = use.max(axis=0)
            found[at, :count] = (
                self.weight[host] * self._cost(back)
                + self.weight[self.host_of] * self._cost(there)
                - now[self.host_of]
            )
            left = float(((self.rest[:, member] + self.kept[:, member]) * here[:, 0]).max())
            moved = self._on_hosts(member)
            moved[host] = np.inf
            found[at, count:] = self.weight[host] * self._cost(left) + np.where(
                np.isfinite(moved), self.weight * self._cost(moved) - now, np.inf
            )
        found[:, :count][barred] = np.inf
        best = np.argpartition(found, min(TRIED, found.size - 1), axis=None)[:TRIED]
        for flat in best[np.argsort(found.ravel()[best])]:
            at, column = divmod(int(flat), found.shape[1])
            if found[at, column] >= own * (1 - 1e-6):
                return None
            item = members[at]
            other = int(self.host_of[column]) if column < count else column - count
            if self._swap_if_better(item, host, column if column < count else None, other):
                return other
        return None

    def _hosts_of_mates(self, item: int) -> list[int]:
        if not self.problem.survives:
            return []
        return [int(self.host_of[m]) for m in self.problem.mates[item] if self.host_of[m] >= 0]

    def _swap_if_better(self, item: int, host: int, back: int | None, other: int) -> bool:
        touched = {host, other, *self._hosts_of_mates(item)}
        if back is not None:
            touched |= set(self._hosts_of_mates(back))
        # The two first: mostly they decide.
        hosts = [host, other, *sorted(touched - {host, other})]
        left = float(self.weight[hosts] @ self._cost(self.fullness[hosts])) * (1 - 1e-9)
        self._swap(item, host, back, other)
        then = []
        for each in hosts:
            then.append(self._fullness(each))
            left -= float(self.weight[each] * self._cost(then[-1]))
            if left <= 0:
                self._swap(item, other, back, host)
                return False
        self.fullness[hosts] = then
        for each in hosts:
            self._refresh(each)
        return True

    def _swap(self, item: int, host: int, back: int | None, other: int) -> None:
        self.members[host].remove(item)
        self.members[other].append(item)
        self.host_of[item] = other
        if back is not None:
            self.members[other].remove(back)
            self.members[host].append(back)
            self.host_of[back] = host
