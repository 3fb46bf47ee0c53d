"""All steps of a long history, of which a plan has only some as rows.

Steps at which a plan breaks become rows of the next one, until a plan holds at all of them. Fewer rows cannot make
the best plan dearer, so bounds and proofs hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headrace.capacity.placement import TINY, Placement, Problem
from headrace.capacity.rows import MOST_TIMES

Values = NDArray[np.float64]
#: Sums of floats in another order differ by this share.
TINY_SHARE = 1e-9


def largest(plan: Placement, host: int) -> Values:
    """The largest load of a host at any step, of each resource."""
    problem = plan.problem
    if problem.every is not None:
        load: Values = problem.every[plan.members[host]].sum(axis=0).max(axis=1)
        return load
    load = np.zeros(int(problem.row_resource.max(initial=-1)) + 1)
    np.maximum.at(load, problem.row_resource, plan.load(host))
    return load


def broken(plan: Placement) -> list[tuple[int, int]]:
    """(resource, step) at which a host does not carry its load, whichever other host fails: of each host the worst
    step of each resource. None of them is a row of the plan's problem yet."""
    problem = plan.problem
    if problem.every is None:
        return []
    first = _first_rows(problem)
    found = set()
    for host in plan.used:
        load = problem.every[plan.members[host]].sum(axis=0) + _taken_over(plan, host, problem.every)
        carries = plan.kinds[host].carries[first]
        over = load - (carries * (1 + TINY_SHARE))[:, None]
        for resource in np.flatnonzero(over.max(axis=1) > 2 * TINY):
            found.add((int(resource), int(over[resource].argmax())))
    return sorted(found)


def _taken_over(plan: Placement, host: int, every: Values) -> Values:
    """(resource, step): what the worst failure of another host adds."""
    problem = plan.problem
    worst = np.zeros(every.shape[1:])
    if not problem.survives:
        return worst
    extra: dict[int, Values] = {}
    for mate in (m for i in plan.members[host] for m in problem.mates[i]):
        failed = plan.place(mate)
        moved = every[mate] * problem.moves[mate][:, None]
        for j, part in problem.parts.items():
            moved[j] = part[mate]
        extra[failed] = extra.get(failed, 0.0) + moved
    for more in extra.values():
        worst = np.maximum(worst, more)
    return worst


def extended(problem: Problem, more: Sequence[tuple[int, int]]) -> Problem:
    """With these (resource, step) as rows, too."""
    assert problem.every is not None
    resources = np.array([resource for resource, _ in more], dtype=np.int64)
    need = np.stack([problem.every[:, resource, step] for resource, step in more], axis=1)
    moved = need * problem.moves[:, resources]
    for at, (resource, step) in enumerate(more):
        if resource in problem.parts:
            moved[:, at] = problem.parts[resource][:, step]
    return _with(problem, need, moved, resources)


def joined(problem: Problem) -> Problem:
    """With neighbouring steps joined by each database's largest value, so that any plan holds at all steps, but
    may be dearer than need be: for a search that has no time to find the steps that matter."""
    assert problem.every is not None
    width = -(-problem.every.shape[2] // MOST_TIMES)
    starts = np.arange(0, problem.every.shape[2], width)
    peaks = np.maximum.reduceat(problem.every, starts, axis=2)
    moved = peaks * problem.moves[:, :, None]
    for j, part in problem.parts.items():
        moved[:, j] = np.maximum.reduceat(part, starts, axis=1)
    resources = np.repeat(np.arange(peaks.shape[1]), peaks.shape[2])
    flat = (len(peaks), -1)
    return replace(
        _with(problem, peaks.reshape(flat), moved.reshape(flat), resources),
        every=None,
        parts={},
        is_joined=True,
    )


def _with(problem: Problem, need: Values, moved: Values, resources: NDArray[np.int64]) -> Problem:
    first = _first_rows(problem)
    kinds = tuple(
        replace(kind, carries=np.concatenate([kind.carries, kind.carries[first[resources]]]))
        for kind in problem.kinds
    )
    return replace(
        problem,
        need=np.concatenate([problem.need, need], axis=1),
        moved=np.concatenate([problem.moved, moved], axis=1),
        kinds=kinds,
        row_resource=np.concatenate([problem.row_resource, resources]),
    )


def _first_rows(problem: Problem) -> NDArray[np.int64]:
    """A row of each resource: a host carries the same of it at each step."""
    return np.unique(problem.row_resource, return_index=True)[1]
