"""An answer that takes long, computed once for many readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Kept:
    """Computed at most once in ``seconds``; whoever asks meanwhile waits for it."""

    seconds: float
    _found: Any = None
    _at_s: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async with self._lock:
            if self._found is None or time.monotonic() - self._at_s > self.seconds:
                self._found = await work()
                self._at_s = time.monotonic()
            return self._found
