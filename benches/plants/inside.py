"""Causes in what the server does beside a statement's own work: plans, traces, audits, locks of readers, logins,
flushes, changes of tables, work on pages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benches.plants.beside import connecting, processes, python
from benches.plants.loads import (
    GROUPS,
    ITEMS,
    MARIADB,
    MYSQL,
    READS,
    UNINDEXED,
    WIDE_WRITES,
    WRITES,
    Load,
    number,
    operation,
    statement,
)
from benches.plants.plant import Plant
from benches.plants.servers import behind
from tests.servers import Server

from headrace.knobs.knob import Versions

#: A throwaway key for tables that are encrypted.
KEYS = Path(__file__).parent / "keys.txt"
REPEATS = """
import contextlib, pymysql, sys, time
c = pymysql.connect(unix_socket=sys.argv[1], user="root", database="shop").cursor()
while True:
    for text in sys.argv[3:]:
        with contextlib.suppress(pymysql.OperationalError): c.execute(text)
        time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def repeated(server: Server, *statements: str, pause_s: float = 0.0) -> Iterator[None]:
    """A program that executes these again and again."""
    with processes(python(REPEATS, server.socket, pause_s, *statements)):
        yield


@contextlib.contextmanager
def encrypting(server: Server) -> Iterator[None]:
    """All tables are encrypted, and decrypted again."""
    try:
        with repeated(
            server,
            "SET GLOBAL innodb_encrypt_tables = ON",
            "SET GLOBAL innodb_encrypt_tables = OFF",
            pause_s=4.0,
        ):
            yield
    finally:
        server.sql("SET GLOBAL innodb_encrypt_tables = OFF")


@contextlib.contextmanager
def compressed(server: Server) -> Iterator[None]:
    """A table that is compressed meanwhile."""
    server.sql(
        "DROP TABLE IF EXISTS shop.packed",
        "CREATE TABLE shop.packed (id INT PRIMARY KEY, v VARCHAR(1300)) "
        "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8",
        "INSERT INTO shop.packed SELECT id, REPEAT(v, 10) FROM shop.items WHERE id <= 16384",
    )
    try:
        yield
    finally:
        server.sql("ALTER TABLE shop.packed ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=0")


def flushes(server: Server) -> contextlib.AbstractContextManager[None]:
    return repeated(server, "FLUSH TABLES", pause_s=0.1)


def rebuilds(server: Server) -> contextlib.AbstractContextManager[None]:
    return repeated(server, "ALTER TABLE wide FORCE")


@contextlib.contextmanager
def checks(server: Server) -> Iterator[None]:
    with repeated(server, "CHECK TABLE wide"), repeated(server, "ANALYZE TABLE orders", "CHECK TABLE items"):
        yield


PACKED_WRITES = Load(
    (
        operation(
            *10 * (statement("UPDATE packed SET v = CONCAT(SUBSTR(v, 65), SHA2(?, 256)) WHERE id = ?",
                             number(), number(high=16384)),),
            transaction=True,
        ),
    ),
)  # fmt: skip
FEW_TABLES = Load(
    tuple(operation(statement(f"SELECT * FROM t{n} WHERE id = 1"), name=f"t{n}") for n in range(60)),
    connections=16,
)
#: Five hundred values of an index, and a range of another that holds two rows.
LISTS = Load(
    (
        operation(
            statement(f"SELECT COUNT(*) FROM items WHERE k IN ({', '.join(500 * '?')}) AND id BETWEEN ? AND ? + 1",
                      *500 * (number(high=4900),), number(), {"kind": "same", "as": 500}),
        ),
    ),
)  # fmt: skip


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
    Plant(
        "all latches recorded",
        "performance_schema with all instruments and their history",
        ("STAT09",),
        "",
        READS,
        (
            "--performance-schema-instrument=%=ON",
            "--performance-schema-consumer-events-waits-current=ON",
            "--performance-schema-consumer-events-waits-history=ON",
            "--performance-schema-consumer-events-waits-history-long=ON",
            "--performance-schema-consumer-events-stages-history-long=ON",
            "--performance-schema-consumer-events-statements-history-long=ON",
        ),
        adviser="performance.schema",
        has_remedy=False,
    ),
    Plant(
        "tables flushed",
        "a program that closes all tables ten times per second",
        ("SESS20",),
        "FLUSH",
        FEW_TABLES,
        beside=flushes,
        adviser="flush",
        also=("SESS07", "LOCK12"),
        has_remedy=False,
    ),
    Plant(
        "a table rebuilt",
        "a program that rebuilds a table of 120 MiB again and again",
        ("STMT09",),
        "alter table",
        READS,
        beside=rebuilds,
        adviser="alter|rebuild",
        # It writes redo as fast as it can, and waits for room.
        also=("REDO01", "REDO02", "REDO03"),
        has_remedy=False,
    ),
    Plant(
        "tables checked",
        "two programs that check and analyse tables again and again",
        ("STMT09",),
        "check table|analyze table",
        READS,
        beside=checks,
        adviser="check table|analyze",
        has_remedy=False,
    ),
    Plant(
        "aborted statements",
        "searches through a table that may take 30 ms",
        ("STMT10",),
        "aborted",
        UNINDEXED,
        ("--loose-max-statement-time=0.03", "--loose-max-execution-time=30"),
        adviser="max_statement_time|max_execution_time",
        also=("STMT02", "SESS12"),
        has_remedy=False,
    ),
    Plant(
        "no dirty pages",
        "pages that are flushed as soon as they are changed",
        ("POOL04",),
        "dirty",
        WRITES,
        ("--innodb-max-dirty-pages-pct=0", "--innodb-max-dirty-pages-pct-lwm=0"),
        adviser="dirty_pages",
        also=("BLK12", "SESS10", "LOCK02"),
    ),
    Plant(
        "one I/O after the other",
        "page writes without the kernel's asynchronous I/O",
        ("FLUSH07",),
        "",
        WIDE_WRITES,
        ("--innodb-use-native-aio=OFF",),
        given=("--innodb-buffer-pool-size=64M",),
        adviser="native_aio",
        also=("BLK12", "REDO01", "REDO02", "POOL01", "POOL03", "POOL08"),
    ),
    Plant(
        "pages copied one by one",
        "a doublewrite buffer that is synced for each page",
        ("FLUSH10",),
        "doublewrite",
        WIDE_WRITES,
        ("--innodb-doublewrite-pages=1",),
        servers=MYSQL,
        versions=Versions(since="8.0.20"),
        adviser="doublewrite",
        also=("BLK12", "REDO01", "REDO02", "FLUSH01", "POOL03"),
    ),
    Plant(
        "each value of a list",
        "an optimiser that looks into the index for each of five hundred values",
        ("STMT08",),
        "eq_range_index_dive_limit",
        LISTS,
        ("--eq-range-index-dive-limit=0",),
        adviser="eq_range",
    ),
    Plant(
        "small Aria cache",
        "128 KiB for temporary tables on disk",
        ("POOL11",),
        "Aria pages",
        GROUPS,
        ("--aria-pagecache-buffer-size=131072",),
        given=("--tmp-table-size=16K", "--max-heap-table-size=16K"),
        servers=MARIADB,
        adviser="aria_pagecache",
        also=("SESS03", "STMT03", "STMT02"),
    ),
    Plant(
        "compressed tables",
        "updates of a table with ROW_FORMAT=COMPRESSED",
        ("POOL12",),
        "compress",
        PACKED_WRITES,
        undo=("DROP TABLE IF EXISTS packed",),
        beside=compressed,
        adviser="compress",
        also=("LOCK02",),
        has_remedy=False,
    ),
    Plant(
        "encrypted again",
        "background threads that encrypt and decrypt all tables without a limit",
        ("FLUSH11",),
        "encrypt",
        WRITES,
        ("--innodb-encryption-threads=4", "--innodb-encryption-rotation-iops=100000"),
        given=("--plugin-load-add=file_key_management", f"--file-key-management-filename={KEYS}"),
        beside=encrypting,
        servers=MARIADB,
        adviser="encrypt",
        also=("BLK12", "SESS10"),
        has_remedy=False,
    ),
)  # fmt: skip
