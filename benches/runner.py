"""What the runner adds to a trial beside data restore, server start and stop, and the workload itself.

Target: less than 2 s. Needs root, for a loop device like the demo's.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MINUTES = 1
NEEDS = {"sysbench": "sysbench", "mariadbd": "mariadb-server", "mkfs.xfs": "xfsprogs"}
NEEDS_ROOT = True

PLAN = """
name = "overhead"
[target]
scratch = "{scratch}"
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = 3
[design.rungs]
STOCK = []
[workload]
kind = "sysbench-oltp"
seconds = 2
script = "oltp_point_select"
tables = 1
table_size = 10000
threads = 2
[volume]
device = "loop"
size = "1G"
[base]
"volume.filesystem" = "xfs"
"volume.scheduler" = "none"
"""

#: Stages of a trial that are the work itself; everything else is the runner's. ``stop`` ends with the host
#: restored, so it counts as the runner's although the server's own stop is in it; ``store`` is what passes
#: until the next trial begins.
WORK = {"restore", "server", "workload"}


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        os.chmod(folder, 0o755)
        plan = Path(folder, "plan.toml")
        plan.write_text(PLAN.replace("{scratch}", f"{folder}/scratch"))
        output = Path(folder, "out")
        command = [sys.executable, "-m", "headrace", "run", str(plan), "-o", str(output), "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        added: list[float] = []
        finished_ns = 0
        stages: dict[str, list[float]] = {}
        for path in sorted(output.glob("trials/*/trial.json")):
            times = sorted(json.loads(path.read_text())["times_ns"].items(), key=lambda item: item[1])
            own = 0.0
            if finished_ns:
                stages.setdefault("store", []).append((times[0][1] - finished_ns) / 1e9)
                own = stages["store"][-1]
            finished_ns = times[-1][1]
            for (stage, start), (_, end) in itertools.pairwise(times):
                seconds = (end - start) / 1e9
                stages.setdefault(stage, []).append(seconds)
                own += 0.0 if stage in WORK else seconds
            added.append(own)
    for stage, seconds in stages.items():
        print(f"  {stage:12} {statistics.median(seconds):7.3f} s{'' if stage in WORK else '  (runner)'}")
    print(
        f"the runner adds {statistics.median(added):.2f} s to a trial (median of {len(added)}; target < 2 s)"
    )


if __name__ == "__main__":
    main()
