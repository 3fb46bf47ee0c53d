"""Databases on hosts: the state of a plan under construction, and its hard rules.

- At each row (a resource at a time that matters) the databases of a host need at most what it carries.
- Two members of a replication group never share a host.
- Any one host may fail: what moves of its databases' load is then shared equally by the other members of their
  groups, and every host still carries its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace.base.counted import counted
from headrace.capacity.rows import Rows
from headrace.capacity.together import MOVES, Together

Values = NDArray[np.float64]
#: Sums of floats in another order differ by this much.
TINY = 1e-9


@dataclass(frozen=True)
class Kind:
    """A kind of host: what it carries of each row, its price, and how many there are (None: any number)."""

    name: str
    carries: Values
    price: float = 1.0
    most: int | None = None


@dataclass(frozen=True)
class Problem:
    """``need`` is (database, row). ``moved`` is what each other member of its group takes if its host fails.

    If the rows are not all steps, ``every`` is the need as (database, resource, step), and ``moves`` which share
    of it each other member takes, as (database, resource); of a sum ``parts`` says it for each step: index of the
    resource -> (database, step). ``is_joined``: rows are more than any step needs.
    """

    names: tuple[str, ...]
    need: Values
    moved: Values
    mates: tuple[tuple[int, ...], ...]
    kinds: tuple[Kind, ...]
    #: Which resource each row is of.
    row_resource: NDArray[np.int64]
    survives: bool = True
    every: Values | None = None
    moves: Values = field(default_factory=lambda: np.zeros((0, 0)))
    is_joined: bool = False
    parts: Mapping[int, Values] = field(default_factory=dict)

    @cached_property
    def reserve(self) -> Values:
        """What a database's host takes over at least, at each row, if the worst of its replicas' hosts fails."""
        found = np.zeros_like(self.moved)
        if self.survives:
            for item, mates in enumerate(self.mates):
                if mates:
                    found[item] = self.moved[list(mates)].max(axis=0)
        return found

    def fits(self, members: Sequence[int], kind: Kind, host_of: NDArray[np.int64] | None = None) -> bool:
        """Whether a host of this kind carries these databases, whichever other host fails."""
        load = self.need[list(members)].sum(axis=0) if members else np.zeros(self.need.shape[1])
        if (load > kind.carries + TINY).any():
            return False
        if len({frozenset((m, *self.mates[m])) for m in members if self.mates[m]}) < sum(
            bool(self.mates[m]) for m in members
        ):
            return False
        if not self.survives or host_of is None:
            return True
        extra: dict[int, Values] = {}
        for member in members:
            for mate in self.mates[member]:
                if host_of[mate] >= 0:
                    failed = int(host_of[mate])
                    extra[failed] = extra.get(failed, 0.0) + self.moved[mate]
        return all(bool((load + more <= kind.carries + TINY).all()) for more in extra.values())


def problem(fleet: Together, kinds: Sequence[Kind], rows: Rows, *, survives: bool = True) -> Problem:
    by_group: dict[str, list[int]] = {}
    for i, group in enumerate(fleet.groups):
        if group:
            by_group.setdefault(group, []).append(i)
    mates = tuple(
        tuple(m for m in by_group.get(group, ()) if m != i) if group else ()
        for i, group in enumerate(fleet.groups)
    )
    share = np.array([1 / len(m) if m else 0.0 for m in mates])
    moves = share[:, None] * np.array([r in MOVES for r in fleet.resources])
    parts = {j: share[:, None] * part for j, part in rows.parts.items()}
    moved = rows.need * moves[:, rows.resource] if rows.moving is None else share[:, None] * rows.moving
    return Problem(
        fleet.hosts, rows.need, moved, mates, tuple(kinds), rows.resource, survives,
        rows.every, moves, parts=parts,
    )  # fmt: skip


def fullness(load: Values, carries: Values) -> float:
    """The largest share of what is carried; infinite where nothing is, but something is needed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(load > 0, load / carries, 0.0).max(initial=0.0))


class Placement:
    """Which host each database is on; ``-1`` is none. Hosts that were emptied stay as unused numbers."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.host_of = np.full(len(problem.names), -1, dtype=np.int64)
        self.members: list[list[int]] = []
        self.kinds: list[Kind] = []
        self._load: list[Values] = []
        #: Host -> failed host -> what the first then takes over. A database without a host yet counts as one on a
        #: host of its own, -1 - database: otherwise its replicas' hosts would fill up, and leave it no place.
        self._extra: list[dict[int, Values]] = []

    def open(self, kind: Kind) -> int:
        self.members.append([])
        self.kinds.append(kind)
        self._load.append(np.zeros(self.problem.need.shape[1]))
        self._extra.append({})
        return len(self.members) - 1

    def load(self, host: int) -> Values:
        return self._load[host]

    def room(self, host: int) -> Values:
        return self.kinds[host].carries - self._load[host] + TINY

    def taken_over(self, host: int) -> Values:
        """What the worst failure adds, at each row."""
        worst = np.zeros_like(self._load[host])
        for extra in self._extra[host].values():
            worst = np.maximum(worst, extra)
        return worst

    def worst(self, host: int) -> Values:
        """The load of the worst failure."""
        return self._load[host] + self.taken_over(host)

    def allows(self, item: int, host: int) -> bool:
        """Whether the rules hold with ``item`` on ``host``."""
        problem = self.problem
        need, room = problem.need[item], self.room(host)
        if (need > room).any():
            return False
        mates = [m for m in problem.mates[item] if self.host_of[m] >= 0]
        if any(self.host_of[m] == host for m in mates):
            return False
        if not problem.survives:
            return True
        new = {self.place(m): problem.moved[m] for m in problem.mates[item]}
        for failed, extra in self._extra[host].items():
            more = extra + new.pop(failed) if failed in new else extra
            if (need + more > room).any():
                return False
        if any((need + more > room).any() for more in new.values()):
            return False
        moved = problem.moved[item]
        for mate in mates:
            other = int(self.host_of[mate])
            if (moved + self._extra[other].get(host, 0.0) > self.room(other)).any():
                return False
        return True

    def put(self, item: int, host: int) -> None:
        problem = self.problem
        self.host_of[item] = host
        self.members[host].append(item)
        self._load[host] = self._load[host] + problem.need[item]
        if problem.survives:
            for mate in problem.mates[item]:
                other = self.place(mate)
                self._extra[host][other] = self._extra[host].get(other, 0.0) + problem.moved[mate]
                if other >= 0:
                    self._extra[other].pop(-1 - item, None)
                    self._extra[other][host] = self._extra[other].get(host, 0.0) + problem.moved[item]

    def place(self, item: int) -> int:
        """Its host; -1 - item without one."""
        host = int(self.host_of[item])
        return host if host >= 0 else -1 - item

    @property
    def used(self) -> list[int]:
        return [host for host, members in enumerate(self.members) if members]

    @property
    def price(self) -> float:
        return float(sum(self.kinds[host].price for host in self.used))

    @property
    def unplaced(self) -> list[int]:
        return [int(i) for i in np.flatnonzero(self.host_of < 0)]

    def tidy(self, problem: Problem | None = None) -> Placement:
        """The same without empty hosts; under ``problem``, which has other rows."""
        found = Placement(problem or self.problem)
        kinds = {kind.name: kind for kind in found.problem.kinds}
        for host in self.used:
            new = found.open(kinds[self.kinds[host].name])
            for item in self.members[host]:
                found.put(item, new)
        return found

    def violations(self) -> list[str]:
        """Rules that do not hold, recomputed from nothing but the assignment."""
        problem, found = self.problem, []
        for host in self.used:
            members = [int(i) for i in np.flatnonzero(self.host_of == host)]
            if not problem.fits(members, self.kinds[host], self.host_of):
                found.append(f"host {host}: {', '.join(problem.names[m] for m in members)}")
        for kind in problem.kinds:
            count = sum(self.kinds[host].name == kind.name for host in self.used)
            if kind.most is not None and count > kind.most:
                found.append(f"{counted(count, 'host')} of {kind.name}, of which there are {kind.most}")
        return found
