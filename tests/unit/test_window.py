"""Counters of a window as rates: resets, gaps, single samples, names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from headrace.analysis.resources import cores
from headrace.analysis.window import Window
from headrace.arrow import SAMPLES, samples_of, table_of
from headrace.samples import Samples

Row = tuple[float, str, str, str, float]


def window(rows: Iterable[Row]) -> Window:
    return Window(Samples.of((round(t * 1e9), s, m, lab, v) for t, s, m, lab, v in rows))


def counter(values: Iterable[float], label: str = "cpu0") -> list[Row]:
    return [(float(second), "cpu", "user", label, value) for second, value in enumerate(values)]


def test_a_counter_is_its_growth_a_second() -> None:
    found = window([*counter([100, 110, 140]), *counter([7, 7, 7], "cpu1")])
    assert found.rate("cpu", "user", "cpu0") == 20
    assert found.rates("cpu", "user") == {"cpu0": 20, "cpu1": 0}
    assert found.growth("cpu", "user", "cpu0") == 40
    assert found.total_growth("cpu", "user") == 40
    assert found.seconds == 2


def test_a_counter_that_fell_began_anew() -> None:
    rows = [
        (float(second), "disk", "reads", "sda", float(value))
        for second, value in enumerate([1000, 1010, 5, 15])
    ]
    assert window(rows).growth("disk", "reads", "sda") == 25
    # What falls by little has stepped back: nothing since boot is counted again.
    rows[2:] = [(2.0, "disk", "reads", "sda", 1008.0), (3.0, "disk", "reads", "sda", 1030.0)]
    assert window(rows).growth("disk", "reads", "sda") == 30


def test_what_was_not_sampled_twice_has_no_rate() -> None:
    found = window([*counter([5]), *counter([1, 2, 3], "cpu1")])
    assert found.rate("cpu", "user", "cpu0") is None
    assert found.series("cpu", "user", "cpu0") is None
    assert found.last("cpu", "user", "cpu0") == 5
    assert found.rate("cpu", "nice", "cpu0") is None
    assert found.gauge("cpu", "user", "cpu7") is None
    assert found.total_growth("none", "none") is None


def test_a_gap_is_no_zero() -> None:
    rows = [(0.0, "disk", "reads", "sda", 0.0), (1.0, "disk", "reads", "sda", 10.0)]
    found = window([*rows, (5.0, "disk", "reads", "sda", 50.0)])
    series = found.series("disk", "reads", "sda")
    assert series is not None
    assert series.t_s.tolist() == [1, 5]
    assert series.rate.tolist() == [10, 10]


def test_a_gauge_has_its_mean_and_its_ends() -> None:
    gauge = window(counter([4, 2, 6])).gauge("cpu", "user", "cpu0")
    assert gauge is not None
    assert (gauge.mean, gauge.low, gauge.high, gauge.last) == (4, 2, 6, 6)


def test_neighbours_with_the_same_label_stay_apart() -> None:
    rows = [(float(t), sampler, "x", "", 10.0 * t * n) for t in (0, 1) for n, sampler in ((1, "a"), (2, "b"))]
    found = window(rows)
    assert (found.rate("a", "x"), found.rate("b", "x")) == (10, 20)
    assert found.samplers() == {"a", "b"}


def test_an_empty_window_knows_nothing() -> None:
    found = window([])
    assert (found.seconds, found.samplers(), found.rate("a", "b")) == (0, frozenset(), None)


def test_samples_and_their_table_are_the_same_window() -> None:
    samples = Samples.of(
        [(t, "cpu", "user", label, float(t)) for t in (3, 1, 2) for label in ("cpu1", "cpu0")]
    )
    assert samples.names == [("cpu", "user", "cpu0"), ("cpu", "user", "cpu1")]
    assert samples.t_ns.tolist() == [1, 2, 3, 1, 2, 3]
    table = table_of(samples)
    assert table.schema.equals(SAMPLES)
    # A table of several chunks is one window, too.
    for found in (table, pa.concat_tables([table[:2], table[2:]])):
        assert list(samples_of(found).rows()) == list(samples.rows())
    assert table_of(Samples.of([])).num_rows == 0
    assert list(samples_of(table_of(Samples.of([]))).rows()) == []


@pytest.mark.parametrize("metric", ["headrace_ok", "headrace_cost_ns"])
def test_a_sampler_that_only_failed_gave_nothing(metric: str) -> None:
    assert window([(0.0, "psi", metric, "", 0.0), (1.0, "psi", metric, "", 0.0)]).samplers() == set()


def test_ticks_that_iowait_gives_back_are_not_hours_of_it() -> None:
    """Ten seconds at 96% busy after a long uptime."""
    rows: list[Row] = []
    for metric, start, step in (("user", 9e6, 96.0), ("idle", 8e7, 4.0), ("iowait", 5e6, 0.0)):
        # Idle and iowait fall in one second each, which both get back.
        steps = {"idle": {6: -9.0, 7: 17.0}, "iowait": {5: -1.0}}.get(metric, {})
        value = start
        for second in range(11):
            value += steps.get(second, step) if second else 0.0
            rows.append((float(second), "cpu", metric, "cpu0", value))
    found = window(rows)
    growth = {metric: found.growth("cpu", metric, "cpu0") for metric in ("user", "idle", "iowait")}
    assert growth == {"user": 960, "idle": 40, "iowait": 0}
    series = found.series("cpu", "iowait", "cpu0")
    assert series is not None
    assert not series.rate.any()
    (core,) = cores(found)
    assert core.busy == pytest.approx(0.96)
