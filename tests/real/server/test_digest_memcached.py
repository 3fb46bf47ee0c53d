"""`headrace digest memcached` on packets of a real memcached: it counts what the server and the driver count."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.commands import headrace
from tests.driver import drive, driven
from tests.real.server.test_drive_memcached import another, spec
from tests.replays import captured

pytestmark = pytest.mark.needs("memcached", "tcpdump")

KEYS = 2000
#: The server's counters of hits and misses -> the commands that it counts there. It takes gat for a touch alone.
COUNTERS = {
    "get": ("get", "gets", "mg"),
    "delete": ("delete", "md"),
    "incr": ("incr", "ma"),
    "touch": ("touch", "gat"),
    "cas": ("cas",),
}


def by_hand(port: int) -> None:
    """Every command, of both protocols: in pieces, ahead of answers, with values that look like requests."""
    value = b"get user:1\r\nEND\r\nSTORED\r\n"
    length = len(value)
    talks = [
        b"".join(b"set user:%d 0 0 %d\r\n%s\r\n" % (n, length, value) for n in range(50)) + b"version\r\n",
        b"get " + b" ".join(b"user:%d" % n for n in range(100)) + b"\r\ngets user:1 user:2\r\nversion\r\n",
        b"delete user:1\r\ndelete user:1\r\ncas user:2 0 0 1 1\r\nx\r\ntouch user:3 0\r\n"
        b"gat 0 user:3\r\nversion\r\n",
        b"set count:1 0 0 1\r\n5\r\nincr count:1 2\r\nincr count:2 1\r\nma count:1 v\r\nma count:1 q\r\nmn\r\n",
        b"set user:90 0 0 2 noreply\r\nxx\r\ndelete user:91 noreply\r\nget user:90\r\nbogus\r\nversion\r\n",
        b"ms s:1 2 T0\r\nxx\r\nms s:2 2 q\r\nxx\r\nmg s:1 v k O1 q\r\nmg s:9 v k O2 q\r\nmg s:2 t\r\n"
        b"md s:1 q\r\nmn\r\n",
        b"set big 0 0 2000000\r\n" + b"x" * 2_000_000 + b"\r\nset bad 0 0 -1\r\nxx\r\nversion\r\n",
    ]
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        answers = connection.makefile("rb")
        for number, talk in enumerate(talks):
            step = 1000 if number < 6 else len(talk)
            for at in range(0, len(talk), step):
                connection.sendall(talk[at : at + step])
            last = b"MN" if talk.endswith(b"mn\r\n") else b"VERSION"
            while not answers.readline().startswith(last):
                pass


def summed(found: dict[str, Any], commands: tuple[str, ...], fate: str) -> int:
    return sum(each[fate] for each in found["classes"] if each["command"] in commands)


def test_it_counts_what_server_and_driver_count(folder: Path) -> None:
    pcap = folder / "cache.pcap"
    with another("-m", "64") as cache:
        drive([], spec(cache.address, workload={"keys": KEYS // 2}), verb="load")
        before = cache.stats()
        with captured(cache.port, pcap):
            run = driven([], spec(cache.address, workload={"distribution": {"kind": "hot", "keys": 0.001}}))
            by_hand(cache.port)
            after = cache.stats()
    port = ["--port", str(cache.port)]
    found = json.loads(headrace("digest", "memcached", str(pcap), *port, "--json").stdout)

    of = found["coverage"]
    lost = ("damaged", "unanswered", "skipped_bytes", "gaps", "dropped_packets", "midstream_sessions")
    assert {name: of[name] for name in lost if of[name]} == {}
    grown = {name: after[name] - before[name] for name in before}
    for counter, commands in COUNTERS.items():
        hits, misses, silent = (summed(found, commands, fate) for fate in ("found", "missed", "silent"))
        # Of a request that nobody answers only the server knows whether the key was there.
        assert hits <= grown[f"{counter}_hits"] <= hits + silent, counter
        assert hits + misses + silent == grown[f"{counter}_hits"] + grown[f"{counter}_misses"], counter
    assert summed(found, ("get", "mg"), "silent") == 0
    assert summed(found, ("cas",), "refused") == grown["cas_badval"] == 1
    stored = ("set", "ms")
    assert summed(found, stored, "found") + summed(found, stored, "silent") == grown["total_items"]
    assert summed(found, stored, "failed") == 2
    driver = {each["command"]: each for each in found["classes"] if each["pattern"].startswith("hr:")}
    for command in ("get", "set"):
        each = driver[command]
        assert each["requests"] == each["keys"] == run.sum("count", command)
        assert each["response_bytes"] == run.sum("bytes", command)
        assert each["latency_ns"]["count"] == each["requests"]
        assert 0 < each["latency_ns"]["p50"] <= each["latency_ns"]["p99"] <= each["latency_ns"]["max"]
        assert each["value_bytes"]["p50"] == each["value_bytes"]["max"] == 100
    assert driver["get"]["found"] == run.sum("rows", "get")
    # Every byte is some request's. The server has not counted its last answer yet, but that to our first look.
    assert sum(each["request_bytes"] for each in found["classes"]) == grown["bytes_read"]
    assert 0 <= sum(each["response_bytes"] for each in found["classes"]) - grown["bytes_written"] < 100

    hot = found["hot_keys"]["keys"]
    assert len(hot) == 2
    assert all(each["share_most"] - each["share_least"] <= 0.001 for each in hot)
    assert not any(each["key"] for each in hot)
    text = headrace("digest", "memcached", str(pcap), *port, env={"COLUMNS": "100"}).stdout
    assert max(map(len, text.splitlines())) <= 100
    foreign = headrace("digest", str(pcap), *port)
    assert "headrace digest memcached" in foreign.stdout + foreign.stderr
