"""Causes to plant in a server, each with what a hunt should call it. Read by planted.py."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from tests.servers import Server

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
INSERTS = Load((operation(statement("INSERT INTO journal (v) VALUES (REPEAT('j', 200))")),), connections=16)
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
BIG_TRANSACTIONS = Load(
    (operation(*40 * (statement("INSERT INTO journal (v) VALUES (REPEAT('j', 4000))"),), transaction=True),)
)
LONG_QUERIES = Load((operation(statement("DO SLEEP(0.02)")), operation(POINT, name="point")), connections=32)
MYISAM = Load(
    (
        operation(statement("UPDATE old SET v = v + 1 WHERE k = ?", number(high=2000)), name="write"),
        operation(statement("SELECT SUM(v) FROM old WHERE k = ?", number(high=2000)), name="read"),
    ),
    connections=16,
)
BULK = Load((operation(statement("INSERT INTO journal (v) SELECT v FROM items WHERE id < 500")),))
LOCKED_TABLE = Load(
    (
        operation(statement("LOCK TABLES hot WRITE"), statement("DO SLEEP(0.005)"), statement("UNLOCK TABLES")),
    ),
    connections=24,
)  # fmt: skip


# What stands beside the load. Each is a context manager of the server.
Beside = Callable[[Server], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def processes(*argvs: list[str], **options: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        for argv in argvs
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


@contextlib.contextmanager
def compiler(_server: Server) -> Iterator[None]:
    """Two programs that only compute."""
    code = "x = 0\nwhile True: x = (x * 7 + 1) % 1000003"
    with processes(*2 * (python(code),)):
        yield


@contextlib.contextmanager
def backup(server: Server) -> Iterator[None]:
    """Reads and writes on the device of the data, past the page cache."""
    argv = ["fio", "--name=backup", f"--directory={server.folder}", "--size=256M", "--rw=randrw", "--bs=64k"]
    argv += ["--ioengine=libaio", "--iodepth=32", "--direct=1", "--time_based", "--runtime=600"]
    with processes(argv):
        try:
            time.sleep(1.5)
            yield
        finally:
            for path in server.folder.glob("backup.*"):
                path.unlink()


@contextlib.contextmanager
def quota(server: Server) -> Iterator[None]:
    """A third of one core for the server."""
    folder = Path(f"/sys/fs/cgroup/cpu/headrace-planted-{server.pid}")
    folder.mkdir()
    try:
        (folder / "cpu.cfs_quota_us").write_text("33000")
        (folder / "cgroup.procs").write_text(str(server.pid))
        yield
    finally:
        Path("/sys/fs/cgroup/cpu/cgroup.procs").write_text(str(server.pid))
        folder.rmdir()


@contextlib.contextmanager
def slow_device(server: Server) -> Iterator[None]:
    """150 writes a second for the server on the device of its data."""
    device = os.stat(server.folder).st_dev
    folder = Path(f"/sys/fs/cgroup/blkio/headrace-planted-{server.pid}")
    folder.mkdir()
    try:
        limit = f"{os.major(device)}:{os.minor(device)} 150"
        (folder / "blkio.throttle.write_iops_device").write_text(limit)
        (folder / "cgroup.procs").write_text(str(server.pid))
        yield
    finally:
        Path("/sys/fs/cgroup/blkio/cgroup.procs").write_text(str(server.pid))
        folder.rmdir()


@contextlib.contextmanager
def session(server: Server, *statements: str, then: str = "") -> Iterator[None]:
    """A session that runs these and stays; ``then`` runs in a second one, which waits for the first."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(
            contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root", database="shop"))
        )
        for text in statements:
            first.cursor().execute(text)
        if then:
            code = (
                "import pymysql, sys\n"
                "c = pymysql.connect(unix_socket=sys.argv[1], user='root', database='shop').cursor()\n"
                "c.execute(sys.argv[2])"
            )
            stack.enter_context(processes(python(code, server.socket, then)))
            time.sleep(0.5)
        yield


@contextlib.contextmanager
def global_lock(server: Server) -> Iterator[None]:
    """A backup that locks all tables, releases them for a moment, and locks them again."""
    code = (
        "import pymysql, sys, time\n"
        "c = pymysql.connect(unix_socket=sys.argv[1], user='root').cursor()\n"
        "while True:\n"
        "    c.execute('FLUSH TABLES WITH READ LOCK'); time.sleep(1.5)\n"
        "    c.execute('UNLOCK TABLES'); time.sleep(0.1)\n"
    )
    with processes(python(code, server.socket)):
        time.sleep(0.5)
        yield


def forgotten(server: Server) -> contextlib.AbstractContextManager[None]:
    """A transaction that read and is idle; a change of the table waits for it, and all others for the change."""
    statements = ("SET autocommit = 0", "BEGIN", "SELECT * FROM items WHERE id = 1")
    return session(server, *statements, then="ALTER TABLE items ADD COLUMN extra INT")


def old_view(server: Server) -> contextlib.AbstractContextManager[None]:
    return session(server, "SET autocommit = 0", "START TRANSACTION WITH CONSISTENT SNAPSHOT")


CONNECT = """
import pymysql, sys
user, password, count = sys.argv[2], sys.argv[3], 0
with open(sys.argv[4], "w") as out:
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user=user, password=password).close()
        except pymysql.Error:
            pass
        count += 1
        if count % 20 == 0:
            out.write("x" * 20)
            out.flush()
"""


@contextlib.contextmanager
def connecting(server: Server, password: str = "right", programs: int = 6) -> Iterator[None]:
    """Clients that log in, and leave. They count in files of the server's folder."""
    server.sql(
        "CREATE USER IF NOT EXISTS comes_and_goes@'%' IDENTIFIED BY 'right'",
        "FLUSH PRIVILEGES",
    )
    argvs = [
        python(CONNECT, server.port, "comes_and_goes", password, server.folder / f"logins.{n}")
        for n in range(programs)
    ]
    with processes(*argvs):
        yield


def refused(server: Server) -> contextlib.AbstractContextManager[None]:
    return connecting(server, "wrong", programs=3)


@contextlib.contextmanager
def idle(server: Server, count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(pymysql.Error):
                stack.enter_context(
                    contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root"))
                )
        yield


@contextlib.contextmanager
def too_many(server: Server) -> Iterator[None]:
    """More clients than may connect: 30 stay, and others come."""
    with idle(server, 30), connecting(server, programs=2):
        yield


@contextlib.contextmanager
def statements_kept(server: Server) -> Iterator[None]:
    """A program that never closes its prepared statements."""
    code = (
        "import pymysql, sys, time\n"
        "c = pymysql.connect(unix_socket=sys.argv[1], user='root', database='shop').cursor()\n"
        "for n in range(int(sys.argv[2])): c.execute(f\"PREPARE s{n} FROM 'SELECT {n}'\")\n"
        "time.sleep(900)\n"
    )
    with processes(*2 * (python(code, server.socket, 95),)):
        time.sleep(1)
        yield


@contextlib.contextmanager
def burst(server: Server) -> Iterator[None]:
    """Bursts of connections, more than the accept queue holds."""
    code = (
        "import socket, sys, time\n"
        "while True:\n"
        "    made = []\n"
        "    for _ in range(200):\n"
        "        s = socket.socket(); s.setblocking(False); made.append(s)\n"
        "        s.connect_ex(('127.0.0.1', int(sys.argv[1])))\n"
        "    time.sleep(0.05)\n"
        "    for s in made: s.close()\n"
    )
    with processes(*2 * (python(code, server.port),)):
        yield


@dataclass(frozen=True)
class Plant:
    """One cause. ``finds``: codes of rules that name it; ``says``, ``adviser``: patterns of a verdict, and of an
    adviser's line, that do. ``also``: other limits and costs that are true of it."""

    name: str
    what: str
    finds: tuple[str, ...]
    says: str
    load: Load = READS
    options: tuple[str, ...] = ()
    #: Run before the load, and to put back what a restart does not.
    sql: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    beside: Beside | None = None
    servers: tuple[str, ...] = BOTH
    #: What an adviser would say.
    adviser: str = ""
    also: tuple[str, ...] = ()
    #: False for what only people can change, and for risks, which cost nothing today.
    has_remedy: bool = True
    #: Counts logins in place of the driver's operations.
    counts_logins: bool = False


PLANTS = (
    Plant(
        "small pool",
        "a buffer pool an eighth of the data that is read",
        ("POOL01",),
        "buffer pool|pages|reads",
        WIDE_READS,
        ("--innodb-buffer-pool-size=16M",),
        adviser="innodb_buffer_pool_size",
        also=("STMT02",),
    ),
    Plant(
        "small redo log",
        "4 to 8 MiB of redo log under writes",
        ("REDO01", "REDO02"),
        "redo",
        WIDE_WRITES,
        ("--loose-innodb-log-file-size=4M", "--loose-innodb-redo-log-capacity=8M"),
        adviser="innodb_log_file_size|innodb_redo_log_capacity",
        also=("FLUSH01", "FLUSH06"),
    ),
    Plant(
        "small log buffer",
        "a log buffer smaller than a transaction's redo",
        ("REDO03",),
        "log buffer|redo",
        BIG_TRANSACTIONS,
        ("--innodb-log-buffer-size=256K",),
        adviser="innodb_log_buffer_size",
    ),
    Plant(
        "slow flushing",
        "background writes limited to 100 a second, for a small pool that is written",
        ("FLUSH01", "POOL03", "POOL04"),
        "flush|dirty|background writes|free page",
        WIDE_WRITES,
        (
            "--innodb-buffer-pool-size=64M",
            "--innodb-io-capacity=100",
            "--innodb-io-capacity-max=100",
        ),
        adviser="innodb_io_capacity",
        also=("POOL01", "POOL08", "FLUSH06"),
    ),
    Plant(
        "deep scans",
        "page cleaners that look at 100,000 pages a second",
        ("FLUSH04",),
        "",
        WIDE_WRITES,
        ("--innodb-lru-scan-depth=100000",),
        has_remedy=False,
    ),
    Plant(
        "neighbours flushed",
        "dirty neighbours are written with each page",
        ("FLUSH02",),
        "",
        WIDE_WRITES,
        ("--innodb-flush-neighbors=2", "--innodb-buffer-pool-size=64M"),
        adviser="innodb_flush_neighbors",
        also=("POOL01", "POOL03", "POOL08"),
        has_remedy=False,
    ),
    Plant(
        "durability off",
        "commits are written once a second",
        ("FLUSH08",),
        "",
        WRITES,
        ("--innodb-flush-log-at-trx-commit=0",),
        adviser="innodb_flush_log_at_trx_commit",
        has_remedy=False,
    ),
    Plant(
        "no doublewrite",
        "pages that a power cut may tear",
        ("FLUSH09",),
        "",
        WRITES,
        ("--skip-innodb-doublewrite",),
        adviser="doublewrite",
        has_remedy=False,
    ),
    Plant(
        "small sort buffer",
        "sorts merged from files",
        ("SESS02",),
        "sort",
        SORTS,
        ("--sort-buffer-size=32K",),
        adviser="sort_buffer_size",
        also=("STMT02",),
    ),
    Plant(
        "big sort buffer",
        "256 MiB of sort buffer for everybody",
        ("SESS01",),
        "",
        SORTS,
        ("--sort-buffer-size=256M",),
        adviser="sort_buffer_size|maximum possible memory|memory usage",
        also=("STMT02", "SESS02"),
        has_remedy=False,
    ),
    Plant(
        "small temporary tables",
        "groups that do not fit into memory",
        ("SESS03", "STMT03"),
        "temporary",
        GROUPS,
        (
            "--tmp-table-size=16K",
            "--max-heap-table-size=16K",
            "--loose-internal-tmp-mem-storage-engine=MEMORY",
        ),
        adviser="tmp_table_size",
        also=("STMT02",),
    ),
    Plant(
        "small table cache",
        "10 open tables for 300",
        ("SESS06",),
        "table",
        MANY_TABLES,
        ("--table-open-cache=10", "--table-open-cache-instances=1"),
        adviser="table_open_cache|table_cache",
        also=("SESS07",),
    ),
    Plant(
        "small definition cache",
        "400 definitions for more tables, whose handles are few",
        ("SESS07", "SESS06"),
        "table",
        MANY_TABLES,
        ("--table-definition-cache=400", "--table-open-cache=50", "--table-open-cache-instances=1"),
        adviser="table_definition_cache|table_open_cache",
    ),
    Plant(
        "no thread cache",
        "a thread is made for each login",
        ("SESS05", "SESS14"),
        "thread|connect",
        READS,
        ("--thread-cache-size=0",),
        beside=connecting,
        adviser="thread_cache_size",
        counts_logins=True,
        has_remedy=False,
    ),
    Plant(
        "too few connections",
        "30 clients, and others, where 25 may connect",
        ("SESS08", "SESS09"),
        "connect",
        Load((operation(POINT),), connections=2),
        ("--max-connections=25",),
        beside=too_many,
        adviser="max_connections",
        has_remedy=False,
    ),
    Plant(
        "wrong password",
        "an application that cannot log in, and tries all the time",
        ("SESS09",),
        "",
        beside=refused,
        adviser="aborted",
        has_remedy=False,
    ),
    Plant(
        "statements not closed",
        "190 prepared statements where 200 may be",
        ("SESS13",),
        "",
        options=("--max-prepared-stmt-count=200",),
        beside=statements_kept,
        adviser="max_prepared_stmt_count",
        has_remedy=False,
    ),
    Plant(
        "query cache",
        "a query cache for tables that change",
        ("SESS04",),
        "query cache",
        MIXED,
        ("--query-cache-type=1", "--query-cache-size=64M"),
        servers=MARIADB,
        adviser="query_cache",
    ),
    Plant(
        "small binlog cache",
        "transactions that spill to a file",
        ("SESS10",),
        "binary log|binlog|temporary file",
        BIG_TRANSACTIONS,
        ("--log-bin=binlog", "--server-id=7", "--binlog-cache-size=4096", "--sync-binlog=1"),
        adviser="binlog_cache_size",
        also=("BLOG01",),
        has_remedy=False,
    ),
    Plant(
        "binlogs kept for ever",
        "nothing purges the binary logs",
        ("BLOG03",),
        "",
        WRITES,
        (
            "--log-bin=binlog",
            "--server-id=7",
            "--loose-expire-logs-days=0",
            "--loose-binlog-expire-logs-seconds=0",
        ),
        adviser="expire",
        also=("BLOG01",),
        has_remedy=False,
    ),
    Plant(
        "general log",
        "every statement is written to the general log",
        ("STAT02",),
        "general log",
        options=("--general-log=ON", "--general-log-file=general.log"),
        adviser="general_log",
    ),
    Plant(
        "everything is slow",
        "a slow log with all statements",
        ("STAT03",),
        "slow log",
        options=("--slow-query-log=ON", "--long-query-time=0", "--slow-query-log-file=slow.log"),
        adviser="long_query_time|slow_query",
    ),
    Plant(
        "blind",
        "performance_schema off",
        ("STAT01",),
        "",
        options=("--performance-schema=OFF",),
        adviser="performance.schema",
        has_remedy=False,
    ),
    Plant(
        "a hot row",
        "24 clients update one row",
        ("LOCK02",),
        "row|lock",
        HOT,
        adviser="row lock|innodb_row_lock",
        also=("LOCK01", "STMT04", "LOCK03"),
        has_remedy=False,
    ),
    Plant(
        "deadlocks",
        "transactions that take rows in any order",
        ("LOCK03", "LOCK02"),
        "deadlock|row|lock",
        DEADLOCKS,
        adviser="deadlock",
        also=("LOCK01", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "a locked table",
        "LOCK TABLES around everything",
        ("LOCK04", "LOCK05"),
        "lock",
        LOCKED_TABLE,
        adviser="table_locks|metadata",
        also=("LOCK01", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "a forgotten transaction",
        "ALTER TABLE waits for an idle transaction, and all others wait for it",
        ("LOCK04", "LOCK17", "LOCK10"),
        "lock|transaction",
        MIXED,
        undo=("ALTER TABLE items DROP COLUMN IF EXISTS extra",),
        beside=forgotten,
        adviser="metadata|transaction",
        also=("LOCK01", "STMT04"),
        servers=MARIADB,
        has_remedy=False,
    ),
    Plant(
        "an old view",
        "updates whose old versions an idle transaction keeps alive",
        ("LOCK09", "LOCK17", "LOCK10"),
        "",
        WRITES,
        beside=old_view,
        adviser="history list|transaction",
        has_remedy=False,
    ),
    Plant(
        "a global lock",
        "FLUSH TABLES WITH READ LOCK, again and again",
        ("LOCK12", "LOCK04"),
        "lock",
        WRITES,
        beside=global_lock,
        adviser="read lock|global lock",
        also=("LOCK01", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "a lock of the application",
        "GET_LOCK around everything",
        ("LOCK15",),
        "lock",
        Load(
            (
                operation(
                    statement("SELECT GET_LOCK('one', 10)"),
                    statement("DO SLEEP(0.005)"),
                    statement("SELECT RELEASE_LOCK('one')"),
                ),
            ),
            connections=24,
        ),
        adviser="get_lock|user lock",
        also=("LOCK01", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "a ticket for one",
        "one thread may be in InnoDB",
        ("LOCK08",),
        "InnoDB|thread",
        Load((operation(statement("SELECT COUNT(*) FROM items WHERE k > ?", number(high=2000))),), connections=16),
        ("--innodb-thread-concurrency=1", "--innodb-concurrency-tickets=1"),
        servers=MYSQL,
        adviser="innodb_thread_concurrency",
        also=("LOCK01", "STMT02", "SESS12"),
        has_remedy=False,
    ),
    Plant(
        "one pool thread",
        "a thread pool with one group, whose statements sleep",
        ("SESS18",),
        "thread pool|pool of threads",
        LONG_QUERIES,
        (
            "--thread-handling=pool-of-threads",
            "--thread-pool-size=1",
            "--thread-pool-max-threads=2",
        ),
        servers=MARIADB,
        adviser="thread_pool",
    ),
    Plant(
        "locks of MyISAM",
        "a table of an old engine that is written and read",
        ("LOCK05", "LOCK06"),
        "table lock|engine|MyISAM",
        MYISAM,
        adviser="myisam|table_locks",
        also=("LOCK01", "STMT02", "STMT04", "SESS12"),
        has_remedy=False,
    ),
    Plant(
        "a lock for numbers",
        "bulk inserts that hold the table's AUTO_INCREMENT lock",
        ("LOCK11",),
        "AUTO_INCREMENT",
        BULK,
        ("--innodb-autoinc-lock-mode=0",),
        undo=("TRUNCATE journal",),
        adviser="autoinc",
        also=("LOCK01", "LOCK02", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "no index",
        "a search through 130,000 rows for 26",
        ("STMT02", "SESS12"),
        "scan|index|statement|rows",
        UNINDEXED,
        adviser="index|handler_read_rnd|table scan",
        has_remedy=False,
    ),
    Plant(
        "a join without an index",
        "each row of a table compared with each of another",
        ("SESS11", "STMT02", "SESS12"),
        "join|index|scan|statement|rows",
        JOIN,
        adviser="join",
        has_remedy=False,
    ),
    Plant(
        "neighbours compute",
        "two programs that only compute",
        ("HOST01",),
        "python",
        beside=compiler,
        has_remedy=False,
    ),
    Plant(
        "a backup reads and writes",
        "fio on the device of the data",
        ("HOST02", "BLK12"),
        "fio",
        WRITES,
        beside=backup,
        also=("FS08", "BLK13"),
        has_remedy=False,
    ),
    Plant(
        "a quota",
        "a third of a core for the server",
        ("CPU03",),
        "quota|control group|cgroup",
        beside=quota,
        has_remedy=False,
    ),
    Plant(
        "a throttled device",
        "150 writes a second for the server's control group",
        ("LIM05",),
        "control group|cgroup|throttle",
        WRITES,
        beside=slow_device,
        also=("BLK12", "BLK13", "LOCK01"),
        has_remedy=False,
    ),
    Plant(
        "few files",
        "300 files that the server may open",
        ("LIM01",),
        "",
        MANY_TABLES,
        ("--open-files-limit=340", "--table-open-cache=150", "--max-connections=30"),
        adviser="open_files_limit",
        also=("SESS06", "SESS07", "SESS08"),
        has_remedy=False,
    ),
    Plant(
        "a short queue",
        "a queue of one for clients that connect together",
        ("TCP02", "TCP01"),
        "queue|connect",
        options=("--back-log=1",),
        beside=burst,
        adviser="back_log",
        also=("SESS09", "SESS05"),
        has_remedy=False,
    ),
    Plant(
        "huge pages asked for",
        "large pages on a host that has reserved none",
        ("STAT05",),
        "",
        options=("--large-pages",),
        adviser="large.pages",
        has_remedy=False,
    ),
    Plant(
        "monitors",
        "InnoDB's monitors print all the time",
        ("STAT04",),
        "",
        options=("--innodb-status-output=ON", "--innodb-status-output-locks=ON"),
        adviser="innodb_status_output",
        has_remedy=False,
    ),
    Plant(
        "an option of old",
        "an option that this version does not know any more",
        ("NAME01",),
        "",
        options=("--loose-innodb-file-format=Barracuda", "--loose-innodb-large-prefix=ON"),
        adviser="innodb_file_format",
        has_remedy=False,
    ),
    Plant(
        "cached twice",
        "data through the page cache, and a pool that does not hold it",
        ("FLUSH03",),
        "",
        WIDE_READS,
        ("--innodb-flush-method=fsync", "--innodb-buffer-pool-size=64M"),
        adviser="innodb_flush_method|O_DIRECT",
        also=("POOL01", "POOL08"),
        has_remedy=False,
    ),
    Plant(
        "nearly out of numbers",
        "a table whose TINYINT has counted to 120",
        ("LIM06",),
        "",
        sql=("CREATE TABLE IF NOT EXISTS few (id TINYINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 120",
             "INSERT INTO few VALUES (NULL)"),
        undo=("DROP TABLE IF EXISTS few",),
        adviser="auto.increment",
        has_remedy=False,
    ),
)  # fmt: skip
