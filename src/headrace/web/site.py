"""What every page needs: the history, the hosts, the experiments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from headrace.base.errors import PlanError
from headrace.history.archive.reader import Reader
from headrace.history.collect.collector import Collector
from headrace.history.collect.watched import Watched
from headrace.web.asked import Asked, BadAddress, UnknownHost
from headrace.web.kept import Kept
from headrace.web.proxied import Proxy
from headrace.web.reviews import Reviews
from headrace.web.sessions import Audit, Sessions, Tries

if TYPE_CHECKING:
    from headrace.web.looks import Looking
    from headrace.web.provider import Provider

P = ParamSpec("P")
T = TypeVar("T")

#: Questions to the history at a time: each takes memory.
MOST_QUESTIONS = 2
#: Folders below ``--experiments`` that are looked into, and how deep.
MOST_FOLDERS, DEPTH = 2000, 3


@dataclass
class Site:
    reader: Reader
    collector: Collector
    sessions: Sessions
    audit: Audit
    experiments: Path
    is_secure: bool = False
    proxy: Proxy | None = None
    provider: Provider | None = None
    #: Hosts that could be bought, for the plan of a merge.
    catalogue: Path | None = None
    #: What is told of the hosts, if anybody is.
    looking: Looking | None = None
    reviews: Reviews = field(init=False)
    #: Capacity is of the whole history, which takes seconds to read.
    capacity: Kept = field(default_factory=lambda: Kept(600.0))
    #: A plan takes seconds of CPU.
    merged: Kept = field(default_factory=lambda: Kept(3600.0))
    #: Wrong passwords at approvals.
    tries: Tries = field(default_factory=Tries)
    #: Rollouts that are being taken back: a task that nothing refers to may be dropped.
    restoring: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_QUESTIONS))

    def __post_init__(self) -> None:
        if self.sessions.key and (self.proxy or self.provider):
            # Behind a proxy the key's link would open the pages to everyone who sees it.
            raise PlanError("one key for everyone, and users that others know, exclude each other")
        self.reviews = Reviews(self.reader.archive.root / "reviews.jsonl")

    def names(self, asked: Asked) -> list[str]:
        """The hosts that are asked for. Raises UnknownHost."""
        known = self.hosts()
        if not asked.host:
            return known
        if asked.host not in known:
            raise UnknownHost("no such host", place=asked.host)
        return [asked.host]

    def hosts(self) -> list[str]:
        """Those that are watched, then those that only the history knows."""
        watched = list(self.collector.hosts)
        return watched + [name for name in self.reader.archive.hosts() if name not in self.collector.hosts]

    def watched(self, name: str) -> Watched | None:
        return self.collector.hosts.get(name)

    async def ask(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A question to the history, without blocking the other pages."""
        async with self._room:
            return await asyncio.to_thread(work, *args, **kwargs)

    def experiment_folders(self) -> list[Path]:
        """Folders with a design, newest first."""
        found: list[Path] = []
        level: Sequence[Path] = [self.experiments]
        looked = 0
        for _ in range(DEPTH):
            below: list[Path] = []
            for folder in level:
                looked += 1
                if looked > MOST_FOLDERS:
                    break
                if (folder / "design.json").is_file():
                    found.append(folder)
                else:
                    below += _folders(folder)
            level = below
        return sorted(found, key=lambda path: -_time_of(path))


def one_host(site: Site, asked: Asked) -> list[str]:
    if not asked.host:
        raise BadAddress("this needs a host", hint="add host=NAME")
    return site.names(asked)


def _folders(folder: Path) -> list[Path]:
    try:
        return [
            p for p in sorted(folder.iterdir()) if p.is_dir() and not p.is_symlink() and p.name[:1] != "."
        ]
    except OSError:
        return []


def _time_of(path: Path) -> float:
    try:
        return (path / "design.json").stat().st_mtime
    except OSError:
        return 0.0


def loaded(text: str | None) -> Any:
    """JSON of the history; an empty list if it is damaged."""
    try:
        return json.loads(text or "[]")
    except ValueError:
        return []
