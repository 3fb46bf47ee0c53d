"""What `size full` and `size merge` predicted is kept, and measured once later data of the same source tells."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace.capacity import capacity, catalogue, foretold, full, predictions, table
from headrace.capacity.commands.size import size_app
from headrace.capacity.cost import Growth
from headrace.capacity.history import History, peaks_of
from headrace.capacity.model import Resource
from headrace.capacity.plan import Asked, plan
from headrace.history.archive.files import DAY_S, HOUR_S
from tests.demands import written
from tests.unit.test_size_full import DAY, one_host

#: The knee of 4 cores is at 3.33.
FOUR = 4.0


def watched(days: int, *, steps: float = 0.05, jump: float = 0.0, gap: range = range(0)) -> History:
    """1 core, and ``steps`` more each day; ``jump`` more after the 20th; nothing is known of days in the gap."""
    used = np.repeat([1.0 + steps * day + (jump if day >= 20 else 0.0) for day in range(days)], 24)
    for day in gap:
        used[24 * day : 24 * day + 24] = np.nan
    cpu = {Resource.CPU: peaks_of(used, DAY * DAY_S, HOUR_S)}
    return one_host({Resource.CPU: used.tolist()}, peaks=cpu)


def run(history: History, cores: float = FOUR) -> None:
    host = full.outlook(history, capacity.known(history.host, {Resource.CPU: cores}))
    foretold.of_full([host], [history], "here")


def test_a_date_is_kept_once_and_measured_when_it_came() -> None:
    """(3.33 - 1) / 0.05 is day 47: 27 days after the first history's end."""
    run(watched(20))
    run(watched(20))
    run(watched(25))
    [kept] = predictions.every()
    assert kept.prediction.quantity == foretold.DATE
    assert kept.prediction.interval.estimate == pytest.approx(27.7, abs=1)
    assert kept.measured is None
    run(watched(60))
    [kept] = predictions.every()
    assert kept.measured == pytest.approx(27, abs=1)
    [found] = predictions.calibration([kept])
    assert (found.made, found.tried, found.inside) == (1, 1, 1)


def test_what_is_predicted_of_many_hosts_is_synced_to_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand hosts took a sync each, and each read the whole file before."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    for days in (20, 60):
        one = watched(days)
        histories = [replace(one, demand=replace(one.demand, host=f"db{i}")) for i in range(5)]
        hosts = [full.outlook(h, capacity.known(h.host, {Resource.CPU: FOUR})) for h in histories]
        foretold.of_full(hosts, histories, "here")
    assert len(synced) == 2
    assert len(predictions.every()) == 5
    assert all(each.measured is not None for each in predictions.every())


def test_a_date_that_passed_is_missed_and_another_knee_says_nothing() -> None:
    run(watched(20))
    run(watched(90, jump=-2.0), cores=8.0)
    assert {each.measured for each in predictions.every()} == {None}
    run(watched(90, jump=-0.5, steps=0.01))
    [missed] = [each for each in predictions.every() if each.measured is not None]
    assert missed.measured is not None
    assert missed.is_inside is False


def test_what_may_have_come_in_a_gap_is_not_measured() -> None:
    run(watched(20))
    run(watched(60, gap=range(21, 58)))
    assert predictions.every()[0].measured is None


def test_the_joint_peak_of_a_plan_is_measured_from_the_days_that_it_was_for(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    cpu = {f"db{i}": 2 + random.uniform(0, 1, 48 * 60) for i in range(4)}
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("name,cpu,cpu_knee,price\nbig,18,0.8,500\n")

    def planned(days: int) -> None:
        path = written(tmp_path / "d.csv", {name: values[: 48 * days] for name, values in cpu.items()})
        demands = table.read(path)
        asked = Asked(seconds=1.0, exact=False, growth=Growth(), ahead_days=14)
        foretold.of_merge(plan(demands, catalogue.read(hosts), asked), demands, "here")

    planned(20)
    planned(25)
    first = predictions.every()
    assert first
    assert {each.measured for each in first} == {None}
    planned(40)
    found = {each.id: each for each in predictions.every() if each.id == first[0].id}
    for each in found.values():
        joint = np.sum([cpu[name][48 * 20 : 48 * 34] for name in each.plan], axis=0).reshape(14, 48)
        assert each.measured == pytest.approx(np.quantile(joint, 0.99, axis=1, method="higher").max())
        assert each.is_inside
    # The next plan's days are still to come.
    assert any(each.measured is None for each in predictions.every())


def test_commands_keep_them_and_a_report_does_not_fail_for_them(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("name,cpu,cpu_knee,price\nbig,18,0.8,500\n")
    path = written(tmp_path / "d.csv", {"db1": np.full(48 * 20, 2.0)})
    words = ["merge", str(path), "-c", str(hosts), "--budget", "1s"]
    assert CliRunner().invoke(size_app, words).exit_code == 0
    [kept] = predictions.every()
    assert kept.about["source"] == str(path.resolve())
    ran = CliRunner().invoke(size_app, ["predictions", "--json"])
    assert [each["quantity"] for each in json.loads(ran.stdout)["calibration"]] == [foretold.PEAK]
    shutil.rmtree(predictions.path().parent)
    predictions.path().mkdir(parents=True)
    ran = CliRunner().invoke(size_app, words)
    assert ran.exit_code == 0
    assert "predictions are not kept" in ran.output


def test_a_date_is_kept_again_after_it_was_measured() -> None:
    run(watched(20))
    grown = watched(60)
    run(grown)
    run(replace(grown), cores=8.0)
    assert [each.measured is None for each in predictions.every()] == [False, True]
