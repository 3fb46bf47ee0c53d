"""Causes planted in a real server of which only SQL is used: named first, and nothing is claimed of any host."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import programs
from tests.servers import Server, mariadb
from tests.whereabouts import claims_of_a_host

HEADRACE = Path(sys.executable).parent / "headrace"
SECRET = "hunter2-and-more"
#: Work of others on this machine may hide a cause for a while.
TRIES = 2

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


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m", "--max-connections=60", "--innodb-lock-wait-timeout=50") as running:
        running.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY, k INT, note VARCHAR(60))",
            f"INSERT INTO orders SELECT seq, seq, '{SECRET}' FROM seq_1_to_100000",
            "CREATE USER watcher@'127.0.0.1'",
            "GRANT PROCESS, REPLICA MONITOR, SELECT ON *.* TO watcher@'127.0.0.1'",
            "CREATE USER nobody@'127.0.0.1'",
        )
        yield running


@pytest.fixture
def slow_syncs(server: Server, tmp_path: Path) -> Iterator[None]:
    """Each sync takes 25 ms more, below everything that the host counts."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    source, library = tmp_path / "slow.c", server.folder / "slow.so"
    source.write_text(SLOW_SYNC)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    server.env["LD_PRELOAD"] = str(library)
    server.restart()
    yield
    del server.env["LD_PRELOAD"]
    server.restart()


def command(server: Server, user: str, *more: str, seconds: int = 5) -> list[str]:
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", user]
    return [str(HEADRACE), "hunt", "--sql-only", "--duration", f"{seconds}s", "--json", *login, *more]


def hunted(
    server: Server,
    folder: Path,
    is_found: Callable[[dict[str, Any]], bool],
    *more: str,
    user: str = "watcher",
) -> dict[str, Any]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "HEADRACE_AGENT": programs.agent_path()}
    for _ in range(TRIES):
        done = subprocess.run(
            command(server, user, *more),
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout
        found: dict[str, Any] = json.loads(done.stdout)
        assert not claims_of_a_host(found)
        if is_found(found):
            break
    return found


def first(found: dict[str, Any], *codes: str) -> bool:
    """Whether one of these is among the first two findings."""
    return any(finding["id"].partition("@")[0] in codes for finding in found["findings"][:2])


@contextlib.contextmanager
def sessions(server: Server, count: int, *statements: str) -> Iterator[list[Any]]:
    """Connections that execute these again and again, until the end."""
    stop = threading.Event()

    def work(connection: pymysql.Connection[Any]) -> None:
        with contextlib.suppress(pymysql.Error), connection.cursor() as cursor:
            while not stop.is_set():
                for statement in statements:
                    cursor.execute(statement)

    opened = [connected(server) for _ in range(count)]
    threads = [threading.Thread(target=work, args=(each,)) for each in opened]
    for thread in threads:
        thread.start()
    try:
        yield opened
    finally:
        stop.set()
        for each in opened:
            with contextlib.suppress(pymysql.Error):
                server.sql(f"KILL {each.thread_id()}")
        for thread in threads:
            thread.join(30)


def connected(server: Server) -> pymysql.Connection[Any]:
    return pymysql.connect(
        unix_socket=server.socket, user="root", database="shop", ssl_disabled=True, autocommit=True
    )


@contextlib.contextmanager
def held_row(server: Server) -> Iterator[None]:
    with contextlib.closing(connected(server)) as holder:
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE orders SET k = k + 1 WHERE id = 7")
        with sessions(server, 4, "UPDATE orders SET k = k + 1 WHERE id = 7"):
            yield


@contextlib.contextmanager
def held_definition(server: Server) -> Iterator[None]:
    with contextlib.closing(connected(server)) as holder:
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT k FROM orders WHERE id = 7")
        with sessions(server, 1, "ALTER TABLE orders COMMENT = 'x'"):
            time.sleep(0.5)
            with sessions(server, 4, "SELECT k FROM orders WHERE id = 8"):
                yield


@contextlib.contextmanager
def exhausted(server: Server) -> Iterator[None]:
    opened = [connected(server) for _ in range(56)]
    try:
        yield
    finally:
        for each in opened:
            each.close()


@contextlib.contextmanager
def old_transaction(server: Server) -> Iterator[None]:
    with contextlib.closing(connected(server)) as holder:
        with holder.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SELECT k FROM orders WHERE id = 7")
        server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        try:
            with sessions(server, 2, "UPDATE shop.orders SET k = k + 1 WHERE id BETWEEN 100 AND 400"):
                time.sleep(11)
                yield
        finally:
            server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


@contextlib.contextmanager
def small_sorts(server: Server) -> Iterator[None]:
    ((was,),) = server.sql("SELECT @@GLOBAL.sort_buffer_size")
    server.sql("SET GLOBAL sort_buffer_size = 16384")
    try:
        with sessions(
            server, 3, "SELECT id FROM orders WHERE id < 20000 ORDER BY k % 977, note LIMIT 19000, 1"
        ):
            yield
    finally:
        server.sql(f"SET GLOBAL sort_buffer_size = {was}")


Plant = Callable[[Server], AbstractContextManager[Any]]
SCAN = "SELECT COUNT(*) FROM orders WHERE k = 7"
DISK = (
    "SELECT note, k, REPEAT('x', 600) AS pad FROM orders WHERE id < 4000 GROUP BY k, pad ORDER BY pad LIMIT 1"
)
PLANTS: dict[str, tuple[Plant, tuple[str, ...], str]] = {
    "a row": (held_row, ("LOCK02", "LOCK17"), r"wait for row locks of shop\.orders, held by connection \d+"),
    "a definition": (
        held_definition,
        ("LOCK04",),
        r"wait for metadata locks of shop\.orders, probably held by",
    ),
    "scans": (
        lambda server: sessions(server, 2, SCAN),
        ("STMT02", "SESS12", "STMT05"),
        r"execute \(\d\.\d of them select count",
    ),
    "connections": (exhausted, ("SESS08",), r""),
    "temporary tables": (
        lambda server: sessions(server, 3, "SET SESSION tmp_memory_table_size = 1024", DISK),
        ("SESS03", "STMT03"),
        r"temporary tables",
    ),
    # The sessions at it are the cost: a session is a second per second.
    "sorts": (
        small_sorts,
        ("SESS02",),
        r"merge passes/s with a buffer of 16 KiB: [123]\.\d of [234]\.\d active sessions sort on average",
    ),
    "an old transaction": (old_transaction, ("LOCK17", "LOCK10"), r"open for \d+ s"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_what_sql_shows_is_named_and_no_host_is_judged(server: Server, tmp_path: Path, plant: str) -> None:
    planted, codes, says = PLANTS[plant]
    with planted(server):
        found = hunted(server, tmp_path, lambda found: first(found, *codes))
    print(found["verdict"], [f["id"] for f in found["findings"][:4]])
    assert first(found, *codes), (found["verdict"], [f["id"] for f in found["findings"]])
    assert re.search(says, found["verdict"]), found["verdict"]
    assert "is unknown" in found["verdict"]


def test_a_commit_wait_that_no_host_shows(server: Server, slow_syncs: None, tmp_path: Path) -> None:
    change = "UPDATE orders SET k = k + 1 WHERE id = CONNECTION_ID()"
    with sessions(server, 4, "BEGIN", change, "COMMIT"):
        found = hunted(server, tmp_path, lambda found: first(found, "WAIT01"))
        whole = subprocess.run(
            [HEADRACE, "hunt", "--duration", "6s", "--json", "--mysql-socket", server.socket],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "HEADRACE_AGENT": programs.agent_path()},
        )
    print(found["verdict"])
    assert first(found, "WAIT01"), found["verdict"]
    # Beside other tests a core may be what one of the four waits for.
    assert re.search(r"[234]\.\d wait for commits", found["verdict"]), found["verdict"]
    with_host = json.loads(whole.stdout)
    print(with_host["verdict"])
    assert first(with_host, "WAIT01"), with_host["verdict"]
    assert re.search(r"a commit takes \d\d+ ms, of which \S+ shows \d", with_host["verdict"]), with_host[
        "verdict"
    ]


def test_too_many_threads_for_the_cpus_that_were_given(server: Server, tmp_path: Path) -> None:
    with sessions(server, 16, SCAN):
        found = hunted(
            server, tmp_path, lambda found: first(found, "WAIT02"), "--cpus", "4", "--memory", "8G"
        )
    print(found["verdict"])
    assert first(found, "WAIT02"), (found["verdict"], [f["id"] for f in found["findings"]])
    assert re.search(r"execute.* on 4 CPUs: more than these can run", found["verdict"])


def test_without_privileges_it_says_which_grant_is_missing(server: Server, tmp_path: Path) -> None:
    with sessions(server, 4, SCAN):
        found = hunted(server, tmp_path, lambda found: True, user="nobody")
    assert re.search(r"At most [2-5]\.\d sessions are active on average: as many threads run, and .* may be among "
                     r"them\. What sessions wait for is unknown: the account "
                     r"lacks PROCESS.*GRANT PROCESS ON \*\.\*", found["verdict"]), found["verdict"]  # fmt: skip


def test_a_login_that_fails_is_an_error(server: Server, tmp_path: Path) -> None:
    done = subprocess.run(command(server, "stranger"), capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "was not examined" in done.stderr
    assert "Access denied" in done.stderr
