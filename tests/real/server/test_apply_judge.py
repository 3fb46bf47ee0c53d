"""Any change on one running host, tried in turns under its own load: kept if it is better, else taken back."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tests.commands import headrace
from tests.servers import Server, started

TURNS = ["--judge", "--duration", "2s", "--warmup", "0.4s", "--blocks", "3", "--json"]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with started("mariadb", folder / "one") as running:
        running.sql(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT shop.t VALUES (1)"
        )
        yield running


@contextlib.contextmanager
def clients(server: Server) -> Iterator[None]:
    """A closed load whose speed is a setting."""
    ended = threading.Event()

    def one() -> None:
        with (
            contextlib.closing(
                pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True, autocommit=True)
            ) as connection,
            connection.cursor() as cursor,
        ):
            while not ended.is_set():
                cursor.execute("SELECT SLEEP(@@GLOBAL.innodb_io_capacity / 100000)")
                cursor.fetchall()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_better_is_kept_and_worse_is_taken_back(server: Server, tmp_path: Path) -> None:
    server.sql("SET GLOBAL innodb_io_capacity = 1000")
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    env = {"HEADRACE_STATE": str(tmp_path / "state")}
    with clients(server):
        words = ["apply", "server.innodb_io_capacity=100", *TURNS, *login]
        done = headrace(*words, "--output", str(tmp_path / "better"), env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["steps"][0]["effect"]["verdict"] == "better"
        assert found["id"]
        assert server.sql("SELECT @@GLOBAL.innodb_io_capacity") == [(100,)]
        words[1] = "server.innodb_io_capacity=2000"
        done = headrace(*words, "--output", str(tmp_path / "worse"), env=env)
        assert done.returncode == 13, done.stdout + done.stderr
        assert json.loads(done.stdout)["id"] is None
        assert server.sql("SELECT @@GLOBAL.innodb_io_capacity") == [(100,)]
    # What could not be proved counts as refused, and `--last` is not about what was before that.
    done = headrace("rollback", "--id", found["id"], env=env)
    assert done.returncode == 0, done.stderr
    assert server.sql("SELECT @@GLOBAL.innodb_io_capacity") == [(1000,)]


def test_what_sessions_keep_is_a_caution(server: Server, tmp_path: Path) -> None:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    env = {"HEADRACE_STATE": str(tmp_path / "state")}
    words = ["apply", "server.long_query_time=0.5", *TURNS]
    done = headrace(*words, "--output", str(tmp_path / "proof"), *login, env=env)
    (caution,) = json.loads(done.stdout)["cautions"]
    assert "connections that exist keep the old value" in caution


def test_what_apply_refuses_is_not_tried(server: Server, tmp_path: Path) -> None:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    for setting, code in (
        ("server.innodb_flush_log_at_trx_commit=2", 5),
        ("server.innodb_flush_method=fsync", 5),
        ("server.binlog_expire_logs_seconds=1", 5),
        ("server.innodb_sort_buffer_size=1G", 3),
    ):
        done = headrace("apply", setting, *TURNS, *login, "--output", str(tmp_path / "none"))
        assert done.returncode == code, done.stderr
        assert not (tmp_path / "none").exists()
