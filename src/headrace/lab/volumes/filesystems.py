"""The file systems a volume can carry: one record each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.base.model import Tool
from headrace.lab.volumes.device import Device

LABEL = "headrace"


@dataclass(frozen=True)
class Filesystem:
    """How to make one. The tuples are options of its mkfs, in that program's own words.

    ``size`` are those that make it smaller than its device; empty where the size stands after the device.
    ``extended_option`` is an option that counts only once: what the plan writes is joined to ours.
    ``traps`` maps a mount option that once was common to what became of it.
    """

    tool: Tool
    options: tuple[str, ...]
    no_discard: tuple[str, ...]
    uuid: tuple[str, ...]
    size: tuple[str, ...] = ()
    extended_option: str = ""
    traps: Mapping[str, str] = field(default_factory=dict)

    def mkfs_argv(self, device: Device, options: Sequence[str], size_bytes: int = 0) -> list[str]:
        """The command that makes it on ``device``; ``options`` may be words or whole phrases (``-m crc=1``).

        ``size_bytes`` is its own size, where it does not take the whole device.
        """
        words = [*self.options]
        if size_bytes:
            words += [word.format(size_bytes) for word in self.size]
        if not device.discard:
            words += self.no_discard
        if device.uuid:
            words += [word.format(device.uuid) for word in self.uuid]
        words += device.mkfs_options
        for option in options:
            words += shlex.split(option)
        last = [f"{size_bytes // 1024}k"] if size_bytes and not self.size else []
        return [self.tool.program, *_joined(words, self.extended_option), device.path, *device.others, *last]

    def trap(self, mount_options: Sequence[str]) -> str | None:
        """What is known about an option of a mount that failed."""
        for option in mount_options:
            if option.split("=")[0] in self.traps:
                return f"{option}: {self.traps[option.split('=')[0]]}"
        return None


def _joined(words: list[str], option: str) -> list[str]:
    """``-E a -x -Eb`` as ``-x -E a,b``."""
    rest, values = [], []
    remaining = iter(words)
    for word in remaining:
        if option and word.startswith(option):
            values.append(word.removeprefix(option) or next(remaining, ""))
        else:
            rest.append(word)
    return [*rest, option, ",".join(values)] if values else rest


_NO_XFS_BARRIER = "XFS dropped it in Linux 4.19; write barriers are always on"

FILESYSTEMS: Mapping[str, Filesystem] = {
    "xfs": Filesystem(
        tool=Tool("mkfs.xfs", "xfsprogs", ("-V",)),
        options=("-q", "-f", "-L", LABEL),
        no_discard=("-K",),
        uuid=("-m", "uuid={}"),
        size=("-d", "size={}"),
        traps={
            "nobarrier": _NO_XFS_BARRIER,
            "barrier": _NO_XFS_BARRIER,
            "delaylog": "XFS dropped it in Linux 4.0; it is always on",
            "nodelaylog": "XFS dropped it in Linux 4.0",
            "ihashsize": "XFS dropped it in Linux 4.0",
            "osyncisdsync": "XFS dropped it in Linux 4.0",
        },
    ),
    "ext4": Filesystem(
        tool=Tool("mkfs.ext4", "e2fsprogs", ("-V",)),
        # Made lazily, the inode tables would be written in the background, during the trial.
        options=("-q", "-F", "-L", LABEL, "-E", "lazy_itable_init=0,lazy_journal_init=0"),
        no_discard=("-E", "nodiscard"),
        uuid=("-U", "{}"),
        extended_option="-E",
        traps={"delalloc": "ext4 refuses it together with data=journal"},
    ),
    "btrfs": Filesystem(
        tool=Tool("mkfs.btrfs", "btrfs-progs", ("--version",)),
        options=("-q", "-f", "-L", LABEL),
        no_discard=("-K",),
        uuid=("-U", "{}"),
        size=("-b", "{}"),
        traps={"inode_cache": "btrfs dropped it in Linux 5.11"},
    ),
}


def kernel_words(before: str, after: str, filesystem: str, device: str) -> str:
    """What the kernel's log gained, between two prints of it, about a mount; at most four lines."""
    lines = [re.sub(r"^\[[^]]*\]\s*", "", line) for line in after.splitlines()[_common(before, after) :]]
    ours = re.compile(rf"\b{device}\b|^{filesystem}(-fs)?:", re.IGNORECASE)
    return "; ".join([line for line in lines if ours.search(line)][-4:])


def _common(before: str, after: str) -> int:
    """How many lines of ``after`` were the log already; its oldest lines may be gone meanwhile."""
    lines, last = after.splitlines(), before.splitlines()[-1:]
    return len(lines) - lines[::-1].index(last[0]) if last and last[0] in lines else 0
