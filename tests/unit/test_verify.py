"""A change in production against a known truth: coverage, mixes, resolution, and what is missing."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.base.effect import Verdict
from headrace.change.contrast import contrast
from headrace.change.panel import Window, quantiles
from headrace.change.production import Series
from headrace.change.production.series import common_edges, rebinned
from headrace.change.production.weeks import WEEK_S, earlier, names
from headrace.change.report.verify import headline, page_of
from headrace.change.verify import Change, Question, Verified, verify
from headrace.show.notice import Conclusion
from tests.production import AT_S, CELL_S, EDGES_NS, FINE_NS, fleet, waves, window

#: So fine that hardly anything but sampling is in the intervals: 0.4%.
FINEST_NS = np.concatenate(([0.0], 1e5 * 1.004 ** np.arange(1900), [np.inf]))


def looked(
    seed: int, treated: int, control: int, cells: tuple[int, int], *, with_parts: bool = False, **how: Any
) -> Verified:
    names = [f"db{i}" for i in range(treated)], [f"ctl{i}" for i in range(control)]
    series = fleet(np.random.default_rng(seed), [*names[0], *names[1]], cells, changed=names[0], **how)
    question = Question(tuple(names[0]), tuple(names[1]), window(*cells))
    return verify(series, question, with_parts=with_parts)


def of(found: Verified, response: str) -> Change:
    return next(each for each in found.fleet if each.response == response)


@pytest.mark.parametrize(
    ("treated", "control", "spread", "carried"),
    [
        (4, 4, 0.05, 0.6),
        (2, 2, 0.05, 0.0),
        (6, 1, 0.05, 0.6),
        (1, 1, 0.0, 0.6),
        (1, 0, 0.0, 0.7),
        (3, 0, 0.02, 0.5),
        (1, 4, 0.05, 0.3),
        (1, 2, 0.05, 0.0),
    ],
)
def test_intervals_cover_a_known_effect(treated: int, control: int, spread: float, carried: float) -> None:
    """In 300 fleets: waves common to all, each host's own, and hosts that respond differently."""
    truth, covered, stated, wrong = -0.1, 0, 0, 0
    is_after = np.arange(96) >= 48
    for seed in range(300):
        rng = np.random.default_rng(seed)
        y = 0.1 * waves(rng, 1, 96, carried) + 0.05 * waves(rng, treated + control, 96, carried)
        y += rng.standard_normal((treated + control, 1))
        y += is_after * (truth * (np.arange(treated + control) < treated)[:, None])
        y += is_after * spread * rng.standard_normal((treated + control, 1))
        found = contrast(y[:treated], y[treated:], is_after, 0.05)
        assert found is not None
        if found.half is not None:
            stated += 1
            covered += abs(found.log - truth) <= found.half
            wrong += found.log - found.half > 0
    assert stated >= 100
    assert covered >= 0.93 * stated, (covered, stated)
    assert wrong <= 0.025 * stated


def test_injected_latencies_are_covered() -> None:
    """The same from histograms to the verdicts."""
    hits: Counter[str] = Counter()
    for seed in range(20):
        found = looked(seed, 3, 3, (24, 24), effect=-0.2, edges=FINE_NS)
        for each in found.fleet[1:]:
            assert each.verdict is not Verdict.WORSE
            assert each.ratio.low is not None
            assert each.ratio.high is not None
            hits[each.response] += each.ratio.low <= math.exp(-0.2) <= each.ratio.high
    assert sum(hits.values()) >= 0.93 * 80, hits


def unchanged(seed: int) -> Verified:
    """Three hosts and three controls whose median, tail and calls vary each by itself."""
    rng, cells, hosts = np.random.default_rng(seed), (14, 14), [f"db{i}" for i in range(6)]
    edges, spread = np.concatenate(([0.0], 1e5 * 1.008 ** np.arange(1150), [np.inf])), 0.2
    how: dict[str, Any] = {"common": 0.0, "own": 0.03, "spread": spread, "carried": 0.0, "edges": edges}
    body = fleet(rng, hosts, cells, **how)
    tail = fleet(rng, hosts, cells, medians_ms=(60.0,), calls=600, **how)
    is_after = np.arange(sum(cells)) >= cells[0]
    series = []
    for one, other in zip(body, tail, strict=True):
        calls = np.exp(0.03 * waves(rng, 1, sum(cells), 0.0)[0] + is_after * spread * rng.standard_normal())
        series.append(replace(one, counts=(one.counts + other.counts) * calls[:, None]))
    question = Question(tuple(hosts[:3]), tuple(hosts[3:]), window(*cells))
    return verify(series, question, with_parts=False)


@pytest.mark.slow
def test_any_response_of_an_unchanged_fleet_is_claimed_at_most_as_often_as_alpha() -> None:
    """Five responses, of which three have nothing to do with each other: alone each would be right."""
    fleets = 200
    claimed = sum(
        any(each.verdict in (Verdict.BETTER, Verdict.WORSE) for each in unchanged(seed).fleet)
        for seed in range(fleets)
    )
    assert claimed <= 0.05 * fleets, claimed


def test_responses_share_alpha_unless_one_is_declared() -> None:
    how: dict[str, Any] = {"effect": -0.2, "edges": FINE_NS}
    all_of_them, without = looked(1, 3, 3, (24, 24), **how), looked(1, 3, 0, (24, 24), **how)
    counts = looked(1, 3, 3, (24, 24), edges=np.array([0.0, np.inf]))
    assert (all_of_them.claims, without.claims, counts.claims) == (5, 4, 1)
    names = [f"db{i}" for i in range(3)], [f"ctl{i}" for i in range(3)]
    series = fleet(np.random.default_rng(1), [*names[0], *names[1]], (24, 24), changed=names[0], **how)
    question = Question(tuple(names[0]), tuple(names[1]), window(24, 24), responses=("p99",))
    alone = verify(series, question)
    assert [each.response for each in alone.fleet] == ["p99"]
    assert set(alone.hosts) == set(alone.bands) == {"p99"}
    one, shared = of(alone, "p99").ratio, of(all_of_them, "p99").ratio
    assert one.estimate == shared.estimate
    assert one.low is not None
    assert shared.low is not None
    assert shared.low < one.low


def test_waves_are_not_a_change() -> None:
    """Neighbouring blocks that are alike are few blocks, also where the noise of counting hides that."""
    found = [looked(seed, 1, 1, (36, 36), edges=FINE_NS, spread=0.0, carried=0.8) for seed in range(20)]
    for response in ("p50", "p99", "p99.9"):
        wrong = sum(of(each, response).verdict in (Verdict.BETTER, Verdict.WORSE) for each in found)
        assert wrong <= 3, response


def moved(seed: int, *, controls: int = 4, spread: float = 0.05, slow: float = 0.0) -> Verified:
    """Four hosts, of which the last is ``slow`` (log), and controls; each moves by ``spread`` at the change."""
    rng, hosts = np.random.default_rng(seed), [f"db{i}" for i in range(4)]
    others = [f"ctl{i}" for i in range(controls)]
    how: dict[str, Any] = {"common": 0.0, "spread": spread, "carried": 0.0, "edges": FINE_NS}
    series = fleet(rng, [*hosts, *others], (24, 24), effect=slow, changed=hosts[3:], **how)
    return verify(series, Question(tuple(hosts), tuple(others), window(24, 24), responses=("p50",)))


@pytest.mark.slow
def test_what_a_host_does_by_itself_is_no_change_for_the_worse() -> None:
    """Nothing changed in 100 fleets; each host's level moves by 5% at that time, as those of the controls do."""
    found = [moved(seed) for seed in range(100)]
    assert sum(each.is_worse for each in found) <= 5


def test_one_slow_host_of_four_is_found_beside_four_controls() -> None:
    overs = set()
    for seed in range(10):
        found = moved(seed, spread=0.01, slow=math.log(1.5))
        assert [each.name for each in found.hosts["p50"] if each.verdict is Verdict.WORSE] == ["db3"], seed
        assert found.is_worse
        overs |= {each.over for each in found.hosts["p50"]}
    assert overs == {"controls", "blocks"}


def test_how_much_hosts_change_by_themselves_takes_two_controls_and_is_said() -> None:
    for controls in (0, 1, 2):
        found = moved(1, controls=controls)
        is_said = any("what a host changes by itself is unknown" in note for note in found.notes)
        assert is_said is (controls == 1)
        missing = {each.missing.partition(":")[0] for each in found.hosts["p50"] if each.over == "controls"}
        assert missing == ({"2 control hosts changed at that time by themselves"} if controls == 2 else set())


SHIFT: dict[str, Any] = {"medians_ms": (1.0, 16.0), "mix": ((0.5, 0.5), (0.8, 0.2))}


def test_a_shifted_mix_without_effect_is_not_a_win() -> None:
    """The queries become cheaper because the workload did: without classes that would look like a win."""
    quiet: dict[str, Any] = {"common": 0.02, "own": 0.02, "spread": 0.0, "edges": FINEST_NS}
    for seed in range(5):
        found = looked(seed, 2, 2, (24, 24), **SHIFT, **quiet)
        assert not [each for each in found.fleet[1:] if each.verdict is Verdict.BETTER]
        assert of(found, "p50").ratio.estimate == pytest.approx(1, abs=0.05)


def test_without_classes_the_same_shift_would_look_like_a_win() -> None:
    names = ["db0"]
    series = fleet(
        np.random.default_rng(1), names, (24, 24), changed=names, spread=0.0, edges=FINEST_NS, **SHIFT
    )
    first, second = series
    total = [Series("db0", "", first.start_s, first.end_s, first.edges_ns, first.counts + second.counts)]
    question = Question(("db0",), (), window(24, 24))
    assert of(verify(total, question), "p50").ratio.estimate < 0.7
    assert of(verify(series, question), "p50").ratio.estimate > 0.9


def test_nothing_is_claimed_below_the_resolution_of_the_buckets() -> None:
    quiet: dict[str, Any] = {"common": 0.0, "own": 0.0, "spread": 0.0, "calls": 200_000}
    coarse = looked(1, 2, 2, (24, 24), effect=-0.03, edges=EDGES_NS, **quiet)
    fine = looked(1, 2, 2, (24, 24), effect=-0.03, edges=FINEST_NS, **quiet)
    assert of(fine, "p50").verdict is Verdict.BETTER
    assert of(coarse, "p50").verdict is Verdict.NOT_ENOUGH_DATA
    assert "resolution" in of(coarse, "p50").missing
    assert of(coarse, "p50").resolution >= 0.04


def test_what_is_missing_is_said() -> None:
    little = looked(1, 1, 0, (2, 2))
    assert "blocks" in of(little, "p50").missing
    first = headline(little)
    assert "needs 15 minutes of data on each side of the change" in first
    # As many as are needed, but one says what the next will: then it is no lack of minutes that has to be told.
    assert "are worth too few independent ones" in of(looked(1, 1, 0, (3, 3)), "p50").missing
    rare = looked(1, 1, 0, (8, 8), calls=50)
    assert "too few calls for p99.9" in of(rare, "p99.9").missing
    assert of(rare, "p99.9").verdict is Verdict.NOT_ENOUGH_DATA
    before = Question(("db0",), (), Window(AT_S, AT_S, AT_S, AT_S - 9000, AT_S))
    series = fleet(np.random.default_rng(1), ["db0"], (30, 0))
    assert "after the change" in of(verify(series, before), "p50").missing
    demand = looked(1, 2, 0, (24, 24))
    assert "control" in of(demand, "throughput").missing


def test_a_source_of_counts_has_throughput_and_no_percentiles() -> None:
    found = looked(1, 2, 2, (24, 24), edges=np.array([0.0, np.inf]))
    assert of(found, "throughput").verdict is Verdict.EQUIVALENT
    assert [each.response for each in found.fleet] == ["throughput"]
    assert found.notes[0] == "response times are not compared: the sources only count calls"


def test_equivalent_is_said_only_if_nothing_that_can_be_judged_is_open() -> None:
    """Calls without control hosts and percentiles without buckets never have a verdict."""
    counted = looked(1, 2, 2, (24, 24), edges=np.array([0.0, np.inf]))
    assert concluded(counted) is Conclusion.EQUIVALENT
    found = looked(1, 2, 0, (24, 24), edges=FINE_NS)
    assert of(found, "throughput").verdict is Verdict.NOT_ENOUGH_DATA
    percentiles = [each for each in found.fleet if each.response != "throughput"]
    same = [replace(each, verdict=Verdict.EQUIVALENT) for each in percentiles]
    calls = of(found, "throughput")
    assert concluded(replace(found, fleet=(calls, *same), hosts={})) is Conclusion.EQUIVALENT
    tail = replace(same[-1], verdict=Verdict.NOT_ENOUGH_DATA)
    is_open = replace(found, fleet=(calls, *same[:-1], tail), hosts={})
    assert concluded(is_open) is Conclusion.NOT_ENOUGH_DATA
    faster = replace(same[0], verdict=Verdict.BETTER)
    assert concluded(replace(is_open, fleet=(faster, *is_open.fleet))) is Conclusion.BETTER


def concluded(found: Verified) -> Conclusion:
    notice = page_of(found, (), alpha=0.05, margin=0.03).notice
    assert notice is not None
    return notice.conclusion


def test_the_worst_host_is_found() -> None:
    rng = np.random.default_rng(3)
    names = ["db0", "db1", "db2"]
    quiet: dict[str, Any] = {"common": 0.02, "own": 0.02, "spread": 0.0, "edges": FINEST_NS}
    good = fleet(rng, [*names[:2], "ctl"], (36, 36), changed=names, effect=-0.2, **quiet)
    bad = fleet(rng, names[2:], (36, 36), changed=names, effect=0.4, **quiet)
    found = verify([*good, *bad], Question(tuple(names), ("ctl",), window(36, 36)))
    assert found.worst["p99"].name == "db2"
    assert found.worst["p99"].verdict is Verdict.WORSE
    assert found.is_worse


def test_the_merged_percentiles_are_those_of_the_changed_hosts() -> None:
    found = looked(1, 2, 2, (24, 24), effect=-0.5, edges=FINE_NS, common=0.0, own=0.0, spread=0.0)
    median = of(found, "p50")
    assert median.after / median.before == pytest.approx(math.exp(-0.5), rel=0.03)
    assert median.controls == pytest.approx(1, abs=0.03)


def test_gaps_neither_move_a_level_nor_count_as_zero() -> None:
    """A host that is away while all are slow would look fast if its blocks were simply averaged."""
    wave = np.where(np.arange(20) % 5 == 0, 1.0, 0.0)
    y = np.tile(wave, (6, 1)) + 0.01 * np.random.default_rng(1).standard_normal((6, 20))
    is_after = np.arange(20) >= 10
    y[0, [10, 15]] = np.nan
    found = contrast(y[:3], y[3:], is_after, 0.05)
    assert found is not None
    assert found.log == pytest.approx(0, abs=0.02)


def test_a_missing_stretch_is_no_low_throughput() -> None:
    names = ["db0", "db1", "ctl0", "ctl1"]
    series = fleet(np.random.default_rng(1), names, (24, 24), edges=FINEST_NS)
    keep = np.ones(48, dtype=bool)
    keep[30:36] = False
    cut = [
        Series(s.host, "", s.start_s[keep], s.end_s[keep], s.edges_ns, s.counts[keep])
        if s.host == "db0"
        else s
        for s in series
    ]
    found = verify(cut, Question(("db0", "db1"), ("ctl0", "ctl1"), window(24, 24)))
    assert of(found, "throughput").ratio.estimate == pytest.approx(1, abs=0.01)


def test_a_stretch_without_a_call_is_low_throughput_and_no_gap() -> None:
    """An outage of half an hour in two hours: the source has the stretches, and nobody was served in them."""
    names = ["db0", "db1", "ctl0", "ctl1"]
    series = fleet(np.random.default_rng(1), names, (24, 24), edges=FINEST_NS)
    for each in series:
        if each.host in ("db0", "db1"):
            each.counts[30:36] = 0.0
    question = Question(("db0", "db1"), ("ctl0", "ctl1"), window(24, 24))
    assert of(verify(series, question), "throughput").ratio.estimate < 0.9
    for each in series:
        if each.host == "db0":
            each.counts[24:] = 0.0
    gone = of(verify(series, question), "throughput")
    assert gone.verdict is Verdict.NOT_ENOUGH_DATA
    assert "without any call" in gone.missing


def test_bounds_that_changed_are_joined_at_those_that_both_have() -> None:
    old = np.array([0.0, 1.0, 2.0, 4.0, np.inf])
    new = np.array([0.0, 1.0, 3.0, 4.0, np.inf])
    stretch = np.array([0.0]), np.array([1.0])
    series = [
        Series("a", "", *stretch, old, np.array([[1.0, 2, 3, 4]])),
        Series("a", "", *stretch, new, np.ones((1, 4))),
    ]
    common = common_edges(series)
    assert common.tolist() == [0, 1, 4, np.inf]
    assert rebinned(series[0].counts, old, common).tolist() == [[1, 5, 4]]


def test_a_quantile_is_within_its_bucket() -> None:
    edges = np.array([0.0, 1e6, 2e6, np.inf])
    value, width = quantiles(np.array([[0.25, 0.5, 0.25], [0.0, 0.2, 0.8]]), edges, 0.5)
    assert np.exp(value[0]) == pytest.approx(math.sqrt(2) * 1e6)
    assert width[0] == pytest.approx(math.log(2))
    assert math.isinf(width[1])


def test_blocks_are_longer_than_the_stretches_of_the_source() -> None:
    found = looked(1, 2, 0, (24, 24))
    assert of(found, "p50").block_s >= CELL_S


# Earlier weeks as controls.


@pytest.mark.parametrize(("hosts", "weeks"), [(1, 4), (3, 4), (2, 8)])
def test_weeks_that_change_by_themselves_are_in_the_interval(hosts: int, weeks: int) -> None:
    """What moves all hosts of one week is in no other week: in 300 fleets the interval covers the truth."""
    truth, covered, naive = -0.1, 0, 0
    is_after = np.arange(48) >= 24
    for seed in range(300):
        rng = np.random.default_rng(seed)
        y = 0.02 * waves(rng, (weeks + 1) * hosts, 48, 0.3).reshape(weeks + 1, hosts, 48)
        y += rng.standard_normal((1, hosts, 1)) + 0.1 * rng.standard_normal((weeks + 1, 1, 1))
        y += is_after * 0.05 * rng.standard_normal((weeks + 1, 1, 1))
        y[0] += is_after * truth
        for is_weeks in (True, False):
            found = contrast(y[0], y[1:].mean(axis=1), is_after, 0.05, is_weeks=is_weeks)
            assert found is not None
            assert found.half is not None
            is_in = abs(found.log - truth) <= found.half
            covered += is_in and is_weeks
            naive += is_in and not is_weeks
    assert covered >= 0.93 * 300
    # A single host is held against what its controls do by themselves, whatever they are.
    assert naive == covered if hosts == 1 else naive < covered


def test_one_earlier_week_is_no_evidence() -> None:
    rng = np.random.default_rng(1)
    is_after = np.arange(48) >= 24
    found = contrast(waves(rng, 2, 48, 0.0), waves(rng, 1, 48, 0.0), is_after, 0.05, is_weeks=True)
    assert found is not None
    assert found.half is None


@pytest.mark.parametrize(("effect", "said"), [(0.0, Verdict.EQUIVALENT), (-0.2, Verdict.BETTER)])
def test_a_daily_season_cancels_against_earlier_weeks(effect: float, said: Verdict) -> None:
    """Every week is twice as slow after that hour; without weeks that is taken for the change."""
    rng, hosts, cells = np.random.default_rng(3), ["db0", "db1"], (24, 24)
    quiet: dict[str, Any] = {"common": 0.0, "own": 0.002, "spread": 0.0, "edges": FINEST_NS, "calls": 100_000}
    series = []
    for k in range(5):
        own = fleet(rng, hosts, cells, changed=hosts, effect=0.7 + (effect if k == 0 else 0.0), **quiet)
        moved = k * WEEK_S
        series += [replace(s, start_s=s.start_s - moved, end_s=s.end_s - moved) for s in own]
    series += earlier(series, hosts, 4, AT_S)
    question = Question(tuple(hosts), names(hosts, 4), window(*cells), weeks=4)
    found = verify(series, question)
    assert of(found, "p50").verdict is said
    assert {change.verdict for change in found.hosts["p50"]} == {said}
    alone = verify(series, Question(tuple(hosts), (), window(*cells)))
    assert of(alone, "p50").verdict is Verdict.WORSE
