"""What is looked at while an index is built on a live server: its progress, the disk, and the replicas.

The build is stopped when the disk gets short or a replica falls behind. What cannot be looked at is said, once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.base.counted import counted
from headrace.base.errors import DiskFull, HeadraceError, NotReady, TargetError
from headrace.base.model import ServerLogin
from headrace.indexes.copies import Built, columns_of, text
from headrace.indexes.session import Session, StatementFailed, connect

#: Seconds between two looks, and between two lines of progress.
LOOK_S, TELL_S = 1.0, 10.0
#: Bytes that stay free on the disk, at least, and the share of it.
LEAST_FREE_BYTES, LEAST_FREE = 256 << 20, 0.02
#: An index and the files that it is sorted in, relative to the index.
WITH_SORT_FILES = 2
#: Bytes of an entry beside its columns, how full pages are, and what a text takes of its longest at most.
ENTRY_BYTES, FULLNESS, TEXT_BYTES = 20, 1.5, 40


class Lagging(HeadraceError):
    """A replica is too far behind, or does not say how far."""

    exit_code = 5


@dataclass(frozen=True)
class Limits:
    """``replicas``: HOST or HOST:PORT, logged into as the server is."""

    replicas: Sequence[str] = ()
    most_lag_s: float = 30.0


@dataclass(frozen=True)
class Space:
    """The disk of the server's data: bytes that are free, and that stay free."""

    free_bytes: int
    kept_bytes: int


class Lag:
    """How far the watched replicas are behind."""

    def __init__(self, login: ServerLogin, limits: Limits) -> None:
        self._login, self._limits = login, limits
        self.replicas: list[Session] = []

    def connect(self) -> None:
        """Raises TargetError."""
        for name in self._limits.replicas:
            self.replicas.append(connect(_login_of(self._login, name)))

    def look(self) -> None:
        """Raises Lagging."""
        for replica in self.replicas:
            lag_s = lag_of(replica)
            if lag_s is None:
                raise Lagging(
                    "this replica does not say how far it is behind: does it replicate?", place=replica.name
                )
            if lag_s > self._limits.most_lag_s:
                raise Lagging(
                    f"this replica is {lag_s:.0f} s behind, and {self._limits.most_lag_s:g} s are allowed",
                    place=replica.name,
                )

    def close(self) -> None:
        for each in self.replicas:
            each.close()


class Watch:
    """Looks at a server beside a session that builds ``index`` there.

    ``check`` before the build raises DiskFull or Lagging; in between, a look that finds either kills the build's
    statement, and ``end`` raises it.
    """

    def __init__(
        self, login: ServerLogin, session: Session, index: Built, limits: Limits, tell: Callable[[str], None]
    ) -> None:
        self._login = login
        self._builder = session
        self._index = index
        self._tell = tell
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem: HeadraceError | None = None
        self._lag = Lag(login, limits)
        self._has_said = False
        self._began_s = time.monotonic()

    def begins_again(self) -> None:
        """What was built before is lost: time and progress count from here."""
        self._began_s = time.monotonic()

    def check(self) -> None:
        needed = size_bytes(self._builder, self._index)
        space = space_of(self._builder)
        if space is None:
            self._tell("free disk space is unknown: the server's data are not to be seen from here")
        elif needed is None:
            self._tell(
                "the size of the index is unknown: the server does not say how many rows the table has"
            )
        elif space.free_bytes - WITH_SORT_FILES * needed < space.kept_bytes:
            raise DiskFull(
                f"{_mib(space.free_bytes)} are free; the index takes about {_mib(needed)}, as much again while it "
                f"is sorted, and {_mib(space.kept_bytes)} are to stay free",
                place=self._builder.name,
            )
        sorting = sort_space_of(self._builder)
        if sorting is not None and needed is not None and sorting.free_bytes - needed < sorting.kept_bytes:
            raise DiskFull(
                f"{_mib(sorting.free_bytes)} are free where the server sorts (innodb_tmpdir, else tmpdir); "
                f"sorting the index takes about {_mib(needed)}",
                place=self._builder.name,
                hint="SET GLOBAL innodb_tmpdir to a folder with more room, then run the same command",
            )
        self._lag.connect()
        self._lag.look()
        others = [
            row for row in self._builder.rows("SHOW PROCESSLIST") if str(row[4]).startswith("Binlog Dump")
        ]
        if len(others) > len(self._lag.replicas):
            self._tell(
                f"{counted(len(others), 'replica')} of this server build the index after it, each behind the "
                f"source for as long; {len(self._lag.replicas)} of them are watched (--replica)"
            )

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Raises what stopped the build."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LOOK_S * 10)
            self._thread = None
        if self._problem is not None:
            raise self._problem

    def wait_for_replicas(self, most_s: float) -> None:
        """Until each watched replica has the index and is no further behind than the limit. Raises Lagging."""
        end = time.monotonic() + most_s
        for replica in self._lag.replicas:
            while not _has(replica, self._index):
                if time.monotonic() > end:
                    raise Lagging(f"it has no such index after {most_s:.0f} s", place=replica.name)
                time.sleep(LOOK_S)
        while True:
            try:
                self._lag.look()
            except Lagging:
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK_S)
            else:
                break

    def close(self) -> None:
        self._stop.set()
        self._lag.close()

    def _run(self) -> None:
        told = time.monotonic()
        try:
            own = connect(self._login)
        except TargetError as error:
            self._tell(f"the build is not watched: {error.message}")
            return
        try:
            while not self._stop.wait(LOOK_S):
                self._look(own)
                if time.monotonic() - told >= TELL_S:
                    told = time.monotonic()
                    self._tell(self._progress(own, told - self._began_s))
        except HeadraceError as error:
            if not self._stop.is_set():
                self._problem = error
                _kill(own, self._builder)
        finally:
            own.close()

    def _look(self, own: Session) -> None:
        space = space_of(own)
        if space is not None and space.free_bytes < space.kept_bytes:
            raise DiskFull(
                f"stopped the build, for only {_mib(space.free_bytes)} are free", place=self._builder.name
            )
        sorting = sort_space_of(own)
        if sorting is not None and sorting.free_bytes < sorting.kept_bytes:
            raise DiskFull(
                f"stopped the build, for only {_mib(sorting.free_bytes)} are free where the server sorts "
                "(innodb_tmpdir, else tmpdir)",
                place=self._builder.name,
            )
        self._lag.look()

    def _progress(self, own: Session, seconds: float) -> str:
        done = progress_of(own, self._builder.id)
        if done is None:
            hint = ""
            if not self._has_said and not own.is_mariadb:
                hint = (
                    "; MySQL tells it with UPDATE performance_schema.setup_consumers SET enabled = 'YES'"
                    " WHERE name = 'events_stages_current'"
                )
            self._has_said = True
            return f"building for {seconds:.0f} s; the server does not say how far it is{hint}"
        left = f", about {seconds * (1 - done) / done:.0f} s left" if done > 0.01 else ""
        return f"building for {seconds:.0f} s, {done:.0%} done{left}"


def progress_of(own: Session, number: int) -> float | None:
    """The share of the work that the statement of a session has done; None if the server does not say.

    MariaDB counts stages and the share of the current one; MySQL counts pieces of work of all stages.
    """
    if own.is_mariadb:
        rows = own.rows(
            f"SELECT stage, max_stage, progress FROM information_schema.processlist WHERE id = {number}"
        )
        if not rows or not int(rows[0][1] or 0):
            return None
        stage, most, share = (float(each) for each in rows[0])
        return min((stage - 1 + share / 100) / most, 1.0) if stage >= 1 else None
    try:
        rows = own.rows(
            "SELECT work_completed, work_estimated FROM performance_schema.events_stages_current"
            " JOIN performance_schema.threads USING (thread_id)"
            f" WHERE processlist_id = {number} AND work_estimated > 0"
        )
    except StatementFailed:
        return None
    return min(float(rows[0][0]) / float(rows[0][1]), 1.0) if rows else None


def space_of(session: Session) -> Space | None:
    """Of the disk with the server's data; None for a server elsewhere, and where this account may not look."""
    found = _disk(session, str(session.value("SELECT @@datadir")))
    return None if found is None else _space(found[0], LEAST_FREE_BYTES)


def sort_space_of(session: Session) -> Space | None:
    """Of the disk where the server sorts an index, if that is another one than that of its data."""
    named = session.rows("SELECT @@innodb_tmpdir, @@tmpdir, @@datadir")
    own, usual, data = (str(each or "") for each in named[0])
    there = _disk(session, data)
    spaces = []
    # Several folders of tmpdir are used in turn.
    for folder in [own] if own else usual.split(":"):
        found = _disk(session, str(Path(data) / folder)) if folder else None
        if found is None or there is None or found[1] == there[1]:
            continue
        spaces.append(_space(found[0]))
    return min(spaces, key=lambda each: each.free_bytes - each.kept_bytes, default=None)


def _space(disk: os.statvfs_result, least_bytes: int = 0) -> Space:
    kept_bytes = max(least_bytes, int(disk.f_blocks * disk.f_frsize * LEAST_FREE))
    return Space(disk.f_bavail * disk.f_frsize, kept_bytes)


def _disk(session: Session, folder: str) -> tuple[os.statvfs_result, int] | None:
    """The disk of a folder of the server, and which one it is; None if it is not to be seen from here."""
    pid = session.server_pid
    if pid is None:
        return None
    place = Path(f"/proc/{pid}/root") / folder.lstrip("/")
    try:
        return os.statvfs(place), place.stat().st_dev
    except OSError:
        return None


def size_bytes(session: Session, index: Built) -> int | None:
    """About how large an index will be; None if the server does not say how many rows the table has."""
    rows = session.value(
        "SELECT table_rows FROM information_schema.tables"
        f" WHERE table_schema = {text(index.database)} AND table_name = {text(index.table)}"
    )
    if rows is None:
        return None
    named = ", ".join(map(text, index.columns))
    lengths = session.rows(
        "SELECT character_octet_length FROM information_schema.columns"
        f" WHERE table_schema = {text(index.database)} AND table_name = {text(index.table)}"
        f" AND (column_key = 'PRI' OR column_name IN ({named}))"
    )
    width = sum(min(int(length), TEXT_BYTES) if length is not None else 8 for (length,) in lengths)
    return int(int(rows) * (width + ENTRY_BYTES) * FULLNESS)


def lag_of(replica: Session) -> float | None:
    """Seconds behind its source; None if it does not say, as when a thread of replication has stopped."""
    for statement in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
        try:
            found = replica.named(statement)
        except StatementFailed:
            continue
        lags = [
            value
            for row in found
            for name, value in row.items()
            if name in ("Seconds_Behind_Source", "Seconds_Behind_Master")
        ]
        return max(map(float, lags)) if lags and None not in lags else None
    return None


def _has(session: Session, index: Built) -> bool:
    return columns_of(session, index) == index.columns


def _login_of(login: ServerLogin, name: str) -> ServerLogin:
    host, colon, port = name.rpartition(":")
    if name.startswith("/"):
        return replace(login, socket=name, host="", port=None)
    return replace(
        login, socket="", host=host if colon else name, port=int(port) if colon and port.isdigit() else None
    )


def _kill(own: Session, builder: Session) -> None:
    try:
        own.rows(f"KILL QUERY {builder.id}")
    except StatementFailed as error:
        raise NotReady(f"the build cannot be stopped: {error.words}", place=builder.name) from error


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
