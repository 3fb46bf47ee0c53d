"""The loop around a machine that boots and dies, and hosts that come back.

The machine of these tests is an sshd of our own: what dies with it, and what its boot costs, are real; its kernels
are only names. ``tests/real/vm/test_kernels.py`` boots real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import NothingMeasured, TreatmentFailed
from headrace.base.model import TrialState
from headrace.experiment import boot, labs, plan, runner
from headrace.experiment.report import tables
from headrace.experiment.run import run as run_plan
from headrace.experiment.stats import trials
from headrace.experiment.store import ExperimentFolder
from headrace.host.target import TargetSpec
from tests import sshd

#: As short as it can be: a trial of each kernel, and the baseline's second.
PLAN = """
name = "kernels"
[target]
address = "vm"
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = {{ kernel = "/boot/a" }}
blocks = {blocks}
[workload]
kind = "fio"
seconds = {seconds}
rw = "read"
size = "4M"
ioengine = "psync"
[factors.kernel]
knob = "machine.kernel"
levels = ["/boot/a", "/boot/b"]
"""


class SshdMachine:
    """A machine that is an sshd: each boot ends it, with all of its sessions, and starts another."""

    accel = "tcg"
    name = "sshd"
    boots = True

    def __init__(self, folder: Path, broken: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.broken = broken
        self.booted: list[str] = []
        self.releases = 0
        self.dies_at_once = False
        self.held: list[bool] = []
        self._kernel: str | None = None
        self._running = contextlib.ExitStack()

    def must_boot(self, wanted: boot.Boot | None) -> bool:
        return wanted is None or wanted.kernel != self._kernel

    async def ready(self, wanted: boot.Boot | None, tell: boot.Tell) -> TargetSpec:
        assert wanted is not None
        kernel = wanted.kernel
        self.held.append(is_held(self.folder / "state"))
        self.kill()
        if kernel in self.broken:
            raise TreatmentFailed(f"kernel {kernel} does not come up: it panics")
        self.booted.append(kernel)
        place = self.folder / f"boot{len(self.booted)}"
        place.mkdir()
        found = self._running.enter_context(sshd.running_sshd(place))
        self._kernel = kernel
        if self.dies_at_once:
            self.dies_at_once = False
            threading.Thread(target=self._kill_while_prepared).start()
        return TargetSpec(
            "ssh",
            host="127.0.0.1",
            port=found.port,
            user=sshd.user(),
            identity_file=str(found.key),
            known_hosts=str(found.known_hosts),
        )

    def _kill_while_prepared(self) -> None:
        """The journal is held first of all, and much is asked of the host before the first trial."""
        pattern = f"journal hold.*{self.folder}"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if subprocess.run(["pgrep", "-f", pattern], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """As a power cut: the sshd and every session of it, at once."""
        for pid in daemons(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(AssertionError):
            self._running.close()
        self._running = contextlib.ExitStack()

    def died(self) -> None:
        self._kernel = None

    async def release(self, tell: boot.Tell) -> None:
        self.releases += 1
        self.held.append(is_held(self.folder / "state"))
        self.kill()


def daemons(folder: Path) -> list[int]:
    """Our sshd, and the children that serve its connections."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    found = {int(pid) for pid, _, args in rows if str(folder) in args and "sshd" in args}
    while more := {int(pid) for pid, parent, args in rows if int(parent) in found and "sshd" in args} - found:
        found |= more
    return sorted(found)


def is_held(state: Path) -> bool:
    """Whether anybody holds the journal's lock."""
    for lock in state.glob("*lock*"):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
    return False


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SshdMachine]]:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    # What dies here does not come back by itself.
    monkeypatch.setattr(labs, "BOOTED_RECONNECT_S", 1.0)
    made: list[SshdMachine] = []

    def make(*broken: str) -> SshdMachine:
        made.append(SshdMachine(tmp_path, broken))
        monkeypatch.setattr(labs, "open_machine", lambda design, folder: made[-1])
        return made[-1]

    yield make
    for one in made:
        one.kill()


def run_or_raise(tmp_path: Path, told: list[str], seconds: float = 1) -> None:
    """``told`` hears what happens."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(scratch=tmp_path / "scratch", blocks=1, seconds=seconds))

    def listen(event: runner.Event) -> None:
        if isinstance(event, runner.Note):
            told.append(event.text)

    asyncio.run(run_plan(plan.load(path), tmp_path / "out", listen))


def run(tmp_path: Path, seconds: float = 1) -> tuple[ExperimentFolder, list[str]]:
    told: list[str] = []
    # On a busy machine every trial may be invalid: that has nothing to do with booting.
    with contextlib.suppress(NothingMeasured):
        run_or_raise(tmp_path, told, seconds)
    return ExperimentFolder.open(tmp_path / "out"), told


@pytest.mark.needs("root")
def test_each_kernel_boots_once_a_block_with_the_journal_let_go_and_none_when_all_is_measured(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    host = booted()
    folder, _ = run(tmp_path)
    records = folder.trials()
    assert len(records) == 3
    assert sorted(host.booted) == ["/boot/a", "/boot/b"]
    assert host.releases == 1
    assert host.held == [False, False, False], "the journal was held through a boot"
    assert {r.accel for r in records} == {"tcg"}
    assert trials.EMULATED in tables.cautions(records)

    again = booted()
    folder, _ = run(tmp_path)
    assert again.booted == []
    assert len(folder.trials()) == 3


@pytest.mark.needs("root")
def test_a_machine_that_dies_in_a_trial_boots_again_and_the_trial_is_measured_again(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    host = booted()
    stop = kill_in_trial(tmp_path, host, [2])
    try:
        folder, told = run(tmp_path, seconds=2)
    finally:
        stop()
    records = {r.number: r for r in folder.trials()}
    assert sorted(records) == [1, 2, 3]
    assert len(host.booted) == 3
    assert records[2].state in (TrialState.COMPLETE, TrialState.INVALID)
    assert any("trying again" in text for text in told)
    assert not list((tmp_path / "out/trials").glob(".*"))


@pytest.mark.needs("root")
def test_a_machine_that_dies_while_it_is_prepared_boots_again(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    host = booted()
    host.dies_at_once = True
    folder, told = run(tmp_path)
    assert len(folder.trials()) == 3
    assert len(host.booted) == 3
    assert any("died while being prepared" in text for text in told)


@pytest.mark.needs("root")
def test_a_kernel_that_does_not_come_up_is_a_failed_treatment_and_asked_for_once(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    host = booted("/boot/b")
    folder, _ = run(tmp_path)
    failed = [r for r in folder.trials() if r.state is TrialState.FAILED]
    assert {folder_levels(folder, r.treatment) for r in failed} == {"/boot/b"}
    assert len(failed) == 1
    assert {r.reason for r in failed} == {"kernel /boot/b does not come up: it panics"}
    assert "/boot/b" not in host.booted


@pytest.mark.needs("root")
def test_a_baseline_whose_kernel_does_not_come_up_ends_it(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    booted("/boot/a")
    with pytest.raises(NothingMeasured, match="does not come up"):
        run_or_raise(tmp_path, [])


def folder_levels(folder: ExperimentFolder, treatment: str) -> str:
    return folder.design.treatment(treatment).levels["kernel"]


def kill_in_trial(tmp_path: Path, host: SshdMachine, numbers: list[int]) -> Callable[[], None]:
    """Kill the machine while the workload of these trials runs, once each."""
    over = threading.Event()

    def watch() -> None:
        for number in numbers:
            draft = tmp_path / f"out/trials/.{number:04d}.part"
            while not (draft.exists() and fio_runs(tmp_path)) and not over.is_set():
                time.sleep(0.1)
            if not over.is_set():
                time.sleep(0.5)
                for pid in daemons(host.folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join(10)

    return stop


def fio_runs(tmp_path: Path) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Not the laying out of its files: the measured run.
            is_measuring = b"--runtime=" in (process / "cmdline").read_bytes()
            if is_measuring and str(process.joinpath("cwd").readlink()).startswith(str(tmp_path)):
                return True
    return False
