"""How often a memcached server is asked by a probe, and which percentile that shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.base.errors import NotReady, Refused
from headrace.base.percentiles import MIN_BEYOND, PERCENTILES
from headrace.host.memcached import probe
from headrace.host.memcached.ask import Unread

#: Responses of a probe, the one first that says most of what clients wait for.
OF_PROBE = ("p99", "p90", "p50")
#: Connections that stay free for its clients.
SPARE = 4 * probe.CONNECTIONS
#: With fewer requests a second a server is idle: what it answers then is not what its clients wait for.
IDLE_PER_S = 20.0


@dataclass(frozen=True)
class Fair:
    """A server, and how many gets a second of it may be ours."""

    looked: probe.Looked
    gets_per_s: float


def fair(address: str, gets_per_s: float | None = None) -> Fair:
    """Takes a look at it, of 2 s. Raises NotReady with why it is not read, and Refused for one without connections
    left."""
    try:
        looked = probe.look(address)
    except Unread as error:
        raise NotReady(str(error), place=address, hint="HOST:PORT as seen from here") from error
    if looked.spare is not None and looked.spare < SPARE:
        raise Refused(
            f"only {looked.spare} more connections may be open: the probe needs {probe.CONNECTIONS + 1}, and "
            "clients would be refused",
            place=address,
            hint="headrace hunt says more: MEMC20",
        )
    return Fair(looked, probe.fair_per_s(looked.requests_per_s) if gets_per_s is None else gets_per_s)


def responses(gets: float) -> list[str]:
    """Those of ``OF_PROBE`` that so many gets show."""
    return [each for each in OF_PROBE if shows(each, gets)]


def shows(percentile: str, gets: float) -> bool:
    return _beyond(percentile, gets) >= MIN_BEYOND


def needed_s(percentile: str, gets_per_s: float) -> int:
    """How long a stretch must be that shows it."""
    return math.ceil(MIN_BEYOND / _beyond(percentile, gets_per_s))


def _beyond(percentile: str, gets: float) -> float:
    """How many of so many are above it; some slots of the first and the last second are outside of a window."""
    share, of = PERCENTILES[percentile]
    return 0.95 * gets * (of - share) / of
