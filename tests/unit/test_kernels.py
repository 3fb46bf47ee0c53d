"""The kernel as a factor: plans, the loop around a machine that boots and dies, and hosts that come back.

The machine of these tests is an sshd of our own: what dies with it, and what its boot costs, are real; its kernels
are only names. ``test_vm_experiment`` boots real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from headrace import plan, report, vm
from headrace.agent.stable import without_what_changes_by_itself
from headrace.analysis import study, trials
from headrace.errors import NothingMeasured, PlanError, TargetError, TreatmentFailed
from headrace.experiment import boot, labs, machine, runner
from headrace.experiment import design as designs
from headrace.model import TrialState
from headrace.report import jsonform, terminal
from headrace.report.experiment import tables
from headrace.store import ExperimentFolder
from headrace.target import TargetSpec
from tests import sshd, synthetic

PLAN = """
name = "kernels"
[target]
{target}
[design]
kind = "factorial"
baseline = {{ kernel = "/boot/a", jobs = "1" }}
blocks = {blocks}
[workload]
kind = "fio"
seconds = {seconds}
rw = "read"
size = "4M"
ioengine = "psync"
[factors.jobs]
levels.1 = {{ "host.vm.swappiness" = 60 }}
levels.2 = {{ "host.vm.swappiness" = 61 }}
[factors.kernel]
knob = "machine.kernel"
levels = ["/boot/a", "/boot/b"]
"""


def parsed(target: str = 'address = "vm"', blocks: int = 2, seconds: float = 1) -> plan.Plan:
    return plan.parse(PLAN.format(target=target, blocks=blocks, seconds=seconds), "plan.toml")


def test_a_kernel_is_changed_once_a_block_and_is_hard_for_the_analysis_too() -> None:
    design = designs.build(parsed(blocks=4), place="plan.toml")
    assert design.hard == ["kernel"]
    for block in range(1, 5):
        order = [design.treatment(t.treatment).levels["kernel"] for t in design.trials if t.block == block]
        changes = sum(a != b for a, b in itertools.pairwise(order))
        assert len(order) == 5
        assert changes == 1


def test_boots_are_part_of_what_a_plan_takes() -> None:
    design = designs.build(parsed(blocks=4), place="plan.toml")
    kernels = [design.treatment(t.treatment).levels["kernel"] for t in design.trials]
    changes = sum(a != b for a, b in itertools.pairwise(kernels))
    assert runner.boot_seconds(design) == runner.BOOT_S * (changes + 1)


def test_a_factor_that_reboots_stands_before_those_that_are_hard_for_other_reasons() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1)
    loaded = plan.parse(text.replace("blocks = 2", 'blocks = 2\nhard = ["jobs"]'), "plan.toml")
    assert designs.build(loaded, place="plan.toml").hard == ["kernel", "jobs"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ('address = "local"', "never reboots 'local'"),
        ('address = "root@db1"', "nobody allowed that"),
        ('address = "root@db1"\n[machine]\nallow_reboot = true', "nobody allowed that"),
        ('address = "root@db1"\n[machine]\nhosts = ["db1"]', "nobody allowed that"),
        ('address = "root@db1"\n[machine]\nallow_reboot = true\nhosts = ["db2"]', "reboot of db1"),
    ],
)
def test_what_nobody_allowed_to_reboot_is_refused(target: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        designs.build(parsed(target), place="plan.toml")


def test_a_treatment_without_a_kernel_is_refused_where_others_have_one() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1)
    text = text.partition("[factors.kernel]")[0].replace('kernel = "/boot/a", ', "")
    with pytest.raises(PlanError, match="names no kernel"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")
    with_one = text.replace("[design]", '[machine]\nkernel = "6.1"\n[design]')
    assert designs.build(plan.parse(with_one, "plan.toml"), place="plan.toml").treatments


def test_a_kernel_of_all_treatments_needs_the_same_leave() -> None:
    text = PLAN.format(target='address = "local"\n[machine]\nkernel = "6.1"', blocks=2, seconds=1)
    text = text.partition("[factors.kernel]")[0].replace('kernel = "/boot/a", ', "")
    with pytest.raises(PlanError, match="never reboots 'local'"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_a_listed_host_may_reboot() -> None:
    listed = 'address = "root@db1:2222"\n[machine]\nallow_reboot = true\nhosts = ["db1"]'
    design = designs.build(parsed(listed), place="plan.toml")
    assert design.kernel_of(design.treatments[0]) == "/boot/a"


def test_a_race_of_kernels_is_refused() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1).replace('"factorial"', '"race"')
    with pytest.raises(PlanError, match="costs a reboot"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_the_frozen_design_knows_the_machine_but_not_who_may_reboot() -> None:
    one = designs.build(parsed('address = "vm"\n[machine]\nmemory = "1G"'), place="p")
    other = designs.build(parsed('address = "vm"\n[machine]\nmemory = "2G"'), place="p")
    kept = designs.build(parsed('address = "vm"\n[machine]\nmemory = "1G"\nkeep = true'), place="p")
    assert one.hash != other.hash
    assert one.hash == kept.hash


@pytest.mark.parametrize(
    ("wanted", "release", "fits"),
    [
        ("6.1", "6.1.0-18-cloud-amd64", True),
        ("6.1", "6.12.9+bpo-amd64", False),
        ("6.12", "6.12.9+bpo-amd64", True),
        ("6.12", "6.12-rc1", True),
        ("6.1.0-18-cloud-amd64", "6.1.0-18-cloud-amd64", True),
        ("6.1.0-18", "6.1.0-18-cloud-amd64", True),
        ("6.1.0-1", "6.1.0-18-cloud-amd64", False),
    ],
)
def test_which_release_is_meant(wanted: str, release: str, fits: bool) -> None:
    assert boot.is_kernel(wanted, release) is fits


def test_the_name_of_a_virtual_machine_is_one_experiments() -> None:
    first = machine.vm_name("kernels", "hash", Path("/a"))
    assert first == machine.vm_name("kernels", "hash", Path("/a"))
    assert first != machine.vm_name("kernels", "hash", Path("/b"))
    vm.VmSpec(machine.vm_name("A.very_long.name" * 6, "hash", Path("/a"))).check()


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

    def must_boot(self, kernel: str | None) -> bool:
        return kernel != self._kernel

    async def ready(self, kernel: str | None, tell: boot.Tell) -> TargetSpec:
        assert kernel is not None
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
    if sshd.program() is None:
        pytest.skip("apt-get install -y openssh-server")
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    made: list[SshdMachine] = []

    def make(*broken: str) -> SshdMachine:
        made.append(SshdMachine(tmp_path, broken))
        monkeypatch.setattr(labs, "open_machine", lambda design, folder: made[-1])
        return made[-1]

    yield make
    for one in made:
        one.kill()


#: As short as it can be: a trial of each kernel, and the baseline's second.
KERNELS_ALONE = PLAN.replace(', jobs = "1"', "").replace(
    PLAN[PLAN.index("[factors.jobs]") : PLAN.index("[factors.kernel]")], ""
)


def run(tmp_path: Path, seconds: float = 1, blocks: int = 1) -> tuple[ExperimentFolder, list[str]]:
    target = f'address = "vm"\nscratch = "{tmp_path}/scratch"'
    path = tmp_path / "plan.toml"
    path.write_text(KERNELS_ALONE.format(target=target, blocks=blocks, seconds=seconds))
    told: list[str] = []

    def listen(event: runner.Event) -> None:
        if isinstance(event, runner.Note):
            told.append(event.text)

    folder = asyncio.run(runner.run_experiment(path, tmp_path / "out", listen))
    return folder, told


@pytest.mark.needs("root")
def test_each_kernel_boots_once_a_block_with_the_journal_let_go(
    tmp_path: Path, booted: Callable[..., SshdMachine]
) -> None:
    host = booted()
    folder, _ = run(tmp_path, blocks=1)
    records = folder.trials()
    assert len(records) == 3
    assert sorted(host.booted) == ["/boot/a", "/boot/b"]
    assert host.releases == 1
    assert host.held == [False, False, False], "the journal was held through a boot"
    assert {r.accel for r in records} == {"tcg"}
    assert trials.EMULATED in tables.cautions(records)


@pytest.mark.needs("root")
def test_a_finished_experiment_boots_nothing(tmp_path: Path, booted: Callable[..., SshdMachine]) -> None:
    booted()
    run(tmp_path)
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
        folder, told = run(tmp_path, seconds=3)
    finally:
        stop()
    records = {r.number: r for r in folder.trials()}
    assert sorted(records) == [1, 2, 3]
    assert len(host.booted) == 3
    assert any("machine died in it" in w for w in records[2].warnings)
    assert records[2].state in (TrialState.COMPLETE, TrialState.INVALID)
    assert any("once more" in text for text in told)
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
    assert any("died while it was prepared" in text for text in told)


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
        run(tmp_path)


def folder_levels(folder: ExperimentFolder, treatment: str) -> str:
    return folder.design.treatment(treatment).levels["kernel"]


def kill_in_trial(tmp_path: Path, host: SshdMachine, numbers: list[int]) -> Callable[[], None]:
    """Kill the machine while the workload of these trials runs, once each."""
    over = threading.Event()

    def watch() -> None:
        for number in numbers:
            draft = tmp_path / f"out/trials/.{number:04d}.part"
            while not (draft.exists() and fio_runs(tmp_path)) and not over.is_set():
                time.sleep(0.02)
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


def test_an_error_of_a_machine_that_is_still_there_is_told_as_it_is(tmp_path: Path) -> None:
    class Unmoved(machine.AsItIs):
        boots = True

    async def work() -> None:
        design = designs.build(parsed(), place="plan.toml")
        folder = ExperimentFolder.create(tmp_path / "out", "", design)
        lab = labs.Labs(Unmoved(TargetSpec("local")), folder, design, lambda _: None)
        lab._spec = TargetSpec("local")
        lab._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        await lab.lost(TargetError("the tool is gone"))

    with pytest.raises(TargetError, match="the tool is gone"):
        asyncio.run(work())


def test_every_report_of_an_emulated_machine_says_so_and_a_comparison_too(tmp_path: Path) -> None:
    folders = [synthetic.make(tmp_path / name) for name in ("a", "b")]
    said = "only the direction of a difference can be trusted"
    assert not any(said in note for note in study.compare_experiments(*folders).notes)
    for path in tmp_path.glob("a/trials/*/trial.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "accel": "tcg"}))
    folder = ExperimentFolder.open(folders[0].path)
    assert any(said in note for note in study.compare_experiments(folder, folders[1]).notes)
    written = report.of(folder)
    page = report.write(written, folder)
    assert said in page.read_text()
    assert any(said in caution for caution in jsonform.render(written)["cautions"])
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal.render(written))
    assert said in console.export_text()


def test_two_boots_of_one_kernel_are_one_configuration_and_two_command_lines_are_not() -> None:
    def stable(identity: str, file_max: str, option: str) -> object:
        line = f"root=/dev/vda {option} headrace_id={identity}"
        data = {"kernel": {"command_line": line}, "sysctls": {"fs.file-max": file_max}}
        return without_what_changes_by_itself(data)

    assert stable("a", "97756", "quiet") == stable("b", "97731", "quiet")
    assert stable("a", "97756", "quiet") != stable("a", "97756", "mitigations=off")
