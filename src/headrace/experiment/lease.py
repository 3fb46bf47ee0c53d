"""The lease of a host: a host runs one trial at a time, and later callers wait.

The lease is the lock of the host's own journal (``Journal.hold``), so it excludes every other controller and ends
with its holder. This module is only the queue: it reports the holder once, then retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.base.errors import HostBusy

T = TypeVar("T")

#: Interval between attempts to take a host held by another process.
POLL_S = 2.0

#: How long a host is left to others between two blocks: long enough for a waiting controller to notice.
YIELD_S = 2.5


async def queued(take: Callable[[], Awaitable[T]], tell: Callable[[str], None], poll_s: float = POLL_S) -> T:
    """The result of ``take``, once no other process holds the host. Raises every error other than HostBusy."""
    told = ""
    while True:
        try:
            return await take()
        except HostBusy as error:
            if error.message != told:
                told = error.message
                tell(f"waiting: {error.message}")
        await asyncio.sleep(poll_s)
