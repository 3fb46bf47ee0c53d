"""A memcached of a test's own, and its text protocol, as little of it as tests need."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Self

from tests.servers import free_port
from tests.waiting import until

#: memcached refuses to be root.
ACCOUNT = ["-u", "nobody"] if os.geteuid() == 0 else []


class Client:
    """One connection."""

    def __init__(self, address: str, limit_s: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        if address.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection((host, int(port)), limit_s)
        self.socket.settimeout(limit_s)

    def send(self, content: bytes, ends_with: bytes) -> bytes:
        """The answer, to its end."""
        self.socket.sendall(content)
        found = b""
        while not found.endswith(ends_with):
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError(f"hung up after {found[:80]!r}")
            found += more
        return found

    def store(self, keys: list[str], value: bytes, *, lifetime_s: int = 0) -> None:
        """Without answers but for the last; some may be refused."""
        parts = [
            f"set {key} 0 {lifetime_s} {len(value)} noreply\r\n".encode() + value + b"\r\n" for key in keys
        ]
        self.send(b"".join(parts) + b"mn\r\n", b"MN\r\n")

    def get(self, keys: list[str]) -> bytes:
        """One get of several keys."""
        return self.send(f"get {' '.join(keys)}\r\n".encode(), b"END\r\n")

    def delete(self, keys: list[str]) -> None:
        self.send("".join(f"delete {key} noreply\r\n" for key in keys).encode() + b"mn\r\n", b"MN\r\n")

    def stats(self, what: str = "") -> dict[str, str]:
        rows = self.send(f"stats {what}".strip().encode() + b"\r\n", b"END\r\n").decode().split("\r\n")
        words = (row.split(" ", 2) for row in rows if row.startswith("STAT "))
        return {name: value for _, name, value in words}

    def close(self) -> None:
        self.socket.close()


class Cache:
    """A memcached on loopback, or on a socket if its path is given."""

    def __init__(
        self, *options: str, path: str = "", listen: str = "127.0.0.1", stderr: int | None = None
    ) -> None:
        self.port = 0 if path else free_port()
        self.address = path or f"127.0.0.1:{self.port}"
        where = ["-s", path] if path else ["-l", listen, "-p", str(self.port)]
        self.process = subprocess.Popen(["memcached", *where, *ACCOUNT, *options], stderr=stderr)

    @property
    def pid(self) -> int:
        return self.process.pid

    def client(self) -> Client:
        return Client(self.address)

    def listens(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"memcached ended with {self.process.returncode}: {self.process.args!r}")
        try:
            Client(self.address).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def cache(
    *options: str, path: str = "", listen: str = "127.0.0.1", stderr: int | None = None
) -> Iterator[Cache]:
    """Running, until the end."""
    found = Cache(*options, path=path, listen=listen, stderr=stderr)
    try:
        until(found.listens)
        yield found
    finally:
        found.stop()


class FakeCache:
    """Speaks as little of the protocol as a probe does. ``per_s``: what its ``stats`` say that clients ask.

    ``says`` answers everything; ``hangs_up`` at once; ``spare`` connections are left.
    """

    def __init__(
        self, per_s: float = 1000, says: bytes = b"", *, hangs_up: bool = False, spare: int = 1000
    ) -> None:
        self.per_s, self.says, self.hangs_up, self.spare = per_s, says, hangs_up, spare
        self.is_silent = False
        self.asked = self.stored = 0
        self._lock = threading.Lock()
        self._begun_s = time.monotonic()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in [self._listener, *self._open]:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self._open.append(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError), one.makefile("rb") as lines:
            if self.hangs_up:
                one.close()
                return
            for line in lines:
                if not self.is_silent:
                    one.sendall(self.says or self._answer(line.split()))

    def _answer(self, words: list[bytes]) -> bytes:
        if words[0] == b"get":
            with self._lock:
                self.asked += 1
            return b"END\r\n"
        if words[0] != b"stats":
            self.stored += 1
            return b"ERROR\r\n"
        rows = {
            "pid": 7, "uptime": 100, "version": "1.6.0", "max_connections": 1024,
            "curr_connections": 1024 - self.spare,
            "cmd_get": round(self.per_s * (time.monotonic() - self._begun_s)) + self.asked,
            "cmd_set": 0, "get_hits": 0, "evictions": 0, "listen_disabled_num": 0, "rejected_connections": 0,
        }  # fmt: skip
        return "".join(f"STAT {name} {value}\r\n" for name, value in rows.items()).encode() + b"END\r\n"
