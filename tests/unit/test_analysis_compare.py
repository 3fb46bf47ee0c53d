"""Effects, verdicts and the noise floor: against SciPy, and as properties."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from headrace.base import intervals
from headrace.base.buckets import bucket_of
from headrace.base.effect import Effect, Verdict
from headrace.base.intervals import Interval
from headrace.base.model import Role
from headrace.base.percentiles import Histogram
from headrace.experiment.stats.compare import noise_floor, of_starts, unpaired_effect, verdict
from headrace.experiment.stats.trials import TrialResponse
from tests.compared import paired_effect
from tests.synthetic import bare_design

rates = st.lists(st.floats(1, 1e6), min_size=2, max_size=8)


def trials(
    values: Sequence[float], *, name: str = "ALL", first: int = 1000, role: Role = Role.CANDIDATE
) -> list[TrialResponse]:
    """One trial a block, from block 1 on; a value of 0 leaves the block out."""
    return [TrialResponse(first + b, b, name, role, v) for b, v in enumerate(values, 1) if v]


def baseline(one: Sequence[float], two: Sequence[float] | None = None) -> list[TrialResponse]:
    second = one if two is None else two
    return [
        *trials(one, name="STOCK", first=0, role=Role.BASELINE),
        *trials(second, name="STOCK", first=500, role=Role.REPEAT),
    ]


def effect(
    treated: Sequence[float],
    one: Sequence[float],
    two: Sequence[float] | None = None,
    *,
    comparisons: int = 1,
) -> Effect:
    found = paired_effect("throughput", trials(treated), baseline(one, two), comparisons=comparisons)
    assert found is not None
    return found


def drawn(rng: np.random.Generator, center: float, spread: float, n: int) -> list[float]:
    return [float(value) for value in np.exp(rng.normal(center, spread, n))]


def ends(ratio: Interval) -> tuple[float, float]:
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low, ratio.high


def test_the_interval_is_scipys_paired_t_interval_with_bonferronis_level() -> None:
    rng = np.random.default_rng(3)
    one, two, treated = (drawn(rng, 8, 0.1, 5) for _ in range(3))
    found = effect(treated, one, two, comparisons=7)
    logs = np.log(treated) - (np.log(one) + np.log(two)) / 2
    low, high = stats.t.interval(1 - 0.05 / 7, 4, loc=logs.mean(), scale=stats.sem(logs))
    assert found.ratio.estimate == pytest.approx(math.exp(logs.mean()))
    assert ends(found.ratio) == pytest.approx((math.exp(low), math.exp(high)))
    assert (found.blocks, found.comparisons) == (5, 7)


def test_the_noise_floor_is_scipys_paired_test() -> None:
    rng = np.random.default_rng(4)
    one, two = (drawn(rng, 8, 0.05, 6) for _ in range(2))
    found = noise_floor("throughput", baseline(one, two))
    assert found is not None
    low, high = stats.ttest_rel(np.log(two), np.log(one)).confidence_interval(0.95)
    assert ends(found.ratio) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.floor == pytest.approx(max(abs(math.exp(high) - 1), abs(math.exp(low) - 1)))


def test_two_experiments_without_any_spread_have_no_interval() -> None:
    """They are copies, or too coarse to show any noise: as in a choice, that is no verdict."""
    found = unpaired_effect("throughput", trials([100.0] * 3), trials([110.0] * 3))
    assert found is not None
    assert (found.ratio.low, found.ratio.high) == (None, None)
    assert found.verdict is Verdict.NOT_ENOUGH_DATA


def test_the_unpaired_interval_is_scipys_welch_interval() -> None:
    rng = np.random.default_rng(5)
    a, b = drawn(rng, 8, 0.1, 4), drawn(rng, 8.2, 0.02, 7)
    found = unpaired_effect("throughput", trials(a), trials(b), comparisons=3)
    assert found is not None
    welch = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(1 - 0.05 / 3)
    assert ends(found.ratio) == pytest.approx((math.exp(welch[0]), math.exp(welch[1])))
    assert found.blocks == 4
    assert found.blocks_needed is None


def test_two_equal_switchbacks_differ_at_most_as_often_as_alpha() -> None:
    """Two starts of ten blocks, and starts vary by 2%: blocks as replicates miss 1 in more than half of them."""
    rng, design = np.random.default_rng(9), bare_design(blocks_per_start=10)

    def drawn_starts() -> list[TrialResponse]:
        own = np.repeat(rng.normal(0, 0.02, 2), 10) + rng.normal(0, 0.012, 20)
        return of_starts(design, trials([math.exp(log) for log in own]))

    missed = 0
    for _ in range(300):
        found = unpaired_effect("throughput", drawn_starts(), drawn_starts())
        assert found is not None
        assert found.blocks == 2
        low, high = ends(found.ratio)
        missed += not low <= 1 <= high
    assert missed <= 0.05 * 300


def test_blocks_that_were_added_later_have_a_start_of_their_own() -> None:
    design = bare_design(blocks_per_start=10, extended=(4,))
    assert [t.block for t in of_starts(design, trials([1.0] * 6))] == [1, 1, 1, 1, 5, 5]
    fixed = trials([1.0] * 6)
    assert of_starts(bare_design(), fixed) == fixed


@given(rates, st.floats(0.01, 100))
def test_ratios_do_not_depend_on_the_unit(values: list[float], unit: float) -> None:
    treated = values[::-1]
    a, b = effect(treated, values), effect([v * unit for v in treated], [v * unit for v in values])
    assert a.ratio.estimate == pytest.approx(b.ratio.estimate)
    assert ends(a.ratio) == pytest.approx(ends(b.ratio), rel=1e-6, abs=1e-300)


@given(rates, rates)
def test_swapping_the_sides_inverts_ratio_and_verdict(one: list[float], two: list[float]) -> None:
    n = min(len(one), len(two))
    forth, back = effect(one[:n], two[:n]), effect(two[:n], one[:n])
    assert forth.ratio.estimate == pytest.approx(1 / back.ratio.estimate)
    low, high = ends(back.ratio)
    assume(low > 0 and high < 1e300)
    assert ends(forth.ratio) == pytest.approx((1 / high, 1 / low), rel=1e-6)
    swapped = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    # On an edge of the margin, rounding may decide one way and the other.
    edges = (1.0, 1.03, 1 / 1.03)
    assume(not any(math.isclose(e, x, rel_tol=1e-9) for e in ends(forth.ratio) for x in edges))
    assert forth.verdict is swapped.get(back.verdict, back.verdict)


@given(rates, st.lists(st.floats(0.5, 2), min_size=8, max_size=8))
def test_what_moves_a_whole_block_cancels(values: list[float], drift: list[float]) -> None:
    moved = [v * d for v, d in zip(values, drift, strict=False)]
    shifted = [v * 1.1 * d for v, d in zip(values, drift, strict=False)]
    assert effect(shifted, moved).ratio.estimate == pytest.approx(1.1)
    assert ends(effect(shifted, moved).ratio) == pytest.approx((1.1, 1.1))


@pytest.mark.parametrize(
    ("low", "high", "throughput", "latency"),
    [
        (1.1, 1.2, Verdict.BETTER, Verdict.WORSE),
        (0.8, 0.9, Verdict.WORSE, Verdict.BETTER),
        (0.9, 1.2, Verdict.NOT_ENOUGH_DATA, Verdict.NOT_ENOUGH_DATA),
        (0.98, 1.02, Verdict.EQUIVALENT, Verdict.EQUIVALENT),
        (1.005, 1.02, Verdict.EQUIVALENT, Verdict.EQUIVALENT),
        (1.01, 1.04, Verdict.BETTER, Verdict.WORSE),
        (0.9, 1.0, Verdict.NOT_ENOUGH_DATA, Verdict.NOT_ENOUGH_DATA),
        (None, None, Verdict.NOT_ENOUGH_DATA, Verdict.NOT_ENOUGH_DATA),
    ],
)
def test_verdicts(low: float | None, high: float | None, throughput: Verdict, latency: Verdict) -> None:
    ratio = Interval(1.0, low, high)
    assert verdict("throughput", ratio, 0.03) is throughput
    assert verdict("p99", ratio, 0.03) is latency


def test_one_block_gives_an_estimate_but_no_interval_and_no_verdict() -> None:
    found = effect([200], [100])
    assert found.ratio.estimate == pytest.approx(2.0)
    assert (found.ratio.low, found.ratio.high) == (None, None)
    assert (found.verdict, found.blocks, found.blocks_needed) == (Verdict.NOT_ENOUGH_DATA, 1, None)


def test_sides_that_share_no_block_have_no_effect() -> None:
    assert paired_effect("throughput", trials([0, 0, 200, 210]), baseline([100, 101])) is None


def test_a_block_without_one_side_is_dropped() -> None:
    found = effect([200, 0, 220, 260], [100, 105, 110, 0])
    assert found.blocks == 2
    assert found.ratio.estimate == pytest.approx(2.0)


def test_a_block_with_one_baseline_trial_left_still_counts() -> None:
    found = effect([200, 200], [100, 100], [100, 0])
    assert found.blocks == 2


def test_a_side_without_any_answer_has_no_effect() -> None:
    assert paired_effect("throughput", [], baseline([1, 2])) is None
    assert paired_effect("p99", trials([5, 6]), baseline([1, 2])) is None
    assert noise_floor("throughput", trials([5, 6], role=Role.BASELINE)) is None


def test_a_trial_cannot_count_twice() -> None:
    twice = trials([5, 6])
    with pytest.raises(ValueError, match="given twice"):
        paired_effect("throughput", [*twice, *twice], baseline([1, 2]))


def with_latency(
    number: int,
    block: int,
    name: str,
    median_ns: float,
    role: Role = Role.CANDIDATE,
    *,
    operations: int = 5000,
) -> TrialResponse:
    values = np.full(operations, int(median_ns), dtype=np.int64)
    latency = Histogram.of(bucket_of(values), np.ones(operations, dtype=np.int64))
    return TrialResponse(number, block, name, role, 100.0, latency=latency)


def test_a_lower_latency_is_better() -> None:
    stock = [with_latency(b, b, "STOCK", 2e6 * (1 + b / 1000), Role.BASELINE) for b in (1, 2, 3)]
    fast = [with_latency(b + 10, b, "ALL", 1e6 * (1 + b / 1000)) for b in (1, 2, 3)]
    found = paired_effect("p99", fast, stock)
    assert found is not None
    assert found.verdict is Verdict.BETTER
    assert found.ratio.estimate == pytest.approx(0.5, rel=0.01)


def test_a_trial_too_slow_to_state_its_p99_does_not_silently_drop_out() -> None:
    """The rest would be a choice: of the good days of a treatment that stalls."""
    stock = [with_latency(b, b, "STOCK", 2e6, Role.BASELINE) for b in (1, 2, 3)]
    stalls = [with_latency(b + 10, b, "ALL", 1e6) for b in (1, 2)]
    stalled = with_latency(13, 3, "ALL", 9e9, operations=900)
    assert paired_effect("p99", stalls, stock) is not None
    assert paired_effect("p99", [*stalls, stalled], stock) is None
    assert paired_effect("p50", [*stalls, stalled], stock) is not None
    assert paired_effect("throughput", [*stalls, stalled], stock) is not None
    assert paired_effect("p99", stock, [*stalls, stalled]) is None
    # In a block without the other side it was never part of the comparison.
    assert paired_effect("p99", [*stalls, stalled], stock[:2]) is not None
    assert unpaired_effect("p99", stock, [*stalls, stalled]) is None


def test_a_baseline_trial_that_cannot_answer_leaves_no_noise_floor() -> None:
    first = [with_latency(b, b, "STOCK", 2e6, Role.BASELINE) for b in (1, 2, 3)]
    second = [with_latency(b + 10, b, "STOCK", 2e6, Role.REPEAT) for b in (1, 2)]
    slow = with_latency(13, 3, "STOCK", 2e6, Role.REPEAT, operations=900)
    assert noise_floor("p99", [*first, *second]) is not None
    assert noise_floor("p99", [*first, *second, slow]) is None


def test_trials_that_fall_into_one_bin_are_not_called_equal_beyond_the_bin() -> None:
    """Identical by rounding has no spread between blocks: without the resolution the interval had no width."""
    stock = [with_latency(b, b, "STOCK", 1e6, Role.BASELINE) for b in (1, 2, 3)]
    other = [with_latency(b + 10, b, "ALL", 1.006e6) for b in (1, 2, 3)]
    found = paired_effect("p99", other, stock)
    assert found is not None
    low, high = ends(found.ratio)
    assert low < 1 < high
    assert math.log(high / low) == pytest.approx(2 * 2 * math.log(1 + 1 / 244) / 2, rel=0.3)


@pytest.mark.parametrize(("effect", "deviation", "is_equivalence"), [(0.06, 0.04, False), (0.0, 0.042, True)])
def test_blocks_to_settle_gives_the_power_it_promises(
    effect: float, deviation: float, is_equivalence: bool
) -> None:
    """Simulated, not by the formula: with that many blocks 80% of experiments settle, with fewer they do not."""
    rng = np.random.default_rng(6)
    alpha, margin = 0.05 / 3, math.log(1.03)
    needed = intervals.blocks_to_settle(effect, deviation, margin, alpha)
    assert needed is not None

    def settled(blocks: int) -> float:
        draws = rng.normal(effect, deviation, (20_000, blocks))
        half = stats.t.ppf(1 - alpha / 2, blocks - 1) * draws.std(axis=1, ddof=1) / math.sqrt(blocks)
        center = np.abs(draws.mean(axis=1))
        return float(np.mean(center + half < margin if is_equivalence else center > half))

    assert settled(needed) > 0.79
    assert settled(needed - 1) < 0.81


@pytest.mark.parametrize("true", [0.0, 0.1, 0.2, 0.4])
def test_a_stated_number_of_blocks_settles_what_it_promises(true: float) -> None:
    """Whatever is true: of the experiments that state a number, 80% settle with it; where nothing is there, hardly
    any does state one.
    """
    rng = np.random.default_rng(7)
    alpha, blocks, settled = 0.05, 5, []
    for _ in range(2000):
        first = rng.normal(true, 0.2, blocks)
        error = float(first.std(ddof=1)) / math.sqrt(blocks)
        critical = stats.t.ppf(1 - alpha / 2, blocks - 1)
        if abs(first.mean()) > critical * error:
            continue
        needed = intervals.blocks_needed(float(first.mean()), error, blocks - 1, blocks, alpha, 0.03)
        if needed:
            assert blocks < needed.least <= needed.most <= intervals.MOST_ADVISED
            every = rng.normal(true, 0.2, needed.most)
            half = stats.t.ppf(1 - alpha / 2, needed.most - 1) * every.std(ddof=1) / math.sqrt(needed.most)
            settled.append(bool(abs(every.mean()) > half))
    if true == 0.0:
        assert len(settled) / 2000 <= 0.12
    elif len(settled) >= 100:
        assert np.mean(settled) >= 0.8


def test_blocks_needed_says_when_it_cannot_be_estimated() -> None:
    assert intervals.blocks_needed(0.1, 0.1, 1, 1, 0.05, 0.03) is None
    assert intervals.blocks_needed(0.1, 0.0, 1, 2, 0.05, 0.03) is None
    assert intervals.blocks_needed(0.0, 2.0, 1, 2, 0.05, 0.03) is None
    assert intervals.blocks_needed(0.1, 0.1, 2, 3, 0.05, 0.03, resolution=1.0) is None


def test_more_blocks_than_now() -> None:
    found = effect([101, 108, 103], [100, 100, 100])
    assert found.verdict is Verdict.NOT_ENOUGH_DATA
    assert found.needed is None or found.needed.most > 3
