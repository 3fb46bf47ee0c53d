"""Live figures of a host as server-sent events: one shot a second, made once however many look."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from headrace.base.encode import json_text
from headrace.history.collect.watched import Watched
from headrace.hunt.top import jsonform
from headrace.hunt.top.shot import take

EVERY_S = 1.0
#: Browsers that look at a time, over all hosts.
MOST_LOOKING = 250


class TooMany(Exception):
    """More browsers look than there is room for."""


@dataclass
class _Stream:
    """A host's shots. Only ``newest`` is kept: a browser that reads slowly misses shots, and costs nothing."""

    task: asyncio.Task[None] | None = None
    looking: int = 0
    newest: str = ""
    number: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Streams:
    """One stream per host, made while somebody looks."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    @property
    def looking(self) -> int:
        return sum(stream.looking for stream in self._streams.values())

    def check_room(self) -> None:
        if self.looking >= MOST_LOOKING:
            raise TooMany

    async def follow(self, watched: Watched) -> AsyncIterator[str]:
        """Shots as JSON, until the reader leaves."""
        stream = self._streams.setdefault(watched.name, _Stream())
        stream.looking += 1
        if stream.task is None or stream.task.done():
            stream.task = asyncio.create_task(_make(watched, stream))
        seen = 0
        try:
            while True:
                async with stream.changed:
                    while stream.number <= seen:
                        await stream.changed.wait()
                    seen, content = stream.number, stream.newest
                yield content
        finally:
            stream.looking -= 1
            if not stream.looking and stream.task is not None:
                # Reset this first, so that a new browser starts a new task.
                task, stream.task = stream.task, None
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _make(watched: Watched, stream: _Stream) -> None:
    while True:
        content = json_text(await asyncio.to_thread(shot_of, watched))
        async with stream.changed:
            stream.newest, stream.number = content, stream.number + 1
            stream.changed.notify_all()
        await asyncio.sleep(EVERY_S)


def shot_of(watched: Watched) -> dict[str, Any]:
    """The host now; without samples only the state of its connection."""
    feed = watched.feed
    age_s = time.monotonic() - feed.heard_at if feed.heard_at else None
    link = {"link": str(feed.link), "problem": watched.problem, "age_s": age_s, "at_s": time.time()}
    shot = take(feed, time.strftime("%H:%M:%S"), age_s or 0.0, watched.judgement)
    return link | ({"shot": jsonform.overview(shot)} if shot is not None else {"shot": None})
