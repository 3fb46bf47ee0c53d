"""Ways of writing statements, and of laying out tables, that cost time whatever the indexes are.

Each has a number from this traffic: what was written in the example, and the time of the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from headrace.base.counted import counted
from headrace.indexes.candidates import key_bytes
from headrace.indexes.schema import Schema, Table
from headrace.indexes.statement import Statement, Unread, parse_one

#: Rows that are read and thrown away before the first one is sent; values of a list; bytes of a primary key.
FAR, MANY_VALUES, WIDE_KEY = 1_000, 100, 30
#: With fewer rows a table's layout costs nothing that is seen.
LEAST_ROWS = 10_000


@dataclass(frozen=True)
class Costly:
    """``what`` has the number; ``rather``: how to write it instead."""

    statement: Statement
    what: str
    rather: str


@dataclass(frozen=True)
class Layout:
    table: Table
    what: str
    rather: str


def statements(found: Iterable[Statement]) -> list[Costly]:
    """Those that can be read; what cannot be read is named where candidates are sought."""
    costly = []
    for statement in found:
        try:
            tree = parse_one(statement.text)
        except Unread:
            continue
        costly += [Costly(statement, what, rather) for what, rather in _of(tree)]
    return costly


def _of(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    for node in tree.find_all(exp.Offset):
        count = node.expression
        if isinstance(count, exp.Literal) and not count.is_string and int(count.this) >= FAR:
            yield (
                f"OFFSET {int(count.this):,}: as many rows are read and thrown away first",
                "go on after the last row that was seen: WHERE a > x OR (a = x AND b > y) ORDER BY a, b "
                "LIMIT ...; (a, b) > (x, y) is no range for the server",
            )
    for order in tree.find_all(exp.Order):
        if any(isinstance(each.this, exp.Rand) for each in order.expressions):
            yield (
                "ORDER BY RAND(): every row gets a number and is sorted for the few that are sent",
                "draw random keys first, and fetch their rows",
            )
    for listed in tree.find_all(exp.In):
        if len(listed.expressions) >= MANY_VALUES:
            yield (
                f"a list of {counted(len(listed.expressions), 'value')}",
                "join a temporary table of the values, or ask for fewer at a time",
            )


def layouts(schema: Schema) -> list[Layout]:
    return [each for table in schema.tables.values() for each in _of_table(table)]


def _of_table(table: Table) -> Iterator[Layout]:
    if (table.engine or "").lower() != "innodb" or table.rows is None or table.rows < LEAST_ROWS:
        return
    if not table.primary:
        yield Layout(
            table,
            f"no primary key, with about {counted(table.rows, 'row')}: replicas look for each changed row by a "
            "scan",
            "add one, or a unique key of columns that are NOT NULL",
        )
        return
    width = sum(key_bytes(table, name) for name in table.primary)
    others = len(table.indexes) - 1
    if width > WIDE_KEY and others:
        copied = (width - 8) * others * table.rows
        yield Layout(
            table,
            f"a primary key of up to {width} bytes, which each entry of {others} other "
            f"{'index' if others == 1 else 'indexes'} repeats: up to {copied / (1 << 20):,.0f} MiB more than a "
            "BIGINT takes",
            "a BIGINT as the primary key, and this one as a unique key",
        )
