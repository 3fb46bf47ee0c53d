"""On a machine that is disturbed: how wide is the interval of one ratio, side by side and one after the other?

    python benches/duet.py [--minutes 2.5] [--busy 2] [--on 2] [--off 2] [--pool 24M,40M] [--folder DIR]

The same plan is run as a duet and as the ordinary interleaved design, each for about the same wall time, while
``--busy`` loops beside it run and sleep together for random spells (exponential, of ``--on`` and ``--off``
seconds). With ``--quiet`` there are no loops: what the ratio is by each design. The loops call themselves `fio`,
because headrace would otherwise, and rightly, count the ordinary design's trials as disturbed and measure them
again: here it shall show what its intervals would have been, and every trial counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.compared import paired_effect

from headrace.experiment.stats.compare import noise_floor
from headrace.experiment.stats.duet import sides
from headrace.experiment.stats.trials import trial_responses
from headrace.experiment.store import ExperimentFolder

MINUTES = 6
NEEDS = {"mariadbd": "mariadb-server"}

PLAN = """
name = "{name}"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
duet = {duet}
baseline = "{baseline}"
blocks = {blocks}
seed = 5
[workload]
kind = "oltp"
script = "{script}"
connections = 4
seconds = {seconds}
warmup_s = 1
table_size = 200_000
[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["{baseline}", "{other}"]
"""

#: Runs under the name that its first argument says, which is that of a copy of the interpreter.
LOOP = """
import random, sys, time
generator = random.Random(int(sys.argv[1]))
on, off = float(sys.argv[2]), float(sys.argv[3])
while True:
    end = time.monotonic() + generator.expovariate(1 / on)
    while time.monotonic() < end:
        pass
    time.sleep(generator.expovariate(1 / off))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.5, help="of each of the designs")
    parser.add_argument(
        "--busy", type=int, default=len(os.sched_getaffinity(0)), help="loops, on and off together"
    )
    parser.add_argument("--on", type=float, default=3.0)
    parser.add_argument("--off", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pool", default="16M,64M")
    parser.add_argument("--script", default="point_select")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="duet-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # the servers run under an account of their own
    pilot = {is_duet: measure(asked, folder, f"pilot-{is_duet}", is_duet, 1)[1] for is_duet in (False, True)}
    widths = {}
    busy = 0 if asked.quiet else asked.busy
    with disturbed(folder, busy, asked.on, asked.off):
        for is_duet in (False, True):
            blocks = max(2, round(asked.minutes * 60 / pilot[is_duet]))
            _, wall_s = measure(asked, folder, f"run-{is_duet}", is_duet, blocks)
            widths[is_duet] = told(folder / f"run-{is_duet}", is_duet, wall_s)
    print(f"the interval of the duet is {widths[False] / widths[True]:.2f} times narrower (log scale)")


def measure(asked: Any, folder: Path, name: str, is_duet: bool, blocks: int) -> tuple[dict[str, Any], float]:
    """The report, and the time from the first trial's begin to the last one's end."""
    baseline, other = asked.pool.split(",")
    plan = folder / f"{name}.toml"
    plan.write_text(
        PLAN.format(
            name=name, scratch=folder / "s", duet=str(is_duet).lower(), blocks=blocks, seconds=asked.seconds,
            baseline=baseline, other=other, script=asked.script,
        )
    )  # fmt: skip
    argv = [sys.executable, "-m", "headrace", "run", str(plan), "-o", str(folder / name), "--json"]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    report: dict[str, Any] = json.loads((folder / name / "report.json").read_text())
    times = [(t["started_ns"], t["finished_ns"]) for t in report["trials"]]
    return report, (max(end for _, end in times) - min(start for start, _ in times)) / 1e9


def told(folder: Path, is_duet: bool, wall_s: float) -> float:
    """Print a line; the width of the ratio's interval on the log scale. Trials count whatever ran beside them."""
    experiment = ExperimentFolder.open(folder)
    records = [r for r in experiment.trials() if r.window_end_ns > 0]
    trials = trial_responses(experiment, records)
    (baseline,) = experiment.design.baselines.values()
    own = [t for t in trials if t.treatment == baseline]
    effect = paired_effect("throughput", [t for t in trials if t.treatment != baseline], own)
    noise = noise_floor("throughput", own)
    assert effect is not None
    assert noise is not None
    ratio = effect.ratio
    assert ratio.low is not None
    assert ratio.high is not None
    width = math.log(ratio.high / ratio.low)
    what = "side by side" if is_duet else "one after the other"
    print(
        f"{what:20} {wall_s:4.0f} s, {effect.blocks:2} blocks, {len(records):2} trials: "
        f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), width {width:.3f}; "
        f"A/A floor {100 * (noise.floor or math.nan):.1f}%; {effect.verdict}",
        flush=True,
    )
    found = sides(trials, {r.number: r.position for r in records}) if is_duet else None
    if found and found.bias and found.gain:
        low, high = found.bias.low or 0.0, found.bias.high or math.inf
        print(
            f"{'':20} second half / first {found.bias.estimate:.3f} ({low:.3f} to {high:.3f}); a trial moves "
            f"by {100 * (found.alone or 0):.1f}%, in its pair by {100 * (found.together or 0):.1f}%"
        )
    return width


@contextlib.contextmanager
def disturbed(folder: Path, busy: int, on: float, off: float) -> Iterator[None]:
    """Loops that all run and sleep together: the same seed for each."""
    name = folder / "fio"
    shutil.copy(os.path.realpath("/usr/bin/python3"), name)
    seed = str(random.Random(8).randrange(10**6))
    loops = [subprocess.Popen([name, "-c", LOOP, seed, str(on), str(off)]) for _ in range(busy)]
    time.sleep(0.2)
    assert all(loop.poll() is None for loop in loops)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
