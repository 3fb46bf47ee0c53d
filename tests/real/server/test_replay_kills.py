"""A replayed KILL ends its victim's replay, never another session."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import servers
from tests.proxies import proxy
from tests.replays import Said, play, slow_log
from tests.replays import record as recorded_from
from tests.servers import Server, open_folder

SETUP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO shop.item VALUES (1, 'one')",
    "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'secret'",
    "GRANT ALL ON shop.* TO app@'127.0.0.1'",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        (path / "password").write_text("secret\n")
        yield path


@pytest.fixture
def both(folder: Path) -> Iterator[tuple[Server, Server]]:
    """The recorded server, and the one that it is replayed on."""
    with servers.mariadb(folder / "a") as one, servers.mariadb(folder / "b") as other:
        for each in (one, other):
            each.sql(*SETUP)
        yield one, other


def connected(port: int) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1", port=port, user="app", password="secret", database="shop", ssl_disabled=True
    )


def ended(connection: pymysql.Connection[Any], statement: str) -> None:
    """Run a statement that somebody else ends."""
    with contextlib.suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
        cursor.execute(statement)


def record(server: Server, recording: Path) -> list[int]:
    """A timeout as Connector/J does it (a second connection, and KILL QUERY), a connection that is ended, other
    spellings. The numbers of connections that were named.
    """
    to = ("--server", f"127.0.0.1:{server.port}", "--no-tls", "--with-literals", "--checksums")
    with (
        proxy(recording.parent, *to, "-o", recording, lines=False) as middle,
        contextlib.ExitStack() as stack,
    ):
        ports = [middle.port] * 3 + [server.port]
        timed_out, closed, killer, stranger = (
            stack.enter_context(contextlib.closing(connected(port))) for port in ports
        )
        sleeps = [
            threading.Thread(target=ended, args=(timed_out, "SELECT SLEEP(20)")),
            threading.Thread(target=ended, args=(closed, "SELECT SLEEP(21)")),
        ]
        for sleep in sleeps:
            sleep.start()
        time.sleep(0.5)
        named = [each.thread_id() for each in (timed_out, closed, stranger)]
        for text in (
            f"KILL QUERY {named[0]}",
            f"kill/**/{named[1]}",
            f"/*!50000 KILL QUERY {named[2]}*/",
            f"PREPARE s FROM 'KILL {named[2]}'",
            f"KILL {named[2]}",
            "SELECT CONNECTION_ID()",
        ):
            killer.query(text)
        for sleep in sleeps:
            sleep.join()
        with timed_out.cursor() as cursor:
            cursor.execute("SELECT name FROM item WHERE id = 1")
    return named


def test_a_kill_ends_who_plays_its_victim_and_no_stranger(both: tuple[Server, Server], folder: Path) -> None:
    recorded, other = both
    recording = folder / "kills.rec"
    named = record(recorded, recording)
    command = [sys.executable, "-m", "headrace", "replay", str(recording), "--check", "--json"]
    command += ["--mysql-host", "127.0.0.1", "--mysql-port", str(other.port)]
    command += ["--mysql-user", "app", "--mysql-password-file", str(folder / "password")]
    # Here, every recorded number is that of a connection which has nothing to do with it.
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(contextlib.closing(connected(other.port)))]
        while strangers[-1].thread_id() < max(named):
            strangers.append(stack.enter_context(contextlib.closing(connected(other.port))))
        assert set(named) <= {each.thread_id() for each in strangers}
        began = time.monotonic()
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        took_s = time.monotonic() - began
        for each in strangers:
            each.ping(reconnect=False)
    found = json.loads(done.stdout)
    replay, comparison = found["end"]["replay"], found["end"]["comparison"]
    assert (replay["kills"]["sent"], replay["sessions_killed"], replay["sessions_broken"]) == (2, 1, 0)
    assert {name: number for name, number in replay["kills"]["reasons"].items() if number} == {
        "not_open": 1,
        "among": 2,
    }
    assert any(warning.startswith("3 KILL statements") for warning in found["end"]["warnings"])
    assert (comparison["different"], comparison["interrupted"], comparison["own_number"]) == (0, 0, 1)
    assert (replay["unanswered"], found["end"]["errors"], found["end"]["connections_lost"]) == (0, [], 0)
    # A sleep that nobody ends takes 20 s.
    assert took_s < 18
    # Said before the start.
    assert found["needs"]["busiest_ops_s"] >= 1
    assert found["needs"]["shares_with_server"] is True
    assert "headrace needs about" in " ".join(done.stderr.split())


def test_a_kill_waits_for_a_late_target(both: tuple[Server, Server], folder: Path) -> None:
    """The statement before takes longer than when it was recorded: the KILL is due before its target starts."""
    _, other = both
    said = [
        Said(1, 0.0, 0.1, "SELECT SLEEP(1.2)"),
        Said(1, 0.2, 0.3, "SELECT SLEEP(20)"),
        Said(2, 0.3, 0.001, "KILL QUERY 1"),
        Said(2, 0.6, 0.001, "SELECT 1"),
    ]
    recording = recorded_from(slow_log(folder / "slow.log", said), folder / "slow.rec")
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(other.port), "--mysql-user", "app"]
    played = play([*login, "--mysql-password-file", str(folder / "password")], recording)
    assert (played.end["replay"]["kills"]["sent"], played.end["replay"]["kills"]["left_out"]) == (1, 0)
    assert played.counts["select"] == 3
    assert played.length_s < 15
