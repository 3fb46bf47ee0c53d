"""This machine as a target."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from headrace.base.errors import CommandFailed, TargetError, write_error
from headrace.base.whole import new_file
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
)
from headrace.host.target.interface import Completed, Process


class LocalTarget:
    """This machine. Every command leads its own process group, so its children end with it."""

    def __init__(self) -> None:
        self.name = "local"
        self.is_root = os.geteuid() == 0
        self._kept: dict[Command, bool] = {}  # what was spawned -> may outlive us

    @property
    def interruptions(self) -> Sequence[tuple[int, int]]:
        return ()

    def on_return(self, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        return lambda: None

    async def connect(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        await let_leased_end(self._kept)
        for command, detached in list(self._kept.items()):
            if detached:
                command.let_go()
            else:
                await kill_quietly(command)
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
        starting = self._start(argv, env, Output(), Output(), detached=False)
        return await run_to_end(
            starting,
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
        with contextlib.ExitStack() as files:
            outputs: list[Output | IO[bytes]] = []
            for path, output in ((stdout_path, Output()), (stderr_path, Output(tail=TAIL_BYTES))):
                try:
                    outputs.append(files.enter_context(os.fdopen(new_file(path), "wb")) if path else output)
                except OSError as error:
                    raise CommandFailed(f"cannot write: {error.strerror}", place=path) from error
            try:
                command = await self._start(argv, env, outputs[0], outputs[1], detached=detached)
            except NotStarted as error:
                raise failed(error.completed(argv), self.name) from None
        if not command.ended:
            self._kept[command] = detached
        return command

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        stdout: Output | IO[bytes],
        stderr: Output | IO[bytes],
        *,
        detached: bool,
    ) -> Command:
        loop = asyncio.get_running_loop()
        try:
            child = popen(argv, env, stdout, stderr, detached)
        except OSError as error:
            raise not_started(argv[0], error) from error
        exit_code: asyncio.Future[int] = loop.create_future()
        command = Command(
            argv,
            child.pid,
            stdin=Input(),
            stdout=stdout if isinstance(stdout, Output) else None,
            stderr=stderr if isinstance(stderr, Output) else None,
            exit_code=exit_code,
            send_signal=lambda name: _signal_group(child, name),
        )
        watch(child, loop, exit_code)
        exit_code.add_done_callback(lambda _: self._kept.pop(command, None))
        try:
            await loop.connect_write_pipe(lambda: command.stdin, child.stdin)
            for output, pipe in ((command.stdout, child.stdout), (command.stderr, child.stderr)):
                if output is not None:
                    await loop.connect_read_pipe(_factory(output), pipe)
        except BaseException:
            await kill_quietly(command)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            raise
        return command

    async def read(self, path: str) -> bytes:
        def content() -> bytes:
            with _open(path) as file:
                return file.read()

        return await asyncio.to_thread(content)

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        await asyncio.to_thread(_replace, Path(path), io.BytesIO(content), mode)

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        await asyncio.to_thread(_copy, str(source), Path(path), mode)

    async def get(self, path: str, destination: Path) -> None:
        await asyncio.to_thread(_copy, path, destination, 0o600)

    async def exists(self, path: str) -> bool:
        return Path(path).exists()


def not_started(program: str, error: OSError) -> NotStarted:
    """In a shell's words."""
    if isinstance(error, FileNotFoundError):
        return NotStarted(127, f"{program}: not found\n".encode())
    return NotStarted(126, f"{program}: {error.strerror}\n".encode())


def popen(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    stdout: Output | IO[bytes],
    stderr: Output | IO[bytes],
    detached: bool,
) -> subprocess.Popen[bytes]:
    """Start a program here, with pipes for ``Output``s. Raises OSError."""
    # Not asyncio's own subprocess: its transport kills the child when it is collected, detached or not.
    path = os.environ.get("PATH", os.defpath)
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if isinstance(stdout, Output) else stdout,
        stderr=subprocess.PIPE if isinstance(stderr, Output) else stderr,
        env={**os.environ, "LC_ALL": "C", "PATH": f"{path}:/usr/sbin:/sbin", **(env or {})},
        bufsize=0,
        start_new_session=detached,
        process_group=None if detached else 0,
    )


def _factory(output: Output) -> Callable[[], Output]:
    return lambda: output


def watch(
    child: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, exit_code: asyncio.Future[int]
) -> None:
    """Resolve ``exit_code`` when the child ends.

    The thread only notices the end; the loop reaps. So while the loop sees a running child its pid cannot
    belong to another process, and a signal sent from the loop cannot hit a stranger.
    """

    def reap() -> None:
        code = child.wait()
        if not exit_code.done():
            exit_code.set_result(code)

    def notice() -> None:
        with contextlib.suppress(ChildProcessError):  # it was killed, and waited for, at once
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for it
            loop.call_soon_threadsafe(reap)

    threading.Thread(target=notice, name=f"wait-{child.pid}", daemon=True).start()


async def _signal_group(child: subprocess.Popen[bytes], name: str) -> None:
    try:
        os.killpg(child.pid, signal.Signals[f"SIG{name}"])
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise TargetError(f"process {child.pid} belongs to another user: cannot signal it") from error


def _copy(source: str, path: Path, mode: int) -> None:
    with _open(source) as file:
        _replace(path, file, mode)


def _replace(path: Path, content: IO[bytes], mode: int) -> None:
    """Write under a temporary name in the same folder, then rename: a reader sees the old file or the new."""
    draft = ""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(draft, path)
    except OSError as error:
        raise write_error(error, path, TargetError) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _open(path: str) -> IO[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISREG(kind):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        # A pipe would be waited for, a device might never end.
        what = "a pipe" if stat.S_ISFIFO(kind) else "a device"
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise TargetError(f"cannot be read: it is {what}, not a file", place=path)
    except NotADirectoryError as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TargetError(f"cannot be read: {error.strerror or error}", place=path) from error
