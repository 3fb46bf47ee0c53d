"""Strangers have a budget per address; collection and those who are logged in have their own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

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
