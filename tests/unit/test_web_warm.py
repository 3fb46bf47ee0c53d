"""Long lists of queries are read before someone asks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.base.errors import StoreError
from headrace.web import app, tables, warm
from headrace.web.asked import Asked
from headrace.web.listing import Listing
from headrace.web.site import Site
from tests.below import go_below
from tests.history import fill, site
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


async def test_what_is_read_is_what_the_page_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are kept by question: those of more classes than the page shows are of no use to it."""
    found = site(tmp_path, key="k")
    fill(found.reader.archive, "db1", int(time.time()) // 60 * 60 - 300, 3)
    asked: list[Any] = []
    real = tables.classes

    async def classes(of: Site, one: Asked, most: int = tables.MOST_ROWS, **more: Any) -> Listing:
        asked.append((one.range, most, more))
        return await real(of, one, most, **more)

    monkeypatch.setattr(tables, "classes", classes)
    monkeypatch.setattr(warm, "PAUSE_S", 0.0)
    task = asyncio.create_task(warm.keep_warm(found))
    await until_async(lambda: len(asked) >= len(warm.RANGES))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    read = asked[:]
    asked.clear()
    with TestClient(app.application(found), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        for each in warm.RANGES:
            assert client.get("/queries", params={"range": each}).status_code == 200
    assert {each for each, *_ in asked} == set(warm.RANGES)
    assert {(most, str(more)) for _, most, more in [*read, *asked]} == {(tables.MOST_CLASSES, "{}")}
