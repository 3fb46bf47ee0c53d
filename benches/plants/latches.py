"""Causes in what InnoDB does with latches and secondary indexes, and in the memory that temporary tables share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benches.plants.loads import ITEMS, MYSQL, Load, number, operation, statement
from benches.plants.plant import Plant
from tests.servers import Server

from headrace.knobs.knob import Versions

#: Values of the indexed columns, which rows hold in no order.
VALUES = 1_000_000_000
#: A pool that holds a sixth of the table, with the indexes.
SMALL_POOL = ("--innodb-buffer-pool-size=16M",)


@contextlib.contextmanager
def scattered(server: Server) -> Iterator[None]:
    """A table of half a million rows with four indexes whose values come in no order."""
    drawn = ", ".join(4 * (f"RAND() * {VALUES}",))
    if not server.sql("SHOW TABLES FROM shop LIKE 'scattered'"):
        server.sql(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
            "CREATE TABLE shop.scattered (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, c INT, d INT, "
            "v VARCHAR(60), KEY (a), KEY (b), KEY (c), KEY (d))",
            *4
            * (
                f"INSERT INTO shop.scattered (a, b, c, d, v) SELECT {drawn}, REPEAT('s', 60) FROM shop.items",
            ),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        )
    yield


ROWS = 4 * ITEMS
ANY_VALUE = number(high=VALUES)
SCATTERED_INSERTS = Load(
    (
        operation(
            *10
            * (
                statement(
                    "INSERT INTO scattered (a, b, c, d, v) VALUES (?, ?, ?, ?, REPEAT('s', 60))",
                    *4 * (ANY_VALUE,),
                ),
            ),
            transaction=True,
        ),
    )
)
#: Each change is looked for as soon as it is made.
CHANGED_AND_READ = Load(
    (
        operation(
            statement("INSERT INTO scattered (a, b, c, d, v) VALUES (?, ?, ?, ?, '')", *4 * (ANY_VALUE,)),
            *(
                statement(f"SELECT COUNT(*) FROM scattered WHERE {name} = ?", {"kind": "same", "as": n})
                for n, name in enumerate("abcd")
            ),
        ),
    )
)
LARGE_GROUPS = Load(
    (
        operation(
            statement("SELECT v, COUNT(*) FROM items WHERE id BETWEEN ? AND ? + 20000 GROUP BY v LIMIT 3",
                      number(high=ITEMS // 2), {"kind": "same", "as": 0}),
        ),
    ),
    connections=8,
)  # fmt: skip
SHORT_WRITES = Load(
    (operation(statement("UPDATE items SET k = k + 1 WHERE id = ?", number())),), connections=24
)

PLANTS = (
    Plant(
        "long spins",
        "a hundred times the pause between two looks at a latch",
        ("LOCK20",),
        "pauses",
        SHORT_WRITES,
        ("--innodb-spin-wait-delay=1000",),
        adviser="spin",
        also=("LOCK01", "LOCK02", "STMT04", "STMT01"),
    ),
    Plant(
        "nothing is buffered",
        "changes of indexes that are mostly on the device, without the change buffer",
        ("POOL13",),
        "pages for each change",
        SCATTERED_INSERTS,
        ("--innodb-change-buffering=none",),
        given=(*SMALL_POOL, "--innodb-autoinc-lock-mode=2"),
        undo=("DROP TABLE IF EXISTS scattered",),
        beside=scattered,
        servers=MYSQL,
        adviser="change_buffering",
        also=("POOL01", "POOL03", "POOL04", "POOL08", "BLK12", "FLUSH01", "LOCK01"),
    ),
    Plant(
        "buffered in vain",
        "changes that are buffered, and whose pages are read immediately",
        ("POOL14",),
        "",
        CHANGED_AND_READ,
        ("--innodb-change-buffering=all",),
        given=(*SMALL_POOL, "--innodb-autoinc-lock-mode=2", "--innodb-change-buffering=none"),
        undo=("DROP TABLE IF EXISTS scattered",),
        beside=scattered,
        servers=MYSQL,
        adviser="change_buffering",
        also=("POOL01", "POOL03", "POOL04", "POOL08", "BLK12", "FLUSH01", "LOCK01", "FS05", "FS07"),
        has_remedy=False,
    ),
    Plant(
        "shared temporary memory",
        "2 MiB for the temporary tables of all sessions, and InnoDB for the rest",
        ("SESS21",),
        "temporary tables",
        LARGE_GROUPS,
        ("--temptable-max-ram=2M", "--temptable-max-mmap=0", "--tmp-table-size=64M"),
        given=("--tmp-table-size=64M",),
        servers=MYSQL,
        versions=Versions(since="8.0.28"),
        adviser="temptable",
        also=("SESS03", "STMT02", "STMT03"),
    ),
    Plant(
        "mapped temporary tables",
        "2 MiB for the temporary tables of all sessions, and mapped files for the rest",
        ("SESS21",),
        "",
        LARGE_GROUPS,
        ("--temptable-max-ram=2M", "--temptable-max-mmap=1G", "--tmp-table-size=64M"),
        servers=MYSQL,
        versions=Versions(since="8.0.28"),
        adviser="temptable",
        also=("STMT02",),
        has_remedy=False,
    ),
)
