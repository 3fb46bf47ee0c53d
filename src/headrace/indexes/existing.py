"""Indexes that another one of the same table replaces, unless the traffic or a constraint needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from headrace.indexes import hinted
from headrace.indexes.parsing import Unread
from headrace.indexes.schema import PRIMARY, Index, Part, Schema, Table
from headrace.indexes.statement import Statement, Use, read


@dataclass(frozen=True)
class Redundant:
    """``kept`` does all that ``index`` does; ``why`` says how. ``cautions``: what to look at before it goes."""

    table: Table
    index: Index
    kept: str
    why: str
    cautions: tuple[str, ...] = ()

    @property
    def hide_ddl(self) -> tuple[str, str]:
        """How a server stops to use it, without dropping it: MySQL 8, MariaDB 10.6."""
        start = f"ALTER TABLE `{self.table.database}`.`{self.table.name}` ALTER INDEX `{self.index.name}`"
        return f"{start} INVISIBLE", f"{start} IGNORED"


@dataclass(frozen=True)
class Needed:
    """An index that looks as if another one replaced it, and ``why`` it must stay."""

    table: Table
    index: Index
    why: str


@dataclass(frozen=True)
class Surplus:
    redundant: tuple[Redundant, ...]
    needed: tuple[Needed, ...]


def surplus(schema: Schema, statements: Sequence[Statement] = ()) -> Surplus:
    """All tables' redundant indexes; never one that a constraint or one of ``statements`` needs."""
    found: list[Redundant] = []
    needed: list[Needed] = []
    traffic = _Traffic(schema, statements)
    for table in schema.tables.values():
        for each in _of_table(table, traffic):
            if isinstance(each, Redundant):
                found.append(each)
            else:
                needed.append(each)
    return Surplus(tuple(found), tuple(needed))


class _Traffic:
    """What statements ask of indexes that exist."""

    def __init__(self, schema: Schema, statements: Sequence[Statement]) -> None:
        #: Name of an index -> tables of the statements that name it; None for one that was not read as a whole.
        self._named: dict[str, list[tuple[frozenset[str] | None, str]]] = {}
        self._uses: list[tuple[Use, str]] = []
        for statement in statements:
            tables: frozenset[str] | None = None
            try:
                reading = read(statement, schema)
            except Unread:
                pass
            else:
                self._uses += [(use, statement.name) for use in reading.uses]
                if not any(what.startswith("table") for what in reading.unknown):
                    tables = frozenset(use.table.full_name for use in reading.uses)
            for name in hinted.names(statement.text or statement.name):
                self._named.setdefault(name, []).append((tables, statement.name))

    def needs(self, table: Table, index: Index, other: Index) -> str:
        """Why an index must stay though ``other`` has its columns; empty if nothing of the traffic says so."""
        for tables, name in self._named.get(index.name.lower(), ()):
            if tables is None or table.full_name in tables:
                return f"a hint names it: {name[:80]}"
        for use, name in self._uses:
            if use.table is table and _reads_by_primary(use, table, index, other):
                return f"it returns rows in the order of the primary key, which {other.name} does not: {name[:80]}"
        return ""


def _reads_by_primary(use: Use, table: Table, index: Index, other: Index) -> bool:
    """Whether a statement finds rows by all of ``index``, then goes by the primary key that InnoDB appends."""
    bound = {*use.equal, *use.joined}
    if (
        not table.primary
        or not index.columns
        or not set(index.columns) <= bound
        or set(other.columns) <= bound
    ):
        return False
    order = [name for name, _ in use.order if name not in bound]
    return table.primary[0] in (*order[:1], *use.ranges, *use.group[:1])


def _of_table(table: Table, traffic: _Traffic) -> Iterator[Redundant | Needed]:
    gone: set[str] = set()
    # The longest first, so that of (a) and (a, primary key) the short one stays.
    for index in sorted(table.indexes, key=lambda each: (-len(each.parts), each.is_unique)):
        if index.name == PRIMARY or index.kind.upper() not in ("BTREE", ""):
            continue
        for other in table.indexes:
            if other.name == index.name or other.name in gone or not other.is_used:
                continue
            if why := _replaces(table, other, index):
                if reason := _constraint(table, index, gone) or traffic.needs(table, index, other):
                    yield Needed(table, index, reason)
                    break
                gone.add(index.name)
                yield Redundant(table, index, other.name, why, tuple(_cautions(table, index)))
                break


def _constraint(table: Table, index: Index, gone: Collection[str]) -> str:
    name = table.rests_on(index, gone)
    return f"the foreign key {name} rests on it" if name else ""


def _replaces(table: Table, other: Index, index: Index) -> str:
    if other.kind.upper() not in ("BTREE", ""):
        return ""
    same = _begins(other.parts, index.parts)
    if same and _begins(index.parts, other.parts):
        if index.is_unique and not other.is_unique:
            return ""
        if other.is_unique == index.is_unique and other.name != PRIMARY and other.name > index.name:
            return ""
        return "it has the same columns"
    if index.is_unique:
        return ""
    if same:
        return "it begins with the same columns"
    if other.columns != table.whole_columns(other) == index.columns != ():
        return "InnoDB appends the primary key's columns to it"
    return ""


def _begins(longer: tuple[Part, ...], shorter: tuple[Part, ...]) -> bool:
    """Whether one index begins with the whole of another; a prefix serves only a prefix that is not longer."""
    return len(shorter) <= len(longer) and all(
        mine.name is not None
        and theirs.name is not None
        and mine.name.lower() == theirs.name.lower()
        and mine.is_descending == theirs.is_descending
        and (theirs.prefix is None or (mine.prefix is not None and mine.prefix <= theirs.prefix))
        for mine, theirs in zip(shorter, longer, strict=False)
    )


def _cautions(table: Table, index: Index) -> Iterator[str]:
    for name, columns in table.foreign_keys:
        if index.columns[: len(columns)] == columns:
            yield f"the foreign key {name} needs an index on {', '.join(columns)}: the other one must stay"
    yield "statements that name it (FORCE INDEX, USE INDEX) fail without it, also those of views and routines"
