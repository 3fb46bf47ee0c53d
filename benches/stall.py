"""What a stall of two seconds looks like to each: headrace and sysbench, open and closed loop, on the same tables.

Of a load of constant 2,000 operations a second over T seconds, 1% wait longer than S - 0.01 x T x (1 - rate /
capacity) when the server stands still for S of them (tests/real/server/test_drive_stall.py derives it): that is
the true p99. A closed loop asks nothing meanwhile, and has one long operation a connection.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import driven
from tests.servers import Server, mariadb, open_folder

from headrace.experiment.workloads.tables import percentile_ns

MINUTES = 1
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "10"))
STALL_S = SECONDS / 5
STALL_AFTER_S = SECONDS * 0.3
RATE_OPS_S = 2000
CONNECTIONS = 8
TABLE = {"tables": 1, "table_size": 10_000}
OPEN = ("headrace, open loop", "sysbench --rate")

#: Operations, p99 and the longest in ms.
Figures = tuple[int, float, float]


def main() -> None:
    tools: dict[str, Callable[[Server], Figures]] = {
        OPEN[0]: lambda server: headrace(server, {"kind": "open", **constant(RATE_OPS_S)}),
        OPEN[1]: lambda server: sysbench(server, f"--rate={RATE_OPS_S}"),
        "headrace, closed loop": lambda server: headrace(server, {"kind": "closed"}),
        "sysbench (its default)": sysbench,
    }
    with open_folder() as folder, mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest")
        subprocess.run([*sysbench_argv(server), "prepare"], check=True, stdout=subprocess.DEVNULL)
        capacity_ops_s = headrace(server, {"kind": "closed"})[0] / SECONDS
        found = {name: during_a_stall(server, tool) for name, tool in tools.items()}
    print(f"{SECONDS:g} s of {RATE_OPS_S}/s, or of {CONNECTIONS} connections as fast as they can;")
    print(f"the server stands still for {STALL_S:g} s of them:")
    print(f"  {'':22} {'operations':>10} {'p99 ms':>9} {'true p99':>9} {'longest ms':>11}")
    for name, ((operations, p99_ms, longest_ms), stall_s) in found.items():
        true_ms = 1e3 * (stall_s - 0.01 * SECONDS * (1 - RATE_OPS_S / capacity_ops_s))
        truth = f"{true_ms:9.0f}" if name in OPEN else f"{'none':>9}"
        print(f"  {name:22} {operations:10} {p99_ms:9.2f} {truth} {longest_ms:11.0f}")
        if name == OPEN[0]:
            off = abs(p99_ms / true_ms - 1)
    print(
        f"  headrace's open loop is off by {off:.1%} (target at most 3%: {'met' if off <= 0.03 else 'MISSED'})"
    )


def constant(rate_ops_s: float) -> dict[str, Any]:
    return {"arrivals": "constant", "rate_ops_s": rate_ops_s}


def during_a_stall(server: Server, tool: Callable[[Server], Figures]) -> tuple[Figures, float]:
    """What a tool reports of a server that stands still once, and for how many seconds it really did."""
    stall_s = 0.0

    def stall() -> None:
        nonlocal stall_s
        begin_s = time.monotonic()
        server.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(STALL_S)
        finally:
            server.process.send_signal(signal.SIGCONT)
            stall_s = time.monotonic() - begin_s

    timer = threading.Timer(STALL_AFTER_S, stall)
    timer.start()
    try:
        figures = tool(server)
    finally:
        timer.join()
    return figures, stall_s


def headrace(server: Server, pacing: dict[str, Any]) -> Figures:
    spec = {
        "workload": {"kind": "oltp", "script": "point_select", **TABLE},
        "connections": CONNECTIONS,
        "seconds": SECONDS,
        "pacing": pacing,
    }
    login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
    run = driven(login, spec)
    p99_ns = percentile_ns(run.histogram("response"), 0.99)
    if p99_ns is None:
        raise SystemExit(f"no operation ended: {run.end}")
    longest_ns = max(row["response"]["max_ns"] or 0 for row in run.rows())
    return run.sum("count"), p99_ns / 1e6, longest_ns / 1e6


def sysbench(server: Server, *more: str) -> Figures:
    argv = [*sysbench_argv(server), "--percentile=99", f"--time={SECONDS:g}", *more, "run"]
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    operations = re.search(r"transactions:\s+(\d+)", output)
    longest = re.search(r"max:\s+([\d.]+)", output)
    p99 = re.search(r"99th percentile:\s+([\d.]+)", output)
    if operations is None or longest is None or p99 is None:
        raise SystemExit(f"sysbench printed no result: {output}")
    return int(operations[1]), float(p99[1]), float(longest[1])


def sysbench_argv(server: Server) -> list[str]:
    login = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    tables = [f"--{name.replace('_', '-')}={value}" for name, value in TABLE.items()]
    return ["sysbench", "oltp_point_select", *login, *tables, f"--threads={CONNECTIONS}"]


if __name__ == "__main__":
    main()
