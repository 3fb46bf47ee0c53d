"""The SSH channel of one command, and its streams."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import asyncssh

from headrace.base.errors import CommandFailed, ConnectionLost, TargetError
from headrace.host.target.command import Input, NotStarted, Output
from headrace.host.target.shell import MOST_PREFACE


class Channel(asyncssh.SSHClientSession[bytes]):
    """The channel of one command: finds the start of its output, and its pid, then fills the streams.

    ``why_lost`` says whether and why the whole connection broke. Then a command with ``on_cut`` is not given up:
    that callback's owner sets the exit code.
    """

    def __init__(
        self, marker: str, tail: int | None, place: str, why_lost: Callable[[], ConnectionLost | None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.pid: asyncio.Future[int] = self._loop.create_future()
        self.exit_code: asyncio.Future[int] = self._loop.create_future()
        # Perhaps nobody waits for it: the connection may break before the pid is known.
        self.exit_code.add_done_callback(lambda code: code.cancelled() or code.exception())
        self.marker = marker
        self.parent = 0
        self.stdin = Input()
        self.stdout = Output()
        self.stderr = Output(tail)
        self.on_cut: Callable[[], None] | None = None
        self._why_lost = why_lost
        self._place = place
        self._preface = b""
        self._error_preface: bytes | None = b""
        self._channel: Any = None

    def connection_made(self, chan: Any) -> None:
        self._channel = chan
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.connection_made(chan)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self._error_received(data)
            return
        if self.pid.done():
            self.stdout.data_received(data)
            return
        self._preface = (self._preface + data)[-MOST_PREFACE:]
        _, found, rest = self._preface.partition(self.marker.encode())
        pids, ended, output = rest.partition(b"\n")
        if found and ended:
            pid, self.parent = map(int, pids.split())
            self.pid.set_result(pid)
            if output:
                self.stdout.data_received(output)

    def _error_received(self, data: bytes) -> None:
        if self._error_preface is None:
            self.stderr.data_received(data)
            return
        self._error_preface = (self._error_preface + data)[-MOST_PREFACE:]
        _, found, rest = self._error_preface.partition(self.marker.encode() + b"\n")
        if found:
            self._error_preface = None
            if rest:
                self.stderr.data_received(rest)

    def eof_received(self) -> bool:
        self._end(None)
        return True  # otherwise asyncssh would also close the command's standard input

    def exit_status_received(self, status: int) -> None:
        self._exit(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._exit(-_number(signal))

    def _exit(self, exit_code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(exit_code)

    def connection_lost(self, exc: Exception | None) -> None:
        # The channels of a lost connection are closed before the connection itself is known to be lost.
        self._loop.call_soon(self._closed, exc)

    def _closed(self, exc: Exception | None) -> None:
        lost = self._why_lost()
        error: TargetError | None = lost
        if lost is None and not self.exit_code.done():
            error = TargetError(
                f"the host closed the command's channel{f': {exc}' if exc else ''}",
                place=self._place,
                hint="the command may still run there",
            )
        if not self.exit_code.done():
            if lost is not None and self.on_cut is not None:
                self.on_cut()
            else:
                assert error is not None
                self.exit_code.set_exception(error)
        if not self.pid.done():
            self.pid.set_exception(self._why_not_started(error))
            self.pid.exception()
        self.stdin.connection_lost(lost or exc)
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        self.stdout.connection_lost(error)
        self.stderr.connection_lost(error)

    def _why_not_started(self, error: TargetError | None) -> Exception:
        if error is not None:
            return error
        words = self.stderr.so_far or self._error_preface or self._preface
        code = self.exit_code.result()
        if code in (126, 127):
            return NotStarted(code, words)
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
