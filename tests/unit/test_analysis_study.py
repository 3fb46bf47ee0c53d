"""A whole experiment analysed: generated folders whose truth is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from headrace.base.effect import Effect, Verdict
from headrace.base.errors import PlanError, StoreError
from headrace.base.intervals import Interval, t_quantile
from headrace.base.percentiles import PERCENTILES
from headrace.experiment.report.views import comparison_notice
from headrace.experiment.stats import headline
from headrace.experiment.stats.compare import noise_floor
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.study import _usable_trials, analyse_experiment, compare_experiments
from headrace.experiment.store import ExperimentFolder
from headrace.show.notice import Conclusion
from tests.synthetic import LADDER, Shape, make

SMALL = Shape(effects={"STOCK": 1.0, "KERNEL": 1.3, "ALL": 3.0}, sampled=False)


def effect(analysis: Analysis, treatment: str, response: str = "throughput") -> Effect:
    (found,) = (e for e in analysis.effects if (e.treatment, e.response) == (treatment, response))
    return found


def change_design(folder: ExperimentFolder, change: Callable[[dict[str, Any]], None]) -> ExperimentFolder:
    path = folder.path / "design.json"
    design = json.loads(path.read_text())
    change(design)
    path.write_text(json.dumps(design))
    return ExperimentFolder.open(folder.path)


def test_the_ladder_is_found_again(tmp_path: Path) -> None:
    analysis = analyse_experiment(make(tmp_path / "ladder", Shape(sampled=False)))
    for name, truth in LADDER.items():
        if name == "STOCK":
            continue
        found = effect(analysis, name)
        assert found.baseline == "STOCK"
        assert found.comparisons == 7
        assert found.blocks == 5
        assert found.ratio.low is not None
        assert found.ratio.high is not None
        assert found.ratio.low < truth < found.ratio.high
        if truth > 1.1:
            assert found.verdict is Verdict.BETTER
    assert effect(analysis, "ALL", "p99").verdict is Verdict.BETTER
    (noise,) = (n for n in analysis.noise if n.response == "throughput")
    assert noise.ratio.low is not None
    assert noise.ratio.high is not None
    assert noise.ratio.low <= 1 <= noise.ratio.high
    assert analysis.excluded == {}
    assert analysis.headline.startswith("MYSQL makes it faster, whatever the rest: ")
    assert " Best: ALL has 3." in analysis.headline
    assert "x the throughput of STOCK (95% interval 3." in analysis.headline
    assert "% lower; two runs of the baseline differ by up to " in analysis.headline
    assert analysis.headline.endswith("% here.")


def test_the_summaries_add_up(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", SMALL)
    analysis = analyse_experiment(folder)
    stock, kernel, _ = analysis.summaries
    assert [s.treatment for s in analysis.summaries] == ["STOCK", "KERNEL", "ALL"]
    assert (len(stock.trials), len(kernel.trials)) == (10, 5)
    with folder.database() as connection:
        listed = ", ".join(map(str, stock.trials))
        (operations,) = connection.execute(
            f"SELECT sum(count) FROM intervals WHERE t_s >= 0 AND trial IN ({listed})"
        ).fetchall()[0]
    assert stock.operations == operations
    assert list(stock.latency_ns) == [*PERCENTILES, "max"]
    values = [interval.estimate for interval in stock.latency_ns.values()]
    assert values == sorted(values)
    for name, interval in stock.latency_ns.items():
        assert (interval.low is None) == (name == "max")
    # Geometric mean over trials, with the same number of trials in each block.
    assert stock.throughput_ops_s.estimate == pytest.approx(operations / 10 / 20, rel=0.01)


def test_a_percentile_with_too_few_operations_is_absent(tmp_path: Path) -> None:
    analysis = analyse_experiment(make(tmp_path / "x", replace(SMALL, base_ops_s=100.0, blocks=2)))
    stock, kernel, _ = analysis.summaries
    assert "p99" in stock.latency_ns  # 8,000 operations
    assert "p99.9" not in stock.latency_ns
    assert "max" in stock.latency_ns
    assert {e.response for e in analysis.effects if e.treatment == "KERNEL"} == {
        "throughput",
        "p50",
        "p90",
        "p95",
        "p99",
    }
    assert kernel.operations < 10_000


def test_treatments_are_compared_only_within_their_condition(tmp_path: Path) -> None:
    shape = replace(SMALL, conditions=("threads=8", "threads=64"))
    analysis = analyse_experiment(make(tmp_path / "x", shape))
    assert {(e.treatment, e.baseline) for e in analysis.effects} == {
        (f"{name} @ {condition}", f"STOCK @ {condition}")
        for name in ("KERNEL", "ALL")
        for condition in shape.conditions
    }
    assert {e.comparisons for e in analysis.effects} == {4}
    assert {n.condition for n in analysis.noise} == set(shape.conditions)
    assert analysis.headline.startswith("Most throughput, with 95% intervals: ALL at threads=8, ")
    assert "; ALL at threads=64, " in analysis.headline


def test_a_condition_without_a_winner_is_named(tmp_path: Path) -> None:
    shape = replace(SMALL, effects={"STOCK": 1.0, "ALL": 3.0}, conditions=("threads=8", "threads=64"))
    folder = make(tmp_path / "x", shape)
    worse = {t.number for t in folder.design.trials if t.treatment == "ALL @ threads=64"}
    for number in sorted(worse):
        invalidate(folder, number, "the array md0 was resyncing")
    analysis = analyse_experiment(ExperimentFolder.open(folder.path))
    assert "; no treatment proven faster at threads=64" in analysis.headline
    assert "Without a valid trial: ALL @ threads=64." in analysis.headline


def invalidate(folder: ExperimentFolder, number: int, reason: str) -> None:
    path = folder.trial_path(number) / "trial.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "state": "invalid", "reason": reason}))


def test_nothing_is_better_when_nothing_differs(tmp_path: Path) -> None:
    shape = replace(SMALL, effects={"STOCK": 1.0, "SAME": 1.0, "SLOW": 0.5}, noise=0.02)
    analysis = analyse_experiment(make(tmp_path / "x", shape))
    assert effect(analysis, "SLOW").verdict is Verdict.WORSE
    same = effect(analysis, "SAME")
    assert same.verdict is Verdict.NOT_ENOUGH_DATA
    assert same.needed is not None
    assert analysis.headline.startswith("No treatment is proven faster than STOCK: 1 worse, 1 undecided")
    least, most = same.needed
    assert f"; about {least} to {most} blocks in total would settle " in analysis.headline
    assert analysis.headline.endswith(f"plan.toml -o {tmp_path / 'x'} --blocks +{most - 5}.")


def test_equivalence_is_said(tmp_path: Path) -> None:
    shape = replace(SMALL, effects={"STOCK": 1.0, "SAME": 1.0}, noise=0.001, blocks=6)
    analysis = analyse_experiment(make(tmp_path / "x", shape))
    assert effect(analysis, "SAME").verdict is Verdict.EQUIVALENT
    assert "than STOCK: 1 equivalent within 3%; two runs of the baseline differ" in analysis.headline


def test_failed_and_invalid_trials_are_named_and_left_out(tmp_path: Path) -> None:
    plain = make(tmp_path / "plain", SMALL)
    kernel = [t.number for t in plain.design.trials if t.treatment == "KERNEL"]
    first_all = next(t.number for t in plain.design.trials if t.treatment == "ALL")
    failed = dict.fromkeys(kernel, "the server did not start: unknown variable")
    shape = replace(SMALL, failed=failed, invalid={first_all: "steal 9%"})
    analysis = analyse_experiment(make(tmp_path / "x", shape))
    assert analysis.excluded == {
        **dict.fromkeys(kernel, "failed: the server did not start: unknown variable"),
        first_all: "invalid: steal 9%",
    }
    assert [s.treatment for s in analysis.summaries] == ["STOCK", "ALL"]
    assert effect(analysis, "ALL").blocks == 4
    assert effect(analysis, "ALL").comparisons == 2  # as planned: a failure makes no interval narrower
    assert " Failed: KERNEL in 5 of 5 trials. Not counted: 1 of 20 trials: steal 9%." in analysis.headline
    assert analysis.headline.endswith("--retry")


def test_a_treatment_that_often_fails_is_named_beside_its_good_days(tmp_path: Path) -> None:
    plain = make(tmp_path / "plain", SMALL)
    trials = [t.number for t in plain.design.trials if t.treatment == "ALL"]
    shape = replace(SMALL, failed=dict.fromkeys(trials[:2], "the server died"))
    analysis = analyse_experiment(make(tmp_path / "x", shape))
    assert analysis.headline.startswith("ALL has ")
    assert analysis.headline.endswith(" Failed: ALL in 2 of 5 trials.")


def test_a_factor_may_be_proven_where_no_treatment_is(tmp_path: Path) -> None:
    """One block of a ladder: no treatment has an interval, but half of the trials have each factor."""
    analysis = analyse_experiment(make(tmp_path / "x", Shape(blocks=1, sampled=False)))
    assert analysis.headline == (
        "Over all treatments, MYSQL makes a proven difference. No treatment is proven faster than STOCK: 7 "
        "undecided, because an interval needs at least 2 complete blocks. To measure two more: headrace run "
        f"{tmp_path / 'x' / 'plan.toml'} -o {tmp_path / 'x'} --blocks +2."
    )
    equals = dict.fromkeys(LADDER, 1.0)
    analysis = analyse_experiment(make(tmp_path / "y", Shape(blocks=1, sampled=False, effects=equals)))
    assert "because an interval needs at least 2 complete blocks." in analysis.headline
    assert "Over all treatments" not in analysis.headline


@pytest.mark.parametrize("done", [0, 1, 4, 5, 13])
def test_an_experiment_that_still_runs(tmp_path: Path, done: int) -> None:
    analysis = analyse_experiment(make(tmp_path / "x", replace(SMALL, unfinished=20 - done)))
    assert f"So far {done} of 20 trials are done." in analysis.headline
    assert sum(len(s.trials) for s in analysis.summaries) == done
    for found in analysis.effects:
        if found.blocks < 2:
            assert (found.ratio.low, found.ratio.high, found.blocks_needed) == (None, None, None)
            assert found.verdict is Verdict.NOT_ENOUGH_DATA
    if done == 0:
        assert analysis.headline.startswith("Nothing can be concluded: there is no valid trial.")
    if done == 4:  # one whole block
        assert "because an interval needs at least 2 complete blocks" in analysis.headline


def test_a_baseline_that_differs_from_itself_is_a_caution(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", replace(SMALL, noise=0.001))
    assert "Caution" not in analyse_experiment(folder).headline
    for spec in folder.design.trials:
        if spec.role == "repeat":
            path = folder.trial_path(spec.number) / "trial.json"
            record = json.loads(path.read_text())
            record["window_end_ns"] += 4_000_000_000  # the same work in more time
            path.write_text(json.dumps(record))
    assert analyse_experiment(folder).headline.endswith("Caution: the two baseline runs of a block differ.")


@pytest.mark.parametrize("conditions", [("",), ("threads=8", "threads=16", "threads=32")])
def test_many_conditions_do_not_make_an_odd_pair_likelier(
    tmp_path: Path, conditions: tuple[str, ...]
) -> None:
    """The level of the A/A comparison is shared: the interval widens as Student's t does."""
    folder = make(tmp_path / "x", replace(SMALL, conditions=conditions))
    found = next(n for n in analyse_experiment(folder).noise if n.response == "throughput")
    responses, _ = _usable_trials(folder, folder.trials())
    own = [t for t in responses if t.treatment == folder.design.baselines[found.condition]]
    alone = noise_floor("throughput", own, condition=found.condition)
    assert alone is not None
    wider = t_quantile(4, 0.05 / len(conditions)) / t_quantile(4, 0.05)
    assert log_width(found.ratio) == pytest.approx(wider * log_width(alone.ratio))


def log_width(interval: Interval) -> float:
    assert interval.low is not None
    assert interval.high is not None
    return math.log(interval.high / interval.low)


def test_a_trial_that_did_no_work_is_excluded(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", SMALL)
    path = folder.trial_path(3) / "trial.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "window_end_ns": record["window_start_ns"]}))
    assert analyse_experiment(folder).excluded == {3: "no operation completed in the measured window"}


def test_histograms_a_second_and_of_the_window_agree(tmp_path: Path) -> None:
    whole = analyse_experiment(make(tmp_path / "a", replace(SMALL, histogram_per_second=False)))
    seconds = analyse_experiment(make(tmp_path / "b", replace(SMALL, histogram_per_second=True)))
    assert whole.summaries == seconds.summaries
    assert whole.effects == seconds.effects


def test_a_damaged_design_is_said_to_be_damaged(tmp_path: Path) -> None:
    folder = make(tmp_path / "x", replace(SMALL, unfinished=20))
    with pytest.raises(StoreError, match="damaged: baselines: this key is required") as error:
        change_design(folder, lambda d: d.pop("baselines"))
    assert error.value.place == str(folder.path / "design.json")
    with pytest.raises(StoreError, match="colour = 'red': no such key"):
        change_design(folder, lambda d: d.update(baselines={}, colour="red"))


def test_two_experiments_are_compared_unpaired(tmp_path: Path) -> None:
    a = make(tmp_path / "old-kernel", replace(SMALL, seed=1))
    b = make(tmp_path / "new-kernel", replace(SMALL, seed=2, effects={"STOCK": 1.6, "ALL": 3.0, "NEW": 2.0}))
    found = compare_experiments(a, b)
    assert (found.a, found.b) == ("old-kernel", "new-kernel")
    assert (found.only_in_a, found.only_in_b) == (("KERNEL",), ("NEW",))
    throughput = {e.treatment: e for e in found.effects if e.response == "throughput"}
    assert set(throughput) == {"STOCK", "ALL"}
    assert throughput["STOCK"].verdict is Verdict.BETTER
    assert throughput["STOCK"].ratio.estimate == pytest.approx(1.6, rel=0.1)
    assert throughput["STOCK"].comparisons == 2
    assert any("different times" in note for note in found.notes)
    assert found.headline.startswith(
        "Unpaired, and run at different times: new-kernel relative to old-kernel is"
    )
    assert f"faster in STOCK ({throughput['STOCK'].ratio.estimate:.2f}x)" in found.headline


def switched(path: Path, per_start: int, **how: Any) -> ExperimentFolder:
    """A switchback of six blocks."""
    more = {"experiment": "switchback", "blocks_per_start": per_start, "washout_s": 2}
    return change_design(make(path, replace(SMALL, blocks=6, **how)), lambda design: design.update(more))


def logs_of_starts(folder: ExperimentFolder, treatment: str) -> list[float]:
    per_start = folder.design.blocks_per_start
    found: dict[int, list[float]] = {}
    for trial in _usable_trials(folder, folder.trials())[0]:
        if trial.treatment == treatment:
            found.setdefault((trial.block - 1) // per_start, []).append(math.log(trial.throughput_ops_s))
    return [math.fsum(own) / len(own) for own in found.values()]


def test_two_switchbacks_are_compared_by_their_starts(tmp_path: Path) -> None:
    """Turns after one start share its luck, which nothing cancels here."""
    a, b = switched(tmp_path / "a", 2, seed=1), switched(tmp_path / "b", 3, seed=2)
    found = compare_experiments(a, b)
    for name in ("STOCK", "ALL"):
        each = next(e for e in found.effects if (e.treatment, e.response) == (name, "throughput"))
        one, two = logs_of_starts(a, name), logs_of_starts(b, name)
        assert (len(one), len(two), each.blocks) == (3, 2, 2)
        level = 1 - 0.05 / each.comparisons
        welch = stats.ttest_ind(two, one, equal_var=False).confidence_interval(level)
        assert each.ratio.low == pytest.approx(math.exp(welch[0]))
        assert each.ratio.high == pytest.approx(math.exp(welch[1]))
    assert any(note.startswith("b is a switchback") and note.endswith("It has 2.") for note in found.notes)


def test_a_switchback_of_one_start_is_compared_without_an_interval(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", replace(SMALL, seed=1)), switched(tmp_path / "b", 6, base_ops_s=8000.0)
    found = compare_experiments(a, b)
    assert {(e.ratio.low, e.verdict) for e in found.effects} == {(None, Verdict.NOT_ENOUGH_DATA)}
    assert any("one start, so there is no interval: --blocks +6 adds one" in note for note in found.notes)
    assert not any(note.startswith("a is a switchback") for note in found.notes)


def test_levels_of_a_switchback_have_intervals_over_starts_and_its_ratios_over_blocks(tmp_path: Path) -> None:
    folder = switched(tmp_path / "x", 2)
    stock = analyse_experiment(folder).summaries[0]
    logs = logs_of_starts(folder, "STOCK")
    own = stats.t.interval(0.95, 2, loc=np.mean(logs), scale=stats.sem(logs))
    assert stock.throughput_ops_s.low == pytest.approx(math.exp(own[0]))
    assert stock.throughput_ops_s.high == pytest.approx(math.exp(own[1]))
    single = analyse_experiment(switched(tmp_path / "y", 6))
    for summary in single.summaries:
        assert {each.low for each in (summary.throughput_ops_s, *summary.latency_ns.values())} == {None}
    assert effect(single, "ALL").blocks == 6
    assert effect(single, "ALL").verdict is Verdict.BETTER


def test_a_treatment_that_fails_in_the_second_is_no_equal(tmp_path: Path) -> None:
    """Nothing of it was compared, or its good trials were, and the rest made the verdict."""
    a = make(tmp_path / "old", replace(SMALL, seed=1))
    numbers = [t.number for t in a.design.trials if t.treatment == "ALL"]
    for failed, said in (
        (numbers[:1], f"ALL failed in 1 of {len(numbers)} trials of new1."),
        (numbers, f"ALL failed in {len(numbers)} of {len(numbers)} trials of new{len(numbers)}."),
    ):
        shape = replace(SMALL, seed=1, failed=dict.fromkeys(failed, "no start"))
        found = compare_experiments(a, make(tmp_path / f"new{len(failed)}", shape))
        assert found.headline.endswith(said)
        assert comparison_notice(found).conclusion is Conclusion.NOT_ENOUGH_DATA


def test_swapping_two_experiments_inverts_the_comparison(tmp_path: Path) -> None:
    a = make(tmp_path / "a", replace(SMALL, seed=1))
    b = make(tmp_path / "b", replace(SMALL, seed=2, base_ops_s=6000.0))
    forth, back = compare_experiments(a, b), compare_experiments(b, a)
    for one, other in zip(forth.effects, back.effects, strict=True):
        assert one.ratio.estimate == pytest.approx(1 / other.ratio.estimate)
        assert math.isclose(one.ratio.low or 0, 1 / (other.ratio.high or 1), rel_tol=1e-9)


def test_other_workloads_are_refused_with_what_differs(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", SMALL), make(tmp_path / "b", replace(SMALL, seconds=30))
    with pytest.raises(PlanError, match=r"workload\.seconds is 20\.0 and 30\.0"):
        compare_experiments(a, b)


def test_one_name_for_two_workloads_is_refused(tmp_path: Path) -> None:
    def load(threads: int) -> Callable[[dict[str, Any]], None]:
        def change(design: dict[str, Any]) -> None:
            design["treatments"][0]["settings"]["workload.threads"] = threads

        return change

    a = change_design(make(tmp_path / "a", SMALL), load(8))
    b = change_design(make(tmp_path / "b", SMALL), load(64))
    with pytest.raises(PlanError, match=r"STOCK: workload\.threads is 8 and 64"):
        compare_experiments(a, b)


def test_experiments_without_a_common_treatment_are_refused(tmp_path: Path) -> None:
    a = make(tmp_path / "a", SMALL)
    b = make(tmp_path / "b", replace(SMALL, effects={"X": 1.0, "Y": 2.0}))
    with pytest.raises(PlanError, match="no treatment is in both"):
        compare_experiments(a, b)


def test_other_settings_under_one_name_are_noted(tmp_path: Path) -> None:
    a = make(tmp_path / "a", SMALL)

    def change(design: dict[str, Any]) -> None:
        design["treatments"][2]["settings"]["host.vm.swappiness"] = 1

    b = change_design(make(tmp_path / "b", SMALL), change)
    assert any(
        note == "The same name has different settings: ALL." for note in compare_experiments(a, b).notes
    )


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["steal 9%"], "2 trials: steal 9%."),
        (["steal 9%", "steal 9%"], "2 trials: steal 9%."),
        (["steal 9%", "steal 8%"], "2 trials, all as in: steal 9%."),
        (["steal 9%", "steal 8%", "out of memory"], "2 trials, 2 of them as in: steal 9%."),
    ],
)
def test_why_trials_do_not_count(reasons: list[str], said: str) -> None:
    assert headline._invalid(reasons, 2, "") == f"Not counted: {len(reasons)} of {said}"


def test_less_than_an_hour_is_said_in_minutes() -> None:
    assert headline.duration([72, 720]) == "1 to 12 min"
    assert headline.duration([20]) == "1 min"
    assert headline.duration([1800, 7200]) == "0.5 to 2 h"


def test_more_blocks_are_not_asked_for_where_no_plan_can_tell(tmp_path: Path) -> None:
    shape = replace(SMALL, effects=dict.fromkeys(("STOCK", "ALL"), 1.0), noise=0.4, blocks=2)
    text = analyse_experiment(make(tmp_path / "x", shape)).headline
    assert "no plan of this size" in text
    assert "vary too much: use a quieter machine." in text


def test_of_a_load_with_a_rate_of_its_own_times_are_the_answer(tmp_path: Path) -> None:
    """All keep up, so throughput is the same by design. Whoever does not keep up is told of by throughput."""
    folder = make(tmp_path / "x", SMALL)
    analysis = analyse_experiment(folder)

    def said(throughput: Verdict = Verdict.EQUIVALENT, **times: Verdict) -> str:
        verdicts = {"throughput": throughput, **times}
        effects = tuple(
            replace(each, ratio=Interval(0.5, 0.4, 0.6), verdict=verdicts[each.response])
            for each in analysis.effects
            if each.response in verdicts
        )
        design = folder.design
        text = headline.of_experiment(
            replace(analysis, effects=effects, studies=()),
            design.by_name,
            design.baselines,
            done=9,
            planned=9,
            failed={},
            is_open_loop=True,
        )
        return text.partition(" Ratios account")[0]

    better, unknown = Verdict.BETTER, Verdict.NOT_ENOUGH_DATA
    assert said(p50=better, p99=unknown) == (
        "KERNEL answers sooner than STOCK: p50 0.50x (0.40 to 0.60); not enough data for p99. Intervals hold at "
        "95% for each percentile. All keep up with the load's own rate, so throughput tells nothing."
    )
    assert said(p50=better, p99=Verdict.WORSE).startswith(
        "KERNEL answers sooner than STOCK: p50 0.50x (0.40 to 0.60); but later: p99 0.50x."
    )
    assert said(p50=unknown, p99=unknown).startswith(
        "No treatment is proven to answer sooner than STOCK (p99: 2 not enough data"
    )
    assert "answers sooner" not in said(better, p50=better)
    assert "answers sooner" not in said(Verdict.WORSE, p50=better)
    assert "answers sooner" not in said()
