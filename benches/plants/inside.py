"""Causes in what the server does beside a statement's own work: plans, traces, audits, locks of readers,
logins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benches.plants.beside import connecting
from benches.plants.loads import ITEMS, MARIADB, READS, Load, number, operation, statement
from benches.plants.plant import Plant
from benches.plants.servers import behind
from tests.servers import Server


@contextlib.contextmanager
def analysed_when_small(server: Server) -> Iterator[None]:
    """Analysed while all rows of the table belonged to one item; they have since been spread over all items."""
    server.sql(
        "DROP TABLE IF EXISTS shop.parts",
        "CREATE TABLE shop.parts (id INT AUTO_INCREMENT PRIMARY KEY, item INT, q INT, KEY (item)) "
        "STATS_PERSISTENT=1 STATS_AUTO_RECALC=0",
        "INSERT INTO shop.parts (item, q) SELECT 1, id FROM shop.items WHERE id <= 100",
        "ANALYZE TABLE shop.parts",
        "INSERT INTO shop.parts (item, q) SELECT id, id % 97 FROM shop.items",
        # A table that is open keeps the estimates that it was opened with.
        "FLUSH TABLES shop.parts",
    )
    try:
        yield
    finally:
        server.sql("ANALYZE TABLE shop.parts")


#: Two rows of each of eight tables, which may be joined in 40,320 orders that cost the same.
ORDERS = "SELECT COUNT(*) FROM {} WHERE {}".format(
    ", ".join(f"items t{n}" for n in range(8)), " AND ".join(f"t{n}.id BETWEEN ? AND ? + 1" for n in range(8))
)
AGAIN = {"kind": "same", "as": 0}

PLANTS = (
    Plant(
        "old statistics",
        "a table that is not analysed again, and a join that scans it therefore",
        ("STMT07",),
        "statistics",
        Load(
            (
                operation(
                    statement("SELECT SUM(p.q) FROM items i JOIN parts p ON p.item = i.id WHERE i.k = ?",
                              number(high=4900)),
                ),
            ),
            connections=4,
        ),
        undo=("DROP TABLE IF EXISTS parts",),
        beside=analysed_when_small,
        adviser="statistics|analyze|stats",
        also=("STMT02", "SESS11", "SESS12"),
        has_remedy=False,
    ),
    Plant(
        "all orders of a join",
        "an optimiser that leaves out no order of eight tables",
        ("STMT08",),
        "plan",
        Load(
            (
                operation(
                    statement(ORDERS, number(high=ITEMS - 1), *15 * (AGAIN,)),
                ),
            ),
            connections=4,
        ),
        ("--optimizer-prune-level=0",),
        adviser="optimizer_prune_level",
        also=("SESS11",),
    ),
    Plant(
        "no index merge",
        "a condition on two columns that each have an index, with the switch off that would use both",
        ("STMT06",),
        "index_merge",
        Load(
            (
                operation(
                    statement("SELECT COUNT(*) FROM items WHERE k = ? OR id = ?", number(high=4900), number()),
                ),
            ),
        ),
        ("--optimizer-switch=index_merge=off",),
        adviser="optimizer_switch",
        also=("STMT02", "SESS12"),
    ),
    Plant(
        "readers lock",
        "serializable transactions that read what others write",
        ("LOCK19",),
        "serializable",
        Load(
            (
                operation(
                    statement("SELECT SUM(v) FROM hot"),
                    statement("DO SLEEP(0.005)"),
                    name="read",
                    transaction=True,
                ),
                operation(
                    statement("UPDATE hot SET v = v + 1 WHERE id = ?", number(high=10)),
                    name="write",
                    transaction=True,
                ),
            ),
            connections=24,
        ),
        ("--transaction-isolation=SERIALIZABLE",),
        adviser="isolation",
        also=("LOCK01", "LOCK02", "LOCK03", "LOCK17", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "audited",
        "an audit log of every statement",
        ("STAT07",),
        "audit",
        READS,
        ("--plugin-load-add=server_audit", "--server-audit-logging=ON"),
        servers=MARIADB,
        adviser="server_audit",
    ),
    Plant(
        "traced",
        "an optimiser trace of every statement",
        ("STAT08",),
        "optimizer_trace",
        READS,
        ("--optimizer-trace=enabled=on",),
        adviser="optimizer_trace",
    ),
    Plant(
        "no index, and logged",
        "a slow log of all statements that use no index, however short",
        ("STAT03",),
        "slow log",
        Load((operation(statement("SELECT SUM(v) FROM hot")),)),
        ("--slow-query-log=ON", "--log-queries-not-using-indexes=ON", "--slow-query-log-file=slow.log"),
        adviser="slow|not_using_indexes",
        also=("SESS12",),
    ),
    Plant(
        "statements of a login",
        "an init_connect that waits",
        ("SESS19",),
        "init_connect",
        options=("--init-connect=DO SLEEP(0.2)",),
        beside=connecting,
        adviser="init_connect",
        also=("SESS05", "SESS14", "SESS16"),
        has_remedy=False,
        counts_logins=True,
    ),
    Plant(
        "each event is synced",
        "a replica that syncs its relay log after each event, and has a log to fetch",
        ("REPL14",),
        "sync_relay_log",
        options=("--server-id=8", "--sync-relay-log=1", "--sync-master-info=1", "--read-only=ON"),
        beside=behind,
        servers=MARIADB,
        adviser="sync_relay_log",
        also=("REPL01", "REPL02", "REPL05", "REDO01", "REPL10"),
        has_remedy=False,
    ),
)  # fmt: skip
