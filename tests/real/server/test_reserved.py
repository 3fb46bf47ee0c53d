"""A server whose connections are all taken: the one that it keeps for an administrator stays free."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from headrace.host.activity import summed
from headrace.host.samples import Samples
from tests.programs import agent_path
from tests.servers import Server, mariadb, open_folder

MOST = 10
SECONDS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_folder() as folder, mariadb(folder / "a", f"--max-connections={MOST}") as server:
        server.sql(
            "CREATE USER app@localhost IDENTIFIED BY ''",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)",
            "INSERT INTO shop.t VALUES (1, 0)",
            "GRANT ALL ON shop.* TO app@localhost",
        )
        yield server


def connected(server: Server, user: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    return pymysql.connect(unix_socket=server.socket, user=user, ssl_disabled=True)


def test_an_administrator_gets_in_while_the_server_is_examined(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl.zst"
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    words = ["--interval", "1s", "--duration", f"{SECONDS}s", "--samplers", "mysql_status"]
    looking = ["statements", "--every", "1s", "--duration", f"{SECONDS}s", *login]
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(contextlib.closing(connected(server, "app")))
        with pytest.raises(pymysql.err.OperationalError):
            connected(server, "app")
        watching = []
        for each in (["sample", "--output", str(file), *words, *login], looking):
            argv = [agent_path(), *each]
            watching.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        got_in, tried = 0, 0
        end = time.monotonic() + SECONDS - 1
        while time.monotonic() < end:
            tried += 1
            with contextlib.suppress(pymysql.err.OperationalError):
                connected(server, "root").close()
                got_in += 1
            time.sleep(0.05)
        looks = [process.communicate()[0] for process in watching][1]
    assert tried >= 10
    assert got_in >= 0.5 * tried, "a connection was kept"
    sampled = [row for row in Samples.read(file).rows() if row[1:3] == ("mysql_status", "threads_connected")]
    assert len(sampled) >= 2, "it was sampled none the less"
    assert summed(map(json.loads, looks.splitlines())).looks >= 1


def test_the_oldest_transaction_is_named_though_nobody_waits(server: Server) -> None:
    with contextlib.closing(connected(server, "app")) as open_one:
        with open_one.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SELECT n FROM shop.t")
            cursor.execute("SELECT CONNECTION_ID()")
            [(number,)] = cursor.fetchall()
        time.sleep(10.5)
        login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
        words = ["statements", "--every", "500ms", "--duration", "1s", *login]
        done = subprocess.run([agent_path(), *words], capture_output=True, text=True, check=True)
    found = summed(map(json.loads, done.stdout.splitlines()))
    assert found.oldest is not None
    assert (found.oldest.holder, found.oldest.holder_user) == (number, "app")
    assert found.oldest.holder_open_s >= 10
    assert found.waits == ()
    assert Path(server.socket).exists()
