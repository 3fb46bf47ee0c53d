"""This controller's identity on the hosts it holds, so that remains of dead controllers can be recognised."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

#: Environment variable of processes that hold a host for a controller.
VARIABLE = "HEADRACE_CONTROLLER"

#: The holders of this process.
_live: set[str] = set()


def begin() -> str:
    """A name for one thing that this process holds somewhere, until ``end``."""
    name = f"{_machine()} {os.getpid()} {_started(os.getpid())} {secrets.token_hex(8)}"
    _live.add(name)
    return name


def end(name: str) -> None:
    _live.discard(name)


def is_dead(name: str) -> bool:
    """Whether the process with this name has ended. Unknown, so False, for other machines' processes."""
    machine, _, rest = name.partition(" ")
    try:
        pid, started, _ = rest.split()
        if machine != _machine():
            return False
        if int(pid) == os.getpid() and started == _started(os.getpid()):
            return name not in _live
        return started != _started(int(pid))
    except ValueError:
        return False


def _machine() -> str:
    """The identity of this machine's PID namespace since its boot."""
    parts = []
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            parts.append(Path(path).read_text().strip())
        except OSError:
            parts.append("unknown")
    try:
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        parts.append("unknown")
    return "/".join(parts)


def _started(pid: int) -> str:
    """When a process started, in ticks since the boot; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
