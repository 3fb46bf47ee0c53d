"""Ways of writing statements, and of laying out tables, that cost time whatever the indexes are.

Each has a number from this traffic: what was written in the example, and the time of the class.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.base.counted import counted
from headrace.indexes.candidates import key_bytes
from headrace.indexes.parsing import Unread, parse_one
from headrace.indexes.schema import Schema, Table
from headrace.indexes.statement import Statement

#: Rows that are read and thrown away before the first one is sent; values of a list; bytes of a primary key.
FAR, MANY_VALUES, WIDE_KEY = 1_000, 100, 30
#: Columns of a wide row, bytes a call, rows that one COUNT(*) reads, and rows that one statement changes.
WIDE_ROW, MANY_BYTES, MANY_COUNTED, HUGE_CHANGE = 20, 8_192, 1_000, 50_000
#: A random UUID, by its version and variant.
_RANDOM = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE
)
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


def statements(found: Sequence[Statement], schema: Schema) -> list[Costly]:
    """Those that can be read; what cannot be read is named where candidates are sought."""
    costly = []
    trees = []
    for statement in found:
        try:
            trees.append((statement, parse_one(statement.text)))
        except Unread:
            continue
    named = {column.name.lower() for _, tree in trees for column in tree.find_all(exp.Column)}
    for statement, tree in trees:
        said = [*_of(tree), *_measured(statement, tree), *_wide(statement, tree, schema, named)]
        said += _random_key(statement, tree, schema)
        costly += [Costly(statement, what, rather) for what, rather in said]
    return costly


def _measured(statement: Statement, tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """What the source's counts say of the form of a statement."""
    if not statement.calls:
        return
    values = [each.unalias() for each in tree.expressions] if isinstance(tree, exp.Select) else []
    is_count = len(values) == 1 and isinstance(values[0], exp.Count) and not tree.args.get("group")
    if is_count and statement.examined is not None and statement.examined >= MANY_COUNTED * statement.calls:
        yield (
            f"COUNT reads {statement.examined / statement.calls:,.0f} rows a call",
            "where it is only asked whether there are any: SELECT EXISTS (SELECT 1 FROM ... WHERE ...), which "
            "stops at the first",
        )
    is_change = isinstance(tree, exp.Update | exp.Delete | exp.Insert)
    if is_change and statement.sent is not None and statement.sent >= HUGE_CHANGE * statement.calls:
        yield (
            f"changes {statement.sent / statement.calls:,.0f} rows a call in one transaction: locks, undo and "
            "the lag of replicas last as long",
            "some thousand rows at a time, by ranges of the primary key, each committed",
        )


def _wide(
    statement: Statement, tree: exp.Expr, schema: Schema, named: Collection[str]
) -> Iterator[tuple[str, str]]:
    """All columns of wide rows. Which of them the program uses no traffic tells."""
    if not (isinstance(tree, exp.Select) and tree.is_star and statement.calls and statement.sent):
        return
    nodes = [each for each in tree.find_all(exp.Table) if each.parent_select is tree]
    tables = [schema.table(each.db or statement.database, each.name) for each in nodes]
    columns = {
        name: column for table in tables if table is not None for name, column in table.columns.items()
    }
    long = [column.name for column in columns.values() if column.is_long]
    if None in tables or (len(columns) < WIDE_ROW and not long):
        return
    sent = statement.sent_bytes
    if sent is not None and sent < MANY_BYTES * statement.calls:
        return
    bytes_a_call = "an unknown number of bytes" if sent is None else f"{sent / statement.calls:,.0f} bytes"
    unnamed = [name for name in columns if name not in named]
    among = f" ({', '.join(long[:3])} among them)" if long else ""
    yield (
        f"SELECT * of {counted(len(columns), 'column')}{among} sends {bytes_a_call} a call; no statement of this "
        f"traffic names {len(unnamed)} of them",
        "name the columns that the program uses, which the traffic does not tell",
    )


def _random_key(statement: Statement, tree: exp.Expr, schema: Schema) -> Iterator[tuple[str, str]]:
    """A new row with a random UUID as its primary key, by the example."""
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Values):
        return
    node = tree.find(exp.Table)
    table = schema.table(node.db or statement.database, node.name) if node is not None else None
    if table is None or len(table.primary) != 1 or (table.rows or 0) < LEAST_ROWS:
        return
    named = [each.name.lower() for each in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
    names = named or list(table.columns)
    first = tree.expression.expressions[0]
    values = first.expressions if isinstance(first, exp.Tuple) else []
    if table.primary[0] not in names[: len(values)]:
        return
    text = values[names.index(table.primary[0])].sql(dialect="mysql")
    if _RANDOM.search(text):
        others = len(table.indexes) - 1
        repeats = f", and {counted(others, 'other index', 'other indexes')} repeat it" if others else ""
        yield (
            f"a random UUID is the primary key of {table.full_name}: each new row goes to another page of about "
            f"{counted(table.rows or 0, 'row')}{repeats}",
            "a BIGINT, or a UUID that begins with the time (version 7, or UUID_TO_BIN(UUID(), 1)), in BINARY(16)",
        )


def _of(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    for node in tree.find_all(exp.Offset):
        count = node.expression
        if isinstance(count, exp.Literal) and not count.is_string and int(count.this) >= FAR:
            yield (
                f"OFFSET {int(count.this):,}: as many rows are read and thrown away first",
                "go on after the last row that was seen: WHERE a > x OR (a = x AND b > y) ORDER BY a, b "
                "LIMIT ...; (a, b) > (x, y) is not a range for the server",
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
