"""An index made on a live server: built hidden and online, then shown; dropped again by `undo`.

Each step is written down before it is taken. A statement waits ``LOCK_WAIT_S`` for other sessions at most, because
whoever uses the table queues behind it as long; then it gives way and tries again.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headrace.base.counted import counted
from headrace.base.errors import Busy, HeadraceError, PlanError, Refused, TargetError
from headrace.base.model import ServerLogin
from headrace.indexes import names
from headrace.indexes.copies import Built, columns_of, stop_builders, stop_session, text
from headrace.indexes.journal import Journal
from headrace.indexes.judging import Judged, Turns, judge
from headrace.indexes.session import LOCK_WAITS, Session, StatementFailed, connect
from headrace.indexes.watching import Lag, Limits, Watch

LOCK_WAIT_S = 2
TRIES, PAUSE_S = 5, 5.0
#: A build that was lost is not begun again while the transactions of then are open, but for so long at most.
MOST_HELD_S = 600.0
#: Seconds that replicas have at least for the same build; and between tries of a guard.
MOST_BEHIND_S, AGAIN_S = 600.0, 10.0
#: How often a guard looks whether its time has come.
GLANCE_S = 60.0
#: How long a server that is down is asked again after the deadline.
MOST_AWAY_S = 86_400.0
#: The server cannot do it online: two codes of MySQL and MariaDB.
NOT_ONLINE = (1845, 1846)
#: What servers say when the disk is full where they sort: a full disk, an error of the engine, and MariaDB even
#: that the index is corrupt.
SORT_FAILED = (3, 1021, 1026, 1030, 1034)


class State(StrEnum):
    BUILDING = "building"
    HIDDEN = "hidden"
    SHOWN = "shown"


@dataclass(frozen=True)
class Entry:
    index: Built
    state: State
    #: The server, as the login named it, and when it began (seconds since 1970).
    server: str
    at_s: float
    #: When it is taken back unless it is confirmed (seconds since 1970); None: it stays.
    deadline_s: float | None = None


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        Built.read(row["index"]),
        State(row["state"]),
        str(row["server"]),
        float(row["at_s"]),
        float(row["deadline_s"]) if row.get("deadline_s") is not None else None,
    )


_JOURNAL = Journal("applied", _entry, lambda entry: entry.index)


def index_of(written: str) -> Built:
    """``DATABASE.TABLE(COLUMN, ...)``. Raises PlanError."""
    found = names.index_parts(written)
    if found is None:
        raise PlanError(
            f"{written!r} is not an index: write DATABASE.TABLE(COLUMN, COLUMN), and names with other characters "
            "than letters and digits between backticks"
        )
    (database, table), columns = found
    name = f"hr_{'_'.join(name.lower() for name in columns)}"[:64]
    return Built(database, table, name, columns)


def statements(session: Session, index: Built) -> list[str]:
    """What `make` runs, in order."""
    parts = ", ".join(map(names.quoted, index.columns))
    name = names.quoted(index.name)
    return [
        f"ALTER TABLE {index.place} ADD INDEX {name} ({parts}) {session.hidden_word},"
        " ALGORITHM=INPLACE, LOCK=NONE",
        f"ALTER TABLE {index.place} ALTER INDEX {name} {session.shown_word}",
    ]


def make(
    login: ServerLogin,
    index: Built,
    tell: Callable[[str], None],
    *,
    pause_s: float = PAUSE_S,
    limits: Limits | None = None,
    confirm_within_s: float | None = None,
    on_guard: Callable[[Entry], None] = lambda _: None,
) -> Entry:
    """Build it hidden, then show it; all or nothing.

    With ``confirm_within_s`` the entry has a deadline, and before the index is shown ``on_guard`` starts what
    keeps it (`guard`). Raises Refused, Busy, StatementFailed, TargetError, DiskFull, Lagging.
    """
    session = connect(login)
    watch = Watch(login, session, index, limits or Limits(), tell)
    try:
        build, show = statements(session, index)
        _check(session, index)
        watch.check()
        with _JOURNAL.alone(session):
            began, entry = time.monotonic(), Entry(index, State.BUILDING, session.name, time.time())
            if any(each.index == index for each in _JOURNAL.entries(session)):
                raise Refused(
                    "this index is in the journal already",
                    place=index.name,
                    hint=f"headrace rollback --index {_written(index)} takes it back first",
                )
            _JOURNAL.note(session, entry)
            try:
                _built(session, watch, build, tell, pause_s)
                done = replace(entry, state=State.HIDDEN)
                _JOURNAL.note(session, done)
                watch.wait_for_replicas(max(MOST_BEHIND_S, 2 * (time.monotonic() - began)))
                deadline_s = time.time() + confirm_within_s if confirm_within_s else None
                # Written down first: a deadline holds from before the first statement can use the index.
                done = replace(entry, state=State.SHOWN, deadline_s=deadline_s)
                _JOURNAL.note(session, done)
                if deadline_s is not None:
                    on_guard(done)
                patiently(session, show, tell, pause_s)
            except BaseException as error:
                _take_back_or_tell(login, session, index, tell)
                if isinstance(error, StatementFailed) and error.code in NOT_ONLINE:
                    raise Refused(
                        f"the server cannot build it online: {error.words}",
                        place=index.name,
                        hint="; ".join(elsewhere(index)),
                    ) from error
                raise
            return done
    finally:
        watch.close()
        session.close()


def _built(session: Session, watch: Watch, build: str, tell: Callable[[str], None], pause_s: float) -> None:
    watch.begin()
    try:
        patiently(session, build, tell, pause_s, watch.begins_again)
    except StatementFailed as error:
        watch.end()  # raises why it was stopped, if that is what ended the statement
        if error.code in SORT_FAILED:
            error.hint = (
                "servers say so, too, of a full disk where they sort (innodb_tmpdir, else tmpdir): the error log "
                "tells. The table is as it was"
            )
        raise
    watch.end()


def judged(
    login: ServerLogin,
    entry: Entry,
    turns: Turns,
    tell: Callable[[str], None],
    limits: Limits | None = None,
) -> Judged:
    """Show and hide it in turns under the server's own load; it is shown afterwards.

    Raises as `judge` does, and Lagging when a replica falls behind.
    """
    session, switching, lag = connect(login), connect(login), Lag(login, limits or Limits())
    index = entry.index
    start = f"ALTER TABLE {index.place} ALTER INDEX {names.quoted(index.name)}"

    def switch(is_shown: bool) -> None:
        word = switching.shown_word if is_shown else switching.hidden_word
        patiently(switching, f"{start} {word}", tell, PAUSE_S)

    try:
        lag.connect()
        found = judge(session, index, turns, switch, tell, lag.look)
        switch(True)
        return found
    finally:
        lag.close()
        session.close()
        switching.close()


def confirm(login: ServerLogin, written: str) -> Entry:
    """Keep an index that awaits confirmation. Raises Refused if the journal has none."""
    wanted = index_of(written)
    session = connect(login)
    try:
        with _JOURNAL.alone(session):
            for entry in _JOURNAL.entries(session):
                if entry.index == wanted and entry.deadline_s is not None:
                    kept = replace(entry, deadline_s=None)
                    _JOURNAL.note(session, kept)
                    return kept
    finally:
        session.close()
    raise Refused(
        "no such index awaits confirmation", place=written, hint="`headrace rollback --list` lists them"
    )


def guard(login: ServerLogin, written: str, deadline_s: float, tell: Callable[[str], None]) -> bool:
    """Wait for a deadline, then take the index back unless it was confirmed; whether it was taken back.

    A server that does not answer is asked again for a day. After that the index stays in the journal, and
    `rollback --list` shows its deadline.
    """
    wanted = index_of(written)
    # The time that counts while the machine sleeps, too.
    end_s = time.clock_gettime(time.CLOCK_BOOTTIME) + max(deadline_s - time.time(), 0.0)
    while (left_s := end_s - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        time.sleep(min(left_s, GLANCE_S))
    last_s = time.monotonic() + MOST_AWAY_S
    while True:
        try:
            session = connect(login)
            try:
                waits = any(
                    each.index == wanted and each.deadline_s == deadline_s
                    for each in _JOURNAL.entries(session)
                )
            finally:
                session.close()
            return undo(login, written, tell)[1] if waits else False
        except (TargetError, Busy, StatementFailed) as error:
            tell(f"cannot take it back yet: {error}")
            if time.monotonic() > last_s:
                return False
            time.sleep(AGAIN_S)


def undo(
    login: ServerLogin, written: str, tell: Callable[[str], None], *, pause_s: float = PAUSE_S
) -> tuple[Entry, bool]:
    """Drop an index of the journal, and whether it was there. Raises Refused if it is not in the journal."""
    wanted = index_of(written)
    session = connect(login)
    try:
        with _JOURNAL.alone(session):
            for entry in _JOURNAL.entries(session):
                if entry.index == wanted:
                    stop_builders(session, wanted)
                    return entry, _drop(session, wanted, tell, pause_s)
            raise Refused(
                "the journal has no such index: headrace drops only what it made",
                place=written,
                hint="`headrace rollback --list` lists them",
            )
    finally:
        session.close()


def journalled() -> list[Entry]:
    """All indexes that commands of this user made and that were not taken back, on any server."""
    return _JOURNAL.everywhere()


def elsewhere(index: Built) -> Iterator[str]:
    """Command lines of tools that copy the table beside the application."""
    parts = ", ".join(map(names.written, index.columns))
    change = f"ADD INDEX {names.written(index.name)} ({parts})"
    database, table = shlex.quote(index.database), shlex.quote(index.table)
    alter = f'"{change}"' if "`" not in change else shlex.quote(change)
    yield f"gh-ost --database={database} --table={table} --alter={alter} --allow-on-master --execute"
    yield (
        f"pt-online-schema-change --alter {alter} {shlex.quote(f'D={index.database},t={index.table}')} --execute"
    )


def _written(index: Built) -> str:
    return shlex.quote(index.written)


def _check(session: Session, index: Built) -> None:
    rows = session.rows(
        "SELECT engine FROM information_schema.tables"
        f" WHERE table_schema = {text(index.database)} AND table_name = {text(index.table)}"
    )
    if not rows:
        raise PlanError("the server has no such table", place=f"{index.database}.{index.table}")
    if str(rows[0][0]).lower() != "innodb":
        raise Refused(
            f"the table is of {rows[0][0]}, whose indexes are not built online: writes would wait",
            place=f"{index.database}.{index.table}",
            hint="; ".join(elsewhere(index)),
        )
    if columns_of(session, index):
        raise Refused(f"the table has an index {index.name} already", place=index.place)


def patiently(
    session: Session,
    statement: str,
    tell: Callable[[str], None],
    pause_s: float,
    again: Callable[[], None] = lambda: None,
) -> None:
    """Run it with a short lock wait, several times if others hold the table; ``again`` is called before each more.

    A build needs the table for itself at its beginning and at its end, and what it built is lost if others hold it
    then. So it waits for their transactions before it begins again.
    """
    session.rows(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
    session.rows(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}")
    for number in range(1, TRIES + 1):
        began_s = time.monotonic()
        try:
            session.rows(statement)
            return
        except StatementFailed as error:
            if error.code not in LOCK_WAITS:
                raise
            if number == TRIES:
                raise Busy(
                    f"other sessions hold the table: gave way {TRIES} times after {LOCK_WAIT_S} s",
                    place=session.name,
                    hint="a long transaction holds its metadata lock: run the same command when it has ended",
                ) from error
            lost_s = time.monotonic() - began_s - LOCK_WAIT_S
            is_lost = lost_s > LOCK_WAIT_S
            tell(
                f"others hold the table: gave way after {LOCK_WAIT_S} s, beginning again in {pause_s:g} s"
                + (f"; {lost_s:.0f} s of work are lost" if is_lost else "")
            )
            time.sleep(pause_s)
            if is_lost:
                _wait_for(session, open_transactions(session), tell)
            again()


def _wait_for(session: Session, held: Sequence[tuple[int, int]], tell: Callable[[str], None]) -> None:
    """Until these transactions have ended, or for ``MOST_HELD_S``: the same ones would end the next build, too."""
    if not held:
        return
    named = ", ".join(f"session {number} (for {seconds} s)" for number, seconds in held[:5])
    tell(f"waiting for {counted(len(held), 'open transaction')} to end: {named}")
    started = time.monotonic()
    while (waited := time.monotonic() - started) < MOST_HELD_S:
        now = dict(open_transactions(session))
        # One that the same session began since is younger than the wait.
        if not any(now.get(number, 0) >= int(waited) + seconds for number, seconds in held):
            return
        time.sleep(1.0)


def open_transactions(session: Session) -> list[tuple[int, int]]:
    """Sessions with a transaction older than a lock wait, with its seconds; none if that is not to be seen."""
    try:
        found = session.rows(
            "SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW())"
            f" FROM information_schema.innodb_trx WHERE trx_started < NOW() - INTERVAL {LOCK_WAIT_S} SECOND"
            f" AND trx_mysql_thread_id NOT IN (0, {session.id}) ORDER BY trx_started"
        )
    except StatementFailed:
        return []
    return [(int(number), int(seconds)) for number, seconds in found]


def _take_back_or_tell(
    login: ServerLogin, session: Session, index: Built, tell: Callable[[str], None]
) -> None:
    """What led here is the error that is shown; that it could not be taken back is told beside it."""
    try:
        _take_back(login, session, index)
    except HeadraceError as error:
        tell(
            f"what was built of it may be there still, for it cannot be dropped now ({error.message}): "
            f"headrace rollback --index {_written(index)} drops it"
        )


def _take_back(login: ServerLogin, session: Session, index: Built) -> None:
    """After a failure or Ctrl-C, over a connection of its own: this one may be in the middle of a statement.

    What cannot be dropped now stays in the journal, for `undo`.
    """
    other = connect(login)
    try:
        stop_session(other, session.id)
        _drop(other, index, lambda _: None, PAUSE_S)
    finally:
        other.close()


def _drop(session: Session, index: Built, tell: Callable[[str], None], pause_s: float) -> bool:
    is_there = columns_of(session, index) == index.columns
    if is_there:
        patiently(
            session,
            f"ALTER TABLE {index.place} DROP INDEX {names.quoted(index.name)}, ALGORITHM=INPLACE, LOCK=NONE",
            tell,
            pause_s,
        )
    _JOURNAL.forget(session, index)
    return is_there
