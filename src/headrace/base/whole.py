"""Files that are whole or absent: written under another name, synced, then renamed; and the one sync.

Root writes where others may write, too: to /tmp, or into the folder of another program. A link that somebody
planted there must not lead to a file of the system. So a draft has a name that nobody can know and is always new,
a link is followed only if root or this user made it, and the folder is held open (``door``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.base.door import MOST_LINKS, held, is_ours_alone, opened, opened_to_write

_SUFFIX = ".part"
#: Folders, by device and inode, whose names this process has synced.
_ON_DISK: set[tuple[int, int]] = set()


def write_whole(path: Path, content: str, mode: int | None = None) -> None:
    """Replace the file in one step: readers see the old content or the new one, also while two processes write.

    Removes what killed writers of this file left. ``mode`` holds regardless of the umask. Pipes, devices and
    links, such as /dev/stdout, are written to instead of replaced; a pipe of another user is replaced. Raises
    OSError, also for a link that another user made.
    """
    encoded = content.encode()
    if _is_written_to(path):
        with os.fdopen(opened_to_write(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            with contextlib.suppress(OSError):  # a pipe has no length
                os.ftruncate(file.fileno(), 0)
            file.write(encoded)
        return
    with whole_file(path, mode) as file:
        file.write(encoded)


def _is_written_to(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISFIFO(found.st_mode):
        return found.st_uid in (0, os.geteuid())
    return not stat.S_ISREG(found.st_mode)


def replace_whole(path: Path, content: str, mode: int | None = None) -> None:
    """The same for a result in a folder that others may have made: a link there is replaced, never followed.

    Raises OSError.
    """
    with whole_file(path, mode) as file:
        file.write(content.encode())


@contextlib.contextmanager
def whole_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """The draft of a file, which replaces it when this ends without an error. A link there is replaced, too.

    Raises OSError.
    """
    with held(path) as own, _whole(own, mode) as file:
        yield file


@contextlib.contextmanager
def _whole(path: Path, mode: int | None) -> Iterator[BinaryIO]:
    _remove_left(path)
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
        try:
            # It may be read again while it is written: a ZIP archive is.
            descriptor = os.open(
                draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 & (mode or 0o666)
            )
            with os.fdopen(descriptor, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not draft.exists():
                    continue  # before it was locked, another writer took it for one that was left
                if mode is not None:
                    os.fchmod(descriptor, mode)
                yield file
                file.flush()
                os.fsync(descriptor)
                os.replace(draft, path)
            break
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    sync(path.parent)


def lock_file(path: Path, mode: int = 0o644) -> int:
    """A descriptor of a lock's file in a folder that others may have made, for reading and writing.

    A link, a pipe or a file with a second name there is removed: what is written would be in another file. Raises
    OSError.
    """
    with held(path) as own:
        return _lock_file(own, mode)


def _lock_file(path: Path, mode: int) -> int:
    for _ in range(MOST_LINKS):
        with contextlib.suppress(FileNotFoundError):
            if not _is_single(os.stat(path, follow_symlinks=False)):
                os.unlink(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, mode)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            continue  # it became a link just now
        if _is_single(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _is_single(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def new_file(path: str, mode: int = 0o666) -> int:
    """A descriptor of a file that nobody else has open; what had its name is removed, never written to.

    A device such as /dev/null is opened. Raises OSError.
    """
    if path.startswith("/dev/"):
        return opened_to_write(Path(path), os.O_WRONLY)
    with held(Path(path)) as own:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own)
        return os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


#: A file of somebody's folder that is read whole.
MOST_READ_BYTES = 256 << 20


@contextlib.contextmanager
def plain_file(path: Path, *, may_be_pipe: bool = False) -> Iterator[io.BufferedReader]:
    """A plain file of a folder that others made, for reading. A pipe would never end, nor would a device.

    ``may_be_pipe``: what the shell's <(...) and /dev/stdin are is read, too. Raises OSError, also for what is no
    plain file.
    """
    with os.fdopen(opened(path, may_be_pipe=may_be_pipe), "rb") as file:
        yield file


def read_plain(path: Path, most_bytes: int = MOST_READ_BYTES) -> bytes:
    """Its content, also that of a pipe that a process holds open: of /dev/stdin, of the shell's <(...).

    Raises OSError, also for what is larger than ``most_bytes``.
    """
    with plain_file(path, may_be_pipe=True) as file:
        content = at_most(file, most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes >> 20} MiB", str(path))
    return content


def at_most(file: BinaryIO, most_bytes: int) -> bytes:
    """What it has, up to that many bytes. One call of ``read`` would ask for memory of all of them first."""
    pieces: list[bytes] = []
    while most_bytes > 0 and (piece := file.read(min(most_bytes, 1 << 20))):
        pieces.append(piece)
        most_bytes -= len(piece)
    return b"".join(pieces)


def held_folder(folder: Path) -> tuple[Path, int | None]:
    """A folder that this process made, by a name that stays its own, and what holds it open, if anything does.

    Whoever owns a folder above may rename this one and put a link in its place while it is filled. Raises OSError,
    also if that has happened.
    """
    if is_ours_alone(folder):
        return folder, None
    with held(folder) as own:
        descriptor = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(errno.ESTALE, "another user put another folder in its place", str(folder))
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}"), descriptor


def _remove_left(path: Path) -> None:
    """A draft belongs to its writer as long as it is locked; the kernel releases the lock of a killed one."""
    for draft in path.parent.glob(f".{_escaped(path.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            # Nor is a planted pipe waited for.
            left = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()  # its writer, if it is about to lock it, begins another
            finally:
                os.close(left)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make it and those above it, each on the disk with its name; new ones have this mode. Raises OSError."""
    if folder.is_dir():
        _sync_name(folder)
        return
    make_folder(folder.parent, mode)
    with held(folder) as own:
        own.mkdir(mode, exist_ok=True)
        sync(own.parent)
    _ON_DISK.add(_identity(folder))


def remove_tree(folder: Path) -> None:
    """Remove what has this name in the folder above, as far as possible; nothing to where a link leads."""
    with contextlib.suppress(OSError), held(folder) as own:
        shutil.rmtree(own, ignore_errors=True)


def _sync_name(folder: Path) -> None:
    """Whoever made it may have been killed before its name was on the disk."""
    identity = _identity(folder)
    if identity not in _ON_DISK:
        with contextlib.suppress(PermissionError):  # then it is no folder of ours
            sync(folder.parent)
        _ON_DISK.add(identity)


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
