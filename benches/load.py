"""`headrace-agent drive load` beside `sysbench prepare`: the same tables on the same server, in turns.

Four tables of 250,000 rows, and one of 1,000,000. sysbench fills over one connection unless told otherwise, and at
best over one a table (`--threads`). Target: at least 3 times as fast, the secondary index included.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, mariadb, open_folder

MINUTES = 4
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "3"))
SHAPES = ((4, 250_000), (1, 1_000_000))
TARGET = 3.0
AGENT = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")


def main() -> None:
    with (
        open_folder() as folder,
        mariadb(folder / "m", "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M") as server,
    ):
        for tables, table_size in SHAPES:
            compare(server, tables, table_size)


def compare(server: Server, tables: int, table_size: int) -> None:
    ours: list[float] = []
    theirs: dict[int, list[float]] = {threads: [] for threads in {1, tables}}
    for _ in range(ROUNDS):
        ours.append(timed(server, drive_argv(server), drive_spec(tables, table_size)))
        for threads, seconds in theirs.items():
            seconds.append(timed(server, sysbench_argv(server, tables, table_size, threads), ""))
    print(f"{tables} x {table_size:,} rows: headrace-agent drive load {statistics.median(ours):.1f} s")
    for threads, seconds in sorted(theirs.items()):
        ratios = [b / a for a, b in zip(ours, seconds, strict=True)]
        middle = statistics.median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} rounds"
        print(
            f"  sysbench prepare --threads={threads}: {statistics.median(seconds):.1f} s; "
            f"ours is {middle:.2f} times as fast ({spread}; "
            f"target at least {TARGET:g}: {'met' if middle >= TARGET else 'MISSED'})"
        )


def timed(server: Server, argv: list[str], stdin: str) -> float:
    """Seconds that a program needs to fill an empty database."""
    server.sql("DROP DATABASE IF EXISTS sbtest", "CREATE DATABASE sbtest")
    # What the server still writes of the load before is not this one's to wait for.
    deadline = time.monotonic() + 60
    while server.status("Innodb_buffer_pool_pages_dirty") > 1000 and time.monotonic() < deadline:
        time.sleep(0.5)
    begin = time.monotonic()
    subprocess.run(argv, input=stdin, text=True, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def drive_argv(server: Server) -> list[str]:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
    return [AGENT, "drive", "load", "-", *login]


def drive_spec(tables: int, table_size: int) -> str:
    return json.dumps({"workload": {"kind": "oltp", "tables": tables, "table_size": table_size}})


def sysbench_argv(server: Server, tables: int, table_size: int, threads: int) -> list[str]:
    login = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    shape = [f"--tables={tables}", f"--table-size={table_size}", f"--threads={threads}"]
    return ["sysbench", "oltp_read_write", *login, *shape, "prepare"]


if __name__ == "__main__":
    main()
