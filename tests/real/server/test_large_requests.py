"""Requests larger than a packet of 16 MiB: through the proxy and off an interface, recorded, and replayed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import servers
from tests.programs import agent_path
from tests.proxies import proxy
from tests.replays import TCPDUMP_S, play
from tests.servers import Server
from tests.waiting import until

MIB = 1 << 20
FULL = (1 << 24) - 1
#: Of the payload, with its command byte: around one packet, around two, and in between.
SIZES = (15 * MIB, FULL, FULL + 1, 17 * MIB, 33 * MIB)
#: A busy machine may keep the recorder from its core until the kernel has no room for packets.
ATTEMPTS = 5


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


def framed(text: str) -> tuple[bytes, int]:
    """A query as it is sent, and the number of its packets."""
    payload = b"\x03" + text.encode()
    parts = [payload[at : at + FULL] for at in range(0, len(payload) + 1, FULL)]
    return b"".join(
        len(part).to_bytes(3, "little") + bytes([number]) + part for number, part in enumerate(parts)
    ), len(parts)


def send(server: Server, requests: list[tuple[bytes, int]]) -> None:
    """Each in one system call: at the speed of memory, as fast clients do."""
    where = ("127.0.0.1", server.port, "app")
    with contextlib.closing(
        pymysql.connect(host=where[0], port=where[1], user=where[2], ssl_disabled=True)
    ) as connection:
        for data, packets in requests:
            connection._sock.sendall(data)
            connection._next_seq_id = packets
            connection._read_query_result()


def captures(pid: int) -> bool:
    """Whether the packet socket of a process gets packets already."""
    with contextlib.suppress(FileNotFoundError):
        sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
        lines = [line.split() for line in Path("/proc/net/packet").read_text().splitlines()[1:]]
        return any(line[5] == "1" and f"socket:[{line[8]}]" in sockets for line in lines)
    return False


def recorded(server: Server, to: Path, requests: list[tuple[bytes, int]]) -> tuple[int, dict[str, Any]]:
    """What a recording off the interface says about itself, and how many bytes its large requests have."""
    argv = [agent_path(), "record", "--interface", "lo", "--port", str(server.port), "--with-literals"]
    argv += ["--max-cpu", "1000", "--force", "-o", str(to)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: captures(process.pid), process)
        send(server, requests)
        time.sleep(TCPDUMP_S)
    finally:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=100)
    coverage: dict[str, Any] = json.loads(out)["totals"]["coverage"]
    # With too many packets lost, a recording ends by itself.
    assert process.returncode == 0 or coverage["dropped_packets"], error
    digest = [agent_path(), "digest", str(to), "--format", "lines"]
    done = subprocess.run(digest, check=True, capture_output=True, text=True, timeout=100)
    classes = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "class"]
    large = [line for line in classes if line["fingerprint"] == "select ? as size, md5(?)"]
    return sum(line["request_bytes"]["sum"] for line in large if not line["unanswered"]), coverage


@pytest.mark.needs("root")
def test_those_of_a_fast_client_are_captured_whole(server: Server, tmp_path: Path) -> None:
    requests = [framed(of_length(length)) for length in SIZES]
    sent = sum(len(data) for data, _ in requests)
    for _ in range(ATTEMPTS):
        found, coverage = recorded(server, tmp_path / "live.rec", requests)
        if not coverage["dropped_packets"]:
            break
    assert (found, coverage["dropped_packets"], coverage["gaps"], coverage["damaged"]) == (sent, 0, 0, 0)
