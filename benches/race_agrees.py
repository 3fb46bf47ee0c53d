"""Does a race over twelve configurations of a real MariaDB end where a full study of the same twelve does?

    python benches/race_agrees.py [PLAN] [--seconds 3] [--warmup 1] [--blocks 6] [--equivalence 0.1]

First the race, then a factorial of the same plan in as many blocks as the race came to. They agree when the race's
survivors hold what the full study found best, and when the full study does not say that the race's leader is worse
than that by more than the plan's margin. Exit code 1 when they do not. Trials and wall time of both are told.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.compared import paired_effect

from headrace.base.model import TrialState
from headrace.experiment.stats.trials import TrialResponse, trial_responses
from headrace.experiment.store import ExperimentFolder

MINUTES = 20
NEEDS = {"mariadbd": "mariadb-server"}

EXAMPLE = Path(__file__).parent.parent / "examples" / "race.toml"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warmup", type=float, default=1)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--equivalence", type=float, default=0.1, help="short trials are noisy")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--scratch", help="where the servers' data are, such as a folder of /dev/shm")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="race-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    folder.mkdir(exist_ok=True)
    text = asked.plan.read_text()
    for key, value in (
        ("seconds", asked.seconds),
        ("warmup_s", asked.warmup),
        ("blocks", asked.blocks),
        ("equivalence", asked.equivalence),
    ):
        text = re.sub(rf"^{key} = \S+", f"{key} = {value:g}", text, count=1, flags=re.MULTILINE)
    if asked.scratch:
        text = text.replace("[design]", f'[target]\nscratch = "{asked.scratch}"\n\n[design]', 1)
    raced, race_s = run(folder, "race", text)
    (race,) = raced["races"]
    full = re.sub(r"^response = .*$", "", text, flags=re.MULTILINE)
    full = full.replace('kind = "race"', 'kind = "factorial"')
    full = re.sub(r"^blocks = \d+", f"blocks = {race['blocks']}", full, count=1, flags=re.MULTILINE)
    studied, full_s = run(folder, "full", full)
    print(f"race:  {raced['trials']:4} trials, {race_s / 60:5.1f} min; {race['headline']}")
    print(f"full:  {len(studied['trials']):4} trials, {full_s / 60:5.1f} min; {studied['headline']}")
    saved = 1 - raced["trials"] / len(studied["trials"])
    print(f"saved: {saved:.0%} of the trials, {1 - race_s / full_s:.0%} of the time")
    return 0 if agree(folder, race, float(raced["experiment"]["equivalence"])) else 1


def run(folder: Path, name: str, text: str) -> tuple[dict[str, Any], float]:
    """The report of one experiment, and the wall time of the command."""
    plan = folder / f"{name}.toml"
    plan.write_text(text)
    argv = [sys.executable, "-m", "headrace", "run", str(plan), "-o", str(folder / name), "--json"]
    began = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found, time.monotonic() - began


def agree(folder: Path, race: dict[str, Any], margin: float) -> bool:
    """Whether both come to the same configuration, or to equals of it; each one's place in the other is told."""
    experiment = ExperimentFolder.open(folder / "full")
    sound = [r for r in experiment.trials() if r.state is TrialState.COMPLETE]
    trials: dict[str, list[TrialResponse]] = {}
    for trial in trial_responses(experiment, sound):
        trials.setdefault(trial.treatment, []).append(trial)
    speeds = {n: sum(t.throughput_ops_s for t in own) / len(own) for n, own in trials.items()}
    order = sorted(speeds, key=lambda name: -speeds[name])
    standing = {s["treatment"]: s for s in race["standings"]}
    for place, name in enumerate(order, start=1):
        left = standing[name]["dropped_after"]
        fate = f"left after block {left}" if left else "leads" if name == race["leader"] else "stands"
        seen = standing[name]["mean"]
        print(f"{place:4}. {name:24} full {speeds[name]:9.0f} ops/s   race {seen:9.0f} ops/s  {fate}")
    best, leader = order[0], race["leader"]
    is_held = best in race["survivors"]
    print(f"the full study's best, {best}, {'stands' if is_held else 'DOES NOT STAND'} in the race")
    effect = None if leader == best else paired_effect("throughput", trials[leader], trials[best])
    if effect is None:
        print(f"the race's leader, {leader}, is the full study's best")
        return is_held
    low, high = effect.ratio.low or 0.0, effect.ratio.high or float("inf")
    is_near = high >= 1 / (1 + margin)
    found = f"{effect.ratio.estimate:.3f} ({low:.3f} to {high:.3f})"
    print(f"the race's leader, {leader}, has {found} of it in the full study")
    return is_held and is_near


if __name__ == "__main__":
    sys.exit(main())
