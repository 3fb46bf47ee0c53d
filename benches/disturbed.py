"""Verdicts on a machine that is disturbed on purpose: is the demo's gain still proven, and nothing where nothing
differs?

A neighbour in a control group of its own takes 0 to 40% of all CPUs in bursts of a few seconds, drawn by a seed:
each run has another. Then `headrace demo` as a user starts it, again and again; and a ladder whose settings do
nothing, eight configurations as the demo's, on the same kind of server with a smaller load.

    python benches/disturbed.py [--demos 20] [--equals 20] [--seed 1] [--folder DIR] [--quiet]

A demo takes 6 to 15 minutes, a run of equals about 2. Results are kept in the folder, and a second call with it
continues. As root. Targets: ALL is proven better in at least 18 of 20 demos, each within 15 minutes; no treatment
is proven better or worse in 20 runs of equals.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.lab import confined

#: Of all CPUs, at most.
MOST = 0.4
BURST_S, PAUSE_S = 4.0, 4.0
PERIOD_US = 50_000
LEAST_US = 1_000
#: Their parent starts them at a line, ends them at the next, and ends them, too, if we are gone.
LOOPS = """
import os, sys
sys.stdin.readline()
loops = []
for _ in range(int(sys.argv[1])):
    loops.append(os.fork())
    while not loops[-1]: pass
sys.stdin.readline()
for pid in loops:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print("ended", flush=True)
sys.stdin.readline()
"""
GROUPS = Path("/sys/fs/cgroup/cpu")
#: Of the demos, at least.
PROVEN = 0.9
LIMIT_S = 15 * 60

EQUALS = """
name = "equals"
[target]
scratch = "{scratch}"
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = 3
seed = {seed}
[design.rungs]
STOCK = []
A = ["a"]
B = ["b"]
C = ["c"]
"A+B" = ["a", "b"]
"A+C" = ["a", "c"]
"B+C" = ["b", "c"]
ALL = ["a", "b", "c"]
[workload]
kind = "sysbench-oltp"
seconds = 2
warmup_s = 1
script = "oltp_read_only"
tables = 1
table_size = 20_000
threads = 4
[bundles.a]
"server.max_connect_errors" = 200
[bundles.b]
"server.lock_wait_timeout" = 7200
[bundles.c]
"server.wait_timeout" = 14400
"""


def main() -> None:
    asked = _asked()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="disturbed-", dir="/var/tmp"))
    folder.mkdir(exist_ok=True, parents=True)
    folder.chmod(0o755)  # the servers run under an account of their own
    print(f"in {folder}", flush=True)
    proven, in_time = 0, 0
    for number in range(asked.seed, asked.seed + asked.demos):
        found = _once(folder / f"demo-{number}", number, asked.quiet, demo)
        (best,) = (each for each in found["effects"] if each["treatment"] == "ALL")
        proven += best["verdict"] == "better"
        in_time += found["wall_s"] <= LIMIT_S
        print(f"demo {number}: ALL {told(best)}; {found['trials']}; {found['wall_s']:.0f} s", flush=True)
    wrong = 0
    for number in range(asked.seed, asked.seed + asked.equals):
        found = _once(folder / f"equals-{number}", number, asked.quiet, equals)
        claimed = [each for each in found["effects"] if each["verdict"] in ("better", "worse")]
        wrong += bool(claimed)
        words = "; ".join(f"{each['treatment']} {told(each)}" for each in claimed) or "nothing proven"
        print(f"equals {number}: {words}; {found['trials']}; {found['wall_s']:.0f} s", flush=True)
    if asked.demos:
        is_met = min(proven, in_time) >= PROVEN * asked.demos
        words = f"ALL proven in {proven} of {asked.demos}, {in_time} within {LIMIT_S / 60:.0f} min"
        print(f"{words} (target {PROVEN:.0%}): {'met' if is_met else 'MISSED'}")
    if asked.equals:
        print(f"false proofs in {wrong} of {asked.equals} (target 0): {'MISSED' if wrong else 'met'}")


def _asked() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--demos", type=int, default=20)
    parser.add_argument("--equals", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first; each run has the next")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--quiet", action="store_true", help="without the neighbour, to compare")
    return parser.parse_args()


def _once(folder: Path, seed: int, is_quiet: bool, run: Callable[[Path, int], None]) -> dict[str, Any]:
    """What a run found; of one that is done already, what it found then."""
    kept = folder.with_suffix(".json")
    if not kept.exists():
        with contextlib.nullcontext() if is_quiet else neighbour(seed):
            start = time.monotonic()
            run(folder, seed)
            wall_s = time.monotonic() - start
        report = json.loads((folder / "report.json").read_text())
        states = [trial["state"] for trial in report["trials"]]
        kept.write_text(
            json.dumps(
                {
                    "wall_s": wall_s,
                    "trials": ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states))),
                    "effects": [each for each in report["effects"] if each["response"] == "throughput"],
                }
            )
        )
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def demo(folder: Path, _seed: int) -> None:
    _headrace("demo", "-o", folder)


def equals(folder: Path, seed: int) -> None:
    plan = folder.with_suffix(".toml")
    plan.write_text(EQUALS.format(seed=seed, scratch=folder.with_suffix(".scratch")))
    _headrace("run", plan, "-o", folder)


def _headrace(*argv: str | Path) -> None:
    # Without a terminal its progress is lines: kept, for the time that each trial took.
    command = [sys.executable, "-m", "headrace", *map(str, argv)]
    with Path(f"{argv[-1]}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)


def told(effect: dict[str, Any]) -> str:
    ratio = effect["ratio"]
    low, high = ratio["low"], ratio["high"]
    between = "no interval" if low is None or high is None else f"{low:.2f} to {high:.2f}"
    return f"{ratio['estimate']:.2f} ({between}) {effect['verdict']}"


@contextlib.contextmanager
def neighbour(seed: int) -> Iterator[None]:
    """Loops on every CPU, whose control group may use another share in each burst."""
    cpus = os.cpu_count() or 1
    argv = [sys.executable, "-c", LOOPS, str(cpus)]
    stopped = threading.Event()
    limits = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(LEAST_US)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loops:
        assert loops.stdin
        assert loops.stdout
        with confined(loops.pid, "cpu", limits):
            group = GROUPS / f"headrace-{loops.pid}"
            bursts = threading.Thread(target=_bursts, args=(group, cpus, random.Random(seed), stopped))
            print(file=loops.stdin, flush=True)
            bursts.start()
            try:
                yield
            finally:
                stopped.set()
                bursts.join()
                print(file=loops.stdin, flush=True)
                loops.stdout.readline()


def _bursts(group: Path, cpus: int, lot: random.Random, stopped: threading.Event) -> None:
    while not stopped.is_set():
        for share, length_s in ((lot.uniform(0, MOST), BURST_S), (0.0, PAUSE_S)):
            quota_us = max(round(share * cpus * PERIOD_US), LEAST_US)
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            if stopped.wait(lot.expovariate(1 / length_s)):
                return


if __name__ == "__main__":
    main()
