"""Strangers have a budget per address; collection and those who are logged in have their own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import Busy
from headrace.web import app
from headrace.web.room import MOST, MOST_OF_ADDRESS, Room, few_words, raise_descriptors
from tests.history import site
from tests.served import on_loopback


class Visitor:
    def __init__(self, *, is_idle: bool = True) -> None:
        self.is_idle, self.is_gone = is_idle, False

    def leave(self) -> None:
        self.is_gone = True


def entered(room: Room, address: str, count: int, *, is_idle: bool = True) -> list[Visitor]:
    found = [Visitor(is_idle=is_idle) for _ in range(count)]
    for each in found:
        room.enter(each, address)
    return found


def left(found: list[Visitor]) -> int:
    return sum(not each.is_gone for each in found)


def test_an_address_has_a_budget_and_the_newest_gets_in() -> None:
    room = Room()
    found = entered(room, "a", 5000)
    assert left(found) == MOST_OF_ADDRESS
    assert not found[-1].is_gone
    other = entered(room, "b", 1)
    assert left(found) == MOST_OF_ADDRESS
    assert left(other) == 1


def test_all_addresses_have_a_budget_and_the_one_with_most_gives_way() -> None:
    room = Room()
    many = [entered(room, f"a{n}", MOST_OF_ADDRESS) for n in range(20)]
    one = entered(room, "mine", 1)
    assert room.strangers == MOST
    assert left(one) == 1
    assert sum(map(left, many)) == MOST - 1


def test_one_that_is_answered_goes_last() -> None:
    room = Room()
    busy = entered(room, "a", 3, is_idle=False)
    silent = entered(room, "a", 500)
    assert left(busy) == 3
    assert left(silent) == MOST_OF_ADDRESS - 3


def test_those_who_are_logged_in_do_not_give_way_to_strangers() -> None:
    room = Room()
    known = entered(room, "a", 10)
    for each in known:
        room.recognise(each, "a")
        room.recognise(each, "a")
    entered(room, "a", 5000)
    assert left(known) == 10
    mine = entered(room, "a", 2000)
    for each in mine:
        if not each.is_gone:
            room.recognise(each, "a")
    assert left(known) + left(mine) <= room.most_known
    for each in [*known, *mine]:
        room.forget(each, "a")
    room.forget(Visitor(), "nobody")
    assert len(room._known) == 0


def test_few_descriptors_leave_most_of_them_to_the_collection() -> None:
    room = Room(1024)
    entered(room, "a", 5000)
    entered(room, "b", 5000)
    assert room.strangers <= 1024 // 4
    assert room.most_known + room.most <= 1024 // 2


def test_more_descriptors_are_asked_for() -> None:
    script = (
        "import resource; _, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard));"
        "from headrace.web.room import raise_descriptors; print(raise_descriptors(), hard)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    now, hard = map(int, done.stdout.split())
    assert now == (min(hard, 65536) if hard > 0 else 65536)
    assert raise_descriptors() > 0


def test_a_flood_of_errors_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    handle = few_words(lambda: clock[0])
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR, "headrace.web"):
        for _ in range(10_000):
            handle(loop, {"message": "accept", "exception": OSError(24, "Too many open files")})
        assert len(caplog.records) == 1
        clock[0] = 61.0
        handle(loop, {"message": "accept", "exception": OSError(24, "Too many open files")})
    loop.close()
    assert len(caplog.records) == 2
    assert "9,999 more" in caplog.records[1].getMessage()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with on_loopback(app.application(site(tmp_path))) as (url, _):
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        yield parts.hostname, parts.port


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /login HTTP/1.1\r\nX: "])
def test_silent_connections_keep_nobody_out(address: tuple[str, int], sent: bytes) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(3 * MOST_OF_ADDRESS):
            client = held.enter_context(socket.create_connection(address, 10))
            with contextlib.suppress(OSError):
                client.sendall(sent)
        for _ in range(5):
            asked = http.client.HTTPConnection(*address, timeout=20)
            asked.request("GET", "/login")
            assert asked.getresponse().status == 200
            asked.close()


def test_a_flood_of_one_address_leaves_each_time_for_its_request() -> None:
    waiting = Room.of_waiting(65536)
    mine = entered(waiting, "a", 1)
    entered(waiting, "a", 3000)
    assert left(mine) == 1
    assert waiting.strangers <= 65536 // 8
    few = Room.of_waiting(1024)
    entered(few, "a", 3000)
    entered(few, "b", 3000)
    assert few.strangers <= 1024 // 8


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections of HTTP that are made."""
    found: list[object] = []

    class Counted(app._Connection):
        def __init__(self, *args: Any, **named: Any) -> None:
            found.append(self)
            super().__init__(*args, **named)

    monkeypatch.setattr(app, "_Connection", Counted)
    return found


HEAD = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_connection_costs_next_to_nothing_until_it_asks(
    made: list[object], address: tuple[str, int]
) -> None:
    with contextlib.ExitStack() as held:
        for sent in (b"", b"G", HEAD[:-1]) * 20:
            held.enter_context(socket.create_connection(address, 10)).sendall(sent)
        with socket.create_connection(address, 10) as client:
            client.sendall(HEAD)
            assert client.recv(12) == b"HTTP/1.1 200"
    assert len(made) == 1


@pytest.mark.parametrize(
    ("parts", "answers"),
    [
        ((HEAD,), 1),
        ((HEAD[:1], HEAD[1:-3], HEAD[-3:-2], HEAD[-2:]), 1),
        ((HEAD + HEAD,), 2),
        ((HEAD[:9], HEAD[9:] + HEAD[:9], HEAD[9:]), 2),
        ((HEAD.replace(b"\r\n", b"\n"),), 1),
        ((b"\x16\x03\x01\x02\x00\x01",), 0),
        ((b"\r\n\r\n",), 0),
        ((b"GET /login HTTP/1.1\r\n", b"X: " + b"x" * (65 << 10)), 0),
    ],
)
def test_a_request_is_read_whole_in_any_pieces(
    address: tuple[str, int], parts: tuple[bytes, ...], answers: int
) -> None:
    found = b""
    with socket.create_connection(address, 10) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(0.02)
        with contextlib.suppress(ConnectionResetError):
            while found.count(b"HTTP/1.1 ") < max(answers, 1) and (more := client.recv(1 << 16)):
                found += more
    assert found.count(b"HTTP/1.1 200") == answers, found[:300]
    assert answers or found.startswith(b"HTTP/1.1 400") or not found


def test_one_that_leaves_or_says_nothing_is_forgotten(address: tuple[str, int]) -> None:
    for sent in (b"", HEAD[:20]):
        with socket.create_connection(address, 10) as client:
            client.sendall(sent)
    with socket.create_connection(address, 10) as client:
        client.sendall(HEAD)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(12) == b"HTTP/1.1 200"


def test_an_address_that_is_taken_is_said() -> None:
    async def twice() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            await app.serve(lambda *_: None, app.Listen(port=taken.getsockname()[1]), print)  # type: ignore[arg-type]

    with pytest.raises(Busy, match="cannot listen"):
        asyncio.run(twice())


def test_under_tls_one_that_says_nothing_costs_nothing_and_others_are_served(
    tmp_path: Path, made: list[object]
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv = [*words, "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    listen = app.Listen(port=0, certificate=str(certificate), key=str(key))
    context = ssl.create_default_context(cafile=str(certificate))
    with on_loopback(app.application(site(tmp_path)), listen=listen) as (url, _):
        address = "127.0.0.1", urlsplit(url).port or 0
        assert url.startswith("https://")
        with contextlib.ExitStack() as held:
            for _ in range(20):
                held.enter_context(socket.create_connection(address, 10))
            plain = held.enter_context(socket.create_connection(address, 10))
            plain.sendall(HEAD)
            with contextlib.suppress(ConnectionResetError):
                while plain.recv(100):
                    pass  # an alert, then the end
            with (
                socket.create_connection(address, 10) as raw,
                context.wrap_socket(raw, server_hostname="localhost") as client,
            ):
                for _ in range(2):
                    client.sendall(HEAD)
                    found = b""
                    while b"</html>" not in found:
                        found += client.recv(1 << 16)
                    assert found.startswith(b"HTTP/1.1 200")
    assert len(made) == 2
