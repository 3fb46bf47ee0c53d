"""A tuning from its plan to its report, over a laboratory that measures nothing: see ``test_loops``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace import cli
from headrace.base.errors import NothingMeasured, PlanError
from headrace.base.model import Treatment, TrialState
from headrace.cli.shell import app
from headrace.experiment import labs, tune
from headrace.experiment.kinds import search
from headrace.experiment.plan import Settings, size_in_bytes
from headrace.experiment.store import ExperimentFolder
from tests import fake_lab
from tests.fake_lab import FakeHost, Killed

pytest.importorskip("optuna")
cli.load("tune")
cli.load("run")

PLAN = """
name = "shop"
[workload]
kind = "sysbench-oltp"
script = "oltp_read_write"
threads = 4
seconds = 10
warmup_s = 2
[tune]
trials = 8
seed = 5
confirm = 1
blocks = 3
objective = "throughput"
[tune.knobs]
pool = { knob = "server.innodb_buffer_pool_size", low = "64M", high = "4G", start = "128M" }
spin = { knob = "server.innodb_sync_spin_loops", low = 0, high = 100, start = 30 }
"""


def speed(treatment: Treatment) -> float:
    """A server that a larger buffer pool makes faster, and nothing else."""
    pool: Any = treatment.settings.get("server.innodb_buffer_pool_size", "128M")
    size = size_in_bytes(pool) if isinstance(pool, str) else float(pool)
    return 1000.0 * float((size / (128 << 20)) ** 0.3)


Make = Callable[[str], "Tuning"]


class Tuning:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.host = FakeHost(speed)
        self.plan = folder / "plan.toml"
        self.plan.write_text(PLAN)
        self.output = folder / "out"

        async def is_root(_: object) -> bool:
            return True

        async def advice(_bench: object, _table: object) -> list[Settings]:
            return self.advice

        #: What the rules suggest, as one starting point.
        self.advice: list[Settings] = []
        patch.setattr(tune, "_advice", advice)
        patch.setattr(labs, "open_laboratory", self.host.open)
        patch.setattr(labs, "is_root", is_root)

    def run(self, *more: str) -> Result:
        advised = [] if self.advice else ["--no-advise"]
        return CliRunner().invoke(app, ["tune", str(self.plan), "-o", str(self.output), *advised, *more])

    def sound(self, *more: str) -> dict[str, Any]:
        answer = self.run(*more)
        assert answer.exit_code == 0, (answer.output, answer.exception)
        found = json.loads((self.output / "report.json").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def search(self) -> ExperimentFolder:
        return ExperimentFolder.open(self.output / "search")

    def points(self) -> list[tuple[int, str, Any]]:
        points = search.points_of(self.search)
        return [(r.number, r.state.value, points[r.number]) for r in self.search.trials()]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda name: Tuning(tmp_path / name, monkeypatch)


def test_the_best_of_the_search_is_confirmed_and_reported(make: Make) -> None:
    tuning = make("a")
    report = tuning.sound()
    assert [number for number, *_ in tuning.points()] == list(range(1, 9))
    assert all(state == "complete" for _, state, _ in tuning.points())
    (best, *_) = report["confirmed"]
    pool = best["settings"]["server.innodb_buffer_pool_size"]
    assert (size_in_bytes(pool) if isinstance(pool, str) else pool) > 256 << 20
    assert "better" in json.dumps(best["effects"])
    before = list(tuning.host.measured)
    assert tuning.sound() == report
    assert tuning.host.measured == before, "the same command again measures nothing"


@pytest.mark.parametrize("number", [1, 4, 8])
def test_killed_in_a_point_it_goes_on_with_the_same_points(make: Make, number: int) -> None:
    whole = make("whole")
    whole.sound()
    killed = make("killed")
    killed.host.fates[number] = ["kill"]
    with pytest.raises(Killed):
        raise killed.run().exception or AssertionError("it was not killed")
    killed.sound()
    assert killed.points() == whole.points()


def test_a_disturbed_point_is_measured_again_before_the_next_is_proposed(make: Make) -> None:
    tuning = make("a")
    tuning.host.fates[3] = ["disturb"]
    tuning.sound()
    assert tuning.host.measured[:5] == [1, 2, 3, 3, 4]
    record = tuning.search.trial(3)
    assert record is not None
    assert record.earlier == [f"invalid: {fake_lab.DISTURBED}"]


def test_a_point_that_fails_is_a_bad_one_and_retry_measures_it_again(make: Make) -> None:
    tuning = make("a")
    tuning.host.fates[4] = ["fail"]
    tuning.sound()
    states = [state for _, state, _ in tuning.points()]
    assert states.count("failed") == 1
    asked = tuning.points()[3][2]
    tuning.sound("--retry")
    assert tuning.points()[3] == (4, "complete", asked)


def test_where_no_point_can_be_measured_it_ends_with_the_reason(make: Make) -> None:
    tuning = make("a")
    tuning.host.fates = {number: ["fail"] for number in range(1, 9)}
    cause = tuning.run().exception
    assert isinstance(cause, NothingMeasured)
    assert fake_lab.BROKEN in str(cause)
    assert all(r.state is TrialState.FAILED for r in tuning.search.trials())


def test_its_time_ends_the_search_and_it_can_go_on_with_more(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = make("a")
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", _hurried(tuning))
        tuning.sound("--budget", "1m")
    assert len(tuning.points()) == 3
    tuning.sound("--budget", "1h")
    assert len(tuning.points()) == 8
    # Other points are best now; the earlier confirmation is kept.
    assert (tuning.output / "confirm").exists()
    assert (tuning.output / "confirm-2").exists()


SPIN: Settings = {"server.innodb_sync_spin_loops": 60}


def test_the_advice_alone_is_confirmed_even_if_its_one_trial_looked_poor(make: Make) -> None:
    tuning = make("a")
    tuning.advice = [SPIN]
    report = tuning.sound()
    assert report["advice"] == [SPIN]
    confirmed = {each["name"]: each["settings"] for each in report["confirmed"]}
    assert confirmed["ADVICE"] == SPIN
    best = next(settings for name, settings in confirmed.items() if name.startswith("P"))
    assert best != SPIN
    verdicts = {each["name"]: each["effects"][0]["verdict"] for each in report["confirmed"]}
    assert verdicts["ADVICE"] != "better"
    before = list(tuning.host.measured)
    assert tuning.sound() == report
    assert tuning.host.measured == before


def test_its_verdict_is_told(make: Make, tmp_path: Path) -> None:
    tuning = make("a")
    tuning.sound("--tell", f"markdown:{tmp_path / 'said.md'}", "--tell", f"junit:{tmp_path / 'said.xml'}")
    said = (tmp_path / "said.md").read_text()
    assert "headrace tune: shop" in said
    assert "**better.**" in said
    assert "<testsuite" in (tmp_path / "said.xml").read_text()


def test_json_and_markdown_on_one_output_are_refused_before_the_work(make: Make) -> None:
    tuning = make("a")
    answer = tuning.run("--json", "--tell", "markdown:-")
    assert answer.exit_code == 2
    assert "would both write to standard output" in answer.output
    assert tuning.host.measured == []
    assert tuning.run("--tell", "markdown:-").exit_code == 0


def test_a_candidate_that_is_worse_is_no_regression(make: Make) -> None:
    tuning = make("a")
    tuning.advice = [SPIN]
    tuning.host.speeds = lambda treatment: 1000.0 if not treatment.settings else 500.0
    report = tuning.sound()
    assert report["confirmed"][0]["effects"][0]["verdict"] == "worse"
    assert report["notice"]["conclusion"] == "nothing found"


def test_the_advice_is_confirmed_where_no_point_looked_better(make: Make) -> None:
    tuning = make("a")
    tuning.advice = [SPIN]
    tuning.host.speeds = lambda treatment: 1000.0 if not treatment.settings else 900.0
    assert [each["name"] for each in tuning.sound()["confirmed"]] == ["ADVICE"]


def test_advice_that_is_the_best_point_is_confirmed_once(make: Make) -> None:
    tuning = make("a")
    tuning.advice = [{"server.innodb_buffer_pool_size": "4G"}]
    report = tuning.sound()
    assert report["confirmed"][0]["name"] == "P002"
    assert "ADVICE" not in [each["name"] for each in report["confirmed"]]


def test_a_point_that_breaks_a_constraint_where_it_is_confirmed_is_not_the_result(make: Make) -> None:
    """In its one trial it held it; such luck used to be the result."""
    tuning = make("a")
    tuning.plan.write_text(PLAN.replace("confirm = 1\n", 'confirm = 1\nconstraints = ["p99=12ms"]\n'))
    # The machine is slower once the search is over, with any settings.
    tuning.host.speeds = lambda treatment: speed(treatment) * (1.0 if len(tuning.host.measured) <= 8 else 0.4)
    report = tuning.sound()
    best = next(each for each in report["confirmed"] if each["name"].startswith("P"))
    assert best["broken"] == ["p99=12ms"]
    assert next(e["verdict"] for e in best["effects"] if e["response"] == "throughput") == "better"
    assert report["winner"] is None
    assert report["notice"]["conclusion"] != "better"
    assert "within the constraints" in report["headline"]
    said = " ".join(tuning.run().output.split())
    assert f"{best['name']} breaks p99=12ms, on average over its trials in the confirmation." in said


def test_a_point_that_fails_where_it_is_confirmed_is_not_the_result(make: Make) -> None:
    """The server started in its one trial of the search; what is left of the confirmation are its good trials."""
    first, tuning = make("a"), make("b")
    for each in (first, tuning):
        each.plan.write_text(PLAN.replace("blocks = 3", "blocks = 5"))
    best = first.sound()["winner"]["name"]
    confirmation = ExperimentFolder.open(first.output / "confirm").trials()
    number = next(r.number for r in confirmation if r.treatment == best and r.block == 2)
    tuning.host.fates[number] = ["", "fail"] if number <= 8 else ["fail"]
    report = tuning.sound()
    found = next(each for each in report["confirmed"] if each["name"] == best)
    assert next(e["verdict"] for e in found["effects"] if e["response"] == "throughput") == "better"
    assert found["failed"] == 1
    assert (report["winner"] or {"name": ""})["name"] != best
    assert f"{best} failed in 1 of 5 trials of the confirmation." in " ".join(tuning.run().output.split())


def test_advice_with_which_the_server_did_not_start_is_not_confirmed(make: Make) -> None:
    tuning = make("a")
    tuning.advice = [SPIN]
    tuning.host.fates[2] = ["fail"]
    assert "ADVICE" not in [each["name"] for each in tuning.sound()["confirmed"]]


def _hurried(tuning: Tuning) -> Callable[[], float]:
    """A clock that goes on by 25 seconds a trial."""
    return lambda: 1000.0 + 25 * len(tuning.host.measured)


def test_run_takes_a_plan_to_tune_and_refuses_options_that_it_has_no_use_for(make: Make) -> None:
    tuning = make("a")
    words = ["run", str(tuning.plan), "-o", str(tuning.output)]
    cause = CliRunner().invoke(app, [*words, "--blocks", "+2"]).exception
    assert isinstance(cause, PlanError)
    assert "a search has no" in cause.message
    assert not tuning.output.exists()
    answer = CliRunner().invoke(app, [*words, "--budget", "1h"])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    twin = make("b")
    twin.sound("--budget", "1h")
    assert tuning.points() == twin.points()
