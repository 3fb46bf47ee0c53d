"""Targets: machines we can run commands on. ``local``, ``ssh`` and a fixture folder share one interface.

Nothing above this package opens a file of a host or starts a program on it in any other way, so a trial on
this machine and one across the world are the same code. ``tests/contracts/target.py`` is the suite that
every implementation passes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from headrace.errors import PlanError

__all__ = ["Completed", "Process", "Target", "TargetSpec", "open_target", "to_the_end"]

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


@dataclass(frozen=True)
class TargetSpec:
    """Which machine, before it is reached. ``user`` and ``port`` of None leave the choice to ``~/.ssh/config``.

    ``sudo`` makes us root there, ``jump`` is the way there (``user@host[:port],...``, nearest first),
    ``forward_agent`` lets commands there use our ssh-agent. A connection that breaks is tried for ``reconnect_s``,
    10 minutes where it is None.
    """

    kind: Literal["local", "ssh", "fixture"]
    host: str = ""
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    path: str = ""
    sudo: bool = False
    jump: str = ""
    forward_agent: bool = False
    reconnect_s: float | None = None

    @staticmethod
    def parse(
        address: str,
        *,
        identity_file: str | None = None,
        known_hosts: str | None = None,
        sudo: bool = False,
        jump: str = "",
        forward_agent: bool = False,
        reconnect_s: float | None = None,
    ) -> TargetSpec:
        """``local``, ``user@host[:port]`` (IPv6 as ``user@[::1]:22``), or a folder with a saved host.

        Behind an SSH address may stand ``+sudo``, ``+agent`` (forwarded) and ``+jump=user@host[:port],...``: what
        holds for this one beside what is given for all.
        """
        if address == "local":
            return TargetSpec("local")
        remote = re.fullmatch(
            r"(?P<user>[^@/\s]+)@(?P<host>\[[^]\s]+\]|[^:/\s\[+]+)(:(?P<port>\d+))?"
            r"(?P<options>(\+(sudo|agent|jump=[^+\s]+))*)",
            address,
        )
        if remote:
            port = int(remote["port"]) if remote["port"] else None
            if port is not None and not 0 < port < 65536:
                raise PlanError(f"target {address!r}: the port must be 1 to 65535")
            options = remote["options"].split("+")[1:]
            own_jump = [option.removeprefix("jump=") for option in options if option.startswith("jump=")]
            return TargetSpec(
                "ssh",
                host=remote["host"].strip("[]"),
                port=port,
                user=remote["user"],
                identity_file=identity_file,
                known_hosts=known_hosts,
                sudo=sudo or "sudo" in options,
                jump=",".join(own_jump) or jump,
                forward_agent=forward_agent or "agent" in options,
                reconnect_s=reconnect_s,
            )
        if address and Path(address).is_dir():
            return TargetSpec("fixture", path=address)
        raise PlanError(
            f"target {address!r}: must be local, user@host[:port][+sudo], or an existing folder with a saved host"
        )


def open_target(spec: TargetSpec, tell: Callable[[str], None] = lambda _: None) -> Target:
    """The target of a spec, not connected yet. ``tell`` hears when the way to it is lost and when it is back."""
    # Imported here because asyncssh alone takes longer than everything else that `headrace --help` needs.
    match spec.kind:
        case "local":
            from headrace.target.local import LocalTarget

            return LocalTarget()
        case "fixture":
            from headrace.target.fixture import FixtureTarget

            return FixtureTarget(Path(spec.path))
        case "ssh":
            from headrace.target.ssh import SshTarget

            return SshTarget(
                spec.host,
                port=spec.port,
                user=spec.user,
                keys=[spec.identity_file] if spec.identity_file else None,
                known_hosts=spec.known_hosts,
                jump=spec.jump,
                sudo=spec.sudo,
                forward_agent=spec.forward_agent,
                reconnect_s=spec.reconnect_s,
                tell=tell,
            )


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
