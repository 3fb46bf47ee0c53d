"""A saved host: a read-only folder with (part of) its ``/proc``, ``/sys`` and ``/etc``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from headrace.base.errors import Refused, TargetError
from headrace.host.target.interface import Completed, Process
from headrace.host.target.local import LocalTarget

#: Commands that need no host that runs.
HINT = "headrace hunt, facts and knobs take a saved host; give a live target instead"


class FixtureTarget:
    """``path`` represents ``/`` of the host. The only command is the agent's ``facts``, with ``--root``."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.is_root = False
        self._folder = folder.resolve()
        self._local = LocalTarget()

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        return ()

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        return lambda: None

    async def connect(self) -> None:
        if not any((self._folder / name).is_dir() for name in ("proc", "sys")):
            raise TargetError(
                "this directory is not a saved host: it has neither proc nor sys",
                place=self.name,
                hint="give the directory that represents the host's /",
            )

    async def close(self) -> None:
        await self._local.close()

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
        """Only the agent's ``facts``; every other command raises Refused, without the command: it is ours."""
        if not Path(argv[0]).name.startswith("headrace-agent") or list(argv[1:2]) != ["facts"]:
            self._refuse("nothing can run there")
        reading = [*argv[:2], "--root", str(self._folder), *argv[2:]]
        return await self._local.run(
            reading, stdin=stdin, env=env, timeout_s=timeout_s, check=check, most_bytes=most_bytes
        )

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        detached: bool = False,
    ) -> Process:
        self._refuse("nothing can run there")

    async def read(self, path: str) -> bytes:
        return await self._local.read(str(self._inside(path)))

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        self._refuse(f"{path} cannot be written")

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        self._refuse(f"{path} cannot be written")

    async def get(self, path: str, destination: Path) -> None:
        await self._local.get(str(self._inside(path)), destination)

    async def exists(self, path: str) -> bool:
        return self._inside(path).exists()

    def _refuse(self, what: str) -> NoReturn:
        raise Refused(f"this is a saved host: {what}", place=self.name, hint=HINT)

    def _inside(self, path: str) -> Path:
        found = (self._folder / path.lstrip("/")).resolve()
        # A link of the saved host to /sys must not resolve to this machine's.
        if not found.is_relative_to(self._folder):
            self._refuse(f"{path} leads out of its directory")
        return found
