"""The tables of a server, as candidates need them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.base.errors import StoreError
from headrace.indexes import names

PRIMARY = "PRIMARY"
#: What starts the type of a number, as in `bigint unsigned`.
NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year")
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "json")
#: A prefix of so many characters tells nearly all values apart.
LONG_PREFIX = 64
#: InnoDB's limit of a key, and of a column in it, with rows in the formats DYNAMIC and COMPRESSED.
MOST_KEY_BYTES = 3_072
#: A prefix that more rows share on average does not find them.
MOST_ALIKE = 200
#: Of these an index holds a prefix at most.
LONG = (
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
    "json",
    "geometry",
)
#: Types with so few values that an index on such a column alone finds large parts of the table.
FEW = ("enum", "set", "bit(1)", "tinyint(1)")


@dataclass(frozen=True)
class Column:
    """``kind`` as `varchar(64)`; ``collation`` of texts."""

    name: str
    kind: str
    is_nullable: bool = True
    collation: str | None = None
    most_bytes: int | None = None

    @property
    def is_number(self) -> bool:
        return self.kind.lower().startswith(NUMBERS)

    @property
    def is_text(self) -> bool:
        return self.kind.lower().startswith(TEXTS)

    @property
    def is_binary(self) -> bool:
        return self.kind.lower().startswith(BINARIES)

    @property
    def is_long(self) -> bool:
        """Whether an index can only hold a prefix of it."""
        return self.kind.lower().startswith(LONG) or (self.most_bytes or 0) > MOST_KEY_BYTES

    @property
    def has_few_values(self) -> bool:
        return self.kind.lower().startswith(FEW)


@dataclass(frozen=True)
class Part:
    """A column of an index; ``name`` is None for an expression."""

    name: str | None
    prefix: int | None = None
    cardinality: int | None = None
    is_descending: bool = False

    def tells_little(self, rows: int | None) -> bool:
        """Whether it is a prefix that hundreds of rows share, as that of a link: `https://www.` begins all."""
        if self.prefix is None or self.cardinality is None or rows is None:
            return False
        return rows > MOST_ALIKE * max(self.cardinality, 1)


@dataclass(frozen=True)
class Index:
    name: str
    parts: tuple[Part, ...]
    is_unique: bool = False
    kind: str = "BTREE"
    #: False for one that is invisible (MySQL) or ignored (MariaDB).
    is_used: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether it serves equality, ranges and order of whole columns."""
        return self.kind.upper() in ("BTREE", "") and all(part.name for part in self.parts)

    @property
    def has_expression(self) -> bool:
        return any(part.name is None for part in self.parts)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Its whole columns, in lower case, up to the first prefix or expression."""
        names = []
        for part in self.parts:
            if part.name is None or part.prefix is not None:
                break
            names.append(part.name.lower())
        return tuple(names)

    @cached_property
    def found_by(self) -> tuple[str, ...]:
        """Its columns, in lower case, that find rows by a value about as a whole column does."""
        names = []
        for part in self.parts:
            if part.name is None or (part.prefix is not None and part.prefix < LONG_PREFIX):
                break
            names.append(part.name.lower())
        return tuple(names)

    def order_from(self, position: int, width: int) -> bool:
        """Whether so many of its columns go in one direction, up or down: then it can be read in either."""
        return len({part.is_descending for part in self.parts[position : position + width]}) <= 1

    def serves_key(self, columns: tuple[str, ...]) -> bool:
        """Whether a foreign key of these columns can rest on it: they are its first, in that order."""
        return self.kind.upper() in ("BTREE", "") and self.columns[: len(columns)] == columns


@dataclass(frozen=True)
class Table:
    """``rows`` as the server estimates them; None if it does not say."""

    database: str
    name: str
    columns: Mapping[str, Column]
    indexes: tuple[Index, ...]
    rows: int | None = None
    data_bytes: int | None = None
    index_bytes: int | None = None
    engine: str | None = None
    #: Columns of each constraint that refers to another table; where a session read it, of those to this one, too.
    foreign_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def full_name(self) -> str:
        return names.written(self.database, self.name)

    @property
    def primary(self) -> tuple[str, ...]:
        return next((index.columns for index in self.indexes if index.name == PRIMARY), ())

    def whole_columns(self, index: Index) -> tuple[str, ...]:
        """Its columns with those of the primary key, which InnoDB appends to an index of whole columns."""
        if (self.engine or "").lower() != "innodb" or len(index.columns) != len(index.parts):
            return index.columns
        return (*index.columns, *(name for name in self.primary if name not in index.columns))

    def has_spatial(self, column: str) -> bool:
        spatial = [index for index in self.indexes if index.kind.upper() == "SPATIAL"]
        return any((part.name or "").lower() == column for index in spatial for part in index.parts)

    def rests_on(self, index: Index, without: Collection[str] = ()) -> str:
        """The foreign key that only this index serves if those of ``without`` are gone; empty if there is none.

        A hidden index serves as well. InnoDB does not count the primary key's columns that it appends itself.
        """
        others = [each for each in self.indexes if each.name not in (index.name, *without)]
        for name, columns in self.foreign_keys:
            if index.serves_key(columns) and not any(each.serves_key(columns) for each in others):
                return name
        return ""

    def values_of(self, column: str) -> int | None:
        """About how many values a column has, where an index that begins with it says so."""
        known = [
            index.parts[0].cardinality
            for index in self.indexes
            if index.columns[:1] == (column,) and index.parts[0].cardinality is not None
        ]
        return max(known) if known else None


@dataclass(frozen=True)
class Schema:
    tables: Mapping[tuple[str, str], Table]

    def table(self, database: str, name: str) -> Table | None:
        """The table of that name; without a database only if one database alone has it."""
        if database:
            return self.tables.get((database.lower(), name.lower()))
        there = [table for (_, known), table in self.tables.items() if known == name.lower()]
        return there[0] if len(there) == 1 else None


def read(lines: Iterable[Mapping[str, Any]]) -> Schema:
    """The schema of the lines that `headrace-agent tables` printed. Raises StoreError if one has another shape."""
    tables = {}
    for line in lines:
        try:
            table = _table(line)
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"the description of a table has another shape ({type(error).__name__}: {error})",
                hint="the agent on that host is of another version",
            ) from error
        tables[table.database.lower(), table.name.lower()] = table
    return Schema(tables)


def _table(line: Mapping[str, Any]) -> Table:
    columns = [
        Column(each["name"], each["kind"], each["is_nullable"], each["collation"], each["most_bytes"])
        for each in line["fields"]
    ]
    indexes = tuple(
        Index(
            each["name"],
            tuple(
                Part(part["name"], part["prefix"], part["cardinality"], part["is_descending"])
                for part in each["columns"]
            ),
            each["is_unique"],
            each["kind"],
            each["is_used"],
        )
        for each in line["indexes"]
    )
    keys = tuple(
        (key["name"], tuple(column.lower() for column in key["columns"])) for key in line["foreign_keys"]
    )
    return Table(
        line["database"],
        line["table"],
        {column.name.lower(): column for column in columns},
        indexes,
        line["rows"],
        line["data_bytes"],
        line["index_bytes"],
        line["engine"],
        keys,
    )
