"""The judge of a rollout: what it decides from pairs, that looking often costs nothing, and simulated fleets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headrace.base.watched import HITS, OF_CACHES
from headrace.rollout import fleets
from headrace.rollout.guards import Limits, Window, tripped
from headrace.rollout.judge import (
    THROUGHPUT,
    TIME,
    Block,
    Evidence,
    Outcome,
    Pair,
    Question,
    Switchback,
    judge,
    look,
    sequence,
)

QUESTION = Question((6, 12, 18))


def pairs(*costs: float, host: str = "db1", per_s: float = 0.0) -> list[Pair]:
    return [
        Pair(host, Block(math.exp(cost) * 1e-3, 1000 * math.exp(-per_s)), Block(1e-3, 1000.0))
        for cost in costs
    ]


def noisy(mean: float, count: int, spread: float = 0.02, seed: int = 1) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, spread, count))


def test_no_data_never_passes() -> None:
    nothing = [Pair("db1", Block(None, None), Block(1e-3, 1000.0))]
    assert judge(QUESTION, Switchback(nothing * 23), ["db1"]).outcome is Outcome.CONTINUE
    judged = judge(QUESTION, Switchback(nothing * 36), ["db1"])
    assert judged.outcome is Outcome.INCONCLUSIVE
    assert "0 of 36 pairs had data" in judged.reason
    assert judge(QUESTION, Switchback([]), ["db1"]).outcome is Outcome.CONTINUE


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_absurd_values_are_no_data(value: float) -> None:
    absurd = [Pair("db1", Block(value, value), Block(1e-3, 1e3))] * 20
    assert judge(QUESTION, Switchback(absurd), ["db1"]).pairs == 0


def test_what_is_better_is_a_win_and_what_is_equal_is_none() -> None:
    better = judge(QUESTION, Switchback(pairs(*noisy(-0.3, 6))), ["db1"])
    assert (better.outcome, better.is_win) == (Outcome.PASS, True)
    assert "lower" in better.reason
    assert "6 pairs" in better.reason
    equal = judge(QUESTION, Switchback(pairs(*noisy(0.0, 6))), ["db1"])
    assert (equal.outcome, equal.is_win) == (Outcome.PASS, False)
    assert "no more than 5% higher" in equal.reason


def test_nothing_is_promoted_between_the_registered_looks() -> None:
    for count in range(6):
        assert judge(QUESTION, Switchback(pairs(*noisy(-0.3, count))), ["db1"]).outcome is Outcome.CONTINUE
    # Undecided at 6; what comes then is no look until 12.
    wild = [0.5, -0.5, 0.4, -0.4, 0.3, -0.3]
    assert judge(QUESTION, Switchback(pairs(*wild, *noisy(-0.3, 5))), ["db1"]).outcome is Outcome.CONTINUE


def test_harm_is_found_at_any_time_and_on_one_host_alone() -> None:
    counts = [
        n
        for n in range(1, 18)
        if judge(QUESTION, Switchback(pairs(*noisy(0.3, n))), ["db1"]).outcome is Outcome.FAIL
    ]
    assert counts
    assert counts[0] < QUESTION.looks[-1]
    good = [each for host in "abc" for each in pairs(*noisy(-0.01, 2, seed=ord(host)), host=host)]
    alone = pairs(*noisy(0.5, 9), host="d")
    judged = judge(Question((60,)), Switchback([*good, *alone]), [*"abcd"])
    assert judged.outcome is Outcome.FAIL
    fewer = judge(QUESTION, Switchback(pairs(*noisy(0.0, 12), per_s=0.4)), ["db1"])
    assert fewer.outcome is Outcome.FAIL
    assert THROUGHPUT in fewer.reason


def test_after_the_last_look_it_is_inconclusive_with_the_numbers() -> None:
    wild = noisy(0.0, 18, spread=0.5)
    judged = judge(QUESTION, Switchback(pairs(*wild)), ["db1"])
    assert judged.outcome is Outcome.INCONCLUSIVE
    assert "18 pairs" in judged.reason
    assert "%" in judged.reason
    assert judged.bounds is not None
    assert judged.bounds[TIME].high > math.log(1.05)


def test_looks_must_ascend() -> None:
    for looks in ((), (1,), (6, 4), (6, 6)):
        with pytest.raises(ValueError, match="ascend"):
            Question(looks)


def test_equal_blocks_to_the_last_digit_are_coarse_counters() -> None:
    """A spread of 0 would make any difference certain."""
    bound = look(Evidence.of([0.0] * 6), QUESTION)
    assert bound.low < 0 < bound.high
    assert sequence(Evidence.of([0.0] * 40), 0.05).high > 0


def test_the_sequence_covers_the_mean_at_all_times_together() -> None:
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(400):
        costs = rng.normal(0, 1, 60)
        bounds = (sequence(Evidence.of(costs[:n].tolist()), 0.1) for n in range(1, 61))
        missed += any(not bound.low <= 0 <= bound.high for bound in bounds)
    assert missed / 400 <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 400)
    # Fixed intervals looked at as often would miss it in about a half.
    assert missed > 0


def test_an_early_sequence_has_no_bound() -> None:
    assert sequence(Evidence.of([0.1, 0.2]), 0.05).high == math.inf
    assert sequence(Evidence.of([]), 0.05).low == -math.inf
    wide, narrow = (sequence(Evidence.of(noisy(0, n)), 0.05) for n in (8, 60))
    assert narrow.high - narrow.low < wide.high - wide.low < math.inf


def test_a_few_sightings_pass_no_limit() -> None:
    usual = [Window(60, 600, 12.0, sightings=12)]
    assert tripped(Window(15, 150, 9.0, sightings=9), usual, Limits()) == ""
    assert "times the slowest" in tripped(Window(15, 150, 90.0, sightings=90), usual, Limits())


def test_guards_compare_a_host_with_its_own_past() -> None:
    usual = [Window(60, 60_000, 60.0), Window(60, 50_000, 60.0)]
    limits = Limits()
    assert tripped(Window(60, 60_000, 70.0), usual, limits) == ""
    assert "times the slowest" in tripped(Window(60, 60_000, 200.0), usual, limits)
    assert "errors" in tripped(Window(60, 60_000, 60.0, errors=200), usual, limits)
    assert tripped(Window(60, 60_000, 60.0, errors=9), usual, limits) == ""
    noisier = [Window(60, 60_000, 60.0, errors=200)]
    assert tripped(Window(60, 60_000, 60.0, errors=200), noisier, limits) == ""
    assert "lags" in tripped(Window(60, 60_000, 60.0, lag_s=31), usual, limits)
    assert "instead of" in tripped(Window(60, 10_000, 10.0), usual, limits)
    assert tripped(Window(60, 1, 0.0), [], limits) == ""
    assert tripped(Window(60, 60_000, 60.0, broken="it stands"), [], limits) == "it stands"


@pytest.mark.slow
def test_simulated_fleets_are_judged_rightly() -> None:
    rates = {rate.what: rate for rate in fleets.simulate(300, seed=7)}
    assert [what for what, rate in rates.items() if not rate.holds] == []
    pooled = [rate.rate for what, rate in rates.items() if "pooled" in what]
    assert min(pooled) > 2 * fleets.POOLED_ALPHA, "pooled points are what this judge is there to avoid"


OF_CACHE = replace(QUESTION, response="p99 of the probe's gets", watched=OF_CACHES)


def of_cache(*costs: float, falls: float | None = 0.0, seed: int = 2) -> list[Pair]:
    """``falls``: by so many points the hit rate does, a little more or less; None: it is not known."""
    rng = np.random.default_rng(seed)
    usual = {"evictions": 0.0, "refused connections": 0.0, "failed gets": 0.0}
    found = []
    for pair in pairs(*costs):
        off = {**usual, HITS.name: -90 + float(rng.normal(0, 0.05))}
        on = {**usual, HITS.name: None if falls is None else -90 + falls + float(rng.normal(0, 0.05))}
        found.append(replace(pair, on=replace(pair.on, watched=on), off=replace(pair.off, watched=off)))
    return found


def test_latency_is_no_price_for_a_guard() -> None:
    faster = noisy(-0.3, 18)
    kept = judge(OF_CACHE, Switchback(of_cache(*faster)), ["c1"])
    assert (kept.outcome, kept.is_win) == (Outcome.PASS, True)
    assert kept.reason.startswith("p99 of the probe's gets is lower: ")
    harmed = judge(OF_CACHE, Switchback(of_cache(*faster, falls=5.0)), ["c1"])
    assert harmed.outcome is Outcome.FAIL
    assert harmed.reason.startswith("hit rate is worse: -4.97 points (")


@pytest.mark.parametrize("falls", [1.03, None])
def test_a_guard_that_is_not_proven_promotes_nothing(falls: float | None) -> None:
    """At its limit, or unknown: it is not proven to be within it, and no harm is proven either."""
    judged = judge(OF_CACHE, Switchback(of_cache(*noisy(-0.3, 18), falls=falls)), ["c1"])
    assert judged.outcome is Outcome.INCONCLUSIVE
    assert judged.reason.endswith("not proven within its limit: hit rate")


def test_guards_are_seldom_broken_by_chance() -> None:
    """Of 400 stages in which nothing changed, looked at after each pair."""
    rolled = 0
    for seed in range(400):
        own = of_cache(*noisy(0.0, 12, seed=seed), seed=seed)
        looks = (judge(OF_CACHE, Switchback(own[:count]), ["c1"]) for count in range(2, 13))
        rolled += any(each.outcome is Outcome.FAIL for each in looks)
    assert rolled <= 20
