"""Experiments that end when they are decided, and experiments that get more blocks."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.effect import Verdict
from headrace.base.errors import HeadraceError, PlanError
from headrace.base.looks import nominal_level, spent
from headrace.experiment import extend as extending
from headrace.experiment import plan as plans
from headrace.experiment import report, runner
from headrace.experiment.kinds import decided
from headrace.experiment.kinds import race as races
from headrace.experiment.stats import sequential
from headrace.experiment.stats.race import Race
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.store import ExperimentFolder
from headrace.show.parts import Page, Sentence, plain
from tests.fake_lab import Killed, by_name
from tests.unit.test_loops import Bench

ALPHA = 0.05


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench("ladder", tmp_path, monkeypatch)


def slower_to_tell(bench: Bench) -> None:
    """POOL is 2% better, with 4% of noise: three blocks cannot tell, some more say that it is not worse."""
    bench.host.speeds = by_name(STOCK=1000, POOL=1020, ALL=2000)
    bench.host.noise = 0.04


def blocks_of(folder: ExperimentFolder) -> int:
    return max(record.block for record in folder.trials())


def test_the_first_look_is_the_plans_blocks(bench: Bench) -> None:
    report = bench.sound("--until-decided")
    assert blocks_of(bench.folder) == 3
    assert {effect["verdict"] for effect in report["effects"] if effect["response"] == "throughput"} == {
        "better"
    }
    assert report["planned_trials"] == len(bench.folder.trials())


def test_blocks_follow_until_every_comparison_has_a_verdict(bench: Bench) -> None:
    slower_to_tell(bench)
    answer = bench.run("--until-decided")
    assert answer.exit_code == 0, answer.output
    assert 3 < blocks_of(bench.folder) < decided.MOST_BLOCKS
    assert len(bench.folder.trials()) == blocks_of(bench.folder) * 4
    said = " ".join(answer.output.split())
    assert "block 3: open: POOL" in said
    assert "every comparison is decided" in said
    report = json.loads((bench.output / "report.json").read_text())
    verdicts = {e["treatment"]: e["verdict"] for e in report["effects"] if e["response"] == "throughput"}
    assert set(verdicts.values()) <= {"better", "equivalent"}
    again = len(bench.host.measured)
    assert bench.run("--until-decided").exit_code == 0
    assert len(bench.host.measured) == again


def test_killed_in_a_later_block_it_ends_as_if_it_had_not_been(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower_to_tell(bench)
    bench.sound("--until-decided")
    whole = bench.trials()
    (tmp_path / "b").mkdir()
    other = Bench("ladder", tmp_path / "b", monkeypatch)
    slower_to_tell(other)
    other.host.fates = {13: ["kill"]}
    with pytest.raises(Killed):
        other.run("--until-decided")
    other.sound("--until-decided")
    assert other.trials() == whole


def test_a_spent_budget_ends_it_after_a_whole_block(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slower_to_tell(bench)
    clock = itertools.count(step=100)
    monkeypatch.setattr(decided, "monotonic", lambda: float(next(clock)))
    answer = bench.run("--until-decided", "--budget", "1m")
    assert answer.exit_code == 0, answer.output
    assert "have passed: run it again to continue" in " ".join(answer.output.split())
    folder = bench.folder
    assert blocks_of(folder) == 3
    assert len(folder.trials()) == 3 * 4


def cut(bench: Bench, last: int) -> ExperimentFolder:
    """The experiment when only trials up to this number were measured."""
    for record in bench.folder.trials():
        if record.number > last:
            bench.folder.remove_trial(record.number)
    return bench.folder


def test_before_the_first_look_there_is_no_verdict(bench: Bench) -> None:
    """Everybody may look at any time: a verdict there would be one for which no alpha was spent."""
    bench.sound("--until-decided")
    found = analyse_experiment(cut(bench, 2 * 4))
    assert "No verdict yet: the first look is after block 3." in found.headline
    assert found.effects
    assert {effect.verdict for effect in found.effects} == {Verdict.NOT_ENOUGH_DATA}
    assert found.decision is None
    assert found.studies == ()


def test_a_block_that_is_not_whole_changes_no_verdict(bench: Bench) -> None:
    slower_to_tell(bench)
    bench.sound("--until-decided")
    whole = blocks_of(bench.folder) - 1
    assert whole >= 3
    during = analyse_experiment(cut(bench, whole * 4 + 3))
    between = analyse_experiment(cut(bench, whole * 4))
    assert during.effects == between.effects
    assert during.decision == between.decision
    assert "No verdict yet" not in during.headline


def test_only_what_was_asked_has_to_be_decided(bench: Bench) -> None:
    slower_to_tell(bench)
    text = bench.plan.read_text()
    bench.plan.write_text(text.replace("[design]\n", '[design]\nuntil_decided = true\nasked = ["ALL"]\n'))
    answer = bench.run()
    assert "block 3: ALL is decided" in " ".join(answer.output.split())
    bench.plan.write_text(text.replace("[design]\n", '[design]\nuntil_decided = true\nasked = ["XL"]\n'))
    cause = bench.run().exception
    assert isinstance(cause, PlanError)
    assert "no such treatment; there are: STOCK, POOL, ALL" in cause.message


def test_a_treatment_that_never_runs_does_not_keep_it_going(bench: Bench) -> None:
    bench.host.broken = ("POOL",)
    assert bench.run("--until-decided").exit_code == 0
    assert blocks_of(bench.folder) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "1m"], "--budget: only with --until-decided"),
        (["--blocks", "5"], "--blocks 5: how many more, such as +5"),
        (["--blocks", "+0"], "how many more"),
    ],
)
def test_options_that_make_no_sense(bench: Bench, options: list[str], words: str) -> None:
    cause = bench.run(*options).exception
    assert isinstance(cause, PlanError)
    assert words in cause.message


def test_more_blocks_continue_the_same_seed_and_say_what_looking_cost(bench: Bench) -> None:
    slower_to_tell(bench)
    bench.sound()
    first = bench.trials()
    report = bench.sound("--blocks", "+4")
    assert bench.trials()[: len(first)] == first
    assert blocks_of(bench.folder) == 7
    assert any("extended from 3 to 7 blocks" in caution for caution in report["cautions"])
    # The plan alone continues the longer experiment, and another extension is added to it.
    assert bench.run().exit_code == 0
    assert blocks_of(bench.folder) == 7
    report = bench.sound("--blocks", "+1")
    assert blocks_of(bench.folder) == 8
    assert bench.folder.design.extended == (3, 7)


def test_blocks_of_a_switchback_are_added_again_and_again_and_each_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four blocks have one start: those added first were measured again with the start of the next."""
    bench = Bench("switchback", tmp_path, monkeypatch)
    bench.sound()
    for _ in range(2):
        bench.sound("--blocks", "+5")
    assert bench.folder.design.extended == (8, 13)
    assert blocks_of(bench.folder) == 18
    assert bench.host.measured == [r.number for r in bench.folder.trials()]


def test_an_undecided_race_names_the_command_that_goes_on_and_decides_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("race", tmp_path, monkeypatch)
    bench.host.speeds = by_name(**{"100": 700, "200": 1000, "400": 1040})
    bench.host.noise = 0.03
    bench.sound()
    first, before = bench.trials(), race_of(bench)
    assert (before.blocks, before.is_decided) == (6, False)
    (gone,) = (s for s in before.standings if s.dropped_after)
    for _ in range(8):
        # A prediction: it may need another.
        said = next(line for line in texts_of(report.of(bench.folder)) if "with the same promise: " in line)
        words = shlex.split(said[said.index("headrace run") :])
        assert words[2:5] == [f"{bench.output}/plan.toml", "-o", str(bench.output)]
        bench.sound(*words[5:])
        after = race_of(bench)
        if after.is_decided:
            break
    assert after.is_decided
    assert bench.trials()[: len(first)] == first
    assert (
        next(s for s in after.standings if s.treatment == gone.treatment).dropped_after == gone.dropped_after
    )
    cause = bench.run("--blocks", "+5").exception
    assert isinstance(cause, PlanError)
    assert "the race is decided, so more would change nothing" in cause.message
    assert not any("--blocks +" in line for line in texts_of(report.of(bench.folder)))


def race_of(bench: Bench) -> Race:
    (race,) = races.progress_of(bench.folder).races.values()
    return race


def texts_of(page: Page) -> list[str]:
    sections = [s.parts() if callable(s.parts) else s.parts for s in page.sections]
    return [plain(part.words) for parts in sections for part in parts if isinstance(part, Sentence)]


def test_blocks_are_not_added_to_another_plans_experiment(bench: Bench) -> None:
    """It was refused only after the other plan's margin had been written, under the old hash."""
    bench.sound()
    before = (bench.output / "design.json").read_text()
    cause = bench.run("--blocks", "+1", "--until-decided").exception
    bench.plan.write_text(bench.plan.read_text().replace("blocks = 3", "blocks = 3\nequivalence = 0.2"))
    for each in (cause, bench.run("--blocks", "+1").exception):
        assert isinstance(each, PlanError)
        assert "this directory belongs to another plan" in each.message
    assert (bench.output / "design.json").read_text() == before


def test_two_who_add_blocks_at_once_add_them_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.sound()
    file, path = plans.load(bench.plan), bench.output
    real = runner.exclusive

    def second(folder: Path) -> Any:
        monkeypatch.setattr(extending, "exclusive", real)
        extending.extend(file, path, 2)
        return real(folder)

    monkeypatch.setattr(extending, "exclusive", second)
    extending.extend(file, path, 2)
    assert bench.folder.design.blocks == 7


def test_only_a_fixed_design_is_extended(bench: Bench) -> None:
    bench.sound("--until-decided")
    cause = bench.run("--until-decided", "--blocks", "+1").exception
    assert isinstance(cause, HeadraceError)
    assert "decides itself" in cause.message


def test_open_comparisons_without_a_number_end_with_what_a_plan_can_detect(bench: Bench) -> None:
    """The trials allow that POOL is better, equivalent or worse, so no number of blocks is a promise."""
    slower_to_tell(bench)
    bench.run()
    page = (bench.output / "report.html").read_text()
    assert "To see what a plan can detect here: " in page
    assert f"headrace plan show {bench.output}/plan.toml" in page
    assert "--blocks +" not in page


# The level of a look.


def test_looks_that_begin_late_spend_no_less() -> None:
    """Nothing is spent before the first look, so its own level is larger than that of the same block of a race."""
    assert nominal_level(ALPHA, 4, first=5) == 0
    assert nominal_level(ALPHA, 5, first=5) == pytest.approx(ALPHA * spent(5))
    assert nominal_level(ALPHA, 5, first=5) > nominal_level(ALPHA, 5)


def test_all_looks_together_are_wrong_as_often_as_allowed() -> None:
    """Normal sums judged at each block from the third to the twentieth, two-sided."""
    from scipy.special import ndtri

    rng = np.random.default_rng(4)
    studies = 40_000
    sums = np.cumsum(rng.normal(size=(studies, 20)), axis=1)
    wrong = np.zeros(studies, dtype=bool)
    for look in range(3, 21):
        limit = -ndtri(nominal_level(ALPHA / 2, look, first=3))
        wrong |= np.abs(sums[:, look - 1]) / math.sqrt(look) > limit
    allowed = ALPHA * spent(20)
    assert abs(wrong.mean() - allowed) < 4 * math.sqrt(allowed / studies)


def test_what_an_undeclared_second_look_costs() -> None:
    assert sequential.rate_when_extended(ALPHA, [5]) == pytest.approx(ALPHA, abs=1e-3)
    rng = np.random.default_rng(5)
    sums = np.cumsum(rng.normal(size=(200_000, 10)), axis=1)
    seen = np.abs(sums[:, [4, 9]]) / np.sqrt([5, 10]) > 1.959964
    assert sequential.rate_when_extended(ALPHA, [5, 10]) == pytest.approx(seen.any(axis=1).mean(), abs=0.003)
