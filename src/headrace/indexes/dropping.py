"""An index that is surplus: hidden first, for a stated time, and dropped only after.

Hiding is undone at once, and a dropped index is built again by the definition that was written down before. An
index that a constraint rests on is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headrace.base.clocks import Clocks
from headrace.base.counted import counted
from headrace.base.errors import PlanError, Refused
from headrace.base.model import ServerLogin
from headrace.indexes import hinted, names
from headrace.indexes.applied import PAUSE_S, patiently
from headrace.indexes.copies import text
from headrace.indexes.journal import Journal
from headrace.indexes.schema import PRIMARY, Index, Part, Table
from headrace.indexes.session import Session, connect

#: Servers write what hides an index into its definition; built again, it is visible.
_HIDDEN = re.compile(r"\s+(?:IGNORED|/\*!80000 INVISIBLE \*/)$")


class State(StrEnum):
    HIDDEN = "hidden"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Surplus:
    """``definition`` as `SHOW CREATE TABLE` has it. Times in seconds since 1970."""

    database: str
    table: str
    name: str
    definition: str
    state: State
    server: str
    at_s: float
    #: It is not dropped before.
    until_s: float
    #: This machine's clock since its boot and the server's clock when it was hidden: one alone may be wrong.
    boot_s: float = 0.0
    boot: str = ""
    server_s: float = 0.0

    @property
    def place(self) -> str:
        return f"{names.quoted(self.database)}.{names.quoted(self.table)}"

    @property
    def written(self) -> str:
        return names.written(self.database, self.table, self.name)


def _surplus(row: Mapping[str, Any]) -> Surplus:
    return Surplus(
        str(row["database"]),
        str(row["table"]),
        str(row["name"]),
        str(row["definition"]),
        State(row["state"]),
        str(row["server"]),
        float(row["at_s"]),
        float(row["until_s"]),
        float(row.get("boot_s", 0.0)),
        str(row.get("boot", "")),
        float(row.get("server_s", 0.0)),
    )


_JOURNAL = Journal("surplus", _surplus, lambda entry: entry.written)


def is_written(text_of_it: str) -> bool:
    return len(names.parts(text_of_it)) == 3


def hide_or_drop(login: ServerLogin, written: str, hidden_s: float, tell: Callable[[str], None]) -> Surplus:
    """Hide an index, and drop one that has been hidden for the time that was stated then.

    Raises PlanError, Refused (it backs a constraint; it is too early), Busy, StatementFailed, TargetError.
    """
    database, table, name = _parts(written)
    session = connect(login)
    try:
        with _JOURNAL.alone(session):
            entry = _entry(session, database, table, name)
            definition, is_hidden = _checked(session, database, table, name)
            # Shown again by somebody, or never hidden because the command was killed: its time begins anew.
            if entry is None or entry.state is State.DROPPED or not is_hidden:
                now = Clocks.now()
                entry = Surplus(
                    database, table, name, definition, State.HIDDEN, session.name, now.wall_s,
                    now.wall_s + hidden_s, now.boot_s, now.boot, _time_of(session),
                )  # fmt: skip
                _refuse_hinted(session, entry, tell)
                _JOURNAL.note(session, entry)
                _alter(session, entry, f"ALTER INDEX {names.quoted(name)} {session.hidden_word}", tell)
                return entry
            if (left_s := _left_s(entry, _time_of(session))) > 0:
                at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + left_s))
                raise Refused(
                    f"it is hidden, and is not dropped before {at}",
                    place=written,
                    hint=f"run the same command then; headrace rollback --index {written} shows it again",
                )
            if definition != entry.definition:
                raise Refused("it has another definition than when it was hidden", place=written)
            done = replace(entry, state=State.DROPPED)
            _JOURNAL.note(session, done)
            _alter(session, entry, f"DROP INDEX {names.quoted(name)}, ALGORITHM=INPLACE, LOCK=NONE", tell)
            return done
    finally:
        session.close()


def _time_of(session: Session) -> float:
    """The server's clock."""
    return float(session.value("SELECT UNIX_TIMESTAMP()") or 0.0)


def _left_s(entry: Surplus, server_s: float) -> float:
    """How long it still has to be hidden: by what has passed since the boot, which no clock that is set changes.
    Across a boot the clocks of this machine and of the server must both say that it is over.
    """
    now = Clocks.now()
    passed_s = now.since(Clocks(entry.at_s, entry.boot_s, entry.boot))
    if passed_s is None:
        passed_s = now.wall_s - entry.at_s
        if entry.server_s and server_s:
            passed_s = min(passed_s, server_s - entry.server_s)
    return entry.until_s - entry.at_s - passed_s


def bring_back(login: ServerLogin, written: str, tell: Callable[[str], None]) -> Surplus:
    """Show a hidden index again, or build a dropped one. Raises Refused if the journal has no such index."""
    session = connect(login)
    try:
        with _JOURNAL.alone(session):
            entry = _entry(session, *_parts(written))
            if entry is None:
                raise Refused(
                    "the journal has no such index",
                    place=written,
                    hint="`headrace rollback --list` lists them",
                )
            if _definition(session, entry.database, entry.table, entry.name) is None:
                tell(f"building {entry.written} again")
                _alter(session, entry, f"ADD {entry.definition}, ALGORITHM=INPLACE, LOCK=NONE", tell)
            else:
                _alter(session, entry, f"ALTER INDEX {names.quoted(entry.name)} {session.shown_word}", tell)
            _JOURNAL.forget(session, entry.written)
            return entry
    finally:
        session.close()


def journalled() -> list[Surplus]:
    """All that commands of this user hid or dropped, on any server."""
    return _JOURNAL.everywhere()


def _parts(written: str) -> tuple[str, str, str]:
    found = names.parts(written)
    if len(found) != 3:
        raise PlanError(
            f"{written!r} names no index: write DATABASE.TABLE.INDEX, with a dot in a name as `a.b`"
        )
    return found[0], found[1], found[2]


def _checked(session: Session, database: str, table: str, name: str) -> tuple[str, bool]:
    """The definition of an index that may go, and whether it is hidden.

    Raises PlanError without one, Refused if a constraint needs it.
    """
    found = _definition(session, database, table, name)
    definition = _HIDDEN.sub("", found) if found is not None else None
    place = f"{database}.{table}.{name}"
    if definition is None:
        raise PlanError("the server has no such index", place=place)
    if name.upper() == PRIMARY or not definition.upper().startswith(("KEY ", "INDEX ")):
        raise Refused(
            f"it is more than a way to find rows, and is never dropped for being surplus: {definition[:100]}",
            place=place,
        )
    described = _described(session, database, table)
    for index in described.indexes:
        if index.name == name and (key := described.rests_on(index)):
            raise Refused(f"the foreign key {key} rests on it alone", place=place)
    counter = session.value(
        "SELECT column_name FROM information_schema.columns WHERE extra LIKE '%auto_increment%'"
        f" AND table_schema = {text(database)} AND table_name = {text(table)}"
    )
    begin = [
        index.name for index in described.indexes if counter and index.columns[:1] == (str(counter).lower(),)
    ]
    if begin == [name]:
        raise Refused(f"{counter} counts by itself (AUTO_INCREMENT), which needs an index", place=place)
    return definition, definition != found


def _refuse_hinted(session: Session, entry: Surplus, tell: Callable[[str], None]) -> None:
    """Raises Refused if what the server keeps names it in a hint: that fails as soon as the index is hidden."""
    found, unseen = hinted.stored(session, entry.table, entry.name)
    if found:
        raise Refused(
            f"a hint names it, and fails as soon as it is hidden: {', '.join(found[:5])}",
            place=entry.written,
            hint="take the hint out first",
        )
    if unseen:
        many = counted(len(unseen), "view or routine", "views and routines")
        tell(
            f"this account may not see the texts of {many}, so whether their hints name it is unknown: "
            f"{', '.join(unseen[:5])}"
        )


def _definition(session: Session, database: str, table: str, name: str) -> str | None:
    created = session.rows(f"SHOW CREATE TABLE {names.quoted(database)}.{names.quoted(table)}")
    for line in str(created[0][1]).split("\n") if created else ():
        words = line.strip().rstrip(",")
        if re.match(rf"(?:\w+ )?KEY {re.escape(names.quoted(name))} ", words) or (
            name.upper() == PRIMARY and words.startswith("PRIMARY KEY")
        ):
            return words
    return None


def _described(session: Session, database: str, table: str) -> Table:
    """What decides whether an index may go: all indexes, and foreign keys of this table and to it."""
    parts: dict[tuple[str, str], tuple[Part, ...]] = {}
    for name, kind, column, prefix in session.rows(
        "SELECT index_name, index_type, column_name, sub_part FROM information_schema.statistics"
        f" WHERE table_schema = {text(database)} AND table_name = {text(table)} ORDER BY index_name, seq_in_index"
    ):
        place = str(name), str(kind)
        parts[place] = (*parts.get(place, ()), Part(None if column is None else str(column), prefix))
    indexes = tuple(Index(name, each, kind=kind) for (name, kind), each in parts.items())
    keys = tuple(_foreign_keys(session, database, table))
    return Table(database, table, {}, indexes, foreign_keys=keys)


def _foreign_keys(session: Session, database: str, table: str) -> list[tuple[str, tuple[str, ...]]]:
    """Of this table, and of others that refer to it."""
    keys: dict[str, tuple[str, ...]] = {}
    for side, column in (("table", "column_name"), ("referenced_table", "referenced_column_name")):
        for owner, key, name in session.rows(
            f"SELECT CONCAT(table_schema, '.', table_name), constraint_name, {column}"
            f" FROM information_schema.key_column_usage WHERE {side}_schema = {text(database)}"
            f" AND {side}_name = {text(table)} AND referenced_table_name IS NOT NULL"
            " ORDER BY table_schema, table_name, constraint_name, ordinal_position"
        ):
            label = f"{key} of {owner}"
            keys[f"{side} {label}"] = (*keys.get(f"{side} {label}", ()), str(name).lower())
    return [(label.partition(" ")[2], columns) for label, columns in keys.items()]


def _alter(session: Session, entry: Surplus, change: str, tell: Callable[[str], None]) -> None:
    patiently(session, f"ALTER TABLE {entry.place} {change}", tell, PAUSE_S)


def _entry(session: Session, database: str, table: str, name: str) -> Surplus | None:
    return next(
        (each for each in _JOURNAL.entries(session) if each.written == names.written(database, table, name)),
        None,
    )
