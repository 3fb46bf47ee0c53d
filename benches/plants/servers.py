"""Causes in servers that work together, in locks that time out, and in logins."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from benches.plants.beside import old_view, processes, python, session
from benches.plants.loads import MARIADB, MYSQL, POINT, WRITES, Load, operation, statement
from benches.plants.plant import Plant
from tests.servers import Server, mariadb

from headrace.knobs.knob import Versions

LOGGED = ("--log-bin=binlog", "--server-id=7", "--binlog-format=ROW", "--binlog-expire-logs-seconds=604800")

#: Asks for the binary log from its beginning, as a replica does, and throws it away.
DUMP = """
import pymysql, struct, sys
c = pymysql.connect(unix_socket=sys.argv[1], user="root")
c.cursor().execute("SET @source_binlog_checksum = 'NONE', @master_binlog_checksum = 'NONE'")
c._execute_command(0x12, struct.pack("<IHI", 4, 0, 99) + sys.argv[2].encode())
while c._sock.recv(1 << 16): pass
"""
GIVES_UP = """
import contextlib, pymysql, sys
c = pymysql.connect(unix_socket=sys.argv[1], user="root", database="shop").cursor()
c.execute("SET innodb_lock_wait_timeout = 1")
while True:
    with contextlib.suppress(pymysql.Error): c.execute("UPDATE hot SET v = 0 WHERE id = 1")
"""
SHAKES_HANDS = """
import contextlib, pymysql, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
at = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "over_tls", "password": "right"}
while True:
    with contextlib.suppress(pymysql.Error): pymysql.connect(**at, ssl=context).close()
"""


@contextlib.contextmanager
def replica(server: Server) -> Iterator[None]:
    """It has a source that nobody listens for."""
    source = "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1"
    forget = "RESET REPLICA ALL"
    if "MariaDB" in str(server.sql("SELECT VERSION()")[0][0]):
        source = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'r'"
        forget = "RESET SLAVE ALL"
    server.sql(source)
    try:
        yield
    finally:
        server.sql(forget)


@contextlib.contextmanager
def behind(server: Server) -> Iterator[None]:
    """It applies what a source has written long before, with workers whose queues hold next to nothing."""
    writes = (
        "BEGIN NOT ATOMIC DECLARE n INT DEFAULT 0; WHILE n < 200000 DO "
        "INSERT INTO told.rows VALUES (n, REPEAT('r', 200)); SET n = n + 1; END WHILE; END"
    )
    with mariadb(
        server.folder.parent / "source", "--log-bin=binlog", "--server-id=9", "--binlog-format=ROW"
    ) as source:
        source.sql(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
            "SET autocommit = 1",
            "CREATE USER r@'%' IDENTIFIED BY 'throwaway'",
            "GRANT REPLICATION SLAVE ON *.* TO r@'%'",
            "CREATE DATABASE told",
            "CREATE TABLE told.rows (id INT PRIMARY KEY, v VARCHAR(200))",
            writes,
        )
        server.sql(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port}, MASTER_USER = 'r', "
            "MASTER_PASSWORD = 'throwaway', MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4",
            "START SLAVE",
        )
        try:
            yield
        finally:
            server.sql(
                "STOP SLAVE", "RESET SLAVE ALL", "DROP DATABASE IF EXISTS told", "DROP USER IF EXISTS r@'%'"
            )


@contextlib.contextmanager
def subscriber(server: Server) -> Iterator[None]:
    first = str(server.sql("SHOW BINARY LOGS")[-1][0])
    with processes(python(DUMP, server.socket, first)):
        time.sleep(1)
        yield


@contextlib.contextmanager
def given_up(server: Server) -> Iterator[None]:
    """A session that holds a row and does nothing, and four that wait for it for a second each."""
    holder = ("SET autocommit = 0", "BEGIN", "SELECT * FROM hot WHERE id = 1 FOR UPDATE")
    with session(server, *holder), processes(*4 * (python(GIVES_UP, server.socket),)):
        time.sleep(11)
        yield


@contextlib.contextmanager
def handshakes(server: Server) -> Iterator[None]:
    server.sql("CREATE USER IF NOT EXISTS over_tls@'%' IDENTIFIED BY 'right' REQUIRE SSL")
    with processes(*4 * (python(SHAKES_HANDS, server.port),)):
        yield


PLANTS = (
    Plant(
        "no acknowledgement",
        "semi-synchronous replication without a replica",
        ("REPL06",),
        "",
        WRITES,
        (*LOGGED, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=10"),
        servers=MARIADB,
        adviser="semi.sync",
        also=("BLOG01", "SESS10", "FLUSH08"),
        has_remedy=False,
    ),
    Plant(
        "a writable replica",
        "a replica that clients may write to",
        ("REPL07",),
        "",
        beside=replica,
        adviser="read.only",
        also=("REPL02", "REPL05"),
        has_remedy=False,
    ),
    Plant(
        "queues of the workers",
        "a replica whose workers wait for work although the relay log is full of it",
        ("REPL10",),
        "queue|worker",
        Load((operation(POINT, statement("DO SLEEP(0.01)")),), connections=4),
        (
            "--server-id=8",
            "--slave-parallel-threads=4",
            "--slave-parallel-max-queued=2000",
            "--read-only=ON",
        ),
        beside=behind,
        servers=MARIADB,
        adviser="slave_parallel",
        also=("REPL01", "REPL02", "REPL05", "REDO01"),
        has_remedy=False,
    ),
    Plant(
        "commits in any order",
        "a replica whose workers do not keep the order of the source",
        ("REPL08",),
        "",
        options=("--replica-preserve-commit-order=OFF", "--replica-parallel-workers=4", "--read-only=ON"),
        beside=replica,
        servers=MYSQL,
        versions=Versions(since="8.0.26"),
        adviser="commit.order",
        also=("REPL02", "REPL05"),
        has_remedy=False,
    ),
    Plant(
        "few transactions are independent",
        "a busy source that marks only what committed together",
        ("REPL09",),
        "",
        WRITES,
        (*LOGGED, "--binlog-transaction-dependency-tracking=COMMIT_ORDER"),
        beside=subscriber,
        servers=MYSQL,
        versions=Versions(until="8.4"),
        adviser="dependency.tracking",
        also=("BLOG01", "SESS10"),
        has_remedy=False,
    ),
    Plant(
        "waits that time out",
        "sessions that give up waiting for a row",
        ("LOCK13", "LOCK17", "LOCK02"),
        "row|transaction",
        beside=given_up,
        adviser="lock.wait|transaction",
        also=("LOCK01", "STMT04"),
        has_remedy=False,
    ),
    Plant(
        "delayed for purge",
        "changes that wait because an old view holds purge back",
        ("LOCK16", "LOCK17"),
        "changed row|purge|row versions",
        WRITES,
        ("--innodb-max-purge-lag=10", "--innodb-max-purge-lag-delay=20000"),
        beside=old_view,
        adviser="purge.lag",
        also=("LOCK01", "LOCK09"),
    ),
    Plant(
        "handshakes",
        "clients that connect over TLS, and leave",
        ("SESS16", "SESS14"),
        "handshake|TLS|connect",
        beside=handshakes,
        servers=MYSQL,
        adviser="ssl|tls|connect",
        also=("SESS05",),
        has_remedy=False,
    ),
)
