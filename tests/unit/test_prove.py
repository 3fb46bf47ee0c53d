"""From findings to proofs: which are tried, in which order, what is kept, and what the claim rests on.

The rules are three of our own; an experiment is written as the runner would have, with effects that we choose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.base.effect import Verdict
from headrace.base.errors import PlanError
from headrace.base.intervals import Interval, span
from headrace.experiment import kinds, prove
from headrace.experiment import plan as plans
from headrace.experiment.report import proof as views
from headrace.experiment.runner import Event, Note
from headrace.experiment.store import ExperimentFolder
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Rule, Severity
from headrace.show.notice import Conclusion, Notice
from tests import synthetic
from tests.rules import hosts
from tests.written import printed

PLAN = """
name = "shop"
[design]
kind = "factorial"
baseline = {}
[workload]
kind = "oltp"
seconds = 5
[factors.connections]
knob = "workload.connections"
levels = [4, 8]
"""

#: How much faster the server is with each of these, over the stock one.
GAINS = {
    ("server.read_buffer_size", "1M"): 1.04,
    ("server.innodb_buffer_pool_size", "1G"): 2.0,
    ("server.innodb_io_capacity", 2000): 1.0,
    ("host.vm.swappiness", 1): 1.0,
    ("server.innodb_log_file_size", "1G"): 1.5,
}


def rule(code: str, severity: Severity, check: Any) -> Rule:
    return Rule(code, f"Rule {code}", severity, Confidence.HIGH, "a book", "nothing changes", check)


def small_pool(evidence: Evidence) -> Iterator[Match]:
    if evidence.variable("innodb_buffer_pool_size") != "1G":
        yield Match("", "The pool is small.", (), (Remedy({"server.innodb_buffer_pool_size": "1G"}),))


def small_log(evidence: Evidence) -> Iterator[Match]:
    """Seen only once the pool is large: the next limit."""
    if (
        evidence.variable("innodb_buffer_pool_size") == "1G"
        and evidence.variable("innodb_log_file_size") != "1G"
    ):
        yield Match("", "The log is small.", (), (Remedy({"server.innodb_log_file_size": "1G"}),))


def old_advice(evidence: Evidence) -> Iterator[Match]:
    options = (Remedy({"host.vm.swappiness": 1}), Remedy({"server.innodb_io_capacity": 2000}))
    yield Match("", "Somebody once said so.", (), options)


def unsafe(evidence: Evidence) -> Iterator[Match]:
    yield Match("", "Commits wait.", (), (Remedy({"server.innodb_flush_log_at_trx_commit": 2}),))


def by_hand(evidence: Evidence) -> Iterator[Match]:
    yield Match("", "A cable is loose.", (), (Remedy(steps=("plug it in",)),))


def slow_and_safe(evidence: Evidence) -> Iterator[Match]:
    yield Match("", "Commits may be lost.", (), (Remedy({"server.sync_binlog": 1}),))


def hardly_faster(evidence: Evidence) -> Iterator[Match]:
    yield Match("", "It may help.", (), (Remedy({"server.read_buffer_size": "1M"}),))


RULES = [
    rule("EEE01", Severity.RISK, slow_and_safe),
    rule("AAA01", Severity.LIMIT, small_pool),
    rule("AAA02", Severity.LIMIT, small_log),
    rule("BBB01", Severity.ADVICE, old_advice),
    rule("CCC01", Severity.COST, unsafe),
    rule("DDD01", Severity.LIMIT, by_hand),
]


class Laboratory:
    """Runs plans as the runner would, on a server whose speed is the product of what is set."""

    def __init__(self) -> None:
        self.plans: list[plans.Plan] = []
        self.said: list[str] = []

    async def run(self, file: plans.PlanFile, folder: Path | None, listen: Any) -> ExperimentFolder:
        plan = file.plan
        self.plans.append(plan)
        assert folder is not None
        if folder.exists():
            return ExperimentFolder.open(folder)
        own = {rung: self._settings(plan, rung) for rung in plan.design.rungs}
        start = speed(plan.base)
        effects = {rung: speed(settings) / start for rung, settings in own.items()}
        shape = synthetic.Shape(effects=effects, blocks=max(plan.design.blocks, 2), seconds=5)
        found = synthetic.make(folder, shape)
        for record in found.trials():
            self._keep(found.trial_path(record.number), own[record.treatment])
        return found

    def _settings(self, plan: plans.Plan, rung: str) -> dict[str, Any]:
        merged = dict(plan.base)
        for bundle in plan.design.rungs[rung]:
            merged |= plan.bundles[bundle]
        return merged

    def _keep(self, trial: Path, settings: Mapping[str, Any]) -> None:
        """What the rules look at: a host that has these settings."""
        variables = {"innodb_buffer_pool_size": "128M", "innodb_log_file_size": "96M"}
        variables |= {k.removeprefix("server."): str(v) for k, v in settings.items()}
        (trial / "raw").mkdir(exist_ok=True)
        (trial / "raw" / "facts.json").write_text(json.dumps(hosts.unwell(variables=variables).raw))
        record = json.loads((trial / "trial.json").read_text())
        samples = pq.read_table(trial / "samples.parquet")
        assert record["window_start_ns"] <= samples["t_ns"][0].as_py() + 10**12

    def listen(self, event: Event) -> None:
        if isinstance(event, Note):
            self.said.append(event.text)


def speed(settings: Mapping[str, Any]) -> float:
    result = 1.0
    for item in settings.items():
        result *= GAINS.get(item, 1.0)
    return result


@pytest.fixture
def laboratory(monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr(prove, "all_rules", lambda: RULES)
    return Laboratory()


def bench(laboratory: Laboratory, folder: Path, **options: Any) -> prove.Bench:
    plan = folder / "shop.toml"
    plan.write_text(PLAN)
    return prove.Bench.open(plan, folder / "proof", laboratory.listen, run=laboratory.run, **options)


async def test_what_is_proven_is_kept_and_the_next_limit_is_found(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path))
    # The pool can be changed while the server works, the log cannot: cost comes first, then severity.
    assert [(step.finding, step.kept) for step in found.steps] == [
        ("AAA01", True),
        ("BBB01", False),
        ("AAA02", True),
    ]
    assert found.kept == {"server.innodb_buffer_pool_size": "1G", "server.innodb_log_file_size": "1G"}
    assert found.final is not None
    assert found.final.verdict is Verdict.BETTER
    assert found.final.ratio.estimate == pytest.approx(3.0, rel=0.2)
    # The last experiment starts from the very beginning, not from what was kept.
    assert laboratory.plans[-1].base == {}
    assert [plan.name for plan in laboratory.plans] == [
        "shop-00-survey",
        "shop-01-AAA01",
        "shop-02-BBB01",
        "shop-03-AAA02",
        "shop-04-final",
    ]


async def test_each_step_stands_on_what_was_kept_before(laboratory: Laboratory, tmp_path: Path) -> None:
    await prove.prove_all(bench(laboratory, tmp_path))
    third = laboratory.plans[3]
    assert third.base == {"server.innodb_buffer_pool_size": "1G"}
    assert third.bundles == {"remedy": {"server.innodb_log_file_size": "1G"}}


async def test_alternatives_stand_side_by_side(laboratory: Laboratory, tmp_path: Path) -> None:
    await prove.prove_all(bench(laboratory, tmp_path), only=["BBB01"])
    assert list(laboratory.plans[1].design.rungs) == ["AS-IS", "REMEDY", "REMEDY-2"]


async def test_nothing_weakens_durability_unless_it_is_named(laboratory: Laboratory, tmp_path: Path) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path))
    assert "reduce durability" in dict(found.skipped)["CCC01"]
    assert not any("flush_log_at_trx_commit" in repr(plan.bundles) for plan in laboratory.plans)
    (tmp_path / "second").mkdir()
    allowed = bench(laboratory, tmp_path / "second", allow_weaker=("server.innodb_flush_log_at_trx_commit",))
    again = await prove.prove_all(allowed, only=["CCC01"])
    assert [step.finding for step in again.steps] == ["CCC01"]


async def test_what_no_experiment_can_set_is_said(laboratory: Laboratory, tmp_path: Path) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path), only=["DDD01"])
    assert dict(found.skipped)["DDD01"] == "needs manual steps: plug it in"
    assert found.steps == ()
    assert found.final is None


async def test_the_same_command_again_measures_nothing_twice(laboratory: Laboratory, tmp_path: Path) -> None:
    first = await prove.prove_all(bench(laboratory, tmp_path))
    trials = sorted(path.stat().st_mtime_ns for path in (tmp_path / "proof").rglob("trial.json"))
    second = await prove.prove_all(bench(laboratory, tmp_path))
    assert second == first
    assert sorted(path.stat().st_mtime_ns for path in (tmp_path / "proof").rglob("trial.json")) == trials


async def test_every_experiment_runs_on_the_plans_machine(laboratory: Laboratory, tmp_path: Path) -> None:
    """Without its table a virtual machine is refused, and a host runs on the kernel that it happens to have."""
    own = bench(laboratory, tmp_path)
    text = f'{PLAN}[target]\naddress = "vm"\n[machine]\nkernel = "6.12"\nmemory = "8G"\n'
    own = replace(own, plan=plans.parse(text, "shop.toml"))
    await prove.prove_all(own)
    assert len(laboratory.plans) == 5
    assert all(plan.machine == own.plan.machine for plan in laboratory.plans)
    design = kinds.build(laboratory.plans[1], place="step")
    assert {str(design.boot_of(treatment)) for treatment in design.treatments} == {"6.12"}


async def test_a_budget_ends_it_with_a_claim(laboratory: Laboratory, tmp_path: Path) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path), budget_s=0.0)
    assert found.steps == ()


async def test_with_a_budget_a_step_goes_on_until_it_is_decided(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    await prove.prove_all(bench(laboratory, tmp_path, minutes=2.5))
    survey, *steps = [plan.design for plan in laboratory.plans]
    assert not survey.until_decided
    assert {(each.until_decided, each.minutes, each.blocks) for each in steps} == {(True, 2.5, 4)}


async def test_only_throughput_is_looked_at_again(laboratory: Laboratory, tmp_path: Path) -> None:
    await prove.prove_all(bench(laboratory, tmp_path, minutes=2.5, response="p99"))
    assert not any(plan.design.until_decided for plan in laboratory.plans)


async def test_a_fix_that_raises_throughput_and_ruins_p99_says_so(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path))
    assert found.other is not None
    assert (found.other.response, found.other.verdict) == ("p99", Verdict.BETTER)
    assert "But" not in views.headline(found, "throughput")
    ruined = replace(found.other, ratio=Interval(3.5, 2.1, 5.9), verdict=Verdict.WORSE)
    worse = replace(found, other=ruined)
    assert views.headline(worse, "throughput").endswith(" But p99 is worse: 3.500x (2.100 – 5.900).")
    content = json.loads(json.dumps(views.to_json(worse, "throughput")))
    assert (content["other"]["response"], content["other"]["verdict"]) == ("p99", "worse")
    [step] = [each for each in found.steps if each.finding == "AAA01"]
    assert prove.told(replace(step, other=ruined)).endswith("; p99 is worse: 3.50x (2.10 to 5.90); kept")


@pytest.mark.parametrize("is_first", [True, False])
async def test_of_two_that_lower_p99_the_one_that_lowers_it_more_is_kept(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """A lower ratio is better for a latency; the fix with the higher one used to be kept."""
    large, small = {"server.innodb_buffer_pool_size": "1G"}, {"server.innodb_log_file_size": "1G"}

    def either(evidence: Evidence) -> Iterator[Match]:
        options = (large, small) if is_first else (small, large)
        yield Match("", "One of the two.", (), tuple(Remedy(each) for each in options))

    monkeypatch.setattr(prove, "all_rules", lambda: [rule("AAA01", Severity.LIMIT, either)])
    found = await prove.prove_all(bench(laboratory, tmp_path, response="p99"))
    assert (found.steps[0].settings, found.steps[0].kept) == (large, True)
    assert found.steps[0].effect is not None
    assert found.steps[0].effect.ratio.estimate == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("is_first", [True, False])
async def test_where_none_lowers_p99_the_one_that_comes_nearest_is_told(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    monkeypatch.setitem(GAINS, ("server.innodb_io_capacity", 2000), 0.5)
    monkeypatch.setitem(GAINS, ("host.vm.swappiness", 1), 0.9)
    swappiness, capacity = {"host.vm.swappiness": 1}, {"server.innodb_io_capacity": 2000}

    def either(evidence: Evidence) -> Iterator[Match]:
        options = (swappiness, capacity) if is_first else (capacity, swappiness)
        yield Match("", "One of the two.", (), tuple(Remedy(each) for each in options))

    monkeypatch.setattr(prove, "all_rules", lambda: [rule("BBB01", Severity.LIMIT, either)])
    found = await prove.prove_all(bench(laboratory, tmp_path, response="p99"))
    assert [(step.settings, step.kept) for step in found.steps] == [(swappiness, False)]


@pytest.mark.parametrize("response", ["p42", "p99.99"])
def test_a_response_that_trials_do_not_have_is_refused(
    laboratory: Laboratory, tmp_path: Path, response: str
) -> None:
    with pytest.raises(PlanError, match=response):
        bench(laboratory, tmp_path, response=response)


async def test_the_proof_as_text_and_as_json(laboratory: Laboratory, tmp_path: Path) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path))
    text = printed(views.terminal(found, "throughput"), width=140)
    assert re.search(r"kept +AAA01 +Rule AAA01\n.*innodb_buffer_pool_size = 1G *\n +better: throughput", text)
    assert "Proven: throughput" in text
    assert "not tested: CCC01" in text
    content = json.loads(json.dumps(views.to_json(found, "throughput")))
    assert content["final"]["verdict"] == "better"
    assert [step["kept"] for step in content["steps"]] == [True, False, True]


async def test_the_verdict_of_a_proof_is_told(laboratory: Laboratory, tmp_path: Path) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path))
    notice = views.notice(found, "p: throughput", "throughput", "headrace prove --plan p", tmp_path)
    assert notice.conclusion is Conclusion.BETTER
    assert notice.headline.startswith("Proven: throughput")
    assert notice.next.startswith("headrace apply server.innodb_buffer_pool_size=1G ")
    assert [each.note for each in notice.effects] == ["kept", "", "kept", ""]
    content = json.loads(json.dumps(views.to_json(found, "throughput", "", notice)))
    assert Notice.from_json(content, "proof.json") == notice


class Shaky(Laboratory):
    """One trial of this treatment fails in each experiment that this one's name ends with."""

    def __init__(self, step: str, treatment: str) -> None:
        super().__init__()
        self._step, self._treatment = step, treatment

    async def run(self, file: plans.PlanFile, folder: Path | None, listen: Any) -> ExperimentFolder:
        found = await super().run(file, folder, listen)
        if found.path.name.endswith(self._step):
            record = next(r for r in found.trials() if r.treatment == self._treatment and r.block == 2)
            path = found.trial_path(record.number) / "trial.json"
            path.write_text(
                json.dumps({**json.loads(path.read_text()), "state": "failed", "reason": "no start"})
            )
        return found


async def test_a_fix_that_also_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left of it were its good trials, and they are better."""
    monkeypatch.setattr(prove, "all_rules", lambda: RULES)
    shaky = Shaky("01-AAA01", "REMEDY")
    found = await prove.prove_all(bench(shaky, tmp_path), only=["AAA01"])
    [step] = found.steps
    assert (step.verdict, step.kept, found.kept) == ("better", False, {})
    assert step.reason == "failed in 1 of 4 trials"
    assert prove.told(step).endswith("; failed in 1 of 4 trials; not kept")
    assert "failed in 1 of 4 trials" in shown(found, "")


async def test_an_end_that_also_fails_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "all_rules", lambda: RULES)
    shaky = Shaky("-final", "TUNED")
    found = await prove.prove_all(bench(shaky, tmp_path), only=["AAA01"])
    assert found.final is not None
    assert found.final.verdict is Verdict.BETTER
    notice = views.notice(found, "p", "throughput", "", tmp_path)
    assert notice.conclusion is Conclusion.NOT_ENOUGH_DATA
    assert notice.headline.startswith("Not proven: all fixes together failed in 1 of 4 trials.")
    assert "headrace apply" not in notice.next
    unmeasured = replace(found, final=None, failed="")
    assert views.conclusion(unmeasured) is Conclusion.NOT_ENOUGH_DATA
    assert views.headline(unmeasured, "throughput").startswith("Combined effect not measured")


async def test_a_proof_without_a_verdict_tells_how_to_get_one(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "all_rules", lambda: [rule("FFF01", Severity.ADVICE, hardly_faster)])
    found = await prove.prove_all(bench(laboratory, tmp_path, blocks=3))
    notice = views.notice(found, "p", "throughput", "headrace prove --plan p", tmp_path)
    assert notice.conclusion is Conclusion.NOT_ENOUGH_DATA
    assert notice.next.startswith("headrace prove --plan p FFF01 --blocks ")
    monkeypatch.setattr(prove, "all_rules", list)
    (tmp_path / "none").mkdir()
    nothing = await prove.prove_all(bench(laboratory, tmp_path / "none"))
    assert views.notice(nothing, "p", "throughput", "", tmp_path).conclusion is Conclusion.NOTHING_FOUND


async def test_each_experiment_has_its_report_when_it_ends(laboratory: Laboratory, tmp_path: Path) -> None:
    from headrace.experiment.commands.prove import _write_report

    await prove.prove_all(bench(laboratory, tmp_path, report=_write_report), only=["AAA01"])
    written = sorted(path.parent.name for path in (tmp_path / "proof").rglob("report.html"))
    assert written == ["00-survey", "01-AAA01", "02-final"]


async def test_what_keeps_data_safe_is_never_refuted_by_throughput(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    found = await prove.prove_all(bench(laboratory, tmp_path), only=["EEE01"])
    assert found.steps == ()
    assert "protects the data or the server" in dict(found.skipped)["EEE01"]


async def test_a_step_without_a_verdict_says_how_many_blocks_and_the_command(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "all_rules", lambda: [rule("FFF01", Severity.ADVICE, hardly_faster)])
    found = await prove.prove_all(bench(laboratory, tmp_path, blocks=3))
    effect = found.steps[0].effect
    assert effect is not None
    assert effect.verdict is Verdict.NOT_ENOUGH_DATA
    assert effect.blocks_needed
    wanted = f"headrace prove --plan p FFF01 --blocks {effect.blocks_needed}"
    assert views.to_json(found, "throughput", "headrace prove --plan p")["settle"] == wanted
    assert wanted in shown(found, "headrace prove --plan p")
    assert effect.needed is not None
    assert f"about {span(effect.needed)} blocks would settle it" in shown(found, "")


def shown(found: prove.Proof, command: str) -> str:
    return printed(views.terminal(found, "throughput", command), width=140)
