"""Root beside an account that changes what the names in its own folder mean, as fast as it can."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
from tests.synthetic import Shape, design_of, make

NOBODY = 65534
NOTICE = Notice("run", "shop", Conclusion.BETTER, "faster", id="1")
SECRET = "root:$6$secret$hash:1:0:9:7:::"
#: Rounds of each attack; `make torture` makes more.
ROUNDS = int(os.environ.get("HEADRACE_TRUST", "15"))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root works in another account's folder")

#: As the account: exchanges each pair of names in turn, from the folder that it starts in, until it is ended.
FLIP = """
import ctypes, itertools, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.setgroups([]), os.setgid(65534), os.setuid(65534)
pairs = [each.split(":") for each in sys.argv[1:]]
# A name inside the folder that changes places is reached by what it is.
held = {a: os.open(os.path.dirname(a) or ".", os.O_PATH) for a, _ in pairs}
print("flipping", flush=True)
for a, b in itertools.cycle(pairs):
    at = held[a]
    libc.renameat2(at, os.path.basename(a).encode(), at, os.path.basename(b).encode(), 2)
"""


@contextlib.contextmanager
def flipping(folder: Path, *pairs: str) -> Iterator[None]:
    # The account may not be able to run this Python: it becomes the account once it is running.
    words = [sys.executable, "-c", FLIP, *pairs]
    flip = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert flip.stdout is not None
    assert flip.stdout.readline() == "flipping\n"
    try:
        yield
        assert flip.poll() is None
    finally:
        flip.kill()
        flip.wait()


def hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")


class Hosts:
    """``theirs`` is the account's, ``victim`` is root's and has the same names."""

    def __init__(self, base: Path, make_there: Callable[[Path], object], name: str) -> None:
        self.theirs, self.victim, self.name = base / "theirs", base / "victim", name
        base.chmod(0o711)
        for folder, text in ((self.theirs / "place", "name = 'harmless'\n"), (self.victim, SECRET)):
            folder.mkdir(parents=True)
            make_there(folder)
            if folder == self.victim and make_there is a_file:
                (folder / name).write_text(text)
        for each in (self.theirs, self.theirs / "place"):
            os.chown(each, NOBODY, NOBODY)
        place = self.theirs / "place"
        if (place / name).is_file():
            os.chown(place / name, NOBODY, NOBODY)
        for folder in (self.theirs, place):
            (folder / ".link").symlink_to(self.victim if folder == self.theirs else self.victim / name)
            os.mkfifo(folder / ".pipe")
            (folder / ".other").mkdir()
            (folder / ".zero").symlink_to("/dev/zero")
            for planted in (".link", ".pipe", ".other", ".zero"):
                os.chown(folder / planted, NOBODY, NOBODY, follow_symlinks=False)
        if (self.victim / name).is_file():
            os.link(self.victim / name, place / ".second")

    def pairs(self) -> list[str]:
        """The folder itself, and what is below it, change what they mean."""
        others = (".link", ".pipe", ".other", ".zero", ".second")
        return [pair for other in others for pair in (f"place:{other}", f"place/{self.name}:place/{other}")]

    def state(self) -> dict[str, tuple[int, int, int, bytes | str]]:
        found: dict[str, tuple[int, int, int, bytes | str]] = {}
        for path in sorted([self.victim, *self.victim.rglob("*")]):
            status = path.lstat()
            content: bytes | str = path.read_bytes() if path.is_file() else ""
            found[str(path)] = status.st_mode, status.st_uid, status.st_mtime_ns, content
        return found


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


def a_recording(place: Path) -> None:
    agent("record", own("log"), "-o", place / "x")


def an_experiment(place: Path) -> None:
    make(place / "x", Shape(blocks=1, seconds=2, unfinished=1, effects={"STOCK": 1.0, "MYSQL": 2.0}))


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
    "a log that is read": (lambda at: agent("digest", at), a_file),
    "a recording that is read": (lambda at: agent("recording", "info", at), a_recording),
    "a spec that is read": (lambda at: agent("drive", "check", at), a_file),
    "a plan that is read": (toml.read, a_file),
    "a list that is read": (whole.read_plain, a_file),
    "a hunt that is read": (snapshot.load, a_file),
    "a digest that is read": (table.read, a_file),
    "an experiment that is read": (experiment_read, an_experiment),
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
            if "experiment" not in work or "read" not in work:
                assert hosts.state() == before
    assert hosts.state() == before
    print(json.dumps({"work": work, "rounds": ROUNDS, "done": done, "refused": refused}))
