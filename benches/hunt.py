"""300 saved hosts judged (target: 10 s on 2 cores), a minute at 1 Hz each: a third of 8, of 16 and of 128 cores.

What hunting costs the host that is watched is measured in sample.py, beside sar, pidstat and mpstat.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import moments
from tests.golden_hosts import HOSTS
from tests.rules import hosts

from headrace.host.snapshot import Snapshot, save

MINUTES = 1

COUNT = int(os.environ.get("HEADRACE_BENCH_HOSTS", "300"))
KINDS = ("nvme-healthy", "cores-16-locks", "cores-128-locks")
TARGET_S = 10.0


def main() -> None:
    # As a hunt samples: the tests' moments are further apart.
    moments.STEP_S = hosts.STEP_S = 1
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as name:
        folder = Path(name)
        made = [folder / f"{kind}.saved" for kind in KINDS]
        for kind, path in zip(KINDS, made, strict=True):
            snapshot = uneven(HOSTS[kind](folder / kind))
            save(snapshot, path)
            size = path.stat().st_size / 2**20
            print(f"  {kind}: {len(snapshot.samples):,} values in {size:.1f} MiB")
        saved = folder / "saved"
        saved.mkdir()
        for number in range(COUNT):
            shutil.copy(made[number % len(made)], saved / f"host{number:03}.hunt")
        argv = [sys.executable, "-m", "headrace", "hunt", "--brief", "--json", "--from", str(saved)]
        start, before = time.monotonic(), os.times()
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        seconds, after = time.monotonic() - start, os.times()
    judged = json.loads(done.stdout)
    if len(judged) != COUNT:
        raise SystemExit(f"{len(judged)} of {COUNT} hosts were judged")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{COUNT} saved hosts: {seconds:.1f} s, {cpu_s:.1f} s CPU, {1e3 * seconds / COUNT:.0f} ms a host, "
        f"at most {peak_mb:.0f} MB a process; load of the machine {os.getloadavg()[0]:.1f}"
    )
    is_met = seconds <= TARGET_S * COUNT / 300
    print(f"target of {TARGET_S:.0f} s for 300: {'met' if is_met else 'MISSED'}")


def uneven(snapshot: Snapshot) -> Snapshot:
    """What grows does not grow by the same each second, and no tick is at a round nanosecond: both cost space."""
    chance = np.random.default_rng(1)
    value, t_ns = snapshot.samples.value, snapshot.samples.t_ns
    grows = np.diff(value, prepend=value[:1]) > 0
    value = value + np.cumsum(chance.integers(0, 3, len(value)) * grows)
    t_ns = t_ns + chance.integers(0, 1_000_000, len(t_ns))
    return replace(snapshot, samples=replace(snapshot.samples, t_ns=t_ns, value=value))


if __name__ == "__main__":
    main()
