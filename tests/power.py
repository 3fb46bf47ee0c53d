"""A disk whose power can be cut at any write: what was flushed is there afterwards, of the rest any part.

`qemu-storage-daemon` logs each write and each flush, in the format of the kernel's dm-log-writes. A cut at one of
them is a new image, with all writes up to the last flush before it and some of those behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab import check, exported, loop_device
from tests.waiting import until

SECTOR = 512
MAGIC = 0x6A736677736872
FLUSH, DISCARD = 1, 4
#: File system -> size of its disk, options of mkfs. Nothing is initialised later, which would be logged, too.
KINDS = {
    "ext4": ("64M", ("-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0")),
    "xfs": ("304M", ("-q",)),
    "btrfs": ("256M", ("-q",)),
}


@dataclass(frozen=True)
class Write:
    """Bytes ``data`` at ``offset`` of the disk; a flush has none."""

    offset: int
    data: bytes
    is_flush: bool


class Disk:
    """A file system at ``place`` whose writes are logged for as long as ``running`` lasts."""

    def __init__(self, folder: Path, kind: str) -> None:
        size, options = KINDS[kind]
        self.place, self._image, self._log = folder / "disk", folder / "image", folder / "log"
        self._start, self._cut, self._export = folder / "start", folder / "cut", folder / "export"
        self.place.mkdir()
        check("truncate", "-s", size, self._image)
        check(f"mkfs.{kind}", *options, self._image)
        check("cp", "--sparse=always", self._image, self._start)
        self._log.touch()
        self._export.touch()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        blocks: list[str | Path] = []
        for name, path in (("image", self._image), ("log", self._log)):
            blocks += ["--blockdev", f"driver=file,node-name={name},filename={path}"]
        logs = f"log-sector-size={SECTOR},log-super-update-interval=1"
        blocks += ["--blockdev", f"driver=blklogwrites,node-name=logged,file=image,log=log,{logs}"]
        # With O_DIRECT this export loses parts of writes (QEMU 7.2).
        with exported(blocks, "logged", self._export), self._mounted(self._export):
            yield

    @contextlib.contextmanager
    def _mounted(self, image: Path) -> Iterator[None]:
        with loop_device(image, direct=False) as device:
            check("mount", "-o", "nodiscard", device, self.place)
            try:
                yield
            finally:
                # A process that was killed uses it for a moment more.
                until(
                    lambda: (
                        subprocess.run(["umount", self.place], capture_output=True, check=False).returncode
                        == 0
                    )
                )
        # A namespace that another process made meanwhile has a copy of the mount. As long as that lives the file
        # system is written: it would empty the journal of the next cut, which is the same file.
        until(
            lambda: not check("losetup", "-j", image), pause_s=0.05, what="another namespace has it mounted"
        )

    def count(self) -> int:
        """Writes and flushes so far."""
        with self._log.open("rb") as file:
            head = file.read(24)
        if len(head) < 24:
            return 0  # it has just been opened
        magic, _, entries = struct.unpack("<QQQ", head)
        assert magic == MAGIC
        return int(entries)

    def writes(self) -> list[Write]:
        """All that was logged; the image is what they make of the first one."""
        found = []
        with self._log.open("rb") as file:
            file.seek(SECTOR)
            for _ in range(self.count()):
                sector, sectors, flags, _ = struct.unpack("<QQQQ", file.read(SECTOR)[:32])
                assert not flags & DISCARD, "discards are not played"
                found.append(Write(sector * SECTOR, file.read(sectors * SECTOR), bool(flags & FLUSH)))
        return found

    @contextlib.contextmanager
    def cut(self, writes: list[Write], at: int, chance: random.Random) -> Iterator[None]:
        """The disk after power fails before write ``at``, mounted as at the next boot."""
        flushed = max((i for i in range(at) if writes[i].is_flush), default=0)
        share = chance.choice((0.0, 1.0, chance.random()))
        kept = writes[:flushed] + [each for each in writes[flushed:at] if chance.random() < share]
        check("cp", "--sparse=always", self._start, self._cut)
        file = os.open(self._cut, os.O_WRONLY)
        try:
            for each in kept:
                os.pwrite(file, each.data, each.offset)
        finally:
            os.close(file)
        with self._mounted(self._cut):
            yield
