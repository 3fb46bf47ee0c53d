"""The words of sizing: resources, what a host's databases demand of them over time, what a host has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from headrace.base.intervals import Interval


class Resource(StrEnum):
    """What a host can run out of. Rates are per second."""

    CPU = "cpu"  # cores busy: user, system and softirq
    SOFTIRQ = "softirq"  # cores busy with interrupts of the network on the core that has most of them
    PACKETS = "packets"  # received and sent
    READS = "reads"  # requests to the devices
    WRITES = "writes"
    READ_BYTES = "read_bytes"
    WRITE_BYTES = "write_bytes"
    LOG_BYTES = "log_bytes"  # redo and binary log
    MEMORY = "memory"  # bytes that are in use, buffer pool included
    SPACE = "space"  # bytes on the devices
    DEVICE_REQUESTS = "device_requests"  # reads and writes together: where one limit is for both
    DEVICE_BYTES = "device_bytes"  # read and written


#: Sum -> what is read and what is written. If a host fails only reads move: its replicas apply its writes anyway.
SUMS: Mapping[Resource, tuple[Resource, Resource]] = {
    Resource.DEVICE_REQUESTS: (Resource.READS, Resource.WRITES),
    Resource.DEVICE_BYTES: (Resource.READ_BYTES, Resource.WRITE_BYTES),
}


@dataclass(frozen=True)
class Demand:
    """What one host's databases used over time. ``used[r]`` has one value for each step of ``step_s`` seconds
    from ``start_s`` (seconds since 1970, UTC), NaN where nothing is known. All demands of a plan share
    their steps. ``group`` is the replication group ("" = none): two members of one never share a host.
    ``most[r]`` is the highest minute (or sample) within each step where that is known: a mean over an hour
    hides it.
    """

    host: str
    start_s: int
    step_s: int
    used: Mapping[Resource, NDArray[np.float64]]
    group: str = ""
    most: Mapping[Resource, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return next((len(values) for values in self.used.values()), 0)


@dataclass(frozen=True)
class Capacity:
    """What a host has. ``limit[r]`` is the most that it was measured to carry, in the demand's unit.

    ``knee[r]`` is the share of it at which the objective (a p99) is no longer kept. A missing resource is not
    known to limit. ``burst[r]`` is what it has for a while only, above its limit.
    """

    name: str
    limit: Mapping[Resource, Interval]
    knee: Mapping[Resource, Interval] = field(default_factory=dict)
    price: float | None = None  # a month, in the catalogue's currency
    watts: float | None = None
    burst: Mapping[Resource, float] = field(default_factory=dict)
