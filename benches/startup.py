"""Start-up: `headrace --help` (target 150 ms) and `headrace-agent facts` (150 ms), beside everyday programs.

Peers: a bare Python for the command line, which no program written in it can beat; `lsblk -O -J` + `lscpu -J`
for facts (a part of what it reads). Medians of interleaved runs. Others on the machine lengthen the clock's
time more than the CPU's: both are shown, and the ratio to Python is the figure to compare between machines.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

MINUTES = 0.3

RUNS = 15
TARGET_MS = 150.0
PYTHON, FACTS, PEER = "python -c pass", "headrace-agent facts", "lsblk + lscpu"
HELP = ("--version", "--help", "hunt --help", "digest --help", "run --help")


def main() -> None:
    scripts = Path(sys.executable).parent
    commands = {PYTHON: [sys.executable, "-c", "pass"]}
    commands |= {f"headrace {words}": [str(scripts / "headrace"), *words.split()] for words in HELP}
    commands |= {
        "sysbench --help": ["sysbench", "--help"],
        FACTS: [str(scripts / "headrace-agent"), "facts"],
        PEER: ["sh", "-c", "lsblk -O -J && lscpu -J"],
    }
    commands = {name: argv for name, argv in commands.items() if shutil.which(argv[0])}
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, argv in commands.items():
            began, before = time.perf_counter(), os.times()
            subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            after = os.times()
            wall[name].append(1000 * (time.perf_counter() - began))
            used_s = (
                after.children_user + after.children_system - before.children_user - before.children_system
            )
            cpu[name].append(1000 * used_s)
    wall_ms = {name: statistics.median(values) for name, values in wall.items()}
    cpu_ms = {name: statistics.median(values) for name, values in cpu.items()}
    for name in commands:
        beside = f"  {wall_ms[name] / wall_ms[PYTHON]:5.1f} x python" if name.startswith("headrace -") else ""
        print(f"  {name:22} {wall_ms[name]:7.1f} ms  {cpu_ms[name]:7.1f} ms CPU{beside}")
    for name in ("headrace --version", "headrace --help", FACTS):
        print(f"{name}: target {TARGET_MS:.0f} ms: {'met' if wall_ms[name] <= TARGET_MS else 'MISSED'}")
    print(f"facts / (lsblk + lscpu): {wall_ms[FACTS] / wall_ms[PEER]:.2f}x")


if __name__ == "__main__":
    main()
