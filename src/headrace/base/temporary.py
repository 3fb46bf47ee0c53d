"""Temporary folders on this machine that do not stay if their command is killed: the next one removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.base.door import held

_PREFIX = ".headrace-local-"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A private folder in ``parent`` (None: the default for temporary files), removed at the end. Raises OSError.

    It is in use as long as it is locked; the kernel releases the lock of a killed command.
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    with held(base / _PREFIX) as name:
        _remove_left(name.parent)
        folder, lock = _locked(name.parent)
        try:
            yield folder
        finally:
            _remove(folder, lock)
            os.close(lock)


def _locked(base: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # Another command may remove it before it is locked.
        with contextlib.suppress(FileNotFoundError):
            lock = _lock(folder)
            if lock is not None and folder.exists():
                return folder, lock
            if lock is not None:
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the lock; None if another process has it, or the folder is another user's."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove_left(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _lock(folder)
            if lock is not None:
                _remove(folder, lock)
                os.close(lock)


def _remove(folder: Path, own: int) -> None:
    """What is in the open folder, and its name if that is still its name: by now another's folder may have it."""
    with os.scandir(own) as entries:
        inside = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    for name, is_folder in inside:
        with contextlib.suppress(OSError):
            shutil.rmtree(name, dir_fd=own) if is_folder else os.unlink(name, dir_fd=own)
    with contextlib.suppress(OSError):
        folder.rmdir()
