"""Founding cases on live servers: each is named, and nothing of the server beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.model import ServerLogin
from headrace.host.target.local import LocalTarget
from headrace.hunt.hunt import Hunt, examine, watch
from headrace.hunt.rules.redo import capacity_bytes
from tests.loads import load, spec
from tests.servers import Server, mariadb, started

#: Rows of which four fit on a page of 16 KiB: twice as many in each of the doublings.
ROW_BYTES, DOUBLINGS = 3_700, 15
SECONDS = 6
MIB = 1 << 20
#: What a fresh server on a small, shared machine may be told beside what was made ill. Each is true of it.
TRUE_OF_BOTH = {
    "REDO01",  # the redo log of a fresh server is small
    "FLUSH03",  # MySQL 8.0 goes through the page cache unless told otherwise
    "STMT01",  # the load is one statement
    "STMT04",
    "STAT09",  # every latch is recorded, which the rules about latches need
}
#: The areas of this file: what the host itself is told is another file's matter.
AREAS = {"POOL", "REDO", "FLUSH", "READ", "SESS", "LOCK", "REPL", "NAME", "STAT", "BLOG", "STMT"}
OPTIONS = ("--performance-schema=ON", "--performance-schema-instrument=wait/synch/%=ON")


@pytest.fixture(scope="module")
def maria(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m", *OPTIONS) as server:
        yield fill(server)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[Server]:
    with started("mysql", folder / "o", *OPTIONS) as server:
        yield fill(server)


def fill(server: Server) -> Server:
    """Four times the pool, and one row that everybody wants."""
    server.sql(
        "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
        "CREATE DATABASE shop",
        f"CREATE TABLE shop.wide (id INT PRIMARY KEY, v VARCHAR({ROW_BYTES})) CHARACTER SET latin1",
        f"INSERT INTO shop.wide VALUES (0, REPEAT('x', {ROW_BYTES}))",
        *(f"INSERT INTO shop.wide SELECT id + {1 << n}, v FROM shop.wide" for n in range(DOUBLINGS)),
        "CREATE TABLE shop.hot (id INT PRIMARY KEY, v INT)",
        "INSERT INTO shop.hot VALUES (1, 0)",
        "ANALYZE TABLE shop.wide",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        "SET GLOBAL innodb_max_dirty_pages_pct = 0",
    )
    # What loading left behind is no fault of the server: its redo log would still be full.
    deadline = time.monotonic() + 30
    while server.status("Innodb_buffer_pool_pages_dirty") > 10 and time.monotonic() < deadline:
        time.sleep(0.2)
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = 90")
    return server


def hunt(server: Server) -> Hunt:
    login = ServerLogin(socket=server.socket, user="root")
    return examine(asyncio.run(watch(LocalTarget(), SECONDS, login)))


def codes(found: Hunt) -> set[str]:
    return {f.rule.code for f in found.judgement.findings if f.rule.area in AREAS}


def said(found: Hunt) -> str:
    return "\n".join(f"{f.id}: {f.hit.summary}" for f in found.judgement.findings)


def assert_only_the_lock(code: str, found: Hunt) -> None:
    """The lock is named, and nothing else but that software is the limit: whether it is depends on how much of the
    hardware the other tests leave."""
    assert codes(found) - TRUE_OF_BOTH - {"POOL01", "LOCK01"} == {code}, said(found)


POINT = {
    "sql": "SELECT v FROM wide WHERE id = ?",
    "parameters": [{"kind": "int", "min": 0, "max": (1 << DOUBLINGS) - 1}],
}


def test_a_pool_smaller_than_the_data(server: Server) -> None:
    with load(server, spec(4, POINT)):
        found = hunt(server)
    finding = found.finding("POOL01")
    assert finding is not None, said(found)
    (remedy,) = finding.hit.remedies
    assert 100 * MIB < float(str(remedy.settings["server.innodb_buffer_pool_size"])) < 300 * MIB
    assert codes(found) - TRUE_OF_BOTH == {"POOL01"}, said(found)


def test_a_global_buffer_of_sessions(server: Server) -> None:
    # Not sort_buffer_size: MySQL takes only as much of that as a sort needs.
    (before,) = server.sql("SELECT @@global.read_rnd_buffer_size")
    server.sql(f"SET GLOBAL read_rnd_buffer_size = {256 * MIB}")
    try:
        found = hunt(server)
    finally:
        server.sql(f"SET GLOBAL read_rnd_buffer_size = {before[0]}")
    finding = found.finding("SESS01")
    assert finding is not None, said(found)
    assert list(finding.hit.remedies[0].settings) == ["server.read_rnd_buffer_size"]
    # The pool is still small for its data, and was read from before.
    assert codes(found) - TRUE_OF_BOTH - {"POOL01"} == {"SESS01"}, said(found)
    assert "SESS01" not in codes(hunt(server))


def test_the_redo_log_that_is_in_force(folder: Path) -> None:
    with started("mysql", folder / "r", "--innodb-log-file-size=100M") as server:
        assert server.sql("SELECT @@innodb_redo_log_capacity") == [(100 * MIB,)]
        found = hunt(server)
    assert capacity_bytes(found.evidence) == 200 * MIB
    assert found.finding("REDO04") is None, said(found)


def test_one_contended_row(server: Server) -> None:
    statements = ({"sql": "UPDATE hot SET v = v + 1 WHERE id = 1"}, {"sql": "DO SLEEP(0.01)"})
    with load(server, spec(24, *statements, transaction=True)):
        found = hunt(server)
    assert_only_the_lock("LOCK02", found)
    if limit := found.finding("LOCK01"):
        assert "row locks" in limit.hit.summary


def test_one_contended_lock_of_a_table(server: Server) -> None:
    statements = ({"sql": "LOCK TABLES hot WRITE"}, {"sql": "DO SLEEP(0.01)"}, {"sql": "UNLOCK TABLES"})
    with load(server, spec(24, *statements)):
        found = hunt(server)
    assert_only_the_lock("LOCK04", found)
