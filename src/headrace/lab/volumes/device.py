"""The interface of a kind of block device, and the site where one is built.

A new kind is one file with a ``DeviceKind`` and one line in ``volumes.DEVICES``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.base.errors import NotReady
from headrace.base.model import OWNER_VARIABLE, Tool
from headrace.host.agent import Journal
from headrace.host.target import Completed, Target

#: mkfs on a slow device may write for minutes.
PATIENCE_S = 900.0


@dataclass(frozen=True)
class Raid:
    """How several devices become one. 0 or empty: not set.

    ``level`` is 0, 1, 10, 5 or 6; ``chunk_bytes`` the bytes on one device before the next one's turn; ``bitmap``
    ``internal`` or ``none``; ``stripe_cache`` in stripes, of level 5 and 6; ``initial_sync`` ``wait`` or
    ``assume-clean``.
    """

    level: int
    chunk_bytes: int = 0
    bitmap: str = ""
    stripe_cache: int = 0
    initial_sync: str = ""


@dataclass(frozen=True)
class DeviceSpec:
    """The device of a volume.

    ``size_bytes`` is the size of a loop or zram device; of a ``block`` device, the least it must have. ``id`` is
    the stable name of a ``block`` device, ``/dev/disk/by-id/...``. ``parents`` are the devices that a kind such as
    md is made of, as ``raid`` says.
    """

    kind: str
    size_bytes: int
    id: str
    parents: tuple[DeviceSpec, ...] = ()
    raid: Raid | None = None


@dataclass(frozen=True)
class Stripe:
    """An array's geometry for the file system: the bytes of a chunk, and of a full stripe's data."""

    unit_bytes: int
    width_bytes: int


@dataclass(frozen=True)
class Device:
    """A block device in use until the journal is rolled back.

    ``uuid``, if set, must be its file system's, so that only a volume of headrace is ever wiped. ``discard`` says
    whether making a file system may discard the device's content first. ``members`` are the paths of what it is
    made of, whose queues hold the requests; ``others`` those that a file system over several devices takes beside
    ``path``, and ``mkfs_options`` what makes it use them.
    """

    path: str
    uuid: str = ""
    discard: bool = True
    members: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    mkfs_options: tuple[str, ...] = ()
    stripe: Stripe | None = None

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
        """Run a command that a rollback can find and kill if this process is killed meanwhile."""
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
        """The programs it needs, in addition to those of the file system."""

    def check(self, spec: DeviceSpec) -> None:
        """Raise PlanError or Refused for errors that do not depend on the host."""

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        """Build the device, each step journaled before it is done; the rollback undoes it.

        Raises Refused, DiskFull, NotReady, CommandFailed.
        """


def size_text(size_bytes: int) -> str:
    """``1.5 GiB``, for messages."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
