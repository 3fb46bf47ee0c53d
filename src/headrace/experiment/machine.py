"""The machine under test, whose kernel a plan may vary.

A ``Machine`` boots a kernel and returns how to reach the host. The runner runs the trials in between. There are
three: a machine used as it is, a private virtual machine, and a host over SSH that the plan allows to reboot
(``reboot``).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Protocol

from headrace.base.errors import HeadraceError, PlanError, TargetError, TreatmentFailed
from headrace.experiment.boot import Boot, Tell, boot_id
from headrace.experiment.frozen import Design
from headrace.experiment.plan import VM, MachineTable, TargetTable, size_in_bytes
from headrace.experiment.reboot import RebootedHost
from headrace.experiment.store import ExperimentFolder
from headrace.host.target import TargetSpec, open_target
from headrace.lab import vm

#: How long to wait for an answer from a machine that may be gone; a killed VM refuses immediately.
SIGN_OF_LIFE_S = 30.0


class Machine(Protocol):
    """A machine whose kernel may be chosen.

    ``accel`` is ``tcg`` if its CPUs are emulated, ``kvm`` if a hypervisor runs them, and empty if unknown.
    """

    accel: str
    #: Its name for users; empty if that is its address.
    name: str
    #: Whether it can be booted again when it dies.
    boots: bool

    def must_boot(self, boot: Boot | None) -> bool:
        """Whether ``ready`` would boot it, which ends every connection."""

    async def ready(self, boot: Boot | None, tell: Tell) -> TargetSpec:
        """Boot it so unless it already runs so, and return how to reach it.

        None keeps the kernel. Raises TreatmentFailed if the kernel does not come up but the machine remains
        usable.
        """

    def died(self) -> None:
        """Called when it was found dead: ``ready`` boots it again."""

    async def release(self, tell: Tell) -> None:
        """Called at the end of the experiment: restore the machine."""


class AsItIs:
    """A machine that is never booted."""

    accel = ""
    name = ""
    boots = False

    def __init__(self, spec: TargetSpec) -> None:
        self._spec = spec

    def must_boot(self, boot: Boot | None) -> bool:
        return False

    async def ready(self, boot: Boot | None, tell: Tell) -> TargetSpec:
        return self._spec

    def died(self) -> None:
        """Nothing to do: headrace does not boot this machine."""

    async def release(self, tell: Tell) -> None:
        """Nothing to do: nothing was changed."""


class VirtualMachine:
    """A virtual machine of this experiment; a later run finds it by name and reuses it."""

    boots = True

    def __init__(self, name: str, owner: str, table: MachineTable) -> None:
        self.name = name
        self.accel = ""
        self._owner = owner
        self._table = table
        self._vm: vm.Vm | None = None

    def must_boot(self, boot: Boot | None) -> bool:
        return self._vm is None or boot not in (None, _boot_of(self._vm.spec))

    async def ready(self, boot: Boot | None, tell: Tell) -> TargetSpec:
        if boot is None:
            raise PlanError("machine.kernel: a virtual machine needs one", hint='[machine] kernel = "6.12"')
        for is_last in (False, True):
            try:
                self._vm = await self._with(boot, tell)
                break
            except TargetError as error:
                # A virtual machine that did not come up is removed; the next one is new.
                self._vm = None
                tell(error.message)
                if is_last:
                    reason = error.message.strip().partition("\n")[0]
                    raise TreatmentFailed(f"kernel {boot} does not come up: {reason}") from error
                # The cause may be the local machine, for example a lack of memory.
                tell(f"kernel {boot} did not come up: trying again")
        assert self._vm is not None
        self.accel = self._vm.accel
        return self._vm.target

    async def _with(self, boot: Boot, tell: Tell) -> vm.Vm:
        """The running machine, booted so, of this run or of a killed one; or a new one."""
        running = vm.find(self.name)
        wanted = self._spec(_boot_of(running.spec) if running else boot)
        machine = await vm.up(wanted, tell, owner=self._owner)
        if _boot_of(machine.spec) != boot:
            await machine.reboot(boot.kernel, tell, arguments=boot.arguments)
        return machine

    def _spec(self, boot: Boot) -> vm.VmSpec:
        table = self._table
        disk = vm.DiskSpec(
            size_bytes=size_in_bytes(table.disk_size), queues=table.disk_queues, iops=table.disk_iops
        )
        return vm.VmSpec(
            name=self.name,
            kernel=boot.kernel,
            arguments=boot.arguments,
            cpus=table.cpus,
            memory_bytes=size_in_bytes(table.memory),
            disks=(disk,) * table.disks,
            nic_queues=table.nic_queues,
        )

    def died(self) -> None:
        self._vm = None

    async def release(self, tell: Tell) -> None:
        if self._table.keep and self._vm is not None:
            tell(f"machine {self.name} keeps running: `headrace lab down {self.name}` stops it")
            return
        await vm.down(self.name)
        self._vm = None


def _boot_of(spec: vm.VmSpec) -> Boot:
    return Boot(spec.kernel, spec.arguments)


def vm_name(name: str, design_hash: str, folder: Path) -> str:
    """Derived from the experiment's name and folder: the same for each of its runs, and unique to it."""
    place = hashlib.sha256(f"{design_hash} {folder.absolute()}".encode()).hexdigest()
    return f"{re.sub('[^a-z0-9]+', '-', name.lower())[:22].strip('-')}-{place[:8]}"


def open_machine(design: Design, folder: Path) -> Machine:
    """The machine of a plan, not yet booted."""
    table = design.machine or MachineTable()
    if design.target.address == VM:
        return VirtualMachine(vm_name(design.name, design.hash, folder), str(folder.absolute()), table)
    spec = target_spec(design.target)
    if any(design.boot_of(treatment) for treatment in design.treatments):
        return RebootedHost(spec, table)
    return AsItIs(spec)


def target_spec(table: TargetTable) -> TargetSpec:
    """The address of the plan's target; not for a virtual machine, which has one only while it runs."""
    return TargetSpec.parse(table.address, **table.login)


def reached(folder: ExperimentFolder) -> TargetSpec | None:
    """The current address of an experiment's machine; None for a virtual machine that is not running."""
    design = folder.design
    if design.target.address == VM:
        running = vm.find(vm_name(design.name, design.hash, folder.path))
        return running.target if running else None
    return target_spec(design.target)


async def is_there(spec: TargetSpec, boot: str) -> bool:
    """Whether the host still answers and was not rebooted since; a ``boot`` of "" is unknown."""
    target = open_target(spec)
    try:
        async with asyncio.timeout(SIGN_OF_LIFE_S):
            await target.connect()
            return await boot_id(target) == boot or not boot
    except (TimeoutError, HeadraceError, OSError):
        return False
    finally:
        await target.close()
