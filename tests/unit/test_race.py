"""Races without a server: what a judge says of tables of numbers, and which trials come next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.base.errors import PlanError
from headrace.base.model import Role, TrialState
from headrace.experiment import kinds
from headrace.experiment import plan as plans
from headrace.experiment.frozen import Design
from headrace.experiment.kinds import race
from headrace.experiment.report.race.view import remaining
from headrace.experiment.stats.race import Judge, Race, pool, run_race
from headrace.experiment.store import TrialRecord

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


def test_what_remains_is_not_thereby_as_good() -> None:
    """b is not proven worse, but may be by 29%; that it is better than a by more than the margin is excluded."""
    found = run_race({"a": [7.0, 7.0, 7.0], "b": [6.8886, 6.7895, 6.8253]}, margin=0.03)
    assert found.is_decided
    assert found.survivors == ("a", "b")
    assert found.interchangeable == ("a",)
    behind = found.standings[1].to_leader
    assert behind is not None
    assert behind.low == pytest.approx(0.705, abs=0.001)


def test_of_what_remains_only_some_may_be_interchangeable() -> None:
    rng = np.random.default_rng(2)
    table = {name: list(rng.normal(0, 0.001, 6)) for name in "abcde"}
    table["noisy"] = list(rng.normal(-0.12, 0.1, 6))
    found = run_race(table, margin=0.03)
    assert found.is_decided
    assert set(found.survivors) == {*"abcde", "noisy"}
    assert set(found.interchangeable) == set("abcde")
    said = remaining(found, 0.03, is_higher_better=True)
    assert said.startswith(
        "5 that remain are within 3% of the best: take the simplest of them. 1 is not proven"
    )


def test_only_what_is_within_the_margin_is_to_be_taken() -> None:
    """For a latency the upper end says how much worse it may be: 1 / 0.705."""
    rows = {"a": [7.0, 7.0, 7.0], "b": [6.8886, 6.7895, 6.8253]}
    assert remaining(run_race(rows), 0.03, is_higher_better=True) == (
        "1 is not proven worse, but may be up to 29% worse."
    )
    slower = {name: [-value for value in row] for name, row in rows.items()}
    assert remaining(run_race(slower, is_higher_better=False), 0.03, is_higher_better=False) == (
        "1 is not proven worse, but may be up to 42% worse."
    )


BUCKET = 0.008


def coarse_race(logs: NDArray[np.float64], margin: float) -> Race:
    """A race on latencies (treatments x blocks) that are only known to a bucket."""
    names = [str(i) for i in range(len(logs))]
    judge, left = Judge(names, margin=margin, is_higher_better=False), tuple(names)
    for column in ((np.floor(logs / BUCKET) + 0.5) * BUCKET).T:
        judge.after({name: float(column[int(name)]) for name in left}, dict.fromkeys(left, BUCKET / 2))
        left = judge.race().survivors
        if judge.race().is_decided:
            break
    return judge.race()


def test_neighbouring_buckets_of_a_histogram_decide_nothing() -> None:
    found = coarse_race(np.array([[0.001] * 4, [0.009] * 4]), margin=0.01)
    assert found.survivors == ("0", "1")
    assert found.interchangeable == ("0",)
    far = coarse_race(np.array([[0.001] * 4, [0.050] * 4]), margin=0.01)
    assert far.survivors == ("0",)


def test_within_the_margin_includes_the_resolution() -> None:
    """In the same bucket the two may still differ by its width."""
    same = np.array([[0.001] * 4, [0.002] * 4])
    assert not coarse_race(same, margin=0.5 * BUCKET).is_decided
    assert coarse_race(same, margin=1.5 * BUCKET).is_decided


def test_equals_in_coarse_buckets_are_seldom_eliminated() -> None:
    rng = np.random.default_rng(77)
    n = 200
    races = [coarse_race(rng.normal(0, 0.003, (3, 8)), margin=0.001) for _ in range(n)]
    assert sum("0" not in race.survivors for race in races) <= 0.05 * n


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
    values: dict[int, race.Value | None] = {}
    found = race.follow(design, records, values)
    for _ in range(blocks):
        if found.is_over:
            break
        for spec in race._trials(found.runners, design.seed):
            if spec.number in values:
                continue
            records.append(any_record(spec.number, spec.treatment, block=spec.block))
            log = math.log(speeds[spec.treatment]) + 0.001 * (spec.number % 3)
            values[spec.number] = race.Value(log)
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
    values = {r.number: race.Value(1.0) for r in records}
    assert set(race.follow(design, records, values).runners[1]) == {"200", "400", "800"}


def test_a_race_on_a_percentile_takes_its_resolution() -> None:
    """Neighbouring buckets in each block: without the resolution one is certain to be slower."""
    design = built('response = "p99"\nequivalence = 0.001')
    found = race.follow(design, [], {})
    records: list[TrialRecord] = []
    values: dict[int, race.Value | None] = {}
    for _ in range(3):
        for spec in race._trials(found.runners, design.seed):
            if spec.number not in values:
                records.append(any_record(spec.number, spec.treatment, block=spec.block))
                values[spec.number] = race.Value(0.0078 * (spec.treatment == "800"), 0.0039)
        found = race.follow(design, records, values)
    assert set(found.races[""].survivors) == {"100", "200", "400", "800"}
