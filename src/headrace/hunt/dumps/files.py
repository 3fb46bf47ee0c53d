"""The texts and saved hosts of a file, a directory or a tar archive, within bounds.

What others send is hostile: links are not followed, devices and pipes not opened, and sizes bounded whatever an
archive claims.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from headrace.base.errors import StoreError
from headrace.base.whole import at_most, plain_file
from headrace.hunt.dumps import archives

#: Of one text; of all together in memory; texts and levels of directories.
MOST_TEXT = archives.MOST_TEXT
MOST_BYTES = 1 << 30
MOST_TEXTS = 5_000
MOST_DEPTH = 12
#: What is packed may become this much, and so many times its size beyond.
UNPACKED_BYTES, UNPACKED_TIMES = 256 << 20, 10
_NO_TEXT = re.compile(rb"[\x00\x01-\x06\x0e-\x1a]")
#: Of a host's own directories, which are its files and no reports; what sar keeps is in one of them.
OF_HOSTS = frozenset(
    {"proc", "sys", "etc", "boot", "usr", "lib", "dev", "run", "opt", "root", "home", "var", "installed-debs"}
)


@dataclass
class Opened:
    """``texts``: name -> content; ``trees``: directories that have a proc or sys of a host; ``skipped``: name ->
    why it was left out. ``newest_s``: when the newest text was written."""

    texts: dict[str, str] = field(default_factory=dict)
    trees: list[Path] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    newest_s: float = 0.0
    #: Of the archive that all of it was in; 0 without one.
    packed_bytes: int = 0
    _read_bytes: int = 0
    _bytes: int = 0

    def add(self, name: str, path: Path) -> None:
        try:
            with _plain(path) as file:
                status = os.fstat(file.fileno())
                self._read_bytes += status.st_size
                most = min(MOST_TEXT, self._room())
                is_packed = path.suffix == ".gz"
                content, is_whole = _unzipped(file, most) if is_packed else (_content(file, most), True)
        except OSError as error:
            self.skipped[name] = error.strerror or str(error)
            return
        if content is None:
            together = "" if most == MOST_TEXT else " together with the others"
            self.skipped[name] = f"larger than {max(most, 0) >> 20} MiB{together}"
            return
        if not is_whole:
            self.skipped[f"the end of {name}"] = "the gzip is cut off or damaged: what is before is read"
        # PowerShell's `>` writes UTF-16.
        coding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        if coding == "utf-8-sig" and _NO_TEXT.search(content[:4096]):
            self.skipped[name] = (
                "recorded by sar: sadf -j FILE -- -A > FILE.json makes JSON of it"
                if re.search(r"(^|/)sa\d{2,8}$|\.sa$", name) or content[:2] in (b"\x96\xd5", b"\xd5\x96")
                else "no text"
            )
            return
        self.newest_s = max(self.newest_s, status.st_mtime)
        self.texts[name] = content.decode(coding, "replace").replace("\r\n", "\n")
        # One character beyond 16 bits makes a text four times its bytes.
        self._bytes += sys.getsizeof(self.texts[name])

    def _room(self) -> int:
        whole = UNPACKED_BYTES + UNPACKED_TIMES * (self.packed_bytes or self._read_bytes)
        return min(whole, MOST_BYTES) - self._bytes


def opened(path: Path, scratch: Path) -> Opened:
    """What is in ``path``; an archive is unpacked into ``scratch``. Raises StoreError if there is nothing."""
    found = Opened()
    try:
        if path.is_dir():
            _walk(path, found)
        elif (skipped := _unpacked(path, scratch / "unpacked")) is not None:
            found.skipped |= skipped
            found.packed_bytes = path.stat().st_size
            _walk(scratch / "unpacked", found)
        else:
            found.add(path.name, path)
    except FileNotFoundError as error:
        raise StoreError("no such file", place=str(path)) from error
    except (OSError, *archives.DAMAGED) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error
    return found


def _unpacked(path: Path, folder: Path) -> Mapping[str, str] | None:
    """What of an archive is not in ``folder`` now, and why; None if it is no archive."""
    with archives.tar(path) as archive:
        if archive is not None:
            folder.mkdir()
            return archives.unpack(archive, path.name, folder)
    with plain_file(path) as file:
        is_zip = zipfile.is_zipfile(file)
    if is_zip:
        folder.mkdir()
        return archives.unzip(path, folder)
    return None


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[BinaryIO]:
    if path.is_symlink():
        raise OSError("not a file")
    with plain_file(path) as file:
        yield file


def _content(file: BinaryIO, most: int) -> bytes | None:
    """None if it is larger."""
    content = at_most(file, most + 1) if most > 0 else b""
    return content if most > 0 and len(content) <= most else None


def _unzipped(file: BinaryIO, most: int) -> tuple[bytes | None, bool]:
    """What gzip packed, within the same bound, and whether that is all of it: files may have been appended."""
    packed, content, is_whole = at_most(file, most), b"", False
    while packed and len(content) <= most:
        unpacking = zlib.decompressobj(31)
        try:
            content += unpacking.decompress(packed, most + 1 - len(content))
        except zlib.error as error:
            if not content:
                raise OSError(f"damaged: {error}") from error
            # Zeros behind the end are padding.
            return content, is_whole and not packed.strip(b"\0")
        packed, is_whole = unpacking.unused_data, unpacking.eof
    return (content if most > 0 and len(content) <= most else None), is_whole


def _walk(top: Path, found: Opened) -> None:
    """Texts, nearest first; of a host's own directories nothing but what sar keeps."""
    waiting: list[tuple[Path, int]] = [(top, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        entries = sorted(_entries(folder), key=lambda entry: entry.name)
        folders = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
        is_host = bool(folders & {"proc", "sys"})
        if is_host:
            found.trees.append(folder)
        for entry in entries:
            name = os.path.relpath(entry.path, top)
            if entry.name in folders:
                if is_host and entry.name in OF_HOSTS:
                    if entry.name == "var":
                        waiting += [(folder / "var/log" / each, depth) for each in ("sa", "sysstat")]
                elif depth < MOST_DEPTH:
                    waiting.append((Path(entry.path), depth + 1))
                else:
                    found.skipped[name] = f"deeper than {MOST_DEPTH} directories"
            elif entry.is_file(follow_symlinks=False):
                if len(found.texts) + len(found.skipped) >= MOST_TEXTS:
                    found.skipped["more files"] = f"only the first {MOST_TEXTS:,} are read"
                    return
                found.add(name, Path(entry.path))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError),
        os.scandir(folder) as entries,
    ):
        yield from entries
