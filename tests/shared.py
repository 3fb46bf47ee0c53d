"""What this run's processes make once and share: an unpacked server, the data of a new one."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

#: The folder, inherited by the processes that xdist starts.
PLACE = "HEADRACE_TESTS_SHARED"


def open_place() -> str:
    """Below /var/tmp and open to enter: servers run as another account, which has no way into root's home."""
    os.environ[PLACE] = folder = tempfile.mkdtemp(prefix="hr-shared-", dir="/var/tmp")
    Path(folder).chmod(0o755)
    return folder


def _place() -> Path:
    if PLACE not in os.environ:  # no pytest: a bench that starts a server as the tests do
        atexit.register(shutil.rmtree, open_place(), ignore_errors=True)
    return Path(os.environ[PLACE])


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Whoever else wants the same waits: for what a machine has once."""
    with (_place() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder that ``make`` filled, whichever process came first."""
    place = _place()
    whole, part = place / name, place / f"{name}.part"
    with alone(name):
        if not whole.exists():
            part.mkdir(exist_ok=True)
            make(part)
            part.rename(whole)
    return whole
