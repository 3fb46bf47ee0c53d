"""A command as the way in: whatever runs ``sh`` over there, such as ``docker exec -i db`` or ``nsenter -t 42 -a``.

Each command of ours is one run of it, followed by ``sh -c LINE``; its standard input, output and error are those
of the program there. It must pass them unchanged, and its arguments as they are. There is no connection to lose:
what ends with the command has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headrace.base.errors import CommandFailed, HeadraceError, NotReady, PlanError, TargetError
from headrace.host.target.command import (
    TAIL_BYTES,
    Command,
    Input,
    NotStarted,
    Output,
    failed,
    kill_quietly,
    let_leased_end,
    run_to_end,
    timed_out,
)
from headrace.host.target.files import FilesByShell
from headrace.host.target.interface import Completed, Process
from headrace.host.target.local import not_started, popen, watch
from headrace.host.target.shell import MOST_PREFACE, SAFE, Shell

#: How long it may take to start a command over there.
START_TIMEOUT_S = 60.0
#: Runs at once: each is a process here and, in a container, a call to its engine.
RUNS_AT_ONCE = 4
#: Spawned commands are stopped within this time on close.
CLOSE_S = 30.0
#: Time limit for ending a command that was just starting.
LAST_TRY_S = 1.0
#: Its last words may come after its end.
LAST_WORDS_S = 5.0

#: Prints the user, what comes by standard input, the first folder in which a program may be written and run, and
#: the first for temporary files. In a container the home may be missing, read-only or mounted noexec.
_HELLO = f"""{SAFE}
id -u
read -r line
echo "in $line"
umask 077
user=$(id -u)
runs() {{
  mkdir -p -- "$1/headrace" 2>/dev/null && safe "$1/headrace" >/dev/null || return 1
  probe=$(mktemp "$1/headrace/.probe.XXXXXX" 2>/dev/null) || return 1
  printf '#!/bin/sh\\nexit 0\\n' >"$probe" && chmod 700 "$probe" && "$probe" 2>/dev/null
  code=$?
  rm -f -- "$probe"
  return $code
}}
for folder in "$XDG_CACHE_HOME" "$HOME/.cache" "/var/tmp/.headrace-$user" "/tmp/.headrace-$user" \\
    "/dev/shm/.headrace-$user" "/run/.headrace-$user"; do
  case $folder in /.cache) continue;; /*) ;; *) continue;; esac
  runs "$folder" && echo "cache $folder" && break
  echo "not $folder"
done
for scratch in "${{TMPDIR:-/tmp}}" /var/tmp /dev/shm "$folder"; do
  probe=$(mktemp -d "$scratch/.headrace.XXXXXX" 2>/dev/null) && rmdir "$probe" && echo "scratch $scratch" && break
done
exit 0
"""
_GREETING = "headrace is here"


def words_of(address: str) -> list[str]:
    """The words of ``exec:COMMAND``. Raises PlanError."""
    try:
        words = shlex.split(address.partition(":")[2])
    except ValueError as error:
        raise PlanError(f"target {address!r}: {error}", hint="quote as in a shell") from error
    if not words:
        raise PlanError(f"target {address!r}: no command", hint="such as 'exec:docker exec -i db'")
    return words


class ExecTarget(FilesByShell):
    """``address`` is ``exec:COMMAND``, quoted as in a shell."""

    def __init__(self, address: str) -> None:
        self.name = address
        self.is_root = False
        self._words = words_of(address)
        self._shell = Shell(own_session=True)
        self._env: Mapping[str, str] = {}  # known once connected
        self._turns = asyncio.Semaphore(RUNS_AT_ONCE)
        self._kept: dict[Command, bool] = {}  # what was spawned -> may outlive us

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        return ()

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        return lambda: None

    async def connect(self) -> None:
        """Raises TargetError if the command does not run sh there, or does not pass its input and output."""
        greeting = f"{_GREETING}\n".encode()
        try:
            done = await self.run(["sh", "-c", _HELLO], stdin=greeting, check=False)
        except CommandFailed as error:
            raise TargetError(error.message, place=self.name) from error
        user, *said = done.text.splitlines() or [""]
        if "\r" in done.text:
            raise TargetError(
                "it passes a terminal, which changes what passes", place=self.name, hint="leave out its -t"
            )
        if done.exit_code != 0 or not user.isdecimal():
            words = (done.error_text or done.text).strip().splitlines()[-1:] or [
                f"exit code {done.exit_code}"
            ]
            raise TargetError(f"`id` does not run there: {words[0][:300]}", place=self.name)
        if said[:1] != [f"in {_GREETING}"]:
            raise TargetError(
                "its standard input does not reach the program there",
                place=self.name,
                hint="docker, podman and kubectl exec need -i",
            )
        self.is_root = user == "0"
        self._env = self._folders(said[1:])

    def _folders(self, said: Sequence[str]) -> dict[str, str]:
        """Environment that names folders which can be used. Raises NotReady if no program can run in any."""
        found = {word: path for word, _, path in (line.partition(" ") for line in said)}
        tried = [line.partition(" ")[2] for line in said if line.startswith("not ")]
        if "cache" not in found or "scratch" not in found:
            raise NotReady(
                "no folder there in which a program may be written and run, by us alone: "
                f"{', '.join(tried)} are missing, read-only, noexec, or writable by others",
                place=self.name,
                hint="mount one without noexec, and name it: exec:... env XDG_CACHE_HOME=/FOLDER",
            )
        return {"XDG_CACHE_HOME": found["cache"], "TMPDIR": found["scratch"]}

    async def close(self) -> None:
        await let_leased_end(self._kept)
        for command, is_detached in list(self._kept.items()):
            if is_detached:
                command.let_go()
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(kill_quietly(command), CLOSE_S)
        self._kept.clear()

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
        async def started() -> Command:
            return (await self._start(argv, env, start_timeout_s=timeout_s))[0]

        async with self._turns:
            return await run_to_end(
                started(),
                argv,
                stdin,
                timeout_s=timeout_s,
                check=check,
                place=self.name,
                most_bytes=most_bytes,
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
        try:
            command, exit_code = await self._start(
                argv,
                env,
                stdout_path=stdout_path,
                stderr_path=stderr_path,
                tail=TAIL_BYTES,
                detached=detached,
            )
        except NotStarted as error:
            raise failed(error.completed(argv), self.name) from None
        if not command.ended:
            self._kept[command] = detached
            exit_code.add_done_callback(lambda _: self._kept.pop(command, None))
        return command

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        *,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        tail: int | None = None,
        detached: bool = False,
        start_timeout_s: float | None = START_TIMEOUT_S,
    ) -> tuple[Command, asyncio.Future[int]]:
        marker = f"headrace-{secrets.token_hex(8)}"
        own = {**self._env, **(env or {})}
        line = self._shell.line(argv, own, marker, stdout_path=stdout_path, stderr_path=stderr_path)
        way = _Way(self._words, marker, tail)
        # In a separate task, because a cancellation would lose the pid of the command that was started.
        opening = asyncio.ensure_future(
            way.open([*self._words, "sh", "-c", line], self.name, detached=detached)
        )
        try:
            async with asyncio.timeout(start_timeout_s):
                await asyncio.shield(opening)
                pid = await asyncio.shield(way.pid)
        except BaseException as error:
            await self._forget(opening, way)
            if isinstance(error, TimeoutError):
                raise timed_out(argv, start_timeout_s, self.name) from None
            if isinstance(error, CommandFailed) and not error.place:
                raise CommandFailed(error.message, place=self.name, hint=error.hint) from None
            raise
        command = Command(
            argv,
            pid,
            stdin=way.stdin,
            stdout=None if stdout_path else way.stdout,
            stderr=None if stderr_path else way.stderr,
            exit_code=way.exit_code,
            send_signal=lambda name: self._signal_group(pid, name, way),
        )
        return command, way.exit_code

    async def _forget(self, opening: asyncio.Future[None], way: _Way) -> None:
        """Kill a command whose caller was cancelled while it was starting."""
        with contextlib.suppress(TimeoutError, HeadraceError, NotStarted, asyncio.CancelledError):
            async with asyncio.timeout(LAST_TRY_S):
                await asyncio.shield(opening)
                pid = await asyncio.shield(way.pid)
                await asyncio.shield(self._signal_group(pid, "KILL", way))
        way.abandon()

    async def _signal_group(self, pid: int, name: str, way: _Way) -> None:
        # By another run of the command: most pass no signal on, and the pid is of another namespace.
        kill = f"kill -s {name} -- -{pid} 2>/dev/null || kill -s {name} {pid} 2>/dev/null || [ ! -e /proc/{pid} ]"
        try:
            command, _ = await self._start(["sh", "-c", kill], None)
            code = await command.wait(START_TIMEOUT_S)
        except (HeadraceError, NotStarted, TimeoutError):
            way.abandon()  # nothing runs there any more, so only what is here can be ended
            return
        if code != 0:
            raise TargetError(f"process {pid} belongs to another user: cannot signal it", place=self.name)


class _Way:
    """One run of the command: finds where the program's output starts, and its pid, then fills the streams."""

    def __init__(self, words: Sequence[str], marker: str, tail: int | None) -> None:
        loop = asyncio.get_running_loop()
        self.pid: asyncio.Future[int] = loop.create_future()
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.stdin = Input()
        self.stdout = Output()
        self.stderr = Output(tail)
        self._words = words
        self._out = _Opening(marker.encode(), self.stdout, self._begun)
        self._err = _Opening(marker.encode(), self.stderr, lambda _: None)
        self._child: Any = None
        self._ended: asyncio.Future[int] = loop.create_future()
        self._ending: asyncio.Task[None] | None = None
        for future in (self.pid, self.exit_code):
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def open(self, argv: Sequence[str], place: str, *, detached: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._child = popen(argv, None, Output(), Output(), detached)
        except OSError as error:
            words = not_started(argv[0], error).words.decode().strip()
            raise TargetError(f"the command cannot be started: {words}", place=place) from None
        watch(self._child, loop, self._ended)
        self._ended.add_done_callback(self._on_end)
        await loop.connect_write_pipe(lambda: self.stdin, self._child.stdin)
        await loop.connect_read_pipe(lambda: self._out, self._child.stdout)
        await loop.connect_read_pipe(lambda: self._err, self._child.stderr)

    def abandon(self) -> None:
        """End what runs here of it."""
        self.pid.cancel()  # nor is it waited for by what is done at the end
        if self._ending is not None:
            self._ending.cancel()
        if self._child is not None and not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
        if self._child is not None:
            self.stdin.close()
        self._out.close()
        self._err.close()

    def _begun(self, rest: bytes) -> None:
        numbers = rest.split()
        if numbers and numbers[0].isdigit() and not self.pid.done():
            self.pid.set_result(int(numbers[0]))

    def _on_end(self, ended: asyncio.Future[int]) -> None:
        if ended.cancelled():
            return
        code = ended.result()
        # As a shell says it, and docker and kubectl too.
        code = 128 - code if code > 128 and code - 128 in signal.valid_signals() else code
        # In a task: what it printed last is still to come.
        self._ending = asyncio.ensure_future(self._end(code))

    async def _end(self, code: int) -> None:
        if not self.pid.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(self._out.end.wait(), self._err.end.wait()), LAST_WORDS_S
                )
        if not self.pid.done():
            self.pid.set_exception(self._why_not_started(code))
        if not self.exit_code.done():
            self.exit_code.set_result(code)

    def _why_not_started(self, code: int) -> Exception:
        said = (
            (self.stderr.so_far or self._err.preface or self._out.preface).decode("utf-8", "replace").strip()
        )
        if self._err.is_begun:
            return (
                NotStarted(code, said.encode())
                if code in (126, 127)
                else CommandFailed(said or f"it ended with exit code {code} before it began")
            )
        command = shlex.join(self._words)
        last = said.splitlines()[-1:] or [f"it ended with {_how(code)} and printed nothing"]
        return CommandFailed(
            f"`{command}` did not run sh there: {last[0][:300]}",
            hint="it must pass arguments, input and output unchanged: try it with `sh -c 'echo it works'`",
        )


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


class _Opening(asyncio.Protocol):
    """Passes on what follows the line with the marker: a banner may be printed before."""

    def __init__(self, marker: bytes, output: Output, begun: Callable[[bytes], None]) -> None:
        self.preface = b""
        self.is_begun = False
        self.end = asyncio.Event()
        self._marker, self._output, self._begun = marker, output, begun

    def connection_made(self, transport: Any) -> None:
        self._output.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.is_begun:
            self._output.data_received(data)
            return
        self.preface = (self.preface + data)[-MOST_PREFACE:]
        _, found, rest = self.preface.partition(self._marker)
        numbers, ended, output = rest.partition(b"\n")
        if found and ended:
            self.is_begun = True
            self._begun(numbers)
            if output:
                self._output.data_received(output)

    def connection_lost(self, error: Exception | None) -> None:
        self._output.connection_lost(error)
        self.end.set()

    def close(self) -> None:
        self._output.close()
