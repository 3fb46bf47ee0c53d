"""The texts and saved hosts of a file, a directory or a tar archive, within bounds.

What others send is hostile: links are not followed, devices and pipes not opened, and sizes bounded whatever an
archive claims.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.base.errors import StoreError

#: Of one text; of all together; texts, members of an archive and levels of directories.
MOST_TEXT = 64 << 20
MOST_BYTES = 1 << 30
MOST_TEXTS = 5_000
MOST_MEMBERS = 400_000
MOST_DEPTH = 12
#: A larger header of an archive's member is none that programs write.
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
    _bytes: int = 0

    def add(self, name: str, path: Path) -> None:
        try:
            content, written_s = _content(path, min(MOST_TEXT, MOST_BYTES - self._bytes))
        except OSError as error:
            self.skipped[name] = error.strerror or str(error)
            return
        if content is None:
            self.skipped[name] = f"larger than {MOST_TEXT >> 20} MiB"
            return
        self._bytes += len(content)
        # PowerShell's `>` writes UTF-16.
        coding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        if coding == "utf-8-sig" and _NO_TEXT.search(content[:4096]):
            self.skipped[name] = (
                "recorded by sar: sadf -j FILE -- -A > FILE.json makes JSON of it"
                if re.search(r"(^|/)sa\d{2,8}$|\.sa$", name) or content[:2] in (b"\x96\xd5", b"\xd5\x96")
                else "no text"
            )
            return
        self.newest_s = max(self.newest_s, written_s)
        self.texts[name] = content.decode(coding, "replace").replace("\r\n", "\n")


def opened(path: Path, scratch: Path) -> Opened:
    """What is in ``path``; an archive is unpacked into ``scratch``. Raises StoreError if there is nothing."""
    found = Opened()
    try:
        if path.is_dir():
            _walk(path, found)
        elif tarfile.is_tarfile(path) or zipfile.is_zipfile(path):
            folder = scratch / "unpacked"
            folder.mkdir()
            (_unpack if tarfile.is_tarfile(path) else _unzip)(path, folder, found)
            _walk(folder, found)
        else:
            found.add(path.name, path)
    except FileNotFoundError as error:
        raise StoreError("no such file", place=str(path)) from error
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error
    return found


def _content(path: Path, most: int) -> tuple[bytes | None, float]:
    """None if it is larger. Gzip is unpacked, within the same bound."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a file")
        if path.suffix == ".gz":
            unpacking = zlib.decompressobj(31)
            try:
                content = unpacking.decompress(file.read(most), most + 1)
            except zlib.error as error:
                raise OSError(f"damaged: {error}") from error
        else:
            content = file.read(most + 1)
    return (content if len(content) <= most else None), status.st_mtime


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


def _unpack(path: Path, folder: Path, found: Opened) -> None:
    """Files and links only, all inside, within the bounds; one that was cut off as far as it goes."""
    left = MOST_BYTES
    with tarfile.open(path) as archive:
        try:
            for number, member in enumerate(archive):
                if number >= MOST_MEMBERS:
                    found.skipped["more members"] = f"only the first {MOST_MEMBERS:,} are read"
                    return
                if not (member.isreg() or member.isdir() or member.issym()):
                    continue
                if member.size > left:
                    found.skipped["more members"] = f"only the first {MOST_BYTES >> 20} MiB are read"
                    return
                left -= member.size
                try:
                    safe = tarfile.data_filter(member, str(folder))
                    archive.extract(safe, folder, set_attrs=False, filter="data")
                    if safe.isreg():
                        os.utime(folder / safe.name, (member.mtime, member.mtime), follow_symlinks=False)
                except (tarfile.FilterError, OSError, ValueError, OverflowError) as error:
                    if member.isreg():
                        found.skipped[member.name] = f"not unpacked: {error}"
        except (tarfile.ReadError, EOFError, zlib.error):
            found.skipped[path.name] = "cut off or damaged: read as far as it goes"


def _unzip(path: Path, folder: Path, found: Opened) -> None:
    """Files only, all inside, within the bounds whatever the archive claims."""
    left = MOST_BYTES
    with zipfile.ZipFile(path) as archive:
        for number, member in enumerate(archive.infolist()):
            parts = Path(member.filename).parts
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            if member.is_dir() or is_link or ".." in parts or member.filename.startswith("/"):
                continue
            if number >= MOST_MEMBERS or left <= 0:
                found.skipped["more members"] = f"only the first {MOST_BYTES >> 20} MiB are read"
                return
            try:
                with archive.open(member) as packed:
                    content = packed.read(min(MOST_TEXT, left) + 1)
                target = folder / member.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                written_s = time.mktime((*member.date_time, 0, 0, -1))
                os.utime(target, (written_s, written_s))
            except (
                OSError,
                ValueError,
                OverflowError,
                RuntimeError,
                NotImplementedError,
                zlib.error,
            ) as error:
                found.skipped[member.filename] = f"not unpacked: {error}"
                continue
            except zipfile.BadZipFile as error:
                found.skipped[member.filename] = f"damaged: {error}"
                continue
            left -= len(content)
