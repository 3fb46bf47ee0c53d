"""The cache of images, kernels and machines, and locks on its folders."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from headrace.base.errors import Busy, NotReady
from headrace.host.target import Target

__all__ = ["Tell", "folder", "locked", "missing_programs", "require_programs"]

Tell = Callable[[str], None]
T = TypeVar("T")
#: The Debian packages of the programs used here.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh-keygen": "openssh-client",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "depmod": "kmod",
    "ip": "iproute2",
}
POLL_S = 0.1


def folder(*parts: str) -> Path:
    """A private folder under the user's cache, created if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base, "headrace", "vm")
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = path.joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


@contextlib.asynccontextmanager
async def locked(path: Path, what: str, tell: Tell, patience_s: float) -> AsyncIterator[None]:
    """An exclusive lock on this folder, which is created if missing.

    The lock ends with the process. The folder itself is locked, so that no lock file remains. Raises Busy after
    ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    told = False
    while True:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, descriptor):
                break
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise Busy(
                f"another process has been working on {what} for more than {patience_s:g} s", place=str(path)
            )
        if not told:
            tell(f"another process works on {what}: waiting")
            told = True
        await asyncio.sleep(POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds this folder's lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _still_there(path: Path, descriptor: int) -> bool:
    """The previous holder of the lock may have removed the folder."""
    with contextlib.suppress(FileNotFoundError):
        found, ours = path.stat(), os.fstat(descriptor)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
    return False


async def missing_programs(host: Target, *programs: str) -> list[str]:
    script = 'for p; do command -v "$p" >/dev/null || echo "$p"; done'
    return (await host.run(["sh", "-c", script, "sh", *programs])).text.split()


async def require_programs(host: Target, *programs: str) -> None:
    """Raise NotReady, with the packages to install, unless every program is installed."""
    missing = await missing_programs(host, *programs)
    if missing:
        packages = " ".join(sorted({PACKAGES[program] for program in missing}))
        raise NotReady(
            "missing: " + ", ".join(missing), hint=f"apt-get install -y --no-install-recommends {packages}"
        )
