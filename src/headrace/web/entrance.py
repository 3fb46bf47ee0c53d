"""Where connections come in: one costs next to nothing until it has sent the head of a request.

Strangers may come by the thousand a second, and are refused by the thousand. If each became a connection of HTTP
first, those who are logged in would wait in the kernel's queue behind them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
import time
from collections.abc import Callable

from headrace.web.room import Room

#: Connections that the kernel holds until they are accepted.
QUEUED = 4096
#: They are accepted for this long in one turn of the loop, so that pages go on meanwhile.
TURN_S = 0.005
#: A head that is longer is for HTTP to refuse.
MOST_HEAD = 16 << 10
#: Ready ones that are read in one turn.
READ_AT_ONCE = 256
#: Without descriptors, nobody is accepted for so long.
PAUSE_S = 1.0
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class Waiting:
    """A connection that has asked for nothing yet."""

    __slots__ = ("_drop", "address", "head", "since_s", "socket")
    is_idle = True

    def __init__(self, own: socket.socket, address: str, drop: Callable[[Waiting], None]) -> None:
        self.socket, self.address, self.head, self._drop = own, address, bytearray(), drop
        self.since_s = time.monotonic()

    def leave(self) -> None:
        self._drop(self)


class Entrance:
    """Accepts on some sockets. ``pass_on`` gets a connection, its address and the head of its first request.

    With ``is_opaque``, as under TLS, it goes there at its first byte, which is not read. One that has sent no
    head in ``limit_s`` is closed. Used only in the loop.
    """

    def __init__(
        self,
        listening: list[socket.socket],
        room: Room,
        pass_on: Callable[[socket.socket, str, bytes], None],
        limit_s: float,
        *,
        is_opaque: bool = False,
    ) -> None:
        self._listening, self._room, self._pass_on = listening, room, pass_on
        self._limit_s, self._is_opaque = limit_s, is_opaque
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, Waiting] = {}
        # One descriptor for all of them: the loop's own way to add one costs more than the connection.
        self._polled = select.epoll()
        self._is_open = True
        self._loop.add_reader(self._polled.fileno(), self._read_ready)
        self._sweeping = self._loop.call_later(self._every_s, self._sweep)
        for each in listening:
            each.setblocking(False)
            self._listen(each)

    @property
    def _every_s(self) -> float:
        return min(self._limit_s / 5, 1.0)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._sweeping.cancel()
        for each in self._listening:
            self._loop.remove_reader(each.fileno())
            each.close()
        for one in list(self._waiting.values()):
            self._end(one)
        self._loop.remove_reader(self._polled.fileno())
        self._polled.close()

    async def wait_closed(self) -> None:
        """As a server of asyncio; nothing is left to wait for."""

    def _listen(self, listening: socket.socket) -> None:
        if self._is_open:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        end_s = time.monotonic() + TURN_S
        while time.monotonic() < end_s:
            try:
                own, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                context = {"message": "connections cannot be accepted", "exception": error}
                self._loop.call_exception_handler(context)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_S, self._listen, listening)
                return
            own.setblocking(False)
            one = Waiting(own, str(peer[0]), self._drop)
            self._waiting[own.fileno()] = one
            self._room.enter(one, one.address)
            # Its request was mostly sent while it waited in the kernel's queue.
            self._read(one)
            if own.fileno() in self._waiting:
                self._polled.register(own.fileno(), select.EPOLLIN)

    def _read_ready(self) -> None:
        for descriptor, _ in self._polled.poll(0, READ_AT_ONCE):
            # Others may have left meanwhile, to make room.
            if (one := self._waiting.get(descriptor)) is not None:
                self._read(one)

    def _read(self, one: Waiting) -> None:
        try:
            # What is encrypted is read by who can read it.
            part = one.socket.recv(*((1, socket.MSG_PEEK) if self._is_opaque else (MOST_HEAD,)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            part = b""
        if not part:
            self._end(one)
            return
        if not self._is_opaque:
            looked = max(len(one.head) - 3, 0)
            one.head += part
            # What begins with a control character is no request: HTTP says so.
            is_head = one.head[0] < 0x21 or _END_OF_HEAD.search(one.head, looked)
            if not is_head and len(one.head) <= MOST_HEAD:
                return
        self._forget(one)
        with contextlib.suppress(FileNotFoundError):  # it came with its request
            self._polled.unregister(one.socket.fileno())
        self._pass_on(one.socket, one.address, bytes(one.head))

    def _sweep(self) -> None:
        before_s = time.monotonic() - self._limit_s
        # The oldest are first.
        for one in list(self._waiting.values()):
            if one.since_s > before_s:
                break
            self._end(one)
        self._sweeping = self._loop.call_later(self._every_s, self._sweep)

    def _forget(self, one: Waiting) -> None:
        del self._waiting[one.socket.fileno()]
        self._room.forget(one, one.address)

    def _end(self, one: Waiting) -> None:
        self._forget(one)
        one.socket.close()

    def _drop(self, one: Waiting) -> None:
        """The room has forgotten it already."""
        self._waiting.pop(one.socket.fileno(), None)
        one.socket.close()


def listening_at(address: str, port: int) -> list[socket.socket]:
    """A socket for each address that the name stands for, all with one port. Raises OSError."""
    found: list[socket.socket] = []
    with contextlib.ExitStack() as undone:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, at in dict.fromkeys((info[0], info[4]) for info in infos):
            chosen = found[0].getsockname()[1] if found else port
            one = socket.create_server((str(at[0]), chosen), family=family, backlog=QUEUED)
            undone.callback(one.close)
            found.append(one)
        undone.pop_all()
    return found
