"""A host over SSH.

One connection; every command is a channel of it. Files go through ``cat`` and ``dd`` rather than SFTP: an atomic,
synced write needs a shell anyway, and many hardened hosts have no SFTP subsystem. Spawned commands outlive their
connection: a small parent shell records the exit code on the host, and ``wait`` continues over the next
connection. Commands started by ``run`` are killed after reconnecting, and repeated only if that is harmless; all
others raise ConnectionLost.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from headrace.base.errors import CommandFailed, ConnectionLost, HeadraceError, Refused, TargetError
from headrace.host.target.channel import Channel
from headrace.host.target.command import (
    TAIL_BYTES,
    Command,
    NotStarted,
    failed,
    kill_quietly,
    let_leased_end,
    run_to_end,
    timed_out,
)
from headrace.host.target.files import FilesByShell
from headrace.host.target.interface import Completed, Process
from headrace.host.target.link import Hop, Link, jumps
from headrace.host.target.shell import (
    ATTACH,
    CACHE_FOLDER,
    END_ALL,
    ENDED_FOLDER,
    SAFE,
    Shell,
    exit_code_of,
)

#: How long a host may take to start a command.
START_TIMEOUT_S = 60.0
#: sshd allows 10 sessions per connection (MaxSessions); the rest is for spawned commands.
RUNS_AT_ONCE = 4
#: Spawned commands are stopped within this time on close.
CLOSE_S = 30.0
#: Time limit of cleanup commands before disconnecting.
LAST_TRY_S = 1.0

T = TypeVar("T")

#: Report the user, the forwarded agent, whether others may change our folder; remove exit codes older than a day.
_HELLO = f"""{SAFE}
id -u
echo "agent $SSH_AUTH_SOCK"
folder={CACHE_FOLDER} in=
umask 077
mkdir -p -- "$folder" 2>/dev/null
# What is above it, if it cannot be made.
while [ ! -d "$folder" ]; do folder=$(dirname -- "$folder") in=in; done
safe "$folder" $in || exit 0
echo safe
find "{ENDED_FOLDER}" -type f -mtime +0 -delete 2>/dev/null
exit 0
"""


class SshTarget(FilesByShell):
    """A host over SSH, by asyncssh: its defaults for keys, agent, ``~/.ssh/config`` and known hosts.

    ``jump`` is ``user@host[:port],...`` as in ProxyJump, with the same keys and known hosts. ``sudo`` runs
    everything as root, ``forward_agent`` lets commands use the local ssh-agent. ``tell`` hears when the connection
    is lost and restored; it is retried for ``reconnect_s``.
    """

    def __init__(
        self,
        host: str,
        *,
        port: int | None = None,
        user: str | None = None,
        keys: Sequence[str | Path] | None = None,
        known_hosts: str | Path | None = None,
        jump: str = "",
        sudo: bool = False,
        forward_agent: bool = False,
        reconnect_s: float | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = f"{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
        self.is_root = False
        options: dict[str, Any] = {
            "client_keys": [str(Path(key).expanduser()) for key in keys] if keys else (),
            "known_hosts": str(Path(known_hosts).expanduser()) if known_hosts else (),
        }
        before = jumps(jump, options)
        if forward_agent:
            options = {**options, "agent_forwarding": True}
        self._shell = Shell(sudo, forward_agent)
        self._link = Link(
            Hop(host, port, user, options),
            before,
            patience_s=reconnect_s,
            on_return=self._mend,
            on_end=self._give_up,
            tell=tell,
        )
        self._turns = asyncio.Semaphore(RUNS_AT_ONCE)
        self._kept: set[Command] = set()  # what was spawned and must not outlive us
        self._adrift: dict[Channel, Command] = {}  # what was spawned over a connection that broke
        self._cut: set[str] = set()  # markers of commands that may run there without us
        self._ended: set[str] = set()  # markers of exit codes that nobody needs any more
        self._waiting: set[asyncio.Task[None]] = set()
        self._hooks: list[Callable[[], Awaitable[None]]] = []

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        return self._link.interruptions

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        self._hooks.append(work)
        return lambda: self._hooks.remove(work)

    async def connect(self) -> None:
        await self._link.connect()
        try:
            completed = await self.run(["sh", "-c", _HELLO], check=False)
            if completed.exit_code != 0 and self._shell.sudo:
                raise self._no_sudo(completed.error_text)
            user, agent, cache = _three_lines(completed.text, self.name)
            if cache != "safe":
                raise Refused(
                    f"others may change the program that would run there: {cache}",
                    place=self.name,
                    hint="it is in ~/.cache/headrace, or where XDG_CACHE_HOME says: chmod go-w, or unset that",
                )
            if self._shell.forward_agent and agent == "agent ":
                raise TargetError(
                    "the ssh-agent is not forwarded there",
                    place=self.name,
                    hint="is SSH_AUTH_SOCK set here, and AllowAgentForwarding not `no` there?",
                )
            self.is_root = user == "0"
        except CommandFailed as error:
            await self.close()
            # sudo prints its errors before the command starts.
            raise self._no_sudo(error.message) if self._shell.sudo else error from error
        except BaseException:
            await self.close()
            raise

    def _no_sudo(self, words: str) -> TargetError:
        said = words.strip().splitlines()[-1:] or ["it did not start"]
        return TargetError(
            f"no root by sudo: {said[0]}",
            place=self.name,
            hint="`sudo -n true` must work there: visudo, `USER ALL=(ALL) NOPASSWD: ALL`",
        )

    async def close(self) -> None:
        if self._link.is_up:
            await let_leased_end(self._kept)
            for command in list(self._kept):
                # Do not wait for a connection that breaks now.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(kill_quietly(command), CLOSE_S)
            if self._ended:
                with contextlib.suppress(HeadraceError, TimeoutError):
                    names = [f"ended/{marker}" for marker in self._ended]
                    script = f'cd "{ENDED_FOLDER}/.." && rm -f -- "$@"'
                    work = self.run(["sh", "-c", script, "sh", *names], check=False)
                    await asyncio.wait_for(work, LAST_TRY_S)
        self._kept.clear()
        self._ended.clear()
        self._cut.clear()
        await self._link.close()
        self._give_up(TargetError("the connection was closed", place=self.name))

    # -- the connection comes back ------------------------------------------------------------------------------

    async def _mend(self) -> None:
        """On a new connection: first kill stale commands, then call the holders, then reattach to commands."""
        if self._cut:
            cut = set(self._cut)
            await self.run(["sh", "-c", END_ALL, "sh", *cut], timeout_s=START_TIMEOUT_S)
            self._cut -= cut
        for hook in list(self._hooks):
            await hook()
        for channel, command in self._adrift.items():
            self._wait_again(channel, command)
        self._adrift.clear()

    def _wait_again(self, channel: Channel, command: Command) -> None:
        # In a fresh context, because this one passes the gate.
        task = asyncio.create_task(self._reattach(channel, command), context=contextvars.Context())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _reattach(self, channel: Channel, command: Command) -> None:
        """Wait for the end of a command spawned over a broken connection."""
        argv = ["sh", "-c", ATTACH, channel.marker, str(channel.parent)]
        code = channel.exit_code
        command.touch(is_lost=False)
        try:
            # Without a session slot, because it takes as long as the command.
            answer = await self._again(
                lambda: self._run_once(argv, timeout_s=None, check=False), in_turn=False
            )
            result = exit_code_of(answer.text) if answer.exit_code == 0 else None
        except (HeadraceError, ValueError) as error:
            if not code.done():
                code.set_exception(
                    error if isinstance(error, HeadraceError) else TargetError(str(error), place=self.name)
                )
            return
        if code.done():
            return
        if result is not None:
            code.set_result(result)
        else:
            code.set_exception(
                TargetError(
                    f"`{command.argv[0]}` ended while the connection was lost; its exit status is unknown",
                    place=self.name,
                    hint="was the host rebooted?",
                )
            )

    def _on_cut(self, channel: Channel, command: Command) -> None:
        if self._link.is_over:
            channel.exit_code.set_exception(TargetError("the connection was closed", place=self.name))
            return
        command.touch(is_lost=True)
        if self._link.is_up:  # it is back already
            self._wait_again(channel, command)
        else:
            self._adrift[channel] = command

    def _give_up(self, error: HeadraceError) -> None:
        """Detached commands will not be waited for any more."""
        for channel, command in self._adrift.items():
            if not channel.exit_code.done():
                channel.exit_code.set_exception(error)
            command.touch(is_lost=False)
        self._adrift.clear()

    async def _again(self, attempt: Callable[[], Awaitable[T]], *, in_turn: bool = True) -> T:
        """Run work that may be repeated if the connection breaks in the middle."""
        while True:
            await self._link.usable()
            try:
                if not in_turn:
                    return await attempt()
                async with self._turns:
                    return await attempt()
            except ConnectionLost:
                # While the link is being restored, usable() raises, which ends the loop.
                continue

    async def _once(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run work that must not be repeated, unless it never reached the host."""
        while True:
            await self._link.usable()
            try:
                async with self._turns:
                    return await attempt()
            except _Unsent:
                continue

    # -- commands -----------------------------------------------------------------------------------------------

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
        tries = self._again if repeatable else self._once
        return await tries(
            lambda: self._run_once(argv, stdin, env, timeout_s=timeout_s, check=check, most_bytes=most_bytes)
        )

    async def _run_once(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None,
        check: bool,
        most_bytes: int | None = None,
    ) -> Completed:
        async def started() -> Command:
            return (await self._start(argv, env, start_timeout_s=timeout_s))[0]

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
        while True:
            await self._link.usable()
            try:
                command, channel = await self._start(
                    argv, env, stdout_path=stdout_path, stderr_path=stderr_path, tail=TAIL_BYTES, kept=True
                )
                break
            except _Unsent:
                continue
            except NotStarted as error:
                raise failed(error.completed(argv), self.name) from None
        channel.exit_code.add_done_callback(lambda _: self._ended.add(channel.marker))
        if not detached and not command.ended:
            self._kept.add(command)
            channel.exit_code.add_done_callback(lambda _: self._kept.discard(command))
        return command

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        *,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        tail: int | None = None,
        kept: bool = False,
        start_timeout_s: float | None = START_TIMEOUT_S,
    ) -> tuple[Command, Channel]:
        marker = f"headrace-{secrets.token_hex(8)}"
        line = self._shell.line(
            argv, env, marker, stdout_path=stdout_path, stderr_path=stderr_path, kept=kept
        )
        connection = await self._link.usable()
        channel = Channel(marker, tail, self.name, lambda: self._link.why_lost(connection))
        early: list[bool] = []
        if kept:
            channel.on_cut = lambda: early.append(True)
        # In a separate task, because a cancellation would lose the pid of the command that the host starts.
        opening = asyncio.ensure_future(self._open(connection, line, channel))
        try:
            async with asyncio.timeout(start_timeout_s):
                await asyncio.shield(opening)
                pid = await asyncio.shield(channel.pid)
        except _Unsent:
            raise
        except ConnectionLost:
            self._cut.add(marker)
            raise
        except BaseException as error:
            await self._forget(opening, channel)
            if isinstance(error, TimeoutError):
                raise timed_out(argv, start_timeout_s, self.name) from None
            raise
        command = Command(
            argv,
            pid,
            stdin=channel.stdin,
            stdout=None if stdout_path else channel.stdout,
            stderr=None if stderr_path else channel.stderr,
            exit_code=channel.exit_code,
            send_signal=lambda name: self._signal_group(pid, name),
        )
        if kept:
            channel.on_cut = lambda: self._on_cut(channel, command)
            if early:
                self._on_cut(channel, command)
        else:
            channel.exit_code.add_done_callback(lambda code: self._note_cut(code, marker))
        return command, channel

    def _note_cut(self, exit_code: asyncio.Future[int], marker: str) -> None:
        if not exit_code.cancelled() and isinstance(exit_code.exception(), ConnectionLost):
            self._cut.add(marker)

    async def _forget(self, opening: asyncio.Future[None], channel: Channel) -> None:
        """Kill a command whose caller was cancelled while it was starting."""
        self._cut.add(channel.marker)
        with contextlib.suppress(TimeoutError, HeadraceError, NotStarted, asyncio.CancelledError):
            async with asyncio.timeout(LAST_TRY_S):
                await asyncio.shield(opening)
                await asyncio.shield(self._signal_group(await channel.pid, "KILL"))
                self._cut.discard(channel.marker)
        channel.close()

    async def _open(self, connection: asyncssh.SSHClientConnection, line: str, session: Channel) -> None:
        if self._link.why_lost(connection):
            raise _Unsent("the connection was lost", place=self.name)
        try:
            await connection.create_session(lambda: session, line, encoding=None)
        except (OSError, asyncssh.Error) as error:
            await asyncio.sleep(0.01)  # a broken connection closes its channels first
            if lost := self._link.why_lost(connection):
                raise lost from error
            raise TargetError(
                f"the host refuses another session: {error}",
                place=self.name,
                hint="MaxSessions in its sshd_config limits them (10 unless set)",
            ) from error

    async def _signal_group(self, pid: int, name: str) -> None:
        # Not sshd's own "signal" request: it is silent when it fails, and many versions refuse it.
        kill = f"kill -s {name} -- -{pid} 2>/dev/null || kill -s {name} {pid} 2>/dev/null || [ ! -e /proc/{pid} ]"

        async def told() -> int:
            command, _ = await self._start(["sh", "-c", kill], None)
            return await command.wait(START_TIMEOUT_S)

        if await self._again(told, in_turn=False) != 0:
            raise TargetError(f"process {pid} belongs to another user: cannot signal it", place=self.name)


class _Unsent(ConnectionLost):
    """The command never reached the host."""


def _three_lines(said: str, place: str) -> tuple[str, str, str]:
    """What `_HELLO` prints; a forced command or a start-up file of the shell may print something else."""
    lines = said.splitlines()
    if len(lines) < 3:
        raise TargetError(
            f"the host does not answer as a shell does: {said[:200]!r}",
            place=place,
            hint="is there a forced command, or a start-up file that ends the shell? try `ssh HOST id -u`",
        )
    return lines[0], lines[1], lines[2]
