"""Races for real, on a private MariaDB: what waits is dropped. A bench holds one against a full study."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import NothingMeasured
from tests.bench import FIO, Bench
from tests.waiting import until

pytestmark = pytest.mark.needs("root")

#: With a time to wait the server holds commits back, to write a hundred at once: with four connections in vain.
HELD_BACK = """
[workload]
kind = "oltp"
seconds = 1
warmup_s = 0.5
script = "update_index"
table_size = 10000
connections = 4
[base]
"server.log_bin" = true
"server.binlog_commit_wait_count" = 100
"""

#: Two of the servers wait.
PLAN = f"""
name = "race"
[target]
scratch = "{{scratch}}"
[design]
kind = "race"
baseline = "40000"
blocks = 3
equivalence = 0.3
seed = 2
{HELD_BACK}
[factors.wait]
knob = "server.binlog_commit_wait_usec"
levels = [0, 20, 20000, 40000]
"""


def test_a_race_drops_what_waits_and_costs_less_than_a_full_study(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN)
    code, out, said = lab.finish("--json")
    assert code == 0, said
    raced: dict[str, Any] = json.loads(out)
    (race,) = raced["races"]
    left = {s["treatment"] for s in race["standings"] if s["dropped_after"]}
    assert left == {"20000", "40000"}, race
    assert set(race["survivors"]) == {"0", "20"}
    assert "40000" in said
    assert "left" in said

    assert raced["trials"] <= raced["same_trials"]
    assert raced["trials"] <= raced["full_trials"] == 12
    assert raced["seconds"] <= raced["full_seconds"]
    page = (lab.output / "report.html").read_text()
    assert "of the full study" in page
    assert Path(lab.output / "report.json").exists()


def test_a_disturbed_trial_is_measured_again_by_itself(
    bench: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = FIO.replace('kind = "factorial"', 'kind = "race"').replace("blocks = 1", "blocks = 2")
    monkeypatch.setenv("HEADRACE_DISTURBED", "invalid")
    lab = bench(plan)
    process = lab.start()
    # What makes a trial invalid: another program with a core of its own. It is gone before the block ends.
    with subprocess.Popen(["nice", "-n", "-15", sys.executable, "-c", "while True: pass"]) as hog:
        try:
            until(lambda: 1 in lab.trials(), process)
        finally:
            hog.kill()
    _, err = process.communicate(timeout=200)
    # On a busy machine others disturb any trial, repeated ones, too, and use up the repeats.
    assert process.returncode in (0, NothingMeasured.exit_code), err
    trials: dict[int, Any] = lab.trials()
    assert len(trials) == 4
    reasons = [text for trial in trials.values() for text in (*trial["earlier"], trial["reason"])]
    assert any("another program, python" in text for text in reasons), err
    repeated = [trial for trial in trials.values() if trial["earlier"]]
    assert repeated, err
    assert any("repeated; before" in text for text in repeated[0]["warnings"])
    assert "is measured again, 1 of 2 times" in err
    assert sum(p.name.startswith(".") for p in (lab.output / "trials").iterdir()) == 0
