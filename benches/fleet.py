"""`fleet facts` and `fleet drift` of 1,000 hosts, 5% of them broken in every way: minutes, and memory at its peak.

The hosts are SSH servers on loopback addresses in one other process, which answer from a saved host: both ends of
1,000 logins are work for this machine. Planted differences must all be found, and nothing else.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.saved_fleet import BROKEN, name, saved_fleet

MINUTES = 4
NEEDS = {"ssh-keygen": "openssh-client"}

COUNT = int(os.environ.get("HEADRACE_BENCH_HOSTS", "1000"))
TARGET_MINUTES, TARGET_MIB = 5.0, 500.0


def main() -> int:
    planted = {
        name(COUNT // 2 + 3): {"innodb_io_capacity": "12345"},
        name(COUNT // 3 + 5): {"max_connections": "7"},
        name(COUNT - 2): {"max_connections": "7"},
    }
    failed = False
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as place:
        folder = Path(place)
        with saved_fleet(folder, COUNT, 0.05, planted) as saved:
            env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HEADRACE_STATE": str(folder / "j")}
            for verb in ("facts", "drift"):
                argv = [
                    sys.executable,
                    "-m",
                    "headrace",
                    "fleet",
                    verb,
                    "--fleet",
                    str(saved.fleet),
                    "--json",
                ]
                began = time.monotonic()
                done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=False)
                minutes = (time.monotonic() - began) / 60
                mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
                print(
                    f"  fleet {verb}: {COUNT} hosts in {minutes:.1f} min, at most {mib:.0f} MiB, "
                    f"{len(done.stdout) / 2**20:.1f} MiB of JSON"
                )
                met = minutes <= TARGET_MINUTES and mib <= TARGET_MIB
                print(f"  target {TARGET_MINUTES:g} min, {TARGET_MIB:g} MiB: {'met' if met else 'MISSED'}")
                answer = json.loads(done.stdout)
                problems = _wrong_states(answer, verb, saved.broken)
                problems += _wrong_drift(answer, planted) if verb == "drift" else []
                for problem in problems:
                    print(f"  WRONG: {problem}")
                failed = failed or bool(problems)
    return int(failed)


def _wrong_states(answer: dict[str, object], verb: str, broken: dict[str, str]) -> list[str]:
    """Hosts that did not end as they must."""
    found: dict[str, str] = {}
    if verb == "facts":
        found = {host: row["state"] for host, row in answer["hosts"].items()}  # type: ignore[attr-defined]
    else:
        for row in answer["lost"]:  # type: ignore[attr-defined]
            found.update(dict.fromkeys(row["hosts"], row["state"]))
    return [
        f"{name(number)} ({broken.get(name(number), 'whole')}) is {state}"
        for number in range(COUNT)
        if (state := found.get(name(number), "ok")) != BROKEN.get(broken.get(name(number), ""), "ok")
    ]


def _wrong_drift(answer: dict[str, object], planted: dict[str, dict[str, str]]) -> list[str]:
    found = {
        (host, row["name"], group["value"])
        for row in answer["differences"]  # type: ignore[attr-defined]
        for group in row["values"][1:]
        for host in group["hosts"]
    }
    wanted = {(host, key, value) for host, own in planted.items() for key, value in own.items()}
    return [f"not found: {each}" for each in wanted - found] + [
        f"invented: {each}" for each in found - wanted
    ]


if __name__ == "__main__":
    sys.exit(main())
