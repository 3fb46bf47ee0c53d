"""What a change must not cost, beside what it is made for: by how much at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Watched:
    """What is guarded. ``worse`` is 1 where more is worse, -1 where less is; ``limit`` by how much at most."""

    name: str
    unit: str
    worse: int
    limit: float

    @property
    def most(self) -> str:
        """``1 point``, ``0.1 per 1,000 requests``."""
        unit = self.unit.removesuffix("s") if self.limit == 1 and self.unit == "points" else self.unit
        return f"{self.limit:g} {unit}"


HITS = Watched("hit rate", "points", -1, 1.0)
EVICTIONS = Watched("evictions", "per 1,000 requests", 1, 1.0)
REFUSALS = Watched("refused connections", "per 1,000 requests", 1, 0.1)
FAILED = Watched("failed gets", "per 1,000 of the probe", 1, 1.0)
#: Of a memcached server: what a change of its host must not cost, whatever it does to latency.
OF_CACHES = (HITS, EVICTIONS, REFUSALS, FAILED)
