"""The channel of a command over SSH, without a host."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from headrace.base.errors import ConnectionLost
from headrace.host.target.channel import Channel


async def test_a_connection_that_breaks_while_a_command_starts_is_told_once() -> None:
    """Its exit code has the same reason, and asyncio would print that with a traceback if nobody asks for it."""
    printed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: printed.append(context))
    channel = Channel("mark", None, "root@db1", lambda: ConnectionLost("the connection was lost"))
    channel.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await channel.pid
    del channel
    gc.collect()
    assert printed == []
