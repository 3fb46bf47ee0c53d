"""Targets: machines we can run commands on. ``local``, ``ssh`` and a fixture folder share one interface.

Nothing above this module opens a file of a host or starts a program on it in any other way, so a trial on
this machine and one across the world are the same code. ``tests/contracts/target.py`` is the suite that
every implementation passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """A command that ended."""

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
        """The process id on the target."""

    def lines(self) -> AsyncIterator[str]:
        """Lines of standard output as they come (only where ``stdout_path`` was not given)."""

    async def wait(self, timeout_s: float | None = None) -> int:
        """The exit code; -N when signal N ended it. Raises TimeoutError, leaving the process alone."""

    async def signal(self, name: str) -> None:
        """Send ``TERM``, ``INT``, ``KILL`` ...; nothing happens when it has ended already."""

    async def close_stdin(self) -> None: ...

    async def error_text(self) -> str:
        """Standard error so far, at most the last 64 KiB (only where ``stderr_path`` was not given)."""


class Target(Protocol):
    """A machine. ``name`` is how people call it; ``is_root`` is known after ``connect``."""

    name: str
    is_root: bool

    async def connect(self) -> None:
        """Reach the host; raises TargetError with the reason and what to check."""

    async def close(self) -> None: ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        """Run to the end. ``env`` is added to the target's own. With ``check`` a failure raises CommandFailed.

        A program that is not there is exit code 127, as in a shell. Past the time limit the command is
        killed and CommandFailed raised. When the caller is cancelled the command is killed, too.
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

        ``detached`` puts it in a session of its own, so that Ctrl-C at our terminal does not reach it.
        """

    async def read(self, path: str) -> bytes:
        """A file's content; raises FileNotFoundError or TargetError."""

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a file, whole or not at all (temporary name, then rename)."""

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Copy a file of this machine to the target."""

    async def get(self, path: str, destination: Path) -> None:
        """Copy a file of the target to this machine."""

    async def exists(self, path: str) -> bool: ...
