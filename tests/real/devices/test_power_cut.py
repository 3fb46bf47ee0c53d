"""The power goes at any write of a real file system. Nothing that was acknowledged is lost: no original, no trial,
no event of a rollout, no minute of the history.

``HEADRACE_CUTS`` is the number of cuts per case, ``HEADRACE_SEED`` selects them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from headrace.base.model import TrialState
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.rollup import roll_up
from headrace.host import arrow
from headrace.rollout.book import Book
from tests.agent.test_apply import SYSCTL, Fake, boot, kernel
from tests.agent.test_store import DESIGN, record
from tests.history import state, write
from tests.lab import check
from tests.power import KINDS, Disk
from tests.unit.test_rollout_expected import plan
from tests.waiting import until

CUTS = int(os.environ.get("HEADRACE_CUTS", "15"))
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
pytestmark = pytest.mark.needs("root", "qemu-storage-daemon", "FUSE")
State = TypeVar("State")


class Promised(Generic[State]):
    """Each acknowledged state, with the number of writes and flushes before it."""

    def __init__(self, disk: Disk, state: State) -> None:
        check("sync", "-f", disk.place)
        self._disk = disk
        self.states = [(disk.count(), state)]

    def now(self, state: State) -> None:
        self.states.append((self._disk.count(), state))

    def cuts(self) -> Iterator[tuple[str, State, State]]:
        """The mounted disk after each cut, with the last acknowledged state and the next one."""
        chance, writes = random.Random(SEED), self._disk.writes()
        for _ in range(CUTS):
            at = chance.randint(self.states[0][0], len(writes))
            before = max(i for i, (count, _) in enumerate(self.states) if count <= at)
            after = self.states[min(before + 1, len(self.states) - 1)][1]
            with self._disk.cut(writes, at, chance):
                yield f"cut at {at} of {len(writes)}", self.states[before][1], after


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(tmp_path, request.param)


def test_a_namespace_made_meanwhile_writes_into_no_later_cut(tmp_path: Path) -> None:
    disk = Disk(tmp_path, "ext4")
    with disk.running():
        (disk.place / "file").write_text("x")
    writes = disk.writes()
    with disk.cut(writes, len(writes), random.Random(SEED)):
        other = subprocess.Popen(["unshare", "--mount", "sleep", "1"])
        until(lambda: os.readlink(f"/proc/{other.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), other)
    assert check("losetup", "-j", tmp_path / "cut") == ""
    assert other.wait() == 0


# The journal. A state is the owners in the history and the content of the persisted file.

Kept = tuple[list[str], str]


def change(host: Fake, promised: Callable[[Kept], None]) -> None:
    """Settings are applied, confirmed, kept and undone; each has a file that lasts."""

    def call(verb: str, owner: str, *options: str, number: int = 0) -> None:
        changes = [kernel(number, owner), {"file": SYSCTL, "content": f"{owner}\n"}] if number else None
        host.call(verb, "--root", str(host.folder), *options, owner=owner, stdin=changes)

    call("apply", "apply/1", "--confirm-within", "1h", number=1)
    promised(([], "theirs"))
    call("confirm", "apply/1")
    promised((["apply/1"], "apply/1"))
    call("apply", "apply/2", "--keep", number=2)
    promised((["apply/1", "apply/2"], "apply/2"))
    call("rollback", "apply/2", "--kept", "last")
    promised((["apply/1"], "apply/1"))
    call("apply", "apply/3", "--confirm-within", "1h", number=3)
    promised((["apply/1"], "apply/1"))
    call("rollback", "apply/3")
    promised((["apply/1"], "apply/1"))
    call("apply", "apply/4", "--keep", number=4)
    promised((["apply/1", "apply/4"], "apply/4"))


def start(host: Fake) -> None:
    """What a boot does: settings are the kernel's own, then those of the file."""
    boot(host)
    for number in range(12):
        host.put(f"/sys/fake/{number}", f"original {number}")
    text = host.text(SYSCTL)
    if text.startswith("apply/"):
        host.put(f"/sys/fake/{text.removeprefix('apply/')}", text)


def test_a_cut_loses_no_original_and_no_confirmed_change(disk: Disk) -> None:
    with disk.running():
        folder = disk.place / "host"
        folder.mkdir()
        host = Fake(folder)
        host.put(SYSCTL, "theirs")
        promised = Promised[Kept](disk, ([], "theirs"))
        change(host, promised.now)
        for pid in host.watchers():
            os.kill(pid, signal.SIGKILL)
    for cut, (owners, text), (next_owners, next_text) in promised.cuts():
        start(host)
        assert [kept["owner"] for kept in host.history()] in (owners, next_owners), cut
        assert host.text(SYSCTL) in (text, next_text), cut
        host.call("rollback", "--root", str(host.folder), "--everyone", owner=None)
        while host.history():
            host.call("rollback", "--root", str(host.folder), "--kept", "last", owner=None)
        assert host.text(SYSCTL) == "theirs", cut
        assert [host.text(f"/sys/fake/{n}") for n in range(12)] == [f"original {n}" for n in range(12)], cut
        assert host.open_entries() == [], cut


# The store. A state is the trials there are.

Trials = list[TrialRecord]


def test_a_cut_loses_no_trial_that_was_stored(disk: Disk) -> None:
    first = replace(record(1), state=TrialState.INVALID, reason="disturbed")
    with disk.running():
        promised = Promised[Trials | None](disk, None)
        experiment = ExperimentFolder.create(disk.place / "e", 'name = "t"\n', DESIGN)
        promised.now([])
        for trials in (
            [first],
            [first, record(2)],
            [record(1), record(2)],
            [record(1), record(2), record(3)],
        ):
            number = next(n for n in (1, 2, 3) if experiment.trial(n) not in trials)
            draft = experiment.begin_trial(number)
            (draft.raw / "out.txt").write_text(f"{number}\n" * 5000)
            draft.commit(trials[number - 1], arrow.empty_data())
            promised.now(trials)
    for cut, before, after in promised.cuts():
        place = disk.place / "e"
        if before is None and not place.exists():
            continue
        experiment = ExperimentFolder.open(place)
        assert experiment.plan_text() == 'name = "t"\n', cut
        assert experiment.trials() in (before or [], after), cut
        for each in experiment.trials():
            raw = experiment.trial_path(each.number) / "raw" / "out.txt"
            assert raw.read_text() == f"{each.number}\n" * 5000, cut
            experiment.latency_rows(each.number)
        experiment.discard_drafts()
        experiment.begin_trial(4).commit(record(4), arrow.empty_data())


# A rollout. A state is how many of its events there are.


def test_a_cut_loses_no_event_of_a_rollout(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(disk.place / "state"))
    with disk.running():
        promised = Promised(disk, -1)
        book = Book.make(plan(None))
        promised.now(0)
        for number in range(1, 7):
            with book.hold():
                book.note("paused", why=f"{number} " * 200)
            promised.now(number)
    for cut, before, after in promised.cuts():
        if before < 0 and not (book.folder / "plan.json").exists():
            continue
        again = Book.open(book.plan.id)
        with again.hold():
            assert len(again.events) in (max(before, 0), after), cut
            again.note("paused", why="once more")
        numbers = [event["why"].split()[0] for event in Book.open(book.plan.id).events]
        assert numbers == [*map(str, range(1, len(numbers))), "once"], cut


# The history of serve. A state is its minutes, of which an hour is rolled up meanwhile.

HOUR = 24 * HOUR_S
HOST = "here"


def minutes(archive: Archive) -> list[int]:
    """Each minute as often as it counts."""
    sql = "SELECT t_s, CAST(SUM(minutes) AS BIGINT) AS n FROM rows GROUP BY t_s ORDER BY t_s"
    rows = Reader(archive).rows("states", sql, [HOST], Range(HOUR, HOUR + 2 * HOUR_S))
    return [row["t_s"] for row in rows for _ in range(row["n"])]


def test_a_cut_loses_and_doubles_no_minute_of_the_history(disk: Disk) -> None:
    times = [HOUR + n * MINUTE_S for n in (55, 57, 58, 59, 60, 61)]
    archive = Archive(disk.place / "history")
    with disk.running():
        archive.create()
        promised = Promised[list[int]](disk, [])
        for number, t_s in enumerate(times, start=1):
            if t_s == HOUR + HOUR_S:
                roll_up(archive, HOST, HOUR + HOUR_S)
            write(archive, "states", HOST, t_s, [state()])
            promised.now(times[:number])
    for cut, before, after in promised.cuts():
        again = Archive(archive.root)
        found = minutes(again)
        assert found in (before, after), cut
        again.clear_drafts()
        roll_up(again, HOST, HOUR + HOUR_S)
        assert minutes(Archive(archive.root)) == found, cut
