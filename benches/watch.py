"""`headrace watch` beside other detectors of changes, on series whose changes are known.

    python benches/watch.py --otava PYTHON --mongodb PYTHON --ruptures PYTHON --tcpd FOLDER

PYTHON is an interpreter with apache-otava, signal-processing-algorithms or ruptures; a peer without one is left
out. FOLDER is a clone of alan-turing-institute/TCPD. F1 is that of van den Burg & Williams 2020, An evaluation of
change point detection algorithms: a change counts within MARGIN points, recall is the mean over annotators, and
the first point counts as a change for everyone. Target: no peer has a larger F1, and at most 7% of steady series
raise an alarm. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from scipy.signal import lfilter

from headrace.experiment.stats.history import Point, watch

MINUTES = 4
NEEDS: dict[str, str] = {}
NEEDS_ROOT = False

MARGIN = 5
SERIES = 30
ALARMS = 0.07

#: Each reads a list of series and prints a list of their changes.
PEERS = {
    "otava": """
from otava.analysis import compute_change_points
def found(x): return [int(p.index) for p in compute_change_points(x)[0]]
""",
    "mongodb": """
import numpy as np
from signal_processing_algorithms.energy_statistics import energy_statistics
def found(x): return [int(i) for i in energy_statistics.e_divisive(np.array(x), pvalue=0.05, permutations=100)]
""",
    "ruptures": """
import numpy as np, ruptures
def found(x):
    x = np.array(x)
    noise = np.median(np.abs(np.diff(x))) / 0.6745 / 2**0.5 or 1.0
    return ruptures.Pelt(model="l2", min_size=2, jump=1).fit(x / noise).predict(pen=3 * np.log(len(x)))[:-1]
""",
}
RUN = "\nimport json, sys\nprint(json.dumps([found(x) for x in json.load(sys.stdin)]))\n"

Series = tuple[list[float], list[list[int]]]


def noise(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    if kind == "AR 0.5":
        return np.asarray(lfilter([1], [1, -0.5], rng.normal(size=n + 50))[50:] * math.sqrt(0.75))
    if kind == "t3":
        return rng.standard_t(3, n) / math.sqrt(3)
    values = rng.normal(size=n)
    if kind == "one outlier":
        values[rng.integers(3, n - 3)] -= 15
    return values


KINDS = ("independent", "AR 0.5", "t3", "one outlier")


def synthetic(kind: str, count: int, *, steps: bool) -> list[Series]:
    """Series of 30 to 120 points whose noise is 2%, with up to three steps of 5 to 15%."""
    rng = np.random.default_rng(7)
    made = []
    for _ in range(count):
        n = int(rng.integers(30, 121))
        values = 0.02 * noise(kind, rng, n)
        places = sorted(rng.choice(range(8, n - 8, 10), min(3, n // 25), replace=False)) if steps else []
        for at in places:
            values[at:] += rng.choice((-1, 1)) * rng.uniform(0.05, 0.15)
        made.append(([float(v) for v in 1000 * np.exp(values)], [[int(at) for at in places]]))
    return made


def public(folder: Path) -> list[Series]:
    """The annotated series of TCPD with one dimension that need no download."""
    annotations = json.loads((folder / "annotations.json").read_text())
    made = []
    for name, said in sorted(annotations.items()):
        path = folder / "datasets" / name / f"{name}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        values = content["series"][0]["raw"]
        if (
            len(content["series"]) == 1
            and all(v is not None and v > 0 for v in values)
            and len(values) <= 400
        ):
            made.append(([float(v) for v in values], list(said.values())))
    return made


def ours(values: list[float]) -> list[int]:
    return [c.at for c in watch([Point(str(i), (math.log(v),)) for i, v in enumerate(values)]).changes]


def f1(found: list[int], annotated: list[list[int]]) -> float:
    own = {0, *found}
    everyone = [{0, *places} for places in annotated]

    def hits(truth: set[int]) -> int:
        left, count = set(own), 0
        for at in sorted(truth):
            near = [x for x in left if abs(x - at) <= MARGIN]
            if near:
                left.discard(min(near, key=lambda x: abs(x - at)))
                count += 1
        return count

    precision = hits(set().union(*everyone)) / len(own)
    recall = sum(hits(truth) / len(truth) for truth in everyone) / len(everyone)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def peer(python: str, code: str) -> Callable[[list[list[float]]], list[list[int]]]:
    def run(series: list[list[float]]) -> list[list[int]]:
        answer = subprocess.run(
            [python, "-c", code + RUN], input=json.dumps(series), capture_output=True, text=True, check=True
        )
        return [list(map(int, found)) for found in json.loads(answer.stdout)]

    return run


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in PEERS:
        parser.add_argument(f"--{name}", metavar="PYTHON")
    parser.add_argument("--tcpd", type=Path)
    parser.add_argument("--series", type=int, default=SERIES)
    asked = parser.parse_args()
    programs: dict[str, Callable[[list[list[float]]], list[list[int]]]] = {
        "headrace": lambda series: [ours(values) for values in series]
    }
    programs |= {name: peer(python, code) for name, code in PEERS.items() if (python := getattr(asked, name))}
    good = True
    for kind in KINDS:
        steady = [values for values, _ in synthetic(kind, asked.series, steps=False)]
        row = {name: sum(map(bool, run(steady))) for name, run in programs.items()}
        print(f"alarms in {asked.series} steady series, {kind}: {row}", flush=True)
        # What chance allows of a rate of 7%.
        good &= row["headrace"] <= ALARMS * asked.series + 3 * math.sqrt(asked.series * ALARMS * (1 - ALARMS))
    sets: Mapping[str, list[Series]] = {
        f"steps, {kind}": synthetic(kind, asked.series, steps=True) for kind in KINDS
    }
    if asked.tcpd:
        sets = {**sets, "TCPD": public(asked.tcpd)}
    for name, series in sets.items():
        told = {p: run([values for values, _ in series]) for p, run in programs.items()}
        row = {p: [f1(f, s[1]) for f, s in zip(found, series, strict=True)] for p, found in told.items()}
        means = {p: round(sum(each) / len(each), 3) for p, each in row.items()}
        print(f"F1 in {len(series)} series, {name}: {means}", flush=True)
        good &= means["headrace"] >= max(means.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
