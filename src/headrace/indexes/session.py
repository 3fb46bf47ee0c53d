"""A session of a server on which indexes are tried or applied.

Statements of the traffic run here and their rows are read, so this is a client of its own (PyMySQL) and not the
agent. It connects from this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pymysql.connections
import pymysql.cursors

from headrace.base.errors import CommandFailed, NotReady, TargetError
from headrace.base.model import ServerLogin
from headrace.base.whole import read_plain

CONNECT_S = 10
#: Codes of MySQL and MariaDB: a lock wait that took too long or that two sessions had for each other, a statement
#: that was stopped at its time limit.
LOCK_WAITS, TIME_LIMITS = (1205, 1213), (3024, 1969, 1317)
#: Seconds without a word after which a host is asked whether it is there, seconds between and number of questions.
#: A long statement is silent, and so is a host that is gone.
SILENT_S, ASK_S, MOST_ASKED = 15, 5, 4

#: What an answer may take in memory at most: what was sent, and so much for each of its packets.
MOST_ANSWER_BYTES, PACKET_BYTES = 256 << 20, 200
#: How an answer that no server gives shows in PyMySQL, beside its own errors.
STRANGE = (
    LookupError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError, OverflowError, struct.error,
)  # fmt: skip
#: Ways to log in that show the password to whoever answers, and one that hides it badly.
REFUSED = (b"mysql_clear_password", b"dialog", b"mysql_old_password")

Rows = Sequence[tuple[Any, ...]]

_MOST_SECRET_BYTES = 1 << 16


class StatementFailed(CommandFailed):
    """What the server said to a statement. ``code`` is its number, 0 if it closed the connection."""

    def __init__(self, code: int, words: str, place: str) -> None:
        super().__init__(f"the server refused a statement ({code}): {words}", place=place)
        self.code = code
        self.words = words


class _Refusing:
    """In the place of a plugin. PyMySQL follows a server to any that it knows."""

    def __init__(self, connection: Any) -> None:
        pass

    def authenticate(self, packet: Any) -> Any:
        raise pymysql.err.OperationalError(
            0, "the server asks for the password in a form that others can read: it is not sent"
        )


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """Waits for an answer to the login only so long, and takes no answer without an end."""

    _left = MOST_ANSWER_BYTES
    _read_timeout: int | None
    _sock: socket.socket | None

    def connect(self, sock: Any = None) -> None:
        self._read_timeout = CONNECT_S
        super().connect(sock)
        self._read_timeout = None
        if self._sock is not None and self._sock.family != socket.AF_UNIX:
            for option, value in (
                (socket.TCP_KEEPIDLE, SILENT_S),
                (socket.TCP_KEEPINTVL, ASK_S),
                (socket.TCP_KEEPCNT, MOST_ASKED),
                (socket.TCP_USER_TIMEOUT, 1000 * (SILENT_S + ASK_S * MOST_ASKED)),
            ):
                self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def _execute_command(self, command: Any, sql: Any) -> None:
        self._left = MOST_ANSWER_BYTES
        super()._execute_command(command, sql)

    def _read_bytes(self, num_bytes: int) -> Any:
        self._left -= num_bytes + PACKET_BYTES // 2
        if self._left < 0:
            self._force_close()
            raise pymysql.err.OperationalError(0, f"its answer is larger than {MOST_ANSWER_BYTES >> 20} MiB")
        return super()._read_bytes(num_bytes)


class Session:
    """One connection, autocommit on. Every method raises StatementFailed with the server's own words."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self.name = name
        self.id = int(connection.thread_id())
        version = str(self.value("SELECT VERSION()"))
        self.is_mariadb = "mariadb" in version.lower()
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        self.version = tuple(map(int, numbers.groups())) if numbers else (0, 0, 0)
        self.version_text = version
        #: Rows that asking for the counts of rows read adds to them; None until that was looked at.
        self.own_reads: int | None = None

    def rows(self, statement: str) -> Rows:
        """The rows of a statement; none if it has no result."""
        return tuple(self._asked(statement, pymysql.cursors.Cursor))

    def named(self, statement: str) -> list[dict[str, Any]]:
        """Rows with the names of their columns."""
        return list(self._asked(statement, pymysql.cursors.DictCursor))

    def _asked(self, statement: str, kind: Any) -> Any:
        try:
            with self._connection.cursor(kind) as cursor:
                cursor.execute(statement)
                return cursor.fetchall()
        except pymysql.Error as error:
            code, words = (*error.args, "", "")[:2]
            raise StatementFailed(
                int(code) if isinstance(code, int) else 0, str(words)[:300], self.name
            ) from error
        except STRANGE as error:
            self.close()
            raise StatementFailed(0, "its answer is none of a MySQL server", self.name) from error

    @property
    def server_pid(self) -> int | None:
        """The server's process, if the connection is a socket of this machine; None if that cannot be known."""
        own = getattr(self._connection, "_sock", None)
        if own is None or own.family != socket.AF_UNIX:
            return None
        pid, _, _ = struct.unpack("3i", own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid) or None

    def value(self, statement: str) -> Any:
        """The first value of the first row; None without a row."""
        rows = self.rows(statement)
        return rows[0][0] if rows else None

    def set_if_known(self, name: str, value: str) -> bool:
        """Set a variable of this session; False if this server or this account cannot."""
        try:
            self.rows(f"SET SESSION {name} = {value}")
        except StatementFailed:
            return False
        return True

    @property
    def hidden_word(self) -> str:
        """What hides an index from the optimiser. Raises NotReady if this server cannot."""
        if self.is_mariadb and self.version >= (10, 6):
            return "IGNORED"
        if not self.is_mariadb and self.version >= (8,):
            return "INVISIBLE"
        raise NotReady(
            f"{self.version_text} cannot hide an index",
            place=self.name,
            hint="MySQL can since 8.0, MariaDB since 10.6: try the indexes on a copy with such a server",
        )

    @property
    def shown_word(self) -> str:
        return "NOT IGNORED" if self.is_mariadb else "VISIBLE"

    @property
    def identity(self) -> str:
        """The same for each connection to one server with one data directory."""
        own = ["@@hostname", "@@port", "@@datadir", *([] if self.is_mariadb else ["@@server_uuid"])]
        values, *_ = self.rows(f"SELECT {', '.join(own)}") or [()]
        if len(values) != len(own):
            raise StatementFailed(0, "its answer is none of a MySQL server", self.name)
        return hashlib.sha256("\0".join(map(str, values)).encode()).hexdigest()[:16]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


@contextlib.contextmanager
def opened(login: ServerLogin) -> Iterator[Session]:
    """Raises TargetError if the server does not answer or refuses the login."""
    session = connect(login)
    try:
        yield session
    finally:
        session.close()


def connect(login: ServerLogin) -> Session:
    name = login.socket or (f"{login.host}:{login.port or 3306}" if login.host else login.defaults_file)
    given: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "charset": "utf8mb4",
        "autocommit": True,
        "auth_plugin_map": dict.fromkeys(REFUSED, _Refusing),
    }
    if login.defaults_file:
        given["read_default_file"] = login.defaults_file
    for option, value in (("unix_socket", login.socket), ("host", login.host), ("port", login.port)):
        if value:
            given[option] = value
    if login.user:
        given["user"] = login.user
    if login.password_file:
        try:
            given["password"] = (
                read_plain(Path(login.password_file).expanduser(), _MOST_SECRET_BYTES).decode().rstrip("\r\n")
            )
        except OSError as error:
            raise TargetError(
                f"the password file cannot be read: {error.strerror}", place=login.password_file
            ) from error
    last: Exception | None = None
    for encryption in _encryptions(login):
        try:
            return Session(_Connection(**given, **encryption), name)
        except (pymysql.Error, OSError, *STRANGE) as error:
            last = error
    words = last.args[-1] if last and last.args else last
    raise TargetError(f"cannot log in: {words}", place=name) from last


def _encryptions(login: ServerLogin) -> list[dict[str, Any]]:
    """How to try, in turn: as `--ssl-mode` of the mysql client has it."""
    mode = (login.tls or "preferred").lower().replace("_", "-")
    plain: dict[str, Any] = {"ssl_disabled": True}
    if mode == "disabled" or (mode == "preferred" and not login.host):
        return [plain]
    if mode in ("verify-ca", "verify-identity"):
        context = ssl.create_default_context(cafile=login.tls_ca or None)
        context.check_hostname = mode == "verify-identity"
        return [{"ssl": context}]
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    return [{"ssl": unchecked}, plain] if mode == "preferred" else [{"ssl": unchecked}]
