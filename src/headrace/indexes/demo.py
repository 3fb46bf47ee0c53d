"""What the demo of indexes works on: a small shop that lacks two indexes and has one too many, and its traffic.

Two private servers hold the same rows: `shop`, which takes the traffic, and a copy, on which candidates are tried.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from headrace.base.model import ServerLogin, Value, Vendor
from headrace.host.agent import Agent, Journal
from headrace.host.target import Target, to_the_end
from headrace.indexes.session import Session, opened
from headrace.lab.server import PrivateServer, ServerSpec

#: What the shop lacks, and the index that another one replaces.
MISSING = (("shop.orders", ("customer", "created")), ("shop.items", ("order_id",)))
SURPLUS = "by_city"
#: Statements of each class, per round of the traffic.
ROUND = {"newest": 6, "since": 3, "lines": 3, "customer": 20, "paid": 1, "day": 1, "insert": 8, "seen": 8}

_OPTIONS: Mapping[str, Value] = {"innodb_buffer_pool_size": "128M", "skip_log_bin": "ON"}
_LOG: Mapping[str, Value] = {
    "slow_query_log": "ON", "slow_query_log_file": "slow.log", "long_query_time": 0, "log_output": "FILE",
}  # fmt: skip


@dataclass(frozen=True)
class Shop:
    """The two servers; ``log`` is the slow log of the first one."""

    login: ServerLogin
    copy: ServerLogin
    log: str


@contextlib.asynccontextmanager
async def shop(target: Target, folder: str, rows: int, tell: Callable[[str], None]) -> AsyncIterator[Shop]:
    """Start both below ``folder``, with ``rows`` orders. They are killed at the end, and if this process dies.

    Raises HostBusy while another command holds this machine, NotReady without a MariaDB.
    """
    journal = Journal(await Agent.install(target), f"demo-indexes/{time.time_ns()}")
    async with journal.hold():
        await journal.record([{"kind": "process", "mark": journal.owner}])
        running: list[PrivateServer] = []

        def server(name: str, options: Mapping[str, Value]) -> PrivateServer:
            spec = ServerSpec(Vendor.MARIADB, variables={**_OPTIONS, **options})
            made = PrivateServer(target, spec, f"{folder}/{name}", f"{folder}/run{name}", journal.owner)
            running.append(made)
            return made

        try:
            tell(f"making a shop with {rows:,} orders")
            loader = server("data", {"innodb_flush_log_at_trx_commit": 0})
            await loader.initialise()
            await loader.start()
            await loader.query(";\n".join(tables(rows)), timeout_s=900)
            await loader.stop()
            await target.run(["cp", "-a", f"{folder}/data", f"{folder}/copy"], timeout_s=300)
            first, second = await server("data", _LOG).start(), await server("copy", {}).start()
            yield Shop(
                ServerLogin(socket=first.socket, user="root"),
                ServerLogin(socket=second.socket, user="root"),
                f"{folder}/data/slow.log",
            )
        finally:
            for each in running:
                await to_the_end(each.stop(discard=True))
            await to_the_end(journal.rollback())


def tables(rows: int) -> list[str]:
    """Statements that make the shop. A customer has 20 orders, an order two items."""
    return [
        "CREATE DATABASE shop DEFAULT CHARACTER SET utf8mb4",
        "USE shop",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), city VARCHAR(30), seen DATETIME,"
        f" KEY {SURPLUS} (city), KEY by_city_name (city, name))",
        "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, created DATETIME NOT NULL,"
        " state VARCHAR(10) NOT NULL, total INT NOT NULL, note VARCHAR(80) NOT NULL)",
        "CREATE TABLE items (id INT PRIMARY KEY AUTO_INCREMENT, order_id INT NOT NULL, sku VARCHAR(20) NOT NULL,"
        " quantity INT NOT NULL)",
        f"INSERT INTO customers SELECT seq, CONCAT('name ', seq), CONCAT('city ', seq % 200), NOW()"
        f" FROM seq_1_to_{rows // 20}",
        f"INSERT INTO orders SELECT seq, 1 + seq * 7919 % {rows // 20}, '2026-01-01' + INTERVAL seq * 13 % 200000"
        f" MINUTE, IF(seq % 20, 'paid', 'open'), seq % 9973, REPEAT('x', 60) FROM seq_1_to_{rows}",
        f"INSERT INTO items SELECT seq, 1 + seq % {rows}, CONCAT('sku-', seq % 5000), 1 + seq % 9"
        f" FROM seq_1_to_{rows * 2}",
        "ANALYZE TABLE customers, orders, items",
    ]


def play(login: ServerLogin, rows: int, rounds: int, seed: int = 1) -> dict[str, float]:
    """``rounds`` of the traffic over one connection, in random order; class -> mean seconds of a call."""
    dice = random.Random(seed)
    taken: dict[str, list[float]] = {}
    with opened(login) as session:
        session.rows("USE shop")
        for _ in range(rounds):
            turns = [name for name, calls in ROUND.items() for _ in range(calls)]
            for name in dice.sample(turns, len(turns)):
                taken.setdefault(name, []).append(_call(session, _text(name, rows, dice)))
    return {name: sum(each) / len(each) for name, each in taken.items()}


def _call(session: Session, text: str) -> float:
    started = time.perf_counter()
    session.rows(text)
    return time.perf_counter() - started


def _text(name: str, rows: int, dice: random.Random) -> str:
    customer, order = dice.randint(1, rows // 20), dice.randint(1, rows)
    day = f"2026-{dice.randint(1, 4):02}-{dice.randint(1, 28):02}"
    texts = {
        "newest": f"SELECT id, total FROM orders WHERE customer = {customer} ORDER BY created DESC LIMIT 10",
        "since": f"SELECT SUM(total) FROM orders WHERE customer = {customer} AND created >= '{day}'",
        "lines": f"SELECT i.sku, i.quantity FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id = {order}",
        "customer": f"SELECT name, city FROM customers WHERE id = {customer}",
        "paid": "SELECT SUM(total) FROM orders WHERE state = 'paid'",
        "day": f"SELECT SUM(total) FROM orders WHERE DATE(created) = '{day}'",
        "insert": "INSERT INTO orders (customer, created, state, total, note)"
        f" VALUES ({customer}, NOW(), 'open', {order % 500}, 'new')",
        "seen": f"UPDATE customers SET seen = NOW() WHERE id = {customer}",
    }
    return texts[name]
