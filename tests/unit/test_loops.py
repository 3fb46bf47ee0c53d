"""Every kind of experiment, from the command line to its report, over a laboratory that measures nothing.

Only ``labs.open_laboratory`` and ``labs.is_root`` are replaced: the commands, the loop, the folder, the analysis
and the report are those that a real machine would have.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace import cli
from headrace.base.errors import Busy, HeadraceError, NothingMeasured, TargetError
from headrace.base.model import TrialState
from headrace.cli.shell import app
from headrace.experiment import block, labs, pool
from headrace.experiment.block import Seen
from headrace.experiment.runner import exclusive
from headrace.experiment.stats.study import compare_experiments, points_of
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.store import ExperimentFolder, TrialDraft, TrialRecord
from headrace.host.arrow import TrialData
from tests import fake_lab
from tests.fake_lab import FakeHost, Killed, by_name, scaling
from tests.folders import TESTS

cli.load("run")

HEAD = """
name = "{name}"
[workload]
kind = "sysbench-oltp"
script = "oltp_read_write"
threads = 4
seconds = 10
warmup_s = 2
"""

SYSBENCH = """kind = "sysbench-oltp"
script = "oltp_read_write"
threads = 4"""

DRIVEN = """kind = "oltp"
script = "read_write"
connections = 4"""

LADDER = """
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = 3
seed = 3
[design.rungs]
STOCK = []
POOL = ["pool"]
ALL = ["pool", "log"]
[bundles.pool]
"server.innodb_buffer_pool_size" = "1G"
[bundles.log]
"server.innodb_log_file_size" = "512M"
"""

FACTOR = """
[factors.capacity]
knob = "server.innodb_io_capacity"
levels = [100, 200, 400]
"""

DESIGN = """
[design]
kind = "{kind}"
baseline = {{ capacity = "100" }}
blocks = {blocks}
seed = 3
{more}
"""

SWEEP = """
[sweep]
knob = "workload.threads"
max = 32
passes = 2
seed = 2
objective = ["p99=100ms"]
"""


def plan_of(kind: str) -> str:
    """The plan of an experiment of this kind, of few and short trials."""
    head = HEAD.replace("{name}", kind)
    if kind == "ladder":
        return head + LADDER
    if kind == "sweep":
        return head.replace("threads = 4\n", "") + SWEEP
    if kind == "pool":
        target = '[target]\naddresses = ["root@a", "root@b"]\n'
        return head + target + DESIGN.format(kind="factorial", blocks=4, more="") + FACTOR
    if kind == "switchback":
        head = head.replace(SYSBENCH, DRIVEN)
        return head + DESIGN.format(kind=kind, blocks=8, more="blocks_per_start = 4") + FACTOR
    more = "duet = true" if kind == "duet" else ""
    blocks = 6 if kind == "race" else 2
    named = kind if kind == "race" else "factorial"
    return head + DESIGN.format(kind=named, blocks=blocks, more=more) + FACTOR


SPEEDS = {
    "ladder": by_name(STOCK=1000, POOL=2000, ALL=2600),
    "factorial": by_name(**{"100": 1000, "200": 1500, "400": 2000}),
    "race": by_name(**{"100": 1000, "200": 1500, "400": 2000}),
    "duet": by_name(**{"100": 1000, "200": 1500, "400": 2000}),
    "pool": by_name(**{"100": 1000, "200": 1500, "400": 2000}),
    "sweep": scaling("workload.threads", 800),
    "switchback": by_name(**{"100": 1000, "200": 1500, "400": 2000}),
}
KINDS = tuple(SPEEDS)

#: Turns after one start of the switchback, which are measured together.
TOGETHER = 16

#: Of a pool: nobody waits for anybody here.
PATIENCE = pool.Patience(0.001, 1, 3, 0)

#: What the terminal shows of each kind.
GOLDEN = TESTS / "cases" / "terminal"


class Bench:
    """A plan, its host, and the command that runs it."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self.host = FakeHost(SPEEDS[kind])
        self.plan = folder / "plan.toml"
        self.plan.write_text(plan_of(kind))
        self.output = folder / "out"

        async def is_root(_: object) -> bool:
            return self.host.is_root

        async def look(_: object, address: str, **__: object) -> Seen:
            return Seen(self.host.facts, True, f"boot of {address}")

        monkeypatch.setattr(labs, "open_laboratory", self.host.open)
        monkeypatch.setattr(labs, "is_root", is_root)
        monkeypatch.setattr(block, "look", look)
        monkeypatch.setattr(pool, "Patience", lambda: PATIENCE)

    def run(self, *more: str) -> Result:
        return CliRunner().invoke(app, ["run", str(self.plan), "-o", str(self.output), *more])

    def sound(self, *more: str) -> dict[str, Any]:
        """``report.json`` after a run that must succeed."""
        answer = self.run(*more)
        assert answer.exit_code == 0, (answer.output, answer.exception)
        found = json.loads((self.output / "report.json").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def folder(self) -> ExperimentFolder:
        return ExperimentFolder.open(self.output)

    def trials(self) -> list[tuple[int, int, str, str]]:
        return [(r.number, r.block, r.treatment, r.state.value) for r in self.folder.trials()]


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(request.param, tmp_path, monkeypatch)


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", kinds, indirect=True)


#: What each kind concludes of its synthetic truth, in its headline.
SAID = {
    "ladder": "ALL",
    "factorial": "400",
    "race": "400",
    "duet": "400",
    "pool": "400",
    "sweep": "8",
    "switchback": "400",
}


def test_from_a_plan_to_its_report(bench: Bench) -> None:
    answer = bench.run()
    assert answer.exit_code == 0, (answer.output, answer.exception)
    folder = bench.folder
    assert all(r.state is TrialState.COMPLETE for r in folder.trials())
    assert bench.host.measured == [r.number for r in folder.trials()] or bench.kind == "pool"
    assert len(set(bench.host.measured)) == len(bench.host.measured)
    report = json.loads((folder.path / "report.json").read_text())
    assert report["experiment"]["name"] == bench.kind
    headlines = [report.get("headline", ""), *(r.get("headline", "") for r in report.get("races", ()))]
    assert SAID[bench.kind] in " ".join(headlines)
    page = (folder.path / "report.html").read_text()
    assert f"<title>{bench.kind}" in page
    golden = GOLDEN / f"{bench.kind}.txt"
    if "HEADRACE_TESTS_WRITE" in os.environ:
        golden.write_text(answer.stdout)
    assert answer.stdout == golden.read_text(), "if this is right, run it with HEADRACE_TESTS_WRITE=1"
    # Again: nothing is left to measure, and the same is said.
    before = len(bench.host.measured)
    assert bench.run().exit_code == 0
    assert len(bench.host.measured) == before
    assert json.loads((folder.path / "report.json").read_text()) == report


@pytest.mark.parametrize(
    "at", ["middle", *(pytest.param(place, marks=pytest.mark.thorough) for place in ("first", "last"))]
)
def test_killed_in_a_trial_and_run_again_it_is_the_same_experiment(
    bench: Bench, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trial is lost, and it alone is measured again; what is decided on the way is decided the same."""
    bench.sound()
    whole = bench.trials()
    order = [number for number, *_ in whole]
    number = order[{"first": 0, "middle": len(order) // 2, "last": -1}[at]]
    (tmp_path / "again").mkdir()
    again = Bench(bench.kind, tmp_path / "again", monkeypatch)
    again.host.fates[number] = ["kill"]
    with pytest.raises((Killed, BaseExceptionGroup)):
        raise again.run().exception or AssertionError("it was not killed")
    ran = list(again.host.measured)
    assert number not in {r.number for r in again.folder.trials()}
    again.sound()
    assert again.trials() == whole
    repeated = [n for n, times in Counter(again.host.measured).items() if times > 1]
    # The other side of a pair, and in a pool what ran at the same moment, may be lost with it.
    assert number in repeated
    assert len(repeated) <= (
        TOGETHER if bench.kind == "switchback" else 2 if bench.kind in ("duet", "pool") else 1
    )
    assert ran == again.host.measured[: len(ran)]


def test_killed_between_two_trials_and_run_again_it_is_the_same_experiment(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed is not measured again, but for the first side of a pair whose second is not there."""
    bench.sound()
    whole = bench.trials()
    number = whole[len(whole) // 2][0]
    (tmp_path / "again").mkdir()
    again = Bench(bench.kind, tmp_path / "again", monkeypatch)
    with monkeypatch.context() as patch:
        kill_after(number, patch)
        with pytest.raises((Killed, BaseExceptionGroup)):
            raise again.run().exception or AssertionError("it was not killed")
    assert number in {r.number for r in again.folder.trials()} or bench.kind == "pool"
    is_half = bench.kind == "duet" and len(again.folder.trials()) % 2 == 1
    again.sound()
    assert again.trials() == whole
    repeated = [n for n, times in Counter(again.host.measured).items() if times > 1]
    if bench.kind != "pool":
        assert len(repeated) == (TOGETHER if bench.kind == "switchback" else 2 if is_half else 0)


def kill_after(number: int, patch: pytest.MonkeyPatch) -> None:
    """As ``kill -9`` the moment that this trial stands on disk."""
    real = TrialDraft.commit

    def commit(draft: TrialDraft, record: TrialRecord, data: TrialData) -> None:
        real(draft, record, data)
        if record.number == number:
            raise Killed

    patch.setattr(TrialDraft, "commit", commit)


@of_kind("ladder", "factorial", "race", "duet")
def test_a_disturbed_trial_is_measured_again_and_says_so(bench: Bench) -> None:
    bench.host.fates[2] = ["disturb"]
    bench.sound()
    record = bench.folder.trial(2)
    assert record is not None
    assert record.state is TrialState.COMPLETE
    assert bench.host.measured.count(2) == 2
    assert record.earlier == [f"invalid: {fake_lab.DISTURBED}"]


@of_kind("ladder", "factorial", "race")
def test_a_disturbed_trial_is_repeated_at_the_end_of_its_block(bench: Bench) -> None:
    first = [t.number for t in _design(bench).trials if t.block == 1]
    bench.host.fates[1] = ["disturb"]
    bench.sound()
    assert bench.host.measured[: len(first) + 2] == [*first, 1, first[-1] + 1]


def test_a_trial_that_is_disturbed_all_the_time_is_left_as_it_is(bench: Bench) -> None:
    bench.host.fates[2] = ["disturb"] * 9
    answer = bench.run()
    assert answer.exit_code == 0, (answer.output, answer.exception)
    record = bench.folder.trial(2)
    assert record is not None
    assert record.state is TrialState.INVALID
    # A sweep measures every level in each pass, a switchback every treatment in each block.
    assert bench.host.measured.count(2) == (1 if bench.kind in ("sweep", "switchback") else 3)


@of_kind("ladder", "factorial", "race", "duet", "pool")
@pytest.mark.parametrize("fates", [{1: ["disturb"], 3: ["kill"]}, {1: ["disturb", "kill"]}])
def test_killed_in_a_block_its_disturbed_trials_are_still_repeated(
    bench: Bench, fates: dict[int, list[str]]
) -> None:
    if 3 not in fates and bench.kind == "pool":
        pytest.skip("there a whole block is over")
    if 3 in fates and bench.kind == "duet":
        pytest.skip("its pair is repeated before the next one runs")
    bench.host.fates = {number: list(each) for number, each in fates.items()}
    with pytest.raises((Killed, BaseExceptionGroup)):
        raise bench.run().exception or AssertionError("it was not killed")
    bench.sound()
    assert all(r.state is TrialState.COMPLETE for r in bench.folder.trials())


@of_kind("ladder")
def test_what_was_left_disturbed_is_not_repeated_with_blocks_that_are_added_later(bench: Bench) -> None:
    """Four repeats are the most of three blocks; with fifteen there would be more."""
    bench.host.fates = {9: ["disturb"] * 3, 10: ["disturb"] * 3, 11: ["disturb"]}
    bench.sound()
    bench.sound("--blocks", "+12")
    states = {number: state for number, _, _, state in bench.trials()}
    assert {number for number, state in states.items() if state == "invalid"} == {9, 10, 11}
    assert len(states) == 60


@of_kind("duet")
def test_a_pair_that_failed_is_not_repeated_after_a_kill(bench: Bench) -> None:
    pairs = [t.number for t in _design(bench).trials if t.block == 2]
    bench.host.fates = {pairs[0]: ["fail"], pairs[1] + 1: ["kill"]}
    with pytest.raises(Killed):
        raise bench.run().exception or AssertionError("it was not killed")
    bench.sound()
    assert bench.host.measured.count(pairs[0]) == 1


def test_retry_measures_what_is_not_complete_and_nothing_else(bench: Bench) -> None:
    last = max(t.number for t in _design(bench).trials)
    number = last if bench.kind not in ("race", "sweep") else 2
    bench.host.fates[number] = ["fail"]
    bench.run()
    before = len(bench.host.measured)
    bench.run()
    assert len(bench.host.measured) == before, "without --retry a failed trial stays one"
    if bench.kind in ("race", "sweep"):
        return  # what follows a failure was decided by it
    bench.sound("--retry")
    extra = bench.host.measured[before:]
    assert number in extra
    assert len(extra) <= {"duet": 2, "switchback": TOGETHER}.get(bench.kind, 1)
    assert all(r.state is TrialState.COMPLETE for r in bench.folder.trials())


@of_kind("race")
def test_retry_does_not_undo_what_a_race_has_decided(bench: Bench) -> None:
    """Later trials became other treatments than those on disk: one ran twice in a block, another never."""
    bench.host.fates[1] = ["fail"]
    whole = bench.sound()
    assert whole["is_over"]
    before = bench.trials()
    assert before[0][3] == "failed"
    assert before[-1][1] > 1
    assert bench.sound("--retry") == whole
    assert bench.trials() == before


@of_kind("race")
def test_retry_measures_the_last_block_of_a_race_again(bench: Bench) -> None:
    """Equals, which no number of the plan's blocks tells apart."""
    bench.host.speeds, bench.host.noise = by_name(), 0.05
    number = len(_design(bench).trials)
    bench.host.fates[number] = ["disturb"] * 3
    bench.sound()
    assert bench.trials()[-1][:1] + bench.trials()[-1][3:] == (number, "invalid")
    bench.sound("--retry")
    assert bench.trials()[-1][:1] + bench.trials()[-1][3:] == (number, "complete")


@of_kind("ladder", "factorial", "duet")
def test_a_baseline_that_fails_in_the_first_block_ends_it(bench: Bench) -> None:
    bench.host.broken = ("STOCK", "100")
    answer = bench.run()
    assert isinstance(answer.exception, NothingMeasured)
    assert len(bench.folder.trials()) < len(bench.folder.design.trials)


@of_kind("race", "sweep")
def test_where_nothing_works_it_ends_with_the_reason(bench: Bench) -> None:
    bench.host.broken = tuple(t.name for t in _design(bench).treatments)
    cause = bench.run().exception
    assert isinstance(cause, NothingMeasured)
    assert fake_lab.BROKEN in str(cause)


@of_kind("ladder", "factorial", "race", "sweep")
def test_a_machine_that_dies_in_a_trial_measures_it_once_more(bench: Bench) -> None:
    bench.host.fates[3] = ["die"]
    bench.sound()
    record = bench.folder.trial(3)
    assert record is not None
    assert record.state is TrialState.COMPLETE
    assert any("the machine died in it at first" in warning for warning in record.warnings)
    assert bench.host.measured.count(3) == 2


@of_kind("ladder", "factorial", "race", "sweep")
def test_a_trial_that_kills_its_machine_twice_is_as_one_that_was_disturbed(bench: Bench) -> None:
    bench.host.fates[3] = ["die", "die"]
    bench.run()
    record = bench.folder.trial(3)
    assert record is not None
    assert any("and again when it was repeated" in why for why in (record.reason, *record.earlier))
    is_repeated = bench.kind != "sweep"
    assert (record.state is TrialState.COMPLETE) == is_repeated


@of_kind("ladder", "race", "sweep")
def test_a_machine_that_dies_in_trial_after_trial_ends_it(bench: Bench) -> None:
    bench.host.fates = {number: ["die"] * 9 for number in range(1, 50)}
    cause = bench.run().exception
    assert isinstance(cause, TargetError)
    assert "3 trials in a row" in cause.message


@of_kind("ladder", "duet", "race", "sweep")
def test_a_changed_plan_needs_another_folder(bench: Bench) -> None:
    bench.sound()
    bench.plan.write_text(bench.plan.read_text().replace("seconds = 10", "seconds = 20"))
    cause = bench.run().exception
    assert isinstance(cause, HeadraceError)
    assert "a different design" in cause.message


@of_kind("ladder")
def test_what_one_process_runs_no_other_one_runs_or_extends(bench: Bench) -> None:
    bench.sound()
    before = list(bench.host.measured)
    with exclusive(bench.output):
        for more in ((), ("--blocks", "+1")):
            cause = bench.run(*more).exception
            assert isinstance(cause, Busy)
            assert f"this experiment is being run by process {os.getpid()}" in cause.message
    assert bench.host.measured == before


def _design(bench: Bench) -> Any:
    from headrace.experiment import kinds
    from headrace.experiment import plan as plans

    return kinds.build(plans.load(bench.plan).plan, place="p")


@of_kind("sweep")
def test_a_sweep_is_compared_by_its_passes_not_by_its_search(bench: Bench) -> None:
    """The search goes up in order, and its last levels are those that happened to be slow."""
    bench.sound()
    folder = bench.folder
    searched = [record.treatment for record in folder.trials() if record.block == SEARCH]
    assert len(searched) > 2
    found = compare_experiments(folder, folder)
    assert {effect.treatment for effect in found.effects} == set(searched)
    assert {effect.blocks for effect in found.effects} == {2}
    assert {len(points_of(folder, name, "throughput").logs) for name in searched} == {2}


@of_kind("switchback")
def test_where_a_treatment_shows_in_the_next_turn_turns_become_longer(bench: Bench) -> None:
    bench.host.lasts_s = 4.0
    found = bench.sound()
    # Each start at its planned length, then all of it again, until nothing shows.
    assert bench.host.lengths[0] == 10.0
    assert bench.host.lengths[-1] > 10.0
    stretch = found["switchback"]["stretch"]
    assert stretch == bench.host.lengths[-1] / 10
    assert all(r.window_end_ns - r.window_start_ns == stretch * 10**10 for r in bench.folder.trials())
    assert len(bench.folder.trials()) == len(_design(bench).trials)
    assert f"{stretch} times as long as planned" in " ".join(found["switchback"]["notes"])
    before = len(bench.host.measured)
    assert bench.sound() == found
    assert len(bench.host.measured) == before


@of_kind("switchback")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('knob = "server.back_log"\nlevels = [4, 8, 16]', "back_log (restart)"),
        ('knob = "server.sort_buffer_size"\nlevels = ["64K", "128K", "256K"]', "only new connections"),
        ('knob = "workload.connections"\nlevels = [1, 2, 4]', "cannot vary the workload"),
    ],
)
def test_what_cannot_be_switched_is_refused_with_the_kind_that_can(
    bench: Bench, line: str, said: str
) -> None:
    text = bench.plan.read_text()
    level = line.split("[")[1].split(",")[0].strip('"')
    old = 'knob = "server.innodb_io_capacity"\nlevels = [100, 200, 400]'
    bench.plan.write_text(text.replace(old, line).replace('capacity = "100"', f'capacity = "{level}"'))
    error = bench.run().exception
    assert isinstance(error, HeadraceError)
    assert said in error.message
    assert 'kind = "factorial"' in (error.hint or "")
    assert not bench.output.exists()


AUTO = """
[design]
kind = "auto"
baseline = { capacity = "100" }
blocks = 2
seed = 3
"""


def _auto(bench: Bench, factor: str = FACTOR) -> None:
    head = HEAD.replace("{name}", "auto").replace(SYSBENCH, DRIVEN)
    bench.plan.write_text(head + AUTO + factor)


@of_kind("switchback")
def test_the_way_that_the_noise_chose_is_frozen(bench: Bench) -> None:
    _auto(bench)
    bench.sound()
    design = bench.folder.design
    assert design.kind == "factorial"
    (chosen,) = (note for note in design.notes if note.startswith("chosen by a minute of noise"))
    way = {"fixed": "restart"}.get(design.experiment, design.experiment)
    assert chosen.startswith(f"chosen by a minute of noise: {way}.")
    assert all(f"{way} " in chosen for way in ("restart", "duet", "switchback"))
    noise = bench.output.with_name("out-noise")
    assert len(ExperimentFolder.open(noise / "restart").trials()) == 4
    before = len(bench.host.measured)
    bench.host.noise = 0.5
    bench.sound()
    assert bench.folder.design == design
    assert len(bench.host.measured) == before


@of_kind("switchback")
def test_a_way_that_the_settings_do_not_allow_is_not_chosen(bench: Bench) -> None:
    _auto(bench, FACTOR.replace("innodb_io_capacity", "back_log"))
    answer = bench.run()
    assert answer.exit_code == 0, (answer.output, answer.exception)
    assert bench.folder.design.experiment in ("duet", "fixed")
    assert "back_log (restart)" in bench.folder.design.notes[0]
