"""Temporary folders on this machine that do not stay if their command is killed: the next one removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".headrace-local-"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A private folder in ``parent`` (None: the default for temporary files), removed at the end. Raises OSError.

    It is in use as long as it is locked; the kernel releases the lock of a killed command.
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_left(base)
    folder, lock = _locked(base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
