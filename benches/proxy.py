"""What `headrace-agent proxy` costs: the driver's prepared point selects through it and past it, in turns.

Same server, TCP on loopback, everything on this machine. Throughput and latency as ratios of the direct connection
(medians over the rounds); CPU of the proxy an operation, without and with a recording.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import drive, driven
from tests.servers import Server, mariadb, open_folder

from headrace.experiment.workloads.tables import percentile_ns

MINUTES = 1
NEEDS = {"mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "3"))
CONNECTIONS = 8
TABLE = {"kind": "oltp", "tables": 1, "table_size": 10_000, "script": "point_select"}
AGENT = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")


@dataclass(frozen=True)
class Cost:
    """One run of the driver."""

    operations: int
    rate_ops_s: float
    p50_us: float
    p99_us: float
    proxy_cpu_us: float = 0.0
    bytes_an_event: float = 0.0


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m", "--innodb-buffer-pool-size=64M") as server:
        server.sql("CREATE DATABASE sbtest", "CREATE USER bench@'%'", "GRANT ALL ON *.* TO bench@'%'")
        drive(login(server.port), {"workload": TABLE}, verb="load")
        runs: dict[str, list[Cost]] = {"direct": [], "proxy": [], "proxy, recording": []}
        for _ in range(ROUNDS):
            runs["direct"].append(measure(server.port))
            for name, records in (("proxy", False), ("proxy, recording", True)):
                runs[name].append(through(server, folder, records))
        report(runs)


def login(port: int) -> list[str]:
    return [
        *("--mysql-host", "127.0.0.1", "--mysql-port", str(port), "--mysql-user", "bench"),
        *("--mysql-database", "sbtest", "--mysql-tls", "disabled"),
    ]


def measure(port: int) -> Cost:
    run = driven(login(port), {"workload": TABLE, "connections": CONNECTIONS, "seconds": SECONDS})
    histogram = run.histogram("response")
    count = sum(histogram.values())
    p50_us, p99_us = (percentile_ns(histogram, share) / 1e3 for share in (0.5, 0.99))
    return Cost(count, count / SECONDS, p50_us, p99_us)


@contextlib.contextmanager
def proxy(server: Server, *options: str) -> Iterator[tuple[int, dict[str, Any]]]:
    argv = [AGENT, "proxy", "--listen", "127.0.0.1:0", "--server", f"127.0.0.1:{server.port}", *options]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
    summary: dict[str, Any] = {}
    try:
        yield port, summary
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    summary.update(json.loads(rest))


def through(server: Server, folder: Path, records: bool) -> Cost:
    recording = folder / "bench.recording"
    with proxy(server, *(("-o", str(recording), "--force") if records else ())) as (port, summary):
        cost = measure(port)
    if summary["gaps"] or summary["coverage"]["damaged"]:
        print(f"  the recording has gaps: {summary['gaps']}, {summary['gap_bytes']} bytes")
    size = recording.stat().st_size if records else 0
    events = summary["coverage"]["events"]
    cpu_us = summary["cpu_s"] / cost.operations * 1e6
    return Cost(cost.operations, cost.rate_ops_s, cost.p50_us, cost.p99_us, cpu_us, size / events)


def report(runs: dict[str, list[Cost]]) -> None:
    print(
        f"{CONNECTIONS} connections, closed loop of prepared point selects, {ROUNDS} rounds of {SECONDS:.0f} s:"
    )
    for name, costs in runs.items():
        ratios = [a.rate_ops_s / b.rate_ops_s for a, b in zip(costs, runs["direct"], strict=True)]
        print(
            f"  {name:17} {statistics.median(c.rate_ops_s for c in costs):8.0f} operations/s "
            f"({statistics.median(ratios):4.2f} of direct), "
            f"p50 {statistics.median(c.p50_us for c in costs):6.0f} us, "
            f"p99 {statistics.median(c.p99_us for c in costs):6.0f} us, "
            f"CPU of the proxy {statistics.median(c.proxy_cpu_us for c in costs):5.2f} us an operation, "
            f"{statistics.median(c.bytes_an_event for c in costs):5.1f} bytes an event"
        )


if __name__ == "__main__":
    main()
