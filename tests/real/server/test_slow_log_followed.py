"""`serve` reads the slow log that a real server writes now: another file, a rotated one, none, and says which."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.base.model import ServerLogin
from headrace.fleet.host import Host
from headrace.history.archive.files import Archive
from headrace.history.collect.collector import Collector
from headrace.history.collect.watched import Watched
from headrace.host.agent import Agent
from headrace.host.target import TargetSpec, open_target
from headrace.hunt.live import Link
from headrace.web import said
from tests.servers import Server, started
from tests.waiting import until_async


@contextlib.asynccontextmanager
async def watching(server: Server, folder: Path) -> AsyncIterator[Watched]:
    login = ServerLogin(server.socket, user="root")
    collector = Collector(Archive(folder / "archive"), [Host("db1", TargetSpec("local"), login=login)])
    each = collector.hosts["db1"]
    target = open_target(TargetSpec("local"))
    await target.connect()
    each.feed.agent, each.feed.login, each.feed.link = await Agent.install(target), login, Link.LIVE
    each.feed.facts = await each.feed.agent.facts(login)
    tasks = [asyncio.create_task(loop(each)) for loop in (collector._log, collector._settings)]
    try:
        yield each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await target.close()


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
async def test_a_slow_log_that_changes_at_run_time(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.history.collect.slow_log.EVERY", "1s")
    monkeypatch.setattr("headrace.history.collect.collector.SETTINGS_EVERY_S", 1.0)
    monkeypatch.setattr("headrace.history.collect.collector.LOG_CHECKED_S", 0.1)
    with started(kind, folder / f"log-{kind}", "--long-query-time=0") as server:
        logs = Path(str(server.sql("SELECT @@datadir")[0][0]))

        def write_to(name: str) -> None:
            server.sql("SET GLOBAL slow_query_log = ON", f"SET GLOBAL slow_query_log_file = '{name}'")

        def unread(each: Watched) -> str:
            return " ".join(said.unread([said.logged("db1", each.feed.facts, "auto", each.log_problem)]))

        write_to("a.log")
        async with watching(server, tmp_path) as each:

            async def is_read(mark: str) -> None:
                """Statements with this name arrive."""

                def there() -> bool:
                    server.sql(f"SELECT 1 AS {mark}")
                    return any(mark in str(row["text"]) for row in each.pending.get("texts", ()))

                await until_async(there, what=mark)

            await is_read("first")
            write_to("b.log")
            await is_read("second")
            os.rename(logs / "b.log", logs / "b.log.1")
            server.sql("FLUSH SLOW LOGS")
            await is_read("rotated")
            assert unread(each) == ""
            server.sql("SET GLOBAL log_output = 'TABLE'")
            await until_async(lambda: "log_output is TABLE" in unread(each), what="that tables are not read")
            server.sql("SET GLOBAL log_output = 'FILE'", "SET GLOBAL long_query_time = 10")
            await until_async(
                lambda: (
                    "10 s now" in said.note("slow log", [said.logged("db1", each.feed.facts, "auto", "")])
                ),
                what="the new limit",
            )
            assert unread(each) == ""
