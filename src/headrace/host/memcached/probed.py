"""What a probe of a memcached server printed: latencies of its gets, and what the server did meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.base.received import ANY, an_object, number
from headrace.base.watched import EVICTIONS, FAILED, HITS, REFUSALS
from headrace.host.memcached.probe import REFUSED, requests


class Reset(Exception):
    """Its counters began again: the stretch says nothing."""


class Restarted(Reset):
    """They did because the server did."""


@dataclass(frozen=True)
class Reading:
    """The server's counters at a time of this machine's clock. ``asked``: gets of the probe until then."""

    t_ns: int
    asked: float
    counters: dict[str, float]
    #: By a clock that nobody sets, the same for all programs of the machine; 0 where an older probe ran.
    steady_ns: int = 0


@dataclass(frozen=True)
class Gets:
    """A second of gets, that ended at ``t_ns``: how long each took that was answered, and each that was not."""

    t_ns: int
    answered_ns: tuple[int, ...]
    failed_ns: tuple[int, ...]
    steady_ns: int = 0


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
    steady_ns = int(number(content.get("steady_ns", 0), least=0))
    if "gets" in content:
        each = ([int(number(one, least=0)) for one in content[name]] for name in ("gets", "failed"))
        answered, failed = each
        return Gets(t_ns, tuple(answered), tuple(failed), steady_ns)
    if not (stats := content.get("stats")):
        return Unanswered(t_ns, str(content.get("why") or "it was not read"))
    counters = {str(name): number(value, least=0) for name, value in stats.items()}
    return Reading(t_ns, number(content.get("asked"), least=0), counters, steady_ns)


def between(readings: Sequence[Reading]) -> Counts:
    """From the first to the last of them; at least two. Raises Reset."""
    for one, other in pairwise(readings):
        is_younger = other.counters.get("uptime", 0.0) < one.counters.get("uptime", 0.0)
        if is_younger or one.counters.get("pid") != other.counters.get("pid"):
            raise Restarted("memcached was restarted")
        names = ("cmd_get", "cmd_set")
        if any(other.counters.get(name, 0.0) < one.counters.get(name, 0.0) for name in names):
            raise Reset("memcached's counters were reset")
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


def costs(counts: Counts | None, failed: float, asked: float) -> dict[str, float | None]:
    """``OF_CACHES`` by name, as far as it is known. ``failed`` gets, of so many ``asked``, are the probe's."""
    found: dict[str, float | None] = {FAILED.name: 1000 * failed / asked if asked else None}
    if counts is not None:
        hits = counts.hit_rate
        found[HITS.name] = 100 * hits if hits is not None else None
        found[EVICTIONS.name] = counts.per_1000(counts.evictions)
        found[REFUSALS.name] = counts.per_1000(counts.refused)
    return found


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
