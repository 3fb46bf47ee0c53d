"""Processes that outlive this one: identity of a pid, and finding marked processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from headrace.base.errors import TargetError

__all__ = ["MARK", "alive", "boot_id", "end", "end_marked", "identity", "marked"]

#: Each process of a machine carries its folder in this variable: found even if nobody wrote down its number.
MARK = "HEADRACE_VM"
END_PATIENCE_S = 20.0
POLL_S = 0.02


def identity(pid: int) -> tuple[int, str]:
    """When a process started, in ticks since the boot with this id. Raises ProcessLookupError."""
    ticks = _start_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(pid)
    return ticks, boot_id()


def alive(pid: int, start_ticks: int, boot: str) -> bool:
    """Whether that process is still running, and is neither a zombie nor another one with its pid."""
    return boot == boot_id() and _start_ticks(pid) == start_ticks


def marked(place: Path) -> list[int]:
    """Every visible process with this folder's mark."""
    wanted = f"{MARK}={place}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if _start_ticks(pid) is not None]


async def end_marked(place: Path) -> None:
    """Kill all of them. The second pass catches those started during the first."""
    while pids := marked(place):
        await end(pids)


async def end(pids: list[int]) -> None:
    """Kill them, and wait until they are gone. Raises TargetError for one that stays."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_PATIENCE_S
    while left := [pid for pid in pids if _start_ticks(pid) is not None]:
        if time.monotonic() > deadline:
            raise TargetError(f"process {left[0]} does not end after SIGKILL: it is stuck in the kernel")
        await asyncio.sleep(POLL_S)


def boot_id() -> str:
    """The id of this machine's boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for a process that ended, a zombie too.

    A zombie whose other threads still run is alive: it has all its files and locks.
    """
    try:
        # The name in parentheses may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] in ("Z", "X") and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return None
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
