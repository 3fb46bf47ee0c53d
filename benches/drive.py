"""`headrace-agent drive` beside sysbench: same server, same tables, prepared point selects, TCP on loopback.

Rounds are interleaved and each figure is the median of the rounds' ratios, so that a machine that slows down in
between slows both. Targets: client CPU per point select at most 0.6 of sysbench's at 8 connections and 0.4 at
2,000, there in at most 40 MB; the highest throughput at least 1.15 of sysbench's; 5,000/s Poisson kept within
0.5% with p99 lateness below 200 us.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, mariadb, open_folder

MINUTES = 10
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "5"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "5"))
TABLE_SIZE = 100_000
#: The numbers of connections among which each looks for its highest throughput.
LADDER = (2, 4, 8, 16, 32, 64)
AGENT = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")


@dataclass(frozen=True)
class Cost:
    """What a client did and used."""

    operations: int
    rate_ops_s: float
    cpu_us: float
    memory_mb: float
    end: dict[str, Any]


Tool = Callable[[Server, int], Cost]


def main() -> None:
    options = ("--max-connections=2100", "--back-log=2000", "--innodb-buffer-pool-size=256M")
    with open_folder() as folder, mariadb(folder / "m", *options) as server:
        server.sql("CREATE DATABASE sbtest", "CREATE USER bench@'%'", "GRANT ALL ON *.* TO bench@'%'")
        subprocess.run([*sysbench_argv(server, 1), "prepare"], check=True, stdout=subprocess.DEVNULL)
        compare(server, 8, 0.6)
        compare(server, 2000, 0.4, memory_target_mb=40)
        compare_highest(server)
        keep_rate(server)
        for connections in (8, 2000):
            compare_io(server, connections)


def compare(server: Server, connections: int, target: float, memory_target_mb: float | None = None) -> None:
    """CPU a point select and throughput, ours and sysbench's, in turns."""
    ours, theirs = [], []
    for number in range(ROUNDS):
        both = in_turns(server, connections, number)
        ours.append(both[drive])
        theirs.append(both[sysbench])
    print(f"{connections} connections, closed loop:")
    for name, costs in (("headrace-agent drive", ours), ("sysbench", theirs)):
        print(
            f"  {name:21} {statistics.median(c.cpu_us for c in costs):6.2f} us CPU an operation, "
            f"{statistics.median(c.rate_ops_s for c in costs):8.0f} operations/s, "
            f"{max(c.memory_mb for c in costs):6.1f} MB"
        )
    say("CPU an operation", [a.cpu_us / b.cpu_us for a, b in zip(ours, theirs, strict=True)], at_most=target)
    say("throughput", [a.rate_ops_s / b.rate_ops_s for a, b in zip(ours, theirs, strict=True)])
    if memory_target_mb is not None:
        most = max(c.memory_mb for c in ours)
        print(
            f"  memory: {most:.1f} MB (target at most {memory_target_mb:g}: {met(most <= memory_target_mb)})"
        )


def compare_highest(server: Server) -> None:
    """The throughput at each rung of the ladder of connections, and the highest, each round by itself.

    At each rung both run, one after the other: a machine changes its speed within a ladder.
    """
    ratios: dict[int, list[float]] = {connections: [] for connections in LADDER}
    highest = []
    for number in range(ROUNDS):
        best = {drive: 0.0, sysbench: 0.0}
        for connections in LADDER:
            rates = {tool: cost.rate_ops_s for tool, cost in in_turns(server, connections, number).items()}
            ratios[connections].append(rates[drive] / rates[sysbench])
            best = {tool: max(best[tool], rate) for tool, rate in rates.items()}
        highest.append(best[drive] / best[sysbench])
    print("server and client on the same cores, by connections:")
    for connections in LADDER:
        say(f"{connections:3} connections", ratios[connections])
    say("highest throughput", highest, at_least=1.15)


def in_turns(server: Server, connections: int, number: int) -> dict[Tool, Cost]:
    """What both did; in every other round sysbench begins."""
    tools = (drive, sysbench) if number % 2 == 0 else (sysbench, drive)
    return {tool: tool(server, connections) for tool in tools}


def keep_rate(server: Server) -> None:
    runs = [
        drive(server, 32, {"kind": "open", "arrivals": "poisson", "rate_ops_s": 5000}) for _ in range(ROUNDS)
    ]
    error = statistics.median(abs(run.rate_ops_s / 5000 - 1) for run in runs)
    late_us = statistics.median(run.end["lateness"]["p99_ns"] / 1e3 for run in runs)
    # A Poisson process has sqrt(n) more or fewer arrivals by its nature: that is no error of the driver's.
    chance = 2 / (5000 * SECONDS) ** 0.5
    print("5,000/s Poisson, 32 connections:")
    print(
        f"  rate off by {error:.2%} (target 0.5% plus {chance:.2%} of chance: {met(error <= 0.005 + chance)})"
    )
    print(f"  p99 lateness {late_us:.0f} us (target below 200: {met(late_us < 200)})")


def compare_io(server: Server, connections: int) -> None:
    """The driver over io_uring and over epoll: which of them it should use."""
    ratios = []
    for _ in range(ROUNDS):
        uring, epoll = (drive(server, connections, io=io).cpu_us for io in ("uring", "epoll"))
        ratios.append(uring / epoll)
    print(f"io_uring beside epoll, {connections} connections:")
    print(f"  CPU an operation: {statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})")


def drive(
    server: Server, connections: int, pacing: dict[str, Any] | None = None, io: str | None = None
) -> Cost:
    spec = {
        "workload": {"kind": "oltp", "script": "point_select", "tables": 1, "table_size": TABLE_SIZE},
        "connections": connections,
        "seconds": SECONDS,
        "pacing": pacing or {"kind": "closed"},
    }
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "bench"]
    argv = [AGENT, "drive", "run", "-", *login, "--mysql-database", "sbtest"]
    environment = os.environ if io is None else {**os.environ, "HEADRACE_IO": io}
    output, cpu_s, memory_mb = measured(argv, json.dumps(spec), environment)
    lines = [json.loads(line) for line in output.splitlines()]
    operations = sum(line["count"] for line in lines if line["kind"] == "interval")
    end = lines[-1]
    window_s = (end["window_end_ns"] - end["window_start_ns"]) / 1e9
    return Cost(operations, operations / window_s, cpu_s / operations * 1e6, memory_mb, end)


def sysbench(server: Server, connections: int) -> Cost:
    argv = [*sysbench_argv(server, connections), f"--time={SECONDS:g}", "run"]
    output, cpu_s, memory_mb = measured(argv, "", os.environ)
    match = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", output)
    if match is None:
        raise SystemExit(f"sysbench printed no result: {output}")
    operations = int(match[1])
    return Cost(operations, float(match[2]), cpu_s / operations * 1e6, memory_mb, {})


def sysbench_argv(server: Server, connections: int) -> list[str]:
    login = ["--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=bench"]
    tables = ["--tables=1", f"--table-size={TABLE_SIZE}", "--rand-type=uniform", f"--threads={connections}"]
    return ["sysbench", "oltp_point_select", "--db-driver=mysql", *login, *tables]


def measured(
    argv: list[str], stdin: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, float, float]:
    """Standard output, CPU seconds (connecting included) and peak memory in MB of a program."""
    memory_kb = 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, text=True, env=environment)
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        while True:
            # ru_maxrss would be that of this Python, from which the program was forked.
            with contextlib.suppress(OSError, IndexError):
                status_text = Path(f"/proc/{process.pid}/status").read_text()
                memory_kb = max(memory_kb, int(status_text.split("VmHWM:")[1].split()[0]))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.2)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{argv[0]} ended with {process.returncode}")
        output.seek(0)
        return output.read(), usage.ru_utime + usage.ru_stime, memory_kb / 1024


def say(what: str, ratios: list[float], at_most: float | None = None, at_least: float | None = None) -> None:
    middle = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    target = ""
    if at_most is not None:
        target = f"; target at most {at_most:g}: {met(middle <= at_most)}"
    if at_least is not None:
        target = f"; target at least {at_least:g}: {met(middle >= at_least)}"
    print(f"  {what}: {middle:.2f}x sysbench ({spread} over {len(ratios)} rounds{target})")


def met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


if __name__ == "__main__":
    main()
