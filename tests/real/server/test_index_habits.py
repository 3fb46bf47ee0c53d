"""`headrace indexes` on real slow logs: lookups and commits row by row, told from what is put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.commands import headrace
from tests.servers import Server, started

SLOW_LOG = ("--slow-query-log=1", "--long-query-time=0", "--slow-query-log-file=slow.log")
SESSIONS, PAGE = 4, 30


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / f"habits-{request.param}", *SLOW_LOG) as server:
        server.sql(
            "SET GLOBAL slow_query_log = 0",
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY, customer INT)",
            "CREATE TABLE items (id INT PRIMARY KEY, price INT)",
            "CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, who INT, what INT)",
            f"INSERT INTO orders VALUES {', '.join(f'({at}, {at % 9})' for at in range(500))}",
            f"INSERT INTO items VALUES {', '.join(f'({at}, {at})' for at in range(500))}",
            "SET GLOBAL slow_query_log = 1",
        )
        for session in range(SESSIONS):
            _row_by_row(server, session)
            _put_together(server, session)
        yield server


def _row_by_row(server: Server, session: int) -> None:
    with _client(server) as client, client.cursor() as cursor:
        cursor.execute(f"SELECT id FROM orders WHERE id > {session * 40} LIMIT {PAGE}")
        for (number,) in cursor.fetchall():
            cursor.execute(f"SELECT * FROM items WHERE id = {number}")
        for number in range(100):
            cursor.execute(f"INSERT INTO log (who, what) VALUES ({session}, {number})")


def _put_together(server: Server, session: int) -> None:
    with _client(server) as client, client.cursor() as cursor:
        cursor.execute(f"SELECT customer FROM orders WHERE id > {session} LIMIT 3")
        cursor.execute("SELECT price FROM items WHERE id IN (1, 2, 3)")
        cursor.execute("BEGIN")
        for number in range(100):
            cursor.execute(f"INSERT INTO log (what) VALUES ({number})")
        cursor.execute("COMMIT")


def _client(server: Server) -> Any:
    return pymysql.connect(
        unix_socket=server.socket, user="root", ssl_disabled=True, database="shop", autocommit=True
    )


def test_what_sessions_repeat_is_told_with_its_share_of_the_time(server: Server) -> None:
    log = str(server.folder / "data" / "slow.log")
    done = headrace("indexes", "--json", log, "--mysql-socket", str(server.socket), "--mysql-user", "root")
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    said = {each["what"].partition(":")[0]: each for each in page["costly"]}
    assert page["unknown_of_sessions"] == []
    assert set(said) == {
        "once for each row of another",
        "one row at a time, each committed by itself (autocommit)",
    }
    lookups = said["once for each row of another"]
    assert lookups["what"].endswith("; 29 of 30 calls of a session have other values than its slowest")
    assert f"{SESSIONS * PAGE} calls in {SESSIONS} sessions" in lookups["what"]
    commits = said["one row at a time, each committed by itself (autocommit)"]
    assert commits["what"].partition(": ")[2].startswith(f"{SESSIONS * 100} calls in {SESSIONS} sessions")
    assert all(0 < each["share_of_time"] < 1 for each in said.values())
