"""``headrace serve`` beside strangers: 5,000 connections that say nothing and 500 that say it slowly.

    python benches/serve_strangers.py [SECONDS SILENT SLOW [FILES]]

FILES: what the server may have open, as `ulimit -Hn` sets it; without it as many as this program.

They are made again as fast as they are ended. Of a user who is logged in the 95th percentile of a page is
measured, without them and beside them, and the minutes of this host's history are counted: none may be missing.
The exit code is 1 if one is, or if the percentile is above a second and above twice the one without.
"""

from __future__ import annotations

import contextlib
import http.client
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from headrace.history.archive.files import Archive  # noqa: E402

MINUTE_S = 60


class Strangers:
    """Connections that are kept up, each with the same first bytes; a slow one adds a byte a second."""

    def __init__(self, port: int, silent: int, slow: int) -> None:
        self.port, self.wanted = port, {b"": silent, b"GET /login HTTP/1.1\r\nX: ": slow}
        self.made = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Strangers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        held: dict[bytes, list[socket.socket]] = {first: [] for first in self.wanted}
        while not self._ended.wait(0.2):
            for first, most in self.wanted.items():
                alive = []
                for each in held[first]:
                    try:
                        if first:
                            each.send(b"x")
                        if each.recv(4096):
                            alive.append(each)
                            continue
                    except BlockingIOError:
                        alive.append(each)
                        continue
                    except OSError:
                        pass
                    each.close()
                held[first] = alive
                for _ in range(min(most - len(alive), 1000)):
                    one = socket.socket()
                    one.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        one.connect(("127.0.0.1", self.port))
                    with contextlib.suppress(OSError):
                        one.send(first)
                    alive.append(one)
                    self.made += 1
        for each in (each for some in held.values() for each in some):
            each.close()


class User:
    """With one connection that stays, as a browser's."""

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path = port, path
        answer = self._ask(http.client.HTTPConnection("127.0.0.1", port, timeout=30), path, "")
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        self.page = answer.getheader("location") or "/"

    @staticmethod
    def _ask(link: http.client.HTTPConnection, path: str, cookie: str) -> http.client.HTTPResponse:
        link.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = link.getresponse()
        answer.read()
        return answer

    def times_s(self, seconds: float) -> tuple[list[float], int]:
        """Of a page, each over a connection of its own; and how many failed."""
        found, failed, end = [], 0, time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                status = self._ask(link, self.page, self.cookie).status
                link.close()
                failed += status != 200
            except (OSError, http.client.HTTPException):
                failed += 1
            found.append(time.monotonic() - began)
            time.sleep(0.2)
        return found, failed


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def main() -> int:
    seconds, silent, slow = (int(word) for word in (sys.argv[1:4] or ("300", "5000", "500")))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "history"
        argv = [sys.executable, "-m", "headrace", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
        if sys.argv[4:]:
            argv = ["prlimit", f"--nofile={sys.argv[4]}:{sys.argv[4]}", *argv]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout
            link = next(line for line in server.stdout if "http://" in line)
            address = "http://" + link.partition("http://")[2].split()[0]
            host, _, path = address.removeprefix("http://").partition("/")
            user = User(int(host.partition(":")[2]), f"/{path}")
            alone, failed = user.times_s(min(60, seconds / 4))
            began = time.time()
            with Strangers(user.port, silent, slow) as strangers:
                beside, failed_beside = user.times_s(seconds)
            ended = time.time()
            time.sleep(5)
            minutes = {file.t_s for file in Archive(data).files("states") if file.kind == "m"}
            due = list(range(int(began) // 60 * 60 + 60, int(ended) // 60 * 60 - 60, MINUTE_S))
            lost = [t for t in due if t not in minutes]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
    print(f"{strangers.made:,} connections of strangers in {seconds} s")
    print(f"a page of a user: p95 {p95(alone):.2f} s without them ({failed} of {len(alone)} failed), "
          f"{p95(beside):.2f} s beside them ({failed_beside} of {len(beside)} failed)")  # fmt: skip
    print(f"{len(due)} minutes were due, {len(lost)} are lost")
    return 1 if lost or failed_beside or p95(beside) > max(1.0, 2 * p95(alone)) else 0


if __name__ == "__main__":
    sys.exit(main())
