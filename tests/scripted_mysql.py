"""A MySQL server that does what a test tells it to, for the faults that no real server has on demand.

    def answer(conversation, number):
        if number == 100:
            conversation.reset()
        conversation.rows([b"x"])

    with ScriptedMysql(answer) as server:
        ...  # a client on 127.0.0.1:server.port

It greets, lets everybody in, prepares every statement, and asks ``answer`` what to say to each execution,
prepared or as text; they are counted over all connections, from 1. A thread serves a connection, so ``answer`` may
block: in ``hang``, never for good.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

#: PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, CONNECT_WITH_DB, TRANSACTIONS, both MULTI_RESULTS, LONG_PASSWORD.
CAPABILITIES = 0x0200 | 0x8000 | 0x80000 | 0x08 | 0x2000 | 0x20000 | 0x40000 | 0x01
AUTOCOMMIT = 0x0002
IN_TRANSACTION = 0x0001
COM_QUIT, COM_QUERY, COM_PREPARE, COM_EXECUTE = 0x01, 0x03, 0x16, 0x17
VAR_STRING = 0xFD
#: The longest that a thread may need to end when the server does.
PATIENCE_S = 10.0


class Ended(Exception):
    """The conversation is over: one side has closed it."""


class Conversation:
    """One connection. What a method sends is a whole answer unless its name says otherwise."""

    def __init__(self, server: ScriptedMysql, connection: socket.socket, number: int) -> None:
        self.server = server
        self.number = number
        self.connection = connection
        self.sequence = 0
        self.is_binary = False
        self.status = AUTOCOMMIT
        #: What the statement at work is, where it came as text.
        self.sql = ""
        self._prepared: list[str] = []

    def serve(self) -> None:
        self.server.greet(self)
        while True:
            command = self.receive()
            kind, rest = command[0], command[1:]
            self.is_binary = kind == COM_EXECUTE
            if kind == COM_QUIT:
                return
            if kind == COM_PREPARE:
                self.sql = rest.decode()
                self.server.prepare(self)
            elif kind in (COM_QUERY, COM_EXECUTE):
                self.sql = self._prepared[rest[0] - 1] if self.is_binary else rest.decode()
                self.server.answer(self, self.server.count())
            else:
                self.error(1047, "08S01", "Unknown command")

    def receive(self) -> bytes:
        """The next payload; of one frame, because no test sends 16 MiB."""
        header = self._exactly(4)
        self.sequence = (header[3] + 1) & 0xFF
        return self._exactly(int.from_bytes(header[:3], "little"))

    def packets(self, *payloads: bytes) -> bytes:
        """The bytes of packets, the next in order; they are to be sent, or a part of them."""
        data = b""
        for payload in payloads:
            data += len(payload).to_bytes(3, "little") + bytes([self.sequence]) + payload
            self.sequence = (self.sequence + 1) & 0xFF
        return data

    def send(self, *payloads: bytes) -> None:
        self.raw(self.packets(*payloads))

    def raw(self, data: bytes) -> None:
        """Bytes as they are, however wrong."""
        try:
            self.connection.sendall(data)
        except OSError as error:
            raise Ended from error

    def ok(self) -> None:
        self.send(self.ok_payload())

    def ok_payload(self) -> bytes:
        return b"\x00\x01\x00" + struct.pack("<HH", self.status, 0)

    def error(self, code: int, state: str, message: str) -> None:
        self.send(b"\xff" + struct.pack("<H", code) + f"#{state}{message}".encode())

    def rows(self, values: Sequence[bytes]) -> None:
        """A result of one column, one row a value."""
        self.send(*self.head_payloads(), *map(self.row_payload, values), self.end_payload())

    def row(self, *values: bytes) -> None:
        """A result of one row, as text."""
        columns = [_column()] * len(values)
        row = b"".join(bytes([len(value)]) + value for value in values)
        self.send(bytes([len(values)]), *columns, self.end_payload(), row, self.end_payload())

    def head_payloads(self) -> list[bytes]:
        return [b"\x01", _column(), self.end_payload()]

    def row_payload(self, value: bytes) -> bytes:
        """A row of one column, of less than 251 bytes."""
        null_bitmap = b"\x00\x00" if self.is_binary else b""
        return null_bitmap + bytes([len(value)]) + value

    def end_payload(self) -> bytes:
        return b"\xfe" + struct.pack("<HH", 0, self.status)

    def prepared(self) -> None:
        """The statement at work is prepared; less than 256 of them, without parameters."""
        self._prepared.append(self.sql)
        columns = int(self.sql.startswith("SELECT"))
        self.send(b"\x00" + struct.pack("<IHHxH", len(self._prepared), columns, 0, 0))
        if columns:
            self.send(_column(), self.end_payload())

    def hang(self) -> None:
        """Say nothing until the client gives up or the test is over."""
        while not self.pause(0.05):
            pass
        raise Ended

    def pause(self, seconds: float) -> bool:
        """Waits; true when the client has gone or the test is over. What the client says meanwhile is lost."""
        self.connection.settimeout(seconds)
        try:
            return not self.connection.recv(65536) or self.server.is_stopped.is_set()
        except TimeoutError:
            return self.server.is_stopped.is_set()
        except OSError:
            return True
        finally:
            self.connection.settimeout(None)

    def close(self) -> None:
        """Close as a server does that has said all."""
        raise Ended

    def reset(self) -> None:
        """Close as a server does that was killed with bytes unread: the client gets a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Ended

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self.connection.recv(count - len(data))
            except OSError as error:
                raise Ended from error
            if not piece:
                raise Ended
            data += piece
        return data


Answer = Callable[[Conversation, int], None]
Act = Callable[[Conversation], None]


def let_in(conversation: Conversation) -> None:
    """Greet, and ask for no password."""
    hear_login(conversation)
    conversation.ok()


def turn_away(code: int, state: str, message: str) -> Act:
    """Greet, and refuse whoever logs in."""

    def greet(conversation: Conversation) -> None:
        hear_login(conversation)
        conversation.error(code, state, message)
        conversation.close()

    return greet


def shut_out(code: int, message: str) -> Act:
    """Say why there is no greeting, as a server does that has no room: without an SQLSTATE, so early."""

    def greet(conversation: Conversation) -> None:
        conversation.send(b"\xff" + struct.pack("<H", code) + message.encode())
        conversation.close()

    return greet


def greeting(conversation: Conversation) -> bytes:
    """MySQL 8.0's."""
    nonce = bytes(range(33, 53))
    return (
        b"\x0a8.0.99-scripted\x00"
        + struct.pack("<I", conversation.number)
        + nonce[:8]
        + b"\x00"
        + struct.pack("<HBHHB", CAPABILITIES & 0xFFFF, 45, AUTOCOMMIT, CAPABILITIES >> 16, 21)
        + bytes(10)
        + nonce[8:]
        + b"\x00mysql_native_password\x00"
    )


def hear_login(conversation: Conversation) -> None:
    conversation.send(greeting(conversation))
    conversation.receive()


class ScriptedMysql:
    """Listens from the beginning to the end of a `with` block.

    On a loopback port; or at ``path``, a unix socket with next to no backlog.
    """

    def __init__(
        self,
        answer: Answer,
        greet: Act = let_in,
        prepare: Act = Conversation.prepared,
        path: str | None = None,
    ) -> None:
        self.path = path
        self.answer = answer
        self.greet = greet
        self.prepare = prepare
        self.port = 0
        #: How often statements were executed.
        self.executions = 0
        self.connections = 0
        self.is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def count(self) -> int:
        with self._lock:
            self.executions += 1
            return self.executions

    def __enter__(self) -> ScriptedMysql:
        if self.path is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
            self.port = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.path)
            self._listener.listen(1)
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_stopped.set()
        # Without the shutdown a thread that is in accept, or receives, stays there.
        self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "an answer blocks for good"

    def _accept(self) -> None:
        with self._listener:
            while not self.is_stopped.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                # A reply is sent at once, whole or in the pieces that the test makes.
                if self.path is None:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self.connections += 1
                    self._open.add(connection)
                    number = self.connections
                self._start(self._serve, connection, number)

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(Ended):
            Conversation(self, connection, number).serve()
        with self._lock:
            self._open.discard(connection)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def _column() -> bytes:
    names = (b"def", b"", b"t", b"t", b"c", b"c")
    fixed = b"\x0c" + struct.pack("<HIBHBH", 45, 1024, VAR_STRING, 0, 0, 0)
    return b"".join(bytes([len(name)]) + name for name in names) + fixed
