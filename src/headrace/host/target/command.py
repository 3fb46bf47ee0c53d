"""A started command, independent of the transport: streams with back-pressure, the exit code, time limits."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from headrace.base.errors import CommandFailed, ConnectionLost, HeadraceError, TookTooLong
from headrace.host.target.interface import Completed

#: Unread output above this makes the command wait, unless a caller waits for its end.
BUFFER_BYTES = 1 << 20
#: Limits on output, so that a runaway host cannot exhaust memory here: of a file, of a line, of what a command
#: prints (which takes three times as much here), and of its standard error. No program of ours prints more.
MOST_BYTES, MOST_LINE_BYTES = 512 << 20, 16 << 20
MOST_PRINTED_BYTES, MOST_WORDS_BYTES = 128 << 20, 32 << 20
#: Lines after which others have their turn, however fast a host prints them.
TURN_LINES = 500
#: Bytes kept of the standard error of a spawned command.
TAIL_BYTES = 64 * 1024
#: Standard input is written in pieces of this size, so that a slow reader slows down the writer.
PIECE_BYTES = 256 * 1024
#: A process that still exists this long after SIGKILL is stuck in the kernel: stop waiting.
KILL_PATIENCE_S = 10.0
LAST_WORDS_S = 1.0
#: Within this a leased program ends once its input has ended.
LEASED_END_S = 1.5
#: How soon after reconnecting the end of a command is known that ended while its host was unreachable.
NEWS_S = 20.0


class Input(asyncio.BaseProtocol):
    """The write end of a command's standard input; ``transport`` is asyncio's or an SSH channel."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._open = True
        self._lost: ConnectionLost | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._open = False
        self._lost = error if isinstance(error, ConnectionLost) else None
        self._writable.set()

    async def write(self, content: bytes) -> None:
        """Write everything; data that a finished command did not read is dropped, as in a shell.

        Raises ConnectionLost if the command is unreachable.
        """
        for start in range(0, len(content), PIECE_BYTES):
            await self._writable.wait()
            if self._lost is not None:
                raise self._lost
            if not self._open:
                return
            with contextlib.suppress(BrokenPipeError):
                self._transport.write(content[start : start + PIECE_BYTES])

    def close(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(BrokenPipeError):
                self._transport.write_eof()


class Output(asyncio.Protocol):
    """The read end of a command's output: everything with back-pressure, or (``tail``) only its last bytes."""

    def __init__(self, tail: int | None = None) -> None:
        self._transport: Any = None
        self._data = bytearray()
        self._tail = tail
        self._is_ignored = False
        self._limit = BUFFER_BYTES
        self._paused = False
        self._error: Exception | None = None
        self._end = asyncio.Event()
        self._news = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._is_ignored:
            return
        self._data += data
        if self._tail is not None:
            del self._data[: -self._tail]
        elif len(self._data) > self._limit and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        """End of the stream: normal, or (``error``) because the connection broke."""
        self._end.set()
        self._error = self._error or error
        self._news.set()

    def unlimit(self) -> None:
        """Keep the output from now on, because a caller waits for the command's end and not for its output."""
        self._limit = MOST_BYTES
        self._resume()

    def ignore(self) -> None:
        """Keep nothing of it any more: nobody will read it, and the command ends whatever it still prints."""
        self._is_ignored = True
        self._data.clear()
        self._resume()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    @property
    def so_far(self) -> bytes:
        return bytes(self._data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The output as it arrives, in pieces of arbitrary size."""
        while True:
            self._news.clear()
            if self._data:
                piece = bytes(self._data)
                self._data.clear()
                self._resume()
                yield piece
            elif self._end.is_set():
                if self._error:
                    raise self._error
                return
            else:
                await self._news.wait()

    async def read_all(self, most_bytes: int) -> bytes:
        """Raises CommandFailed if there is more than ``most_bytes``, or than ``MOST_BYTES``."""
        self.unlimit()
        most = min(most_bytes, MOST_BYTES)
        found: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            found.append(piece)
            size += len(piece)
            if size > most:
                raise CommandFailed(f"a command printed more than {most >> 20} MiB")
        return b"".join(found)

    async def end(self) -> None:
        """Wait until everything has arrived."""
        await self._end.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Command:
    """A ``Process``. The target that made it resolves ``exit_code`` and knows how to signal its group."""

    def __init__(
        self,
        argv: Sequence[str],
        pid: int,
        *,
        stdin: Input,
        stdout: Output | None,
        stderr: Output | None,
        exit_code: asyncio.Future[int],
        send_signal: Callable[[str], Awaitable[None]],
    ) -> None:
        self.argv = tuple(argv)
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._pid = pid
        self._exit_code = exit_code
        self._send_signal = send_signal
        self._in_touch = asyncio.Event()
        self._in_touch.set()
        exit_code.add_done_callback(self._on_exit)

    def _on_exit(self, exit_code: asyncio.Future[int]) -> None:
        # Retrieve the exception, because a lost connection without a waiter is not an error.
        if not exit_code.cancelled():
            exit_code.exception()
        self.stdin.close()
        self._in_touch.set()

    def touch(self, *, is_lost: bool) -> None:
        """Whether its host is reachable. Time limits of ``wait`` are paused while it is not."""
        if is_lost:
            self._in_touch.clear()
        else:
            self._in_touch.set()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def ended(self) -> bool:
        return self._exit_code.done()

    async def lines(self) -> AsyncIterator[str]:
        if self.stdout is None:
            return
        rest = bytearray()
        async for piece in self.stdout.pieces():
            first, *others = piece.split(b"\n")
            rest += first
            if len(rest) > MOST_LINE_BYTES:
                raise CommandFailed(
                    f"`{shown(self.argv)}` printed a line of more than {MOST_LINE_BYTES >> 20} MiB"
                )
            for number, each in enumerate(others, 1):
                yield rest.decode("utf-8", "replace")
                rest = bytearray(each)
                if not number % TURN_LINES:
                    await asyncio.sleep(0)
        if rest:
            yield rest.decode("utf-8", "replace")

    def ignore_output(self) -> None:
        if self.stdout:
            self.stdout.ignore()

    async def wait(self, timeout_s: float | None = None) -> int:
        if self.stdout:
            self.stdout.unlimit()
        while True:
            try:
                # Shielded, because all waiters share the exit code.
                return await asyncio.wait_for(asyncio.shield(self._exit_code), timeout_s)
            except TimeoutError:
                if self._in_touch.is_set():
                    raise
            await self._in_touch.wait()
            timeout_s = NEWS_S

    async def signal(self, name: str) -> None:
        if f"SIG{name}" not in signal.Signals.__members__:
            raise ValueError(f"no such signal: {name!r}")
        if not self.ended:
            await self._send_signal(name)

    async def write(self, content: bytes) -> None:
        await self.stdin.write(content)

    async def close_stdin(self) -> None:
        self.stdin.close()

    async def error_text(self) -> str:
        if self.stderr is None:
            return ""
        if self.ended:
            # Its last output may arrive after its exit code; a child that lives on would block forever.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stderr.end(), LAST_WORDS_S)
        return self.stderr.so_far.decode("utf-8", "replace")

    async def kill(self) -> None:
        """Kill the whole group now, and release its pipes even if other processes hold them open.

        Also when the command itself has ended, because children left in its group still hold its pipes.
        """
        try:
            await self._send_signal("KILL")
            with contextlib.suppress(TimeoutError, HeadraceError):
                await self.wait(KILL_PATIENCE_S)
        finally:
            self.let_go()

    def let_go(self) -> None:
        self.stdin.close()
        for output in (self.stdout, self.stderr):
            if output:
                output.close()


async def let_leased_end(commands: Iterable[Command]) -> None:
    """A leased program ends all that it started once its input ends. Killed, it would leave that running."""
    leased = [each for each in commands if each.argv[1:2] == ("leased",) and not each.ended]
    for each in leased:
        each.ignore_output()
        each.stdin.close()
    if leased:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEASED_END_S):
                await asyncio.gather(*(each.wait() for each in leased), return_exceptions=True)


async def kill_quietly(command: Command) -> None:
    """Kill while another error is being raised; a second cancellation does not interrupt it."""
    with contextlib.suppress(HeadraceError):
        await asyncio.shield(command.kill())


class NotStarted(Exception):
    """The program could not be started: the exit code that a shell returns for it, and why."""

    def __init__(self, exit_code: int, words: bytes) -> None:
        super().__init__(words)
        self.exit_code = exit_code
        self.words = words

    def completed(self, argv: Sequence[str]) -> Completed:
        return Completed(tuple(argv), self.exit_code, b"", self.words)


async def run_to_end(
    starting: Awaitable[Command],
    argv: Sequence[str],
    stdin: bytes,
    *,
    timeout_s: float | None,
    check: bool,
    place: str,
    most_bytes: int | None = None,
) -> Completed:
    """Feed, drain and wait concurrently, within the time limit."""
    try:
        command = await starting
    except NotStarted as error:
        completed = error.completed(argv)
        if check:
            raise failed(completed, place) from None
        return completed
    assert command.stdout is not None
    assert command.stderr is not None

    async def feed() -> None:
        await command.stdin.write(stdin)
        command.stdin.close()

    try:
        async with asyncio.timeout(timeout_s):
            exit_code, stdout, stderr, _ = await asyncio.gather(
                command.wait(),
                command.stdout.read_all(MOST_PRINTED_BYTES if most_bytes is None else most_bytes),
                command.stderr.read_all(MOST_WORDS_BYTES),
                feed(),
            )
    except CommandFailed as error:
        await kill_quietly(command)
        raise CommandFailed(f"`{shown(command.argv)}`: {error.message}", place=place) from error
    except TimeoutError:
        await kill_quietly(command)
        raise timed_out(command.argv, timeout_s, place) from None
    except ConnectionLost:
        command.let_go()  # it is killed as soon as the host is back
        raise
    except BaseException:
        await kill_quietly(command)
        raise
    completed = Completed(command.argv, exit_code, stdout, stderr)
    if check and exit_code != 0:
        raise failed(completed, place)
    return completed


def timed_out(argv: Sequence[str], timeout_s: float | None, place: str) -> TookTooLong:
    return TookTooLong(f"`{shown(argv)}` took longer than {timeout_s:g} s and was killed", place=place)


def failed(completed: Completed, place: str) -> CommandFailed:
    """The error of a failed command: its name, how it failed, and its last output."""
    code = completed.exit_code
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    words = (completed.error_text.strip() or completed.text.strip()).splitlines()[-8:]
    tail = "\n".join(words)[-2000:]
    return CommandFailed(
        f"`{shown(completed.argv)}` {how}{': ' + tail if tail else ''}",
        place=place,
        hint="`headrace doctor` lists the package of a missing program" if code == 127 else None,
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shown(argv: Sequence[str]) -> str:
    """A command as typed in a shell, shortened for messages."""
    text = shlex.join(argv)
    return text if len(text) <= 300 else f"{text[:297]}..."
