"""The interface of every target: run commands, move files; ``tests/contracts/target.py`` tests each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headrace.base.errors import TargetError

T = TypeVar("T")


@dataclass(frozen=True)
class Completed:
    """A finished command. ``exit_code`` is -N if signal N killed it."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace")


class Process(Protocol):
    """A command that runs on a target."""

    @property
    def pid(self) -> int:
        """The process id on the target; its process group has the same number."""

    def lines(self) -> AsyncIterator[str]:
        """Lines of standard output as they arrive (only without ``stdout_path``).

        A command that prints faster than its lines are read waits.
        """

    async def wait(self, timeout_s: float | None = None) -> int:
        """The exit code; -N if signal N killed it.

        Raises TimeoutError without killing the process. Unread output is buffered meanwhile, so waiting before
        reading cannot deadlock.
        """

    def ignore_output(self) -> None:
        """Drop what it prints from now on. Before ``wait`` where nobody reads on: it may print without end."""

    async def signal(self, name: str) -> None:
        """Send ``TERM``, ``INT``, ``KILL`` ... to the process group; does nothing if it has ended."""

    async def write(self, content: bytes) -> None:
        """Write this to its standard input; data that a finished command does not read is dropped."""

    async def close_stdin(self) -> None: ...

    async def error_text(self) -> str:
        """Standard error so far, at most the last 64 KiB (only without ``stderr_path``)."""


class Target(Protocol):
    """A machine. ``name`` is its name in messages; ``is_root`` is known after ``connect``."""

    name: str
    is_root: bool

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        """When the connection was lost and restored, in ns of this machine's clock."""

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call this after every reconnection, before anything else happens there.

        If it raises, the connection ends for all. Returns a function that cancels the request.
        """

    async def connect(self) -> None:
        """Connect to the host; raises TargetError with the reason and what to check."""

    async def close(self) -> None:
        """Stop everything spawned without ``detached``, and disconnect."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        check: bool = True,
        repeatable: bool = False,
        most_bytes: int | None = None,
    ) -> Completed:
        """Run to the end.

        The locale is C, so that output can be parsed, and ``/usr/sbin`` is also searched, for mkfs and mysqld.
        ``env`` is added to the target's own. With ``check`` an exit code other than 0 raises CommandFailed. A
        missing program gives exit code 127, as in a shell. Past the time limit the command and its children are
        killed and CommandFailed is raised. They are also killed if the caller is cancelled. If the connection is
        lost meanwhile, the command is killed after reconnecting. A ``repeatable`` one is then run again; for any
        other, ConnectionLost is raised immediately. One that prints more than ``most_bytes`` [128 MiB] is
        killed, and CommandFailed raised.
        """

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        detached: bool = False,
    ) -> Process:
        """Start and return immediately.

        The paths are on the target. Standard input stays open until closed. Ctrl-C at the terminal never reaches a
        command: its caller decides. ``detached`` starts it in its own session and lets it outlive ``close`` and
        the connection; it needs output paths. A missing program, or a path that cannot be written, raises
        CommandFailed. It keeps running when the connection is lost: ``wait`` then takes longer, but ``lines`` and
        ``write`` raise ConnectionLost, so use paths to keep its output.
        """

    async def read(self, path: str) -> bytes:
        """A file's content; raises FileNotFoundError or TargetError."""

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a file atomically (temporary name, then rename). Raises TargetError or DiskFull."""

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Copy a local file to the target, atomically. Raises like ``write``."""

    async def get(self, path: str, destination: Path) -> None:
        """Copy a file of the target to this machine, atomically. Raises like ``read``."""

    async def exists(self, path: str) -> bool: ...


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end even on cancellation, which is delivered afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


@contextlib.asynccontextmanager
async def scratch_folder(target: Target, parent: str = "") -> AsyncIterator[str]:
    """A private folder on the target, below ``parent``, which is made if missing (empty: the default for temporary
    files); removed at the end.
    """
    make = ["mktemp", "-d", "-t", "headrace-XXXXXXXX"]
    if parent:
        make = ["sh", "-c", 'mkdir -p -- "$0" && exec mktemp -d -p "$0" headrace-XXXXXXXX', parent]
    folder = (await target.run(make)).text.strip()
    try:
        yield folder
    finally:
        # A lost target raises an error on its next use; raising it here would hide the original error.
        with contextlib.suppress(TargetError):
            await to_the_end(target.run(["rm", "-rf", "--", folder], check=False))
