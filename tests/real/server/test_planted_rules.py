"""Causes planted in live servers, for rules that no other real test has: each is named while the load runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.base.model import ServerLogin
from headrace.host.target.local import LocalTarget
from headrace.hunt.hunt import Hunt, examine, watch
from headrace.hunt.rules.rule import Finding, Severity
from tests import servers
from tests.lab import confined
from tests.loads import load, spec
from tests.mysqld import find_mysqld
from tests.servers import Server, find_server, free_port, mariadb, mysql

SECONDS = 3
MIB = 1 << 20
ROWS = 1_000
#: Each is started with what can only be planted at a start.
MARIADB = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
)
#: What each server has from the start: a transaction that nobody ends, and that holds a row and the history.
FORGOTTEN = ("BEGIN", "SELECT COUNT(*) FROM items", "UPDATE items SET v = 9 WHERE id = 0")
GALERA = "/usr/lib/galera/libgalera_smm.so"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def maria(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m", *MARIADB) as server, session(fill(server), *FORGOTTEN):
        yield server


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[Server]:
    program = find_mysqld()
    if isinstance(program, str):
        pytest.skip(program)
    with mysql(program, folder / "o") as server, session(fill(server), *FORGOTTEN):
        yield server


def fill(server: Server) -> Server:
    server.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.items (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "INSERT INTO shop.items VALUES " + ", ".join(f"({n}, 0)" for n in range(ROWS)),
        "CREATE TABLE shop.journal (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=InnoDB",
    )
    return server


def hunt(server: Server, seconds: float = SECONDS) -> Hunt:
    login = ServerLogin(socket=server.socket, user="root")
    return examine(asyncio.run(watch(LocalTarget(), seconds, login)))


def found_by(found: Hunt, code: str) -> Finding:
    finding = next((f for f in found.judgement.findings if f.rule.code == code), None)
    blind = [f"{b.rule.code}: {b.missing}" for b in found.judgement.blind if b.rule.code == code]
    said = "\n".join(f"{f.id}: {f.hit.summary}" for f in found.judgement.findings)
    assert finding is not None, f"{blind}\n{said}"
    return finding


@contextlib.contextmanager
def session(server: Server, *statements: str) -> Iterator[pymysql.Connection[Any]]:
    """A connection that has done this, and then leaves it there."""
    connection = pymysql.connect(unix_socket=server.socket, user="root", database="shop", ssl_disabled=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        yield connection


@contextlib.contextmanager
def variables(server: Server, **values: object) -> Iterator[None]:
    """Global variables, for the length of a block."""
    before = {name: server.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in values}
    server.sql(*(f"SET GLOBAL {name} = {value!r}" for name, value in values.items()))
    try:
        yield
    finally:
        server.sql(*(f"SET GLOBAL {name} = {value!r}" for name, value in before.items()))


@contextlib.contextmanager
def again_and_again(work: Callable[[], None], threads: int) -> Iterator[None]:
    """Runs something in threads, over and over; whatever a server then refuses is the plant itself."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            with contextlib.suppress(pymysql.Error, OSError):
                work()

    workers = [threading.Thread(target=loop) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def number(low: int, high: int) -> dict[str, Any]:
    return {"kind": "int", "min": low, "max": high}


INSERT = {"sql": "INSERT INTO journal (v) VALUES (1)"}
UPDATE = {"sql": "UPDATE items SET v = v + 1 WHERE id = ?", "parameters": [number(10, ROWS - 1)]}
SLEEP = {"sql": "DO SLEEP(0.02)"}


def test_a_backup_holds_the_global_read_lock(server: Server) -> None:
    with session(server, "FLUSH TABLES WITH READ LOCK") as holder, load(server, spec(6, INSERT)):
        found = hunt(server)
        with holder.cursor() as cursor:
            cursor.execute("UNLOCK TABLES")
    assert "FLUSH TABLES WITH READ LOCK" in found_by(found, "LOCK12").hit.summary


def test_deadlocks(oracle: Server) -> None:
    both = [
        [{"sql": "UPDATE items SET v = v + 1 WHERE id = ?", "parameters": [number(n, n)]} for n in order]
        for order in ((1, 2), (2, 1))
    ]
    content = spec(8)
    content["workload"]["operations"] = [
        {"name": f"way{n}", "transaction": True, "statements": [first, SLEEP, second]}
        for n, (first, second) in enumerate(both)
    ]
    with load(oracle, content):
        found = hunt(oracle)
    assert found_by(found, "LOCK03")


def test_a_lock_of_the_application(server: Server) -> None:
    with (
        session(server, "SELECT GET_LOCK('job', 1)"),
        load(server, spec(5, {"sql": "DO GET_LOCK('job', 2)"})),
    ):
        found = hunt(server)
    assert found_by(found, "LOCK15")


def test_changes_delayed_for_purge(server: Server) -> None:
    with (
        variables(server, innodb_max_purge_lag=10, innodb_max_purge_lag_delay=20_000),
        load(server, spec(8, UPDATE)),
    ):
        time.sleep(2)
        found = hunt(server)
    finding = found_by(found, "LOCK16")
    assert finding.hit.remedies[0].settings == {"server.innodb_max_purge_lag": 0}


def test_innodb_lets_one_thread_in(oracle: Server) -> None:
    statement = {"sql": "SELECT COUNT(*) FROM items a JOIN items b ON a.v <= b.v + ? LIMIT 1"}
    statement["parameters"] = [number(0, 0)]  # type: ignore[assignment]
    with variables(oracle, innodb_thread_concurrency=1), load(oracle, spec(8, statement)):
        found = hunt(oracle, 6)
    finding = found_by(found, "LOCK08")
    assert finding.severity is Severity.LIMIT
    assert finding.hit.remedies[0].settings == {"server.innodb_thread_concurrency": 0}


def test_logins_for_each_statement_that_are_never_closed(maria: Server) -> None:
    def connect() -> None:
        connection = pymysql.connect(unix_socket=maria.socket, user="root", ssl_disabled=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection._force_close()

    with again_and_again(connect, 3):
        found = hunt(maria)
    assert "per connection" in found_by(found, "SESS14").hit.summary
    assert found_by(found, "SESS17")


def test_handshakes(oracle: Server) -> None:
    encrypted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    encrypted.check_hostname, encrypted.verify_mode = False, ssl.CERT_NONE

    def connect() -> None:
        pymysql.connect(host="127.0.0.1", port=oracle.port, user="tls", password="x", ssl=encrypted).close()

    oracle.sql("CREATE USER tls@'%' IDENTIFIED WITH mysql_native_password BY 'x' REQUIRE SSL")
    with again_and_again(connect, 4):
        found = hunt(oracle)
    assert found_by(found, "SESS16")


def test_numbers_of_a_column_run_out(server: Server) -> None:
    server.sql(
        "CREATE TABLE shop.orders (id TINYINT UNSIGNED AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 240",
        "INSERT INTO shop.orders VALUES ()",
    )
    finding = found_by(hunt(server, 1), "LIM06")
    assert finding.hit.subject == "shop.orders.id"
    assert "241 of 255" in finding.hit.summary


def test_a_source_without_its_semi_synchronous_replica(maria: Server) -> None:
    with (
        variables(maria, rpl_semi_sync_master_timeout=10, rpl_semi_sync_master_enabled=1),
        load(maria, spec(2, INSERT)),
    ):
        found = hunt(maria)
    assert "0 semi-synchronous replicas" in found_by(found, "REPL06").hit.summary


def test_a_replica_that_clients_may_write_to(maria: Server) -> None:
    maria.sql("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'r'")
    try:
        finding = found_by(hunt(maria, 1), "REPL07")
    finally:
        maria.sql("RESET SLAVE ALL")
    assert finding.hit.remedies[0].settings == {"server.read_only": True}


def test_a_replica_that_commits_in_any_order(oracle: Server) -> None:
    oracle.sql("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1")
    try:
        with variables(oracle, replica_preserve_commit_order=0, replica_parallel_workers=4):
            found = hunt(oracle, 1)
    finally:
        oracle.sql("RESET REPLICA ALL")
    assert found_by(found, "REPL07").hit.remedies[0].settings == {"server.super_read_only": True}
    assert found_by(found, "REPL08")


def test_a_key_cache_of_nothing(maria: Server) -> None:
    maria.sql(
        "CREATE TABLE shop.old (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=MyISAM",
        f"INSERT INTO shop.old SELECT seq, seq FROM shop.seq_1_to_{200 * ROWS}",
    )
    read = {"sql": "SELECT SQL_NO_CACHE id FROM old WHERE v = ?", "parameters": [number(1, 200 * ROWS)]}
    with variables(maria, key_buffer_size=65_536), load(maria, spec(2, read)):
        found = hunt(maria)
    finding = found_by(found, "POOL10")
    larger = finding.hit.remedies[0].settings["server.key_buffer_size"]
    # All of the index, which is a few megabytes.
    assert MIB < int(str(larger)) < 64 * MIB


def test_a_server_that_grows(maria: Server) -> None:
    with session(maria) as client, client.cursor() as cursor:
        count = iter(range(10**9))

        def grow() -> None:
            cursor.execute(f"SET @leak{next(count)} = REPEAT('x', {MIB})")
            time.sleep(0.03)

        with again_and_again(grow, 1):
            found = hunt(maria, 6)
    assert "beyond its pool" in found_by(found, "MEM17").hit.summary


def test_a_forgotten_transaction_and_waits_that_time_out(server: Server) -> None:
    def blocked() -> None:
        with session(server, "SET innodb_lock_wait_timeout = 1", "UPDATE items SET v = 0 WHERE id = 0"):
            pass

    # It counts as forgotten when it is older than what a client does between two statements.
    with again_and_again(blocked, 4):
        while age(server) < 11:
            time.sleep(0.2)
        found = hunt(server)
    assert found_by(found, "LOCK13")
    finding = found_by(found, "LOCK17")
    assert finding.severity is Severity.LIMIT
    assert "wait for rows" in finding.hit.summary


def age(server: Server) -> int:
    rows = server.sql(
        "SELECT MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) FROM information_schema.INNODB_TRX"
    )
    return int(str(rows[0][0] or 0))


@needs_root
def test_a_control_group_without_room_for_threads(maria: Server) -> None:
    if not Path("/sys/fs/cgroup/pids").is_dir():
        pytest.skip("no controller for tasks of version 1")
    tasks = len(os.listdir(f"/proc/{maria.pid}/task"))
    clients = maria.status("Threads_cached") + 12

    def connect() -> None:
        with session(maria, "DO SLEEP(0.5)"):
            pass

    with confined(maria.pid, "pids", {"pids.max": str(tasks + 2)}), again_and_again(connect, clients):
        found = hunt(maria)
    assert "was refused" in found_by(found, "LIM08").hit.summary


@needs_root
def test_a_data_directory_mounted_read_only(maria: Server) -> None:
    data = str(maria.folder / "data")
    subprocess.run(["mount", "--bind", data, data], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", data], check=True)
        finding = found_by(hunt(maria, 1), "FS13")
    finally:
        subprocess.run(["umount", data], check=True)
    assert "read-only" in finding.hit.summary


@needs_root
def test_a_file_system_that_fills(folder: Path) -> None:
    image, mount = folder / "image", folder / "full"
    mount.mkdir()
    subprocess.run(["truncate", "-s", "600M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-N", "2000", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    mount.chmod(0o755)
    big = (
        "CREATE TEMPORARY TABLE big (v VARCHAR(4000)) ENGINE=InnoDB CHARACTER SET latin1",
        "INSERT INTO big SELECT REPEAT('x', 3900) FROM seq_1_to_30000",
    )
    try:
        with mariadb(mount / "f") as server, session(fill(server), *big), (mount / "log").open("wb") as log:
            (mount / "many").mkdir()
            for n in range(os.statvfs(mount).f_favail - 20):
                (mount / "many" / str(n)).touch()

            def grow() -> None:
                log.write(bytes(MIB))
                log.flush()
                time.sleep(0.3)

            with again_and_again(grow, 1):
                # The room is looked at every ten seconds, and at the end.
                found = hunt(server, 12)
    finally:
        subprocess.run(["umount", mount], check=True)
    assert "minutes" in found_by(found, "FS11").hit.summary
    assert "inodes left" in found_by(found, "FS12").hit.summary
    assert "sets no maximum" in found_by(found, "LIM09").hit.summary


@needs_root
@pytest.mark.parametrize("kind", ["mariadb-10.11", "mysql-8.0"])
def test_a_resolver_that_does_not_answer(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = find_server(kind)
    if isinstance(program, str):
        pytest.skip(program)
    name = f"hr-planted-{os.getpid()}"
    own = Path("/etc/netns") / name
    inside = ["ip", "netns", "exec", name]
    # Nobody has the resolver's address, and the kernel must not find that out.
    steps = (
        "link add d0 type veth peer name d1",
        "addr add 10.99.0.1/24 dev d0",
        "link set d0 up",
        "link set d1 up",
        "link set lo up",
        "neigh add 10.99.0.9 lladdr 02:00:00:00:00:09 dev d0",
    )
    client = "import socket, sys, time; at = ('10.99.0.1', int(sys.argv[1])); "
    client += "kept = [socket.create_connection(at) for _ in range(6)]; time.sleep(60)"
    as_mysql = servers._as_mysql
    monkeypatch.setattr(servers, "_as_mysql", lambda: [*inside, *as_mysql()])
    own.mkdir(parents=True)
    (own / "resolv.conf").write_text("nameserver 10.99.0.9\n")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for step in steps:
            subprocess.run(["ip", "-n", name, *step.split()], check=True)
        with servers.server(kind, program, folder / kind, "--bind-address=10.99.0.1") as server:
            argv = [*inside, sys.executable, "-c", client, str(server.port)]
            with subprocess.Popen(argv) as clients:
                while server.status("Threads_connected") < 7:
                    time.sleep(0.1)
                found = hunt(server)
                clients.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
        shutil.rmtree(own)
    finding = found_by(found, "SESS15")
    assert finding.hit.remedies[0].settings == {"server.skip_name_resolve": True}


def test_a_thread_pool_that_is_too_small(folder: Path) -> None:
    options = ("--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-max-threads=4")
    with mariadb(folder / "p", *options) as server:
        fill(server)
        with load(server, spec(24, SLEEP)):
            found = hunt(server)
    finding = found_by(found, "SESS18")
    assert finding.hit.remedies[0].settings["server.thread_pool_max_threads"] == 65_536


def test_a_node_without_quorum(folder: Path) -> None:
    if not Path(GALERA).exists():
        pytest.skip(f"no {GALERA}")
    port = free_port()
    options = (
        "--wsrep-on=ON",
        f"--wsrep-provider={GALERA}",
        "--wsrep-cluster-address=gcomm://",
        f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port}",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-dirty-reads=ON",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    )
    with mariadb(folder / "g", *options) as server:
        assert not any(f.rule.code == "REPL12" for f in hunt(server, 1).judgement.findings)

        def leave() -> None:
            server.sql(f"SET GLOBAL wsrep_cluster_address = 'gcomm://127.0.0.1:{free_port()}'")
            time.sleep(1)

        with again_and_again(leave, 1):
            time.sleep(0.5)
            finding = found_by(hunt(server, 2), "REPL12")
            server.process.kill()
    # It looks for the others alone, and in between is connected to nothing.
    assert re.search("has no quorum|not connected to its cluster", finding.hit.summary)
