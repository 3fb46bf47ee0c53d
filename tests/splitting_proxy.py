"""A proxy that speaks MySQL's protocol and sends statements to several servers, as ProxySQL and MaxScale do.

The login goes to the first server. Then each text query that begins with SELECT goes to the server whose turn it
is, over a connection of the proxy's own; all else to the first.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence

import pymysql

from tests.servers import free_port

_SSL, _COMPRESS = 0x0800, 0x0020
#: In the two upper bytes of the capabilities: results end without an EOF packet.
_DEPRECATE_EOF = 0x0100


def _packet(connection: socket.socket) -> bytes:
    head = _exactly(connection, 4)
    return head + _exactly(connection, int.from_bytes(head[:3], "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError
        content += part
    return content


def _greeting(packet: bytes) -> bytes:
    """Without what would hide the ends of results."""
    found = bytearray(packet)
    lower = found.index(0, 5) + 1 + 4 + 8 + 1
    found[lower : lower + 2] = (
        int.from_bytes(found[lower : lower + 2], "little") & ~(_SSL | _COMPRESS)
    ).to_bytes(2, "little")
    upper = lower + 5
    found[upper : upper + 2] = (
        int.from_bytes(found[upper : upper + 2], "little") & ~_DEPRECATE_EOF
    ).to_bytes(2, "little")
    return bytes(found)


def _answer(server: socket.socket, client: socket.socket) -> None:
    """One answer to a text query."""
    first = _packet(server)
    client.sendall(first)
    if first[4] in (0x00, 0xFF):
        return
    ends = 0
    while ends < 2:
        packet = _packet(server)
        client.sendall(packet)
        ends += packet[4] == 0xFE and len(packet) < 13
        if packet[4] == 0xFF:
            return


def _serve(client: socket.socket, first: int, turns: Iterator[socket.socket]) -> None:
    with (
        contextlib.suppress(ConnectionError, OSError),
        client,
        socket.create_connection(("127.0.0.1", first)) as own,
    ):
        client.sendall(_greeting(_packet(own)))
        while True:
            own.sendall(_packet(client))
            said = _packet(own)
            client.sendall(said)
            if said[4] in (0x00, 0xFF):
                break
        while True:
            asked = _packet(client)
            is_query = asked[4:5] == b"\x03"
            to = next(turns) if is_query and asked[5:].lstrip()[:6].upper() == b"SELECT" else own
            to.sendall(asked)
            if is_query:
                _answer(to, client)
            elif asked[4:5] != b"\x01":
                client.sendall(_packet(own))


@contextlib.contextmanager
def splitting_proxy(ports: Sequence[int], user: str, password: str) -> Iterator[int]:
    """Its port at 127.0.0.1. ``ports``: of the servers."""
    with contextlib.ExitStack() as stack:
        ours = free_port()
        listening = stack.enter_context(socket.create_server(("127.0.0.1", ours)))
        pooled = []
        for port in ports:
            connection = pymysql.connect(
                host="127.0.0.1", port=port, user=user, password=password, ssl_disabled=True
            )
            stack.callback(connection.close)
            pooled.append(connection._sock)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    words = (client, ports[0], itertools.cycle(pooled))
                    threading.Thread(target=_serve, args=words, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield ours
