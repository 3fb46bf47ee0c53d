"""Indexes that are built on a copy of a server, hidden and shown there, and dropped again.

Each is written down before it is built, so the next run on that server drops what a killed one left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.encode import json_text
from headrace.base.errors import Busy, Refused, StoreError
from headrace.base.model import ServerLogin
from headrace.base.received import BadContent, parsed
from headrace.base.state import state_path
from headrace.base.whole import write_whole
from headrace.indexes.names import quoted, written
from headrace.indexes.session import Session, StatementFailed, connect

if TYPE_CHECKING:
    from headrace.indexes.candidates import Candidate

#: How long a change of an index may wait for other sessions of the copy.
LOCK_WAIT_S = 30
#: How long the server may take to stop the build of an index that was interrupted.
STOP_S = 120.0
#: What MySQL and MariaDB say of an index or a table that is not there.
GONE = (1091, 1146, 1049, 1176)


@dataclass(frozen=True)
class Built:
    """An index that headrace built, with the columns it then had."""

    database: str
    table: str
    name: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, candidate: Candidate) -> Built:
        table = candidate.table
        columns = tuple(table.columns[name].name for name in candidate.columns)
        return cls(table.database, table.name, candidate.name, columns)

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Built:
        """As a journal has it. Raises KeyError or TypeError for what no journal has."""
        return cls(entry["database"], entry["table"], entry["name"], tuple(entry["columns"]))

    @property
    def written(self) -> str:
        """As `headrace apply` and `headrace rollback --index` take it."""
        return f"{written(self.database, self.table)}({', '.join(map(written, self.columns))})"

    @property
    def place(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.table)}"


class Copy:
    """A copy of a server while candidates are tried on it."""

    def __init__(self, session: Session, login: ServerLogin, journal: Path) -> None:
        self.session = session
        self._login = login
        self._journal = journal
        self._built: dict[Built, bool] = {}

    def build(self, candidate: Candidate) -> float:
        """Build it hidden; the seconds that took. Raises StatementFailed, Refused if the name is taken."""
        index = Built.of(candidate)
        if columns_of(self.session, index):
            raise Refused(f"{candidate.table.full_name} has an index {index.name} already", place=index.name)
        self._built[index] = False
        self._write()
        parts = ", ".join(map(quoted, index.columns))
        started = time.perf_counter()
        try:
            self.session.rows(
                f"ALTER TABLE {index.place} ADD INDEX {quoted(index.name)} ({parts}) {self.session.hidden_word}"
            )
        except StatementFailed:
            self._forget(index)
            raise
        return time.perf_counter() - started

    def show(self, candidates: Collection[Candidate]) -> None:
        """Let the optimiser use these of the built ones, and no other."""
        shown = {Built.of(each) for each in candidates}
        for index, is_shown in self._built.items():
            if (index in shown) != is_shown:
                word = self.session.hidden_word if is_shown else self.session.shown_word
                self.session.rows(f"ALTER TABLE {index.place} ALTER INDEX {quoted(index.name)} {word}")
                self._built[index] = not is_shown

    def drop(self, candidate: Candidate) -> None:
        index = Built.of(candidate)
        drop(self.session, index)
        self._forget(index)

    def size_bytes(self, candidate: Candidate) -> int | None:
        """Of a built one on disk, by the server's statistics; None if this account may not read them."""
        index = Built.of(candidate)
        try:
            pages = self.session.value(
                "SELECT stat_value * @@innodb_page_size FROM mysql.innodb_index_stats WHERE stat_name = 'size'"
                f" AND database_name = {text(index.database)} AND table_name = {text(index.table)}"
                f" AND index_name = {text(index.name)}"
            )
        except StatementFailed:
            return None
        return int(pages) if pages is not None else None

    def clean(self) -> None:
        """Drop all that was built, also if the session is in the middle of a statement."""
        if not self._built:
            return
        session = connect(self._login)
        try:
            stop_session(session, self.session.id)
            for index in list(self._built):
                drop(session, index)
                self._forget(index)
        finally:
            session.close()

    def _forget(self, index: Built) -> None:
        self._built.pop(index, None)
        self._write()

    def _write(self) -> None:
        write_whole(self._journal, json_text([asdict(index) for index in self._built]), 0o600)


@contextlib.contextmanager
def copy(login: ServerLogin) -> Iterator[tuple[Copy, list[Built]]]:
    """The copy, and what a killed run had left on it, which is dropped by now.

    All that is built is dropped at the end, after an error and Ctrl-C, too. Raises Refused if replicas read from
    this server, Busy if another run works on it.
    """
    session = connect(login)
    try:
        session.hidden_word  # noqa: B018 - raises before anything is done
        _refuse_source(session)
        journal = state_path(f"indexes/{session.identity}.json")
        journal.parent.mkdir(parents=True, exist_ok=True)
        with alone(journal.with_suffix(".lock"), session.name):
            left = _left(journal)
            session.set_if_known("sql_log_bin", "0")
            session.set_if_known("lock_wait_timeout", str(LOCK_WAIT_S))
            session.set_if_known("innodb_lock_wait_timeout", str(LOCK_WAIT_S))
            for index in left:
                stop_builders(session, index)
                drop(session, index)
            made = Copy(session, login, journal)
            try:
                yield made, left
            finally:
                made.clean()
                journal.unlink(missing_ok=True)
    finally:
        session.close()


def columns_of(session: Session, index: Built) -> tuple[str, ...]:
    """The columns of the index of that name as the server has it; none if there is none."""
    rows = session.rows(
        "SELECT column_name FROM information_schema.statistics"
        f" WHERE table_schema = {text(index.database)} AND table_name = {text(index.table)}"
        f" AND index_name = {text(index.name)} ORDER BY seq_in_index"
    )
    return tuple(str(name) for (name,) in rows)


def drop(session: Session, index: Built) -> bool:
    """Drop it if it is there with the columns that it was built with; an index of others stays."""
    if columns_of(session, index) != index.columns:
        return False
    try:
        session.rows(f"ALTER TABLE {index.place} DROP INDEX {quoted(index.name)}")
    except StatementFailed as error:
        if error.code not in GONE:
            raise
        return False
    return True


def text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _refuse_source(session: Session) -> None:
    dumps = [row for row in session.rows("SHOW PROCESSLIST") if str(row[4]).startswith("Binlog Dump")]
    if dumps:
        raise Refused(
            f"{len(dumps)} replicas read from this server, so it is not a copy to try indexes on",
            place=session.name,
            hint="restore a backup on a server of its own",
        )


def stop_builders(session: Session, index: Built) -> None:
    """End what still builds it: a server does not notice that a client was killed until the build has ended."""
    start = f"ALTER TABLE {index.place} ADD INDEX {quoted(index.name)} "
    for row in session.rows("SHOW FULL PROCESSLIST"):
        if str(row[7]).startswith(start):
            stop_session(session, int(row[0]))


def stop_session(session: Session, number: int) -> None:
    """End the statement that an interrupted session may still run, and wait until it has ended."""
    with contextlib.suppress(StatementFailed):
        session.rows(f"KILL {number}")
    end = time.monotonic() + STOP_S
    while any(int(row[0]) == number for row in session.rows("SHOW PROCESSLIST")):
        if time.monotonic() > end:
            raise Busy(
                f"session {number} has not ended within {STOP_S:.0f} s",
                place=session.name,
                hint="the next run on this copy drops what is left",
            )
        time.sleep(0.05)


@contextlib.contextmanager
def alone(path: Path, place: str) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy("another command tries indexes on this server", place=place) from error
        yield
    finally:
        os.close(descriptor)


def _left(journal: Path) -> list[Built]:
    if not journal.exists():
        return []
    try:
        return [Built.read(each) for each in parsed(journal.read_bytes())]
    except (BadContent, KeyError, TypeError) as error:
        raise StoreError(
            f"the list of indexes that were built cannot be read ({type(error).__name__}: {error})",
            place=str(journal),
            hint="drop indexes whose names begin with hr_ on the copy yourself, then remove this file",
        ) from error
