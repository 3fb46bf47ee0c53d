"""Resources that are sums of two others: what devices do for reads and writes together.

A cloud limits both together, not each of them (repost.aws/knowledge-center/ec2-instance-ebs-quotas). Where a host
of the catalogue has such a limit, demands get the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headrace.capacity.model import SUMS, Demand, Resource
from headrace.capacity.table import named
from headrace.capacity.together import Together

Values = NDArray[np.float64]


def added(demands: Sequence[Demand], limited: Collection[Resource]) -> tuple[list[Demand], list[str]]:
    """The demands with their use of the sums that are ``limited``, and notes of what these lack. A step is known
    if both parts are. A sum that a demand has already is kept. Highest minutes of the parts add up as if they
    coincided, which errs on the large side.
    """
    notes = []
    for whole, parts in SUMS.items():
        if whole not in limited:
            continue
        for part, other in (parts, parts[::-1]):
            lacking = [
                d.host for d in demands if whole not in d.used and other in d.used and part not in d.used
            ]
            if lacking:
                notes.append(f"no {part} of {named(lacking)}: {whole} counts only {other}")
    return [_with_sums(d, limited) for d in demands], notes


def _with_sums(demand: Demand, limited: Collection[Resource]) -> Demand:
    used = _sums(demand.used, limited)
    highest = {r: np.fmax(values, demand.most.get(r, values)) for r, values in demand.used.items()}
    most = _sums(highest, limited) if demand.most else {}
    return replace(
        demand,
        used={**used, **demand.used},
        most={**{r: m for r, m in most.items() if r in used}, **demand.most},
    )


def _sums(used: Mapping[Resource, Values], limited: Collection[Resource]) -> dict[Resource, Values]:
    found = {}
    for whole, parts in SUMS.items():
        known = [used[part] for part in parts if part in used]
        if whole in limited and whole not in used and known:
            total: Values = np.sum(known, axis=0)
            # Two parts that were never known at the same time have no sum.
            if np.isfinite(total).any():
                found[whole] = total
    return found


def counted(limited: Collection[Resource]) -> set[Resource]:
    """Resources that a limit of their sum limits, too."""
    return {part for whole, parts in SUMS.items() if whole in limited for part in parts}


def is_limited(resource: Resource, limited: Collection[Resource]) -> bool:
    """By itself, by its sum, or by each of its parts."""
    parts = SUMS.get(resource)
    each = parts is not None and all(part in limited for part in parts)
    return each or resource in limited or resource in counted(limited)


def moving(demands: Sequence[Demand], fleet: Together) -> dict[int, Values]:
    """Which part of a sum moves if its host fails: index of the resource -> (database, step). Its writes stay.

    At a step that is not known in full, the largest share that ever moved.
    """
    found = {}
    for j, resource in enumerate(fleet.resources):
        if resource in SUMS:
            written = SUMS[resource][1]
            own = [
                _moving(total, d.used.get(resource), d.used.get(written))
                for total, d in zip(fleet.values[:, j], demands, strict=True)
            ]
            found[j] = np.array(own)
    return found


def _moving(total: Values, known: Values | None, written: Values | None) -> Values:
    """``total`` is ``known`` without gaps."""
    if known is None or written is None:
        return total
    busy = known > 0
    share = 1 - float(np.nanmin(np.append(written[busy] / known[busy], 1.0))) if busy.any() else 1.0
    exactly = np.clip(known - written, 0.0, None)
    return np.where(np.isfinite(exactly), exactly, np.clip(share, 0.0, 1.0) * total)
