"""A rollout's predicted effect: found, part of the plan, compared with production."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace.base.errors import PlanError, StoreError
from headrace.base.model import Value
from headrace.fleet.host import Host, Inventory
from headrace.fleet.runner import State
from headrace.host.target import TargetSpec
from headrace.rollout import expected
from headrace.rollout.book import Book
from headrace.rollout.command import _planned, rollout_app
from headrace.rollout.guards import Window
from headrace.rollout.judge import THROUGHPUT, TIME, Bound
from headrace.rollout.plan import Expected, Plan, Said, make
from headrace.rollout.prediction import Agreement, Prediction, record
from headrace.rollout.report import expected as report
from headrace.rollout.report import rollout as rollout_report
from headrace.rollout.rules import Rules, StageRule
from headrace.show import terminal
from tests import synthetic
from tests.unit import test_staged_restart as restarts
from tests.unit.test_staged import SETTINGS, topology
from tests.written import printed

KNOB = "server.innodb_io_capacity"
LEVELS: dict[str, dict[str, Value]] = {
    "AS-IS": {},
    "LOW": {KNOB: 200},
    "HIGH": {KNOB: "2000"},
    "BOTH": {KNOB: 2000, "server.sort_buffer_size": "1M"},
}


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes an experiment of these configurations; the first is the baseline."""
    monkeypatch.setattr(synthetic, "settings_of", lambda configuration, condition: LEVELS[configuration])

    def written(name: str, **more: Any) -> Path:
        effects = more.pop("effects", {"LOW": 1.0, "HIGH": 1.18})
        shape = synthetic.Shape(effects=effects, blocks=5, seconds=4, noise=0.005, **more)
        return synthetic.make(tmp_path / "experiments" / name, shape).path

    return written


def lab(ratio: float = 1.18, *, metric: str = TIME, folder: str = "/e/io", why: str = "") -> Expected:
    said = Said(ratio, ratio - 0.06, ratio + 0.06, "better", 8)
    return Expected(
        "io", "fixed", folder, "3 May 2026", "oltp", "HIGH", {KNOB: "200"}, {"throughput": said}, metric, why
    )


def plan(known: Expected | None, seed: int = 1) -> Plan:
    stages = (StageRule(name="one", take="one"), StageRule(name="replicas", take="replicas"))
    return make(SETTINGS, topology("a", 4), Rules(stage=stages), seed, expected=known)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def judged(known: Expected | None, time_ratio: float, seed: int = 1, stages: int = 1) -> Book:
    """A rollout whose first stages have a verdict on six pairs."""
    book = Book.make(plan(known, seed))
    rng = np.random.default_rng(seed)
    for stage in book.plan.stages[:stages]:
        for _ in range(6):
            on = Window(60.0, 60_000.0, 60.0 * time_ratio * math.exp(rng.normal(0, 0.02)))
            book.note("pair", stage=stage.name, host=stage.hosts[0], on=asdict(on), off=asdict(OFF))
        found = book.judged(stage)
        bounds = {metric: asdict(bound) for metric, bound in (found.bounds or {}).items()}
        book.note("verdict", stage=stage.name, outcome=str(found.outcome), reason=found.reason, bounds=bounds)
    return book


OFF = Window(60.0, 60_000.0, 60.0)


# -- found -------------------------------------------------------------------------------------------------------


def test_it_is_found_among_experiments_by_exactly_these_settings(experiment: Callable[..., Path]) -> None:
    root = experiment("stock", effects={"LOW": 1.0, "BOTH": 2.0}).parent
    with pytest.raises(PlanError, match=r"no experiment there changed exactly .*sort_buffer"):
        expected.find([root], {KNOB: "2000"})
    experiment("proof/01-io")
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "design.json").write_text('{"format": 0}')
    found = expected.find([root], {KNOB: 2000})
    assert (found.experiment, found.treatment, found.metric) == ("01-io", "HIGH", TIME)
    assert found.before == {KNOB: "200"}
    said = found.responses["throughput"]
    assert said.ratio == pytest.approx(1.18, rel=0.05)
    assert said.low is not None
    assert 1 < said.low < said.ratio
    assert said.verdict == "better"
    both = expected.find([root], {KNOB: 2000, "server.sort_buffer_size": 2**20})
    assert both.experiment == "stock"
    for named in (damaged, root / "none"):
        with pytest.raises(StoreError):
            expected.find([named], {KNOB: "2000"})


def test_what_the_baseline_left_alone_is_known_from_the_trials(experiment: Callable[..., Path]) -> None:
    LEVELS["SIZE"] = {"server.sort_buffer_size": "1M"}
    path = experiment("size", effects={"AS-IS": 1.0, "SIZE": 1.1})
    found = expected.find([path], {"server.sort_buffer_size": "1M"})
    assert found.before == {"server.sort_buffer_size": "134217728"}


def test_the_effect_of_leaving_it_out_is_turned(experiment: Callable[..., Path]) -> None:
    path = experiment("without", effects={"HIGH": 1.0, "AS-IS": 0.8})
    found = expected.find([path], {KNOB: "2000"})
    assert found.responses["throughput"].ratio == pytest.approx(1.25, rel=0.02)
    assert found.responses["throughput"].verdict == "better"


def test_what_is_not_finished_or_ambiguous_is_refused(experiment: Callable[..., Path]) -> None:
    with pytest.raises(PlanError, match="not finished: 2 of 15"):
        expected.find([experiment("half", unfinished=2)], {KNOB: "2000"})
    with pytest.raises(PlanError, match="several times: HIGH @ threads=1, HIGH @ threads=8"):
        expected.find([experiment("two", conditions=("threads=1", "threads=8"))], {KNOB: "2000"})


@pytest.mark.parametrize(
    ("workload", "options", "metric", "why"),
    [
        ("oltp", {}, TIME, ""),
        ("oltp", {"rate": 500}, "", "fixed rate"),
        ("oltp", {"think_time_s": 0.1}, "", "paused"),
        ("tpcc", {"times": "specification"}, "", "paused"),
        ("fio", {}, "", "fio"),
        ("replay", {"speed": "max"}, "", "replay"),
        ("observe", {}, THROUGHPUT, ""),
        ("observe", {"counter": "network.rx_packets/eth0"}, "", "rx_packets"),
    ],
)
def test_only_what_compares_is_compared(
    experiment: Callable[..., Path], workload: str, options: dict[str, Any], metric: str, why: str
) -> None:
    design = synthetic.design_of(
        synthetic.Shape(effects={"LOW": 1.0, "HIGH": 1.18}, workload=workload, options=options), "e"
    )
    found = expected._metric(design, "HIGH")
    assert found[0] == metric
    assert why in found[1]
    assert bool(found[0]) != bool(found[1])


# -- in the plan -------------------------------------------------------------------------------------------------


def test_the_plans_id_covers_it_and_plans_without_it_keep_theirs() -> None:
    with_it = plan(lab())
    assert Plan.of(json.loads(json.dumps(with_it.to_json()))) == with_it
    assert len({plan(None).id, with_it.id, plan(lab(1.19)).id}) == 3
    assert "expected" not in plan(None).to_json()


def test_the_plan_says_what_it_is_compared_with_and_what_was_different() -> None:
    text = " ".join(report.plan_sentences(plan(lab())))
    assert "io of 3 May 2026 (oltp): throughput +18.0% (+12.0% to +24.0%), better" in text
    assert "time per query: -15.3% (-19.4% to -10.7%), from the throughput of a closed loop" in text
    assert "started from" not in text
    other = replace(lab(), before={KNOB: "100"})
    text = " ".join(report.plan_sentences(plan(other)))
    assert f"started from 100, but {KNOB}=200 on ar1, ar2, ar3, ar4" in text
    paced = replace(lab(), metric="", why="the lab's load had a fixed rate")
    assert "not compared with production: the lab's load had a fixed rate" in " ".join(
        report.plan_sentences(plan(paced))
    )


def test_an_experiment_that_says_almost_nothing_says_so_in_words_that_can_be_read() -> None:
    wide = lab(0.861)
    said = replace(wide.responses["throughput"], low=2.9e-4, high=2529.083)
    text = " ".join(report.plan_sentences(plan(replace(wide, responses={"throughput": said}))))
    assert "throughput -13.9% (interval too wide to say)" in text
    assert "time per query: +16.1% (interval too wide to say)" in text


def test_the_command_puts_it_into_the_plan() -> None:
    host = Host("ar1", TargetSpec("ssh", host="ar1", user="root"))
    answer = {
        "is_so_already": False, "login": {}, "role": "replica", "identity": "x", "links": [], "per_s": 500.0,
        "now": {KNOB: "200"}, "hostname": "",
    }  # fmt: skip
    outcome = SimpleNamespace(state=State.OK, host="ar1", answer=answer)
    file = SimpleNamespace(outcomes=lambda hosts: [outcome])
    asked: Any = SimpleNamespace(inventory=Inventory({"ar1": host}, fan_out_jump=2), file=file)
    made = _planned(asked, SETTINGS, Rules(stage=(StageRule(name="one", take="one"),)), (), "", lab())
    assert made.expected == lab()
    assert made.fan_out == (64, 2)
    assert Plan.of(json.loads(json.dumps(made.to_json()))).id == made.id


# -- compared ----------------------------------------------------------------------------------------------------


def test_each_verdict_is_shown_next_to_the_lab() -> None:
    book = judged(lab(), 1 / 1.15, stages=2)
    shown = str(terminal_text(book))
    assert "-15.3% (-19.4% to -10.7%)" in shown
    found = rollout_report.to_json(book)["lab"]
    assert list(found["stages"]) == ["one", "replicas"]
    one = found["stages"]["one"]
    assert one["production"]["ratio"] == pytest.approx(1 / 1.15, rel=0.02)
    assert one["lab"]["ratio"] == pytest.approx(1 / 1.18)
    # What is shown is the interval of the verdict, and over both stages a confidence sequence.
    bound = book.state.verdicts["one"]["bounds"][TIME]
    assert one["production"]["high"] == pytest.approx(math.exp(bound["high"]))
    assert found["all"]["production"]["ratio"] == pytest.approx(1 / 1.15, rel=0.02)
    assert json.dumps(found, allow_nan=False)


def terminal_text(book: Book) -> str:
    return printed(terminal.show(rollout_report.status_parts(book)), width=200)


def test_harm_on_one_host_is_not_taken_for_the_effect_on_all() -> None:
    book = judged(lab(), 1.3)
    [stage] = [each for each in book.plan.stages if each.name == "one"]
    alone = {TIME: asdict(Bound(6, 2.0, 1.9, 2.1))}
    book.note("verdict", stage="one", outcome="fail", reason="on ar1", bounds=alone)
    found = expected.prediction(book, stage)
    assert found is not None
    assert found.production.estimate == pytest.approx(math.log(1.3), abs=0.02)


def test_what_does_not_compare_is_said_and_not_compared() -> None:
    book = judged(lab(metric="", why="the lab's load had a fixed rate"), 1 / 1.15)
    assert expected.prediction(book) is None
    assert report.stages(book) == []
    assert "not compared with production: the lab's load had a fixed rate" in terminal_text(book)
    assert rollout_report.to_json(book)["lab"]["not_compared"] == "the lab's metric does not compare"
    assert rollout_report.to_json(judged(None, 1 / 1.15))["lab"] is None


def test_pairs_of_hosts_are_compared_by_their_difference_in_differences(tmp_path: Path) -> None:
    hosts = restarts.equal(*topology("a", 2))
    found = restarts.plan_of(tmp_path, hosts, restarts.RESTART)
    book = Book.make(replace(found, expected=lab()))
    stage = book.plan.stages[0]
    [(changed, partner)] = stage.pairs
    rng = np.random.default_rng(3)

    def moment(ratio: float, *, is_after: bool) -> None:
        # The changed host always was slower than its partner.
        slow, other = (
            Window(60.0, 60_000.0, 60.0 * each * math.exp(rng.normal(0, 0.01))) for each in (ratio, 1)
        )
        book.note(
            "moment", stage=stage.name, host=changed, partner=partner, changed=asdict(slow),
            partner_did=asdict(other), is_after=is_after,
        )  # fmt: skip

    for _ in range(12):
        moment(2.0, is_after=False)
    for _ in range(6):
        moment(2.0 / 1.15, is_after=True)
    assert expected.prediction(book) is None
    book.note("verdict", stage=stage.name, outcome="pass", reason="", bounds={})
    both = expected.prediction(book)
    assert both is not None
    assert both.production.estimate == pytest.approx(-math.log(1.15), abs=0.03)


@pytest.mark.parametrize(
    ("production", "agreement"),
    [
        ((-0.2, -0.3, -0.1), Agreement.CONTAINED),
        ((-0.1, -0.14, -0.05), Agreement.OVERLAP),
        ((-0.22, -0.26, -0.19), Agreement.OVERLAP),
        ((-0.05, -0.08, 0.0), Agreement.WORSE),
        ((-0.5, -0.6, -0.4), Agreement.BETTER),
        ((-0.2, -math.inf, math.inf), Agreement.UNKNOWN),
        ((-0.2, -0.3, math.inf), Agreement.UNKNOWN),
        # Two blocks: whatever the lab says lies in it.
        ((-0.2, -12.0, 12.0), Agreement.UNKNOWN),
    ],
)
def test_agreement(production: tuple[float, float, float], agreement: Agreement) -> None:
    found = Prediction(Bound(8, -0.17, -0.21, -0.12), Bound(6, *production))
    assert found.agreement is agreement


# -- over all rollouts -------------------------------------------------------------------------------------------


def test_the_unit_of_the_mean_is_a_rollout() -> None:
    """Against the interval worked out by hand: differences 0.02, 0.06, 0.10; t(2) = 4.3027."""
    three = {
        str(n): Prediction(Bound(8, -0.2, -0.25, -0.15), Bound(n * 100, -0.2 + d, -0.3, 0.1))
        for n, d in enumerate((0.02, 0.06, 0.10), start=1)
    }
    found = record(three).ratio
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    half = 4.302653 * 0.04 / math.sqrt(3)
    assert [math.log(each) for each in (found.estimate, found.low, found.high)] == pytest.approx(
        [0.06, 0.06 - half, 0.06 + half], abs=1e-6
    )


def test_history_counts_and_says_what_is_too_little() -> None:
    empty = report.history([])
    assert report.history_sentences(empty) == [
        "No rollout has both a verdict and an experiment that compares with it."
    ]
    one = judged(lab(), 1 / 1.15)
    said = report.history_sentences(report.history([one]))
    assert any("One rollout is too few for an interval" in line for line in said)
    two = [one, judged(lab(), 1 / 1.10, seed=2)]
    said = report.history_sentences(report.history(two))
    assert any("With so few rollouts this is weak evidence" in line for line in said)
    assert any("are based on 1 experiment:" in line for line in said)
    many = [judged(lab(folder=f"/e/{n}"), 1 / 1.15, seed=n + 1) for n in range(5)]
    others = [
        judged(None, 1.0, seed=9),
        judged(lab(metric="", why="x"), 1.0, seed=10),
        Book.make(plan(lab(), 11)),
    ]
    found = report.history([*many, *others])
    content = report.history_json(found)
    assert (content["counted"], content["contains"], len(content["left_out"])) == (5, 5, 3)
    ratio = content["cost_relative_to_lab"]
    assert ratio["low"] < 1.18 / 1.15 < ratio["high"]
    text = " ".join(content["sentences"])
    assert "5 rollouts with both: production's interval contains the lab's estimate in 5" in text
    assert "1 because no experiment was named in the plan" in text
    assert "1 because no stage has a verdict" in text
    assert "So few" not in text


def test_the_command_shows_it() -> None:
    judged(lab(), 1 / 1.15)
    runner = CliRunner()
    shown = runner.invoke(rollout_app, ["history"])
    assert shown.exit_code == 0
    assert "One rollout is too few" in " ".join(shown.output.split())
    found = json.loads(runner.invoke(rollout_app, ["history", "--json"]).output)
    assert found["counted"] == 1
    [row] = json.loads(runner.invoke(rollout_app, ["status", "--json"]).output)
    assert "lab -15.3%" in row["lab"]
