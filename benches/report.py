"""What a report costs: 57 trials of an hour with 300 series sampled each second, and smaller ones.

The target: 30 s and 1.5 GB for the largest, and a cost a sample that does not grow. Each size is measured in a
process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MINUTES = 4

ROOT = Path(__file__).parent.parent
SECONDS = (900, 1800, 3600)
CONFIGURATIONS = 56
SERIES = 300
TARGET_S, TARGET_BYTES = 30.0, 1.5e9


def generate(folder: Path, seconds: int, configurations: int) -> None:
    sys.path.insert(0, str(ROOT))
    from tests import synthetic

    effects = {f"fs={i // 4} mount={i % 4}": 1 + 0.01 * i for i in range(configurations)}
    shape = synthetic.Shape(
        effects=effects, blocks=1, seconds=seconds, warmup_s=60, cores=16, kind="factorial", workload="fio",
        extra_series=SERIES, histogram_per_second=True, base_ops_s=2000,
    )  # fmt: skip
    synthetic.make(folder, shape)


def measure(path: Path) -> dict[str, float]:
    """Analyse and report, in this process."""
    began = time.perf_counter()
    from headrace.experiment import report
    from headrace.experiment.report.page import page_of
    from headrace.experiment.report.view import View
    from headrace.experiment.stats.study import analyse_experiment
    from headrace.experiment.store import ExperimentFolder

    folder = ExperimentFolder.open(path)
    analysis = analyse_experiment(folder)
    analysed = time.perf_counter()
    page = report.write(page_of(View(folder, analysis)), folder)
    return {
        "analysis_s": analysed - began,
        "total_s": time.perf_counter() - began,
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "page_bytes": page.stat().st_size,
    }


def count_samples(path: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in path.glob("trials/*/samples.parquet"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, help="an experiment's folder: measure this one only")
    parser.add_argument("--seconds", type=int, nargs="+", default=SECONDS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return 0
    rows = []
    for seconds in arguments.seconds:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
            path = Path(scratch) / "experiment"
            generate(path, seconds, CONFIGURATIONS)
            samples = count_samples(path)
            argv = [sys.executable, __file__, "--measure", str(path)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        cost_ns = 1e9 * found["total_s"] / samples
        rows.append((samples, found, cost_ns))
        print(
            f"  {samples / 1e6:6.1f} M samples: {found['total_s']:6.1f} s "
            f"(analysis {found['analysis_s']:.1f} s), {found['rss_bytes'] / 1e6:6.0f} MB, "
            f"page {found['page_bytes'] / 1e6:.1f} MB, {cost_ns:.0f} ns a sample",
            flush=True,
        )
    (_, _, first_ns), (_, last, last_ns) = rows[0], rows[-1]
    print(f"cost a sample, largest / smallest: {last_ns / first_ns:.2f} (1 is linear)")
    print(
        f"largest / target: time {last['total_s'] / TARGET_S:.2f}, memory {last['rss_bytes'] / TARGET_BYTES:.2f}"
    )
    kept = last["total_s"] <= TARGET_S and last["rss_bytes"] <= TARGET_BYTES
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
