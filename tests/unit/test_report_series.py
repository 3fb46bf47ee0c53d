"""Series of a report: rates of counters, percentiles over time, the grid they are drawn on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base import buckets
from headrace.base.model import Role, TrialState
from headrace.experiment import report, store
from headrace.experiment.report import evidence, series
from headrace.experiment.report.machine import heat_tops
from headrace.experiment.report.page import page_of
from headrace.experiment.report.series import Grid
from headrace.experiment.report.view import View
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.store import ExperimentFolder
from headrace.host import arrow
from tests import synthetic
from tests.written import Written


def gathered(written: Written) -> evidence.Evidence:
    return View(written.folder, written.analysis).evidence


def counters(tmp_path: Path, samples: list[tuple[int, str, str, str, float]]) -> ExperimentFolder:
    """One trial whose window starts at 0 s and lasts 10 s; samples are (t_s, sampler, metric, label, value)."""
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    columns = list(zip(*sorted(samples, key=lambda s: (s[1:4], s[0])), strict=True))
    arrays = [
        pa.array([int(t * 1e9) for t in columns[0]]),
        *map(pa.array, columns[1:4]),
        pa.array(columns[4]),
    ]
    data = arrow.TrialData(
        arrow.INTERVALS.empty_table(),
        arrow.LATENCY.empty_table(),
        pa.Table.from_arrays(arrays, schema=arrow.SAMPLES),
    )
    record = store.TrialRecord(
        1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE, window_start_ns=0, window_end_ns=10_000_000_000
    )
    folder.begin_trial(1).commit(record, data)
    return folder


def rate(folder: ExperimentFolder, grid: Grid, metric: str = "reads") -> list[float]:
    with folder.database() as connection:
        found = series.rates(connection, folder.trials()[0], grid, "disk", "sda", [metric])
    return [round(v, 6) for v in found[metric].tolist()]


def test_a_rate_is_the_difference_of_two_samples(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 1000.0 + 7 * t) for t in range(11)]
    assert rate(counters(tmp_path, samples), Grid(0, 1, 10)) == [7.0] * 10


def test_samples_off_the_grid_leave_no_gaps_and_lose_nothing(tmp_path: Path) -> None:
    jitter = [0, 0.3, -0.2, 0.4, -0.4, 0.1, 0.45, -0.45, 0.2, 0, 0]
    times = [t + j for t, j in zip(range(11), jitter, strict=True)]
    samples = [(t, "disk", "reads", "sda", 50 * t) for t in times]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))  # type: ignore[arg-type]
    assert found == pytest.approx([50.0] * 10, abs=0.01)


def test_a_missing_sample_is_a_gap_and_never_a_zero(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 7.0 * t) for t in range(11) if t not in (4, 5, 6)]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))
    assert [math.isnan(v) for v in found] == [False] * 3 + [True] * 4 + [False] * 3


def test_a_counter_that_starts_again_is_a_gap_there_only(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", 1e6 + 7 * t if t < 5 else 7.0 * (t - 5)) for t in range(11)]
    found = rate(counters(tmp_path, samples), Grid(0, 1, 10))
    assert math.isnan(found[4])
    assert found[:4] + found[5:] == [7.0] * 9


def test_wide_buckets_hold_the_mean(tmp_path: Path) -> None:
    samples = [(t, "disk", "reads", "sda", float(t * t)) for t in range(11)]
    assert rate(counters(tmp_path, samples), Grid(0, 5, 2)) == [5.0, 15.0]


def test_busy_is_all_but_idle_and_iowait(tmp_path: Path) -> None:
    per_second = {
        "user": 30,
        "nice": 0,
        "system": 10,
        "idle": 40,
        "iowait": 10,
        "irq": 1,
        "softirq": 5,
        "steal": 4,
    }
    samples = [
        (t, "cpu", mode, core, 1e5 + t * ticks * (2 if core == "all" else 1))
        for t in range(11)
        for mode, ticks in per_second.items()
        for core in ("cpu0", "all")
    ]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 2, 5))
    for core in ("cpu0", "all"):
        means = {share: float(values.mean()) for share, values in found[core].items()}
        expected = {"busy": 0.5, "system": 0.1, "softirq": 0.05, "iowait": 0.1, "steal": 0.04}
        assert means == pytest.approx(expected)


def test_a_small_step_back_of_iowait_is_no_reset(tmp_path: Path) -> None:
    samples = []
    for t in range(11):
        for mode, value in (("user", 50.0 * t), ("idle", 50.0 * t), ("iowait", 9.0 - (t == 5))):
            samples.append((t, "cpu", mode, "cpu0", value))
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        busy = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]["busy"]
    assert np.isfinite(busy).all()
    assert busy == pytest.approx(np.full(10, 0.5), abs=0.02)


def test_iowait_that_the_kernel_moved_to_idle_makes_nothing_negative(tmp_path: Path) -> None:
    """On an idle core a step back larger than what was used left a busy share under zero."""
    samples = []
    for t in range(11):
        moved = 60.0 * (t >= 5)
        values = {"user": 2.0 * t, "idle": 90.0 * t + moved, "iowait": 500.0 + 8 * t - moved}
        samples += [(t, "cpu", mode, "cpu0", value) for mode, value in values.items()]
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]
    assert found["busy"] == pytest.approx(np.full(10, 0.02), abs=1e-9)
    assert all(np.isfinite(values).all() for values in found.values())
    assert all((values >= 0).all() and (values <= 1).all() for values in found.values())


def test_more_iowait_than_unused_time_is_no_more_than_all_of_it(tmp_path: Path) -> None:
    samples = []
    for t in range(11):
        values = {"user": 1.0 * t, "idle": 1000.0 - 50 * t, "iowait": 140.0 * t}
        samples += [(t, "cpu", mode, "cpu0", value) for mode, value in values.items()]
        samples += [(t, "cpu", m, "cpu0", 0.0) for m in ("nice", "system", "irq", "softirq", "steal")]
    folder = counters(tmp_path, samples)
    with folder.database() as connection:
        found = series.cpu(connection, folder.trials()[0], Grid(0, 1, 10))["cpu0"]
    assert found["busy"] == pytest.approx(np.full(10, 1 / 91))
    assert found["iowait"] == pytest.approx(np.full(10, 90 / 91))


def test_a_share_over_all_of_the_time_has_a_scale(ladder: Written) -> None:
    found = gathered(ladder)
    heat = {share: np.full((1, found.machine_grid.size), 1.5) for share in series.CPU_SHARES}
    found = replace(found, machines={t: replace(m, heat=heat) for t, m in found.machines.items()})
    tops = heat_tops(list(found.machines.values()))
    assert tops == dict.fromkeys(series.CPU_SHARES, 100)


@pytest.mark.parametrize(("operations", "is_stated"), [(999, False), (1000, True)])
def test_p99_over_time_needs_ten_operations_beyond_it(
    tmp_path: Path, operations: int, is_stated: bool
) -> None:
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    empty: dict[str, Any] = {field.name: None for field in arrow.INTERVALS}
    row = empty | {"t_s": 0.0, "duration_s": 1.0, "operation": "x", "count": operations, "errors": 0}
    bar = {"t_s": 0.0, "operation": "x", "kind": "service", "bucket": 700, "count": operations}
    data = arrow.TrialData(
        pa.Table.from_pylist([row], arrow.INTERVALS),
        pa.Table.from_pylist([bar], arrow.LATENCY),
        arrow.SAMPLES.empty_table(),
    )
    record = store.TrialRecord(1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE)
    folder.begin_trial(1).commit(record, data)
    with folder.database() as connection:
        found = series.paces(connection, Grid(0, 1, 1), 1.0, folder.latency_rows, "service")[1].p99_ns
    assert bool(np.isfinite(found[0])) is is_stated


def test_p99_over_time_is_exact_where_histograms_allow(tmp_path: Path) -> None:
    shape = synthetic.Shape(
        effects={"A": 1.0}, blocks=1, seconds=20, histogram_per_second=True, sampled=False
    )
    folder = synthetic.make(tmp_path / "e", shape)
    grid = Grid(0, 5, 4)
    with folder.database() as connection:
        assert series.has_histogram_per_second(connection, "service")
        found = series.paces(connection, grid, 1.0, folder.latency_rows, "service")[1].p99_ns
        rows = connection.execute(
            "SELECT bucket, count FROM latency WHERE trial = 1 AND t_s >= 5 AND t_s < 10 ORDER BY bucket"
        ).fetchnumpy()
    values = np.repeat(buckets.bucket_value(rows["bucket"]), rows["count"])
    assert found[1] == np.sort(values)[math.ceil(0.99 * len(values)) - 1]


def test_slow_seconds_survive_a_wide_bucket(tmp_path: Path) -> None:
    folder = ExperimentFolder.create(tmp_path / "e", "", synthetic.bare_design())
    n = 100
    count = np.full(n, 1000)
    count[37] = 1
    p99_ns = np.full(n, 2_000_000)
    p99_ns[37] = 900_000_000
    zeros = np.zeros(n, dtype=np.int64)
    columns = [
        np.arange(n, dtype=float),
        np.ones(n),
        ["x"] * n,
        count,
        zeros,
        zeros,
        zeros,
        zeros,
        zeros,
        p99_ns,
    ]
    intervals = pa.Table.from_arrays([pa.array(c) for c in columns], schema=arrow.INTERVALS)
    record = store.TrialRecord(1, 1, 1, "A", Role.BASELINE, TrialState.COMPLETE)
    data = arrow.TrialData(intervals, arrow.LATENCY.empty_table(), arrow.SAMPLES.empty_table())
    folder.begin_trial(1).commit(record, data)
    with folder.database() as connection:
        pace = series.paces(connection, Grid(0, 50, 2), 1.0, folder.latency_rows, "service")[1]
    assert pace.slowest.tolist() == [1.0, 1000.0]
    assert pace.p99_ns.tolist() == [9e8, 2e6]
    assert pace.mean[0] == pytest.approx((49 * 1000 + 1) / 50)


@given(
    warmup_s=st.floats(0, 3600),
    seconds=st.floats(0.5, 86_400),
    points=st.integers(60, 400),
    step_s=st.sampled_from([0.5, 1.0, 10.0]),
)
def test_a_grid_spans_everything_with_few_buckets(
    warmup_s: float, seconds: float, points: int, step_s: float
) -> None:
    grid = Grid.spanning(warmup_s, seconds, points, step_s)
    assert grid.size <= points + 2
    assert grid.width_s >= step_s
    assert grid.start_s <= -warmup_s + 1e-6
    assert grid.start_s + grid.width_s * grid.size >= seconds - 0.101 * grid.width_s
    assert float(grid.start_s / grid.width_s).is_integer()


def test_a_long_trial_makes_no_long_page(tmp_path: Path) -> None:
    shape = synthetic.Shape(effects={"A": 1.0, "B": 1.2}, blocks=2, seconds=4000, warmup_s=100, cores=2)
    folder = synthetic.make(tmp_path / "e", shape)
    analysis = analyse_experiment(folder)
    view = View(folder, analysis)
    found = view.evidence
    assert found.pace_grid.size <= evidence.MAX_POINTS + 2
    assert found.machine_grid.size <= evidence.MAX_POINTS + 2
    assert found.machines["A"].heat["busy"].shape == (2, found.machine_grid.size)
    assert report.write(page_of(view), folder).stat().st_size < 4e6


def test_the_representative_is_the_trial_of_median_throughput(ladder: Written) -> None:
    found = gathered(ladder)
    assert found.p99_is_exact is False
    for summary in ladder.analysis.summaries:
        speeds = sorted(found.responses[n].throughput_ops_s for n in summary.trials)
        chosen = found.representatives[summary.treatment]
        assert chosen.state is TrialState.COMPLETE
        assert found.responses[chosen.number].throughput_ops_s == speeds[(len(speeds) - 1) // 2]


def test_the_distribution_agrees_with_the_summary(ladder: Written) -> None:
    found = gathered(ladder)
    for summary in ladder.analysis.summaries:
        fraction, latency_ns = found.distribution(summary)
        assert (np.diff(latency_ns) >= 0).all()
        assert latency_ns[np.argmin(abs(fraction - 0.99))] == summary.latency_ns["p99"].estimate
