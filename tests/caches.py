"""A memcached of a test's own, and its text protocol, as little of it as tests need."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator

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
