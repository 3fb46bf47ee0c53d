"""Unpacks archives of others: tar and ZIP, within bounds whatever they claim.

Nothing is written outside of the folder, and no check of names is relied on for that: as long as files are written
there is no link, and links are made last. Python's own filter follows links that are longer than a path may be.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from headrace.base.whole import plain_file

#: Of all files together, of one file of a ZIP archive, and members.
MOST_BYTES = 1 << 30
MOST_TEXT = 64 << 20
MOST_MEMBERS = 400_000
#: Of a member's header: its names and attributes. Archives are read in pieces of at most so many bytes.
MOST_HEADER = 1 << 20
#: Unpacking xz takes its dictionary's size; `xz -9` makes one of 64 MiB.
MOST_XZ_MEMORY = 80 << 20
#: How a member that is damaged, or cannot be written here, shows.
_MEMBER = (OSError, ValueError, OverflowError, tarfile.TarError)
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)

Skipped = dict[str, str]


class _Bounded:
    """What ``tarfile`` reads from. It reads a header whole, whatever length that claims."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._at = file, 0

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        """Forward only: what lies between is read."""
        if to < self._at:
            raise tarfile.ReadError("its members are not in order")
        while self._at < to and self.read(min(to - self._at, MOST_HEADER)):
            pass

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_HEADER:
            raise tarfile.ReadError(f"a header is larger than {MOST_HEADER >> 20} MiB")
        content = self._file.read(size)
        self._at += len(content)
        return content


class _Xz(io.RawIOBase):
    """``lzma.open`` has no limit of memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._unpacking = lzma.LZMADecompressor(memlimit=MOST_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            given = b""
            if self._unpacking.eof:
                given = self._unpacking.unused_data or self._file.read(1 << 16)
                if not given.strip(b"\0"):
                    return 0
                self._unpacking = lzma.LZMADecompressor(memlimit=MOST_XZ_MEMORY)
            elif self._unpacking.needs_input and not (given := self._file.read(1 << 16)):
                raise EOFError("it ends too early")
            if found := self._unpacking.decompress(given, len(buffer)):
                buffer[: len(found)] = found
                return len(found)


def _xz(file: IO[bytes]) -> IO[bytes]:
    return io.BufferedReader(_Xz(file))


_OUTSIDE = "not unpacked: its name leads out of the archive"
#: First bytes -> what opens a file that is compressed so.
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": _xz}


@contextlib.contextmanager
def tar(path: Path) -> Iterator[tarfile.TarFile | None]:
    """The archive, compressed or not; None if it is none. Raises OSError and ``DAMAGED``."""
    with contextlib.ExitStack() as held:
        file = held.enter_context(plain_file(path))
        head = file.read(8)
        file.seek(0)
        opens = next((opens for magic, opens in _PACKED.items() if head.startswith(magic)), None)
        stream = held.enter_context(opens(file)) if opens else file
        found = None
        with contextlib.suppress(OSError, EOFError, zlib.error, tarfile.TarError):
            found = tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream)), mode="r:")  # noqa: SIM115
        yield held.enter_context(found) if found is not None else None


def unpack(archive: tarfile.TarFile, name: str, folder: Path) -> Skipped:
    """Its files and links into an empty folder. Name -> why it was left out."""
    skipped: Skipped = {}
    links: list[tuple[Path, str]] = []
    left = MOST_BYTES
    try:
        for number, member in enumerate(_members(archive)):
            left -= member.size
            if number >= MOST_MEMBERS or left < 0:
                most = f"{MOST_MEMBERS:,}" if left >= 0 else f"{MOST_BYTES >> 20} MiB"
                skipped["more members"] = f"only the first {most} are read"
                break
            place = _inside(folder, member.name)
            if place is None:
                if member.isreg():
                    skipped[member.name] = _OUTSIDE
            elif member.issym():
                links.append((place, member.linkname))
            elif member.isreg() or member.isdir():
                try:
                    _write(archive, member, place)
                except _MEMBER as error:
                    if isinstance(error, tarfile.ReadError):
                        raise
                    skipped[member.name] = f"not unpacked: {error}"
    except (tarfile.ReadError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        skipped[name] = "cut off or damaged: read as far as it goes"
    _link(folder, links)
    return skipped


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """It would keep all of them."""
    while (member := archive.next()) is not None:
        yield member
        archive.members.clear()  # type: ignore[attr-defined]


def _inside(folder: Path, name: str) -> Path | None:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or name.startswith("/") else folder.joinpath(*parts)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None, "a regular file has content"
    with content, place.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 16)
    os.utime(place, (member.mtime, member.mtime))


def _link(folder: Path, links: list[tuple[Path, str]]) -> None:
    """Make those that lead to something in the folder. A host's /sys has many."""
    made = []
    for place, target in links:
        above = [each for each in place.parents if each.is_relative_to(folder)]
        with contextlib.suppress(OSError, ValueError):
            if not any(each.is_symlink() for each in above):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(target)
                made.append(place)
    own = os.path.realpath(folder)
    for place in made:
        try:
            is_inside = Path(os.path.realpath(place, strict=True)).is_relative_to(own)
        except OSError:  # it leads nowhere, or further than a path may be long
            is_inside = False
        if not is_inside:
            place.unlink()


def unzip(path: Path, folder: Path) -> Skipped:
    """Its files into an empty folder. Name -> why it was left out. Raises OSError and ``DAMAGED``."""
    skipped: Skipped = {}
    left = MOST_BYTES
    with plain_file(path) as file, zipfile.ZipFile(file) as archive:
        for number, member in enumerate(archive.infolist()):
            place = _inside(folder, member.filename)
            if member.is_dir() or stat.S_ISLNK(member.external_attr >> 16):
                continue
            if number >= MOST_MEMBERS or left <= 0:
                skipped["more members"] = f"only the first {MOST_BYTES >> 20} MiB are read"
                break
            if place is None:
                skipped[member.filename] = _OUTSIDE
                continue
            try:
                with archive.open(member) as packed:
                    content = packed.read(min(MOST_TEXT, left) + 1)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
                written_s = time.mktime((*member.date_time, 0, 0, -1))
                os.utime(place, (written_s, written_s))
            except zipfile.BadZipFile as error:
                skipped[member.filename] = f"damaged: {error}"
            except (*_MEMBER, *DAMAGED, RuntimeError, NotImplementedError) as error:
                skipped[member.filename] = f"not unpacked: {error}"
            else:
                left -= len(content)
    return skipped
