"""A session of a server that is hostile: it is given no password, and cannot fill the memory."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import TargetError
from headrace.base.model import ServerLogin
from headrace.indexes import dropping, session
from headrace.indexes.session import Session, connect

OK, END = b"\0\0\0\2\0\0\0", b"\xfe\0\0\2\0"
ONE_COLUMN = (b"\1", b"\3def\0\0\0\1a\0\x0c\x21\0\xff\0\0\0\xfd\0\0\0\0\0", END)
VERSION = (*ONE_COLUMN, b"\x068.0.36", END)
#: What each says: the question -> the packets of the answer.
Says = Callable[[bytes], Iterator[bytes]]


def greeting() -> bytes:
    abilities = struct.pack("<I", 0xFFFFFFFF & ~(1 << 11))
    ways = b"\x15" + b"\0" * 10 + b"123456789012\0mysql_native_password\0"
    return b"\x0a8.0.36\0\7\0\0\x0012345678\0" + abilities[:2] + b"\x21\2\0" + abilities[2:] + ways


@contextlib.contextmanager
def server(at_login: bytes, says: Says, heard: list[bytes]) -> Iterator[ServerLogin]:
    listening = socket.create_server(("127.0.0.1", 0))

    def send(peer: socket.socket, number: int, packet: bytes) -> None:
        peer.sendall(struct.pack("<I", len(packet))[:3] + bytes([number & 255]) + packet)

    def hear(peer: socket.socket) -> bytes:
        head = peer.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            raise OSError("it has gone")
        heard.append(peer.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL))
        return heard[-1]

    def serve() -> None:
        with contextlib.suppress(OSError), listening.accept()[0] as peer:
            send(peer, 0, greeting())
            hear(peer)
            send(peer, 2, at_login)
            while True:
                question = hear(peer)
                packets = says(question) if b"SET" not in question else iter((OK,))
                for number, packet in enumerate(packets, start=1):
                    send(peer, number, packet)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield ServerLogin(host="127.0.0.1", port=listening.getsockname()[1], user="u", tls="disabled")
    finally:
        listening.close()
        thread.join(5)


def nothing(_: bytes) -> Iterator[bytes]:
    yield OK


@pytest.mark.parametrize(
    "asked", [b"mysql_clear_password\0", b"dialog\0\4Password: ", b"mysql_old_password\x0012345678\0"]
)
def test_no_server_is_given_the_password_in_clear(tmp_path: Path, asked: bytes) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    heard: list[bytes] = []
    with server(b"\xfe" + asked, nothing, heard) as login:
        own = ServerLogin(
            host=login.host,
            port=login.port,
            user="u",
            tls="disabled",
            password_file=str(tmp_path / "password"),
        )
        with pytest.raises(TargetError, match="it is not sent"):
            connect(own)
    assert len(heard) == 1


def rows_without_end(_: bytes) -> Iterator[bytes]:
    yield from ONE_COLUMN
    while True:
        yield b"\x01x"


def a_packet_without_end(_: bytes) -> Iterator[bytes]:
    while True:
        yield b"x" * 0xFFFFFF


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (rows_without_end, "larger than"),
        (a_packet_without_end, "larger than"),
        (lambda _: iter((b"\xfc",)), "none of a MySQL server"),
        (lambda _: iter((b"\1", b"\xff\xff\xff")), "none of a MySQL server"),
        (lambda _: iter((b"\xfb/etc/shadow",)), "none of a MySQL server"),
        (lambda _: iter((*ONE_COLUMN, END)), "none of a MySQL server"),
    ],
)
def test_an_answer_that_no_server_gives_is_an_error(
    says: Says, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session._Connection, "_left", 1 << 20)
    monkeypatch.setattr(session, "MOST_ANSWER_BYTES", 1 << 20)
    answers: Says = lambda question: iter(VERSION) if b"VERSION" in question else says(question)  # noqa: E731
    with (
        server(OK, answers, []) as login,
        session.opened(login) as own,
        pytest.raises(TargetError, match=why),
    ):
        _ = own.identity


class Describes(Session):
    """Says of a table what it is given."""

    def __init__(self, created: str) -> None:
        self._created = created

    def rows(self, statement: str) -> session.Rows:
        return ((b"t", self._created),)


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x85"])
def test_a_comment_is_no_definition_of_an_index(mark: str) -> None:
    planted = f"`a` int COMMENT 'x{mark}KEY `i` (`a`), DROP COLUMN `b` -- {mark}'"
    own = f"KEY `i` (`b`) COMMENT 'one{mark}two'"
    created = f"CREATE TABLE `t` (\n  {planted},\n  `b` int,\n  {own}\n) ENGINE=InnoDB"
    assert dropping._definition(Describes(created), "d", "t", "i") == own
