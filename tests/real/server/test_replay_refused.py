"""What a replay does on a server that refuses: it ends at once, with the server's own words first."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.programs import agent_path
from tests.replays import Said, parse, play, record, slow_log, start
from tests.servers import Server

SETUP = (
    "CREATE DATABASE shop",
    "CREATE DATABASE copy",
    "CREATE TABLE shop.item (id INT PRIMARY KEY)",
    "CREATE TABLE copy.item (id INT PRIMARY KEY)",
    "CREATE USER app@localhost IDENTIFIED BY 'secret'",
    "GRANT ALL ON shop.* TO app@localhost",
    "CREATE USER locked@localhost IDENTIFIED BY 'secret' ACCOUNT LOCK",
    "CREATE USER expired@localhost PASSWORD EXPIRE",
)
GONE = Said(1, 0.1, 0.01, "SELECT id FROM item", database="gone")
FINE = Said(2, 0.0, 0.01, "SELECT id FROM item")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "s") as running:
        running.sql(*SETUP)
        yield running


def root(server: Server) -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", "root"]


def recording(folder: Path, *said: Said) -> Path:
    return record(slow_log(folder / "slow.log", said), folder / "some.rec")


def refused(login: Sequence[str], path: Path, *options: str) -> tuple[str, str]:
    """What it printed, if it ended as refused, long before it would have tried again for 10 s."""
    began = time.monotonic()
    process = start(login, path, *options)
    out, words = process.communicate(timeout=60)
    assert process.returncode == 6, words
    assert time.monotonic() - began < 9, words
    return out, words


def command(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEADRACE_AGENT": agent_path()}
    argv = [sys.executable, "-m", "headrace", "replay", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_missing_database_is_found_before_anything_is_sent(server: Server, tmp_path: Path) -> None:
    path = recording(tmp_path, FINE, GONE)
    out, words = refused(root(server), path)
    assert out == ""
    assert words.startswith("headrace-agent: Unknown database 'gone' (server error 1049"), words
    assert "--database-map gone=NAME" in words
    done = command(str(path), *root(server))
    assert done.returncode == 6
    assert "Unknown database 'gone'" in done.stderr.splitlines()[0]
    # A mapping is the way out.
    played = play(root(server), path, "--database-map", "gone=copy")
    assert played.counts["select"] == 2
    assert played.end["refused"] is None
    assert not played.end["errors"]


def test_a_database_that_only_a_part_needs_ends_it_there(server: Server, tmp_path: Path) -> None:
    late = Said(1, 0.6, 0.01, "SELECT id FROM item", database="gone")
    never = Said(2, 3.0, 0.01, "SELECT 3")
    path = recording(tmp_path, FINE, late, never)
    out, words = refused(root(server), path, "--since", "+0s")
    end = parse(out).end
    assert end["refused"]["code"] == 1049
    assert end["invalid"][0].startswith("Unknown database 'gone'")
    assert "stopped before its end" not in end["invalid"]
    assert "Unknown database 'gone'" in words
    # It is before the part.
    assert play(root(server), path, "--until", "+400ms").counts == {"select": 1}


def test_a_use_that_fails_ends_it(server: Server, tmp_path: Path) -> None:
    """The session would delete in the database where it was."""
    path = recording(tmp_path, FINE, Said(2, 0.1, 0.01, "USE gone"), Said(2, 0.2, 0.01, "DELETE FROM item"))
    server.sql("INSERT INTO shop.item VALUES (1)")
    try:
        end = parse(refused(root(server), path)[0]).end
        assert (end["refused"]["code"], end["refused"]["database"]) == (1049, "gone")
        assert server.sql("SELECT COUNT(*) FROM shop.item") == [(1,)]
    finally:
        server.sql("DELETE FROM shop.item")


def test_an_account_that_may_log_in_and_ask_nothing_is_refused_with_what_to_do(
    server: Server, tmp_path: Path
) -> None:
    login = ["--mysql-socket", server.socket, "--mysql-user", "expired"]
    words = refused(login, recording(tmp_path, FINE))[1]
    assert "server error 1820" in words
    assert "so nothing was sent. Try: change the account's password first" in words


@pytest.mark.parametrize(("user", "code"), [("nobody", 1045), ("locked", 4151)])
def test_a_refused_login_ends_it(server: Server, tmp_path: Path, user: str, code: int) -> None:
    accounts = tmp_path / "map"
    accounts.write_text(f"[app]\nuser = {user}\npassword = secret\n")
    accounts.chmod(stat.S_IRUSR | stat.S_IWUSR)
    path = recording(tmp_path, FINE)
    _, words = refused(root(server), path, "--user-map", str(accounts))
    assert f"(server error {code}" in words.splitlines()[0]
    assert f"refused user {user}, so nothing was sent" in words


def test_a_database_that_the_account_may_not_use(server: Server, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    socket = server.socket
    login = [
        "--mysql-socket",
        socket,
        "--mysql-user",
        "app",
        "--mysql-password-file",
        str(tmp_path / "password"),
    ]
    _, words = refused(login, recording(tmp_path, FINE), "--database-map", "shop=copy")
    assert words.startswith("headrace-agent: Access denied for user 'app'@'localhost' to database 'copy'"), (
        words
    )


def test_what_always_fails_is_the_first_line(server: Server, tmp_path: Path) -> None:
    lost = [Said(3, n / 10, 0.01, f"SELECT * FROM lost WHERE id = {n}") for n in range(4)]
    done = command(str(recording(tmp_path, *lost)), *root(server))
    first = done.stdout.replace("\n", " ")
    assert first.startswith(
        "all 4 statements failed: 1146 Table 'shop.lost' doesn't exist; restore the data"
    ), first
    nowhere = [Said(3, n / 10, 0.01, "SELECT * FROM item", database="") for n in range(4)]
    path = recording(tmp_path, *nowhere)
    done = command(str(path), *root(server))
    first = done.stdout.replace("\n", " ")
    assert first.startswith("all 4 statements failed: 1046 No database selected;"), first
    assert "--mysql-database NAME" in first[:300]
    assert play(root(server), path, "--mysql-database", "shop").counts == {"select": 4}


def test_statements_that_name_a_mapped_database_are_not_sent(server: Server, tmp_path: Path) -> None:
    said = [
        FINE,
        Said(2, 0.1, 0.01, "INSERT INTO shop.item VALUES (7)"),
        Said(2, 0.2, 0.01, "INSERT INTO item VALUES (8)"),
    ]
    played = play(root(server), recording(tmp_path, *said), "--database-map", "shop=copy")
    skipped: dict[str, Any] = played.end["replay"]["skipped"]
    assert skipped["qualified"] == 1
    assert any("name a database of --database-map themselves" in words for words in played.end["warnings"])
    assert server.sql("SELECT id FROM shop.item") == []
    assert server.sql("SELECT id FROM copy.item") == [(8,)]
    assert json.dumps(played.end)


def test_temporary_tables_of_before_and_after_a_restart_do_not_collide(
    server: Server, tmp_path: Path
) -> None:
    make, read = "CREATE TEMPORARY TABLE t (a INT)", "INSERT INTO t VALUES (1)"
    first = slow_log(tmp_path / "1.log", [Said(8, 0.0, 0.01, make), Said(8, 0.1, 0.01, read)])
    second = slow_log(tmp_path / "2.log", [Said(8, 0.4, 0.01, make), Said(8, 0.5, 0.01, read)])
    whole = tmp_path / "slow.log"
    whole.write_text(first.read_text() + second.read_text())
    played = play(root(server), record(whole, tmp_path / "some.rec"))
    assert played.end["errors"] == []
    assert played.end["replay"]["sessions"] == 2
