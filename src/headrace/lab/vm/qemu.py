"""QEMU's arguments, and whether this machine's KVM truly works."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.errors import CommandFailed
from headrace.host.target import Target
from headrace.lab.vm.cache import folder
from headrace.lab.vm.image import DISK_ID
from headrace.lab.vm.kernels import Kernel
from headrace.lab.vm.processes import MARK, boot_id
from headrace.lab.vm.spec import VmSpec

__all__ = ["Accel", "Boot", "accelerator", "argv"]

Accel = Literal["kvm", "tcg"]
PROGRAM = "qemu-system-x86_64"
#: What the probe's code writes to QEMU's exit port; the exit code is twice that and one.
PROBE_VALUE = 0x2A
PROBE_EXIT = PROBE_VALUE * 2 + 1
PROBE_S = 10.0
#: The unpacked guest code that an emulated CPU keeps, MiB. QEMU's own choice, 1 GiB, is too much for small hosts.
TCG_CODE_MIB = 256


@dataclass(frozen=True)
class Boot:
    """Parameters of one start of QEMU in addition to the spec.

    ``folder`` is the machine's, ``port`` the local port of its sshd.
    """

    spec: VmSpec
    kernel: Kernel
    folder: Path
    port: int
    accel: Accel
    machine_id: str
    address: str = ""


async def accelerator(host: Target, place: Path) -> Accel:
    """``kvm`` if a guest really runs under it: tests three instructions that make QEMU exit.

    ``place`` is a folder for their file.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK) or _failed().exists():
        return "tcg"
    # A CPU starts 16 bytes before the end of its firmware: mov al, value; out 0xf4, al; hlt.
    firmware = bytearray(b"\xf4" * 0x10000)
    firmware[0xFFF0:0xFFF5] = bytes((0xB0, PROBE_VALUE, 0xE6, 0xF4, 0xF4))
    path = place / "probe.bin"
    path.write_bytes(firmware)
    probe = [PROGRAM, "-accel", "kvm", "-cpu", "host", "-machine", "q35", "-m", "16M", "-nodefaults"]
    probe += [
        "-no-user-config",
        "-display",
        "none",
        "-bios",
        str(path),
        "-device",
        "isa-debug-exit,iobase=0xf4,iosize=0x04",
    ]
    try:
        answer = await host.run(probe, env={MARK: str(place)}, check=False, timeout_s=PROBE_S)
    except CommandFailed:
        return "tcg"  # it hangs: the machine offers KVM and cannot run it
    finally:
        path.unlink()
    return "kvm" if answer.exit_code == PROBE_EXIT else "tcg"


def remember_that_kvm_fails() -> None:
    """Remember until this machine's next boot that KVM passes the probe but cannot run a kernel."""
    for older in folder().glob(".kvm-failed-*"):
        older.unlink()
    _failed().touch()


def _failed() -> Path:
    return folder() / f".kvm-failed-{boot_id()}"


def argv(boot: Boot) -> list[str]:
    """The command line of QEMU."""
    spec = boot.spec
    words = [PROGRAM, "-name", f"headrace-{spec.name}", "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-machine", "q35,vmport=off", "-no-reboot", "-rtc", "base=utc"]
    if boot.accel == "kvm":
        words += ["-accel", "kvm", "-cpu", "host"]
    else:
        # With a thread per CPU one may run the breakpoint that another writes while the kernel patches itself
        # (static keys): "Oops: int3", a panic, seen on a busy host.
        # With a single thread QEMU leaves out the guest's memory barriers. Its devices still have threads of their
        # own: on another CPU one may miss a request that was just queued, and a virtio disk waits for it for ever.
        # On one CPU, all threads see stores in order, so QEMU is pinned to one: ``machine._own_cpu``.
        words += ["-accel", f"tcg,thread=single,tb-size={TCG_CODE_MIB}", "-cpu", "max"]
    words += ["-smp", str(spec.cpus), "-m", f"{spec.memory_bytes >> 20}M"]
    words += ["-serial", f"file:{escaped(boot.folder / 'console.log')}", "-monitor", "none"]
    words += ["-kernel", str(boot.kernel.image), "-append", command_line(boot)]
    words += _system_disks(boot)
    for number in range(len(spec.disks)):
        words += _data_disk(boot, number)
    forward = f"hostfwd=tcp:127.0.0.1:{boot.port}-:22"
    # Restricted: the guest reaches neither the network nor the services of this machine.
    words += ["-netdev", f"user,id=net0,restrict=on,ipv6=off,{forward}"]
    words += ["-device", "virtio-net-pci,netdev=net0,romfile="]
    if spec.nic_queues > 1:
        # Each queue has an interrupt each way, and there are two for the card itself.
        words += ["-netdev", "tap,id=net1,fds=@TAP@"]
        words += ["-device", f"virtio-net-pci,netdev=net1,mq=on,vectors={2 * spec.nic_queues + 2},romfile="]
    return [*words, "-device", "virtio-rng-pci"]


def command_line(boot: Boot) -> str:
    """The kernel's. What has no dot in its name and no meaning for the kernel reaches the guest's init."""
    disks = "/dev/nvme0n1,/dev/nvme0n2" if boot.kernel.root_driver == "nvme" else "/dev/vda,/dev/vdb"
    words = [
        f"root=PARTUUID={DISK_ID:08x}-01",
        "rootwait",
        "rw",
        "rootfstype=ext4",
        "init=/sbin/headrace-init",
    ]
    # Each line on a serial console costs an emulated CPU a millisecond; a panic ends QEMU, and is seen so.
    words += ["console=ttyS0", "loglevel=4", "panic=-1", "net.ifnames=0", "nokaslr"]
    if boot.accel == "tcg":
        # A busy host lets the check of the timer fail, a panic; self-tests take a second of every boot.
        words += ["no_timer_check", "cryptomgr.notests"]
    words += [f"headrace_name={boot.spec.name}", f"headrace_disks={disks}"]
    words += [f"headrace_id={boot.machine_id}"]
    if boot.address:
        words.append(f"headrace_address={boot.address}")
    return " ".join([*words, *boot.spec.arguments.split()])


def _system_disks(boot: Boot) -> list[str]:
    # Flushes of the root are not waited for: it never outlives its QEMU.
    root = (
        f"if=none,id=root,format=qcow2,cache=unsafe,discard=unmap,file={escaped(boot.folder / 'root.qcow2')}"
    )
    modules = f"if=none,id=modules,format=raw,readonly=on,file={escaped(boot.kernel.modules)}"
    words = ["-drive", root, "-drive", modules]
    if boot.kernel.root_driver == "nvme":
        words += ["-device", "nvme,id=system,serial=headrace-system"]
        words += ["-device", "nvme-ns,drive=root,bus=system,nsid=1"]
        return [*words, "-device", "nvme-ns,drive=modules,bus=system,nsid=2"]
    for drive in ("root", "modules"):
        words += ["-device", f"virtio-blk-pci,drive={drive},serial={drive}"]
    return words


def _data_disk(boot: Boot, number: int) -> list[str]:
    disk, name = boot.spec.disks[number], f"data{number}"
    path = boot.folder / f"{name}.img"
    drive = f"if=none,id={name},format=raw,discard=unmap,file={escaped(path)}"
    # Past this machine's page cache, so that a disk in the guest is as slow as the disk below it.
    drive += ",cache=none,aio=native" if takes_direct_io(path) else ",cache=writeback"
    if disk.iops:
        drive += f",throttling.iops-total={disk.iops}"
    if disk.bytes_s:
        drive += f",throttling.bps-total={disk.bytes_s}"
    device = f"virtio-blk-pci,drive={name},serial={name},iothread=io{number}"
    if disk.queues:
        device += f",num-queues={disk.queues}"
    return ["-object", f"iothread,id=io{number}", "-drive", drive, "-device", device]


def takes_direct_io(path: Path) -> bool:
    """tmpfs and a few others do not."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return False
    return True


def escaped(path: Path) -> str:
    """A path within an option, where a comma ends a value."""
    return str(path).replace(",", ",,")
