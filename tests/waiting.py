"""Tests wait for conditions, never for times. The limit ends what will never come, and suits a starved machine."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 600.0


def until(
    condition: Callable[[], object],
    process: subprocess.Popen[Any] | None = None,
    *,
    limit_s: float = LIMIT_S,
    pause_s: float = 0.01,
    what: str = "it did not happen",
) -> None:
    """With ``process``: while that runs. A fleeting stage wants a short pause, a dear question a long one."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: the process ended before: {process.communicate()}")
        assert time.monotonic() < deadline, what
        time.sleep(pause_s)


async def until_async(
    condition: Callable[[], object], *, pause_s: float = 0.01, what: str = "it did not happen"
) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(pause_s)
