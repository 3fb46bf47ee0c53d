"""Which configuration to take: on the published tables beside plain loops, and on studies whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from headrace.base.effect import Verdict
from headrace.base.model import Role, Treatment
from headrace.experiment import foreign
from headrace.experiment.report.effects import choices
from headrace.experiment.stats.compare import effects
from headrace.experiment.stats.decision import Certainty, Decision, Question, decide, of_trials
from headrace.experiment.stats.factors import questions_of, studies_of
from headrace.experiment.stats.trials import TrialResponse
from tests import published

WRITES, READS = published.random_writes(), published.random_reads()
FACTORS = ["kernel", "filesystem", "raid_chunk"]


def of_tables() -> Decision:
    """Both published tables at once, as ``import --condition test`` reads them."""
    files = [published.FOLDER / f"pinterest-2015-async-{test}.csv" for test in ("rndwr", "rndrd")]
    responses = {"write_mb_s": True, "read_mb_s": True, "p99_ms": False}
    rows = [row for file in files for row in foreign.read_csv(file, FACTORS, list(responses)).rows]
    return decide(questions_of(studies_of(rows, FACTORS, responses, condition="test")))


def test_the_published_tables_are_ranked_as_by_hand() -> None:
    found = of_tables()
    by_name = {best.question.name: best for best in found.bests}
    for question, table in (("write_mb_s @ test=rndwr", WRITES), ("read_mb_s @ test=rndrd", READS)):
        by_hand = sorted(table, key=lambda cell: -table[cell])
        best = by_name[question]
        assert [c.name for c in best.candidates] == [" ".join(cell) for cell in by_hand]
        for candidate, cell in zip(best.candidates, by_hand, strict=True):
            assert candidate.mean == pytest.approx(table[cell])
            assert candidate.kept is not None
            assert candidate.kept.estimate == pytest.approx(table[cell] / max(table.values()))
        # One observation a cell shows no noise: no interval, and no verdict.
        assert best.certainty is Certainty.NOT_ENOUGH_DATA
        assert all(c.may_be_best is None and c.kept and c.kept.low is None for c in best.candidates)


def test_the_best_overall_of_the_published_tables() -> None:
    robust = next(r for r in of_tables().robusts if r.is_higher_better)
    parts = {
        " ".join(cell): sorted((WRITES[cell] / max(WRITES.values()), READS[cell] / max(READS.values())))
        for cell in WRITES
    }
    by_hand = sorted(parts, key=lambda name: (-parts[name][0], -math.sqrt(math.prod(parts[name]))))
    assert [e.name for e in robust.order] == by_hand
    assert robust.order[0].name == "3.18 xfs 256K"
    for own in robust.order:
        assert own.worst.estimate == pytest.approx(parts[own.name][0])
        assert own.mean == pytest.approx(math.sqrt(math.prod(parts[own.name])))
    assert robust.certainty is Certainty.NOT_ENOUGH_DATA
    assert robust.left_out == ()


@pytest.mark.parametrize(("test", "table"), [("rndwr", WRITES), ("rndrd", READS)])
def test_the_front_of_the_published_tables(test: str, table: Mapping[tuple[str, ...], float]) -> None:
    front = next(f for f in of_tables().fronts if f.condition == f"test={test}")
    latency = published.table(f"pinterest-2015-async-{test}", "p99_ms")
    by_hand = {
        " ".join(a)
        for a in table
        if not any(
            table[b] >= table[a]
            and latency[b] <= latency[a]
            and (table[b], latency[b]) != (table[a], latency[a])
            for b in table
        )
    }
    assert set(front.members) == by_hand
    assert front.responses[1] == "p99_ms"
    assert front.is_higher_better == (True, False)
    assert front.beaten is None


def noisy(
    truth: Sequence[float], rng: np.random.Generator, blocks: int, *, response: str = "t", at: str = ""
) -> Question:
    drift = rng.normal(0, 0.05, blocks)
    logs = {
        str(i): {b: float(level + drift[b] + rng.normal(0, 0.02)) for b in range(blocks)}
        for i, level in enumerate(truth)
    }
    return Question(response, at, True, logs)


@pytest.mark.slow
def test_the_best_stands_and_the_intervals_cover_in_95_of_100_studies() -> None:
    rng = np.random.default_rng(3)
    truth = np.array([0.0, 0.0, -0.01, -0.03, -0.05, -0.2, -0.2])
    studies, lost, missed = 300, 0, 0
    for _ in range(studies):
        (best,) = decide([noisy(list(truth), rng, 4)]).bests
        by_name = {c.name: c for c in best.candidates}
        # Two are equally good: one that is named beforehand must not be called beaten.
        lost += not by_name["0"].may_be_best
        missed += any(not covers(c.kept, math.exp(truth[int(c.name)])) for c in best.candidates)
    limit = studies * 0.05 + 3 * math.sqrt(studies * 0.05 * 0.95)
    assert lost <= limit
    assert missed <= limit


def covers(kept, truth: float) -> bool:  # type: ignore[no-untyped-def]
    return bool(kept.low - 1e-12 <= truth <= kept.high + 1e-12)


def test_a_clear_winner_is_sure_and_a_close_one_is_within_the_margin() -> None:
    rng = np.random.default_rng(4)
    (best,) = decide([noisy([0, -0.2, -0.3, -0.4], rng, 5)]).bests
    assert (best.leader.name, best.certainty, best.rivals) == ("0", Certainty.SURE, ())
    assert best.blocks_needed is None
    (best,) = decide([noisy([0, 0, 0, -0.4], rng, 40)]).bests
    assert best.certainty is Certainty.WITHIN
    assert best.leader.kept is not None
    assert best.leader.kept.low is not None
    assert best.leader.kept.low > 1 / 1.03
    (best,) = decide([noisy([0, -0.02, -0.01, -0.4], rng, 3)]).bests
    assert best.certainty is Certainty.NOT_ENOUGH_DATA
    assert best.blocks_needed is None or best.blocks_needed.least > 3


def test_the_robust_choice_loses_least_where_it_loses_most() -> None:
    """0 wins one workload and breaks down in the other; 1 is second in both."""
    rng = np.random.default_rng(5)
    asked = [
        noisy([0, -0.05, -0.4], rng, 6, at="rw=0"),
        noisy([-0.5, -0.05, 0], rng, 6, at="rw=1"),
    ]
    (robust,) = decide(asked).robusts
    assert robust.order[0].name == "1"
    assert robust.certainty is Certainty.SURE
    assert robust.order[-1].where == "t @ rw=1"
    assert robust.questions == ("t @ rw=0", "t @ rw=1")
    for own, truth in zip(robust.order, (0.95, math.exp(-0.4), math.exp(-0.5)), strict=True):
        assert own.worst.low is not None
        assert own.worst.high is not None
        assert own.worst.low <= truth <= own.worst.high


def test_what_was_not_measured_everywhere_is_named() -> None:
    rng = np.random.default_rng(6)
    asked = [noisy([0, -0.1, -0.2], rng, 3, at="a"), noisy([0, -0.1], rng, 3, at="b")]
    (robust,) = decide(asked).robusts
    assert robust.left_out == ("2",)


def test_one_block_gives_an_estimate_without_an_interval() -> None:
    (best,) = decide([noisy([0, -0.1, -0.2], np.random.default_rng(7), 1)]).bests
    assert best.certainty is Certainty.NOT_ENOUGH_DATA
    assert best.candidates[1].kept is not None
    assert best.candidates[1].kept.low is None
    assert best.blocks_needed is None


def test_one_trial_that_is_missing_leaves_intervals_for_the_others() -> None:
    question = noisy([0, -0.1, -0.2], np.random.default_rng(8), 4)
    logs = {**question.logs, "2": {0: question.logs["2"][0]}}
    (best,) = decide([Question("t", "", True, logs)]).bests
    assert best.question.left_out == ("2",)
    assert best.certainty is Certainty.SURE


def test_repeats_without_blocks_have_their_own_spread_and_lend_some() -> None:
    """Beside the formula: own squares, and four degrees of freedom of the pooled ones."""
    from scipy import stats

    logs = {"a": [0.0, 0.02, 0.01], "b": [-0.1, -0.13, -0.1], "c": [-0.3]}
    question = Question("t", "", True, {k: dict(enumerate(v)) for k, v in logs.items()}, is_paired=False)
    (best,) = decide([question]).bests
    squares = {name: float(((np.array(v) - np.mean(v)) ** 2).sum()) for name, v in logs.items()}
    pooled = sum(squares.values()) / 4
    a, c = (4 * pooled + squares["a"]) / 6 / 3, pooled
    degrees = min((a + c) ** 2 / (a**2 / 6 + c**2 / 4), 4)
    loss = np.mean(logs["a"]) - np.mean(logs["c"])
    half = stats.t.ppf(1 - 0.05 / 4, degrees) * math.sqrt(a + c)
    kept = best.candidates[2].kept
    assert kept is not None
    assert kept.low == pytest.approx(math.exp(-loss - half))
    assert kept.high == pytest.approx(math.exp(-loss + half))


def test_a_noisy_configuration_is_beaten_by_chance_only() -> None:
    """One of twelve is five times as noisy and the best by a hair: with one pooled spread it was beaten in 16%."""
    rng = np.random.default_rng(4)
    beaten = 0
    for _ in range(300):
        deviations = [0.25, *[0.05] * 11]
        logs = {str(i): dict(enumerate(rng.normal(0, sd, 3))) for i, sd in enumerate(deviations)}
        (best,) = decide([Question("t", "", True, logs, is_paired=False)]).bests
        beaten += next(c.may_be_best is False for c in best.candidates if c.name == "0")
    assert beaten <= 300 * 0.06 + 3 * math.sqrt(300 * 0.06 * 0.94)


@pytest.mark.slow
def test_a_front_member_is_called_beaten_in_at_most_alpha_of_all_studies() -> None:
    rng = np.random.default_rng(9)
    ops, ms = np.array([0.0, -0.05, -0.2]), np.array([0.0, -0.1, 0.1])
    wrong = 0
    for _ in range(200):
        up = noisy(list(ops), rng, 4)
        down = Question("p99", "", False, noisy(list(ms), rng, 4).logs)
        (front,) = decide([up, down]).fronts
        assert front.beaten is not None
        wrong += bool({"0", "1"} & set(front.beaten))
    assert wrong <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_a_share_of_the_best_that_says_nothing_is_not_told() -> None:
    """Two blocks: it was "at least 4.2e-26% of the best"."""
    treatments = [Treatment(name, {}, {}, "") for name in ("A", "B")]
    speeds = {"A": (100.0, 260.0), "B": (120.0, 90.0)}
    trials = [
        TrialResponse(10 * block + again, block, name, Role.CANDIDATE, speed * (1 + again / 3))
        for name, own in speeds.items()
        for block, speed in enumerate(own, 1)
        for again in range(2 if name == "A" else 1)
    ]
    found = decide(of_trials(treatments, trials, {"": "A"}), comparisons=1)
    (best,) = (b for b in found.bests if b.question.response == "throughput")
    assert best.leader.kept is not None
    assert best.leader.kept.low is not None
    assert best.leader.kept.low < 0.01
    said = choices.sentences(found)[0]
    assert "A leads; B may be better." in said
    assert "at least" not in said


@pytest.mark.parametrize("seed", range(40))
def test_the_verdicts_and_the_best_never_contradict_each_other(seed: int) -> None:
    """One estimator and one level: what is better than the baseline beats it in the choice, in every condition."""
    rng = np.random.default_rng(seed)
    treatments = [
        Treatment(f"{name} @ {at}", {}, {}, at) for at in ("read", "write") for name in ("A", "B", "C", "D")
    ]
    baselines = {at: f"A @ {at}" for at in ("read", "write")}
    gains = {t.name: rng.choice([0.0, 0.1, 0.3]) for t in treatments}
    trials = [
        TrialResponse(
            1000 * block + 10 * i + again,
            block,
            t.name,
            Role.REPEAT if again else Role.CANDIDATE,
            math.exp(5 + gains[t.name] + rng.normal(0, 0.08) - 1.5 * lost),
            lost=lost,
        )
        for block in range(rng.integers(2, 7))
        for i, t in enumerate(treatments)
        for again in range(2 if t.name in baselines.values() else 1)
        # Some are missing.
        if rng.random() < 0.9
        for lost in [float(rng.choice([0.0, 0.0, 0.2]))]
    ]
    by_name = {t.name: [trial for trial in trials if trial.treatment == t.name] for t in treatments}
    found = decide(of_trials(treatments, trials, baselines), comparisons=6)
    for at, baseline in baselines.items():
        own = {name: own for name, own in by_name.items() if name.endswith(at) and own}
        verdicts, _ = effects("throughput", own, baseline, condition=at, comparisons=6, equivalence=0.0)
        best = next((b for b in found.bests if b.question.condition == at), None)
        if best is None:
            continue
        may_be = {c.name: c.may_be_best for c in best.candidates}
        for effect in verdicts:
            name = effect.treatment.partition(" @ ")[0]
            if effect.verdict is Verdict.BETTER and name in may_be:
                assert may_be["A"] is False
            if effect.verdict is Verdict.WORSE and name in may_be:
                assert may_be[name] is False


def test_a_trial_that_cannot_state_its_p99_leaves_its_configuration_out() -> None:
    treatments = [Treatment(name, {}, {}) for name in ("A", "B", "C")]
    trials = [
        TrialResponse(10 * b + i, b, t.name, Role.CANDIDATE, 100.0 + i)
        for b in range(3)
        for i, t in enumerate(treatments)
    ]
    throughput, p99 = of_trials(treatments, trials)
    assert list(throughput.logs) == ["A", "B", "C"]
    assert p99.logs == {}
    assert p99.left_out == ("A", "B", "C")
    assert [b.question.response for b in decide([throughput, p99]).bests] == ["throughput"]
