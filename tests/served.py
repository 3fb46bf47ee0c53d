"""Pages on loopback, served by the real server on a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from starlette.types import ASGIApp

from headrace.web.app import Listen, serve
from tests.waiting import until

STOP_TIMEOUT_S = 90.0


@contextlib.contextmanager
def on_loopback(
    app: ASGIApp, port: int = 0, listen: Listen | None = None
) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """The address, and the loop on which it is served."""
    loop = asyncio.new_event_loop()
    urls: list[str] = []
    task = loop.create_task(serve(app, listen or Listen(port=port), urls.append))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: urls or task.done())
        yield urls[0], loop
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(STOP_TIMEOUT_S)
        loop.close()
