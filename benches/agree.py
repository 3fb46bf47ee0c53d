"""Do the driver and sysbench measure the same? Interleaved trials, closed loop, equal concurrency, same tables.

A load that waits for the disk (write_only, flush at every commit), so that neither client's own CPU decides the
result. The driver runs twice in every block: what these two differ by is the noise floor. Each figure is the
geometric mean of the blocks' ratios with its 95% interval (Student, over blocks). They agree when the interval
holds 1 or lies within the noise floor.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.driver import driven
from tests.servers import Server, mariadb, open_folder

from headrace.experiment.workloads.tables import percentile_ns

MINUTES = 3
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "5"))
BLOCKS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "6"))
CONNECTIONS = 4
TABLES = {"tables": 2, "table_size": 50_000}

#: Throughput in operations a second, then p50 and p95 in ms.
Figures = tuple[float, float, float]


def main() -> None:
    options = ("--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=1")
    order = random.Random(3)
    found: dict[str, list[Figures]] = {"headrace": [], "headrace again": [], "sysbench": []}
    tools: dict[str, Callable[[Server], Figures]] = {
        "headrace": drive,
        "headrace again": drive,
        "sysbench": sysbench,
    }
    with open_folder() as folder, mariadb(folder / "m", *options) as server:
        server.sql("CREATE DATABASE sbtest")
        subprocess.run([*sysbench_argv(server), "prepare"], check=True, stdout=subprocess.DEVNULL)
        sysbench(server)  # the first of all pays for cold caches
        for _ in range(BLOCKS):
            for name in order.sample(list(tools), k=len(tools)):
                found[name].append(tools[name](server))
    print(f"write_only, {CONNECTIONS} connections, {BLOCKS} blocks of {SECONDS:g} s a tool:")
    logs = {name: np.log(figures) for name, figures in found.items()}
    for column, what in enumerate(("throughput", "p50", "p95")):
        floor, low, high = interval(logs["headrace again"][:, column] - logs["headrace"][:, column])
        ours = (logs["headrace"][:, column] + logs["headrace again"][:, column]) / 2
        ratio, ratio_low, ratio_high = interval(ours - logs["sysbench"][:, column])
        agree = ratio_low <= 1 <= ratio_high or (low <= ratio_low and ratio_high <= high)
        print(
            f"  {what:10} headrace / sysbench {ratio:.3f} ({ratio_low:.3f} to {ratio_high:.3f}), "
            f"headrace / itself {floor:.3f} ({low:.3f} to {high:.3f}): {'agree' if agree else 'DIFFER'}"
        )


def interval(logs: np.ndarray) -> tuple[float, float, float]:
    """The mean ratio and its 95% interval from the logarithms of the blocks' ratios."""
    half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)
    middle = logs.mean()
    return float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half))


def drive(server: Server) -> Figures:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
    spec = {
        "workload": {"kind": "oltp", "script": "write_only", **TABLES},
        "connections": CONNECTIONS,
        "warmup_s": 1,
        "seconds": SECONDS,
    }
    run = driven(login, spec)
    rows = [row for row in run.rows() if row["t_s"] >= 0]
    counts: dict[int, int] = {}
    for row in rows:
        for bucket, count in row["service"]["buckets"]:
            counts[bucket] = counts.get(bucket, 0) + count
    window_s = (run.end["window_end_ns"] - run.end["window_start_ns"]) / 1e9
    p50_ms, p95_ms = (percentile_ns(counts, share) / 1e6 for share in (0.5, 0.95))
    return sum(r["count"] for r in rows) / window_s, p50_ms, p95_ms


def sysbench(server: Server) -> Figures:
    """Its own histogram has bins 1.8% wide; the percentile is computed from it as from ours."""
    # sysbench has no warm-up: a run of its own stands for it.
    subprocess.run([*sysbench_argv(server), "--time=1", "run"], check=True, stdout=subprocess.DEVNULL)
    argv = [*sysbench_argv(server), f"--time={SECONDS:g}", "--histogram", "run"]
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    rate = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", output)
    bins = [
        (float(ms), int(n)) for ms, n in re.findall(r"^\s*([\d.]+) \|[* ]*\s(\d+)$", output, re.MULTILINE)
    ]
    if rate is None or not bins:
        raise SystemExit(f"sysbench printed no result: {output}")
    reached = np.cumsum([n for _, n in bins])
    p50, p95 = (bins[int(np.searchsorted(reached, share * reached[-1]))][0] for share in (0.5, 0.95))
    return float(rate[1]), p50, p95


def sysbench_argv(server: Server) -> list[str]:
    login = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    size = [f"--tables={TABLES['tables']}", f"--table-size={TABLES['table_size']}"]
    return ["sysbench", "oltp_write_only", *login, *size, "--rand-type=uniform", f"--threads={CONNECTIONS}"]


if __name__ == "__main__":
    main()
