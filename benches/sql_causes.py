"""``hunt --sql-only`` on causes that SQL alone plants in one MariaDB: which are among the first two findings?

No load driver, no root, no change to the machine, so it is quick: ten seconds a cause. A cause of an option
needs a restart. Some plants are no cause, and must lead to no finding that says one. Whatever is planted,
nothing may be claimed about a host.

    python benches/sql_causes.py                       # all
    python benches/sql_causes.py 'a row' 'a GET_LOCK'  # those that are named
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, mariadb
from tests.whereabouts import claims_of_a_host

MINUTES = 12
NEEDS = {"mariadbd": "mariadb-server"}

HUNT_S = 5
#: Wait this long before the hunt: if a wait starts inside the window, its average is too small.
BEGIN_S = 1.0
TARGET, FIRST = 0.85, 2
OPTIONS = ("--max-connections=60", "--innodb-lock-wait-timeout=50", "--innodb-flush-log-at-trx-commit=0")
TABLES = 60
#: True of the small server whatever is planted.
OF_THE_SERVER = ("STAT01", "FLUSH08")
SEVERE = ("bottleneck", "cost")
SLOW_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void rest(void) { struct timespec t = {0, 25 * 1000000L}; nanosleep(&t, 0); }
#define SLOW(name) int name(int fd) { static int (*f)(int); \\
    if (!f) f = dlsym(RTLD_NEXT, #name); rest(); return f(fd); }
SLOW(fsync)
SLOW(fdatasync)
"""

Planted = Callable[[Server], AbstractContextManager[None]]


@dataclass(frozen=True)
class Cause:
    """``finds``: any of these rules; empty where nothing is wrong. ``says``: a pattern of the sentence."""

    name: str
    planted: Planted
    finds: tuple[str, ...]
    says: str = ""
    options: tuple[str, ...] = ()
    is_slow_to_sync: bool = False


def connected(server: Server, **more: Any) -> pymysql.Connection[Any]:
    given = {"unix_socket": server.socket, "user": "root", "database": "shop", "autocommit": True, **more}
    return pymysql.connect(**given, ssl_disabled=True)


@contextlib.contextmanager
def repeated(server: Server, count: int, work: Callable[[], None]) -> Iterator[None]:
    """``work`` again and again, by so many threads at once, until the end."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            with contextlib.suppress(pymysql.Error, OSError):
                work()

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


@contextlib.contextmanager
def sessions(
    server: Server, count: int, *statements: str, first: Sequence[str] = (), begin_s: float = BEGIN_S
) -> Iterator[None]:
    """Connections that execute these again and again, whatever errors they get, until the end.

    ``{n}`` is the number of the connection, ``{i}`` of the turn, ``{r}`` that of a random row.
    """
    stop = threading.Event()
    opened = [connected(server) for _ in range(count)]

    def loop(n: int, connection: pymysql.Connection[Any]) -> None:
        with contextlib.suppress(pymysql.Error), connection.cursor() as cursor:
            for text in first:
                cursor.execute(text)
        turn = 0
        while not stop.is_set() and connection.open:
            turn += 1
            with contextlib.suppress(pymysql.Error, RuntimeError), connection.cursor() as cursor:
                for text in statements:
                    given = text.replace("{n}", str(n)).replace("{i}", str(turn))
                    cursor.execute(given.replace("{r}", str(random.randrange(60_000))))

    threads = [threading.Thread(target=loop, args=pair) for pair in enumerate(opened)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(begin_s)
        yield
    finally:
        stop.set()
        for each in opened:
            with contextlib.suppress(pymysql.Error):
                server.sql(f"KILL {each.thread_id()}")
        for thread in threads:
            thread.join(60)


@contextlib.contextmanager
def held(
    server: Server, *statements: str, then: AbstractContextManager[None] | None = None
) -> Iterator[None]:
    """An idle session that has executed these, with others at work beside it."""
    with contextlib.closing(connected(server)) as holder, holder.cursor() as cursor:
        for text in statements:
            cursor.execute(text)
        with then or contextlib.nullcontext():
            yield


@contextlib.contextmanager
def set_for_all(server: Server, settings: dict[str, object], then: Planted) -> Iterator[None]:
    """Global variables have other values meanwhile."""
    before = {name: server.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in settings}
    server.sql(*(f"SET GLOBAL {name} = {_literal(value)}" for name, value in settings.items()))
    try:
        with then(server):
            yield
    finally:
        server.sql(*(f"SET GLOBAL {name} = {_literal(value)}" for name, value in before.items()))


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) and not value.isdecimal() else str(value)


def working(count: int, *statements: str, first: Sequence[str] = ()) -> Planted:
    return lambda server: sessions(server, count, *statements, first=first)


def behind(holder: Sequence[str], count: int, *statements: str) -> Planted:
    """So many sessions that work behind one that is idle."""
    return lambda server: held(server, *holder, then=sessions(server, count, *statements))


def setting(then: Planted, **settings: object) -> Planted:
    return lambda server: set_for_all(server, settings, then)


@contextlib.contextmanager
def queue_for_definition(server: Server, holder: Sequence[str], change: str) -> Iterator[None]:
    with (
        held(server, *holder),
        sessions(server, 1, change),
        sessions(server, 4, "SELECT k FROM orders WHERE id = 8"),
    ):
        yield


@contextlib.contextmanager
def prepared_transaction(server: Server) -> Iterator[None]:
    """A transaction that a coordinator has prepared and forgotten: it has no connection."""
    with contextlib.closing(connected(server)) as once, once.cursor() as cursor:
        for text in ("XA START 'x'", "UPDATE orders SET k = 0 WHERE id = 7", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(text)
    try:
        with sessions(server, 4, UPDATE_7):
            yield
    finally:
        with contextlib.closing(connected(server)) as once, once.cursor() as cursor:
            cursor.execute("XA ROLLBACK 'x'")


@contextlib.contextmanager
def exhausted(server: Server) -> Iterator[None]:
    opened = [connected(server) for _ in range(57)]
    try:
        yield
    finally:
        for each in opened:
            each.close()


@contextlib.contextmanager
def refused(server: Server) -> Iterator[None]:
    with exhausted(server), repeated(server, 2, lambda: _in_and_out(server, 0.02)):
        time.sleep(BEGIN_S)
        yield


def _in_and_out(server: Server, rest_s: float = 0.0, **login: Any) -> None:
    try:
        with contextlib.closing(connected(server, **login)) as once, once.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        time.sleep(rest_s)


@contextlib.contextmanager
def connecting(server: Server, **login: Any) -> Iterator[None]:
    with repeated(server, 4, lambda: _in_and_out(server, **login)):
        time.sleep(BEGIN_S)
        yield


@contextlib.contextmanager
def old_snapshot(server: Server) -> Iterator[None]:
    # In the server, because a client's round trips make too few versions.
    change = (
        "BEGIN NOT ATOMIC DECLARE i INT DEFAULT 0; WHILE i < 2000 DO "
        "UPDATE orders SET k = k + 1 WHERE id = 100 + i; SET i = i + 1; END WHILE; END"
    )
    view = ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT k FROM orders WHERE id = 7")
    with held(server, *view), sessions(server, 2, change):
        time.sleep(11)
        yield


@contextlib.contextmanager
def kept_statements(server: Server) -> Iterator[None]:
    with set_for_all(server, {"max_prepared_stmt_count": 200}, lambda _: contextlib.nullcontext()):
        prepare = [f"PREPARE s{number} FROM 'SELECT 1'" for number in range(195)]
        with held(server, *prepare):
            yield


@contextlib.contextmanager
def replica(server: Server) -> Iterator[None]:
    """Of a source that nobody listens for."""
    server.sql(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'r'", "START SLAVE"
    )
    try:
        time.sleep(BEGIN_S)
        yield
    finally:
        server.sql("STOP SLAVE", "RESET SLAVE ALL")


@contextlib.contextmanager
def flush_behind_a_query(server: Server) -> Iterator[None]:
    with (
        sessions(server, 1, "SELECT SLEEP(20) FROM orders LIMIT 1"),
        sessions(server, 1, "FLUSH TABLES orders"),
        sessions(server, 4, "SELECT k FROM orders WHERE id = 8"),
    ):
        yield


@contextlib.contextmanager
def audited(server: Server) -> Iterator[None]:
    server.sql("INSTALL SONAME 'server_audit'", "SET GLOBAL server_audit_logging = ON")
    try:
        with sessions(server, 2, READ):
            yield
    finally:
        server.sql("SET GLOBAL server_audit_logging = OFF", "UNINSTALL SONAME 'server_audit'")


@contextlib.contextmanager
def rebuilt(server: Server) -> Iterator[None]:
    change = "UPDATE wide SET v = 'y' WHERE id = {n}"
    with sessions(server, 1, "ALTER TABLE wide ENGINE=InnoDB, ALGORITHM=COPY"), sessions(server, 3, change):
        yield


READ = "SELECT k FROM orders WHERE id = 7"
UPDATE_7 = "UPDATE orders SET k = k + 1 WHERE id = 7"
HOLD_7 = ("BEGIN", "UPDATE orders SET k = 0 WHERE id = 7")
SCAN = "SELECT COUNT(*) FROM orders WHERE k = 7"
DISK = (
    "SELECT note, k, REPEAT('x', 600) AS pad FROM orders WHERE id < 4000 GROUP BY k, pad ORDER BY pad LIMIT 1"
)
SORT = "SELECT id, note FROM orders ORDER BY note, k DESC LIMIT 90000, 1"
RANDOM_WIDE = "SELECT v FROM wide WHERE id = {r}"
TRANSACTION = ("BEGIN", "UPDATE orders SET k = k + 1 WHERE id = {n}", "COMMIT")
SOME_TABLES = tuple(f"SELECT * FROM t{number}" for number in range(TABLES))
ORDER_A = (
    "BEGIN",
    "UPDATE orders SET k = 1 WHERE id = 1",
    "DO SLEEP(0.01)",
    "UPDATE orders SET k = 1 WHERE id = 2",
    "COMMIT",
)
LOGGED = ("--log-bin=binlog", "--server-id=7", "--binlog-format=ROW")


@contextlib.contextmanager
def deadlocks(server: Server) -> Iterator[None]:
    with (
        sessions(server, 3, *ORDER_A),
        sessions(server, 3, *ORDER_A[:1], ORDER_A[3], ORDER_A[2], ORDER_A[1], "COMMIT"),
    ):
        yield


@contextlib.contextmanager
def bulk_inserts(server: Server) -> Iterator[None]:
    bulk = "INSERT INTO auto (k) SELECT k + SLEEP(0.001) FROM orders LIMIT 10000"
    with sessions(server, 1, bulk), sessions(server, 4, "INSERT INTO auto (k) SELECT 1 FROM t0 LIMIT 3"):
        yield


CAUSES = (
    Cause("a row", behind(HOLD_7, 4, UPDATE_7), ("LOCK02", "LOCK17"), r"held by connection \d+"),
    Cause("a prepared transaction", prepared_transaction, ("LOCK02", "LOCK17"), "row locks"),
    Cause(
        "a range of rows",
        behind(("BEGIN", "SELECT * FROM auto WHERE id > 0 FOR UPDATE"), 4, "INSERT INTO auto (k) VALUES (1)"),
        ("LOCK02", "LOCK17"),
        r"held by connection \d+",
    ),
    Cause(
        "a queue for one row",
        working(8, "BEGIN", "SELECT k FROM orders WHERE id = 7 FOR UPDATE", "DO SLEEP(0.02)", "COMMIT"),
        ("LOCK02",),
        "row locks",
    ),
    Cause("a hot row", working(8, "BEGIN", UPDATE_7, READ, "COMMIT"), ("LOCK02",), "row locks"),
    Cause(
        "a definition",
        partial(queue_for_definition, holder=("BEGIN", READ), change="ALTER TABLE orders COMMENT = 'x'"),
        ("LOCK04",),
        "metadata locks of shop.orders",
    ),
    Cause(
        "LOCK TABLES",
        behind(("LOCK TABLES orders WRITE",), 4, READ),
        ("LOCK04", "LOCK05"),
        "metadata|table lock",
    ),
    Cause("scans", working(2, SCAN), ("STMT02", "SESS12", "STMT05"), "select count"),
    Cause(
        "temporary tables",
        working(3, DISK, first=("SET SESSION tmp_memory_table_size = 1024",)),
        ("SESS03", "STMT03"),
        "temporary tables",
    ),
    Cause(
        "sorts",
        working(2, SORT, first=("SET SESSION sort_buffer_size = 32768",)),
        ("SESS02", "STMT02"),
        "sort",
    ),
    Cause(
        "a join without an index",
        working(2, "SELECT COUNT(*) FROM t0 JOIN orders ON orders.k = t0.id + 7 WHERE orders.id < 40000"),
        ("SESS11", "STMT02", "STMT05"),
    ),
    Cause("new connections", connecting, ("SESS14", "SESS05"), "connection"),
    Cause("no thread cache", setting(connecting, thread_cache_size=0), ("SESS05", "SESS14"), "thread"),
    Cause("wrong passwords", partial(connecting, user="dba", password="wrong"), ("SESS09",), ""),
    Cause("all connections", exhausted, ("SESS08",), "connections"),
    Cause("refused connections", refused, ("SESS08",), "connections"),
    Cause("deadlocks", deadlocks, ("LOCK03",), "deadlock"),
    Cause(
        "a read lock on all",
        behind(("FLUSH TABLES WITH READ LOCK",), 4, UPDATE_7),
        ("LOCK12",),
        "whole server",
    ),
    Cause(
        "a backup's lock",
        behind(("BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT"), 4, UPDATE_7),
        ("LOCK12",),
        "whole server",
    ),
    Cause("a flush behind a query", flush_behind_a_query, ("LOCK12", "LOCK04"), "metadata|flush"),
    Cause("flushes", working(2, "FLUSH TABLES", READ), ("SESS20", "SESS06"), ""),
    Cause(
        "a small table cache",
        setting(working(4, *SOME_TABLES), table_open_cache=10),
        ("SESS06",),
        "Tables are|table",
    ),
    Cause(
        "a GET_LOCK", behind(("DO GET_LOCK('job', 1)",), 4, "DO GET_LOCK('job', 20)"), ("LOCK15",), "GET_LOCK"
    ),
    Cause(
        "AUTO-INC",
        bulk_inserts,
        ("LOCK11",),
        "AUTO_INCREMENT",
        ("--innodb-autoinc-lock-mode=1",),
    ),
    Cause(
        "a small pool",
        working(4, RANDOM_WIDE),
        ("WAIT03", "POOL01"),
        "buffer pool",
        ("--innodb-buffer-pool-size=8M",),
    ),
    Cause(
        "the slow log",
        setting(working(2, READ), slow_query_log=1, long_query_time=0),
        ("STAT03",),
        "slow log",
    ),
    Cause("the general log", setting(working(2, READ), general_log=1), ("STAT02",), "general log"),
    Cause("an audit", audited, ("STAT07",), "audit"),
    Cause(
        "MyISAM",
        working(
            6,
            "UPDATE my SET k = k + 1 WHERE k BETWEEN {n}000 AND {n}999",
            "SELECT COUNT(*) FROM my WHERE k = 3",
        ),
        ("LOCK05",),
        "table lock",
    ),
    Cause(
        "the query cache",
        working(4, "SELECT COUNT(*) FROM t1", "UPDATE t1 SET id = id"),
        ("SESS04", "LOCK18"),
        "query cache",
        ("--query-cache-type=1", "--query-cache-size=16M"),
    ),
    Cause("prepared statements", kept_statements, ("SESS13",), ""),
    Cause(
        "lock timeouts",
        lambda server: held(
            server,
            *HOLD_7,
            then=sessions(server, 4, UPDATE_7, first=("SET innodb_lock_wait_timeout = 1",), begin_s=3),
        ),
        ("LOCK13", "LOCK02", "LOCK17"),
        "row lock",
    ),
    Cause(
        "time limits",
        working(
            2,
            "SELECT COUNT(*) FROM orders a JOIN orders b ON a.k + b.k = 1",
            first=("SET max_statement_time = 0.2",),
        ),
        ("STMT10",),
        "joins|time limit",
    ),
    Cause("a rebuild", rebuilt, ("STMT09", "LOCK04"), "rebuil|alter"),
    Cause(
        "a small redo log",
        working(
            4, "UPDATE wide SET v = REPEAT(CHAR(65 + RAND() * 20), 900) WHERE id BETWEEN {n}0000 AND {n}0200"
        ),
        ("REDO01", "REDO02", "FLUSH06"),
        "redo",
        ("--innodb-log-file-size=4M",),
    ),
    Cause(
        "a small binlog cache",
        working(
            3, "UPDATE orders SET note = MD5(RAND()) WHERE id BETWEEN {n}0000 AND {n}0200", "DO SLEEP(0.01)"
        ),
        ("SESS10",),
        "binary log",
        (*LOGGED, "--binlog-cache-size=4096"),
    ),
    Cause(
        "commits that wait for others",
        working(4, *TRANSACTION),
        ("BLOG04",),
        "binlog_commit_wait|commit",
        (*LOGGED, "--binlog-commit-wait-count=50", "--binlog-commit-wait-usec=100000"),
    ),
    Cause(
        "no acknowledgement",
        working(4, *TRANSACTION),
        ("REPL13", "WAIT01"),
        "acknowledg",
        (*LOGGED, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=60000"),
    ),
    Cause(
        "SERIALIZABLE",
        setting(
            working(
                6,
                "BEGIN",
                "SELECT SUM(k) FROM orders WHERE id < 50",
                "UPDATE orders SET k = 1 WHERE id = {n}",
                "COMMIT",
            ),
            tx_isolation="SERIALIZABLE",
        ),
        ("LOCK19",),
        "SERIALIZABLE",
    ),
    Cause(
        "init_connect",
        setting(partial(connecting, user="app", password="right"), init_connect="DO SLEEP(0.3)"),
        ("SESS19",),
        "init_connect",
    ),
    Cause("many at once", working(30, SCAN), ("WAIT02", "STMT02"), "execute"),
    Cause(
        "a small key cache",
        setting(
            working(3, "SELECT SUM(my.k) FROM seq_1_to_2000 s JOIN my ON my.id = s.seq * 49"),
            key_buffer_size=65536,
        ),
        ("POOL10",),
        "MyISAM",
    ),
    Cause("a broken replica", replica, ("REPL02",), "", ("--server-id=8",)),
    Cause(
        "a small thread pool",
        working(12, "DO SLEEP(0.2)", READ),
        ("SESS18",),
        "thread pool",
        ("--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-max-threads=4"),
    ),
    Cause(
        "slow syncs",
        working(4, *TRANSACTION),
        ("WAIT01",),
        "wait for commits",
        ("--innodb-flush-log-at-trx-commit=1",),
        is_slow_to_sync=True,
    ),
    Cause("nothing", lambda server: contextlib.nullcontext(), ()),
    Cause("sleepers", working(4, "DO SLEEP(1)"), ()),
    Cause("point reads", working(2, READ), ()),
    Cause("idle connections", lambda server: sessions(server, 20, "DO SLEEP(0.5)", READ), ()),
    # Last, because what they leave to purge is a cost for a while.
    Cause("an old snapshot", old_snapshot, ("LOCK17", "LOCK10", "LOCK09"), r"open for \d+ s"),
    Cause(
        "a delay for purge",
        setting(old_snapshot, innodb_max_purge_lag=10, innodb_max_purge_lag_delay=20000),
        ("LOCK16", "LOCK17"),
        "purge|row versions",
    ),
)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("causes", nargs="*", help="only these")
    options = parser.parse_args()
    if unknown := set(options.causes) - {cause.name for cause in CAUSES}:
        raise SystemExit(f"no cause {', '.join(sorted(unknown))}")
    chosen = [cause for cause in CAUSES if not options.causes or cause.name in options.causes]
    with tempfile.TemporaryDirectory(prefix="hr-sql-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        folder.chmod(0o755)
        with mariadb(folder / "m", *OPTIONS) as server:
            fill(server)
            return summary([tried(server, cause, folder) for cause in chosen])


def fill(server: Server) -> None:
    server.sql(
        "CREATE DATABASE shop CHARACTER SET latin1",
        "USE shop",
        "CREATE TABLE orders (id INT PRIMARY KEY, k INT, note VARCHAR(60))",
        "INSERT INTO orders SELECT seq, seq, MD5(seq) FROM seq_1_to_100000",
        "CREATE TABLE wide (id INT PRIMARY KEY, v VARCHAR(1000))",
        "INSERT INTO wide SELECT seq, REPEAT('x', 900) FROM seq_1_to_60000",
        "CREATE TABLE my (id INT PRIMARY KEY, k INT, v VARCHAR(100)) ENGINE=MyISAM",
        "INSERT INTO my SELECT seq, seq, MD5(seq) FROM seq_1_to_100000",
        "CREATE TABLE auto (id INT AUTO_INCREMENT PRIMARY KEY, k INT)",
        *(f"CREATE TABLE t{number} (id INT)" for number in range(TABLES)),
        "INSERT INTO t0 SELECT seq FROM seq_1_to_100",
        "CREATE USER dba@localhost IDENTIFIED BY 'right'",
        "CREATE USER app@localhost IDENTIFIED BY 'right'",
        "GRANT ALL ON shop.* TO app@localhost",
        "CREATE USER watcher@'127.0.0.1'",
        "GRANT PROCESS, REPLICA MONITOR, SELECT ON *.* TO watcher@'127.0.0.1'",
    )


def tried(server: Server, cause: Cause, folder: Path) -> tuple[Cause, bool, str]:
    """Whether the cause is among the first two findings, and what was claimed of a host."""
    with with_options(server, cause, folder), cause.planted(server):
        found = hunted(server)
    findings = [f for f in found["findings"] if not f["id"].startswith(OF_THE_SERVER)]
    codes = [finding["id"].partition("@")[0] for finding in findings]
    if cause.finds:
        is_right = any(code in cause.finds for code in codes[:FIRST])
    else:
        is_right = not any(finding["severity"] in SEVERE for finding in findings)
    is_said = re.search(cause.says, found["verdict"], re.I) is not None
    claims = claims_of_a_host(found)
    said = "" if is_said else ", not in the sentence"
    print(
        f"{cause.name:32} {'yes' if is_right else 'NO'}{said}{f' CLAIMED {claims}' if claims else ''}",
        flush=True,
    )
    if not is_right or not is_said or claims:
        listed = [f"{finding['severity']} {finding['id']}" for finding in found["findings"][:6]]
        print(f"    {found['verdict']}\n    {', '.join(listed)}", flush=True)
    return cause, is_right, claims


@contextlib.contextmanager
def with_options(server: Server, cause: Cause, folder: Path) -> Iterator[None]:
    if not cause.options:
        yield
        return
    base = list(server.argv)
    if cause.is_slow_to_sync:
        server.env["LD_PRELOAD"] = str(slow_syncs(folder))
    server.argv = [*base, *cause.options]
    server.restart()
    try:
        yield
    finally:
        server.env.pop("LD_PRELOAD", None)
        server.argv = base
        server.restart()


def slow_syncs(folder: Path) -> Path:
    """A library with which each sync takes 25 ms more, below everything that the host counts."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise SystemExit("slow syncs: no gcc")
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SLOW_SYNC)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    return library


def hunted(server: Server) -> dict[str, Any]:
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "watcher"]
    words = ["hunt", "--sql-only", "--json", "--duration", f"{HUNT_S}s", *login]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"verdict": done.stderr.strip(), "findings": [], "resources": []}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summary(results: Sequence[tuple[Cause, bool, str]]) -> int:
    causes = [is_right for cause, is_right, _ in results if cause.finds]
    false = [cause.name for cause, is_right, _ in results if not cause.finds and not is_right]
    claims = [cause.name for cause, _, claimed in results if claimed]
    print(f"{sum(causes)} of {len(causes)} causes among the first {FIRST}")
    print(f"costs where nothing is wrong: {', '.join(false) or 'none'}")
    print(f"claims about a host: {', '.join(claims) or 'none'}")
    return 0 if sum(causes) >= TARGET * len(causes) and not false and not claims else 1


if __name__ == "__main__":
    sys.exit(main())
