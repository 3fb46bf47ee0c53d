"""`headrace digest memcached`: what its page says of a capture, and of one that holds nothing of memcached."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import headrace

Said = tuple[str, bytes]
CLIENT, SERVER = ("10.0.0.7", 40_000), ("10.0.0.1", 11_211)


def packet(
    time_us: int, source: tuple[str, int], target: tuple[str, int], numbers: tuple[int, int], data: bytes
) -> bytes:
    def address(end: tuple[str, int]) -> bytes:
        return bytes(map(int, end[0].split(".")))

    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], *numbers, 5 << 4, 0x18, 1 << 15, 0, 0) + data
    head = (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + address(source) + address(target)
    )
    whole = head + tcp
    return struct.pack("<IIII", 1_790_000_000, time_us, len(whole), len(whole)) + whole


def capture(path: Path, talk: Sequence[Said]) -> str:
    """A pcap of IP packets, 100 µs apart, of a connection that began before."""
    sent = {"client": 1000, "server": 9000}
    found = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101)
    for number, (who, data) in enumerate(talk):
        other = "server" if who == "client" else "client"
        ends = (CLIENT, SERVER) if who == "client" else (SERVER, CLIENT)
        found += packet(100 * number, *ends, (sent[who], sent[other]), data)
        sent[who] += len(data)
    path.write_bytes(found)
    return str(path)


TALK = [
    ("client", b"get user:1 user:2 user:alice@example.org\r\n"),
    ("server", b"VALUE user:1 0 4\r\nsecr\r\nEND\r\n"),
    ("client", b"set carol:1 0 0 6\r\nsecret\r\n"),
    ("server", b"STORED\r\n"),
    ("client", b"delete user:1 noreply\r\nget user:1\r\n"),
    ("server", b"END\r\n"),
]


def test_the_page_is_narrow_and_shows_no_key_and_no_value(tmp_path: Path) -> None:
    pcap = capture(tmp_path / "a.pcap", TALK)
    said = headrace("digest", "memcached", pcap, env={"COLUMNS": "100"})
    assert said.returncode == 0, said.stderr
    assert max(map(len, said.stdout.splitlines())) <= 100
    for secret in ("alice", "carol", "secr", "user:1"):
        assert secret not in said.stdout
    assert "user:<n>" in said.stdout
    assert "user:<mail>" in said.stdout
    assert "100 µs" in said.stdout
    assert "1 connection that began before the capture" in said.stdout
    found: dict[str, Any] = json.loads(headrace("digest", "memcached", pcap, "--json", "--show-keys").stdout)
    get = next(each for each in found["classes"] if (each["command"], each["pattern"]) == ("get", "user:<n>"))
    assert (get["requests"], get["keys"], get["found"], get["missed"]) == (2, 3, 1, 2)
    assert found["hot_keys"]["keys"][0]["key"] == "user:1"
    assert found["keys_with_hidden_words"] == 1
    words = json.loads(headrace("digest", "memcached", pcap, "--json", "--key-words", "carol").stdout)
    assert "carol:<n>" in {each["pattern"] for each in words["classes"]}


@pytest.mark.parametrize("of", ["binary", "mysql"])
def test_what_is_not_read_is_named_and_fails(tmp_path: Path, of: str) -> None:
    binary = b"\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01" + bytes(12) + b"k"
    pcap = capture(tmp_path / "a.pcap", [("client", binary)] if of == "binary" else TALK)
    if of == "binary":
        said = headrace("digest", "memcached", pcap)
        assert said.returncode != 0
        assert "1 memcached's binary protocol" in said.stdout + said.stderr
    else:
        # And who reads it as MySQL is told what reads it.
        for port in ([], ["--port", "11211"]):
            said = headrace("digest", pcap, *port)
            assert "headrace digest memcached" in said.stdout + said.stderr
    log = tmp_path / "slow.log"
    log.write_text(
        "# Time: 2026-11-21T10:00:00.000001Z\n# User@Host: a[a] @ b []\n# Query_time: 1\nselect 1;\n"
    )
    said = headrace("digest", "memcached", str(log))
    assert said.returncode != 0
    assert "is a slow log (slowlog), and no capture" in said.stderr
