"""The rows of a plan: each resource at the times that matter.

A short history has all its steps as rows. Of a long one the plan begins with the steps at which all databases need
most; ``steps`` adds those at which a plan breaks. Neighbouring steps are never joined: a database that is busy by
day and one that is busy at night would seem to be busy together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.capacity.together import MOVES, Together, clipped

Values = NDArray[np.float64]
#: Steps of a resource that are rows from the start.
MOST_TIMES = 336


@dataclass(frozen=True)
class Rows:
    """``need`` is (database, row); ``resource`` is which each row is of. ``every`` is (database, resource, step)
    if the rows are not all of the steps. ``moving`` is the part of each row that moves if the host fails; None if
    no row is of a sum. ``parts``: the same of sums for ``every``, index of the resource -> (database, step).
    """

    need: Values
    resource: NDArray[np.int64]
    every: Values | None = None
    moving: Values | None = None
    parts: Mapping[int, Values] = field(default_factory=dict)


def rows_of(fleet: Together, quantile: float, moving: Mapping[int, Values] | None = None) -> Rows:
    """Each day's values count up to the day's quantile. A row that never exceeds another one for any database is
    left out. ``moving``: of the sums, see ``sums.moving``.
    """
    values = clipped(fleet.values, fleet.steps_per_day, quantile)
    parts = {
        j: np.minimum(clipped(part, fleet.steps_per_day, quantile), values[:, j])
        for j, part in (moving or {}).items()
    }
    kept, moved, resources = [], [], []
    for j, resource in enumerate(fleet.resources):
        times = heaviest(values[:, j], fleet.steps_per_day)
        rows = values[:, j, times]
        part = parts[j][:, times] if j in parts else rows * (resource in MOVES)
        keep = undominated(np.concatenate([rows, part]) if j in parts else rows)
        kept.append(rows[:, keep])
        moved.append(part[:, keep])
        resources += [j] * len(keep)
    need, index = np.concatenate(kept, axis=1), np.array(resources, dtype=np.int64)
    every = values if values.shape[2] > MOST_TIMES else None
    return Rows(need, index, every, np.concatenate(moved, axis=1) if parts else None, parts)


def heaviest(values: Values, per_day: int) -> NDArray[np.int64]:
    """Up to ``MOST_TIMES`` steps of (database, step): of each time of day the one at which all need most together,
    then the steps at which they need most."""
    steps = values.shape[1]
    if steps <= MOST_TIMES:
        return np.arange(steps)
    order = np.argsort(-values.sum(axis=0), kind="stable")
    _, first_of_time = np.unique(order % per_day, return_index=True)
    by_time = order[np.sort(first_of_time)][: MOST_TIMES // 2]
    rest = order[~np.isin(order, by_time)][: MOST_TIMES - len(by_time)]
    return np.sort(np.concatenate([by_time, rest]))


def undominated(rows: Values) -> list[int]:
    """Columns that no other column reaches in every database; of equal ones the first."""
    left = list(range(rows.shape[1]))
    order = sorted(left, key=lambda t: -float(rows[:, t].sum()))
    keep: list[int] = []
    for t in order:
        if keep and bool((rows[:, keep] >= rows[:, [t]]).all(axis=0).any()):
            continue
        keep.append(t)
    return sorted(keep)
