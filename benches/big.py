"""What watching costs a big server: 100,000 tables, 5,000 connections, every instrument of performance_schema.

The server's CPU over a quiet window: with nothing, and with what `headrace hunt` and `headrace top` run while they
watch, `headrace-agent sample` and `statements --every`; and what `facts` costs, which is read once. Each sampler's
own time is in its lines. Target: watching takes at most 1% of a core of the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.programs import agent_path
from tests.servers import Server, find_server, open_folder, server
from tests.traces import cpu_s

MINUTES = 30
NEEDS = {"mariadbd": "mariadb-server"}

KINDS = ("mariadb-10.11", "mysql-8.0")
TABLES = int(os.environ.get("HEADRACE_BENCH_TABLES", "100000"))
CONNECTIONS = int(os.environ.get("HEADRACE_BENCH_CONNECTIONS", "5000"))
SECONDS = int(os.environ.get("HEADRACE_BENCH_SECONDS", "30"))
#: Classes of statements: more than performance_schema keeps.
DIGESTS = 12_000
WORKERS = 4
SHOWN = 6
TARGET_PERCENT = 1.0


def main() -> None:
    # Not in memory: 100,000 tables take 10 GB.
    with open_folder() as folder:
        for kind in KINDS:
            program = find_server(kind)
            if isinstance(program, str):
                print(f"{kind}: {program}")
                continue
            with server(kind, program, folder / kind[:7], *options(kind)) as found, filled(found):
                watched(kind, found, folder)


def options(kind: str) -> list[str]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2 * CONNECTIONS:
        raise SystemExit(f"{CONNECTIONS} connections need `ulimit -n` of {2 * CONNECTIONS}, not {most}")
    given = [
        "--performance-schema=ON", "--performance-schema-instrument=%=ON",
        f"--max-connections={CONNECTIONS + 100}", "--innodb-buffer-pool-size=512M", "--innodb-monitor-enable=all",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-doublewrite=0",
    ]  # fmt: skip
    return given if kind.startswith("mariadb") else [*given, "--innodb-redo-log-capacity=1G"]


@contextlib.contextmanager
def filled(on: Server) -> Iterator[None]:
    """With tables, classes of statements, and connections that do nothing."""
    start = time.monotonic()
    on.sql("CREATE DATABASE big")
    workers = [threading.Thread(target=make_tables, args=(on, number)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    [(made,)] = on.sql("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'big'")
    if made != TABLES:
        raise SystemExit(f"{made} tables of {TABLES} were made")
    on.sql(*(f"SELECT 1 AS c{number}" for number in range(DIGESTS)))
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(contextlib.closing(connect(on)))
        print(f"{TABLES:,} tables, {CONNECTIONS:,} connections after {time.monotonic() - start:.0f} s")
        # What was just made is still being written and purged.
        time.sleep(10)
        yield


def make_tables(on: Server, first: int) -> None:
    with contextlib.closing(connect(on)) as connection, connection.cursor() as cursor:
        for number in range(first, TABLES, WORKERS):
            cursor.execute(f"CREATE TABLE big.t{number} (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY (v))")


def connect(on: Server) -> pymysql.Connection[pymysql.cursors.Cursor]:
    return pymysql.connect(unix_socket=on.socket, user="root", ssl_disabled=True)


def watched(kind: str, on: Server, folder: Path) -> None:
    login = ["--mysql-socket", on.socket, "--mysql-user", "root"]
    lines = folder / "sample.jsonl"
    sample = [agent_path(), "sample", "--duration", f"{SECONDS}s", "--output", str(lines), *login]
    statements = [agent_path(), "statements", "--every", "1s", "--duration", f"{SECONDS}s", *login]
    idle = cpu_percent(on, lambda: time.sleep(SECONDS))
    found = {
        "sample": cpu_percent(on, lambda: run(sample)) - idle,
        "statements --every 1s": cpu_percent(on, lambda: run(statements)) - idle,
    }
    print(f"{kind}: {idle:.2f}% of a core without us")
    for name, percent in found.items():
        print(
            f"  {name:26} {percent:5.2f}% of a core of the server (target {TARGET_PERCENT}%: {met(percent)})"
        )
    for name, costs in sorted(costs_ms(lines).items(), key=lambda pair: -sum(pair[1]))[:SHOWN]:
        p99 = costs[max(-(-len(costs) * 99 // 100) - 1, 0)]
        print(
            f"    {name:24} {len(costs):3} times, median {costs[len(costs) // 2]:7.2f} ms, p99 {p99:7.2f} ms"
        )
    before, start = cpu_s(on.pid), time.monotonic()
    run([agent_path(), "facts", *login])
    print(
        f"  facts, once: {time.monotonic() - start:.1f} s, {cpu_s(on.pid) - before:.2f} s CPU of the server"
    )


def costs_ms(lines: Path) -> dict[str, list[float]]:
    """Sampler -> how long each of its samples took, ascending."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in map(json.loads, lines.read_text().splitlines()):
        if "cost_ns" in line:
            found[line["sampler"]].append(line["cost_ns"] / 1e6)
    return {name: sorted(costs) for name, costs in found.items()}


def cpu_percent(on: Server, work: Callable[[], None]) -> float:
    before, start = cpu_s(on.pid), time.monotonic()
    work()
    return 100 * (cpu_s(on.pid) - before) / (time.monotonic() - start)


def run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def met(percent: float) -> str:
    return "met" if percent <= TARGET_PERCENT else "MISSED"


if __name__ == "__main__":
    main()
