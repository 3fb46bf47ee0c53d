"""What more of a resource brings: the load that then fits, before another resource is full.

Load is all calls multiplied by the same factor, so the first resource to reach its knee limits it. More memory is
more of the device: of a call fewer reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval
from headrace.capacity.capacity import queue_knee
from headrace.capacity.device import PAGES, Call, around, carried, largest, moves, multiplied
from headrace.capacity.model import Resource

if TYPE_CHECKING:
    from headrace.capacity.capacity import Known
    from headrace.capacity.outlook import Outlook
    from headrace.capacity.pool import Pool

#: A resource with this many times the room of the first bottleneck was bought in vain.
IN_VAIN = 2.0
#: One more of a resource that is not counted in whole ones.
STEP = 1.25
#: What more memory saves.
SAVED = (Resource.READS, Resource.READ_BYTES)


@dataclass(frozen=True)
class Bought:
    """More of a resource: the load that then fits, relative to now, and what limits it then. ``gain``: after /
    before.
    """

    resource: Resource
    what: str
    before: float
    after: float
    next: Resource
    gain: Interval


def in_vain(outlooks: Sequence[Outlook]) -> tuple[Resource, ...]:
    """Those that have far more room than the first."""
    rooms = {each.resource: each.room for each in outlooks if not each.is_stock}
    least = min(rooms.values(), default=math.inf)
    return tuple(
        r for r, room in rooms.items() if room >= IN_VAIN * least and math.isfinite(room) and len(rooms) > 1
    )


def more(
    outlooks: Sequence[Outlook],
    known: Known,
    pool: Pool | None = None,
    instead: Mapping[Resource, float] | None = None,
    pages: Mapping[Resource, float] | None = None,
    seed: int = 1,
) -> tuple[Bought, ...]:
    """One more of each resource alone, or what is asked for ``instead`` of its limit; of memory, the size of the
    ``pool``. ``pages``: the share of a device's writes that are of data pages, where it is known.
    """
    load: dict[str, float] = {
        each.resource: each.now for each in outlooks if not each.is_stock and math.isfinite(each.room)
    }
    limits = {each.resource: each.full_at for each in outlooks if each.resource in load}
    if not load:
        return ()
    rng = np.random.default_rng(seed)
    # The load of the peak is one call a second.
    load |= {PAGES[r]: share * load[r] for r, share in (pages or {}).items() if r in load}
    now = carried([load], limits, rng)
    before = largest(now)
    found = []
    for resource, what, more_of, factor in _offers(outlooks, load, known, pool, instead or {}):
        after = largest(multiplied(now, more_of, factor, rng))
        gain = around(after.per_s.estimate / before.per_s.estimate, after.draws / before.draws)
        found.append(Bought(resource, what, before.per_s.estimate, after.per_s.estimate, after.by, gain))
    return tuple(found)


def saves(outlooks: Sequence[Outlook]) -> bool:
    """Whether a limit is known of what more memory saves."""
    return any(each.resource in SAVED for each in outlooks)


def _offers(
    outlooks: Sequence[Outlook],
    call: Call,
    known: Known,
    pool: Pool | None,
    instead: Mapping[Resource, float],
) -> Iterator[tuple[Resource, str, tuple[Resource, ...], Interval]]:
    """(resource, words, the resources whose room grows, by this factor)."""
    for each in outlooks:
        if each.is_stock or not math.isfinite(each.room):
            continue
        then = instead.get(each.resource)
        if then is not None:
            what, factor = f"to {then:,.6g}", _grown(each, known, then)
        elif each.resource is Resource.CPU:
            what, factor = "one more core", _grown(each, known, each.limit.estimate + 1)
        else:
            what, factor = f"{STEP - 1:.0%} more", STEP
        yield each.resource, what, (each.resource,), _moved(call, each.resource, factor)
    if pool is not None and saves(outlooks):
        then = instead.get(Resource.MEMORY, STEP * pool.size_bytes)
        what = f"a pool of {then / 2**30:,.3g} GiB"
        yield Resource.MEMORY, what, SAVED, pool.saves(then)


def _moved(call: Call, resource: Resource, factor: float) -> Interval:
    """A limit that is so many times as high: a call may use another amount then, the more the further it is."""
    less, more_of = moves(call, resource)
    far = min(abs(math.log2(factor)), 1.0)
    return Interval(factor, factor * math.exp(-more_of * far), factor * math.exp(less * far))


def _grown(each: Outlook, known: Known, then: float) -> float:
    """By how much the room grows if the limit is ``then``."""
    grown = then / each.limit.estimate
    if each.resource is Resource.CPU and each.knee_from.startswith("assumed"):
        # More servers of one queue may be busier, too.
        grown *= queue_knee(then).estimate / known.capacity.knee[Resource.CPU].estimate
    return grown
