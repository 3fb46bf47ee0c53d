"""The pages of races, imports, tunings and series: what they say, and that nothing in them is read as markup."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.experiment import kinds
from headrace.experiment import plan as plans
from headrace.experiment import race as races
from headrace.model import Role, TrialState
from headrace.report.race import RaceReport
from headrace.store import INTERVALS, LATENCY, SAMPLES, ExperimentFolder, TrialData, TrialRecord, empty_data
from tests import browser, synthetic
from tests.test_report import Outline

NEEDS_BROWSER = pytest.mark.skipif(browser.chromium_path() is None, reason="chromium is not installed")

RACE = """
name = "race"
[design]
kind = "race"
baseline = "100"
blocks = 8
equivalence = 0.03
[workload]
kind = "oltp"
seconds = 10
[factors.capacity]
knob = "server.innodb_io_capacity"
levels = {levels}
"""

SPEEDS = {"STOCK": 1.0, "POOL": 2.1, "POOL+LOG": 2.6, "ALL": 2.63, "NOATIME": 1.02, "SMALL": 0.4}


def race_design(names: Mapping[str, float], title: str) -> dict[str, Any]:
    """A race of as many treatments, renamed: a plan would not take all of these names."""
    levels = [100 + i for i in range(len(names))]
    plan = plans.parse(RACE.format(levels=levels), "race.toml")
    design = kinds.build(plan, place="race.toml").to_json()
    new = dict(zip((t["name"] for t in design["treatments"]), names, strict=True))
    treatments = [{**t, "name": new[t["name"]]} for t in design["treatments"]]
    trials = [{**t, "treatment": new[t["treatment"]]} for t in design["trials"]]
    return {**design, "name": title, "description": title, "treatments": treatments, "trials": trials}


def made_race(path: Path, speeds: Mapping[str, float], title: str, fails: str = "") -> ExperimentFolder:
    """Run a generated race as the runner would: after each trial the judge says what comes next."""
    folder = ExperimentFolder.create(path, "", race_design(speeds, title))
    rng = np.random.default_rng(4)
    while not (found := races.progress_of(folder)).is_over:
        done = {r.number for r in folder.trials()}
        specs = races._trials(found.runners, int(folder.design["seed"]))
        spec = next(t for t in specs if t.number not in done)
        has_failed = spec.treatment == fails
        ops_s = 4000 * speeds[spec.treatment] * math.exp(rng.normal(0, 0.012))
        start_ns = synthetic.START_NS + spec.number * 16_000_000_000
        record = TrialRecord(
            spec.number, spec.block, spec.position, spec.treatment, Role.CANDIDATE,
            TrialState.FAILED if has_failed else TrialState.COMPLETE,
            synthetic.HOSTILE if has_failed else "",
            0 if has_failed else start_ns, 0 if has_failed else start_ns + 10_000_000_000,
            times_ns={"started": start_ns - 10**9, "finished": start_ns + 11 * 10**9},
            warnings=[synthetic.HOSTILE] if spec.number == 2 else [],
        )  # fmt: skip
        folder.begin_trial(spec.number).commit(record, empty_data() if has_failed else measured(ops_s))
    return folder


def measured(ops_s: float) -> TrialData:
    row = {
        "t_s": 0.0, "duration_s": 10.0, "operation": "t", "count": round(ops_s * 10), "errors": 0, "rows": 0,
        "bytes": 0, "min_ns": None, "max_ns": None, "p99_ns": None,
    }  # fmt: skip
    return TrialData(
        pa.Table.from_pylist([row], schema=INTERVALS), LATENCY.empty_table(), SAMPLES.empty_table()
    )


def evil(n: int) -> str:
    return f"{synthetic.HOSTILE} {n}"


def figures(page: str) -> list[dict[str, Any]]:
    return [
        json.loads(m) for m in re.findall(r'<script type="application/json" id="\w+">(.*?)</script>', page)
    ]


def is_safe(page: str) -> None:
    """Nothing hostile is an element, a control character, or markup inside a figure."""
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "alert(1)" in page
    for figure in figures(page):
        assert "<img" not in json.dumps(figure)
    outline = Outline(page)
    assert not [tag for tag, _ in outline.tags if tag == "img"]


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = made_race(tmp_path_factory.mktemp("pages") / "race", SPEEDS, "Six ways")
    return RaceReport(folder).write()


@pytest.fixture(scope="module")
def evil_race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    speeds = {evil(i): 1.0 + i / 3 for i in range(5)}
    folder = made_race(tmp_path_factory.mktemp("pages") / "evil", speeds, evil(9), fails=evil(1))
    return RaceReport(folder).write()


def test_a_race_says_who_stands_who_left_and_what_it_saved(race: Path) -> None:
    page = race.read_text()
    assert race.name == "report.html"
    assert json.loads((race.parent / "report.json").read_text())["races"][0]["leader"] in ("ALL", "POOL+LOG")
    assert "left after block 2, beaten by" in page
    assert "would have been all treatments in all blocks" in page
    ratios, saved = figures(page)
    assert len(ratios["data"][0]["x"]) == 6
    ran, spared = (trace["y"] for trace in saved["data"])
    assert ran[0] == 6
    assert ran[3] < 6
    assert all(a + b == 6 for a, b in zip(ran, spared, strict=True))


def test_a_hostile_race_is_text(evil_race: Path) -> None:
    is_safe(evil_race.read_text())


@NEEDS_BROWSER
@pytest.mark.real
@pytest.mark.parametrize("which", ["race", "evil_race"])
def test_a_browser_draws_it_without_an_error_or_a_request(which: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(which)
    with browser.page() as tab:
        for width, dark in ((1280, False), (400, True)):
            tab.look(width, 900, dark=dark)
            tab.open(path)
            tab.scroll_through()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            undrawn = "[...document.querySelectorAll('.plot')].filter(p => !p.dataset.drawn).length"
            assert tab.evaluate(undrawn) == 0
            assert tab.evaluate("document.querySelectorAll('.plot').length") > 0
        assert tab.seen.errors == []
        assert tab.seen.network == []
