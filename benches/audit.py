"""The driver's latencies against the kernel's own timestamps of the same requests and replies.

A relay between driver and server has SO_TIMESTAMPING on its sockets towards the driver. The kernel stamps each
request on its arrival (on loopback that is within the driver's send) and each reply on its departure (on loopback
it arrives within that). The driver should have measured the time between them. Targets: within 20 us at p50 and
within 50 us at p99. On cores shared by relay, server and driver, the driver is also late for lack of a core.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import drive, driven
from tests.servers import Server, mariadb, open_folder

from headrace.experiment.workloads.tables import percentile_ns, to_histogram

MINUTES = 1
NEEDS = {"mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "5"))
TABLE = {"tables": 1, "table_size": 10_000}
#: Connections and operations per second, all of them: below what the relay can carry.
LOADS = ((1, 0), (8, 1000), (32, 1000))

# linux/net_tstamp.h and socket(7): the standard library does not name them.
SO_TIMESTAMPING = 37
TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_TSONLY = 1 << 1, 1 << 3, 1 << 4, 1 << 11
MSG_ERRQUEUE = 0x2000


@dataclass
class Leg:
    """A connection of the driver's, and the one to the server that carries it on."""

    driver: socket.socket
    server: socket.socket
    asked_ns: deque[int] = field(default_factory=deque)


class Relay:
    """Carries bytes between a driver and a server; ``took_ns`` are the kernel's times from request to reply."""

    def __init__(self, server_port: int) -> None:
        self.took_ns: list[int] = []
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._ends, self._end = os.pipe()
        self._selector.register(self._ends, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._carry)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._end, b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._ends)
        os.close(self._end)

    def _carry(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd == self._ends:
                    return
                else:
                    self._pass_on(key.data, key.fileobj)

    def _accept(self) -> None:
        driver, _ = self._listener.accept()
        flags = TX_SOFTWARE | RX_SOFTWARE | SOFTWARE | OPT_TSONLY
        driver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
        server = socket.create_connection(("127.0.0.1", self._server_port))
        for end in (driver, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        leg = Leg(driver, server)
        for end in (driver, server):
            self._selector.register(end, selectors.EVENT_READ, leg)

    def _pass_on(self, leg: Leg, end: object) -> None:
        if end is leg.driver:
            # A stamp of a reply that has left makes the socket readable, too.
            self._take_stamp(leg)
            with contextlib.suppress(BlockingIOError):
                data, ancillary, _, _ = leg.driver.recvmsg(65536, 512, socket.MSG_DONTWAIT)
                if not data:
                    self._drop(leg)
                    return
                leg.asked_ns += stamps(ancillary)[:1]
                leg.server.sendall(data)
        else:
            data = leg.server.recv(65536)
            if not data:
                self._drop(leg)
                return
            leg.driver.sendall(data)
            self._take_stamp(leg)

    def _take_stamp(self, leg: Leg) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                _, ancillary, _, _ = leg.driver.recvmsg(0, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
                for left_ns in stamps(ancillary):
                    # The request before it; a reply in several parts is the first part's.
                    if leg.asked_ns:
                        self.took_ns.append(left_ns - leg.asked_ns.popleft())

    def _drop(self, leg: Leg) -> None:
        for end in (leg.driver, leg.server):
            self._selector.unregister(end)
            end.close()


def stamps(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The kernel's software timestamps among control messages, in ns."""
    found = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING:
            seconds, ns = struct.unpack_from("qq", data)
            found.append(seconds * 10**9 + ns)
    return found


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest", "CREATE USER bench@'%'", "GRANT ALL ON *.* TO bench@'%'")
        drive(login(server.port), {"workload": {"kind": "oltp", **TABLE}}, verb="load")
        print("the driver's service times against the kernel's timestamps:")
        for connections, rate_ops_s in LOADS:
            compare(server, connections, rate_ops_s)


def compare(server: Server, connections: int, rate_ops_s: int) -> None:
    spec = {
        "workload": {"kind": "oltp", "script": "point_select", **TABLE},
        "connections": connections,
        "seconds": SECONDS,
        "pacing": {"kind": "open", "rate_ops_s": rate_ops_s} if rate_ops_s else {"kind": "closed"},
    }
    with Relay(server.port) as relay:
        run = driven(login(relay.port), spec)
    count = run.sum("count")
    # Logging in and preparing came before.
    kernel = to_histogram(relay.took_ns[-count:], [1] * min(count, len(relay.took_ns)))
    figures = []
    for name, quantile, limit_us in (("p50", 0.5, 20), ("p99", 0.99, 50)):
        own, true = (percentile_ns(h, quantile) for h in (run.histogram("service"), kernel))
        if own is None or true is None:
            raise SystemExit("nothing was measured")
        off_us = (own - true) / 1e3
        is_met = "met" if abs(off_us) <= limit_us else "MISSED"
        figures.append(f"{name} {true / 1e3:.0f} us, off by {off_us:+.0f} us (target {limit_us}: {is_met})")
    load = f"{rate_ops_s}/s" if rate_ops_s else "closed loop"
    print(f"  {connections:2} connections, {load:11} {count:6} operations: {'; '.join(figures)}")
    unseen_ns = run.end["unseen"]["p99_ns"]
    unseen = (
        "every reply has the kernel's time" if unseen_ns is None else f"unseen p99 {unseen_ns / 1e3:.0f} us"
    )
    waited = run.end["waited_for_cpu"]
    print(f"     {unseen}; waited for a core {waited:.0%} of the time")


def login(port: int) -> list[str]:
    network = ["--mysql-host", "127.0.0.1", "--mysql-port", str(port), "--mysql-user", "bench"]
    return [*network, "--mysql-database", "sbtest"]


if __name__ == "__main__":
    main()
