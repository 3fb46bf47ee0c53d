"""Sessions: blocks that share a loading of the data are one observation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Role
from headrace.experiment import kinds
from headrace.experiment import plan as plans
from headrace.experiment.stats.compare import effects, of_sessions
from headrace.experiment.stats.observed import seen_of
from headrace.experiment.stats.trials import TrialResponse
from tests.commands import headrace

PLAN = """
name = "sessions"
[workload]
kind = "{kind}"
seconds = 1
warmup_s = 0.5
script = "point_select"
connections = 2
{options}
[design]
kind = "factorial"
baseline = "64M"
{design}
[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["64M", "128M"]
"""


def built(tmp_path: Path, design: str, kind: str = "oltp", options: str = "table_size = 1000"):  # type: ignore[no-untyped-def]
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(design=design, kind=kind, options=options))
    return kinds.build(plans.load(path).plan, place=str(path))


def test_sessions_divide_the_blocks_and_later_blocks_have_their_own(tmp_path: Path) -> None:
    design = built(tmp_path, "blocks = 8\nsessions = 4")
    assert [design.session_of(block) for block in range(1, 11)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert built(tmp_path, "blocks = 8").blocks_per_session == 0
    assert "blocks_per_session" in type(design).from_json(design.to_json(), "x").to_json()


def test_a_design_without_sessions_keeps_its_hash(tmp_path: Path) -> None:
    assert built(tmp_path, "blocks = 8").hash == built(tmp_path, "blocks = 8\nsessions = 1").hash
    assert built(tmp_path, "blocks = 8").hash != built(tmp_path, "blocks = 8\nsessions = 4").hash


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ("blocks = 10\nsessions = 4", "try 12"),
        ("blocks = 8\nsessions = 4\nuntil_decided = true", "until_decided"),
        ("blocks = 8\nsessions = 4\nduet = true", "duet"),
    ],
)
def test_sessions_that_cannot_be_are_refused(tmp_path: Path, design: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        built(tmp_path, design)


def test_a_trial_of_several_blocks_is_one_observation_of_its_session(tmp_path: Path) -> None:
    """Treatments that differ by their loading alone: blocks would often call that a difference."""
    design = built(tmp_path, "blocks = 12\nsessions = 4")
    rng, alarms = np.random.default_rng(3), {True: 0, False: 0}
    for _ in range(200):
        loaded = rng.normal(0, 0.05, (4, 2))
        trials: dict[str, list[TrialResponse]] = {"a": [], "b": []}
        number = 0
        for block in range(1, 13):
            for name, role in (("a", Role.BASELINE), ("a", Role.REPEAT), ("b", Role.CANDIDATE)):
                number += 1
                log = 7 + loaded[design.session_of(block) - 1, int(name == "b")] + rng.normal(0, 0.01)
                trials[name].append(TrialResponse(number, block, name, role, math.exp(log)))
        for is_by_session in alarms:
            own = {n: of_sessions(design, t) if is_by_session else t for n, t in trials.items()}
            (found,), _ = effects("throughput", own, "a", equivalence=0.001)
            alarms[is_by_session] += found.verdict.value in ("better", "worse")
            assert found.blocks == (4 if is_by_session else 12)
    assert alarms[True] <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)
    assert alarms[False] >= 60
    assert len(seen_of("throughput", of_sessions(design, trials["a"]))) == 4


def test_plan_show_says_whose_spread_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(design="blocks = 8", kind="oltp", options="table_size = 1000"))
    assert "nothing was measured" in " ".join(headrace("plan", "show", str(path)).stdout.split())
    assert "nothing was measured" not in headrace("plan", "show", str(path), "--sd", "0.05").stdout
