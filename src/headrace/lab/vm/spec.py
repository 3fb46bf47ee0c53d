"""The specification of a virtual machine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from headrace.base.errors import PlanError

__all__ = ["DiskSpec", "VmSpec", "check_arguments", "size_of"]

MIB = 1 << 20
#: The name is used for a namespace, a folder and a host.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
#: Each disk and each network card takes one of the 32 slots of the PCI bus.
MOST_DISKS = 24
#: Linux's own limit of queues of a tap device (MAX_TAP_QUEUES in drivers/net/tap.c).
MOST_NIC_QUEUES = 256
#: The guest's programs and mariadbd do not start with less.
LEAST_MEMORY_BYTES = 256 * MIB
SECTOR_BYTES = 512
#: Arguments that find the root, start init and end QEMU after a panic. Those of the guest's init have a prefix.
OURS = (
    "root", "rootwait", "rootfstype", "rootflags", "rw", "ro", "init", "rdinit", "initrd", "console", "panic",
)  # fmt: skip
#: The kernel takes 2,048 bytes, of which ours are some 300.
MOST_ARGUMENTS = 1_024


@dataclass(frozen=True)
class DiskSpec:
    """A data disk, ``/dev/disk/by-id/virtio-dataN`` in the guest, N from 0.

    ``queues`` of 0 means one per CPU; ``iops`` and ``bytes_s`` of 0 mean no limit.
    """

    size_bytes: int = 1 << 30
    queues: int = 0
    iops: int = 0
    bytes_s: int = 0


@dataclass(frozen=True)
class VmSpec:
    """A machine. ``kernel`` is a version as ``6.12``, or the path of a kernel: see ``headrace.lab.vm.kernels``.
    ``arguments`` are added to its command line.

    With more than one of ``nic_queues`` the guest has a second network card, a multi-queue one, in a network
    namespace of its own.
    """

    name: str
    kernel: str = "6.12"
    cpus: int = 2
    memory_bytes: int = 2 << 30
    disks: tuple[DiskSpec, ...] = ()
    nic_queues: int = 1
    arguments: str = ""

    def check(self) -> None:
        """Raise PlanError for a spec that QEMU cannot run."""
        place = f"machine {self.name!r}"
        if not NAME.fullmatch(self.name):
            raise PlanError("the name must be 1 to 32 of a-z, 0-9 and -", place=place)
        if not self.kernel.strip():
            raise PlanError("no kernel is named", place=place, hint='as in kernel = "6.12"')
        for what, value, least, most in (
            ("cpus", self.cpus, 1, 255),
            ("nic_queues", self.nic_queues, 1, MOST_NIC_QUEUES),
            ("number of disks", len(self.disks), 0, MOST_DISKS),
            ("memory_bytes", self.memory_bytes, LEAST_MEMORY_BYTES, 1 << 44),
        ):
            if not least <= value <= most:
                raise PlanError(f"{what} is {value:,}: must be {least:,} to {most:,}", place=place)
        check_arguments(self.arguments, place)
        for number, disk in enumerate(self.disks):
            _check_disk(disk, f"{place}, disk {number}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> VmSpec:
        """Raises KeyError, TypeError or ValueError if it is not a spec."""
        disks = tuple(DiskSpec(**disk) for disk in content["disks"])
        return VmSpec(**{**content, "disks": disks})


def check_arguments(text: str, place: str) -> None:
    """Raise PlanError for arguments without which the machine could not boot, or that are none."""
    if len(text) > MOST_ARGUMENTS or not text.isascii() or not text.isprintable() or '"' in text:
        raise PlanError(
            f"the arguments must be printable ASCII without quotes, at most {MOST_ARGUMENTS:,} characters",
            place=place,
        )
    for word in text.split():
        name = word.partition("=")[0]
        if name in OURS or name.startswith("headrace_") or word == "--":
            raise PlanError(f"the argument {word} is the machine's own", place=place)


def size_of(text: str, what: str) -> int:
    """``1.5G`` -> bytes; powers of 1024. Raises PlanError, which calls it ``what``."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise PlanError(f"{what} = {text!r}: must be a number with K, M, G or T, such as 4G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _check_disk(disk: DiskSpec, place: str) -> None:
    if disk.size_bytes < MIB or disk.size_bytes % SECTOR_BYTES:
        raise PlanError(
            f"the size is {disk.size_bytes:,} bytes: must be 1 MiB or more, in whole sectors of 512",
            place=place,
        )
    for what, value in (("queues", disk.queues), ("iops", disk.iops), ("bytes_s", disk.bytes_s)):
        if value < 0:
            raise PlanError(f"{what} is {value}: must not be negative", place=place)
    if disk.queues > 1024:
        raise PlanError(f"queues is {disk.queues}: virtio has at most 1,024", place=place)
