"""The machine under test as something that a plan varies: which kernel it runs.

A ``Machine`` brings a kernel up and says how to reach the host then. What runs in between, trial by trial, is the
runner's. There are three: a machine that is taken as it is, a virtual one of our own, and a host over SSH that the
plan allows to reboot (``reboot``).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Protocol

from headrace import vm
from headrace.design import Design
from headrace.errors import HeadraceError, PlanError, TargetError, TreatmentFailed
from headrace.experiment.boot import Tell, boot_id
from headrace.experiment.reboot import RebootedHost
from headrace.plan import VM, MachineTable, TargetTable, size_in_bytes
from headrace.store import ExperimentFolder
from headrace.target import TargetSpec, open_target

#: How long a machine that may be gone is asked for a sign of life: a VM that was killed refuses at once.
SIGN_OF_LIFE_S = 30.0


class Machine(Protocol):
    """A machine whose kernel may be chosen. ``accel`` is ``tcg`` where its processors are emulated, ``kvm`` where
    a hypervisor runs them, and empty where that is not known here."""

    accel: str
    #: What people call it; empty where that is its address.
    name: str
    #: Whether it can be booted anew when it dies.
    boots: bool

    def must_boot(self, kernel: str | None) -> bool:
        """Whether ``ready`` would boot it: every connection ends then."""

    async def ready(self, kernel: str | None, tell: Tell) -> TargetSpec:
        """Bring it up with this kernel, unless it runs already, and say how to reach it. None leaves the kernel.

        Raises TreatmentFailed where the kernel does not come up but the machine is there for others.
        """

    def died(self) -> None:
        """It was found dead: ``ready`` brings it up again."""

    async def release(self, tell: Tell) -> None:
        """The experiment is over: leave the machine as it was found."""


class AsItIs:
    """A machine that is never booted."""

    accel = ""
    name = ""
    boots = False

    def __init__(self, spec: TargetSpec) -> None:
        self._spec = spec

    def must_boot(self, kernel: str | None) -> bool:
        return False

    async def ready(self, kernel: str | None, tell: Tell) -> TargetSpec:
        return self._spec

    def died(self) -> None:
        """Nothing of ours to bring up again."""

    async def release(self, tell: Tell) -> None:
        """Nothing was changed."""


class VirtualMachine:
    """A virtual machine of this experiment: its name tells a later run which one to take over."""

    boots = True

    def __init__(self, name: str, owner: str, table: MachineTable) -> None:
        self.name = name
        self.accel = ""
        self._owner = owner
        self._table = table
        self._vm: vm.Vm | None = None

    def must_boot(self, kernel: str | None) -> bool:
        return self._vm is None or kernel not in (None, self._vm.spec.kernel)

    async def ready(self, kernel: str | None, tell: Tell) -> TargetSpec:
        if kernel is None:
            raise PlanError("machine.kernel: a virtual machine needs one", hint='[machine] kernel = "6.12"')
        for is_last in (False, True):
            try:
                self._vm = await self._with(kernel, tell)
                break
            except TargetError as error:
                # Nothing is left of a virtual machine that did not come up: what comes next is a new one.
                self._vm = None
                tell(error.message)
                if is_last:
                    reason = error.message.strip().partition("\n")[0]
                    raise TreatmentFailed(f"kernel {kernel} does not come up: {reason}") from error
                # It may have been our own machine, which was short of something.
                tell(f"kernel {kernel} did not come up: once more")
        assert self._vm is not None
        self.accel = self._vm.accel
        return self._vm.target

    async def _with(self, kernel: str, tell: Tell) -> vm.Vm:
        """The machine that runs, of this run or of one that was killed, with this kernel; or a new one."""
        running = vm.find(self.name)
        wanted = self._spec(running.spec.kernel if running else kernel)
        machine = await vm.up(wanted, tell, owner=self._owner)
        if machine.spec.kernel != kernel:
            await machine.reboot(kernel, tell)
        return machine

    def _spec(self, kernel: str) -> vm.VmSpec:
        table = self._table
        disk = vm.DiskSpec(
            size_bytes=size_in_bytes(table.disk_size), queues=table.disk_queues, iops=table.disk_iops
        )
        return vm.VmSpec(
            name=self.name,
            kernel=kernel,
            cpus=table.cpus,
            memory_bytes=size_in_bytes(table.memory),
            disks=(disk,) * table.disks,
            nic_queues=table.nic_queues,
        )

    def died(self) -> None:
        self._vm = None

    async def release(self, tell: Tell) -> None:
        if self._table.keep and self._vm is not None:
            tell(f"machine {self.name} stays up: `headrace lab down {self.name}` ends it")
            return
        await vm.down(self.name)
        self._vm = None


def vm_name(name: str, design_hash: str, folder: Path) -> str:
    """Of the experiment's name: the same for each of its runs, and for no other, as its folder is part of it."""
    place = hashlib.sha256(f"{design_hash} {folder.absolute()}".encode()).hexdigest()
    return f"{re.sub('[^a-z0-9]+', '-', name.lower())[:22].strip('-')}-{place[:8]}"


def open_machine(design: Design, folder: Path) -> Machine:
    """The machine of a plan, not up yet."""
    table = design.machine or MachineTable()
    if design.target.address == VM:
        return VirtualMachine(vm_name(design.name, design.hash, folder), str(folder.absolute()), table)
    spec = target_spec(design.target)
    if any(design.kernel_of(treatment) for treatment in design.treatments):
        return RebootedHost(spec, table)
    return AsItIs(spec)


def target_spec(table: TargetTable) -> TargetSpec:
    """Where the plan's target is; not of a virtual machine, which has its address when it is up."""
    return TargetSpec.parse(table.address, **table.login)


def reached(folder: ExperimentFolder) -> TargetSpec | None:
    """Where the machine of an experiment is now; None where it is a virtual one that does not run."""
    design = folder.design
    if design.target.address == VM:
        running = vm.find(vm_name(design.name, design.hash, folder.path))
        return running.target if running else None
    return target_spec(design.target)


async def is_there(spec: TargetSpec, boot: str) -> bool:
    """Whether the host still answers, and was not booted since; a ``boot`` of "" is not known."""
    target = open_target(spec)
    try:
        async with asyncio.timeout(SIGN_OF_LIFE_S):
            await target.connect()
            return await boot_id(target) == boot or not boot
    except (TimeoutError, HeadraceError, OSError):
        return False
    finally:
        await target.close()
