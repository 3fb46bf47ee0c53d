"""A virtual machine's lifecycle, robust against killed processes.

Everything of a machine is in one folder. Its state is written before each step that leaves something behind, so
that the next process can reuse the machine or remove all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from headrace.base.errors import Busy, DiskFull, HeadraceError, NotReady, TargetError
from headrace.host.target import Target, TargetSpec, open_target, to_the_end
from headrace.host.target.local import LocalTarget
from headrace.lab.vm import image as images
from headrace.lab.vm import kernels, processes, qemu, state
from headrace.lab.vm.cache import Tell, locked, require_programs
from headrace.lab.vm.spec import VmSpec

__all__ = ["Vm", "down", "find", "running", "up"]

T = TypeVar("T")
#: How long to wait for another process that works on the machine: it may be building the root image.
LOCK_PATIENCE_S = 2400.0
#: From QEMU's start to the guest's init, and from there to the first login. An emulated CPU on a busy host takes
#: many times its usual 10 s; if KVM cannot actually run a guest, all of it would be wasted.
KERNEL_PATIENCE_S = {"kvm": 20.0, "tcg": 300.0}
LOGIN_PATIENCE_S = {"kvm": 60.0, "tcg": 300.0}
HALT_PATIENCE_S = 60.0
#: There is no network between here and a guest: one that stops answering has died.
RECONNECT_S = 20.0
PORT_TRIES = 5
POLL_S = 0.05
#: Message of the guest's init on its console.
KERNEL_IS_UP = b"headrace: the kernel is up"
SSHD_STARTS = b"headrace: sshd starts"
#: Space that must remain free when the data disks are full.
SPARE_BYTES = 1 << 30
TAIL_BYTES = 2000
INTERFACE = "tap0"
HOST_ADDRESS, GUEST_ADDRESS = "10.73.0.1/24", "10.73.0.2/24"


class Vm:
    """A running machine. ``target`` may change with a reboot, because another program may have taken its port."""

    def __init__(self, record: state.Record) -> None:
        self._record = record

    @property
    def name(self) -> str:
        return self._record.spec.name

    @property
    def spec(self) -> VmSpec:
        """Its current spec, with the kernel of its last boot."""
        return self._record.spec

    @property
    def owner(self) -> str:
        return self._record.owner

    @property
    def accel(self) -> qemu.Accel:
        """With ``tcg`` the CPU is emulated: results show a direction, never a size."""
        return self._record.accel

    @property
    def release(self) -> str:
        """The kernel's release, as ``uname -r`` prints it in the guest."""
        return self._record.release

    @property
    def steps(self) -> tuple[tuple[str, float], ...]:
        """The steps of its last start, with their seconds."""
        return self._record.steps

    @property
    def target(self) -> TargetSpec:
        return _target_of(self._record)

    async def down(self, tell: Tell = lambda _: None) -> None:
        """Stop it and remove everything of it; does nothing if it is already gone."""
        await down(self.name, tell)

    async def reboot(self, kernel: str, tell: Tell, *, arguments: str | None = None) -> None:
        """Halt it and boot this kernel, with the same arguments if there are no others; the root and the disks are
        kept.

        Raises like ``up``; if the new kernel does not come up, the machine is removed.
        """
        place = state.machine_folder(self.name)
        steps = Steps(tell)
        host = LocalTarget()
        own = self.spec.arguments if arguments is None else arguments
        spec = replace(self.spec, kernel=kernel, arguments=own)
        spec.check()
        async with locked(place, f"machine {self.name}", tell, LOCK_PATIENCE_S):
            record = state.read(place)
            if record is None or not record.alive or record.machine_id != self._record.machine_id:
                await _remove_empty(place)
                raise TargetError(
                    "the machine is gone", place=self.name, hint="`headrace lab up` starts a new one"
                )
            if _is_outdated(record):
                hint = f"`headrace lab down {self.name}`, then up"
                raise TargetError(
                    "the machine belongs to another version of headrace", place=self.name, hint=hint
                )
            found = await steps.take(f"kernel {kernel}", kernels.kernel_of(host, kernel, tell))
            try:
                await steps.take("halting", _halt(record, tell))
                _keep_console(place)
                record = replace(record, spec=spec, phase="booting", release=found.release, pid=0)
                self._record = await _boot(host, place, record, found, steps)
            except BaseException:
                await to_the_end(_remove(host, place))
                raise


async def up(spec: VmSpec, tell: Tell, *, owner: str = "", accel: qemu.Accel | None = None) -> Vm:
    """A machine as the spec says, which answers over ssh.

    A running one of that name is reused. ``owner`` is usually an experiment's folder: only the same owner reuses
    it. ``accel`` forces one; by default KVM is used if available. Raises Busy if the running one has another owner
    or spec, PlanError, NotReady, DiskFull, TargetError; a machine that did not come up is removed completely.
    """
    spec.check()
    place = state.machine_folder(spec.name)
    host = LocalTarget()
    async with locked(place, f"machine {spec.name}", tell, LOCK_PATIENCE_S):
        record = state.read(place)
        if record is not None and record.phase == "running" and record.alive:
            if not (owner and owner == record.owner and _is_outdated(record)):
                return _taken_over(record, spec, owner, tell)
            tell(f"machine {spec.name} belongs to another version of headrace: starting a new one")
        elif any(place.iterdir()) or spec.name in state.namespaces():
            tell(f"removing the remains of machine {spec.name}, which no longer runs")
        try:
            await _clear(host, place)
            return Vm(await _create(host, place, spec, owner, accel, Steps(tell)))
        except BaseException:
            await to_the_end(_remove(host, place))
            raise


def find(name: str) -> Vm | None:
    """The machine of that name, if it runs."""
    record = state.read(state.machine_folder(name))
    return Vm(record) if record is not None and record.phase == "running" and record.alive else None


def running() -> list[Vm]:
    """All machines that run, by name."""
    found = [status.record for status in state.statuses() if status.state == "running"]
    return [Vm(record) for record in found if record is not None]


async def down(name: str, tell: Tell = lambda _: None) -> bool:
    """Stop the machine, and remove its files and its namespace. False if there was none."""
    place = state.machine_folder(name)
    if not place.exists() and name not in state.namespaces():
        return False
    async with locked(place, f"machine {name}", tell, LOCK_PATIENCE_S):
        await to_the_end(_remove(LocalTarget(), place))
    return True


@dataclass
class Steps:
    """Reports each step, and records how long it took."""

    tell: Tell
    taken: tuple[tuple[str, float], ...] = ()

    async def take(self, what: str, work: Awaitable[T]) -> T:
        start = time.monotonic()
        result = await work
        took_s = time.monotonic() - start
        self.taken = (*self.taken, (what, round(took_s, 3)))
        self.tell(f"{what}: {took_s:.1f} s")
        return result


def _is_outdated(record: state.Record) -> bool:
    """Whether its root is from another version, in which kernels may find the root differently."""
    return record.image != images.current().key


def _taken_over(record: state.Record, spec: VmSpec, owner: str, tell: Tell) -> Vm:
    if record.owner != owner:
        whose = f"belongs to {record.owner}" if record.owner else "was started by hand"
        raise Busy(
            f"machine {spec.name} runs and {whose}",
            place=f"QEMU {record.pid}",
            hint=f"`headrace lab down {spec.name}`, or another name",
        )
    if record.spec != spec:
        ours, theirs = spec.as_json(), record.spec.as_json()
        other = ", ".join(
            f"{key} is {theirs[key]}, asked for {ours[key]}" for key in ours if ours[key] != theirs[key]
        )
        raise Busy(
            f"machine {spec.name} runs with another spec: {other}",
            place=f"QEMU {record.pid}",
            hint=f"`headrace lab down {spec.name}`, or another name",
        )
    tell(f"machine {spec.name} is already running: reusing it")
    return Vm(record)


async def _create(
    host: Target, place: Path, spec: VmSpec, owner: str, accel: qemu.Accel | None, steps: Steps
) -> state.Record:
    await require_programs(host, "qemu-system-x86_64", "qemu-img", *(["ip"] if spec.nic_queues > 1 else []))
    if spec.nic_queues > 1 and not host.is_root:
        raise NotReady(
            "several queues of a network card need a tap device, and that needs root",
            place=f"machine {spec.name}",
            hint="nic_queues = 1, or run as root",
        )
    _check_room(place, spec)
    kernel = await steps.take(f"kernel {spec.kernel}", kernels.kernel_of(host, spec.kernel, steps.tell))
    root = await steps.take("root image", images.root_image(host, steps.tell))
    probed: qemu.Accel = (
        await steps.take("probing KVM", qemu.accelerator(host, place)) if accel is None else accel
    )
    record = state.Record(
        spec=spec,
        phase="booting",
        owner=owner,
        release=kernel.release,
        image=root.key,
        accel=probed,
        port=0,
        machine_id=secrets.token_hex(16),
        namespace=state.namespace_of(spec.name) if spec.nic_queues > 1 else "",
        started_at=time.time(),
    )
    state.write(place, record)
    backing = ["-b", str(root.root), "-F", "raw", str(place / "root.qcow2")]
    await host.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing])
    for number, disk in enumerate(spec.disks):
        with (place / f"data{number}.img").open("wb") as file:
            file.truncate(disk.size_bytes)
    if record.namespace:
        await _make_namespace(host, record.namespace)
    try:
        return await _boot(host, place, record, kernel, steps)
    except _KernelSilent as error:
        if record.accel == "tcg" or accel is not None:
            raise
        steps.tell(f"KVM cannot run this kernel, so the CPU is emulated: {error.message.splitlines()[0]}")
    await processes.end_marked(place)
    record = await _boot(host, place, replace(record, accel="tcg"), kernel, steps)
    qemu.remember_that_kvm_fails()
    return record


def _check_room(place: Path, spec: VmSpec) -> None:
    free = shutil.disk_usage(place).free
    wanted = sum(disk.size_bytes for disk in spec.disks) + SPARE_BYTES
    if free < wanted:
        raise DiskFull(
            f"{free / 2**30:.1f} GiB are free; its disks and 1 GiB to spare are {wanted / 2**30:.1f}",
            place=str(place),
            hint="use smaller disks, or set XDG_CACHE_HOME to a larger one",
        )


async def _make_namespace(host: Target, namespace: str) -> None:
    await host.run(["ip", "netns", "add", namespace])
    tuntap = ["tuntap", "add", "dev", INTERFACE, "mode", "tap", "multi_queue", "vnet_hdr"]
    for words in (
        tuntap,
        ["address", "add", HOST_ADDRESS, "dev", INTERFACE],
        ["link", "set", INTERFACE, "up"],
        ["link", "set", "lo", "up"],
    ):
        await host.run(["ip", "-n", namespace, *words])


async def _boot(
    host: Target, place: Path, record: state.Record, kernel: kernels.Kernel, steps: Steps
) -> state.Record:
    """Start QEMU and wait until the guest accepts a login.

    The port of an earlier boot is kept if it is still free.
    """
    for left in reversed(range(PORT_TRIES)):
        record = replace(record, port=_free_port(record.port))
        start = time.monotonic()
        state.write(place, record)
        record = await _start_qemu(host, place, record, kernel)
        state.write(place, record)
        try:
            await _wait_for_guest(place, record, kernel, steps)
            break
        except _PortTaken:
            if not left:
                raise TargetError("no free port for its sshd was found", place=record.spec.name) from None
            record = replace(record, port=0)
    steps.taken = (*steps.taken, ("boot to ssh", round(time.monotonic() - start, 3)))
    record = replace(record, phase="running", steps=steps.taken)
    state.write(place, record)
    return record


async def _start_qemu(
    host: Target, place: Path, record: state.Record, kernel: kernels.Kernel
) -> state.Record:
    address = GUEST_ADDRESS if record.namespace else ""
    boot = qemu.Boot(record.spec, kernel, place, record.port, record.accel, record.machine_id, address)
    argv = qemu.argv(boot)
    if record.accel == "tcg":
        argv = ["taskset", "-c", str(_own_cpu()), *argv]
    if record.namespace:
        tap = Path(__file__).with_name("tap.py")
        argv = [sys.executable, str(tap), record.namespace, INTERFACE, str(record.spec.nic_queues), *argv]
    (place / "known_hosts").write_text(
        images.Image(record.image, images.current().folder.with_name(record.image)).known_host(record.port)
    )
    (place / "console.log").write_bytes(b"")
    log = str(place / "qemu.log")
    process = await host.spawn(
        argv, env={processes.MARK: str(place)}, stdout_path="/dev/null", stderr_path=log, detached=True
    )
    try:
        start_ticks, boot_id = processes.identity(process.pid)
    except ProcessLookupError:
        start_ticks, boot_id = 0, ""  # it ended immediately; the wait for its console reports why
    return replace(record, pid=process.pid, start_ticks=start_ticks, boot_id=boot_id)


def _own_cpu() -> int:
    """The CPU for an emulated machine: the one with the fewest other machines pinned to it.

    All threads of such a QEMU must share one CPU: see ``qemu.argv``.
    """
    others = Counter[int]()
    for status in state.statuses():
        if status.record is not None and status.record.alive:
            with contextlib.suppress(OSError):
                cpus = os.sched_getaffinity(status.record.pid)
                others.update(cpus if len(cpus) == 1 else ())
    return min(os.sched_getaffinity(0), key=lambda cpu: (others[cpu], -cpu))


class _PortTaken(Exception):
    """Another program took the port between the check and QEMU's start."""


class _KernelSilent(TargetError):
    """QEMU ended, or kept running, without output of the guest's kernel."""


async def _wait_for_guest(place: Path, record: state.Record, kernel: kernels.Kernel, steps: Steps) -> None:
    name = f"machine {record.spec.name}"
    kernel_s, login_s = KERNEL_PATIENCE_S[record.accel], LOGIN_PATIENCE_S[record.accel]
    try:
        async with asyncio.timeout(kernel_s):
            await steps.take("kernel boots", _console_says(place, record, KERNEL_IS_UP))
    except TimeoutError:
        text = f"its kernel was not up after {kernel_s:g} s{_console_end(place)}"
        raise _KernelSilent(text, place=name) from None
    except TargetError as error:
        raise _KernelSilent(error.message, place=name) from None
    try:
        async with asyncio.timeout(login_s):
            await steps.take("init", _console_says(place, record, SSHD_STARTS))
            release = await steps.take("first login", _first_login(place, record))
    except TimeoutError:
        text = f"no login within {login_s:g} s of its kernel's start{_console_end(place)}"
        raise TargetError(text, place=name) from None
    if release != kernel.release:
        raise TargetError(f"kernel {release} came up instead of {kernel.release}", place=record.spec.name)


def _keep_console(place: Path) -> None:
    """Add what the boot that ends has said to that of those before it: an Oops is looked for later."""
    with (
        contextlib.suppress(FileNotFoundError),
        (place / "console.log").open("rb") as said,
        (place / "console.old.log").open("ab") as old,
    ):
        shutil.copyfileobj(said, old)


async def _console_says(place: Path, record: state.Record, words: bytes) -> None:
    while words not in (place / "console.log").read_bytes():
        if not record.alive:
            raise _why_ended(place, record)
        await asyncio.sleep(POLL_S)


async def _first_login(place: Path, record: state.Record) -> str:
    """Wait for sshd; returns the guest's kernel release."""
    while True:
        target = open_target(_target_of(record))
        try:
            await target.connect()
        except TargetError:
            if not record.alive:
                raise _why_ended(place, record) from None
            await asyncio.sleep(POLL_S)
            continue
        try:
            return (await target.run(["uname", "-r"])).text.strip()
        finally:
            await target.close()


def _why_ended(place: Path, record: state.Record) -> Exception:
    words = _tail(place / "qemu.log")
    if "host forwarding rule" in words:
        return _PortTaken()
    text = f"QEMU ended: {words or 'no output'}{_console_end(place)}"
    return TargetError(text, place=f"machine {record.spec.name}")


def _console_end(place: Path) -> str:
    words = _tail(place / "console.log")
    return f"; its console ends:\n{words}" if words else "; its console is silent"


def _tail(path: Path) -> str:
    """The end of a log, starting at a complete line."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return (text.partition("\n")[2] if size > TAIL_BYTES else text).strip()


def _free_port(wanted: int) -> int:
    """A free port of 127.0.0.1, this one if possible (0: any)."""
    with socket.socket() as probe:
        # Like QEMU: closed connections of the last boot do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _target_of(record: state.Record) -> TargetSpec:
    root = images.current().folder.with_name(record.image)
    return TargetSpec(
        "ssh",
        host="127.0.0.1",
        port=record.port,
        user="root",
        identity_file=str(root / "id"),
        known_hosts=str(state.machine_folder(record.spec.name) / "known_hosts"),
        reconnect_s=RECONNECT_S,
    )


async def _halt(record: state.Record, tell: Tell) -> None:
    """Let the guest flush its data; a guest that does not answer is killed."""
    target = open_target(_target_of(record))
    try:
        async with asyncio.timeout(HALT_PATIENCE_S):
            await target.connect()
            # Its init halts the machine after a delay, so that this connection closes first.
            halt = "(sleep 0.2; kill -TERM 1) </dev/null >/dev/null 2>&1 &"
            await target.run(["setsid", "sh", "-c", halt])
            await target.close()
            await _end_of(record)
    except (TimeoutError, HeadraceError) as error:
        tell(f"the guest did not halt ({error or 'no answer'}): its QEMU is ended")
        await processes.end([record.pid])


async def _end_of(record: state.Record) -> None:
    while record.alive:  # noqa: ASYNC110 -- it may be another process's child
        await asyncio.sleep(POLL_S)


async def _clear(host: Target, place: Path) -> None:
    """Kill every process of the machine, and remove everything except its folder."""
    await processes.end_marked(place)
    namespace = state.namespaces().get(place.name)
    if namespace:
        await host.run(["ip", "netns", "delete", namespace])
    for entry in place.iterdir():
        entry.unlink()


async def _remove(host: Target, place: Path) -> None:
    await _clear(host, place)
    await _remove_empty(place)


async def _remove_empty(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.rmdir()
