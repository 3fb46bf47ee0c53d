"""Causes planted beside a real server: the verdict's sentence names them, and who uses what is short."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import programs
from tests.loads import load, spec
from tests.real.server.test_planted_rules import found_by, hunt
from tests.servers import Server, mariadb

SECRET = "hunter2-and-more"
#: Work of others on this machine may hide a cause for a while.
TRIES = 3
HEADRACE = Path(sys.executable).parent / "headrace"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as running:
        running.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, k INT, note VARCHAR(40))",
            f"INSERT INTO shop.orders SELECT seq, seq, '{SECRET}' FROM seq_1_to_20000",
        )
        yield running


def hunt_until(server: Server, folder: Path, is_found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "HEADRACE_AGENT": programs.agent_path()}
    page = folder / "page.html"
    for _ in range(TRIES):
        done = subprocess.run(
            [HEADRACE, "hunt", "--duration", "8s", "--json", "--html", page, "--mysql-socket", server.socket],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env=environment,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        assert SECRET not in done.stdout
        assert SECRET not in page.read_text()
        if is_found(found):
            break
    return found


@contextlib.contextmanager
def sessions(server: Server, count: int, *statements: str, pause_s: float = 0.0) -> Iterator[None]:
    """Connections that execute these again and again, until the end."""
    stop = threading.Event()

    def work(connection: pymysql.Connection[Any]) -> None:
        with contextlib.suppress(pymysql.Error), connection.cursor() as cursor:
            while not stop.is_set():
                for statement in statements:
                    cursor.execute(statement)
                    cursor.fetchall()
                    if statement.startswith("UPDATE"):
                        stop.wait(pause_s)

    login = {"unix_socket": server.socket, "user": "root", "database": "shop", "ssl_disabled": True}
    opened = [pymysql.connect(**login, autocommit=True) for _ in range(count)]
    threads = [threading.Thread(target=work, args=(each,)) for each in opened]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        for each in opened:
            each.close()


@contextlib.contextmanager
def burning(folder: Path, name: str) -> Iterator[None]:
    """A program of this name on every CPU."""
    program = folder / name
    shutil.copy(shutil.which("sh") or "/bin/sh", program)
    count = os.cpu_count() or 1
    running = [subprocess.Popen([program, "-c", "while :; do :; done"]) for _ in range(count + 1)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


@pytest.mark.beside
def test_another_program_is_named_where_the_cpus_are_full(server: Server, tmp_path: Path) -> None:
    def is_found(found: dict[str, Any]) -> bool:
        """On a machine with other work the burner may not be the first of those that fill the CPUs."""
        cpu = next(use for use in found["resources"] if use["name"] == "cpu")
        named = any(user.startswith("burner (") for user in cpu["users"])
        return named and any(cause.startswith("HOST01@") for cause in found["causes"])

    with burning(tmp_path, "burner"), sessions(server, 1, "SELECT COUNT(*) FROM orders WHERE k = 7"):
        found = hunt_until(server, tmp_path, is_found)
    assert is_found(found), found["verdict"]
    assert "CPU time limits this host" in found["verdict"]


@pytest.mark.beside
def test_a_metadata_lock_names_its_holder_under_full_cpus(server: Server, tmp_path: Path) -> None:
    login = {"unix_socket": server.socket, "user": "root", "database": "shop", "ssl_disabled": True}
    with contextlib.closing(pymysql.connect(**login)) as holder, burning(tmp_path, "burner"):
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT * FROM orders WHERE id = 7 AND note <> '{SECRET}'")
        altering = sessions(server, 1, "ALTER TABLE orders COMMENT = 'x'")
        reading = sessions(server, 4, f"SELECT * FROM orders WHERE id = 8 AND note <> '{SECRET}'")
        with altering:
            # The readers queue behind it.
            while not server.sql(
                "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE '%metadata%'"
            ):
                pass
            with reading:
                try:
                    found = hunt_until(server, tmp_path, lambda found: "LOCK04" in found["causes"])
                finally:
                    # Else nobody of them would ever end.
                    holder.rollback()
    assert found["causes"][:1] == ["LOCK04"]
    assert f"held by connection {holder.thread_id()} of root@localhost" in found["verdict"]
    finding = next(each for each in found["findings"] if each["id"] == "LOCK04")
    assert f"KILL {holder.thread_id()}" in finding["remedies"][0]["steps"][0]


def test_a_hot_row_is_the_first_thing_that_is_said(server: Server, tmp_path: Path) -> None:
    hot = ("BEGIN", "UPDATE orders SET k = k + 1 WHERE id = 9", "COMMIT")
    with sessions(server, 8, *hot, pause_s=0.02):
        found = hunt_until(server, tmp_path, lambda found: "LOCK02" in found["causes"])
    assert found["causes"][:1] == ["LOCK02"]
    assert "sessions wait for a row" in found["verdict"].split(";")[0]
    finding = next(each for each in found["findings"] if each["id"] == "LOCK02")
    assert any(name == "waiting for shop.orders" for name in finding["evidence"])


@pytest.mark.beside
def test_scans_are_named_without_performance_schema(server: Server, tmp_path: Path) -> None:
    scan = f"SELECT COUNT(*) FROM orders WHERE note LIKE '%{SECRET}' AND k > 5"
    with sessions(server, 4, scan):
        found = hunt_until(server, tmp_path, lambda found: "select count(*) from orders" in found["verdict"])
    assert "select count(*) from orders where note like ? and k > ?" in found["verdict"]


@pytest.mark.needs("root", "two CPUs")
def test_a_server_that_may_use_one_cpu_of_two(server: Server) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    search = {"sql": "SELECT SQL_NO_CACHE COUNT(*) FROM orders a JOIN orders b ON a.k < b.id"}
    subprocess.run(["taskset", "-apc", str(cpus[0]), str(server.pid)], check=True, capture_output=True)
    try:
        with load(server, spec(4, search)):
            found = hunt(server)
    finally:
        every = f"{cpus[0]}-{cpus[-1]}"
        subprocess.run(["taskset", "-apc", every, str(server.pid)], check=True, capture_output=True)
    if any(rule.code == "CPU12" for rule in found.judgement.silent):
        pytest.skip("the other CPU was busy too")
    assert "may use 1 of" in found_by(found, "CPU12").hit.summary
