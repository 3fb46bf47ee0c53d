"""The SSH connection to a host: jump hosts, host keys, and reconnection.

A broken connection is retried for ``PATIENCE_S``. ``on_return`` callbacks restore what they hold on the host
before other commands continue. The host's key is checked each time, and never learned.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.encryption import get_default_encryption_algs

from headrace.base.errors import ConnectionLost, ConnectionNotRestored, HeadraceError, PlanError, TargetError

CONNECT_TIMEOUT_S = 20.0
#: A dead link is noticed after KEEPALIVE_S * (KEEPALIVE_COUNT + 1), before any command times out.
KEEPALIVE_S = 7.0
KEEPALIVE_COUNT = 3
#: How long a lost connection is retried.
PATIENCE_S = 600.0
#: Waits between attempts; the last one repeats.
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
#: Interval of messages that reconnecting is still being attempted.
TELL_EVERY_S = 60.0

#: Refused as OpenSSH does: a ``ProxyCommand`` gets these names as words of its command, and they may come from a
#: server (``fleet --follow``) or another tool's list.
_UNSAFE_HOST = re.compile(r"^-|[\s'`\"$\\;&<>|(){}\x00-\x1f\x7f]")
_UNSAFE_USER = re.compile(r"^-|[\s'`\";&<>|(){}\x00-\x1f\x7f]|\\$")

#: Set while the link is being restored: code that does so passes the gate that blocks all others.
_MENDING: ContextVar[Link | None] = ContextVar("_MENDING", default=None)


class NotLetIn(TargetError):
    """The host's identity is wrong. Retrying would be unsafe."""


@dataclass(frozen=True)
class Hop:
    """One host of the path. ``options`` are asyncssh's; an empty tuple: as in ``~/.ssh/config``."""

    host: str
    port: int | None
    user: str | None
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{user}{host}{f':{self.port}' if self.port else ''}"

    async def connect(self, **more: Any) -> asyncssh.SSHClientConnection:
        """Raises TargetError with the reason and what to check."""
        if _UNSAFE_HOST.search(self.host) or _UNSAFE_USER.search(self.user or ""):
            raise NotLetIn("not a host's name, or not a user's", place=self.name[:200])
        within_s = CONNECT_TIMEOUT_S
        try:
            found = await self._refuse_unchecked(
                self.host, self.port, self.user, bool(self.options["known_hosts"])
            )
            within_s = found.connect_timeout or within_s
            interval_s, count = _keepalive(found)
            return await asyncssh.connect(
                self.host,
                username=self.user or (),
                port=self.port or (),
                **{**self.options, **more, "encryption_algs": _ciphers(found)},
                connect_timeout=within_s,
                login_timeout=within_s,
                keepalive_interval=interval_s,
                keepalive_count_max=count,
            )
        except (OSError, asyncssh.Error, ValueError) as error:
            raise self._error(error, within_s) from error

    async def _refuse_unchecked(
        self, host: str, port: int | None, user: str | None, is_named: bool = False
    ) -> asyncssh.SSHClientConnectionOptions:
        """What ``~/.ssh/config`` says of a host.

        asyncssh takes ``UserKnownHostsFile none`` for "trust any key"; ssh takes it for "no key is known".
        """
        found: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
            config=(), host=host, port=port or (), username=user or (), client_keys=None, agent_path=None
        )
        if found.known_hosts is None and not is_named:
            raise NotLetIn(
                f"`UserKnownHostsFile none` in ~/.ssh/config leaves nothing to check the key of {host} against",
                place=self.name,
                hint="take that line out for this host, or name a file with its key",
            )
        for hop in jumps(found.tunnel if isinstance(found.tunnel, str) else "", self.options):
            await self._refuse_unchecked(hop.host, hop.port, hop.user)
        return found

    def _error(self, error: Exception, within_s: float) -> TargetError:
        port = f"-p {self.port} " if self.port else ""
        user = f"{self.user}@" if self.user else ""
        try_it = f"`ssh {port}{user}{self.host} true` must work without a prompt"
        if isinstance(error, asyncssh.HostKeyNotVerifiable | asyncssh.KeyExchangeFailed):
            return self._host_key_error(error)
        if isinstance(error, asyncssh.PermissionDenied):
            return TargetError("the host refuses this user or key", place=self.name, hint=try_it)
        if isinstance(error, FileNotFoundError):
            return TargetError("no such file", place=error.filename)
        if isinstance(error, TimeoutError):
            message = f"no answer within {within_s:g} s"
        else:
            message = f"cannot connect: {getattr(error, 'strerror', None) or error}"
        return TargetError(message, place=self.name, hint=f"is the host up and sshd listening? {try_it}")

    def _host_key_error(self, error: Exception) -> TargetError:
        """An unknown host and a changed host key are different risks."""
        known_hosts = self.options["known_hosts"] or str(Path("~/.ssh/known_hosts").expanduser())
        known: Any = ()
        with contextlib.suppress(OSError, ValueError):
            known = asyncssh.match_known_hosts(known_hosts, self.host, "", self.port or 22)[0]
        if known:
            return NotLetIn(
                f"the host's key is not the one in {known_hosts}: the host was reinstalled, or the "
                "connection is being intercepted",
                place=self.name,
                hint=(
                    "ask the host's administrator; only if its new key is right, remove the old one with "
                    "ssh-keygen -R"
                ),
            )
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return NotLetIn(
                f"the host's key is not in {known_hosts}",
                place=self.name,
                hint="connect once with ssh and compare the fingerprint it shows with the host's own",
            )
        return TargetError(f"no common cryptographic algorithm: {error}", place=self.name)


def _ciphers(found: asyncssh.SSHClientConnectionOptions) -> list[str]:
    """As in ``~/.ssh/config``, else asyncssh's own, AES-GCM first: there a packet takes a sixth of the CPU that it
    takes with ChaCha20, and a fleet's streams are many small packets.
    """
    own = [name.decode() for name in found.encryption_algs]
    if list(found.encryption_algs) != get_default_encryption_algs():
        return own
    return sorted(own, key=lambda name: not name.endswith("-gcm@openssh.com"))


def _keepalive(found: asyncssh.SSHClientConnectionOptions) -> tuple[float, int]:
    """Seconds between questions, and how many may stay without an answer: as in ``~/.ssh/config`` if that notices
    a dead link earlier. If it did so later, commands would have timed out by then.
    """
    interval_s, count = float(found.keepalive_interval), int(found.keepalive_count_max)
    if 0 < interval_s * (count + 1) < KEEPALIVE_S * (KEEPALIVE_COUNT + 1):
        return interval_s, count
    return KEEPALIVE_S, KEEPALIVE_COUNT


def jumps(text: str, options: Mapping[str, Any]) -> list[Hop]:
    """The hosts of ``user@host[:port],...``, nearest first, as in ProxyJump."""
    hops = []
    for word in filter(None, text.split(",")):
        match = re.fullmatch(r"((?P<user>[^@\s]+)@)?(?P<host>\[[^]\s]+\]|[^:@/\s\[]+)(:(?P<port>\d+))?", word)
        port = int(match["port"] or 22) if match else 0
        if match is None or not 0 < port < 65536:
            raise PlanError(f"jump host {word!r}: must be [user@]host[:port]")
        own_port = int(match["port"]) if match["port"] else None
        hops.append(Hop(match["host"].strip("[]"), own_port, match["user"], options))
    return hops


class Link:
    """One connection to ``last``, through ``before``, that is restored when it breaks.

    ``on_return`` is awaited on the new connection before others may use it; if it raises, the link ends for good,
    unless the connection broke again. ``on_end`` hears why a link ended.
    """

    def __init__(
        self,
        last: Hop,
        before: list[Hop],
        *,
        patience_s: float | None,
        on_return: Callable[[], Awaitable[None]],
        on_end: Callable[[HeadraceError], None],
        tell: Callable[[str], None],
    ) -> None:
        #: When the connection was lost and restored, in ns of the controller's clock.
        self.interruptions: list[tuple[int, int]] = []
        self.name = last.name
        self._last = last
        self._before = before
        self._patience_s = patience_s
        self._on_return = on_return
        self._on_end = on_end
        self._tell = tell
        self._connection: asyncssh.SSHClientConnection | None = None
        self._jumps: list[asyncssh.SSHClientConnection] = []
        self._end: HeadraceError | None = TargetError("not connected", place=self.name)
        self._settled = asyncio.Event()  # up, or at its end
        self._settled.set()
        self._returning: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        await self.close()
        self._connection = await self._dial()
        self._end = None

    async def close(self) -> None:
        self._end = TargetError("not connected", place=self.name)
        if self._returning is not None:
            self._returning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._returning
            self._returning = None
        self._settled.set()
        connection, self._connection = self._connection, None
        await _hang_up([*([connection] if connection else []), *reversed(self._jumps)])
        self._jumps = []

    @property
    def is_up(self) -> bool:
        return self._connection is not None

    @property
    def is_over(self) -> bool:
        """The link has ended and will not be restored."""
        return self._end is not None and self._settled.is_set()

    def why_lost(self, connection: asyncssh.SSHClientConnection | None) -> ConnectionLost | None:
        """Whether this connection has ended; a newer one may exist."""
        if connection is not None and connection is self._connection:
            return None
        return ConnectionLost(
            "the connection was lost", place=self.name, hint="the command may still run there"
        )

    async def usable(self) -> asyncssh.SSHClientConnection:
        """The connection, once it is up (again). Raises the error that ended the link."""
        if _MENDING.get() is not self:
            while not self._settled.is_set():
                await self._settled.wait()
            if self._end is not None:
                raise type(self._end)(self._end.message, place=self._end.place, hint=self._end.hint)
        if self._connection is None:
            raise ConnectionLost("the connection was lost again", place=self.name)
        return self._connection

    async def _dial(self) -> asyncssh.SSHClientConnection:
        opened: list[asyncssh.SSHClientConnection] = []
        try:
            for hop in self._before:
                tunnel = {"tunnel": opened[-1]} if opened else {}
                opened.append(await hop.connect(**tunnel, agent_forwarding=False))
            tunnel = {"tunnel": opened[-1]} if opened else {}
            watcher = _Watcher(self._lost)
            connection = await self._last.connect(**tunnel, client_factory=lambda: watcher)
            watcher.connection = connection
        except BaseException:
            await _hang_up(opened[::-1])
            raise
        for each in (connection, *opened):
            # Data still to be sent when a link is given up must never be executed later.
            _linger(each, on=True)
        self._jumps = opened
        return connection

    def _lost(self, connection: asyncssh.SSHClientConnection | None, error: Exception | None) -> None:
        if connection is None or connection is not self._connection:
            return  # closed by us, or not the current connection
        self._connection = None
        if self._returning is None:
            self._settled.clear()
            self._returning = asyncio.create_task(self._return(str(error or "")))

    async def _return(self, why: str) -> None:
        lost_ns, began = time.time_ns(), time.monotonic()
        _MENDING.set(self)  # of this task alone
        self._tell(
            f"{self.name}: the connection was lost{f' ({why})' if why else ''}; retrying for {self._patience}"
        )
        end: HeadraceError | None = TargetError("the connection was lost", place=self.name)
        try:
            end = await self._try_until_it_stands(began)
        finally:
            # Always open the gate, so that no task waits forever.
            self._returning = None
            if end is None:
                self.interruptions.append((lost_ns, time.time_ns()))
                self._tell(f"{self.name}: the connection is back after {time.monotonic() - began:.0f} s")
            else:
                self._end = end
                self._on_end(end)
            self._settled.set()

    @property
    def _seconds(self) -> float:
        return PATIENCE_S if self._patience_s is None else self._patience_s

    @property
    def _patience(self) -> str:
        return f"{self._seconds / 60:g} min" if self._seconds >= 60 else f"{self._seconds:g} s"

    async def _try_until_it_stands(self, began: float) -> HeadraceError | None:
        """None on success; otherwise why further attempts are pointless."""
        told, attempt = began, 0
        while True:
            problem = await self._attempt()
            if problem is None:
                return None
            if self.is_up or isinstance(problem, NotLetIn):
                # The problem is the host's state, not the connection.
                await self._give_up()
                return problem
            now = time.monotonic()
            left_s = self._seconds - (now - began)
            if left_s <= 0:
                return ConnectionNotRestored(
                    f"the connection was lost and could not be restored within {self._patience}: "
                    f"{problem.message}",
                    place=self.name,
                    hint="when the host is reachable, rerun the same command: it restores the host first",
                )
            if now - told > TELL_EVERY_S:
                told = now
                self._tell(f"{self.name}: no connection yet ({problem.message}); {left_s / 60:.0f} min left")
            # The last attempt is made when time runs out, not a full pause later.
            await asyncio.sleep(min(PAUSES_S[min(attempt, len(PAUSES_S) - 1)], left_s))
            attempt += 1

    async def _attempt(self) -> HeadraceError | None:
        """Connect, and restore what was held on the host. A connection error leaves the link down."""
        await _hang_up(self._jumps[::-1])
        self._jumps = []
        try:
            self._connection = await self._dial()
            await self._on_return()
        except ConnectionLost as error:
            await self._give_up()
            return error
        except HeadraceError as error:
            return error
        return None if self.is_up else ConnectionLost("the connection was lost again", place=self.name)

    async def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


class _Watcher(asyncssh.SSHClient):
    """Reports the end of a connection."""

    def __init__(self, lost: Callable[[asyncssh.SSHClientConnection | None, Exception | None], None]) -> None:
        self.connection: asyncssh.SSHClientConnection | None = None
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self.connection, exc)


async def _hang_up(connections: list[asyncssh.SSHClientConnection]) -> None:
    for connection in connections:
        _linger(connection, on=False)
        connection.close()
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            # A dead link would block until TCP gives up.
            await asyncio.wait_for(connection.wait_closed(), 5)


def _linger(connection: asyncssh.SSHClientConnection, *, on: bool) -> None:
    found = connection.get_extra_info("socket")
    if found is not None:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", int(on), 0))
