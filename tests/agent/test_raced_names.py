"""Root beside an account that changes what the names in its own folder mean, as fast as it can."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from headrace.base import door, toml, whole
from headrace.base.errors import HeadraceError
from headrace.base.model import Facts, TrialState
from headrace.base.temporary import temporary_folder
from headrace.experiment.runner import exclusive
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host import snapshot
from headrace.host.arrow import empty_data
from headrace.show.notice import Conclusion, Notice
from headrace.tell import markdown
from headrace.traffic.digests import history, table
from tests.agent.test_pipes import LOG
from tests.programs import agent_path
from tests.racer import SECRET, Hosts, flipping
from tests.rules.hosts import saved
from tests.synthetic import Shape, design_of, make

NOTICE = Notice("run", "shop", Conclusion.BETTER, "faster", id="1")
#: Rounds of each attack; `make torture` makes more.
ROUNDS = int(os.environ.get("HEADRACE_TRUST", "15"))
#: With as many, some are done and some refused.
MANY = 200

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root works in another account's folder")


def hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")


def nothing(place: Path) -> None:
    """The name is new."""


def a_file(place: Path) -> None:
    (place / "x").write_text("name = 'harmless'\n")


def own(name: str) -> Path:
    """A log, or its recording, where nobody else may write."""
    place = Path(tempfile.gettempdir()) / f"headrace-raced-{os.getpid()}"
    if not place.is_dir():
        place.mkdir(0o700)
        atexit.register(shutil.rmtree, place)
        (place / "log").write_text(LOG)
        agent("record", place / "log", "-o", place / "recording")
    return place / name


def a_log(place: Path) -> None:
    (place / "x").write_text(LOG)


def a_digest(place: Path) -> None:
    table.write(table.Rows().table(), place / "x")


def a_hunt(place: Path) -> None:
    snapshot.save(saved(), place / "x")


def a_recording(place: Path) -> None:
    agent("record", own("log"), "-o", place / "x")


def an_experiment(place: Path) -> None:
    make(place / "x", Shape(blocks=1, seconds=2, unfinished=1, effects={"STOCK": 1.0, "MYSQL": 2.0}))
    if place.name == "victim":
        (place / "x" / "plan.toml").write_text(f"# {SECRET}\n")


SHAPE = Shape(blocks=1, seconds=2, effects={"STOCK": 1.0, "MYSQL": 2.0})
RECORD = TrialRecord.of(design_of(SHAPE, "x").trials[0], TrialState.COMPLETE)


def written(path: Path) -> None:
    with whole.whole_file(path, 0o600) as file:
        file.write(b"ours")


def appended(path: Path) -> None:
    with os.fdopen(door.opened_to_write(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), "wb") as file:
        file.write(b"ours")


def truncated(path: Path) -> None:
    os.close(door.opened_to_write(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o644))


def own_folder(path: Path) -> None:
    with temporary_folder(path.parent) as folder:
        (folder / "x").write_text("ours")


def a_trial(path: Path) -> None:
    folder = ExperimentFolder(path, design_of(SHAPE, "x"))
    draft = folder.begin_trial(1)
    (draft.raw / "x").write_text("ours")
    draft.commit(RECORD, empty_data())


def unpacked(path: Path) -> None:
    ExperimentFolder(path, design_of(SHAPE, "x")).unpack_trial(1, {"trials/0001/trial.json": b"{}"})


def locked(path: Path) -> None:
    with exclusive(path):
        pass


def experiment_read(path: Path) -> str:
    folder = ExperimentFolder.open(path)
    with folder.database() as database:
        rows = database.execute("SELECT count(*) FROM intervals").fetchall()
    return f"{folder.plan_text()}{rows}"


def agent(*arguments: str | Path) -> str:
    done = subprocess.run([agent_path(), *arguments], capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise OSError(done.stderr)
    return done.stdout


def of(path: Path) -> ExperimentFolder:
    return ExperimentFolder(path, design_of(SHAPE, "x"))


#: What root does with a name -> what has it before.
WORK: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "a report": (lambda at: whole.replace_whole(at, "ours"), a_file),
    "an output": (lambda at: whole.write_whole(at, "ours", 0o600), a_file),
    "a new output": (lambda at: whole.write_whole(at, "ours"), nothing),
    "a draft": (written, a_file),
    "a continued file": (appended, a_file),
    "a truncated file": (truncated, a_file),
    "a program's output": (lambda at: os.close(whole.new_file(str(at))), a_file),
    "a lock": (lambda at: os.close(whole.lock_file(at)), a_file),
    "folders": (lambda at: whole.make_folder(at / "a" / "b"), nothing),
    "a temporary folder": (own_folder, nothing),
    "a digest": (lambda at: table.write(table.Rows().table(), at), a_file),
    "a review": (lambda at: history.review(at.parent, "c", history.Review("o", "n", "2026-01-01")), nothing),
    "a summary": (lambda at: markdown.opened(str(at))(NOTICE), a_file),
    "a new experiment": (lambda at: ExperimentFolder.create(at, "x", design_of(SHAPE, "x")), nothing),
    "a trial": (a_trial, an_experiment),
    "a trial from elsewhere": (unpacked, an_experiment),
    "a trial set aside": (lambda at: of(at).set_aside(1), an_experiment),
    "a removed trial": (lambda at: of(at).remove_trial(2), an_experiment),
    "removed drafts": (lambda at: of(at).discard_drafts(), an_experiment),
    "facts": (lambda at: of(at).save_facts(Facts("e" * 64, {})), an_experiment),
    "a design": (lambda at: of(at).renew(design_of(SHAPE, "x")), an_experiment),
    "a runner's lock": (locked, an_experiment),
    "a recording": (lambda at: agent("record", own("log"), "-o", at, "--force"), a_file),
    "a recording that goes on": (lambda at: agent("record", own("log"), "-o", at, "--append"), a_recording),
    "a filtered recording": (
        lambda at: agent("recording", "cut", own("recording"), "-o", at, "--force"),
        a_file,
    ),
}

#: What root reads -> what has the name. The answer is that of the quiet folder, also an error.
READS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "a log": (lambda at: agent("digest", at), a_log),
    "a recording": (lambda at: agent("recording", "info", at), a_recording),
    "a spec": (lambda at: agent("drive", "check", at), a_file),
    "a plan": (toml.read, a_file),
    "a list": (whole.read_plain, a_file),
    "a hunt": (lambda at: str(snapshot.load(at).facts), a_hunt),
    "a digest": (lambda at: str(table.read(at)), a_digest),
    "an experiment": (experiment_read, an_experiment),
}


@pytest.mark.parametrize("work", WORK)
def test_nothing_foreign_is_read_written_or_waited_for(tmp_path: Path, work: str) -> None:
    do, make_there = WORK[work]
    hosts = Hosts(tmp_path, make_there, "x")
    before, done, refused = hosts.state(), 0, 0
    signal.signal(signal.SIGALRM, hangs)
    with flipping(hosts.theirs, *hosts.pairs()):
        for _ in range(ROUNDS):
            time.sleep(random.random() / 500)
            signal.alarm(20)
            try:
                said = do(hosts.theirs / "place" / "x")
                done += 1
            except (OSError, HeadraceError, ValueError) as error:
                said = str(error)
                refused += 1
            finally:
                signal.alarm(0)
            assert "$6$" not in (said.decode() if isinstance(said, bytes) else str(said))
            assert hosts.state() == before
    assert hosts.state() == before
    told(work, done, refused)


def answered(read: Callable[[Path], object], path: Path) -> tuple[object, bool]:
    """What it says, and whether it read something."""
    signal.alarm(20)
    try:
        return read(path), True
    except (OSError, HeadraceError, ValueError) as error:
        return str(error), False
    finally:
        signal.alarm(0)


@pytest.mark.parametrize("work", READS)
def test_the_true_content_is_read_or_none(tmp_path: Path, work: str) -> None:
    read, make_there = READS[work]
    hosts = Hosts(tmp_path, make_there, "x")
    path, before, done = hosts.theirs / "place" / "x", hosts.state(), 0
    signal.signal(signal.SIGALRM, hangs)
    true, _ = answered(read, path)
    with flipping(hosts.theirs, *hosts.pairs()):
        for _ in range(ROUNDS):
            time.sleep(random.random() / 500)
            said, is_read = answered(read, path)
            assert "$6$" not in str(said)
            # Of an experiment, which is many files, its owner may take some away.
            assert said == true or not is_read or work == "an experiment"
            done += said == true
    # An experiment is many files.
    assert work == "an experiment" or hosts.state() == before
    told(work, done, ROUNDS - done)


def told(work: str, done: int, refused: int) -> None:
    print(json.dumps({"work": work, "rounds": ROUNDS, "done": done, "refused": refused}))
    # Where all fail, or none, the names did not change while it worked.
    assert ROUNDS < MANY or min(done, refused) >= ROUNDS / MANY
