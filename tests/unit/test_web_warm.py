"""Long lists of queries are read before someone asks."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StoreError
from headrace.web import tables, warm
from headrace.web.asked import Asked
from headrace.web.site import Site
from tests.history import site
from tests.waiting import until_async


async def test_lists_are_read_again_and_again_and_an_error_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def classes(_: Site, one: Asked, **__: Any) -> None:
        asked.append(one.range)
        raise StoreError("damaged")

    monkeypatch.setattr(tables, "classes", classes)
    monkeypatch.setattr(warm, "PAUSE_S", 0.0)
    monkeypatch.setattr(warm, "EVERY_S", 0.0)
    task = asyncio.create_task(warm.keep_warm(site(tmp_path)))
    await until_async(lambda: len(asked) > 6)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert asked[:6] == [*warm.RANGES, *warm.RANGES]
