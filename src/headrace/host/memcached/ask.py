"""Asks memcached servers for their statistics, and prints them as JSON.

It is sent to the servers' host and runs there by that host's Python, 3.6 or later: it imports nothing of headrace.
Standard input: a list of ``{"pid", "addresses", "is_known", "with_connections"}``; an address is ``HOST:PORT`` or
the path of a socket. Standard output: for each, in order, ``{"pid", "address", "replies"}`` or
``{"pid", "address", "error"}``.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

#: Seconds for all answers of one server.
LIMIT_S = 3.0
#: Bytes and lines of one answer, and bytes of all answers: one server's flood leaves the others their room. Honest
#: ones have 12,000 lines at most, for connections.
MOST_BYTES, MOST_ROWS, MOST_TOTAL = 1 << 20, 20_000, 24 << 20
#: The list of connections has four lines for each: it is not asked for above so many.
MOST_CONNECTIONS = 2000
MOST_PEERS = 10
LISTENS = "0A"
#: What a server says whose connections are all taken, and what is made of it.
FULL = "ERROR Too many open connections"
REFUSES = "it refuses connections: too many are open"
ANY = ("0.0.0.0", "::")


class Unread(Exception):
    """Why a server was not read."""


def listeners(pid: int) -> "list[str] | None":
    """TCP addresses on which a process listens, the most local first; None if that cannot be read."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    except OSError:
        return None
    found = []
    for family, file in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        try:
            with open(f"/proc/{pid}/net/{file}") as lines:
                rows = [line.split() for line in lines.readlines()[1:]]
        except OSError:
            continue
        found += [of_kernel(row[1], family) for row in rows if row[3] == LISTENS and row[9] in inodes]
    local = [each for each in found if each.startswith(("127.", "[::1]"))]
    return local + [each for each in found if each not in local]


def of_kernel(text: str, family: int) -> str:
    """``0100007F:2BCB`` -> ``127.0.0.1:11211``; any address is asked over loopback."""
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    host = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    if host in ANY:
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
    return f"[{host}]:{int(port, 16)}" if ":" in host else f"{host}:{int(port, 16)}"


def pids_of(pid: int) -> "set[str]":
    """A process's number here and in its own namespaces."""
    try:
        with open(f"/proc/{pid}/status") as lines:
            found = [line.split()[1:] for line in lines if line.startswith("NSpid:")]
    except OSError:
        found = []
    return set(found[0]) if found else {str(pid)}


class Connection:
    """One conversation with a server, with one deadline for all of it."""

    def __init__(self, address: str) -> None:
        self.deadline = time.monotonic() + LIMIT_S
        is_path = address.startswith("/")
        if is_path:
            place: Any = address
        else:
            host, _, port = address.rpartition(":")
            place = (host.strip("[]"), int(port))
        family = socket.AF_UNIX if is_path else socket.AF_INET6 if ":" in str(place[0]) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(place)

    def reply(self, command: str) -> "dict[str, str] | None":
        """Names and values of a ``stats`` command; None if the server does not know it."""
        self.socket.sendall(command.encode() + b"\r\n")
        content = b""
        while not content.endswith(b"END\r\n"):
            last = content.rstrip(b"\r\n").rpartition(b"\r\n")[2] if content.endswith(b"\n") else b""
            if last.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
                break
            if len(content) > MOST_BYTES:
                raise Unread(f"its answer to {command} is larger than {MOST_BYTES >> 20} MiB")
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout()  # noqa: UP041 - before Python 3.10 another class
            self.socket.settimeout(left)
            more = self.socket.recv(1 << 16)
            if not more:
                raise Unread(ended(content))
            content += more
        text = content.decode("utf-8", "replace")
        if not text.endswith("END\r\n"):
            said = text.strip().splitlines()[-1][:120]
            if said == "ERROR":
                return None
            raise Unread(REFUSES if said.startswith(FULL) else f"it answers {said!r}")
        rows = [line.split(" ", 2) for line in text.split("\r\n") if line.startswith("STAT ")]
        if len(rows) > MOST_ROWS:
            raise Unread(f"its answer to {command} has more than {MOST_ROWS} lines")
        return {row[1]: row[2] if len(row) > 2 else "" for row in rows}


def ended(content: bytes) -> str:
    """Why a server hung up, by what it said before."""
    said = content.decode("utf-8", "replace").strip()[:120]
    if said.startswith(FULL):
        return REFUSES
    if said.isprintable() and said:
        return f"it answers {said!r} and hangs up"
    return "it hangs up without an answer (TLS, SASL or the binary protocol alone, or it has no buffer left)"


def connections(rows: "dict[str, str]") -> "dict[str, object]":
    """What ``stats conns`` lists, by state and by the other end, and the longest silence; ours is among them."""
    by_number: dict[str, dict[str, str]] = {}
    for name, value in rows.items():
        number, _, what = name.partition(":")
        by_number.setdefault(number, {})[what] = value
    states: dict[str, int] = {}
    peers: dict[str, int] = {}
    idle = 0
    for row in by_number.values():
        state = row.get("state", "unknown")
        if state == "conn_listening" or "addr" not in row:
            continue
        states[state] = states.get(state, 0) + 1
        peer = row["addr"].partition(":")[2].rpartition(":")[0] or "a Unix socket"
        peers[peer] = peers.get(peer, 0) + 1
        idle = max(idle, int(row.get("secs_since_last_cmd", "0")[:12] or 0))
    most = sorted(peers, key=lambda peer: -peers[peer])[:MOST_PEERS]
    return {"states": states, "peers": {peer: peers[peer] for peer in most}, "longest_idle_s": idle}


def ask(request: "dict[str, Any]") -> "dict[str, Any]":
    """One server. Raises Unread or OSError."""
    pid, addresses = request["pid"], request["addresses"]
    own = None if request["is_known"] else listeners(pid)
    paths = [address for address in addresses if address.startswith("/")]
    # Where a process says that it listens is only believed of one whose sockets cannot be read.
    addresses = paths + (own if own is not None else [each for each in addresses if each not in paths])
    if not addresses:
        raise Unread("it listens on no TCP port and no Unix socket")
    address = request["address"] = addresses[0]
    connection = Connection(address)
    replies: dict[str, Any] = {}
    for name in ("", "settings", "items", "slabs"):
        begun_s = time.monotonic()
        rows = connection.reply(("stats " + name).strip())
        if name == "":
            replies["answer_ns"] = int((time.monotonic() - begun_s) * 1e9)
            if rows is None or "pid" not in rows:
                raise Unread("it does not answer as memcached does")
            if rows["pid"] not in pids_of(pid):
                raise Unread(f"process {rows['pid']} answers at {address}, another one")
            replies["t_ns"] = time.time_ns() if hasattr(time, "time_ns") else int(time.time() * 1e9)
        replies[name or "stats"] = rows or {}
    count = int(replies["stats"].get("curr_connections", "0")[:12] or 0)
    if request["with_connections"] and count <= MOST_CONNECTIONS:
        rows = connection.reply("stats conns")
        replies["connections"] = connections(rows) if rows else None
    connection.socket.close()
    return {"pid": pid, "address": address, "replies": replies}


def answer(request: "dict[str, Any]") -> "dict[str, Any]":
    """As ``ask``; whatever goes wrong is the answer."""
    try:
        return ask(request)
    except Unread as error:
        why = str(error)
    except socket.timeout:  # noqa: UP041
        why = f"no answer within {LIMIT_S:.0f} s"
    except PermissionError:
        why = "its socket may not be opened by this user"
    except ConnectionResetError:
        why = ended(b"")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    return {"pid": request["pid"], "address": request.get("address"), "error": why}


def together(answers: "list[dict[str, Any]]") -> "list[str]":
    """All as JSON; the largest ones are left out until the rest fits."""
    texts = [json.dumps(each) for each in answers]
    while sum(map(len, texts)) > MOST_TOTAL:
        at = max(range(len(texts)), key=lambda number: len(texts[number]))
        known = {"pid": answers[at]["pid"], "address": answers[at].get("address")}
        texts[at] = json.dumps(dict(known, error="its answer leaves no room for those of other servers"))
    return texts


def main() -> None:
    """All servers at once."""
    requests = json.load(sys.stdin)
    found: dict[int, dict[str, Any]] = {}

    def work(number: int) -> None:
        found[number] = answer(requests[number])

    # Of a daemon: one that still waits, for a name or a server, does not keep the program.
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_S + 1
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    late = f"no answer within {LIMIT_S:.0f} s"
    answers = [found.get(n) or {"pid": each["pid"], "error": late} for n, each in enumerate(requests)]
    sys.stdout.write("[" + ", ".join(together(answers)) + "]")


if __name__ == "__main__":
    main()
