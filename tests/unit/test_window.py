"""Counters of a window as rates: resets, gaps, single samples, names."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pyarrow as pa
import pytest

from headrace.host.arrow import SAMPLES, samples_of, table_of
from headrace.host.cores import cores
from headrace.host.facts import link_speed_mbit_s
from headrace.host.samples import Samples
from headrace.host.window import Window

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


@pytest.mark.parametrize("left", [4e9, 7e9], ids=["most of it", "a part of it"])
def test_a_sum_that_lost_a_part_did_not_grow(left: float) -> None:
    """A bond that loses a card, a control group that loses a process: no burst, and no silence."""
    values = [10e9, 10.1e9, 10.2e9, left, left + 0.1e9]
    rows = [(float(second), "network", "rx_bytes", "bond0", value) for second, value in enumerate(values)]
    assert window(rows).rate("network", "rx_bytes", "bond0") == pytest.approx(0.1e9)
    # Two readings that only fell say nothing.
    assert window(rows[2:4]).rate("network", "rx_bytes", "bond0") in (None, left)


def test_what_falls_again_and_again_is_no_counter() -> None:
    rows = [
        (float(second), "file_systems", "available_bytes", "/", 36e9 - 1e6 * second) for second in range(12)
    ]
    series = window(rows).series("file_systems", "available_bytes", "/")
    assert series is not None
    assert len(series.rate) == 11, "no interval is left out"


@pytest.mark.parametrize(
    "speed", [-1, 0, 65_535, 2**31 - 1, 2**32 - 1, 4_294_967, 42_949_672, 2**64 - 1, True, "10"]
)
def test_an_unknown_speed_in_every_spelling(speed: object) -> None:
    assert link_speed_mbit_s({"speed_mbit_s": speed}) is None


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


def times(name: str, **states: list[float]) -> list[Row]:
    """A CPU's states in ticks, one sample per second."""
    return [
        (float(second), "cpu", state, name, value)
        for state, values in states.items()
        for second, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("what", "idle", "steal"),
    [
        ("went offline and came back", [8e6, 8e6 + 60, 5.0, 65.0, 125.0], [0.0] * 5),
        ("was suspended for hours", [100.0, 160.0, 9e6, 9e6 + 60, 9e6 + 120], [0.0] * 5),
    ],
)
def test_times_of_a_cpu_that_cannot_be_are_a_gap(what: str, idle: list[float], steal: list[float]) -> None:
    found = window(times("cpu0", user=[40.0 * n for n in range(5)], idle=idle, steal=steal))
    assert found.jumps == {"cpu0": 1}, what
    (core,) = cores(found)
    assert (round(core.busy, 2), core.steal) == (0.4, 0.0)
    series = found.series("cpu", "user", "cpu0")
    assert series is not None
    assert series.rate.tolist() == [40.0, 40.0, 40.0]
    assert series.t_s.tolist() == [1.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("what", "steal", "wrong"),
    [
        ("below zero, without its sign", [9.0, 9.0, 2.0**64 - 9, 2.0**64 - 9, 2.0**64], 1),
        ("more than all time in every interval", [0.0, 500.0, 1000.0, 1500.0, 2000.0], 4),
    ],
)
def test_stolen_time_that_cannot_be_is_left_out_alone(what: str, steal: list[float], wrong: int) -> None:
    """The other states are all the time that passed: they are right, and the host is not unknown for it."""
    idle = [100.0, 160.0, 220.0, 280.0, 340.0]
    found = window(times("cpu0", user=[40.0 * n for n in range(5)], idle=idle, steal=steal))
    assert (found.wrong_steal, found.jumps) == ({"cpu0": wrong}, {}), what
    (core,) = cores(found)
    assert (round(core.busy, 2), core.steal) == (0.4, 0.0)
    series = found.series("cpu", "user", "cpu0")
    assert series is not None
    assert series.rate.tolist() == [40.0] * 4


def paused(cpus: int, hours: float, advanced: float) -> list[Row]:
    """Eight seconds of two CPUs and a disk, with a pause after the fourth in which ``advanced`` ticks passed."""
    rows: list[Row] = []
    for second in range(9):
        at = second + (3600.0 * hours if second > 4 else 0.0)
        more = advanced if second > 4 else 0.0
        for number in range(cpus):
            rows.append((at, "cpu", "user", f"cpu{number}", 40.0 * second))
            rows.append((at, "cpu", "idle", f"cpu{number}", 60.0 * second + more))
        rows.append((at, "disk", "reads", "sda", 100.0 * second))
    return rows


def test_the_hours_of_a_suspended_host_are_no_time_of_its_counters() -> None:
    found = window(paused(2, hours=1.0, advanced=0.0))
    assert found.rate("disk", "reads", "sda") == pytest.approx(100.0)
    assert found.seconds == pytest.approx(7.0)
    assert found.paused_s == pytest.approx(3601.0)
    assert found.jumps == {}


def test_an_hour_that_only_the_sampler_missed_is_time() -> None:
    found = window(paused(2, hours=1.0, advanced=360_000.0))
    assert found.paused_s == 0.0
    assert found.rate("disk", "reads", "sda") == pytest.approx(800.0 / 3608.0)


def test_a_cpu_whose_only_interval_cannot_be_is_unknown() -> None:
    found = window(times("cpu0", user=[0.0, 40.0], idle=[8e6, 0.0]))
    assert cores(found) == []
    assert found.rate("cpu", "user", "cpu0") is None


def test_a_number_below_zero_printed_without_its_sign_is_no_growth() -> None:
    rows = [
        (float(n), "disk", "io_ms", "sda", value) for n, value in enumerate([0.0, 10.0, 2.0**64 - 5, 30.0])
    ]
    assert (window(rows).growth("disk", "io_ms", "sda") or 0.0) <= 40.0


PATHS = ("nvme1c0n1", "nvme1c1n1")


def reads(name: str, each_s: float) -> list[Row]:
    return [(float(second), "disk", "reads", name, each_s * second) for second in range(4)]


def test_paths_are_counted_as_their_drive() -> None:
    both = window([*reads(PATHS[0], 10.0), *reads(PATHS[1], 30.0), *reads("nvme0n1", 5.0)])
    assert both.rates("disk", "reads") == {"nvme0n1": 5.0, "nvme1n1": 40.0}
    assert both.rates("path", "reads") == {PATHS[0]: 10.0, PATHS[1]: 30.0}
    # A kernel that lists the drive and counts its paths only.
    assert window([*reads("nvme1n1", 0.0), *reads(PATHS[1], 30.0)]).rates("disk", "reads") == {
        "nvme1n1": 30.0
    }


def test_paths_are_left_out_where_the_drive_is_counted() -> None:
    found = window([*reads("nvme1n1", 40.0), *reads(PATHS[0], 10.0), *reads(PATHS[1], 30.0)])
    assert found.rates("disk", "reads") == {"nvme1n1": 40.0}


def test_all_cpus_are_their_mean_where_the_kernels_own_sum_is_missing() -> None:
    """The first CPU once stood for all of them."""
    busy, idle = ([ticks * n for n in range(5)] for ticks in (90.0, 10.0))
    found = cores(window([*times("cpu0", user=busy, idle=idle), *times("cpu1", user=idle, idle=busy)]))
    assert [(core.name, round(core.busy, 6)) for core in found] == [
        ("all", 0.5),
        ("cpu0", 0.9),
        ("cpu1", 0.1),
    ]


def test_without_idle_times_nobody_knows_how_busy_a_cpu_is() -> None:
    assert cores(window(times("cpu0", user=[40.0 * n for n in range(5)], system=[0.0] * 5))) == []


def test_an_interval_in_which_the_clock_was_set_back_is_a_gap_for_every_counter() -> None:
    """Five seconds' work in a tenth of one."""
    counters = [("cpu", "user", "cpu0", 50.0), ("cpu", "idle", "cpu0", 50.0), ("disk", "reads", "sda", 100.0)]
    found = window(
        (end, sampler, metric, label, 5.0 * rate * number)
        for sampler, metric, label, rate in counters
        for number, end in enumerate([0.0, 5.0, 10.0, 10.1, 15.1, 20.1])
    )
    assert found.rate("disk", "reads", "sda") == pytest.approx(100.0)
    assert (found.paused_s, found.jumps) == (0, {})


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300, -(2.0**65)])
@pytest.mark.parametrize("at", [0, 4, 9])
def test_what_is_no_number_is_no_sample(odd: float, at: int) -> None:
    """Of a saved hunt, a dump or an experiment of others; one made every sum and comparison with it none."""
    rows = [
        (t * 10**9, "mysql_status", name, "", odd if t == at else value)
        for t in range(10)
        for name, value in (("questions", 1000.0 * t), ("threads_running", 4.0))
    ]
    only = (5 * 10**9, "mysql_status", "uptime", "", odd)
    window = Window(Samples.of([*rows, only]))
    assert window.rate("mysql_status", "questions") == pytest.approx(1000)
    gauge = window.gauge("mysql_status", "threads_running")
    assert gauge is not None
    assert (gauge.mean, gauge.low, gauge.high, gauge.last) == (4.0, 4.0, 4.0, 4.0)
    assert window.last("mysql_status", "uptime") is None
