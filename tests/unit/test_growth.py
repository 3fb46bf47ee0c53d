"""What grew over a long trial: trends with intervals, and the section of the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from headrace.base.errors import PlanError
from headrace.experiment import kinds, report
from headrace.experiment import plan as plans
from headrace.experiment.kinds.soak import soaked
from headrace.experiment.stats import growth
from headrace.experiment.store import ExperimentFolder
from headrace.show import jsonform
from tests import synthetic

SECONDS = np.arange(600.0) + 0.5


def batches(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return growth.batch_means(SECONDS, values, 600.0)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_noise_that_resembles_itself_is_no_trend(correlation: float) -> None:
    generator = np.random.default_rng(3)
    noise = generator.standard_normal((600, 1100))
    series = lfilter([1], [1, -correlation], noise, axis=1)[:, 500:]
    found = [growth.trend(batches(values), 0.05) for values in series]
    assert np.mean([each is not None and each.shows for each in found]) < 0.08


def test_what_rises_and_falls_again_is_no_trend() -> None:
    for period_s in (60, 120, 200):
        for phase in np.linspace(0, 1, 7):
            found = growth.trend(batches((SECONDS / period_s + phase) % 1), 0.05)
            assert found is not None
            assert not found.shows, (period_s, phase)


def test_a_trend_is_found_with_its_size() -> None:
    noise = np.random.default_rng(4).normal(0, 2, 600)
    found = growth.trend(batches(100 + SECONDS / 600 * 8 + noise), 0.01)
    assert found is not None
    assert found.shows
    assert found.mean == pytest.approx(104, abs=0.3)
    assert found.change.estimate == pytest.approx(8, abs=0.8)


def test_a_reserve_that_falls_is_used_up_some_time() -> None:
    found = growth.trend(batches(1000 - SECONDS / 6), 0.05)
    assert found is not None
    left = found.left_s(900, 600)
    assert left is not None
    assert left.estimate == pytest.approx(5400, rel=0.01)
    rising = growth.trend(batches(1000 + SECONDS / 6), 0.05)
    assert rising is not None
    assert rising.left_s(900, 600) is None


def test_a_part_without_a_value_has_no_trend() -> None:
    values = np.where((SECONDS > 100) & (SECONDS < 160), np.nan, SECONDS)
    assert growth.trend(batches(values), 0.05) is None


def test_a_value_that_never_varies_has_no_trend() -> None:
    found = growth.trend(batches(np.full(600, 8e9)), 0.05)
    assert found is not None
    assert not found.shows


def test_a_leak_is_said_in_the_report(tmp_path: Path) -> None:
    shape = synthetic.Shape({"STOCK": 1.0, "ALL": 1.0}, blocks=1, seconds=660, leak_bytes_s=300_000.0)
    page = report.of(synthetic.make(tmp_path / "e", shape))
    rows = {(row["trial"], row["measure"]): row for row in jsonform.render(page)["growth"]}
    memory = rows[1, "memory of 812/mariadbd"]
    assert memory["shows"]
    assert memory["change"]["estimate"] == pytest.approx(660 * 300_000, rel=0.02)
    assert rows[1, "room on /srv"]["change"]["high"] < 0
    assert not rows[1, "memory available"]["shows"]
    section = next(each for each in page.sections if each.id == "growth")
    assert "memory of 812/mariadbd (trial 1)" in str(section.brief)
    assert "used up in" in str(list(section.parts()))  # type: ignore[operator]


def test_a_short_trial_has_no_such_section(tmp_path: Path) -> None:
    shape = synthetic.Shape({"STOCK": 1.0, "ALL": 1.0}, blocks=1, leak_bytes_s=300_000.0)
    page = report.of(synthetic.make(tmp_path / "e", shape))
    assert jsonform.render(page)["growth"] == []


def soak_of(path: Path, seconds: int, leak_bytes_s: float) -> dict[str, Any]:
    folder = synthetic.make(
        path, synthetic.Shape({"STOCK": 1.0}, blocks=1, seconds=seconds, leak_bytes_s=leak_bytes_s)
    )
    folder = ExperimentFolder(folder.path, replace(folder.design, experiment="soak"))
    return jsonform.render(report.of(folder))


def test_a_soaks_first_sentence_is_what_grew(tmp_path: Path) -> None:
    said = soak_of(tmp_path / "leak", 660, 3e6)["headline"]
    assert said.startswith("Over 11 min: memory of 812/mariadbd (trial 1) grows by 1.84 GiB (")
    assert "room on /srv (trial 1) falls by" in said
    assert "used up in" in said
    assert (
        soak_of(tmp_path / "none", 660, 1e-9)["headline"] == "Nothing is shown to grow or fall over 11 min."
    )
    assert "nothing is known" in soak_of(tmp_path / "short", 60, 3e6)["headline"]


PLAN = """
name = "soak"
[design]
kind = "factorial"
baseline = "a"
[workload]
kind = "oltp"
seconds = 10
[factors.f.levels]
a = { "server.innodb_io_capacity" = 200 }
b = { "server.innodb_io_capacity" = 2000 }
"""


def test_a_soak_runs_the_baseline_alone(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    file = plans.load(path)
    design = kinds.build(soaked(file.plan, 43200, file.place), place=file.place)
    assert design.experiment == "soak"
    assert [(trial.treatment, trial.block) for trial in design.trials] == [("a", 1)]
    assert design.workload.seconds == 43200
    assert design.hash != kinds.build(file.plan, place=file.place).hash
    with pytest.raises(PlanError, match="shorter than 10 minutes"):
        soaked(file.plan, 300, file.place)
    path.write_text(PLAN.replace('"factorial"', '"switchback"'))
    with pytest.raises(PlanError, match="this is a switchback"):
        soaked(plans.load(path).plan, 43200, file.place)
