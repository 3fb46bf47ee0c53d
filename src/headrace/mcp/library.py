"""What is below one directory: experiments, saved hosts and digests. Nothing outside of it can be named."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import HeadraceError, PlanError, Refused, StoreError
from headrace.base.temporary import temporary_folder
from headrace.base.whole import plain_file
from headrace.traffic.digests.files import is_digest

#: Directories below the root that are looked into, and entries of one listing.
MOST_DEPTH, MOST_ENTRIES = 4, 500
#: Directories of an experiment: it has one per trial, and one more of raw outputs.
MOST_FOLDERS = 50_000
#: Larger files are not opened, nor experiments: an answer must come in time.
MOST_BYTES = 1 << 30
#: As long a path as Linux takes.
MOST_LETTERS = 4095
#: Directories of an experiment that no answer reads, and how deep those are that one does.
UNREAD, MOST_INNER = ("raw", "set-aside"), 3


@dataclass(frozen=True)
class Entry:
    """``kind``: experiment, hunt or digest; ``path`` as the tools take it."""

    kind: str
    path: str


@dataclass(frozen=True)
class Library:
    root: Path

    @staticmethod
    def of(root: Path) -> Library:
        if not root.is_dir():
            raise PlanError("no such directory", place=str(root))
        return Library(root.resolve())

    def find(self, name: str) -> Path:
        """The file or directory of this name below the root. Raises Refused for any other place."""
        if len(name) > MOST_LETTERS:
            raise Refused("this is not a path", place=name[:200])
        try:
            path = (self.root / name).resolve()
            # A name may be longer than one that a file can have.
            is_there = path.exists()
        except (OSError, ValueError, RuntimeError) as error:
            raise Refused("this is not a path", place=name[:200]) from error
        if not path.is_relative_to(self.root):
            raise Refused("it is outside of the directory of this server", place=name[:200])
        if not is_there:
            raise StoreError("no such file or directory", place=name[:200], hint="list_evidence names them")
        if not (path.is_file() or path.is_dir()):
            raise Refused("this is neither a file nor a directory", place=name[:200])
        if path.is_dir():
            _refuse_links(path, name)
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise Refused(f"larger than {MOST_BYTES >> 20} MiB", place=name[:200])
        return path

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[Path]:
        """The file of this name, held open from the root on: whoever changes a name meanwhile changes nothing.

        Raises Refused for what is no plain file, or has become a link since it was looked up.
        """
        path = self.find(name)
        if path.is_dir():
            yield path
            return
        with contextlib.ExitStack() as held:
            file = _beneath(held, self.root, path.relative_to(self.root).parts, name)
            try:
                yield Path(f"/proc/self/fd/{file}")
            except HeadraceError as error:
                # It knows the number of an open file only.
                error.place = name[:200]
                raise

    @contextlib.contextmanager
    def copied(self, name: str) -> Iterator[Path]:
        """A copy of the experiment of this name, of our own: it is read by names that nobody else may change.

        Raises Refused for a link or a pipe in it, also where one comes while it is copied.
        """
        path = self.find(name)
        if path.is_file() and not path.is_symlink():
            raise StoreError("this is not an experiment directory: it is a file", place=name[:200])
        with temporary_folder() as own, contextlib.ExitStack() as held:
            folder = _beneath(held, self.root, path.relative_to(self.root).parts, name, is_folder=True)
            copy = own / (path.name or "experiment")
            try:
                _copy(folder, copy, name)
            except OSError as error:
                raise StoreError(f"cannot be copied: {error.strerror or error}", place=name[:200]) from error
            try:
                yield copy
            except HeadraceError as error:
                error.place = (error.place or name).replace(str(copy), name)[:400]
                raise

    def entries(self) -> Iterator[Entry]:
        """In order of their names; links are not followed."""
        count = 0
        for folder, folders, files in os.walk(self.root):
            own = Path(folder)
            depth = len(own.relative_to(self.root).parts)
            found = list(_in(own, files))
            is_experiment = any(entry.kind == "experiment" for entry in found)
            # The tables of an experiment are no evidence of their own.
            hidden = is_experiment or depth >= MOST_DEPTH
            folders[:] = [] if hidden else sorted(name for name in folders if not name.startswith("."))
            for entry in found:
                if count == MOST_ENTRIES:
                    return
                count += 1
                yield Entry(entry.kind, str(Path(entry.path).relative_to(self.root)) or ".")


def _beneath(
    held: contextlib.ExitStack, root: Path, parts: Sequence[str], name: str, *, is_folder: bool = False
) -> int:
    """The file or folder, open: each folder from the one above, none by a link. Raises Refused."""
    opened = None
    try:
        for depth, part in enumerate((str(root), *parts)):
            kind = os.O_NONBLOCK if depth == len(parts) and not is_folder else os.O_DIRECTORY
            opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=opened)
            held.callback(os.close, opened)
        assert opened is not None
        found = os.fstat(opened)
    except OSError as error:
        raise Refused("it changed while it was opened", place=name[:200]) from error
    if not is_folder and (not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES):
        raise Refused("it changed while it was opened", place=name[:200])
    return opened


def _copy(source: int, copy: Path, name: str, depth: int = 0, left: int = MOST_BYTES) -> int:
    """Copy what is in an open folder; how many bytes may still be copied. Raises Refused, OSError."""
    copy.mkdir()
    with os.scandir(source) as entries:
        names = sorted(each.name for each in entries)
    for part in names:
        if part.startswith(".") or part in UNREAD:
            continue
        try:
            opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise Refused("it holds a link or a pipe", place=name[:200]) from error
            raise
        try:
            kind = os.fstat(opened).st_mode
            if stat.S_ISDIR(kind):
                if depth < MOST_INNER:
                    left = _copy(opened, copy / part, name, depth + 1, left)
            elif not stat.S_ISREG(kind):
                raise Refused("it holds a link or a pipe", place=name[:200])
            else:
                left = _copy_file(opened, copy / part, name, left)
        finally:
            os.close(opened)
    return left


def _copy_file(source: int, copy: Path, name: str, left: int) -> int:
    with open(source, "rb", closefd=False) as file, copy.open("xb") as own:
        while piece := file.read(min(1 << 20, left + 1)):
            left -= len(piece)
            if left < 0:
                raise Refused(f"larger than {MOST_BYTES >> 20} MiB", place=name[:200])
            own.write(piece)
    return left


def _refuse_links(folder: Path, name: str) -> None:
    """An experiment of somebody else may hold a link to a file of this machine, or a pipe that never ends.

    Raises Refused.
    """
    for entries, (above, folders, files) in enumerate(os.walk(folder)):
        for each in (Path(above) / entry for entry in (*folders, *files)):
            if each.is_symlink() or not (each.is_file() or each.is_dir()):
                raise Refused("it holds a link or a pipe", place=name[:200])
        if entries > MOST_FOLDERS:
            raise Refused(f"it has more than {MOST_FOLDERS:,} directories", place=name[:200])


def _in(folder: Path, files: list[str]) -> Iterator[Entry]:
    if "design.json" in files:
        yield Entry("experiment", str(folder))
        return
    for name in sorted(files):
        path = folder / name
        if name.endswith(".hunt"):
            yield Entry("hunt", str(path))
        elif name.endswith(".parquet") and path.is_file() and is_digest(path):
            yield Entry("digest", str(path))


def id_of(path: Path) -> str:
    """The same file has the same id."""
    with plain_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
