"""Merged percentiles: against numpy on the raw values, and as properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.base.buckets import bucket_of
from headrace.base.percentiles import (
    MIN_BEYOND,
    PERCENTILES,
    Histogram,
    _leave_one_out,
    jackknife,
    merge,
    percentile_ns,
    resolution_log,
)

latencies = st.lists(st.integers(1, 10**11), min_size=1, max_size=300).map(
    lambda v: np.array(v, dtype=np.int64)
)


def histogram_of(values_ns: NDArray[np.int64], *, extremes: bool = True) -> Histogram:
    ends = (int(values_ns.min()), int(values_ns.max())) if extremes else (None, None)
    return Histogram.of(bucket_of(values_ns), np.ones(len(values_ns), dtype=np.int64), *ends)


def same(a: Histogram, b: Histogram) -> bool:
    return bool(np.array_equal(a.counts, b.counts)) and (a.min_ns, a.max_ns) == (b.min_ns, b.max_ns)


@given(latencies, latencies, latencies)
def test_merging_is_associative_and_commutative(
    a: NDArray[np.int64], b: NDArray[np.int64], c: NDArray[np.int64]
) -> None:
    x, y, z = histogram_of(a), histogram_of(b), histogram_of(c)
    assert same(merge([merge([x, y]), z]), merge([x, merge([y, z])]))
    assert same(merge([x, y]), merge([y, x]))
    assert same(merge([x, y, z]), histogram_of(np.concatenate([a, b, c])))


@given(latencies)
def test_percentiles_rise_and_stay_within_the_recorded_extremes(values: NDArray[np.int64]) -> None:
    repeated = np.repeat(values, 1000)
    histogram = histogram_of(repeated)
    found = [percentile_ns(histogram, name) for name in (*PERCENTILES, "max")]
    stated = [value for value in found if value is not None]
    assert stated == sorted(stated)
    assert all(repeated.min() <= value <= repeated.max() for value in stated)
    assert found[-1] == repeated.max()


@pytest.mark.parametrize("name", PERCENTILES)
@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_a_percentile_is_numpys_within_the_buckets_error(name: str, sigma: float) -> None:
    values = np.random.default_rng(5).lognormal(13, sigma, 400_000).astype(np.int64)
    numerator, denominator = PERCENTILES[name]
    exact = np.quantile(values, numerator / denominator, method="inverted_cdf")
    assert percentile_ns(histogram_of(values), name) == pytest.approx(exact, rel=1 / 256 + 1e-9)


def test_a_merged_percentile_is_that_of_all_operations_not_the_mean_of_percentiles() -> None:
    fast, slow = np.full(99_000, 1_000_000), np.full(1_100, 100_000_000)
    merged = merge([histogram_of(fast), histogram_of(slow)])
    assert percentile_ns(merged, "p95") == pytest.approx(1e6, rel=0.004)
    assert percentile_ns(merged, "p99") == pytest.approx(1e8, rel=0.004)


@pytest.mark.parametrize(
    ("name", "enough"), [("p50", 20), ("p90", 100), ("p99", 1000), ("p99.9", 10_000), ("p99.99", 100_000)]
)
def test_a_percentile_needs_operations_beyond_it(name: str, enough: int) -> None:
    assert MIN_BEYOND == 10
    assert percentile_ns(histogram_of(np.full(enough, 5000)), name) is not None
    assert percentile_ns(histogram_of(np.full(enough - 1, 5000)), name) is None


def test_the_rank_is_exact_where_floating_point_is_not() -> None:
    # 0.999 * 100,000 is 99,900.00000000001 or 99,899.99...: the rank must be 99,900 on every machine.
    values = np.concatenate([np.full(99_900, 1000), np.full(100, 9_000_000)])
    assert percentile_ns(histogram_of(values), "p99.9") == pytest.approx(1000, rel=0.004)
    values = np.concatenate([np.full(99_899, 1000), np.full(101, 9_000_000)])
    assert percentile_ns(histogram_of(values), "p99.9") == pytest.approx(9e6, rel=0.004)


def test_without_operations_there_is_no_percentile() -> None:
    empty = merge([])
    assert percentile_ns(empty, "p50") is None
    assert percentile_ns(empty, "max") is None
    assert jackknife([empty, empty], "p50", 0.05) is None


def test_an_extreme_that_one_part_does_not_know_is_not_the_wholes() -> None:
    known = histogram_of(np.array([100, 200]))
    unknown = histogram_of(np.array([5000, 7000]), extremes=False)
    assert merge([known, unknown]).max_ns is None
    assert merge([known, known]).max_ns == 200
    assert percentile_ns(merge([known, unknown]), "max") == pytest.approx(7000, rel=0.004)


def test_a_coarse_tool_is_seen_as_coarse() -> None:
    fine = histogram_of(np.random.default_rng(1).lognormal(13, 0.3, 200_000).astype(np.int64))
    assert resolution_log(fine, "p90") <= 0.004
    bins = np.exp(np.arange(0, 20, 0.018))  # as sysbench's: 1.8% apart
    values = bins[np.searchsorted(bins, np.random.default_rng(1).lognormal(13, 0.3, 200_000))]
    assert resolution_log(histogram_of(values.astype(np.int64)), "p90") == pytest.approx(0.009, abs=0.003)


@pytest.mark.parametrize("name", ["p50", "p99"])
def test_at_a_power_of_two_the_resolution_is_that_of_both_sides(name: str) -> None:
    """Equal trials fall into buckets of which one is twice as wide, and the narrow one is no more precise."""
    below, above = (histogram_of(np.full(2000, value)) for value in (2**20 - 1, 2**20))
    values = [percentile_ns(one, name) for one in (below, above)]
    assert values[0] is not None
    assert values[1] is not None
    assert resolution_log(below, name) == pytest.approx(resolution_log(above, name), rel=0.01)
    assert resolution_log(below, name) + resolution_log(above, name) > np.log(values[1] / values[0])
    far = histogram_of(np.full(2000, 2**20 - 2**14))
    assert resolution_log(far, name) < 0.6 * resolution_log(below, name)


def test_the_jackknife_by_hand() -> None:
    """Three blocks of one latency each: leaving one out moves the median to where we can compute it."""
    from scipy import stats

    blocks = [histogram_of(np.full(1000 + i, value)) for i, value in enumerate((128_000, 256_000, 512_000))]
    interval = jackknife(blocks, "p50", 0.05)
    assert interval is not None
    # Medians without block 1, 2, 3: each time the larger of the two that are left holds more operations.
    logs = np.log([512_000, 512_000, 256_000])
    error = math.sqrt(2 / 3 * np.sum((logs - logs.mean()) ** 2))
    half = float(stats.t.ppf(0.975, 2)) * error + math.log(2) / 2  # the bins stand a factor of 2 apart
    assert interval.estimate == pytest.approx(256_000, rel=0.004)
    assert interval.low is not None
    assert interval.high is not None
    assert math.log(interval.estimate / interval.low) == pytest.approx(half, rel=0.01)
    assert math.log(interval.high / interval.estimate) == pytest.approx(half, rel=0.01)


def test_leaving_a_block_out_is_merging_the_others() -> None:
    rng = np.random.default_rng(8)
    blocks = [histogram_of(rng.lognormal(13, 0.5, 300).astype(np.int64)) for _ in range(4)]
    # Two blocks share an extreme, and one did nothing.
    blocks += [blocks[0], merge([])]
    rest = _leave_one_out(blocks, merge(blocks))
    for i, found in enumerate(rest):
        assert same(found, merge([*blocks[:i], *blocks[i + 1 :]]))


def test_no_interval_from_one_block_nor_for_the_maximum() -> None:
    block = histogram_of(np.random.default_rng(2).lognormal(13, 0.5, 5000).astype(np.int64))
    one = jackknife([block], "p99", 0.05)
    assert one is not None
    assert (one.low, one.high) == (None, None)
    most = jackknife([block, block], "max", 0.05)
    assert most is not None
    assert (most.low, most.high) == (None, None)
