"""What a kind of block device is to a volume, and the site where one is built.

A new kind (an md array over ``DeviceSpec.parents``) is one file with a ``DeviceKind`` and one line in
``volumes.DEVICES``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.agent import Journal
from headrace.errors import NotReady
from headrace.model import OWNER_VARIABLE, Tool
from headrace.target import Completed, Target

#: A file system on a slow device writes for minutes while it is made.
PATIENCE_S = 900.0


@dataclass(frozen=True)
class DeviceSpec:
    """What a volume stands on.

    ``size_bytes`` is the size of a loop or zram device; of a ``block`` device, the least it must have.
    ``id`` is the stable name of a ``block`` device, ``/dev/disk/by-id/...``. ``parents`` is for kinds that are
    made of other devices; no such kind is there yet.
    """

    kind: str
    size_bytes: int
    id: str
    parents: tuple[DeviceSpec, ...] = ()


@dataclass(frozen=True)
class Device:
    """A block device that is ours until the journal is rolled back.

    ``uuid``, where set, is what its file system must carry, so that only ours is ever wiped. ``discard`` says
    whether making a file system may discard the device's content first.
    """

    path: str
    uuid: str = ""
    discard: bool = True

    @property
    def kernel_name(self) -> str:
        return self.path.removeprefix("/dev/")


@dataclass(frozen=True)
class Site:
    """Where a volume called ``name`` is built: a folder of a target, with a journal of the volume's own."""

    target: Target
    journal: Journal
    folder: str
    name: str
    warnings: list[str] = field(default_factory=list)

    async def run(self, argv: Sequence[str], *, check: bool = True) -> Completed:
        """Run a command that a rollback finds and ends, should we be killed while it works."""
        mark = {OWNER_VARIABLE: self.journal.owner}
        return await self.target.run(argv, env=mark, check=check, timeout_s=PATIENCE_S)

    async def record(self, *entries: dict[str, str]) -> None:
        """Journal how to undo what comes next."""
        await self.journal.record(list(entries))

    def must_be_root(self, what: str) -> None:
        if not self.target.is_root:
            raise NotReady(f"{what} needs root", place=self.target.name, hint='volume.device = "directory"')


class DeviceKind(Protocol):
    """One way to get a block device."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The programs it needs, beside those of the file system."""

    def check(self, spec: DeviceSpec) -> None:
        """Raise PlanError or Refused for what is wrong whatever the host looks like."""

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        """Make the device, each step journaled before it is done; the rollback is its undoing.

        Raises Refused, DiskFull, NotReady, CommandFailed.
        """


def size_text(size_bytes: int) -> str:
    """``1.5 GiB``, for messages."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
