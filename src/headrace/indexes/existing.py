"""Indexes that another one of the same table replaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.indexes.schema import PRIMARY, Index, Part, Schema, Table


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


def redundant(schema: Schema) -> list[Redundant]:
    """All tables' redundant indexes; never one that a constraint alone rests on."""
    return [each for table in schema.tables.values() for each in _of_table(table)]


def _of_table(table: Table) -> Iterator[Redundant]:
    gone: set[str] = set()
    # The longest first, so that of (a) and (a, primary key) the short one stays.
    for index in sorted(table.indexes, key=lambda each: (-len(each.parts), each.is_unique)):
        if index.name == PRIMARY or index.kind.upper() not in ("BTREE", ""):
            continue
        for other in table.indexes:
            if other.name == index.name or other.name in gone or not other.is_used:
                continue
            if why := _replaces(table, other, index):
                gone.add(index.name)
                yield Redundant(table, index, other.name, why, tuple(_cautions(table, index)))
                break


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
    if (
        table.engine
        and table.engine.lower() == "innodb"
        and _with_primary(table, other) == index.columns != ()
    ):
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


def _with_primary(table: Table, index: Index) -> tuple[str, ...]:
    if len(index.columns) != len(index.parts):
        return ()
    return (*index.columns, *(name for name in table.primary if name not in index.columns))


def _cautions(table: Table, index: Index) -> Iterator[str]:
    for name, columns in table.foreign_keys:
        if index.columns[: len(columns)] == columns:
            yield f"the foreign key {name} needs an index on {', '.join(columns)}: the other one must stay"
    yield "statements that name it (FORCE INDEX, USE INDEX) fail without it"
