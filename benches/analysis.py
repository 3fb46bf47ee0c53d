"""What the analysis of a large study costs: 1,000 trials of an hour, each with its histograms second by second.

The target: 60 s and 2 GB for `headrace report` (analysis, tables, page), and for `headrace compare` of two halves.
Each is measured in a process of its own. Of each configuration two trials are generated, and the files of the
others are links to them: each is read and decoded by itself, but the disk's own speed is not what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow.parquet as pq
from tests import synthetic

from headrace.base.model import Facts, TrialSpec
from headrace.experiment.store import ExperimentFolder

MINUTES = 8

#: 24 configurations with the baseline twice: 25 trials a block.
FILE_SYSTEMS, MOUNTS = 6, 4
TARGET_S, TARGET_BYTES = 60.0, 2e9


def generate(path: Path, seconds: int, blocks: int) -> int:
    """An experiment's folder; the rows of latency in it."""
    effects = {
        f"fs={i} mount={j}": 1 + 0.05 * i + 0.01 * j for i in range(FILE_SYSTEMS) for j in range(MOUNTS)
    }
    shape = synthetic.Shape(
        effects=effects, blocks=blocks, seconds=seconds, warmup_s=60, cores=2, kind="factorial", workload="fio",
        histogram_per_second=True, base_ops_s=2000,
    )  # fmt: skip
    design = synthetic.design_of(shape, path.name)
    by_factor = [
        replace(t, levels=dict(part.split("=") for part in t.name.split())) for t in design.treatments
    ]
    design = replace(design, treatments=tuple(by_factor))
    folder = ExperimentFolder.create(path, "", design)
    facts = Facts("f" * 64, synthetic.facts_of(shape))
    folder.save_facts(facts)
    made: dict[tuple[str, str], list[int]] = {}
    rows = 0
    for spec in design.trials:
        own = made.setdefault((spec.treatment, spec.role), [])
        if len(own) < 2:
            synthetic.write_trial(folder, shape, spec, facts.hash)
            own.append(spec.number)
        else:
            link(folder, own[spec.block % 2], spec)
        rows += pq.read_metadata(folder.trial_path(spec.number) / "latency.parquet").num_rows
    return rows


def link(folder: ExperimentFolder, number: int, spec: TrialSpec) -> None:
    """A trial whose tables are another's."""
    source, path = folder.trial_path(number), folder.trial_path(spec.number)
    path.mkdir()
    for table in source.glob("*.parquet"):
        os.link(table, path / table.name)
    record = json.loads((source / "trial.json").read_text())
    shift_ns = (spec.number - number) * 4000 * 1_000_000_000
    record |= asdict(spec)
    record["times_ns"] = {key: value + shift_ns for key, value in record["times_ns"].items()}
    for key in ("window_start_ns", "window_end_ns"):
        record[key] += shift_ns
    (path / "trial.json").write_text(json.dumps(record))


def measure(path: Path) -> dict[str, float]:
    """The analysis alone, in this process."""
    began = time.perf_counter()
    from headrace.experiment.stats.study import analyse_experiment

    analysis = analyse_experiment(ExperimentFolder.open(path))
    assert len(analysis.summaries) == FILE_SYSTEMS * MOUNTS
    return {
        "seconds": time.perf_counter() - began,
        "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def run(*argv: str) -> dict[str, float]:
    """A command's time and the peak of its memory."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "headrace", *argv], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"headrace {' '.join(argv)}: status {status}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "bytes": usage.ru_maxrss * 1024,
    }


def told(what: str, found: dict[str, float]) -> bool:
    cpu = f", {found['cpu']:.1f} s of CPU" if "cpu" in found else ""
    print(
        f"  {what:34} {found['seconds']:6.1f} s{cpu}, {found['bytes'] / 1e6:6.0f} MB; / target: time "
        f"{found['seconds'] / TARGET_S:.2f}, memory {found['bytes'] / TARGET_BYTES:.2f}",
        flush=True,
    )
    return found["seconds"] <= TARGET_S and found["bytes"] <= TARGET_BYTES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, help="an experiment's folder: analyse this one only")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="where the folders are made, and stay")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        root = arguments.keep or Path(scratch)
        whole, halves = root / "whole", (root / "a", root / "b")
        if not whole.exists():
            rows = generate(whole, arguments.seconds, arguments.blocks)
            for half in halves:
                generate(half, arguments.seconds, arguments.blocks // 2)
            trials = len(list(whole.glob("trials/*")))
            print(f"{trials:,} trials of {arguments.seconds:,} s, {rows / 1e6:,.0f} M rows of latency")
        argv = [sys.executable, __file__, "--measure", str(whole)]
        alone = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        kept = [
            told("analysis alone", alone),
            told("headrace report", run("report", str(whole))),
            told("headrace compare, two halves", run("compare", *map(str, halves))),
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
