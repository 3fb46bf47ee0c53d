"""A client of a memcached server that times a few gets a second, and reads the server's counters each second.

It runs as a program of its own, so that nothing else of headrace delays it, on the machine where headrace runs:
what it times has the network and the server's interrupts in it, as what clients wait for has. It asks for one key,
which nobody stores: nothing is written, each get is a miss, and readings say how many of the misses are ours.

``python -m headrace.host.memcached.probe ADDRESS GETS_PER_S SECONDS``; with 0 seconds it ends with its reader.
Standard output has a JSON line for each second of gets (``gets``: ns each that was answered, ``failed``: ns each
that was not) and for each reading (``stats``, and ``asked``: gets until then), all of them with ``t_ns``
and ``steady_ns``, the same time by a clock that nobody sets.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.host.memcached.ask import LIMIT_S, Connection, Unread, ended

#: A connection has one worker thread of memcached, and one queue of the network card: several of each are tried.
CONNECTIONS = 16
#: A get that takes longer has failed.
GET_LIMIT_S = 1.0
#: Of the server's requests, at most so many are ours; so many gets a second at least and at most.
SHARE = 0.001
LEAST_PER_S, MOST_PER_S = 1.0, 100.0
LOOK_S = 2.0
EVERY_S = 1.0
#: Counters that are printed, of about 100.
REQUESTS = ("cmd_get", "cmd_set", "cmd_touch")
BY_RESULT = ("delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses")
REFUSED = ("listen_disabled_num", "rejected_connections")
COUNTERS = (*REQUESTS, *BY_RESULT, *REFUSED, "get_hits", "evictions", "uptime", "pid")


@dataclass
class Probe:
    """Gets in turn over its connections, each opened when it is needed first and again after a failure."""

    address: str
    key: str = field(default_factory=lambda: f"headrace-probe-{secrets.token_hex(8)}")
    asked: int = 0
    _open: dict[int, Connection] = field(default_factory=dict)

    def get(self, since_ns: int | None = None) -> tuple[int, bool]:
        """How long one took, in ns, and whether it was answered. ``since_ns``: when it was due, if it waited."""
        number = self.asked % CONNECTIONS
        self.asked += 1
        start_ns = time.monotonic_ns() if since_ns is None else since_ns
        try:
            if number not in self._open:
                self._open[number] = Connection(self.address)
            own = self._open[number].socket
            own.settimeout(GET_LIMIT_S)
            own.sendall(f"get {self.key}\r\n".encode())
            answer = b""
            while not answer.endswith(b"\r\n"):
                more = own.recv(4096)
                answer += more
                if not more:
                    break
            is_answered = answer == b"END\r\n"
        except OSError:
            is_answered = False
        if not is_answered and (broken := self._open.pop(number, None)):
            broken.socket.close()
        return time.monotonic_ns() - start_ns, is_answered

    def open_all(self) -> None:
        """Raises Unread or OSError."""
        for number in range(CONNECTIONS):
            self._open[number] = Connection(self.address)

    def close(self) -> None:
        for each in self._open.values():
            each.socket.close()


@dataclass(frozen=True)
class Looked:
    """A server before it is probed. ``spare``: connections that it has left, None if it does not say."""

    version: str
    requests_per_s: float
    spare: int | None


def requests(counters: Mapping[str, float]) -> float:
    """What a server was asked for since its start: keys of gets, and items changed."""
    return sum(counters.get(name, 0.0) for name in (*REQUESTS, *BY_RESULT))


def numbers(rows: Mapping[str, str]) -> dict[str, float]:
    """The counters among the rows of ``stats``."""
    found = {}
    for name in COUNTERS:
        with contextlib.suppress(ValueError):
            found[name] = float(rows.get(name, ""))
    return found


def read(connection: Connection) -> dict[str, str]:
    """``stats`` over a connection that is kept. Raises Unread or OSError."""
    connection.deadline = time.monotonic() + LIMIT_S
    connection.socket.settimeout(LIMIT_S)
    rows = connection.reply("stats")
    if rows is None or "pid" not in rows:
        raise Unread("it does not answer as memcached does")
    return rows


def look(address: str, seconds: float = LOOK_S) -> Looked:
    """How much it is asked, in so many seconds. Raises Unread with why it is not read."""
    try:
        connection = Connection(address)
        with contextlib.closing(connection.socket):
            first, begun_s = read(connection), time.monotonic()
            time.sleep(seconds)
            last, took_s = read(connection), time.monotonic() - begun_s
    except Unread:
        raise
    except TimeoutError:
        raise Unread(f"no answer within {LIMIT_S:.0f} s: it is stopped, overloaded, or speaks TLS") from None
    except ConnectionResetError:
        raise Unread(ended(b"")) from None
    except (OSError, ValueError) as error:
        raise Unread(getattr(error, "strerror", None) or str(error)) from None
    most, now = (last.get(name, "") for name in ("max_connections", "curr_connections"))
    spare = int(most) - int(now) if most.isdecimal() and now.isdecimal() else None
    grown = requests(numbers(last)) - requests(numbers(first))
    return Looked(last.get("version", ""), max(grown, 0.0) / took_s, spare)


def fair_per_s(requests_per_s: float) -> float:
    """Gets a second that a server with so many requests is asked for."""
    return min(max(SHARE * requests_per_s, LEAST_PER_S), MOST_PER_S)


class Printed:
    """Lines of two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def line(self, **content: object) -> None:
        with self._lock:
            sys.stdout.write(
                json.dumps({"t_ns": time.time_ns(), "steady_ns": time.monotonic_ns(), **content}) + "\n"
            )
            sys.stdout.flush()


def read_on(probe: Probe, printed: Printed, stop: threading.Event) -> None:
    """A reading a second, until the end. One that fails says why, and the next has another connection."""
    connection: Connection | None = None
    due_s = time.monotonic()
    while True:
        try:
            connection = connection or Connection(probe.address)
            rows = read(connection)
            printed.line(stats=numbers(rows), asked=probe.asked)
        except (Unread, OSError) as error:
            with contextlib.suppress(OSError):
                printed.line(stats=None, why=str(error) or type(error).__name__)
            if connection is not None:
                connection.socket.close()
            connection = None
        due_s = max(due_s + EVERY_S, time.monotonic())
        if stop.wait(due_s - time.monotonic()):
            break
    if connection is not None:
        connection.socket.close()


def ask_on(probe: Probe, per_s: float, printed: Printed, end_s: float) -> None:
    """Gets at random moments, one in each equal stretch of time, and a line of them each second.

    One that waited for the one before waits since it was due; that this program woke late is nobody's wait. What
    was due while one failed has failed, too: it is not made up for, which would take as long again.
    """
    step_s = 1 / per_s
    slot_s = free_s = time.monotonic()
    told_s = slot_s + EVERY_S
    answered: list[int] = []
    failed: list[int] = []
    while slot_s < end_s:
        due_s = slot_s + random.random() * step_s
        slot_s += step_s
        while (now_s := time.monotonic()) < due_s or now_s >= told_s:
            if now_s >= told_s:
                printed.line(gets=answered, failed=failed)
                answered, failed = [], []
                told_s = max(told_s + EVERY_S, now_s)
            else:
                time.sleep(min(due_s, told_s) - now_s)
        took_ns, is_answered = probe.get(round(due_s * 1e9) if free_s > due_s else None)
        (answered if is_answered else failed).append(took_ns)
        free_s = time.monotonic()
        while not is_answered and slot_s + step_s < min(free_s, end_s):
            failed.append(round((free_s - slot_s) * 1e9))
            slot_s += step_s
    printed.line(gets=answered, failed=failed)


def main(words: list[str]) -> int:
    address, per_s, seconds = words[0], float(words[1]), float(words[2])
    probe, printed, stop = Probe(address), Printed(), threading.Event()
    try:
        probe.open_all()
    except (Unread, OSError, ValueError) as error:
        sys.stderr.write(f"{getattr(error, 'strerror', None) or error}\n")
        return 1
    reading = threading.Thread(target=read_on, args=(probe, printed, stop), daemon=True)
    reading.start()
    try:
        ask_on(probe, per_s, printed, time.monotonic() + seconds if seconds else float("inf"))
    except BrokenPipeError:
        # Whoever read it is gone. What is left is flushed at the end, and must find something.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    stop.set()
    reading.join(LIMIT_S)
    probe.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
