"""What a kind of block device is to a volume, and the site where one is built.

A new kind is one file with a ``DeviceKind`` and one line in ``volumes.DEVICES``.
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
class Raid:
    """How several devices become one. What is 0 or empty was not asked for.

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
    """What a volume stands on.

    ``size_bytes`` is the size of a loop or zram device; of a ``block`` device, the least it must have.
    ``id`` is the stable name of a ``block`` device, ``/dev/disk/by-id/...``. ``parents`` are the devices that
    a kind such as md is made of, as ``raid`` says.
    """

    kind: str
    size_bytes: int
    id: str
    parents: tuple[DeviceSpec, ...] = ()
    raid: Raid | None = None


@dataclass(frozen=True)
class Stripe:
    """What a file system should know of an array: the bytes of a chunk, and of the data of a whole stripe."""

    unit_bytes: int
    width_bytes: int


@dataclass(frozen=True)
class Device:
    """A block device that is ours until the journal is rolled back.

    ``uuid``, where set, is what its file system must carry, so that only ours is ever wiped. ``discard`` says
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
