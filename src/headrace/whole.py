"""Text files that are whole or absent: written under another name, synced, then renamed; and the one sync."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

_SUFFIX = ".part"


def write_whole(path: Path, content: str, mode: int | None = None) -> None:
    """Replace the file in one step: readers see the old content or the new one, also while two processes write.

    Removes what killed writers of this file left. ``mode`` holds regardless of the umask. Pipes, devices and
    links, such as /dev/stdout, are written to instead of replaced. Raises OSError.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(content, encoding="utf-8")
        return
    _remove_left(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 & (mode or 0o666)
        )
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _remove_left(path: Path) -> None:
    """A draft belongs to its writer as long as it is locked; the kernel releases the lock of a killed one."""
    for draft in path.parent.glob(f".{_escaped(path.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one may be about to be locked
                draft.unlink()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
