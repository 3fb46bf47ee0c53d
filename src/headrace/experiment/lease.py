"""The lease of a host: it runs one trial at a time, whoever asks, and who comes later waits.

The lease is the lock of the host's own journal (``Journal.hold``), so it holds against every controller and dies
with the one that has it. Here is only the queue: it is told once who is in the way, then asks again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.errors import HostBusy

T = TypeVar("T")

#: How long a host that somebody else holds is left alone before it is asked again.
POLL_S = 2.0

#: How long a host is left to others between two blocks: long enough that who waits sees it free.
YIELD_S = 2.5


async def queued(take: Callable[[], Awaitable[T]], tell: Callable[[str], None], poll_s: float = POLL_S) -> T:
    """What ``take`` gives, as soon as nobody else holds the host. Every other error is the caller's."""
    told = ""
    while True:
        try:
            return await take()
        except HostBusy as error:
            if error.message != told:
                told = error.message
                tell(f"waiting: {error.message}")
        await asyncio.sleep(poll_s)
