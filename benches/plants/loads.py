"""Loads to plant a cause under, and a server that has nothing wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Rows of ``wide``, of which four fit on a page of 16 KiB: 120 MiB; of ``items`` and ``orders``: 30 MiB each.
WIDE_ROWS, WIDE_BYTES, ITEMS, TABLES = 1 << 15, 3_700, 1 << 17, 300
BOTH = ("mariadb", "mysql")
MARIADB, MYSQL = ("mariadb",), ("mysql",)

#: How a server is started that has nothing wrong with it, on this load and on flash.
HEALTHY = (
    "--innodb-buffer-pool-size=384M",
    "--innodb-flush-method=O_DIRECT",
    "--innodb-flush-neighbors=0",
    "--innodb-io-capacity=2000",
    "--innodb-io-capacity-max=4000",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--performance-schema=ON",
    "--max-connections=300",
    "--sort-buffer-size=2M",
)
#: Binary logs are purged.
KEPT_A_WEEK = ("--binlog-expire-logs-seconds=604800",)
HEALTHY_OF = {
    "mariadb": ("--innodb-log-file-size=512M", "--innodb-lru-scan-depth=1024"),
    "mysql": ("--innodb-redo-log-capacity=1G", "--binlog-expire-logs-seconds=604800"),
}


def number(low: int = 1, high: int = ITEMS) -> dict[str, Any]:
    return {"kind": "int", "min": low, "max": high}


def statement(sql: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"sql": sql, "parameters": list(parameters)}


def operation(*statements: dict[str, Any], name: str = "work", transaction: bool = False) -> dict[str, Any]:
    return {"name": name, "transaction": transaction, "statements": list(statements)}


@dataclass(frozen=True)
class Load:
    """A closed loop of ``operations`` on each connection."""

    operations: tuple[dict[str, Any], ...]
    connections: int = 8
    prepared: bool = False

    def spec(self, seconds: float) -> dict[str, Any]:
        workload = {"kind": "sql", "prepared": self.prepared, "operations": list(self.operations)}
        return {"workload": workload, "connections": self.connections, "seconds": seconds}


POINT = statement("SELECT v FROM items WHERE id = ?", number())
READS = Load((operation(POINT),))
WIDE_READS = Load(
    (operation(statement("SELECT v FROM wide WHERE id = ?", number(high=WIDE_ROWS - 1))),), connections=16
)
UPDATE = statement("UPDATE items SET k = k + 1 WHERE id = ?", number())
WRITES = Load((operation(UPDATE, UPDATE, transaction=True),), connections=16)
WIDE_WRITES = Load(
    (
        operation(
            *4 * (statement("UPDATE wide SET v = REPEAT(CHAR(? USING latin1), 3600) WHERE id = ?",
                            number(65, 90), number(high=WIDE_ROWS - 1)),),
            transaction=True,
        ),
    ),
    connections=16,
)  # fmt: skip
MIXED = Load((operation(POINT, POINT, POINT, UPDATE, transaction=True),), connections=16)
MANY_TABLES = Load(
    tuple(operation(statement(f"SELECT * FROM t{n} WHERE id = 1"), name=f"t{n}") for n in range(TABLES)),
    connections=16,
)
SORTS = Load(
    (
        operation(
            statement("SELECT id, v FROM items WHERE id BETWEEN ? AND ? + 5000 ORDER BY v LIMIT 4990, 5",
                      number(high=ITEMS // 2), {"kind": "same", "as": 0}),
        ),
    ),
    connections=4,
)  # fmt: skip
GROUPS = Load(
    (
        operation(
            statement("SELECT v, COUNT(*) FROM items WHERE id BETWEEN ? AND ? + 2000 GROUP BY v LIMIT 3",
                      number(high=ITEMS // 2), {"kind": "same", "as": 0}),
        ),
    ),
    connections=4,
)  # fmt: skip
HOT = Load(
    (
        operation(
            statement("UPDATE hot SET v = v + 1 WHERE id = 1"), statement("DO SLEEP(0.005)"), transaction=True
        ),
    ),
    connections=24,
)
UNINDEXED = Load(
    (operation(statement("SELECT SUM(total) FROM orders WHERE customer = ?", number(high=5000))),)
)
JOIN = Load(
    (
        operation(
            statement("SELECT COUNT(*) FROM orders a JOIN orders b ON a.customer = b.customer + 1 WHERE a.id < 40 "
                      "AND b.id < 3000 AND a.total > ?", number(high=5)),
        ),
    ),
    connections=4,
)  # fmt: skip
DEADLOCKS = Load(
    (
        operation(
            statement("UPDATE hot SET v = v + 1 WHERE id = ?", number(1, 6)),
            statement("DO SLEEP(0.002)"),
            statement("UPDATE hot SET v = v + 1 WHERE id = ?", number(1, 6)),
            transaction=True,
        ),
    ),
    connections=16,
)
#: 16 KB of rows each: four times the smallest binary log cache.
BIG_TRANSACTIONS = Load(
    (operation(*40 * (statement("INSERT INTO journal (v) VALUES (REPEAT('j', 400))"),), transaction=True),)
)
#: Room for what the next load writes while it is hunted: up to 250 MB of redo per second.
ROOMY = (
    "--loose-innodb-log-file-size=12G",
    "--loose-innodb-redo-log-capacity=13G",
    "--innodb-buffer-pool-size=6G",
)
#: 4 MB of redo each, twice the smallest log buffer of MariaDB 10.11.
LARGE_TRANSACTIONS = Load(
    (operation(statement("INSERT INTO journal (v) SELECT REPEAT('j', 4000) FROM items WHERE id <= 1000")),),
    connections=4,
)
LONG_QUERIES = Load((operation(statement("DO SLEEP(0.02)")), operation(POINT, name="point")), connections=32)
MYISAM = Load(
    (
        operation(statement("UPDATE old SET v = v + 1 WHERE k = ?", number(high=2000)), name="write"),
        operation(statement("SELECT SUM(v) FROM old WHERE k = ?", number(high=2000)), name="read"),
    ),
    connections=16,
)
#: Forty rows each that come slowly, as from a search or another server.
BULK = Load(
    (
        operation(
            statement(
                "INSERT INTO journal (v) SELECT REPEAT('b', 40) FROM items WHERE id <= 40 AND SLEEP(0.0005) = 0"
            )
        ),
    )
)
LOCKED_TABLE = Load(
    (
        operation(statement("LOCK TABLES hot WRITE"), statement("DO SLEEP(0.005)"), statement("UNLOCK TABLES")),
    ),
    connections=24,
)  # fmt: skip
