"""Names in folders of others: each folder on the way is opened by what it is, and held open while it is used.

Root reads and writes in folders that belong to other users. Whoever owns one of them can put a link, another
folder or a pipe in the place of a name between any two of our calls. So a name is taken apart and each folder
opened beneath the one before. A link that another user made is followed only to what that user owns: nobody is led
to a file that is not the link's maker's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Links that lead to links: as many as the kernel follows.
MOST_LINKS = 40
#: Nobody's account: the kernel gives it to no file.
_NOBODY = 2**32 - 1
#: What a name is that is no plain file, in words.
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


class Refused(OSError):
    """What a name is, and why it is not used; in words alone."""

    def __str__(self) -> str:
        return str(self.strerror)


@dataclass
class _Way:
    """How far a name is opened; ``at`` is the folder, an O_PATH descriptor."""

    at: int
    #: Who else made a link on the way.
    makers: set[int] = field(default_factory=set)
    #: The folder above the last step.
    above: os.stat_result | None = None
    #: Whether the last step was through an open file of a process, such as /dev/stdin or what a shell's <(...) is.
    is_of_a_process: bool = False


def is_ours_alone(folder: Path) -> bool:
    """Whether nobody but root and this user can put another one in its place. Raises OSError."""
    for each in (folder := folder.absolute(), *folder.parents):
        status = os.lstat(each)
        is_shared = status.st_mode & 0o022 and not (status.st_mode & stat.S_ISVTX and each != folder)
        if is_shared or status.st_uid not in (0, os.geteuid()) or not stat.S_ISDIR(status.st_mode):
            return False
    return True


def _stays(folder: Path) -> bool:
    """Whether nobody but root and this user can give its name to another folder; its content may be anybody's."""
    below = os.lstat(folder := folder.absolute())
    if not stat.S_ISDIR(below.st_mode) or ".." in folder.parts:
        return False
    for each in folder.parents:
        status = os.lstat(each)
        is_sticky = status.st_mode & stat.S_ISVTX and below.st_uid in (0, os.geteuid())
        is_shared = status.st_mode & 0o022 and not is_sticky
        if is_shared or status.st_uid not in (0, os.geteuid()) or not stat.S_ISDIR(status.st_mode):
            return False
        below = status
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[Path]:
    """The path, by a name whose folder stays the same one while this runs. The last part may be whatever it is.

    Raises OSError, also if the way leads by another user's link to a folder that is not that user's.
    """
    try:
        is_safe = _stays(path.parent)
    except OSError as error:
        raise _named(error, path) from None
    if is_safe or path.name in ("", ".."):
        yield path
        return
    way = _walked(path.absolute().parent)
    try:
        _check_makers(way, os.fstat(way.at), path)
        place = f"/proc/{os.getpid()}/fd/{way.at}"
        try:
            yield Path(place) / path.name
        except OSError as error:
            if isinstance(error.filename, str) and error.filename.startswith(place):
                error.filename = f"{path.parent}{error.filename[len(place) :]}"
            raise
    finally:
        os.close(way.at)


def opened(path: Path, *, may_be_pipe: bool = False) -> int:
    """A descriptor of a plain file, for reading; whatever else has the name is not even opened.

    ``may_be_pipe``: nor is a pipe that a process holds open refused, such as /dev/stdin or a shell's <(...).
    Raises OSError.
    """
    way = _walked(path.absolute())
    try:
        status = os.fstat(way.at)
        _check_makers(way, status, path)
        is_pipe = may_be_pipe and way.is_of_a_process and not stat.S_ISREG(status.st_mode)
        if not stat.S_ISREG(status.st_mode) and not (is_pipe and stat.S_ISFIFO(status.st_mode)):
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise Refused(errno.EINVAL, f"is {kind_of(status)}, not a plain file", str(path))
        check_single(path, status, way.above)
        return _reopened(way.at, os.O_RDONLY, path)
    finally:
        os.close(way.at)


def opened_to_write(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a file that is continued, or of a pipe or device: of whatever cannot be replaced.

    Links are followed only if root or this user made them, and no pipe of another user is waited for. Raises
    OSError.
    """
    for _ in range(MOST_LINKS):
        with held(path) as own:
            try:
                link = os.open(own, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
                with contextlib.suppress(FileExistsError):
                    return os.open(own, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
                continue
            try:
                what = os.fstat(link)
                folder = os.stat(own.parent)
                is_others = _other_maker(what, folder) is not None
                if not stat.S_ISLNK(what.st_mode):
                    if is_others and stat.S_ISFIFO(what.st_mode):
                        raise Refused(errno.EINVAL, "is another user's pipe", str(path))
                    check_single(path, what, folder)
                    return _reopened(link, flags & ~(os.O_CREAT | os.O_EXCL), path)
                if is_others:
                    raise Refused(errno.ELOOP, "it is a link that another user made", str(path))
                if what.st_dev == _proc_device():
                    return os.open(own, flags | os.O_CLOEXEC, mode)
                path = path.parent / os.readlink("", dir_fd=link)
            finally:
                os.close(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _reopened(descriptor: int, flags: int, path: Path) -> int:
    """What an O_PATH descriptor holds. A pipe of a process is read even if its writer has ended; a lease that
    another user has on a file is not waited for.
    """
    may_wait = flags & 3 and not stat.S_ISREG(os.fstat(descriptor).st_mode)
    try:
        again = os.open(
            f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC | (0 if may_wait else os.O_NONBLOCK)
        )
    except OSError as error:
        raise _named(error, path) from None
    if not may_wait:
        os.set_blocking(again, True)
    return again


def kind_of(status: os.stat_result) -> str:
    """What it is, in words."""
    return next((word for test, word in _KINDS if test(status.st_mode)), "a file")


def _walked(path: Path) -> _Way:
    """All of an absolute path is opened, the last part, too. The caller closes ``at``."""
    way = _Way(os.open("/", os.O_PATH | os.O_CLOEXEC))
    left, links = list(reversed(path.parts[1:])), 0
    try:
        while left:
            part = left.pop()
            way.above = os.fstat(way.at)
            step = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way.at)
            status = os.fstat(step)
            way.is_of_a_process = False
            if stat.S_ISLNK(status.st_mode):
                try:
                    if (links := links + 1) > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    if (maker := _other_maker(status, way.above)) is not None:
                        way.makers.add(maker)
                    target = "" if _is_magic(status, way.at) else os.readlink("", dir_fd=step)
                finally:
                    os.close(step)
                if target:
                    left.extend(reversed([each for each in target.split("/") if each]))
                    if not target.startswith("/"):
                        continue
                    step = os.open("/", os.O_PATH | os.O_CLOEXEC)
                else:
                    step = os.open(part, os.O_PATH | os.O_CLOEXEC, dir_fd=way.at)
                    way.is_of_a_process = True
            os.close(way.at)
            way.at = step
    except OSError as error:
        os.close(way.at)
        raise _named(error, path) from None
    return way


def _other_maker(link: os.stat_result, folder: os.stat_result) -> int | None:
    """Who else may have put a link there: a second name of one that root made was given to it by whoever may write
    there.
    """
    ours = (0, os.geteuid())
    if link.st_uid not in ours:
        return link.st_uid
    is_shared = folder.st_uid not in ours or folder.st_mode & 0o022
    return _NOBODY if link.st_nlink > 1 and is_shared else None


def _is_magic(link: os.stat_result, folder: int) -> bool:
    """Whether it is one of /proc that leads to an open file, not to a name: those of /proc/PID/fd and the like."""
    if link.st_dev != _proc_device():
        return False
    # /proc/self, /proc/net and others of the top are names; a process's own links are not.
    return os.fstat(folder).st_ino != os.stat("/proc").st_ino


def _proc_device() -> int:
    with contextlib.suppress(OSError):
        return os.stat("/proc/self").st_dev
    return -1


def _check_makers(way: _Way, status: os.stat_result, path: Path) -> None:
    if way.makers - {status.st_uid}:
        raise Refused(
            errno.ELOOP, "a link on the way is another user's, and leads to what is not theirs", str(path)
        )


def check_single(path: Path, status: os.stat_result, folder: os.stat_result | None) -> None:
    """Root uses no file by a second name that another user may have given it. Raises OSError."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2 or os.geteuid() != 0 or folder is None:
        return
    if folder.st_uid != status.st_uid or folder.st_mode & 0o022:
        raise Refused(errno.EMLINK, "has a second name, and others may write to its directory", str(path))


def _named(error: OSError, path: Path) -> OSError:
    return OSError(error.errno, error.strerror, str(path))
