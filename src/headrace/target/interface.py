"""What every target can do: run commands, move files; ``tests/contracts/target.py`` is the suite for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headrace.errors import TargetError

T = TypeVar("T")


@dataclass(frozen=True)
class Completed:
    """A command that ended. ``exit_code`` is -N when signal N ended it."""

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
        """Lines of standard output as they come (only where ``stdout_path`` was not given).

        A command that prints faster than its lines are taken waits.
        """

    async def wait(self, timeout_s: float | None = None) -> int:
        """The exit code; -N when signal N ended it. Raises TimeoutError, leaving the process alone.

        Output that nobody has taken yet is kept meanwhile, so waiting first and reading then cannot deadlock.
        """

    async def signal(self, name: str) -> None:
        """Send ``TERM``, ``INT``, ``KILL`` ... to the process group; nothing happens when it has ended already."""

    async def write(self, content: bytes) -> None:
        """Hand this to its standard input; what a command that has ended does not read is dropped."""

    async def close_stdin(self) -> None: ...

    async def error_text(self) -> str:
        """Standard error so far, at most the last 64 KiB (only where ``stderr_path`` was not given)."""


class Target(Protocol):
    """A machine. ``name`` is how people call it; ``is_root`` is known after ``connect``."""

    name: str
    is_root: bool

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        """When the way to the host was lost and when it was back, in ns of this machine's clock."""

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Do this whenever the way to the host is back after a loss, before anything else happens there.

        What it raises ends the connection for all. The answer takes the request back.
        """

    async def connect(self) -> None:
        """Reach the host; raises TargetError with the reason and what to check."""

    async def close(self) -> None:
        """Stop what was spawned without ``detached``, and let go of the host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        check: bool = True,
        repeatable: bool = False,
    ) -> Completed:
        """Run to the end. The locale is C, so that output can be parsed, and ``/usr/sbin`` is searched, too:
        mkfs and mysqld stand there. ``env`` is added to the target's own.

        With ``check`` an exit code other than 0 raises CommandFailed. A program that is not there is exit code
        127, as in a shell. Past the time limit the command and its children are killed and CommandFailed is
        raised. When the caller is cancelled they are killed, too.

        When the way to the host is lost meanwhile, the command is ended as soon as it is back. One that is
        ``repeatable`` is then run again; for any other ConnectionLost is raised at once.
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
        """Start and return at once. The paths are on the target. Standard input stays open until closed.

        Ctrl-C at our terminal never reaches a command: whoever started it decides. ``detached`` puts it in a
        session of its own and lets it outlive ``close`` and the connection; give it output paths then. A
        program that is not there, or a path that cannot be written, raises CommandFailed.

        It goes on when the way to the host is lost: ``wait`` then takes longer. What it printed is only there
        for somebody who gave a path: ``lines`` and ``write`` raise ConnectionLost.
        """

    async def read(self, path: str) -> bytes:
        """A file's content; raises FileNotFoundError or TargetError."""

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a file, whole or not at all (temporary name, then rename). Raises TargetError or DiskFull."""

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Copy a file of this machine to the target, whole or not at all. Raises as ``write`` does."""

    async def get(self, path: str, destination: Path) -> None:
        """Copy a file of the target to this machine, whole or not at all. Raises as ``read`` does."""

    async def exists(self, path: str) -> bool: ...


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end even if we are cancelled meanwhile; the cancellation is delivered afterwards."""
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
    """A private folder on the target, below ``parent`` (empty: where temporary files go); removed at the end."""
    where = ["-p", parent] if parent else ["-t"]
    folder = (await target.run(["mktemp", "-d", *where, "headrace-XXXXXXXX"])).text.strip()
    try:
        yield folder
    finally:
        # A target that is lost says so to whoever needs it next; here it would only hide how that came about.
        with contextlib.suppress(TargetError):
            await to_the_end(target.run(["rm", "-rf", "--", folder], check=False))
