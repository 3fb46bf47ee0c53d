"""What a probe of a memcached server printed: latencies of its gets, and what the server did meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.base.received import ANY, an_object, number
from headrace.host.memcached.probe import REFUSED, requests


class Restarted(Exception):
    """Its counters began again: the stretch says nothing."""


@dataclass(frozen=True)
class Reading:
    """The server's counters at a time of this machine's clock. ``asked``: gets of the probe until then."""

    t_ns: int
    asked: float
    counters: dict[str, float]


@dataclass(frozen=True)
class Gets:
    """A second of gets, that ended at ``t_ns``: how long each took that was answered, and each that was not."""

    t_ns: int
    answered_ns: tuple[int, ...]
    failed_ns: tuple[int, ...]


@dataclass(frozen=True)
class Unanswered:
    """A reading that failed."""

    t_ns: int
    why: str


@dataclass(frozen=True)
class Counts:
    """What others asked of the server in a stretch of time; the probe's own gets are not in it."""

    seconds: float
    requests: float
    gets: float
    hits: float
    evictions: float
    refused: float

    @property
    def hit_rate(self) -> float | None:
        """None without a get."""
        return min(self.hits / self.gets, 1.0) if self.gets > 0 else None

    def per_1000(self, count: float) -> float | None:
        """Of its requests; None without any."""
        return 1000 * count / self.requests if self.requests > 0 else None


def parsed(line: str) -> Reading | Gets | Unanswered:
    """A line of a probe. Raises BadContent for what is none."""
    content = an_object(line, ANY)
    t_ns = int(number(content.get("t_ns"), least=0))
    if "gets" in content:
        each = ([int(number(one, least=0)) for one in content[name]] for name in ("gets", "failed"))
        answered, failed = each
        return Gets(t_ns, tuple(answered), tuple(failed))
    if not (stats := content.get("stats")):
        return Unanswered(t_ns, str(content.get("why") or "it was not read"))
    counters = {str(name): number(value, least=0) for name, value in stats.items()}
    return Reading(t_ns, number(content.get("asked"), least=0), counters)


def between(readings: Sequence[Reading]) -> Counts:
    """From the first to the last of them; at least two. Raises Restarted."""
    for one, other in pairwise(readings):
        names = ("uptime", "cmd_get", "cmd_set")
        if any(other.counters.get(name, 0.0) < one.counters.get(name, 0.0) for name in names):
            raise Restarted("memcached was restarted, or its counters were reset")
        if one.counters.get("pid") != other.counters.get("pid"):
            raise Restarted("memcached was restarted")
    first, last = readings[0], readings[-1]
    ours = last.asked - first.asked

    def grown(*names: str) -> float:
        return sum(max(last.counters.get(n, 0.0) - first.counters.get(n, 0.0), 0.0) for n in names)

    return Counts(
        seconds=(last.t_ns - first.t_ns) / 1e9,
        requests=max(requests(last.counters) - requests(first.counters) - ours, 0.0),
        gets=max(grown("cmd_get") - ours, 0.0),
        hits=grown("get_hits"),
        evictions=grown("evictions"),
        # One of the two names, by version, for the same event.
        refused=max(grown(name) for name in REFUSED),
    )


def argv(address: str, per_s: float, seconds: float) -> list[str]:
    """The probe's command: for so many seconds, or with 0 as long as somebody reads it."""
    # Of what is in the current directory nothing is taken for a module.
    return [
        sys.executable,
        "-P",
        "-m",
        "headrace.host.memcached.probe",
        address,
        f"{per_s:g}",
        f"{seconds:g}",
    ]
