"""Is a new build of the agent slower or dearer than an old one? Both in turns, on this machine, the same work.

    python benches/agents.py OLD NEW [--rounds 8]

drive (prepared point selects, closed loop), digest and record (a slow log), replay (a recording, as fast as it
goes) and sample (host and server, ten times a second). In each round both run each work, in random order; a
figure is the geometric mean of the rounds' ratios NEW / OLD with its 95% interval (Student over rounds). Above
1 the new one costs more. Exit code 1 if an interval lies above 1 by more than ``--margin``. About 20 s a round.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent))

from drive import measured
from tests import replays, slow_logs
from tests.servers import Server, mariadb, open_folder

TABLE = {"kind": "oltp", "script": "point_select", "tables": 1, "table_size": 20_000}
CONNECTIONS, SECONDS = 8, 3
LOG_MB, STATEMENTS, SESSIONS = 100, 60_000, 8

#: CPU us or s a unit of work of an agent, by what is measured.
Cost = Mapping[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--margin", type=float, default=0.02)
    asked = parser.parse_args()
    with open_folder() as folder, mariadb(folder / "m", "--innodb-buffer-pool-size=128M") as server:
        works = prepared(server, folder, str(asked.old))
        ratios = compare(works, str(asked.old), str(asked.new), asked.rounds)
    worse = [name for name, logs in ratios.items() if told(name, np.array(logs)) > 1 + asked.margin]
    if worse:
        print(f"the new one costs over {asked.margin:.0%} more: {', '.join(worse)}")
    return 1 if worse else 0


def prepared(server: Server, folder: Path, agent: str) -> list[Callable[[str], Cost]]:
    """The works, with their data made."""
    server.sql("CREATE DATABASE sbtest", "CREATE USER bench@'%'", "GRANT ALL ON *.* TO bench@'%'")
    login = ["--mysql-host", "127.0.0.1", "--mysql-port", str(server.port), "--mysql-user", "bench"]
    login += ["--mysql-database", "sbtest"]
    spent([agent, "drive", "load", "-", *login], {"workload": TABLE, "connections": 2, "seconds": 1})
    log, recording = folder / "slow.log", folder / "statements.rec"
    with log.open("wb") as file:
        file.writelines(slow_logs.slow_log(LOG_MB * 10**6))
    said = [
        replays.Said(1 + n % SESSIONS, n * 1e-5, 1e-6, f"SELECT c FROM sbtest1 WHERE id = {1 + n % 20_000}")
        for n in range(STATEMENTS)
    ]
    replays.record(replays.slow_log(folder / "said.log", said), recording)

    def drive(agent: str) -> Cost:
        spec = {"workload": TABLE, "connections": CONNECTIONS, "seconds": SECONDS}
        output, cpu_s = spent([agent, "drive", "run", "-", *login], spec)
        count = sum(line["count"] for line in map(json.loads, output) if line["kind"] == "interval")
        return {"drive: CPU an operation": cpu_s / count, "drive: time an operation": SECONDS / count}

    def digest(agent: str) -> Cost:
        argv = [agent, "digest", str(log), "--workers", "1", "-o", str(folder / "digest.jsonl")]
        return {"digest: CPU": spent(argv)[1]}

    def record(agent: str) -> Cost:
        argv = [agent, "record", str(log), "--output", str(folder / "out.rec"), "--force", "--with-literals"]
        return {"record: CPU": spent(argv)[1]}

    def replay(agent: str) -> Cost:
        argv = [agent, "replay", str(recording), *login, "--speed", "max", "--database-map", "shop=sbtest"]
        output, cpu_s = spent(argv)
        played = replays.parse("\n".join(output))
        if sum(played.counts.values()) < STATEMENTS:
            raise SystemExit(f"{agent} replayed {played.counts} of {STATEMENTS} statements")
        return {
            "replay: CPU a statement": cpu_s / STATEMENTS,
            "replay: time a statement": played.length_s / STATEMENTS,
        }

    def sample(agent: str) -> Cost:
        argv = [agent, "sample", "--interval", "100ms", "--duration", f"{SECONDS}s", *login[:-2]]
        return {"sample: CPU": spent([*argv, "--output", str(folder / "samples.jsonl.zst")])[1]}

    return [drive, digest, record, replay, sample]


def spent(argv: list[str], spec: Mapping[str, object] | None = None) -> tuple[list[str], float]:
    """The lines that an agent printed, and its CPU seconds."""
    output, cpu_s, _ = measured(argv, json.dumps(spec) if spec else "")
    return output.splitlines(), cpu_s


def compare(works: list[Callable[[str], Cost]], old: str, new: str, rounds: int) -> dict[str, list[float]]:
    """Logarithms of NEW / OLD, one a round, by what was measured."""
    order = random.Random(7)
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for work in works:
            # By number, so that a program can be compared with itself: that is this machine's noise.
            costs = {which: work((old, new)[which]) for which in order.sample([0, 1], k=2)}
            # The first round pays for cold caches.
            for name in costs[1] if number else ():
                found.setdefault(name, []).append(float(np.log(costs[1][name] / costs[0][name])))
    return found


def told(name: str, logs: np.ndarray) -> float:
    """Print a figure; the lower end of its interval."""
    half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)
    low, middle, high = (float(np.exp(logs.mean() + part)) for part in (-half, 0, half))
    print(f"  {name:26} new / old {middle:.3f} ({low:.3f} to {high:.3f}, {len(logs)} rounds)", flush=True)
    return low


if __name__ == "__main__":
    sys.exit(main())
