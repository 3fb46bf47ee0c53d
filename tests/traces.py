"""What runs on this machine and which loop devices are attached. What ends while one looks is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headrace.base.model import OWNER_VARIABLE

#: For a new mount namespace: it is a copy, in which what other tests have mounted would stay mounted after they
#: unmount it. Their device then is busy, and their mounts are differences between hosts.
FORGET_MOUNTS = (
    "awk '$1 ~ /^.dev.(loop|zram)[0-9]/ || $2 ~ /pytest-of-/ {print $2}' /proc/mounts | tac"
    " | xargs -r umount --lazy || :\n"
)


def read_each(pattern: str) -> Iterator[tuple[Path, bytes]]:
    """The files below ``/`` that fit, with their contents."""
    for path in Path("/").glob(pattern):
        with suppress(OSError):
            yield path, path.read_bytes()


def commands() -> dict[int, list[bytes]]:
    """Of each process the words of its command line."""
    return {int(path.parts[2]): text.split(b"\0") for path, text in read_each("proc/[0-9]*/cmdline")}


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processes_of(owner: str) -> list[int]:
    """The processes that carry this owner's mark."""
    mark = f"{OWNER_VARIABLE}={owner}".encode()
    return [
        int(path.parts[2]) for path, text in read_each("proc/[0-9]*/environ") if mark in text.split(b"\0")
    ]


def loops_below(folder: Path) -> list[str]:
    """The loop devices whose file lies below this folder."""
    files = read_each("sys/block/loop*/loop/backing_file")
    return [path.parts[3] for path, text in files if text.startswith(bytes(folder))]
