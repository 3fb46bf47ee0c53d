"""What a digest's numbers mean, against the same numbers counted from the events themselves."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.lines import read_lines
from tests import digests
from tests.digests import SECOND_NS, START_NS, Event, Shape

MS = 1_000_000


def digest(events: list[Event], shape: Shape | None = None) -> Digest:
    return open_digest(read_lines(digests.lines(events, shape), "test"))


def constant(took_ns: int, n: int, klass: int = 0, every_ns: int = SECOND_NS) -> list[Event]:
    return [Event(START_NS + i * every_ns, klass, took_ns) for i in range(n)]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return digests.traffic(7, 20_000)


@pytest.fixture(scope="module")
def found(events: list[Event]) -> Digest:
    return digest(events)


def test_figures_are_those_of_the_events(events: list[Event], found: Digest) -> None:
    for each in found.classes:
        times = sorted(e.response_ns or 0 for e in events if f"{e.klass:016x}" == each.name)
        assert each.count == len(times)
        assert traffic.mean_ns(each) == pytest.approx(statistics.fmean(times))
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            true = times[math.ceil(share * len(times) - 1e-9) - 1]
            assert traffic.percentile_ns(each, name) == pytest.approx(true, rel=0.004)
        if len(times) > 1:
            seconds = [time / 1e9 for time in times]
            expected = statistics.pvariance(seconds) / statistics.fmean(seconds)
            assert traffic.dispersion_s(each) == pytest.approx(expected, rel=1e-9)
    shares = [traffic.share(each, found.all) or 0 for each in found.classes]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)


def test_dispersion_does_not_lose_its_digits() -> None:
    # Hours that differ by a ns: the squares agree in 25 digits.
    hour_ns = 3_600 * SECOND_NS
    found = digest([Event(START_NS, 0, hour_ns), Event(START_NS, 0, hour_ns + 2)])
    assert traffic.dispersion_s(found.all) == pytest.approx(1e-18 / 3_600, rel=1e-6)
    assert traffic.dispersion_s(digest(constant(MS, 10)).all) == 0
    assert traffic.dispersion_s(digest([Event(START_NS, 0, None)]).all) is None


def test_a_percentile_of_few_is_marked_and_never_beyond_the_largest() -> None:
    found = digest([*constant(MS, 999), *constant(50 * MS, 1)]).all
    assert traffic.percentile_ns(found, "p99.9") == pytest.approx(MS, rel=0.004)
    assert traffic.is_thin(found.response, "p99.9")
    assert not traffic.is_thin(digest(constant(MS, 1_000)).all.response, "p99")
    one = digest([Event(START_NS, 0, 123_456_789)]).all
    assert traffic.percentile_ns(one, "p50") == 123_456_789
    assert traffic.percentile_ns(digest([Event(START_NS, 0, None)]).all, "p50") is None


def test_apdex_counts_satisfied_whole_and_tolerated_half() -> None:
    found = digest([*constant(5 * MS, 6), *constant(30 * MS, 3), *constant(41 * MS, 1)]).all
    satisfied = traffic.satisfaction(found, 10 * MS)
    assert satisfied == traffic.Satisfaction(0.6, 0.3, 0.1)
    assert satisfied.score == pytest.approx(0.75)
    assert traffic.satisfaction(digest([Event(START_NS, 0, None)]).all, MS) is None


def test_a_distribution_has_every_call_once(events: list[Event], found: Digest) -> None:
    for steps in (1, 2, 10):
        bars = traffic.distribution(found.all.response, steps)
        assert sum(bar.count for bar in bars) == len(events)
        assert bars[0].count
        assert bars[-1].count
        for bar in bars:
            true = sum(bar.low_ns <= (e.response_ns or 0) < bar.high_ns for e in events)
            # Calls that are less than 0.8% below an edge may be counted above it.
            near = [
                sum(edge / 1.008 < (e.response_ns or 0) < edge for e in events)
                for edge in (bar.low_ns, bar.high_ns)
            ]
            assert -near[1] <= bar.count - true <= near[0]
    zero = digest([Event(START_NS, 0, 0)]).all
    assert sum(bar.count for bar in traffic.distribution(zero.response)) == 1


@pytest.mark.parametrize("steps", [1, 2, 4, 10])
def test_a_latency_at_an_edge_is_in_the_range_that_starts_there(steps: int) -> None:
    """10 ms and 100 ms are in the lower half of their buckets, which counted below these edges."""
    for decade in range(3, 11):
        exact = digest(constant(10**decade, 7)).all.response
        [bar] = traffic.distribution(exact, steps)
        assert bar.count == 7
        assert bar.low_ns == pytest.approx(10**decade)
        edges = traffic.heat_rows(digest(constant(10**decade, 7)), steps)[2]
        assert edges[0] == pytest.approx(10**decade)


def test_latencies_below_an_edge_are_not_counted_above_it() -> None:
    below = 9_990_000
    each = digest(constant(below, 7)).all
    [bar] = traffic.distribution(each.response, 2, each.number("response_ns").most)
    assert bar.high_ns == 10 * MS


def test_a_call_of_exactly_the_objective_meets_it() -> None:
    for decade in range(3, 11):
        found = digest([*constant(10**decade, 1), *constant(4 * 10**decade, 1)]).all
        assert traffic.satisfaction(found, 10**decade) == traffic.Satisfaction(0.5, 0.5, 0.0)


@pytest.mark.parametrize("order", sorted(traffic.ORDERS))
def test_every_order_ranks_every_class(order: str, found: Digest) -> None:
    ranked = traffic.ranked(found, order)
    keys = [traffic.ORDERS[order](each) for each in ranked]
    assert keys == sorted(keys, reverse=True)
    assert {each.name for each in ranked} == set(found.by_name)


# -- Two digests ------------------------------------------------------------------------------------------------


def test_a_comparison_finds_new_gone_slower_and_more_frequent() -> None:
    before = digest([*constant(MS, 100, 0), *constant(MS, 100, 1), *constant(MS, 100, 2)])
    after = digest(
        [*constant(3 * MS, 100, 0), *constant(MS, 200, 1, SECOND_NS // 2), *constant(9 * MS, 100, 3)]
    )
    changes = {int(each.name, 16): each for each in traffic.compare(before, after)}
    assert {number: each.state for number, each in changes.items()} == {
        0: "both",
        1: "both",
        2: "gone",
        3: "new",
    }
    assert changes[0].mean == pytest.approx(3)
    assert changes[0].rate == pytest.approx(1, rel=0.01)
    assert changes[0].percentiles["p50"] == pytest.approx(3, rel=0.01)
    # 100 calls have one beyond p99: nothing is said of it.
    assert changes[0].percentiles["p99"] is None
    assert changes[0].slower_slices == 1
    assert changes[1].mean == pytest.approx(1)
    assert changes[1].rate == pytest.approx(2, rel=0.02)
    assert changes[1].slower_slices == 0.5
    first = traffic.compare(before, after)[0]
    assert first.name.endswith("3")
    assert first.load_change == pytest.approx(9 * MS, rel=0.02)


def test_captures_of_different_lengths_compare_by_the_second() -> None:
    short, long = digest(constant(MS, 101)), digest(constant(MS, 1_001))
    change = traffic.compare(short, long)[0]
    assert change.rate == pytest.approx(1, rel=0.02)
    assert change.load_change == pytest.approx(0, abs=0.02 * MS)


def test_two_halves_of_the_same_traffic_are_alike() -> None:
    slower = []
    for seed in range(10):
        halves = [digest(digests.traffic(seed * 2 + n, 3_000), Shape(slice_s=4)) for n in range(2)]
        slower += [each.slower_slices for each in traffic.compare(*halves) if each.slower_slices is not None]
    assert len(slower) > 50
    assert 0.45 < statistics.fmean(slower) < 0.55


def test_few_slices_say_nothing() -> None:
    few = digest(constant(MS, 3)).classes[0]
    assert traffic.slower_share(few, few) == (None, (3, 3))


# -- Client and server ------------------------------------------------------------------------------------------


def test_means_of_the_same_calls_subtract() -> None:
    server = digest(digests.traffic(5, 5_000))
    client = digest(
        [Event(e.start_ns, e.klass, (e.response_ns or 0) + 2 * MS) for e in digests.traffic(5, 5_000)]
    )
    both, only_client, only_server = traffic.sides(client, server)
    assert not only_client
    assert not only_server
    for each in both:
        assert each.is_same_calls
        assert each.mean_ns is not None
        assert each.mean_ns[0] - each.mean_ns[1] == pytest.approx(2 * MS)
        assert each.mean_share == pytest.approx(2 * MS / each.mean_ns[0])
        for left, right in each.percentiles_ns.values():
            assert left > right


def test_calls_that_one_side_missed_are_said() -> None:
    client, server = (
        digest([*constant(MS, 9), *constant(MS, 1, 1)]),
        digest([*constant(MS, 8), *constant(MS, 1, 2)]),
    )
    both, only_client, only_server = traffic.sides(client, server)
    assert [each.is_same_calls for each in both] == [False]
    assert [each.name[-1] for each in only_client] == ["1"]
    assert [each.name[-1] for each in only_server] == ["2"]


# -- Time -------------------------------------------------------------------------------------------------------


def test_a_course_has_holes_where_nothing_ran() -> None:
    found = digest([Event(START_NS + second * SECOND_NS, 0, (second + 1) * MS) for second in (0, 1, 4)])
    assert found.first_ns is not None
    assert found.last_ns is not None
    course = traffic.course(found.classes[0], found.first_ns, found.last_ns, found.slice_ns)
    assert course.count.tolist() == [1, 1, 0, 0, 1]
    assert np.isnan(course.mean_ns).tolist() == [False, False, True, True, False]
    assert course.most_ns[4] == 5 * MS
    joined = traffic.course(found.classes[0], found.first_ns, found.last_ns, found.slice_ns, 3)
    assert joined.count.tolist() == [2, 0, 1]
    assert joined.mean_ns[0] == 1.5 * MS


def test_a_heat_map_has_every_call_once(events: list[Event], found: Digest) -> None:
    for most in (512, 7):
        start_ns, width_ns, edges, cells = traffic.heat_rows(found, 4, most)
        assert cells.sum() == len(events)
        assert cells.shape == (len(edges) - 1, cells.shape[1])
        assert cells.shape[1] <= most + 1
        assert start_ns % width_ns == 0


def test_percentiles_over_time_need_enough_calls() -> None:
    calm = digest(digests.traffic(1, 400, seconds=60))
    assert traffic.percentile_course(calm)[1]["p99"] == []
    busy = digest(digests.traffic(1, 60_000, seconds=60))
    width_ns, found = traffic.percentile_course(busy)
    assert width_ns == 2 * SECOND_NS
    assert len(found["p99"]) == 30


def test_classes_of_a_history_say_when_they_came() -> None:
    days = {
        "2026-03-01": digest(constant(MS, 5)),
        "2026-03-02": digest([*constant(MS, 2), *constant(MS, 9, 1)]),
    }
    seen = {each.name[-1]: each for each in traffic.seen(days)}
    assert (seen["0"].first_day, seen["0"].last_day, seen["0"].days, seen["0"].calls) == (*days, 2, 7)
    assert (seen["1"].first_day, seen["1"].days) == ("2026-03-02", 1)
    assert [each.name[-1] for each in traffic.seen(days)] == ["1", "0"]
