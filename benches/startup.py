"""Start-up: `headrace --help` (target 250 ms) and `headrace-agent facts` (150 ms), beside everyday programs.

Peers: `lsblk -O -J` + `lscpu -J` for facts (a part of what it reads); `sysbench --help` and a bare Python
for the command line. Medians of interleaved runs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15


def main() -> None:
    scripts = Path(sys.executable).parent
    commands = {
        "headrace --help": [str(scripts / "headrace"), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "sysbench --help": ["sysbench", "--help"],
        "headrace-agent facts": [str(scripts / "headrace-agent"), "facts"],
        "lsblk + lscpu": ["sh", "-c", "lsblk -O -J && lscpu -J"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, argv in commands.items():
            if shutil.which(argv[0]) is None:
                continue
            began = time.perf_counter()
            subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) for name, values in seconds.items() if values}
    for name, value in median.items():
        print(f"  {name:22} {value * 1000:7.1f} ms")
    print(f"headrace --help / python: {median['headrace --help'] / median['python -c pass']:.1f}x")
    print(f"facts / (lsblk + lscpu): {median['headrace-agent facts'] / median['lsblk + lscpu']:.2f}x")


if __name__ == "__main__":
    main()
