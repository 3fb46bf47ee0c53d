"""`headrace indexes` on real servers: what it offers is accepted and used, and statements read fewer rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import headrace
from tests.servers import Server, started

SLOW_LOG = ("--slow-query-log=1", "--long-query-time=0", "--slow-query-log-file=slow.log")
#: Statement -> the columns of the index that it lacks.
LACKING = {
    "SELECT * FROM orders WHERE customer = 17 AND created > '2026-01-01'": ["customer", "created"],
    "SELECT id FROM orders WHERE customer = 18 ORDER BY created DESC LIMIT 3": ["customer", "created"],
    "UPDATE orders SET total = total + 1 WHERE code = 'code-77'": ["code"],
    "SELECT c.email FROM orders o JOIN customers c ON c.orders_code = o.code WHERE o.id = 1": ["orders_code"],
}
CONTENT = (
    "SELECT * FROM orders WHERE id = 9",
    "SELECT * FROM orders WHERE shop = 3",
    "SELECT * FROM tiny WHERE b = 1",
)
HINDERED = "SELECT COUNT(*) FROM orders WHERE DATE(created) = '2026-01-01'"


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / request.param, *SLOW_LOG) as server:
        server.sql(
            "SET GLOBAL slow_query_log = 0",
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, code VARCHAR(20), total INT,"
            " shop INT, created DATETIME, note TEXT, KEY shop (shop), KEY again (shop), KEY part (note(10)))",
            "CREATE TABLE customers (id INT PRIMARY KEY AUTO_INCREMENT, email VARCHAR(50),"
            " orders_code VARCHAR(20))",
            "CREATE TABLE tiny (a INT PRIMARY KEY, b INT)",
            "INSERT INTO tiny VALUES (1, 1)",
            "INSERT INTO orders (customer, code, total, shop, created) VALUES (1, 'a', 1, 1, '2026-01-01')",
        )
        for _ in range(12):
            server.sql(
                "INSERT INTO shop.orders (customer, code, total, shop, created) SELECT id % 400,"
                " CONCAT('code-', id), id, id % 500, '2025-12-01' + INTERVAL id MINUTE FROM shop.orders",
            )
        server.sql(
            "INSERT INTO shop.customers (email, orders_code)"
            " SELECT CONCAT(id, '@x'), CONCAT('code-', id) FROM shop.orders",
            "ANALYZE TABLE shop.orders, shop.customers, shop.tiny",
            "SET GLOBAL slow_query_log = 1",
        )
        for text in (*LACKING, *CONTENT, HINDERED):
            server.sql("USE shop", text)
        yield server


def advice(server: Server) -> dict[str, Any]:
    log = str(server.folder / "data" / "slow.log")
    done = headrace("indexes", "--json", log, "--mysql-socket", str(server.socket), "--mysql-user", "root")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def examined(server: Server, text: str) -> int:
    """The rows that a statement reads, by the server's own count of this session."""
    *_, rows = (server.sql("USE shop", "FLUSH STATUS", text, "SHOW SESSION STATUS LIKE 'Handler_read%'"),)
    return sum(int(str(value)) for _, value in rows)


def test_what_statements_lack_is_offered_accepted_and_used(server: Server) -> None:
    answer = advice(server)
    offered = {(each["table"], tuple(each["columns"])): each for each in answer["candidates"]}
    assert set(offered) == {
        ("shop.orders", ("customer", "created")),
        ("shop.orders", ("code",)),
        ("shop.customers", ("orders_code",)),
    }
    assert [each["column"] for each in answer["hindrances"]] == ["created"]
    assert {each["index"]: each["kept"] for each in answer["redundant"]} == {"shop": "again"}
    assert answer["unread"] == answer["unknown"] == []
    before = {text: examined(server, text) for text in LACKING}
    for each in answer["candidates"]:
        server.sql(each["ddl"])
    server.sql("ANALYZE TABLE shop.orders, shop.customers")
    after = {text: examined(server, text) for text in LACKING}
    assert all(after[text] < before[text] / 5 for text in LACKING), (before, after)
    # What was added serves them, so nothing more is offered.
    assert advice(server)["candidates"] == []
