"""What makes a replica apply faster, as docs/howto/binary-logs.md asks it: a ladder of its own settings.

Sysbench writes on a source; its binary log is then applied by a server of the same kind with the settings of each
rung, each from the same data, in blocks. Target: all together apply at least 2 times what the stock settings do,
with an interval that is above 2 as a whole.

    HEADRACE_BENCH_SERVERS="mariadb-10.11 mysql-8.0" python benches/replica.py
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers import Server, find_server, open_folder, started

MINUTES = 12
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server", "mariadb-dump": "mariadb-client"}

KINDS = tuple(os.environ.get("HEADRACE_BENCH_SERVERS", "mariadb-10.11").split())
SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "10"))
BLOCKS = int(os.environ.get("HEADRACE_BENCH_BLOCKS", "4"))
WRITTEN_S = 60
THREADS = 16
TARGET = 2.0
#: The source commits as fast as it can, because its log must outlast a trial.
SOURCE = ("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--innodb-buffer-pool-size=512M")
FAST = ("--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0")
FLUSH = {"server.innodb_flush_log_at_trx_commit": 2}
POOL = {"server.innodb_buffer_pool_size": "512M"}
#: Parallel appliers that commit in order, by vendor.
APPLIERS = {
    "mariadb": {"server.slave_parallel_threads": 8, "server.slave_parallel_mode": "optimistic"},
    "mysql": {"server.replica_parallel_workers": 8},
}
ONE = {"mariadb": {"server.slave_parallel_threads": 0}, "mysql": {"server.replica_parallel_workers": 1}}


def main() -> None:
    for kind in KINDS:
        with open_folder() as folder:
            logs, dump = written(kind, folder)
            measure(kind, folder, logs, dump)


def written(kind: str, folder: Path) -> tuple[list[Path], Path]:
    """The binary logs of a source that was written to, and a dump of its data before that."""
    with started(kind, folder / "source", *SOURCE, *FAST) as source:
        source.sql("CREATE DATABASE sbtest")
        sysbench(source, "prepare")
        dump = folder / "before.sql"
        with dump.open("wb") as file:
            login = ["-S", source.socket, "-u", "root", "--skip-ssl"]
            subprocess.run(["mariadb-dump", *login, "--databases", "sbtest"], stdout=file, check=True)
        source.sql("FLUSH BINARY LOGS")
        first = names(source)[-1]
        print(f"{kind}, the source: {sysbench(source, 'run')} transactions per second", flush=True)
        source.sql("FLUSH BINARY LOGS")
        basename = Path(str(source.sql("SELECT @@log_bin_basename")[0][0]))
        kept = [name for name in names(source)[:-1] if name >= first]
        return [Path(shutil.copy(basename.with_name(name), folder / name)) for name in kept], dump


def names(source: Server) -> list[str]:
    return [str(row[0]) for row in source.sql("SHOW BINARY LOGS")]


def sysbench(source: Server, command: str) -> str:
    login = ["--db-driver=mysql", f"--mysql-socket={source.socket}", "--mysql-user=root"]
    shape = ["--tables=4", "--table-size=50000", f"--threads={THREADS}", f"--time={WRITTEN_S}"]
    argv = ["sysbench", "oltp_write_only", *login, *shape, command]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return next(
        (line.split("(")[1].split()[0] for line in printed.splitlines() if "transactions:" in line), ""
    )


def plan(kind: str, logs: list[Path], dump: Path) -> str:
    vendor = kind.split("-")[0]
    rungs = {
        "STOCK": ONE[vendor],
        "FLUSH": ONE[vendor] | FLUSH,
        "APPLIERS": APPLIERS[vendor],
        "ALL": APPLIERS[vendor] | FLUSH | POOL,
    }
    levels = "\n".join(
        f"{name} = {{ " + ", ".join(f'"{knob}" = {json.dumps(value)}' for knob, value in rung.items()) + " }"
        for name, rung in rungs.items()
    )
    program = find_server(kind)
    server = "" if kind == "mariadb-10.11" else f'[server]\nvendor = "{vendor}"\nbinary = "{program}"\n'
    return f"""
name = "replica"
[design]
kind = "factorial"
baseline = "STOCK"
blocks = {BLOCKS}
allow_weaker_durability = ["server.innodb_flush_log_at_trx_commit"]
{server}
[workload]
kind = "apply"
seconds = {SECONDS:g}
warmup_s = 2
binlogs = {json.dumps([str(log) for log in logs])}
dump = "{dump}"
[factors.replica.levels]
{levels}
"""


def measure(kind: str, folder: Path, logs: list[Path], dump: Path) -> None:
    path = folder / "replica.toml"
    path.write_text(plan(kind, logs, dump))
    argv = [sys.executable, "-m", "headrace", "run", str(path), "-o", str(folder / "out"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace run: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    print(f"{kind}: {report['headline']}")
    ratios = {effect["treatment"]: effect["ratio"] for effect in report["effects"]}
    for treatment in report["treatments"]:
        rate, name = treatment["throughput_ops_s"], treatment["treatment"]
        applied = f"{rate['estimate']:7,.0f} transactions per second" if rate else treatment["missing"]
        ratio = ratios.get(name) or dict.fromkeys(("estimate", "low", "high"))
        if ratio["low"] is not None:
            applied += (
                f", {ratio['estimate']:.2f} times ({ratio['low']:.2f} to {ratio['high'] or math.inf:.2f})"
            )
        print(f"  {name:8} {applied}", flush=True)
    is_met = (ratios["ALL"]["low"] or 0) > TARGET
    print(f"  target, ALL above {TARGET:g} times: {'met' if is_met else 'MISSED'}")


if __name__ == "__main__":
    main()
