"""The power goes at any write of a real file system: nothing that was acknowledged is lost, no original, no trial.

``HEADRACE_CUTS`` says how many cuts a case has, ``HEADRACE_SEED`` which.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from headrace import arrow
from headrace.model import TrialState
from headrace.store import ExperimentFolder, TrialRecord
from tests.agent.test_apply import SYSCTL, Fake, boot, kernel
from tests.agent.test_store import DESIGN, record
from tests.lab import check
from tests.power import KINDS, Disk

CUTS = int(os.environ.get("HEADRACE_CUTS", "15"))
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
pytestmark = pytest.mark.needs("root", "qemu-storage-daemon", "FUSE")
State = TypeVar("State")


class Promised(Generic[State]):
    """What was acknowledged, and how many writes and flushes the disk had seen then."""

    def __init__(self, disk: Disk, state: State) -> None:
        check("sync", "-f", disk.place)
        self._disk = disk
        self.states = [(disk.count(), state)]

    def now(self, state: State) -> None:
        self.states.append((self._disk.count(), state))

    def cuts(self) -> Iterator[tuple[str, State, State]]:
        """The mounted disk after each cut, with what was promised before it and what came next."""
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


# The journal. A state is who is in the history, and the file that lasts.

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
