"""The memcached servers of a host over a window: rates, values and settings of each, and of its slab classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.host.facts import HostFacts
from headrace.host.memcached import ANSWER
from headrace.host.window import Window
from headrace.hunt.users import TICKS_PER_SECOND

OF_SERVER, OF_CLASS = "memcached", "memcached_slabs"
#: What counts as a request: each key of a ``get`` with several. Meta commands count among these, too.
_REQUESTS = ("cmd_get", "cmd_set", "cmd_touch")
_BY_RESULT = ("delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses")


@dataclass(frozen=True)
class SlabClass:
    """Items whose sizes are near each other, in pages of their own. ``number`` is memcached's."""

    number: int
    label: str
    window: Window

    def rate(self, metric: str) -> float | None:
        """Growth per second of a counter of ``stats slabs`` or ``stats items``."""
        return self.window.rate(OF_CLASS, metric, self.label)

    def last(self, metric: str) -> float | None:
        """The newest value."""
        return self.window.last(OF_CLASS, metric, self.label)

    @property
    def item_bytes(self) -> float | None:
        """The mean size of its items, with key and header."""
        items, requested = self.last("number"), self.last("mem_requested")
        return requested / items if items and requested is not None else None


@dataclass(frozen=True)
class Cache:
    """One memcached server. ``name`` is its address; ``why`` it was not read at the end of the window, else empty;
    ``process`` is its row among the facts' servers, empty if it is not there."""

    name: str
    pid: int
    version: str
    why: str
    settings: Mapping[str, str]
    is_restarted: bool
    connections: Mapping[str, Any]
    process: Mapping[str, Any]
    window: Window

    def rate(self, metric: str) -> float | None:
        """Growth per second of a counter of ``stats``; None if it was not read twice."""
        return self.window.rate(OF_SERVER, metric, self.name)

    def growth(self, metric: str) -> float | None:
        """Growth over the window."""
        return self.window.growth(OF_SERVER, metric, self.name)

    def last(self, metric: str) -> float | None:
        """The newest value: of a counter since the server's start."""
        return self.window.last(OF_SERVER, metric, self.name)

    @property
    def is_read(self) -> bool:
        return self.last("uptime") is not None

    @property
    def classes(self) -> list[SlabClass]:
        """Those with at least one page, by number."""
        labels = self.window.labels(OF_CLASS, "chunk_size")
        found = (label.rpartition("#") for label in labels)
        numbers = sorted(int(number) for name, _, number in found if name == self.name and number.isdecimal())
        return [SlabClass(number, f"{self.name}#{number}", self.window) for number in numbers]

    @property
    def requests_s(self) -> float | None:
        """Keys and items asked for or changed per second; None if it was not read twice."""
        known = [rate for metric in _REQUESTS + _BY_RESULT if (rate := self.rate(metric)) is not None]
        return sum(known) if known else None

    @property
    def hit_rate(self) -> float | None:
        """Of the window; None without a get."""
        gets, hits = self.growth("cmd_get"), self.growth("get_hits")
        return hits / gets if gets and hits is not None else None

    @property
    def hit_rate_before(self) -> tuple[float, float] | None:
        """From the server's start to the window, and how many gets that were; None without one."""
        values = [(self.last(name), self.growth(name)) for name in ("get_hits", "cmd_get")]
        (hits, new_hits), (gets, new_gets) = values
        if hits is None or gets is None or new_hits is None or new_gets is None or gets <= new_gets:
            return None
        return (hits - new_hits) / (gets - new_gets), gets - new_gets

    @property
    def answer_s(self) -> float | None:
        """How long it took to answer its own host: not what clients wait for; None if it was not timed."""
        return self.last(ANSWER)

    def to_json(self) -> dict[str, Any]:
        """Null for what is not known."""
        return {
            "name": self.name,
            "pid": self.pid,
            "version": self.version or None,
            "not_read": self.why or None,
            "restarted": self.is_restarted,
            "limit_bytes": self.last("limit_maxbytes"),
            "stored_bytes": self.last("bytes"),
            "items": self.last("curr_items"),
            "requests_s": self.requests_s,
            "hit_rate": self.hit_rate,
            "evictions_s": self.rate("evictions"),
            "connections": self.last("curr_connections"),
            "connections_limit": self.last("max_connections"),
            "cpus": self.cpus,
            "answer_s": self.answer_s,
        }

    @property
    def cpus(self) -> float | None:
        """CPUs that its process used; None if it was not sampled."""
        label = f"{self.pid}/memcached"
        ticks = [self.window.rate("process", metric, label) for metric in ("utime_ticks", "stime_ticks")]
        known = [tick for tick in ticks if tick is not None]
        return sum(known) / TICKS_PER_SECOND if len(known) == len(ticks) else None


def caches(facts: HostFacts, window: Window) -> Sequence[Cache]:
    """Every memcached server that the snapshot knows, by name."""
    processes = {server.get("pid"): server for server in facts.servers}
    found = [
        Cache(
            str(row["name"]),
            int(row["pid"]),
            str(row.get("version") or ""),
            str(row.get("why") or ""),
            {name: text for name, text in (row.get("settings") or {}).items() if isinstance(text, str)},
            bool(row.get("is_restarted")),
            row.get("connections") or {},
            processes.get(row["pid"], {}),
            window,
        )
        for row in facts.caches
    ]
    return sorted(found, key=lambda cache: cache.name)
