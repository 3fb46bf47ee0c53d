"""The ring of the last samples: rates, gaps, resets, and that it says what a window of a table says."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt import recent as live
from headrace.hunt.recent import SPARE_NAMES, Ring

T0 = 1_795_263_972_309_805_694


def line(sampler: str, t_s: float, values: dict[str, dict[str, float]]) -> dict[str, Any]:
    return {"t_ns": T0 + round(t_s * 1e9), "sampler": sampler, "ok": True, "cost_ns": 1, "values": values}


def failed(sampler: str, t_s: float, error: str) -> dict[str, Any]:
    return {"t_ns": T0 + round(t_s * 1e9), "sampler": sampler, "ok": False, "cost_ns": 1, "error": error}


def test_a_rate_is_growth_over_the_time_that_passed() -> None:
    ring = Ring()
    for t_s, value in ((0.0, 100), (1.0, 150), (2.5, 300)):
        ring.add(line("disk", t_s, {"reads": {"vda": value, "vdb": 7}}))
    window = ring.window(10)
    assert window.rate("disk", "reads", "vda") == pytest.approx(80)
    assert window.rates("disk", "reads") == pytest.approx({"vda": 80, "vdb": 0})
    assert ring.window(1.6).rate("disk", "reads", "vda") == pytest.approx(100)


def test_one_sample_or_none_has_no_rate() -> None:
    ring = Ring()
    assert ring.window(10).rate("disk", "reads", "vda") is None
    ring.add(line("disk", 0, {"reads": {"vda": 1}}))
    assert ring.window(10).rate("disk", "reads", "vda") is None
    assert ring.window(10).last("disk", "reads", "vda") == 1


def test_a_sample_may_arrive_while_a_window_is_made() -> None:
    """The pages' collector makes it on a thread, and lost a minute by that."""
    ring = Ring()
    for t_s in range(5):
        ring.add(line("disk", t_s, {"reads": {"vda": t_s}}))

    class Asked(float):
        def __ge__(self, other: float) -> bool:
            ring.add(line("disk", 5, {"reads": {"vda": 5}}))
            ring.add(line("net", 5, {"bytes": {"eth0": 5}}))
            return float(self) >= other

    ticks = ring._samplers["disk"].series.ticks
    ticks[2] = (Asked(ticks[2][0]), *ticks[2][1:])
    assert ring.window(60).rate("disk", "reads", "vda") == pytest.approx(1.0)


def test_a_missing_sample_is_a_gap_and_not_a_zero() -> None:
    ring = Ring()
    ring.add(line("mysql_status", 0, {"questions": {"": 1000}}))
    ring.add(failed("mysql_status", 1, "connection refused"))
    assert ring.errors == {"mysql_status": "connection refused"}
    assert ring.window(10).errors == {"mysql_status": "connection refused"}
    ring.add(line("mysql_status", 4, {"questions": {"": 1400}}))
    assert ring.errors == {}
    window = ring.window(10)
    assert window.rate("mysql_status", "questions") == pytest.approx(100)
    assert list(window.values("mysql_status", "questions")) == [1000, 1400]
    # The short window has the newest sample only: no rate is known, whatever the counter shows.
    assert ring.window(2).rate("mysql_status", "questions") is None


def test_a_sampler_that_rests_has_its_last_two_samples_for_half_a_minute() -> None:
    ring = Ring()
    for t_s in (0, 10, 20):
        ring.add(line("mysql_status", t_s, {"questions": {"": 1000 + 100 * t_s}}))
    for t_s in (21, 29):
        ring.add(line("cpu", t_s, {"user": {"all": t_s}}))
    assert ring.window(2.5).rate("mysql_status", "questions") == pytest.approx(100)
    assert list(ring.window(2.5).values("mysql_status", "questions")) == [2000, 3000]
    ring.add(line("cpu", 60, {"user": {"all": 60}}))
    assert ring.window(2.5).rate("mysql_status", "questions") is None


def test_a_counter_that_fell_was_reset() -> None:
    ring = Ring()
    for t_s, value in ((0.0, 5000), (1.0, 5100), (2.0, 30)):
        ring.add(line("mysql_status", t_s, {"questions": {"": value}}))
    assert ring.window(10).rate("mysql_status", "questions") == pytest.approx(65)


def test_series_that_come_and_go_keep_their_own_times() -> None:
    ring = Ring()
    ring.add(line("process", 0, {"utime_ticks": {"1/init": 5, "9/fio": 100}}))
    ring.add(line("process", 1, {"utime_ticks": {"1/init": 5, "12/mariadbd": 40}}))
    ring.add(line("process", 2, {"utime_ticks": {"9/fio": 180, "12/mariadbd": 90}}))
    window = ring.window(10)
    assert window.rates("process", "utime_ticks") == pytest.approx(
        {"1/init": 0, "9/fio": 40, "12/mariadbd": 50}
    )


def test_names_are_kept_once_though_some_come_and_go() -> None:
    """A controller that follows many hosts keeps 75 ticks of each."""
    ring = Ring()
    for t_s, pids in enumerate([(1, 2, 10), (1, 11), (1, 2, 12), (1, 2, 12)]):
        ring.add(line("process", t_s, {"utime_ticks": {f"{pid}/mysqld": pid for pid in pids}}))
    series = ring._samplers["process"].series
    assert [label.partition("/")[0] for _, label in series.names] == ["1", "2", "10", "11", "12"]
    assert [numbers.tolist() for _, numbers, _ in series.ticks] == [[0, 1, 2], [0, 3], [0, 1, 4], [0, 1, 4]]
    assert series.ticks[2][1] is series.ticks[3][1]


def test_a_tick_with_the_names_of_the_one_before_may_lack_a_number() -> None:
    """A value that is none is a gap, and the next tick has all again."""
    ring = Ring()
    for t_s, value in enumerate([1, 2, None, "4", 5, 6]):
        ring.add(line("x", t_s, {"m": {"a": value, "b": 10 * t_s}, "n": {"a": t_s}}))  # type: ignore[dict-item]
    window = ring.window(10)
    assert list(window.values("x", "m", "a")) == [1, 2, 5, 6]
    assert list(window.values("x", "m", "b")) == [0, 10, 20, 30, 40, 50]
    assert list(window.values("x", "n", "a")) == [0, 1, 2, 3, 4, 5]


def test_the_same_labels_of_other_metrics_are_other_series() -> None:
    ring = Ring()
    ring.add(line("x", 0, {"m": {"a": 1, "b": 2}, "n": {"c": 3}}))
    ring.add(line("x", 1, {"m": {"a": 1}, "n": {"b": 2, "c": 3}}))
    ring.add(line("x", 2, {"n": {"a": 1, "b": 2}, "m": {"c": 3}}))
    window = ring.window(10)
    assert {metric: window.labels("x", metric) for metric in "mn"} == {
        "m": ["a", "b", "c"],
        "n": ["c", "b", "a"],
    }
    assert list(window.values("x", "n", "b")) == [2, 2]


def test_lines_of_changes_say_what_whole_lines_say() -> None:
    whole, brief = Ring(), Ring()
    last: dict[str, dict[str, float]] = {}
    for t_s in range(9):
        pids = range(5 if t_s < 6 else 7)
        values: dict[str, dict[str, float]] = {
            "utime_ticks": {f"{pid}/sh": t_s * pid for pid in pids},
            "rss_bytes": {f"{pid}/sh": 7.5 * (t_s // 4) for pid in pids},
        }
        whole.add(line("process", t_s, values))
        if t_s in (0, 6):  # its series are others
            brief.add(line("process", t_s, values))
        else:
            changed = {
                metric: differ
                for metric, labels in values.items()
                if (differ := {label: n for label, n in labels.items() if n != last[metric][label]})
            }
            record = line("process", t_s, {}) | {"changed": changed}
            del record["values"]
            brief.add(record)
        last = values
    for seconds in (3, 100):
        one, other = whole.window(seconds), brief.window(seconds)
        assert (one.start_s, one.seconds) == (other.start_s, other.seconds)
        for metric in values:
            assert one.labels("process", metric) == other.labels("process", metric)
            for label in one.labels("process", metric):
                assert list(one.values("process", metric, label)) == list(
                    other.values("process", metric, label)
                )
    assert brief._samplers["process"].series.ticks[3][1] is brief._samplers["process"].series.ticks[4][1]


def test_a_change_of_what_was_never_sent_is_left_out() -> None:
    ring = Ring()
    ring.add({"t_ns": T0, "sampler": "x", "ok": True, "changed": {"m": {"a": 1}}})
    assert ring.window(10).samplers() == set()
    ring.add(line("x", 1, {"m": {"a": 1}}))
    ring.add({"t_ns": T0 + 2 * 10**9, "sampler": "x", "ok": True, "changed": {"m": {"b": 1}, "n": {"": 2}}})
    assert list(ring.window(10).values("x", "m", "a")) == [1, 1]


def test_names_of_processes_that_are_gone_are_forgotten() -> None:
    ring = Ring(kept_s=3)
    for t_s in range(5 * SPARE_NAMES // 10):
        pids = range(10 * t_s, 10 * t_s + 10)
        ring.add(line("process", t_s, {"utime_ticks": {f"{pid}/sh": pid for pid in pids}}))
    series = ring._samplers["process"].series
    assert len(series.names) < 2 * SPARE_NAMES
    assert [series.names[number][1] for number in series.ticks[-1][1]] == [
        f"{4990 + n}/sh" for n in range(10)
    ]
    assert len(ring.window(2).rates("process", "utime_ticks")) == 0


def test_what_is_old_goes_and_what_is_no_sample_is_ignored() -> None:
    ring = Ring(kept_s=3)
    for t_s in range(10):
        ring.add(line("cpu", t_s, {"user": {"all": t_s}}))
    ring.add({"kind": "start"})
    ring.add({"sampler": 7, "t_ns": 1})
    assert list(ring.window(100).values("cpu", "user", "all")) == [6, 7, 8, 9]
    assert ring.window(100, samplers=["disk"]).samplers() == set()


class TestFlood:
    """A host sends more than one can have: it is bounded and counted, and afterwards all is as before."""

    def test_of_ever_new_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "MOST_NAMES", 300)
        monkeypatch.setattr(live, "SEARCH_EVERY_S", 0.0)
        ring = Ring(kept_s=3)
        ring.add(line("cpu", 0, {"user": {"all": 0}}))
        for t_s in range(40):
            ring.add(line("cpu", t_s, {"user": {"all": 10 * t_s}}))
            ring.add(line("process", t_s, {"utime_ticks": {f"{t_s}-{n}/sh": n for n in range(200)}}))
            assert sum(len(each.series.names) for each in ring._samplers.values()) <= 300
        assert ring.window(3).rate("cpu", "user", "all") == pytest.approx(10)
        assert ring.taken_left_out() > 1000
        assert ring.taken_left_out() == 0
        for t_s in range(40, 50):
            ring.add(line("process", t_s, {"utime_ticks": {f"{n}/sh": n * t_s for n in range(200)}}))
        ring.taken_left_out()
        ring.add(line("process", 50, {"utime_ticks": {f"{n}/sh": n * 50 for n in range(200)}}))
        assert ring.taken_left_out() == 0
        assert ring.window(3).rates("process", "utime_ticks") == pytest.approx(
            {f"{n}/sh": n for n in range(200)}
        )

    def test_of_names_that_no_two_ticks_share(self) -> None:
        ring = Ring()
        for tick in range(200):
            values = {"m": {f"{tick}-{n}": float(n) for n in range(100)}, "all": {"": float(tick)}}
            ring.add(line("s", tick / 4, values))
        tracemalloc.start()
        window = ring.window(60)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # A matrix of their series and ticks would be 32 MB.
        assert most_bytes < 10 << 20
        assert len(window.labels("s", "m")) == 20_000
        assert window.rate("s", "all", "") == pytest.approx(4)
        assert list(window.values("s", "m", "7-9")) == [9]

    def test_of_ticks_that_never_get_old(self) -> None:
        ring = Ring()
        for number in range(3 * live.MOST_TICKS):
            ring.add(line("cpu", 0, {"user": {"all": number}}))
        assert len(ring._samplers["cpu"].series.ticks) == live.MOST_TICKS
        assert ring.window(10).last("cpu", "user", "all") == 3 * live.MOST_TICKS - 1

    def test_of_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "MOST_VALUES", 1000)
        ring = Ring()
        many = {f"{n}/sh": n for n in range(100)}
        for t_s in range(30):
            ring.add(line("silent later", t_s, {"m": dict(many)}))
        assert ring._held == 1000
        assert ring.taken_left_out() == 2000
        for t_s in range(200, 230):
            ring.add(line("process", t_s, {"m": dict(many)}))
        held = sum(len(values) for each in ring._samplers.values() for *_, values in each.series.ticks)
        assert held == ring._held == 1000
        assert ring.window(9).rate("process", "m", "5/sh") == 0

    def test_of_samplers_and_of_long_texts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ring = Ring()
        for number in range(3 * live.MOST_SAMPLERS):
            ring.add(line(f"{number}", 0, {"m": {"": 1}}))
            ring.add(failed(f"{number}", 1, "x" * 10_000))
        assert len(ring._samplers) == live.MOST_SAMPLERS
        assert {len(error) for error in ring.errors.values()} == {live.MOST_TEXT}
        for t_s in range(100, 103):
            ring.add(line("0", t_s, {"m": {"": t_s}}))
            ring.add(line("cpu", t_s, {"user": {"all": t_s, "x" * 10_000: 1}, "y" * 10_000: {"": 1}}))
        assert ring.window(10).rates("cpu", "user") == {"all": pytest.approx(1)}
        ring.add(line("z" * 10_000, 103, {"m": {"": 1}}))
        assert sorted(ring._samplers) == ["0", "cpu"]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    ring = Ring()
    for t_s in (3600, 3601, 0, 1):
        ring.add(line("cpu", t_s, {"user": {"all": t_s}}))
    assert list(ring.window(10).values("cpu", "user", "all")) == [0, 1]


ticks = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 2**53), max_size=4),
    min_size=1,
    max_size=8,
)


@given(ticks)
@example([{"a": 0, "c": 11, "b": 13}, {"a": 0, "c": 6}])
def test_it_says_what_a_window_of_the_same_table_says(found: list[dict[str, int]]) -> None:
    ring, rows = Ring(), []
    for t_s, labels in enumerate(found):
        ring.add(line("x", t_s, {"m": dict(labels)}))
        rows += [(T0 + t_s * 10**9, "x", "m", label, float(value)) for label, value in labels.items()]
    samples = Samples.of(rows)
    expected, window = Window(samples), ring.window(100)
    assert window.rates("x", "m") == pytest.approx(expected.rates("x", "m"))
    for label in "abcd":
        assert window.gauge("x", "m", label) == expected.gauge("x", "m", label)
        np.testing.assert_array_equal(window.values("x", "m", label), expected.values("x", "m", label))
