"""Tuning without a server: ranges and their errors, proposals on functions with a known best, what is
confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.effect import Effect, Verdict
from headrace.base.errors import PlanError
from headrace.base.intervals import Interval
from headrace.base.model import Role, TrialState, Value
from headrace.experiment import plan as plans
from headrace.experiment import space
from headrace.experiment.kinds import search
from headrace.experiment.kinds.search import Constraint, Found
from headrace.experiment.plan import KnobRange, TuneTable
from headrace.experiment.report.tune import words
from headrace.experiment.space import Seen
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.tune import Confirmed, Tuned, chosen, front_of, lean_of

PLAN = """
name = "t"
[workload]
kind = "oltp"
seconds = 1
[tune]
{more}
[tune.knobs]
pool = {{ knob = "server.innodb_buffer_pool_size", low = "64M", high = "4G", start = "128M" }}
capacity = {{ knob = "server.innodb_io_capacity", low = 100, high = 20000, start = 200 }}
flush = {{ knob = "server.innodb_flush_method", levels = ["fsync", "O_DIRECT"], start = "fsync" }}
"""


def parsed(more: str = "", **replaced: str) -> plans.Plan:
    text = PLAN.format(more=more)
    for old, new in replaced.items():
        text = text.replace(old, new)
    return plans.parse(text, "tune.toml")


def table(more: str = "") -> TuneTable:
    found = parsed(more).tune
    assert found is not None
    return found


def test_the_shipped_plan_is_sound() -> None:
    plan = plans.load(Path("examples/tune.toml")).plan
    design = search.Search.build(plan, place="tune.toml")
    assert plan.tune is not None
    assert len(plan.tune.knobs) == 15
    assert design.trials[0].treatment == "AS-IS"
    assert design.kind == design.experiment == "search"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('objective = "p98"', "one of throughput"),
        ('objective = ["p99", "p99"]', "two different ones"),
        ('constraints = ["p99=fast"]', "must be such as p99=10ms or memory=2G"),
        ('constraints = ["memory=2ms"]', "must be such as"),
        ('start = [{ "server.max_connections" = 5 }]', "server.max_connections is not among [tune.knobs]"),
        ("trials = 0", "tune.trials = 0"),
        ("[design]\nkind = 'cumulative'\nbaseline = 'x'", "has its own design"),
    ],
)
def test_an_error_names_the_key(more: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        search.Search.build(parsed(more), place="tune.toml")
    assert said in error.value.message


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        ('x = { knob = "server.innodb_io_capacity", low = 5, high = 1 }', "low must be"),
        ('x = { knob = "server.innodb_io_capacity", low = 100 }', "either low and high, or levels"),
        ('x = { knob = "server.innodb_io_capacity", levels = [200] }', "at least two levels"),
        ('x = { knob = "server.innodb_io_capacity", low = 1, high = 100 }', "at least 100"),
        ('x = { knob = "server.innodb_flush_method", levels = ["fsync", "maybe"] }', "flush_method"),
        (
            'x = { knob = "server.innodb_flush_log_at_trx_commit", levels = [0, 1] }',
            "reduces durability",
        ),
        ('x = { knob = "workload.connections", low = 1, high = 9 }', "changes the question"),
    ],
)
def test_a_bad_range(knob: str, said: str) -> None:
    text = PLAN.format(more="").partition("pool =")[0] + knob
    with pytest.raises(PlanError) as error:
        search.Search.build(plans.parse(text, "tune.toml"), place="tune.toml")
    assert said in error.value.message


def test_sizes_go_there_and_back() -> None:
    found = KnobRange(knob="x", low="64K", high="8G")
    for text in ("64K", "96K", "1M", "128M", "8192M"):
        assert found.value(found.parameter(text)) == text
    assert found.value(found.parameter("8G")) == "8192M"
    levels = KnobRange(knob="x", levels=[["noatime"], ["noatime", "nodiratime"], True])
    for value in [*levels.levels] if levels.levels else []:
        assert levels.value(levels.parameter(value)) == value


def test_the_same_points_for_the_same_past() -> None:
    seen = [Seen({"pool": "1G", "capacity": 500, "flush": "fsync"}, (1.0,), {})]
    knobs = table().knobs
    first = space.propose(knobs, seen, 7, 3)
    assert space.propose(knobs, seen, 7, 3) == first
    assert space.propose(knobs, seen, 7, 4) != first
    assert set(first) == {"pool", "capacity", "flush"}


# A response surface with a ridge: the pool and the capacity only pay together, one level is a cliff, half of
# the rest does nothing. Noise as of real trials.

MANY = {
    **{f"n{i}": KnobRange(knob=f"server.n{i}", low=1, high=1000, start=10) for i in range(9)},
    "pool": KnobRange(knob="server.pool", low="64M", high="4G", start="128M"),
    "capacity": KnobRange(knob="server.capacity", low=100, high=20_000, start=200),
    "flush": KnobRange(knob="server.flush", levels=["a", "b", "c"], start="a"),
    "switch": KnobRange(knob="server.switch", levels=[True, False], start=False),
    "ratio": KnobRange(knob="server.ratio", low=0.0, high=1.0, start=0.1),
    "threads": KnobRange(knob="server.threads", low=1, high=64, start=4),
}


def truth(point: Mapping[str, Value]) -> float:
    """The log of throughput at a point: from 0 at a stock server's to 1.6 (a factor of 5)."""
    pool = math.log2(MANY["pool"].number(point["pool"]) / MANY["pool"].number("64M")) / 6
    capacity = math.log(float(str(point["capacity"])) / 100) / math.log(200)
    flush = {"a": 0.0, "b": 0.25, "c": -1.0}[str(point["flush"])]
    ratio = -1.2 * (float(str(point["ratio"])) - 0.7) ** 2
    threads = -0.08 * (math.log2(float(str(point["threads"]))) - 4) ** 2
    return 0.4 * pool + 1.0 * pool * capacity + flush + ratio + threads + 0.1 * (point["switch"] is True)


def best_of(seen: Sequence[Seen]) -> Seen:
    return max((one for one in seen if one.values and one.is_feasible), key=lambda one: one.values or ())


def searched(sampler: str, seed: int, budget: int = 60) -> float:
    """What the best point of a search is truly worth."""
    rng = np.random.default_rng(seed)
    start = space.point_of(MANY, {})
    seen = [Seen(start, (truth(start) + rng.normal(0, 0.03),), {})]
    for number in range(2, budget + 1):
        point = space.propose(MANY, seen, seed, number, sampler=sampler)
        seen.append(Seen(point, (truth(point) + rng.normal(0, 0.03),), {}))
    return truth(best_of(seen).point)


@pytest.mark.slow
def test_a_search_beats_random_search_with_the_same_budget() -> None:
    proposed = [searched("tpe", seed) for seed in range(4)]
    at_random = [searched("random", seed) for seed in range(4)]
    assert np.mean(proposed) > np.mean(at_random) + 0.1, (proposed, at_random)
    assert np.median(proposed) > np.median(at_random)


def test_what_matters_is_told_from_what_does_nothing() -> None:
    rng = np.random.default_rng(1)
    seen: list[Seen] = []
    for number in range(1, 80):
        point = space.propose(MANY, seen, 3, number)
        seen.append(Seen(point, (truth(point) + rng.normal(0, 0.03),), {}))
    found = space.importance(MANY, seen)
    assert sum(found.values()) == pytest.approx(1)
    useless = [share for name, share in found.items() if name.startswith("n")]
    useful = [found[name] for name in ("pool", "capacity", "flush", "ratio", "threads")]
    assert np.mean(useful) > 1.5 * np.mean(useless)
    assert max(found, key=found.__getitem__) in ("pool", "capacity", "flush", "ratio", "threads")


def test_failures_and_broken_constraints_are_avoided() -> None:
    """Everything with a large pool fails; what is fast breaks the constraint above a capacity of 2,000."""
    knobs = {name: MANY[name] for name in ("pool", "capacity")}
    seen: list[Seen] = []
    for number in range(1, 60):
        point = space.propose(knobs, seen, 5, number, constraints=["p99=10ms"])
        pool, capacity = MANY["pool"].number(point["pool"]), float(str(point["capacity"]))
        if pool > MANY["pool"].number("1G"):
            seen.append(Seen(point, None, {}))
        else:
            excess = math.log(capacity / 2000)
            seen.append(Seen(point, (math.log(capacity),), {"p99=10ms": excess}))
    late = seen[30:]
    assert sum(one.values is None for one in late) < sum(one.values is None for one in seen[:15]) * 2
    best = best_of(seen)
    assert 1000 < float(str(best.point["capacity"])) <= 2000


def at(
    number: int, *values: float, settings: Mapping[str, Value] | None = None, excess: float = -1.0
) -> Found:
    response = TrialResponse(number, 0, "x", Role.CANDIDATE, math.exp(values[0]))
    seen = Seen({}, values, {"c": excess})
    return Found(number, settings or {"k": number}, TrialState.COMPLETE, "", response, seen)


def test_what_is_confirmed_is_better_than_what_is_there() -> None:
    found = [at(1, 1.0), at(2, 0.5), at(3, 2.0), at(4, 3.0, excess=0.2), at(5, 1.5), at(6, 1.2)]
    assert [f.number for f in chosen(table("confirm = 2"), found, [])] == [3, 5]
    assert chosen(table(), [at(1, 1.0), at(2, 0.9)], []) == []


def test_two_objectives_have_a_front() -> None:
    two = table('objective = ["throughput", "p99"]\nconfirm = 3')
    found = [
        at(1, 1.0, -1.0),
        at(2, 3.0, -3.0),
        at(3, 2.0, -2.0),
        at(4, 1.5, -2.5),
        at(5, 4.0, -4.0, excess=1),
    ]
    front = front_of(found, two)
    assert [f.number for f in front] == [2, 3, 1]
    assert [f.number for f in chosen(two, found, front)] == [2, 3]


def test_both_ends_of_the_front_are_confirmed() -> None:
    """With the default of two points, the other end used to be cut; the current settings are no end."""
    two = table('objective = ["throughput", "p99"]')
    found = [at(1, 6.0, -6.0), *(at(n, float(7 - n), float(n - 7)) for n in range(2, 7)), at(7, 0.5, -0.5)]
    front = front_of(found, two)
    assert [f.number for f in front] == [1, 2, 3, 4, 5, 6, 7]
    assert [f.number for f in chosen(two, found, front)] == [2, 7]
    three = two.model_copy(update={"confirm": 3})
    assert [f.number for f in chosen(three, found, front)] == [2, 4, 7]
    assert [f.number for f in chosen(three, found, front[:3])] == [2, 3]
    assert chosen(three, found, front[:1]) == []


def confirmed(name: str, verdicts: Mapping[str, Verdict], **more: Any) -> Confirmed:
    effects = {
        response: Effect(response, name, "AS-IS", "", Interval(2.0, 1.5, 2.5), verdict, 4, None, 1)
        for response, verdict in verdicts.items()
    }
    return Confirmed(name, {}, effects, **more)


@pytest.mark.parametrize(
    ("verdicts", "more", "said"),
    [
        (
            (Verdict.WORSE, Verdict.BETTER),
            {},
            "No point is confirmed better than the current settings in throughput: keep them. "
            "But P002 has a better p99: 2.000x (1.500 – 2.500).",
        ),
        (
            (Verdict.NOT_ENOUGH_DATA, Verdict.EQUIVALENT),
            {},
            "No point is confirmed better than the current settings: keep them, or add blocks.",
        ),
        (
            (Verdict.EQUIVALENT, Verdict.EQUIVALENT),
            {},
            "No point is confirmed better than the current settings: keep them.",
        ),
        (
            (Verdict.BETTER, Verdict.BETTER),
            {"failed": (1, 5)},
            "No point that starts each time is confirmed better: keep the current settings.",
        ),
    ],
)
def test_without_a_winner_it_says_what_the_confirmation_does(
    verdicts: tuple[Verdict, Verdict], more: dict[str, Any], said: str
) -> None:
    two = table('objective = ["throughput", "p99"]')
    one = confirmed("P002", dict(zip(("throughput", "p99"), verdicts, strict=True)), **more)
    tuned = Tuned(two, [], [], {}, [], [one], None, Path("/nowhere"), None)
    assert words.headline(tuned) == said


def test_a_winner_says_what_got_worse_and_the_blocks_it_has() -> None:
    two = table('objective = ["throughput", "p99"]')
    one = confirmed("P002", {"throughput": Verdict.BETTER, "p99": Verdict.WORSE})
    said = words.headline(Tuned(two, [], [], {}, [], [one], one, Path("/nowhere"), None))
    assert "in 4 interleaved blocks" in said
    assert said.endswith(" But its p99 is worse: 2.000x (1.500 – 2.500).")


def test_the_lean_candidate_leaves_out_what_hardly_mattered() -> None:
    settings: dict[str, Value] = {
        "server.innodb_buffer_pool_size": "1G",
        "server.innodb_io_capacity": 900,
        "server.innodb_flush_method": "fsync",
    }
    shares = {"pool": 0.6, "capacity": 0.35, "flush": 0.05}
    assert set(lean_of(table(), settings, shares)) == set(settings) - {"server.innodb_flush_method"}
    assert lean_of(table(), settings, {}) == {}
    assert lean_of(table(), {"server.innodb_flush_method": "fsync"}, shares) == {}


@pytest.mark.parametrize(
    ("text", "value", "is_broken"),
    [("memory=2G", 1.0, False), ("memory=2G", 3.0, True), ("memory=2G", None, True)],
)
def test_constraints(text: str, value: float | None, is_broken: bool) -> None:
    found = Constraint.parse(text, "x")
    response = TrialResponse(1, 0, "x", Role.CANDIDATE, 1.0)
    size: Callable[[float], float] = lambda gib: gib * 2**30  # noqa: E731
    assert (found.excess(response, None if value is None else size(value)) > 0) is is_broken
