"""Which hosts this controller's rollouts changed, and when: meanwhile they are no controls of another change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.rollout.book import Book

_HERE = frozenset({"", "localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Stretch:
    """How long a host had a rollout's change, s since 1970; ``end_s`` is infinite while it has it. ``names`` are
    those under which a source of data may know the host.
    """

    rollout: str
    settings: str
    names: frozenset[str]
    start_s: float
    end_s: float

    def is_of(self, host: str) -> bool:
        """Whether it is about this host of a source; a port after its name may be left out."""
        return bool(self.names & {host, host.rpartition(":")[0]})

    def is_part_of(self, since_s: float, until_s: float) -> bool:
        """Whether the host had the change for a part of this time, and was without it for another part."""
        overlaps = self.start_s < until_s and self.end_s > since_s
        return overlaps and not (self.start_s <= since_s and self.end_s >= until_s)


def stretches(books: Iterable[Book]) -> list[Stretch]:
    """Of all hosts of these rollouts, the earliest first. A host that was given up may still have its change."""
    found = [each for book in books for each in _of(book)]
    return sorted(found, key=lambda each: each.start_s)


def _of(book: Book) -> Iterable[Stretch]:
    settings = ", ".join(f"{name}={value}" for name, value in book.plan.settings.items())
    started: dict[tuple[str, str], float] = {}
    ended: dict[tuple[str, str], float] = {}
    for event in book.events:
        key = (str(event.get("host")), str(event.get("change")))
        if event["kind"] == "applying":
            started[key] = float(event["t"])
        elif event["kind"] == "undone":
            ended[key] = float(event["t"])
    for (host, change), start_s in started.items():
        if host in book.plan.members:
            names = frozenset({host, book.plan.members[host].host.spec.host}) - _HERE
            yield Stretch(book.plan.id, settings, names, start_s, ended.get((host, change), math.inf))
