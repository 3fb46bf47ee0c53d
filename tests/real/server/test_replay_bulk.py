"""Rows in bulk (MariaDB's COM_STMT_BULK_EXECUTE): one event each in every source, and replayed as what it was."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.connector_c import Connection, library
from tests.programs import agent_path
from tests.proxies import proxy
from tests.replays import captured, play, record
from tests.servers import Server, open_folder

pytestmark = pytest.mark.needs("tcpdump")

SETUP = (
    "CREATE OR REPLACE DATABASE shop",
    "CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40))",
    "CREATE USER IF NOT EXISTS app@'127.0.0.1' IDENTIFIED BY 'secret'",
    "GRANT ALL ON shop.* TO app@'127.0.0.1'",
)
ROWS = [(number, f"item {number}" if number % 3 else None) for number in range(100)]


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        (path / "password").write_text("secret\n")
        yield path


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "s") as running:
        running.sql(*SETUP)
        yield running


def content(server: Server) -> list[tuple[object, ...]]:
    return server.sql("SELECT id, name FROM shop.item ORDER BY id")


def said_of(recording: Path) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Events by command; calls and affected rows by class."""
    argv = [agent_path(), "recording", "info", str(recording)]
    info = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    argv = [agent_path(), "digest", str(recording)]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    classes = [line for line in map(json.loads, lines) if line["type"] == "class"]
    return info["commands"], {
        line["fingerprint"]: (line["count"], line["rows_affected"]["sum"])
        for line in classes
        if line["verb"] != "administrator"
    }


def test_rows_in_bulk_are_replayed_as_such(server: Server, folder: Path) -> None:
    connector = library()
    if connector is None:
        pytest.skip("libmariadb is not installed")
    pcap, proxied = folder / "bulk.pcap", folder / "proxied.rec"
    to = ("--server", f"127.0.0.1:{server.port}", "--no-tls", "--with-literals", "--checksums")
    with captured(server.port, pcap), proxy(folder, *to, "-o", proxied, lines=False) as middle:
        client = Connection(connector, middle.port, "app", "secret", "shop")
        with contextlib.closing(client):
            assert client.bulk("INSERT INTO item VALUES (?, ?)", ROWS) == len(ROWS)
            # Executed again, it does not tell its types again.
            named = [(f"again {number}", number) for number in range(0, 60, 2)]
            client.bulk("UPDATE item SET name = CONCAT(?, 'x') WHERE id = ?", named, times=2)
    expected = content(server)
    assert len(expected) == len(ROWS)
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "app"]
    login += ["--mysql-password-file", str(folder / "password")]
    for recording in (proxied, record(pcap, folder / "captured.rec", "--port", str(server.port))):
        commands, classes = said_of(recording)
        assert commands["BulkExecute"] == 3
        assert "Execute" not in commands
        assert classes == {
            "insert into item values (?+)": (1, 100),
            "update item set name = concat(?+) where id = ?": (2, 30),
        }
        server.sql(*SETUP)
        played = play(login, recording, "--check")
        assert played.end["comparison"]["different"] == 0, played.classes
        assert played.end["comparison"]["compared"] >= 3
        assert content(server) == expected
