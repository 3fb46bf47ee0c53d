"""The judge of a change that takes a restart: pairs of hosts, before and after one of each is changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.rollout import paired_fleets
from headrace.rollout.judge import THROUGHPUT, TIME, Block, Outcome, Question, judge
from headrace.rollout.paired import Moment, Paired
from tests.unit.test_judge import noisy

QUESTION = Question((6, 12, 18))


def moments(
    before: list[float], after: list[float], *, host: str = "db1", season: float = 0.0
) -> list[Moment]:
    """Gaps of a pair, whose hosts both follow a season."""
    found: list[Moment] = []
    for is_after, gaps in ((False, before), (True, after)):
        for gap in gaps:
            level = 1e-3 * math.exp(season * len(found))
            found.append(Moment(host, Block(level * math.exp(gap), 1000.0), Block(level, 1000.0), is_after))
    return found


def test_the_cost_is_the_gap_after_minus_the_gap_before_and_what_moves_both_is_not_in_it() -> None:
    found = moments(noisy(0.5, 12), noisy(0.2, 12, seed=2), season=0.3)
    evidence = Paired(found).evidence(TIME)
    assert evidence.estimate == pytest.approx(-0.3, abs=0.02)
    judged = judge(QUESTION, Paired(found), ["db1"])
    assert (judged.outcome, judged.is_win) == (Outcome.PASS, True)
    assert "blocks" in judged.reason


def test_harm_is_found_and_a_standing_difference_of_the_hosts_is_none() -> None:
    harmed = judge(QUESTION, Paired(moments(noisy(0, 12), noisy(0.4, 12, seed=2))), ["db1"])
    assert harmed.outcome is Outcome.FAIL
    unequal = judge(QUESTION, Paired(moments(noisy(0.4, 12), noisy(0.4, 12, seed=2))), ["db1"])
    assert (unequal.outcome, unequal.is_win) == (Outcome.PASS, False)


def test_without_blocks_before_or_after_nothing_is_known() -> None:
    assert Paired([]).evidence(TIME).degrees == 0
    for before, after in ((noisy(0, 12), []), ([], noisy(0.4, 18)), (noisy(0, 2), noisy(0.4, 18))):
        assert Paired(moments(before, after)).evidence(TIME).degrees == 0
        assert judge(QUESTION, Paired(moments(before, after)), ["db1"]).outcome is not Outcome.PASS
    nothing = [Moment("db1", Block(None, None), Block(1e-3, 1.0), is_after=True)] * 36
    assert judge(QUESTION, Paired(nothing), ["db1"]).outcome is Outcome.INCONCLUSIVE


def test_blocks_that_drift_are_worth_less_than_their_number() -> None:
    steps = np.random.default_rng(3).normal(0, 0.02, 48)
    walk = list(np.cumsum(steps))
    still = Paired(moments(noisy(0, 24), noisy(0, 24, seed=2))).evidence(TIME)
    drifting = Paired(moments(walk[:24], walk[24:])).evidence(TIME)
    assert drifting.degrees < still.degrees / 2


def test_a_look_takes_the_first_blocks_after_and_all_before() -> None:
    found = moments(noisy(0, 12), [*noisy(-0.3, 6), *noisy(5.0, 6)])
    evidence = Paired(found).evidence(TIME, first=6)
    assert evidence.count == 6
    assert evidence.estimate == pytest.approx(-0.3, abs=0.05)


def test_each_pair_is_compared_with_its_own_past() -> None:
    found = [
        *moments(noisy(1.0, 12), noisy(0.8, 12, seed=2), host="a"),
        *moments(noisy(-1.0, 12, seed=3), noisy(-1.2, 12, seed=4), host="b"),
    ]
    both = Paired(found)
    assert both.evidence(TIME).estimate == pytest.approx(-0.2, abs=0.02)
    assert both.evidence(TIME, "a").count == 12
    assert both.evidence(THROUGHPUT).estimate == pytest.approx(0.0, abs=1e-9)


def test_a_few_simulated_restarts_are_judged_rightly() -> None:
    """The audit's 2,000 take minutes; this shows that they run."""
    rates = {rate.what: rate for rate in paired_fleets.simulate(10, seed=7)}
    assert len(rates) == 9
    assert [what for what, rate in rates.items() if not rate.holds] == []


@pytest.mark.slow
def test_simulated_restarts_are_judged_rightly() -> None:
    rates = {rate.what: rate for rate in paired_fleets.simulate(300, seed=7)}
    assert [what for what, rate in rates.items() if not rate.holds] == []
