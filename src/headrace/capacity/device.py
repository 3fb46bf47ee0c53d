"""The largest throughput under other limits: of a device, or of the CPU. docs: explanation/sizing.md.

What one call uses was measured; a resource of limit L, of which a call uses d, carries at most L / d calls/s. Of
several the least holds (Denning & Buzen 1978, The operational analysis of queueing network models, ACM Computing
Surveys 10), which assumes that there are always enough clients to fill it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval
from headrace.capacity.model import Resource
from headrace.capacity.used import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DRAWS = 2000
ALPHA = 0.05
#: How far the use of a call may fall, and rise, when the load or a limit changes: logs, within a 95% interval. A
#: read is a read at any load. Where writes wait, commits share them: up to 0.4 of them were saved, where nobody
#: counted how many are of commits. A call costs less CPU on a busy server, which wakes fewer threads.
MOVES: Mapping[Resource, tuple[float, float]] = {
    Resource.READS: (0.05, 0.05), Resource.READ_BYTES: (0.05, 0.05), Resource.WRITES: (0.5, 0.2),
    Resource.WRITE_BYTES: (0.5, 0.2), Resource.CPU: (0.3, 0.3),
}  # fmt: skip
OTHERS_MOVE = (0.1, 0.1)

#: Writes of data pages, where they are counted. All other writes are made by commits (the log, the journal of the
#: file system).
PAGES: Mapping[Resource, Part] = {Resource.WRITES: Part.PAGE_WRITES, Resource.WRITE_BYTES: Part.PAGE_BYTES}
#: What is left of the writes of commits once writes limit, for commits that wait share one: the least, what was
#: measured (benches/size_limits.py), the most.
REMAINS = (0.05, 0.25, 1.0)
#: How far the pages that a call writes may fall, and rise: a page that is written later collects more changes.
PAGES_MOVE = (0.15, 0.1)

#: What one call uses of each resource, and of ``PAGES``.
Call = Mapping[str, float]


#: Calls per second that each resource carries alone: the estimate, and draws of it.
Carried = Mapping[Resource, tuple[float, "Floats"]]


@dataclass(frozen=True)
class Largest:
    """Calls per second, draws of them, and what limits them."""

    per_s: Interval
    by: Resource
    draws: Floats


def carried(calls: Sequence[Call], limits: Mapping[Resource, Interval], rng: np.random.Generator) -> Carried:
    """From what a call used in several plays. Resources that it does not use carry any number."""
    found = {}
    for resource, limit in limits.items():
        values = [use_of(call, resource) for call in calls]
        if min(values) <= 0:
            continue
        demand, spread = _of_plays(values, rng)
        less, more = np.mean([moves(call, resource) for call in calls], axis=0)
        moved = rng.standard_normal(DRAWS) / 1.96
        spread = spread * np.exp(moved * np.where(moved < 0, less, more))
        found[resource] = limit.estimate / demand, drawn(limit, rng) / spread
    return found


def use_of(call: Call, resource: Resource, remains: float = REMAINS[1]) -> float:
    """Return the use per call of a limiting resource."""
    whole = call.get(resource, 0.0)
    pages = min(call.get(PAGES.get(resource, resource), whole), whole)
    return pages + remains * (whole - pages)


def moves(call: Call, resource: Resource) -> tuple[float, float]:
    """How far that may fall, and rise."""
    if PAGES.get(resource) not in call:
        return MOVES.get(resource, OTHERS_MOVE)
    least, usual, most = (math.log(use_of(call, resource, remains)) for remains in REMAINS)
    return usual - least + PAGES_MOVE[0], most - usual + PAGES_MOVE[1]


def multiplied(
    found: Carried, resources: Sequence[Resource], factor: Interval, rng: np.random.Generator
) -> Carried:
    """Multiply some resources by their factors."""
    draws = drawn(factor, rng)
    return {
        resource: (estimate * factor.estimate, own * draws) if resource in resources else (estimate, own)
        for resource, (estimate, own) in found.items()
    }


def largest(found: Carried) -> Largest:
    """Of at least one resource: the least limits."""
    by = min(found, key=lambda resource: found[resource][0])
    estimate, draws = found[by][0], np.min([own for _, own in found.values()], axis=0)
    return Largest(around(estimate, draws), by, draws)


def around(estimate: float, draws: Floats) -> Interval:
    low, high = np.quantile(draws, (ALPHA / 2, 1 - ALPHA / 2)).tolist()
    return Interval(estimate, min(low, estimate), max(high, estimate))


def _of_plays(values: Sequence[float], rng: np.random.Generator) -> tuple[float, Floats]:
    """The geometric mean, and draws of it by Student's t."""
    logs = np.log(values)
    center = float(logs.mean())
    if len(logs) < 2:
        return math.exp(center), np.full(DRAWS, math.exp(center))
    half = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return math.exp(center), np.exp(np.clip(center + half * rng.standard_t(len(logs) - 1, DRAWS), -700, 700))


def drawn(found: Interval, rng: np.random.Generator) -> Floats:
    """Draws above 0 with the interval as their 95%; an end that is None is the estimate."""
    low = found.estimate if found.low is None else max(found.low, 1e-3 * found.estimate)
    high = found.estimate if found.high is None else found.high
    draws = rng.standard_normal(DRAWS)
    half = np.where(draws < 0, math.log(found.estimate / low), math.log(high / found.estimate)) / 1.96
    return np.asarray(found.estimate * np.exp(draws * half))
