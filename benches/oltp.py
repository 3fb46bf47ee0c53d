"""`headrace-agent drive` beside sysbench in what they ask of a server: statements per transaction, and throughput.

The same tables, `read_write` in transactions and without, keys by sysbench 1.0's default law. Rounds are
interleaved. Targets: every kind of statement equally often within 1%; throughput at least 0.95 of sysbench's.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import driven
from tests.servers import Server, mariadb, open_folder

MINUTES = 3
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "5"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "5"))
TABLE = {"tables": 1, "table_size": 100_000}
CONNECTIONS = 8
STATEMENTS = ("select", "insert", "update", "delete", "begin", "commit")

#: Transactions per second, and statements of each kind per transaction.
Figures = tuple[float, dict[str, float]]


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m", "--innodb-buffer-pool-size=256M") as server:
        server.sql("CREATE DATABASE sbtest")
        subprocess.run([*sysbench_argv(server), "prepare"], check=True, stdout=subprocess.DEVNULL)
        for has_transactions in (True, False):
            compare(server, has_transactions)


def compare(server: Server, has_transactions: bool) -> None:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(headrace(server, has_transactions))
        theirs.append(sysbench(server, has_transactions))
    print(f"read_write {'in transactions' if has_transactions else 'without transactions'}:")
    for name in STATEMENTS:
        own, peer = (statistics.median(counts[name] for _, counts in runs) for runs in (ours, theirs))
        # Reading the counters commits once.
        is_met = abs(own - peer) <= 0.01 * max(own, peer, 1)
        print(f"  {name:7} {own:6.2f} and {peer:6.2f} per transaction: {'met' if is_met else 'MISSED'}")
    ratios = [a / b for (a, _), (b, _) in zip(ours, theirs, strict=True)]
    middle = statistics.median(ratios)
    print(
        f"  throughput: {middle:.2f}x sysbench ({min(ratios):.2f} to {max(ratios):.2f}; "
        f"target at least 0.95: {'met' if middle >= 0.95 else 'MISSED'})"
    )


def headrace(server: Server, has_transactions: bool) -> Figures:
    spec: dict[str, Any] = {
        "workload": {
            "kind": "oltp",
            "transactions": has_transactions,
            "distribution": {"kind": "special"},
            **TABLE,
        },
        "connections": CONNECTIONS,
        "seconds": SECONDS,
    }
    before = counters(server)
    run = driven(
        ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"], spec
    )
    done = run.sum("count")
    in_window = sum(row["count"] for row in run.rows() if row["kind"] == "interval")
    return in_window / run.window_s, grown(server, before, done)


def sysbench(server: Server, has_transactions: bool) -> Figures:
    argv = [*sysbench_argv(server), f"--threads={CONNECTIONS}", f"--time={SECONDS:g}", "--rand-type=special"]
    # Without transactions two threads may put one row back; sysbench would end with the first.
    argv += [] if has_transactions else ["--skip_trx=on", "--mysql-ignore-errors=1213,1020,1205,1062"]
    before = counters(server)
    output = subprocess.run([*argv, "run"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", output)
    if found is None:
        raise SystemExit(f"sysbench printed no result: {output}")
    return float(found[2]), grown(server, before, int(found[1]))


def counters(server: Server) -> dict[str, int]:
    status = {name.lower(): value for name, value in server.sql("SHOW GLOBAL STATUS LIKE 'Com\\_%'")}
    return {name: int(status[f"com_{name}"]) for name in STATEMENTS}


def grown(server: Server, before: dict[str, int], transactions: int) -> dict[str, float]:
    return {name: (value - before[name]) / transactions for name, value in counters(server).items()}


def sysbench_argv(server: Server) -> list[str]:
    login = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    tables = [f"--{name.replace('_', '-')}={value}" for name, value in TABLE.items()]
    return ["sysbench", "oltp_read_write", *login, *tables]


if __name__ == "__main__":
    main()
