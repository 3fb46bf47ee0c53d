"""Real kernels: an experiment in a virtual machine, through the death of QEMU and of the runner.

One kernel is named by its version, the other by its file and the folder of its modules, as a user's own is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.experiment import machine
from headrace.lab.vm import kernels, processes, state
from tests.commands import started
from tests.debian_kernel import debian_kernel
from tests.waiting import until

#: An emulated machine on a busy one is slow; a stuck one never ends.
PATIENCE_S = 900

PLAN = """
name = "two-kernels"
[target]
address = "vm"
[machine]
memory = "768M"
disks = 2
disk_size = "256M"
[design]
kind = "factorial"
baseline = "6.1"
blocks = 1
seed = 2
[workload]
kind = "fio"
seconds = 1
rw = "randread"
size = "8M"
ioengine = "psync"
[volume]
device = "md"
size = "250M"
devices = ["/dev/disk/by-id/virtio-data0", "/dev/disk/by-id/virtio-data1"]
[base]
"volume.filesystem" = "ext4"
"volume.raid_level" = 0
[factors.kernel]
knob = "machine.kernel"
levels = ["6.1", "{own}"]
"""


class Experiment:
    def __init__(self, folder: Path) -> None:
        self.plan, self.output = folder / "plan.toml", folder / "out"
        self.kernel = debian_kernel()
        self.own = f"{self.kernel.vmlinuz}:{self.kernel.modules}"
        self.plan.write_text(PLAN.replace("{own}", self.own))

    def start(self) -> subprocess.Popen[str]:
        return started("run", str(self.plan), "-o", str(self.output), env={**os.environ, "NO_COLOR": "1"})

    def trials(self) -> dict[int, dict[str, object]]:
        found = sorted(self.output.glob("trials/[0-9]*/trial.json"))
        return {int(path.parent.name): json.loads(path.read_text()) for path in found}

    @property
    def place(self) -> Path:
        """The virtual machine's folder, once the design is frozen."""
        design = json.loads((self.output / "design.json").read_text())
        return state.machine_folder(machine.vm_name(design["name"], design["hash"], self.output))

    def qemu(self) -> int:
        record = state.read(self.place)
        assert record is not None
        return record.pid

    def measures(self, number: int) -> bool:
        """Whether this trial has got as far as its volume."""
        return (self.output / f"trials/.{number:04d}.part").exists()


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    made = Experiment(tmp_path)
    yield made
    if (made.output / "design.json").exists():
        for pid in processes.marked(made.place):
            os.kill(pid, signal.SIGKILL)
    for kernel in kernels.cached():
        # Its path is another one in each run.
        if kernel.source.startswith(str(made.kernel.vmlinuz)):
            shutil.rmtree(kernel.folder)


@pytest.mark.thorough
def test_an_experiment_goes_on_when_qemu_and_then_the_runner_are_killed(experiment: Experiment) -> None:
    first = experiment.start()
    until(
        lambda: 1 in experiment.trials() and experiment.measures(2), first, limit_s=PATIENCE_S, pause_s=0.05
    )
    os.kill(experiment.qemu(), signal.SIGKILL)
    until(lambda: 2 in experiment.trials(), first, limit_s=PATIENCE_S, pause_s=0.05)
    assert any("machine died in it" in str(w) for w in experiment.trials()[2]["warnings"])  # type: ignore[attr-defined]
    before = experiment.trials()
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    survivor = experiment.qemu()
    assert Path(f"/proc/{survivor}").exists(), "the machine outlives the runner"

    second = experiment.start()
    out, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    trials = experiment.trials()
    assert {number: trials[number] for number in before} == before
    assert sorted(trials) == [1, 2, 3]
    releases = {str(t["treatment"]): str(t["versions"]["kernel"]) for t in trials.values()}  # type: ignore[index]
    assert releases["6.1"].startswith("6.1.")
    assert releases[experiment.own] == experiment.kernel.release
    if {t["accel"] for t in trials.values()} == {"tcg"}:
        assert "only the direction of a difference can be trusted" in " ".join(out.split())
        assert "only the direction of a difference" in (experiment.output / "report.html").read_text()
        assert "only the direction of a difference" in (experiment.output / "report.json").read_text()
    assert not processes.marked(experiment.place)
    assert not experiment.place.exists(), "something of the machine is left"
