"""The script for hosts where nothing may be installed, beside a real server under load, in every shell here."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from headrace.hunt import hunt as hunts
from headrace.hunt.report.page import page_of
from tests.folders import ROOT
from tests.memory_group import cpu_group
from tests.servers import Server, mariadb

SCRIPT = ROOT / "src" / "headrace" / "hunt" / "dumps" / "collect.sh"
SECRET = "hunter2"
#: Statements that take a while, each with the secret in another place.
STATEMENTS = (
    f"SELECT SLEEP(60), '{SECRET}'",
    f"SELECT SLEEP(60), 'it\\'s {SECRET}'",
    f"SELECT SLEEP(60), 'it''s {SECRET}'",
    f'SELECT SLEEP(60), "say ""{SECRET}"""',
    f"SELECT SLEEP(60) /* {SECRET} */",
    f"SELECT SLEEP(60),\n '\n{SECRET}\t{SECRET}'",
    f"SELECT SLEEP(60), 0x{SECRET.encode().hex()}, 4111111111111111",
)


@pytest.fixture(scope="module")
def busy(folder: Path) -> Iterator[Server]:
    """With sessions that execute ``STATEMENTS``, and one in a transaction with the secret in its row."""
    with (
        mariadb(folder / "server", f"--init-connect=SET @secret = '{SECRET}'") as server,
        contextlib.ExitStack() as all_of,
    ):
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, c TEXT)")
        for statement in STATEMENTS:
            connection = pymysql.connect(unix_socket=server.socket, user="root")

            def execute(connection: pymysql.Connection = connection, statement: str = statement) -> None:
                with contextlib.suppress(pymysql.Error), connection.cursor() as cursor:
                    cursor.execute(statement)

            thread = threading.Thread(target=execute)
            thread.start()
            all_of.callback(thread.join)
            all_of.callback(server.sql, f"KILL {connection.thread_id()}")
        holder = all_of.enter_context(
            contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root"))
        )
        holder.cursor().execute(f"INSERT INTO d.t VALUES (1, '{SECRET}')")
        yield server


@pytest.mark.parametrize(
    "shell", ["dash", pytest.param("bash --posix", marks=pytest.mark.thorough), "busybox sh"]
)
def test_what_it_writes_is_a_hunt_and_has_no_secret(shell: str, busy: Server, tmp_path: Path) -> None:
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"{shell} is not installed")
    words = [*shell.split(), str(SCRIPT), "-s", "3", "-o", "saved", "--user=root", f"--socket={busy.socket}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "saved").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content, path
            assert SECRET.encode().hex().encode() not in content, path
            assert b"411111" not in content, path
    snapshot = hunts.saved(tmp_path / "saved")
    found = hunts.examine(snapshot)
    assert found.evidence.has_server
    assert found.evidence.status_rate("questions") > 0
    assert found.evidence.cores
    assert found.evidence.gauge("innodb_status", "active_transactions").last >= 1
    assert found.evidence.server_process["pid"] == busy.pid
    assert snapshot.activity is not None
    assert any("sleep" in each.text for each in snapshot.activity.classes)
    assert found.verdict.sentence
    assert snapshot.origin is not None
    assert snapshot.origin.missing == ()


def test_a_login_that_was_named_and_fails_ends_it_at_once(busy: Server, tmp_path: Path) -> None:
    words = ["sh", str(SCRIPT), "-s", "60", "-o", "saved", "--user=nobody-here", f"--socket={busy.socket}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    assert "Access denied" in done.stderr
    assert not (tmp_path / "saved").exists()


def test_without_a_login_the_host_alone_is_read_and_that_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".my.cnf").write_text("[client]\nsocket=/nonexistent/s.sock\nuser=nobody-here\n")
    done = subprocess.run(
        ["sh", str(SCRIPT), "-s", "2", "-o", "saved"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("the server does not let us in:\n")
    found = hunts.examine(hunts.saved(tmp_path / "saved"))
    assert found.evidence.cores
    assert page_of(found).verdicts[0].startswith("The server was not examined: ERROR 2002")


@pytest.mark.thorough
def test_a_quota_that_throttles_the_server_is_the_first_finding(folder: Path, tmp_path: Path) -> None:
    with cpu_group(20_000) as group, mariadb(folder / "throttled") as server:
        if isinstance(group, str):
            pytest.skip(group)
        (group / "cgroup.procs").write_text(str(server.pid))
        with contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root")) as connection:

            def burn() -> None:
                with contextlib.suppress(pymysql.Error):
                    connection.cursor().execute("SELECT BENCHMARK(100000000, SHA1('a'))")

            thread = threading.Thread(target=burn)
            thread.start()
            words = ["sh", str(SCRIPT), "-s", "4", "-o", "saved", "--user=root", f"--socket={server.socket}"]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
            server.sql(f"KILL {connection.thread_id()}")
            thread.join()
    assert done.returncode == 0, done.stderr
    found = hunts.examine(hunts.saved(tmp_path / "saved"))
    assert f"with a quota of 0.2 CPUs (CPU03@{group})" in found.verdict.sentence
