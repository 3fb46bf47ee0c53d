"""Others took much more of the machine from one treatment than from the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from headrace.base.effect import Verdict
from headrace.experiment.stats.estimate import Seen, fit_one
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.store import ExperimentFolder
from tests import synthetic


def experiment(folder: Path, lost: dict[str, float]) -> ExperimentFolder:
    """TUNED is twice as fast; ``lost`` is the share of CPU time that others took from each treatment."""
    found = synthetic.make(folder, synthetic.Shape(effects={"STOCK": 1.0, "TUNED": 2.0}, blocks=5, seconds=5))
    for record in found.trials():
        path = found.trial_path(record.number) / "trial.json"
        content = json.loads(path.read_text())
        content["lost_share"] = lost.get(record.treatment, 0.0)
        path.write_text(json.dumps(content))
    return ExperimentFolder.open(folder)


def test_a_loss_that_one_treatment_alone_has_is_said(tmp_path: Path) -> None:
    said = "Others took 25% of the CPU time from STOCK, but 0% from TUNED."
    assert said in analyse_experiment(experiment(tmp_path / "uneven", {"STOCK": 0.25})).headline
    same = {"STOCK": 0.25, "TUNED": 0.22}
    assert "Others took" not in analyse_experiment(experiment(tmp_path / "even", same)).headline
    assert "Others took" not in analyse_experiment(experiment(tmp_path / "quiet", {})).headline


def uneven(seed: int) -> list[Seen]:
    """Every AS-IS trial was disturbed, by varying amounts; TUNED hardly, and with the opposite slope."""
    rng = np.random.default_rng(seed)
    trials = []
    for block in range(5):
        for name, log, least, most in (
            ("AS-IS", 0.0, 0.2, 0.3), ("AS-IS", 0.0, 0.06, 0.3), ("TUNED", math.log(2), 0.0, 0.06),
        ):  # fmt: skip
            lost = rng.uniform(least, most)
            slope = 1.0 if name == "AS-IS" else -8.0
            trials.append(Seen(name, block, log + slope * math.log1p(-lost) + rng.normal(0, 0.005), lost))
    return trials


@pytest.mark.parametrize("seed", range(20))
def test_a_treatment_keeps_its_trials_if_all_were_disturbed(seed: int) -> None:
    one = fit_one(uneven(seed))
    own = one.to("AS-IS")
    assert np.isfinite(own.estimate).all()
    for code in range(2):
        assert one.fit.used[0][one.fit._codes == code].sum() > 0
    # It claims no more than the truth: how AS-IS would do undisturbed is unknown.
    low = own.estimate[1] - own.half_width(0.025)[1]
    assert not low > math.log(2.2)


def test_a_loss_that_cannot_be_told_from_the_treatment_is_no_estimate(tmp_path: Path) -> None:
    analysis = analyse_experiment(experiment(tmp_path, {"STOCK": 0.25, "TUNED": 0.03}))
    [effect] = [e for e in analysis.effects if e.response == "throughput"]
    assert math.isnan(effect.ratio.estimate)
    assert effect.verdict is Verdict.NOT_ENOUGH_DATA
    assert "Others took 25% of the CPU time from STOCK" in analysis.headline
    assert "nan" not in analysis.headline


@pytest.mark.parametrize("seed", range(12))
def test_neither_estimate_nor_interval_depends_on_the_order_of_treatments(seed: int) -> None:
    """Weights of disturbed trials make the residual matrix asymmetric."""
    rng = np.random.default_rng(seed)
    gains = {"A": 0.0, "B": 0.05, "C": 0.06, "D": 0.04, "E": 0.05}
    trials = []
    for block in range(5):
        for name in "AABCDE":
            lost = float(rng.choice([0.0, 0.0, 0.1, 0.3]))
            log = 0.1 * block + gains[name] + math.log1p(-lost) + rng.normal(0, 0.02)
            trials.append(Seen(name, block, log, lost))

    def found(order: str) -> dict[str, tuple[float, float]]:
        own = fit_one([each for name in order for each in trials if each.treatment == name])
        contrasts = own.to("A")
        widths = contrasts.half_width(0.05 / 8)
        return {
            name: (float(estimate), float(width))
            for name, estimate, width in zip(own.names, contrasts.estimate, widths, strict=True)
        }

    first = found("ABCDE")
    for order in ("EDCBA", "CADBE"):
        for name, pair in found(order).items():
            assert pair == pytest.approx(first[name], rel=1e-6, abs=1e-9)
