"""How far apart machines are, in numbers and in what a report says."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from headrace.base.model import Facts, Role
from headrace.experiment import report
from headrace.experiment.plan import TargetTable
from headrace.experiment.stats.machines import mixed_blocks, spread
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import ExperimentFolder
from headrace.show import jsonform, terminal
from tests.synthetic import Shape, facts_of, make
from tests.written import printed


def baseline(number: int, block: int, ops_s: float) -> TrialResponse:
    return TrialResponse(number, block, "A", Role.BASELINE, ops_s, operations=round(ops_s))


def test_the_spread_is_that_of_the_machines_and_not_of_their_trials() -> None:
    trials = [baseline(1, 1, 900), baseline(2, 1, 1111.1), baseline(3, 2, 1980), baseline(4, 2, 2020.2)]
    found = spread({"": trials}, {1: "a", 2: "a", 3: "b", 4: "b"})
    assert found is not None
    assert found.between == pytest.approx(2.0, rel=1e-4)
    assert [(m.machine, m.blocks) for m in found.machines] == [("a", 1), ("b", 1)]
    assert found.machines[0].ratio * found.machines[1].ratio == pytest.approx(1)
    assert found.within_sd_log is not None
    squares = sum(
        (math.log(t.throughput_ops_s) - math.log(m)) ** 2
        for t, m in zip(trials, (1000, 1000, 2000, 2000), strict=True)
    )
    assert found.within_sd_log == pytest.approx(math.sqrt(squares / 2), rel=1e-4)


def test_conditions_are_not_taken_for_machines() -> None:
    slow = [baseline(1, 1, 10), baseline(2, 2, 20)]
    fast = [baseline(3, 1, 1000), baseline(4, 2, 2000)]
    found = spread({"read": slow, "write": fast}, {1: "a", 2: "b", 3: "a", 4: "b"})
    assert found is not None
    assert found.between == pytest.approx(2.0)
    assert found.within_sd_log is None
    # A condition that only one of them measured says nothing of their difference.
    alone = {"read": slow, "write": fast[:1]}
    assert spread(alone, {1: "a", 2: "b", 3: "a"}) == spread({"read": slow}, {1: "a", 2: "b"})


def test_one_machine_or_none_has_no_spread() -> None:
    assert spread({"": [baseline(1, 1, 10)]}, {1: "a"}) is None
    assert spread({"": [baseline(1, 1, 10), baseline(2, 2, 10)]}, {1: "", 2: ""}) is None
    assert spread({}, {}) is None


def test_a_block_of_two_machines_is_found() -> None:
    assert mixed_blocks({1: "a", 2: "a", 3: "b", 4: "c"}, {1: 1, 2: 1, 3: 2, 4: 2}) == {2: ("b", "c")}


def on_machines(path: Path, names: dict[int, str]) -> ExperimentFolder:
    """An experiment whose blocks ran on these machines; the second has another processor."""
    folder = make(path, Shape(effects={"A": 1.0, "B": 1.1}, blocks=4))
    folder.renew(replace(folder.design, target=TargetTable(addresses=sorted(set(names.values())))))
    facts = {
        name: Facts(f"hash-{name[-1]}", facts_of(Shape(cores=4 + i)))
        for i, name in enumerate(sorted(set(names.values())))
    }
    for record in folder.trials():
        name = names[record.block]
        folder.save_facts(facts[name])
        own = replace(record, machine=name, facts_hash=facts[name].hash)
        (folder.trial_path(record.number) / "trial.json").write_text(json.dumps(asdict(own)))
    return ExperimentFolder.open(path)


def test_a_report_names_the_machines(tmp_path: Path) -> None:
    folder = on_machines(tmp_path / "e", {1: "root@a", 2: "root@b", 3: "root@a", 4: "root@b"})
    folder.set_aside(1)
    text = printed(terminal.render(report.of(folder)), width=400)
    assert "2 machines, each block on one of them: their baselines differ by up to" in text
    assert "root@a and root@b differ: CPUs online: 4 / 5" in text
    assert "in set-aside/ and not analysed: 1 trial" in text
    content = jsonform.render(report.of(folder))["machines"]
    assert [one["machine"] for one in content["machines"]] == ["root@a", "root@b"]
    assert content["set_aside"] == 1
    page = report.write(report.of(folder), folder).read_text()
    assert "2 machines, each block on one of them" in page


def test_a_report_of_one_machine_says_nothing_of_machines(tmp_path: Path) -> None:
    folder = make(tmp_path / "e", Shape(effects={"A": 1.0, "B": 1.1}, blocks=3))
    assert "machines, each block" not in printed(terminal.render(report.of(folder)), width=400)
    assert jsonform.render(report.of(folder))["machines"] is None


def test_trials_of_a_block_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    folder = on_machines(tmp_path / "e", {1: "root@a", 2: "root@b", 3: "root@a", 4: "root@b"})
    first = folder.trials()[0]
    path = folder.trial_path(first.number) / "trial.json"
    path.write_text(json.dumps(asdict(replace(first, machine="root@b"))))
    analysis = analyse_experiment(folder)
    assert set(analysis.excluded) == {r.number for r in folder.trials() if r.block == first.block}
    assert "its block was measured on root@a and root@b" in analysis.excluded[first.number]
    assert analysis.effects[0].blocks == 3


def test_a_record_of_before_there_were_machines_is_read(tmp_path: Path) -> None:
    folder = make(tmp_path / "e", Shape(effects={"A": 1.0, "B": 1.1}, blocks=1))
    path = folder.trial_path(1) / "trial.json"
    content = json.loads(path.read_text())
    del content["machine"]
    path.write_text(json.dumps(content))
    assert folder.trials()[0].machine == ""
