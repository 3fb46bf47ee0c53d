"""Races without a server: what a judge says of tables of numbers, and which trials come next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from headrace import plan as plans
from headrace.analysis.race import pool, run_race
from headrace.design import Design
from headrace.errors import PlanError
from headrace.experiment import kinds
from headrace.experiment.kinds import race
from headrace.model import Role, TrialState
from headrace.store import TrialRecord

COMPLETE, FAILED = TrialState.COMPLETE, TrialState.FAILED

PLAN = """
name = "r"
[design]
kind = "race"
baseline = "100"
blocks = 6
{more}
[workload]
kind = "oltp"
seconds = 1
[factors.pool]
knob = "server.innodb_io_capacity"
levels = [100, 200, 400, 800]
"""


def logs(**values: Sequence[float | None]) -> dict[str, list[float | None]]:
    return {name: [None if v is None else math.log(v) for v in row] for name, row in values.items()}


def test_who_is_far_behind_leaves_after_the_second_block() -> None:
    table = logs(a=[100, 101], b=[99, 101], c=[50, 51], d=[100, 99], e=[98, 100])
    found = run_race(table)
    assert found.survivors[0] == found.leader == "a"
    assert set(found.survivors) == {"a", "b", "d", "e"}
    (gone,) = [s for s in found.standings if s.dropped_after]
    assert (gone.treatment, gone.dropped_after, gone.is_failed) == ("c", 2, False)
    assert gone.to_leader is not None
    assert 0.49 < gone.to_leader.estimate < 0.52


def test_what_left_stays_away_whatever_comes_later() -> None:
    table = logs(
        a=[100, 101, 10], b=[99, 101, 10], c=[50, 51, None], d=[100, 99, 10], e=[98, 100, 10], f=[97, 99, 10]
    )
    assert "c" not in run_race(table).survivors


def test_one_block_decides_nothing() -> None:
    found = run_race(logs(a=[100], b=[1]))
    assert found.survivors == ("a", "b")
    assert not found.is_decided
    assert found.standings[1].to_leader is not None
    assert found.standings[1].to_leader.low is None


def test_a_treatment_that_fails_leaves() -> None:
    table: Mapping[str, Sequence[float | None]] = {"a": [1.0, 1.0], "b": [math.nan]}
    found = run_race(table)
    assert found.survivors == ("a",)
    assert found.is_decided
    assert found.standings[1].is_failed


def test_nothing_that_can_be_measured() -> None:
    found = run_race({"a": [math.nan], "b": [math.nan]})
    assert found.survivors == ()
    assert found.is_decided


def test_a_latency_is_better_when_lower() -> None:
    rows = {name: [2.0 * i, 2.0 * i + 0.01, 2.0 * i - 0.01] for i, name in enumerate("abcde")}
    assert run_race(rows, is_higher_better=False).survivors == ("a",)
    assert run_race(rows).survivors == ("e",)


def test_equals_are_called_so() -> None:
    rng = np.random.default_rng(3)
    table = {name: list(rng.normal(0, 0.005, 8)) for name in "abcdef"}
    found = run_race(table, margin=0.03)
    assert found.is_decided
    assert len(found.survivors) == 6


def test_the_pooled_variance_is_that_of_least_squares() -> None:
    """Beside an independent computation: the additive model fitted with dummy variables."""
    rng = np.random.default_rng(4)
    table = rng.normal(0, 1, (5, 4)) + np.arange(5)[:, None]
    table[3, 2:] = np.nan
    table[4, 1] = np.nan
    rows, columns = np.nonzero(~np.isnan(table))
    design = np.zeros((len(rows), 9))
    design[np.arange(len(rows)), rows] = 1
    design[np.arange(len(rows)), 5 + columns] = 1
    _, _, rank, _ = np.linalg.lstsq(design, table[rows, columns], rcond=None)
    fitted = design @ np.linalg.lstsq(design, table[rows, columns], rcond=None)[0]
    expected = ((table[rows, columns] - fitted) ** 2).sum() / (len(rows) - rank)
    found = pool(table)
    assert found.degrees == len(rows) - rank
    assert math.isclose(found.variance, expected, rel_tol=1e-6)


# Which trials run.


def any_record(
    number: int, treatment: str, block: int, state: TrialState = TrialState.COMPLETE
) -> TrialRecord:
    return TrialRecord(number, block, 1, treatment, Role.CANDIDATE, state)


def built(more: str = "") -> Design:
    plan = plans.parse(PLAN.format(more=more), "race.toml")
    return kinds.build(plan, place="race.toml")


def after(design: Design, blocks: int, speeds: Mapping[str, float]) -> race.Progress:
    """The race after its first ``blocks`` blocks, measured with hardly any noise."""
    records: list[TrialRecord] = []
    values: dict[int, float | None] = {}
    found = race.follow(design, records, values)
    for _ in range(blocks):
        if found.is_over:
            break
        for spec in race._trials(found.runners, design.seed):
            if spec.number in values:
                continue
            records.append(any_record(spec.number, spec.treatment, block=spec.block))
            values[spec.number] = math.log(speeds[spec.treatment]) + 0.001 * (spec.number % 3)
        found = race.follow(design, records, values)
    return found


def test_a_race_runs_each_treatment_once_a_block() -> None:
    design = built()
    assert design.kind == "race"
    names = [t.treatment for t in design.trials]
    assert len(names) == 6 * 4
    orders = {tuple(names[i : i + 4]) for i in range(0, 24, 4)}
    assert len(orders) > 1, "a fresh order a block"
    assert {frozenset(order) for order in orders} == {frozenset(("100", "200", "400", "800"))}


def test_the_beaten_run_no_more() -> None:
    speeds = {"100": 1.0, "200": 2.0, "400": 4.0, "800": 4.1}
    found = after(built(), 6, speeds)
    assert len(found.runners[0]) == len(found.runners[1]) == 4
    assert all(set(names) <= {"400", "800"} for names in found.runners[2:])
    assert found.is_over
    assert found.races[""].leader == "800"


def test_the_same_trials_for_the_same_decisions() -> None:
    runners = [["a", "b", "c"], ["a", "b", "c"], ["a", "c"]]
    assert list(race._trials(runners, 3))[:6] == list(race._trials(runners[:2], 3))
    assert [t.number for t in race._trials(runners, 3)] == list(range(1, 9))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PLAN.format(more="").partition("[factors")[0]
            + """[factors.sizes]\nlevels = { "100" = {}, big = {} }\n[[design.exclude]]\nsizes = "big"\n""",
            "at least two treatments",
        ),
        (PLAN.format(more='response = "p98"'), "design.response = 'p98'"),
        (PLAN.format(more='response = "p99"').replace('"race"', '"factorial"'), "only a race"),
    ],
)
def test_an_error_says_what_a_race_needs(text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        kinds.build(plans.parse(text, "race.toml"), place="race.toml")
    assert said in error.value.message


def test_a_failed_trial_ends_a_treatments_race() -> None:
    design = built()
    found = race.follow(design, [], {})
    records = [
        any_record(t.number, t.treatment, block=1, state=FAILED if t.treatment == "100" else COMPLETE)
        for t in race._trials(found.runners, design.seed)
    ]
    values = {r.number: 1.0 for r in records}
    assert set(race.follow(design, records, values).runners[1]) == {"200", "400", "800"}
