"""A host over SSH. One connection; every command is a channel of it.

Files go through ``cat`` and ``dd`` rather than SFTP: an atomic, synced write needs a shell anyway, and many
hardened hosts have no SFTP subsystem. The login shell must understand POSIX quoting (sh, bash, dash, ksh, zsh).
A jump host is taken from ``ProxyJump`` in ``~/.ssh/config``; ``sudo`` would wrap the script of ``_start``.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from headrace.errors import CommandFailed, DiskFull, HeadraceError, TargetError
from headrace.target import Completed, Process
from headrace.target.command import (
    PIECE_BYTES,
    TAIL_BYTES,
    Command,
    Input,
    Output,
    failed,
    kill_quietly,
    run_to_end,
    timed_out,
)

CONNECT_TIMEOUT_S = 20.0
#: A dead link is noticed after KEEPALIVE_S * KEEPALIVE_COUNT.
KEEPALIVE_S = 15.0
KEEPALIVE_COUNT = 4
#: How long a host may take to start a command.
START_TIMEOUT_S = 30.0
#: sshd allows 10 sessions a connection (MaxSessions); the rest is left to what was spawned.
RUNS_AT_ONCE = 4
NO_SUCH_FILE = 44


class SshTarget:
    """A host over SSH, by asyncssh: its defaults for keys, agent, ``~/.ssh/config`` and known hosts."""

    def __init__(
        self,
        host: str,
        *,
        port: int | None = None,
        user: str | None = None,
        keys: Sequence[str | Path] | None = None,
        known_hosts: str | Path | None = None,
    ) -> None:
        self.name = f"{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
        self.is_root = False
        self._host = host
        self._port = port
        self._options: dict[str, Any] = {
            "username": user or (),
            "port": port or (),
            "client_keys": [str(Path(key).expanduser()) for key in keys] if keys else (),
            "known_hosts": str(Path(known_hosts).expanduser()) if known_hosts else (),
        }
        self._connection: asyncssh.SSHClientConnection | None = None
        self._turns = asyncio.Semaphore(RUNS_AT_ONCE)
        self._kept: set[Command] = set()  # what was spawned and must not outlive us

    async def connect(self) -> None:
        try:
            self._connection = await asyncssh.connect(
                self._host,
                **self._options,
                connect_timeout=CONNECT_TIMEOUT_S,
                login_timeout=CONNECT_TIMEOUT_S,
                keepalive_interval=KEEPALIVE_S,
                keepalive_count_max=KEEPALIVE_COUNT,
            )
        except (OSError, asyncssh.Error, ValueError) as error:
            raise self._connect_error(error) from error
        try:
            self.is_root = (await self.run(["id", "-u"])).text.strip() == "0"
        except BaseException:
            await self.close()
            raise

    def _connect_error(self, error: Exception) -> TargetError:
        port = f"-p {self._port} " if self._port else ""
        try_it = f"`ssh {port}{self.name.removesuffix(f':{self._port}')} true` must work without a question"
        if isinstance(error, asyncssh.HostKeyNotVerifiable | asyncssh.KeyExchangeFailed):
            return self._host_key_error(error)
        if isinstance(error, asyncssh.PermissionDenied):
            return TargetError("the host refuses this user or key", place=self.name, hint=try_it)
        if isinstance(error, FileNotFoundError):
            return TargetError("no such file", place=error.filename)
        if isinstance(error, TimeoutError):
            message = f"no answer within {CONNECT_TIMEOUT_S:g} s"
        else:
            message = f"cannot connect: {getattr(error, 'strerror', None) or error}"
        return TargetError(message, place=self.name, hint=f"is the host up and sshd listening? {try_it}")

    def _host_key_error(self, error: Exception) -> TargetError:
        """A host we do not know and a host that changed its key are different dangers."""
        known_hosts = self._options["known_hosts"] or str(Path("~/.ssh/known_hosts").expanduser())
        known: Any = ()
        with contextlib.suppress(OSError, ValueError):
            known = asyncssh.match_known_hosts(known_hosts, self._host, "", self._port or 22)[0]
        if known:
            return TargetError(
                f"the host's key is not the one in {known_hosts}: a new installation, or somebody in between",
                place=self.name,
                hint="ask who runs the host; only if its new key is right: ssh-keygen -R removes the old one",
            )
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return TargetError(
                f"the host's key is not in {known_hosts}",
                place=self.name,
                hint="connect once with ssh and compare the fingerprint it shows with the host's own",
            )
        return TargetError(f"no common cryptography: {error}", place=self.name)

    async def close(self) -> None:
        for command in list(self._kept):
            await kill_quietly(command)
        self._kept.clear()
        if self._connection:
            self._connection.close()
            with contextlib.suppress(OSError, asyncssh.Error):
                await self._connection.wait_closed()
            self._connection = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        async with self._turns:
            try:
                command = await self._start(argv, env, start_timeout_s=timeout_s)
            except _NotStarted as error:
                completed = Completed(tuple(argv), error.exit_code, b"", error.words)
                if check:
                    raise failed(completed, self.name) from None
                return completed
            return await run_to_end(command, stdin, timeout_s=timeout_s, check=check, place=self.name)

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
            command = await self._start(
                argv, env, stdout_path=stdout_path, stderr_path=stderr_path, tail=TAIL_BYTES
            )
        except _NotStarted as error:
            raise failed(Completed(tuple(argv), error.exit_code, b"", error.words), self.name) from None
        # sshd gives every command a session of its own, so a detached one needs only to be left alone.
        if not detached and not command.ended:
            self._kept.add(command)
        return command

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        *,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        tail: int | None = None,
        start_timeout_s: float | None = START_TIMEOUT_S,
    ) -> Command:
        marker = f"headrace-{secrets.token_hex(8)}"
        script = _script(argv, env, marker, stdout_path, stderr_path)
        channel = _Channel(marker.encode(), tail, self.name)
        # A task of its own: cancelled half-way, we would never learn the pid of what the host starts meanwhile.
        opening = asyncio.ensure_future(self._open(script, channel))
        try:
            async with asyncio.timeout(start_timeout_s):
                await asyncio.shield(opening)
                pid = await asyncio.shield(channel.pid)
        except BaseException as error:
            with contextlib.suppress(TimeoutError, HeadraceError, _NotStarted, asyncio.CancelledError):
                async with asyncio.timeout(5):
                    await asyncio.shield(opening)
                    await asyncio.shield(self._signal_group(await channel.pid, "KILL"))
            channel.close()
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
        channel.exit_code.add_done_callback(lambda _: self._kept.discard(command))
        return command

    async def _open(self, script: str, session: _Channel) -> None:
        if self._connection is None:
            raise TargetError("not connected", place=self.name)
        try:
            await self._connection.create_session(lambda: session, script, encoding=None)
        except asyncssh.ChannelOpenError as error:
            raise TargetError(
                f"the host opens no further session: {error}",
                place=self.name,
                hint="MaxSessions in its sshd_config limits them (10 unless set)",
            ) from error
        except (OSError, asyncssh.Error) as error:
            raise TargetError(f"the connection is lost: {error}", place=self.name) from error

    async def _signal_group(self, pid: int, name: str) -> None:
        # Not sshd's own "signal" request: it is silent when it fails, and many versions refuse it.
        kill = f"kill -s {name} -- -{pid} 2>/dev/null || kill -s {name} {pid} 2>/dev/null || [ ! -e /proc/{pid} ]"
        command = await self._start(["sh", "-c", kill], None)
        if await command.wait(START_TIMEOUT_S) != 0:
            raise TargetError(f"process {pid} belongs to another user: cannot signal it", place=self.name)

    async def read(self, path: str) -> bytes:
        script = f'[ -e "$0" ] || exit {NO_SUCH_FILE}; exec cat -- "$0"'
        completed = await self.run(["sh", "-c", script, path], timeout_s=None, check=False)
        self._check_read(completed.exit_code, completed.error_text, path)
        return completed.stdout

    def _check_read(self, exit_code: int, error_text: str, path: str) -> None:
        if exit_code == NO_SUCH_FILE:
            raise FileNotFoundError(2, f"no such file on {self.name}", path)
        if exit_code != 0:
            raise TargetError(f"cannot be read: {_reason(error_text)}", place=f"{self.name}:{path}")

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        async with self._writing(path, len(content), mode) as stdin:
            await stdin.write(content)

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        with source.open("rb") as file:
            async with self._writing(path, source.stat().st_size, mode) as stdin:
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    await stdin.write(piece)

    @contextlib.asynccontextmanager
    async def _writing(self, path: str, size_bytes: int, mode: int) -> Any:
        """Standard input of a script that makes the file: whole, synced, and only then under its name."""
        # The size is checked, because a lost connection looks to dd like the end of the file.
        script = """
            umask 077
            draft=$(mktemp -- "$(dirname -- "$0")/.headrace.XXXXXXXX") || exit 1
            trap 'rm -f -- "$draft"' EXIT
            dd of="$draft" bs=64k conv=fsync status=none || exit 1
            [ "$(wc -c <"$draft")" -eq "$1" ] || { echo 'it did not arrive whole' >&2; exit 1; }
            chmod "$2" "$draft" && mv -fT -- "$draft" "$0"
        """
        async with self._turns:
            command = await self._start(["sh", "-c", script, path, str(size_bytes), f"{mode:o}"], None)
            assert command.stderr
            try:
                yield command.stdin
                command.stdin.close()
                exit_code = await command.wait()
                words = (await command.stderr.read_all()).decode("utf-8", "replace")
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
        script = f'[ -e "$0" ] || exit {NO_SUCH_FILE}; exec cat -- "$0"'
        async with self._turns:
            command = await self._start(["sh", "-c", script, path], None)
            assert command.stdout
            assert command.stderr
            try:
                with draft.open("wb") as file:
                    async for piece in command.stdout.pieces():
                        await asyncio.to_thread(file.write, piece)
                exit_code = await command.wait()
                words = (await command.stderr.read_all()).decode("utf-8", "replace")
            except BaseException:
                draft.unlink(missing_ok=True)
                await kill_quietly(command)
                raise
        try:
            self._check_read(exit_code, words, path)
            draft.replace(destination)
        finally:
            draft.unlink(missing_ok=True)

    async def exists(self, path: str) -> bool:
        return (await self.run(["test", "-e", path], check=False)).exit_code == 0


def _script(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    marker: str,
    stdout_path: str | None,
    stderr_path: str | None,
) -> str:
    """One line for the login shell: prepare, say our pid, become the program.

    The pid comes after ``marker``, because a login shell's start files may print something first. ``exec``
    all the way makes the program the leader of the process group that sshd made for the login shell.
    """
    steps = ["exec 3>&1", "LC_ALL=C PATH=$PATH:/usr/sbin:/sbin", "export LC_ALL PATH"]
    for name, value in (env or {}).items():
        if not name.isidentifier() or not name.isascii():
            raise ValueError(f"no name for an environment variable: {name!r}")
        steps.append(f"export {name}={shlex.quote(value)}")
    steps.append('command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || { echo "$1: not found" >&2; exit 127; }')
    if stdout_path:
        steps.append(f"exec >{shlex.quote(stdout_path)}")
    if stderr_path:
        steps.append(f"exec 2>{shlex.quote(stderr_path)}")
    steps += [
        f'echo "{marker} $$" >&3',
        "exec 3>&-",
        'exec "$@"',
    ]
    line = f"exec sh -c {shlex.quote('; '.join(steps))} sh {shlex.join(argv)}"
    if "\0" in line:
        raise ValueError("an argument, path or variable contains a NUL byte")
    return line


def _reason(error_text: str) -> str:
    return (
        error_text.strip().splitlines()[-1].rpartition(": ")[2] if error_text.strip() else "no reason given"
    )


class _NotStarted(Exception):
    """The command ended before it was the program: what a shell would say of a missing one."""

    def __init__(self, exit_code: int, words: bytes) -> None:
        super().__init__(words)
        self.exit_code = exit_code
        self.words = words


class _Channel(asyncssh.SSHClientSession[bytes]):
    """The bytes of one command: finds the pid in front of its output, then fills the streams."""

    def __init__(self, marker: bytes, tail: int | None, place: str) -> None:
        loop = asyncio.get_running_loop()
        self.pid: asyncio.Future[int] = loop.create_future()
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.stdin = Input()
        self.stdout = Output()
        self.stderr = Output(tail)
        self._marker = marker
        self._place = place
        self._preface = b""
        self._channel: Any = None

    def connection_made(self, chan: Any) -> None:
        self._channel = chan
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.connection_made(chan)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.stderr.data_received(data)
            return
        if self.pid.done():
            self.stdout.data_received(data)
            return
        self._preface += data
        _, found, rest = self._preface.partition(self._marker)
        pid, ended, output = rest.partition(b"\n")
        if found and ended:
            self.pid.set_result(int(pid))
            if output:
                self.stdout.data_received(output)

    def eof_received(self) -> bool:
        self._end(None)
        return True  # otherwise asyncssh would close the command's standard input, too

    def exit_status_received(self, status: int) -> None:
        self._exit(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._exit(-_number(signal))

    def _exit(self, exit_code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(exit_code)

    def connection_lost(self, exc: Exception | None) -> None:
        error = None
        if not self.exit_code.done():
            error = TargetError(
                f"the connection was lost{f': {exc}' if exc else ''}",
                place=self._place,
                hint="the command may still run there",
            )
            self.exit_code.set_exception(error)
        if not self.pid.done():
            self.pid.set_exception(self._why_not_started())
            self.pid.exception()
        self.stdin.connection_lost(exc)
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        self.stdout.connection_lost(error)
        self.stderr.connection_lost(error)

    def _why_not_started(self) -> Exception:
        lost = self.exit_code.exception()
        if isinstance(lost, TargetError):
            return lost
        words = self.stderr.so_far or self._preface
        code = self.exit_code.result()
        if code in (126, 127):
            return _NotStarted(code, words)
        return CommandFailed(
            words.decode("utf-8", "replace").strip() or f"the login shell ended with exit code {code}",
            place=self._place,
        )

    def pause_writing(self) -> None:
        self.stdin.pause_writing()

    def resume_writing(self) -> None:
        self.stdin.resume_writing()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


def _number(name: str) -> int:
    member = signal.Signals.__members__.get(f"SIG{name}")
    return int(member) if member else 0
