"""TPC-C by `headrace-agent drive` beside sysbench-tpcc: new orders a minute on the same server, and the load.

HEADRACE_SYSBENCH_TPCC names a checkout of Percona-Lab/sysbench-tpcc, which no Debian package has. Both have two
warehouses and as many connections, no think times, no foreign keys, REPEATABLE READ; rounds are interleaved. New
orders are counted in the server's own tables (the sum of d_next_o_id), so that no tool's arithmetic matters. What
a new order costs is printed, too: statements, and CPU time of client and server. Target: within 10%, or
docs/reference/tpcc.md explains the difference.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import drive
from tests.servers import Server, mariadb, open_folder
from tests.traces import cpu_s

MINUTES = 9
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

SECONDS = int(os.environ.get("HEADRACE_BENCH_SECONDS", "20"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "7"))
PEER = os.environ.get("HEADRACE_SYSBENCH_TPCC", "")
WAREHOUSES, CONNECTIONS, LOADERS = 2, 8, 2
#: sysbench-tpcc sleeps so long between creating its tables and filling them.
ITS_SLEEP_S = 30
WITHIN = 0.10
SERVER = ("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G", "--innodb-flush-log-at-trx-commit=2")
#: Database of each, and the table that counts its new orders.
OURS, THEIRS = ("ours", "tpcc_district"), ("theirs", "district1")


def main() -> None:
    if not (Path(PEER) / "tpcc.lua").is_file():
        print("not run: HEADRACE_SYSBENCH_TPCC is not a checkout of Percona-Lab/sysbench-tpcc")
        return
    with open_folder() as folder, mariadb(folder / "m", *SERVER) as server:
        server.sql(*(f"CREATE DATABASE {name}" for name, _ in (OURS, THEIRS)))
        compare_loads(server)
        compare_runs(server)


class Side(NamedTuple):
    """One tool: its database, the table that counts its new orders, and what runs it."""

    name: str
    database: str
    table: str
    run: Callable[[], object]


class Figures(NamedTuple):
    """New orders a minute; and of one (with its share of the other transactions) statements, and milliseconds of
    CPU time of client and server."""

    per_minute: float
    statements: float
    client_ms: float
    server_ms: float


def compare_loads(server: Server) -> None:
    own = timed(lambda: drive(login(server), spec(LOADERS), verb="load"))
    peer = timed(lambda: sysbench(server, "prepare", LOADERS))
    print(
        f"load of {WAREHOUSES} warehouses over {LOADERS} connections: headrace-agent drive {own:.1f} s, "
        f"sysbench-tpcc {peer:.1f} s, of which it sleeps {ITS_SLEEP_S}: "
        f"{(peer - ITS_SLEEP_S) / own:.1f} times as fast without that"
    )


def compare_runs(server: Server) -> None:
    sides = (
        Side("headrace-agent drive", *OURS, lambda: drive(login(server), spec(CONNECTIONS))),
        Side("sysbench-tpcc", *THEIRS, lambda: sysbench(server, "run", CONNECTIONS)),
    )
    seen: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for number in range(ROUNDS):
        for side in sides if number % 2 else reversed(sides):
            seen[side.name].append(measured(server, side))
    print(f"new orders over {CONNECTIONS} connections:")
    for name, runs in seen.items():
        middle = Figures(*(statistics.median(column) for column in zip(*runs, strict=True)))
        print(
            f"  {name:20} {middle.per_minute:8,.0f} a minute; of one: {middle.statements:5.1f} statements, "
            f"{middle.client_ms:.2f} ms of the client's CPU time, {middle.server_ms:.2f} ms of the server's"
        )
    ours, theirs = ([run.per_minute for run in runs] for runs in seen.values())
    ratios = [own / peer for own, peer in zip(ours, theirs, strict=True)]
    middle_ratio = statistics.median(ratios)
    print(
        f"  {middle_ratio:.2f} times sysbench-tpcc ({min(ratios):.2f} to {max(ratios):.2f} over {ROUNDS} rounds; "
        f"target within {WITHIN:.0%}: {'met' if abs(middle_ratio - 1) <= WITHIN else 'MISSED'})"
    )


def measured(server: Server, side: Side) -> Figures:
    def counts() -> tuple[int, int, float, float]:
        orders = server.sql(f"SELECT SUM(d_next_o_id) FROM {side.database}.{side.table}")[0][0]
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = client.ru_utime + client.ru_stime
        return int(str(orders)), server.status("Questions"), seconds, cpu_s(server.pid)

    before = counts()
    side.run()
    orders, asked, client_s, server_s = (after - first for after, first in zip(counts(), before, strict=True))
    return Figures(orders / SECONDS * 60, asked / orders, 1e3 * client_s / orders, 1e3 * server_s / orders)


def timed(run: Callable[[], object]) -> float:
    begin = time.monotonic()
    run()
    return time.monotonic() - begin


def spec(connections: int) -> dict[str, object]:
    return {
        "workload": {"kind": "tpcc", "warehouses": WAREHOUSES},
        "connections": connections,
        "seconds": SECONDS,
    }


def login(server: Server) -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", OURS[0]]


def sysbench(server: Server, command: str, threads: int) -> None:
    subprocess.run(
        [
            *(
                "sysbench",
                "tpcc.lua",
                "--db-driver=mysql",
                f"--mysql-socket={server.socket}",
                "--mysql-user=root",
            ),
            *(f"--mysql-db={THEIRS[0]}", "--tables=1", f"--scale={WAREHOUSES}", "--use_fk=0"),
            *(f"--threads={threads}", f"--time={SECONDS}", "--mysql-ignore-errors=1213,1020,1205", command),
        ],
        cwd=PEER,
        check=True,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
