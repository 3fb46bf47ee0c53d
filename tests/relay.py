"""A way to a server that can be cut: a relay of TCP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Relay:
    """``cut`` swallows all bytes in silence and lets nobody in; ``break_off`` ends all connections at once."""

    def __init__(self, port: int) -> None:
        self.port = 0
        #: Connections that were let through to the server.
        self.connections = 0
        self._to = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        self._open.clear()

    def join(self) -> None:
        """What was on its way when it was cut is lost, as are the connections: they only do not know it yet."""
        for task in self._tasks:
            task.cancel()
        self._open.set()

    def break_off(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        self.connections += 1
        there, to_there = await asyncio.open_connection("127.0.0.1", self._to)
        for source, sink in ((reader, to_there), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._writers |= {writer, to_there}

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(65536):
                await self._open.wait()
                sink.write(content)
                await sink.drain()
        sink.close()


@contextlib.asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    relay = Relay(port)
    server = await asyncio.start_server(relay._serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.break_off()
        for task in relay._tasks:
            task.cancel()
