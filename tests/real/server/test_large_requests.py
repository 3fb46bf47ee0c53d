"""Requests larger than a packet of 16 MiB: through the proxy, recorded, and replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tests import servers
from tests.proxies import proxy
from tests.replays import play
from tests.servers import Server

MIB = 1 << 20
FULL = (1 << 24) - 1
#: Of the payload, with its command byte: around one packet, around two, and in between.
SIZES = (15 * MIB, FULL, FULL + 1, 17 * MIB, 33 * MIB)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "s", "--max-allowed-packet=64M") as running:
        running.sql(
            "CREATE USER app@'127.0.0.1'", "CREATE DATABASE shop", "GRANT ALL ON shop.* TO app@'127.0.0.1'"
        )
        yield running


def of_length(length: int) -> str:
    frame = f"SELECT {length} AS size, MD5('')"
    return frame.replace("''", "'" + "x" * (length - 1 - len(frame)) + "'")


def login(server: Server) -> list[str]:
    return ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "app"]


@pytest.fixture(scope="module")
def recording(server: Server, folder: Path) -> Path:
    path = folder / "proxied.rec"
    to = ("--server", f"127.0.0.1:{server.port}", "--no-tls", "--with-literals", "-o", path)
    # Requests wait in the proxy for a decoder that is not optimised.
    room = ("--queue-mib", "512")
    with (
        proxy(folder, *to, *room, lines=False) as middle,
        contextlib.closing(
            pymysql.connect(host="127.0.0.1", port=middle.port, user="app", ssl_disabled=True)
        ) as connection,
        connection.cursor() as cursor,
    ):
        for length in SIZES:
            cursor.execute(of_length(length))
            assert cursor.fetchall()[0][0] == length
        cursor.execute("SELECT 'the last'")
    coverage = middle.summary["coverage"]
    assert coverage["damaged"] == coverage["gaps"] == 0
    return path


def test_they_are_recorded_and_replayed(server: Server, recording: Path) -> None:
    played = play(login(server), recording, "--check", "--memory", "400MB")
    assert played.end["errors"] == []
    assert played.end["replay"]["sessions_broken"] == 0
    assert played.counts["select"] == len(SIZES) + 1
    assert played.end["comparison"]["different"] == 0


def test_what_the_server_does_not_take_is_not_sent_and_said(folder: Path, recording: Path) -> None:
    with servers.mariadb(folder / "small", "--max-allowed-packet=16M") as small:
        small.sql("CREATE USER app@'127.0.0.1'")
        played = play(login(small), recording, "--check", "--memory", "400MB")
    # The limit itself is refused, too.
    too_long = sum(length >= 16 * MIB for length in SIZES)
    assert played.end["replay"]["skipped"]["too_long"] == too_long == played.end["comparison"]["different"]
    assert played.end["replay"]["sessions_broken"] == 0
    assert any("max_allowed_packet" in warning for warning in played.end["warnings"])
    assert played.counts["select"] == len(SIZES) + 1 - too_long
