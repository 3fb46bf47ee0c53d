"""Control groups with a limit: of memory, in which the OOM killer kills, or of CPU time. Versions 1 and 2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.waiting import until


class MemoryGroup:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def within(self, argv: Sequence[str], *, oom_score: int = 0) -> list[str]:
        """The command that runs ``argv`` in the group, with that ``oom_score_adj``."""
        script = 'echo 0 > "$1/cgroup.procs" && echo "$2" > /proc/self/oom_score_adj && shift 2 && exec "$@"'
        return ["sh", "-c", script, "sh", str(self.folder), str(oom_score), *argv]

    def processes(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def kills(self) -> int:
        """How many processes the OOM killer has killed in it."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(FileNotFoundError):
                lines = (self.folder / name).read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")
        raise AssertionError(f"{self.folder} counts no kills")


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup | str]:
    """The group, or one line that says why none can be made. When it ends, its processes have ended."""
    parent = _hierarchy()
    if isinstance(parent, str):
        yield parent
        return
    folder = parent / f"headrace-tests-{os.getpid()}"
    try:
        folder.mkdir()
        _limit(folder, limit_bytes)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        yield f"no control group of memory: {error}"
        return
    group = MemoryGroup(folder)
    try:
        yield group
    finally:
        until(lambda: not group.processes(), what="the end of all in the group")
        until(lambda: _is_removed(folder), what="the end of the group")


@contextlib.contextmanager
def cpu_group(quota_us: int) -> Iterator[Path | str]:
    """A group that has so much CPU time in 100 ms, or one line that says why none can be made. Its processes must
    have ended before it ends."""
    parent = _hierarchy("cpu")
    if isinstance(parent, str):
        yield parent
        return
    folder = parent / f"headrace-tests-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        yield f"no control group of CPUs: {error}"
        return
    try:
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{quota_us} 100000")
        else:
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        yield folder
    finally:
        until(lambda: _is_removed(folder), what="the end of the group")


def _hierarchy(controller: str = "memory") -> Path | str:
    """Where groups that limit memory, or CPU time, are made: what ``/proc/self/mounts`` says first."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and controller in options.split(","):
            return Path(place)
        if kind == "cgroup2" and controller in Path(place, "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                Path(place, "cgroup.subtree_control").write_text(f"+{controller}")
                return Path(place)
    return f"no hierarchy of control groups with the controller {controller}"


def _limit(folder: Path, limit_bytes: int) -> None:
    """Of memory and of swap: what may be swapped out is not short."""
    is_2 = (folder / "memory.max").exists()
    limits = [("memory.max", limit_bytes), ("memory.swap.max", 0)]
    if not is_2:
        limits = [("memory.limit_in_bytes", limit_bytes), ("memory.memsw.limit_in_bytes", limit_bytes)]
    (folder / limits[0][0]).write_text(str(limits[0][1]))
    # A kernel without swap, or that counts none, has no such file.
    if (folder / limits[1][0]).exists():
        (folder / limits[1][0]).write_text(str(limits[1][1]))


def _is_removed(folder: Path) -> bool:
    """A group can be busy for a moment after its last process."""
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()
