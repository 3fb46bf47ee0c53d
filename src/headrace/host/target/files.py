"""Files of a host by shell commands, ``cat`` and ``dd``: for every target that runs commands in a shell."""

from __future__ import annotations

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headrace.base.errors import ConnectionLost, DiskFull, TargetError
from headrace.host.target.command import MOST_BYTES, MOST_WORDS_BYTES, PIECE_BYTES, Command, kill_quietly
from headrace.host.target.interface import Completed

NO_SUCH_FILE = 44

T = TypeVar("T")


class FilesByShell(ABC):
    """``read``, ``write``, ``put``, ``get`` and ``exists`` of a target, made of its commands."""

    name: str

    @abstractmethod
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
        """As ``Target.run``."""

    @abstractmethod
    async def _start(self, argv: Sequence[str], env: Mapping[str, str] | None) -> tuple[Command, Any]:
        """A command that was started, with its streams."""

    async def _again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Work that may be repeated if the connection breaks in the middle."""
        return await attempt()

    async def read(self, path: str) -> bytes:
        script = f'[ -e "$0" ] || exit {NO_SUCH_FILE}; exec cat -- "$0"'
        completed = await self.run(
            ["sh", "-c", script, path], timeout_s=None, check=False, repeatable=True, most_bytes=MOST_BYTES
        )
        self._check_read(completed.exit_code, completed.error_text, path)
        return completed.stdout

    def _check_read(self, exit_code: int, error_text: str, path: str) -> None:
        if exit_code == NO_SUCH_FILE:
            raise FileNotFoundError(2, f"no such file on {self.name}", path)
        if exit_code != 0:
            raise TargetError(f"cannot be read: {_reason(error_text)}", place=f"{self.name}:{path}")

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        async def attempt() -> None:
            async with self._writing(path, len(content), mode) as stdin:
                await stdin.write(content)

        await self._again(attempt)

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        async def attempt() -> None:
            with source.open("rb") as file:
                async with self._writing(path, source.stat().st_size, mode) as stdin:
                    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                        await stdin.write(piece)

        await self._again(attempt)

    @contextlib.asynccontextmanager
    async def _writing(self, path: str, size_bytes: int, mode: int) -> Any:
        """Standard input of a script that writes the file completely, syncs it, and then renames it."""
        # The size is checked, because a lost connection looks to dd like the end of the file.
        script = """
            umask 077
            draft=$(mktemp -- "$(dirname -- "$0")/.headrace.XXXXXXXX") || exit 1
            trap 'rm -f -- "$draft"' EXIT
            trap 'exit 1' TERM
            dd of="$draft" bs=64k conv=fsync status=none || exit 1
            [ "$(wc -c <"$draft")" -eq "$1" ] || { echo 'it did not arrive whole' >&2; exit 1; }
            chmod "$2" "$draft" && mv -fT -- "$draft" "$0"
        """
        command, _ = await self._start(["sh", "-c", script, path, str(size_bytes), f"{mode:o}"], None)
        assert command.stderr
        try:
            yield command.stdin
            command.stdin.close()
            exit_code = await command.wait()
            words = (await command.stderr.read_all(MOST_WORDS_BYTES)).decode("utf-8", "replace")
        except ConnectionLost:
            command.let_go()
            raise
        except BaseException:
            await kill_quietly(command)
            raise
        if exit_code == 0:
            return
        place = f"{self.name}:{path}"
        if "No space left on device" in words or "Disk quota exceeded" in words:
            raise DiskFull(
                "no room left", place=place, hint="free some space, then run the same command again"
            )
        raise TargetError(f"cannot be written: {_reason(words)}", place=place)

    async def get(self, path: str, destination: Path) -> None:
        draft = destination.with_name(f".{destination.name}.part")

        async def attempt() -> tuple[int, str]:
            script = f'[ -e "$0" ] || exit {NO_SUCH_FILE}; exec cat -- "$0"'
            command, _ = await self._start(["sh", "-c", script, path], None)
            assert command.stdout
            assert command.stderr
            try:
                # It may hold what production sends: nobody else reads it, whatever the umask.
                with open(draft, "wb", opener=_private) as file:
                    async for piece in command.stdout.pieces():
                        await asyncio.to_thread(file.write, piece)
                exit_code = await command.wait()
                return exit_code, (await command.stderr.read_all(MOST_WORDS_BYTES)).decode("utf-8", "replace")
            except ConnectionLost:
                command.let_go()
                raise
            except BaseException:
                await kill_quietly(command)
                raise

        try:
            exit_code, words = await self._again(attempt)
            self._check_read(exit_code, words, path)
            draft.replace(destination)
        finally:
            draft.unlink(missing_ok=True)

    async def exists(self, path: str) -> bool:
        return (await self.run(["test", "-e", path], check=False, repeatable=True)).exit_code == 0


def _private(path: str, flags: int) -> int:
    Path(path).unlink(missing_ok=True)  # what an earlier one left may be open to others
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def _reason(error_text: str) -> str:
    return (
        error_text.strip().splitlines()[-1].rpartition(": ")[2] if error_text.strip() else "no reason given"
    )
