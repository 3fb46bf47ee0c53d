"""What keeps an index from serving a predicate, and how the predicate may be written instead."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from sqlglot import exp

from headrace.indexes.schema import Column, Table


def cast(column: Column, values: list[exp.Expr]) -> str:
    """Why the comparison converts the column, and not the value; empty if it does not."""
    numbers = [
        value
        for value in values
        if isinstance(value.unnest(), exp.Literal | exp.Neg) and not _is_string(value)
    ]
    return (
        "a text column is compared with a number, so each of its rows is converted"
        if column.is_text and numbers and not column.kind.lower().startswith(("enum", "set"))
        else ""
    )


def _is_string(value: exp.Expr) -> bool:
    value = value.unnest()
    return isinstance(value, exp.Literal) and value.is_string


def unlike(left: Column, right: Column) -> str:
    """Why an index of one of two joined columns cannot be searched with the other's values; empty if it can."""
    if left.is_text != right.is_text and (left.is_number or right.is_number):
        return f"{left.kind} is compared with {right.kind}"
    if (
        left.is_text
        and right.is_text
        and left.collation
        and right.collation
        and left.collation != right.collation
    ):
        return f"the collations differ: {left.collation} and {right.collation}"
    return ""


def is_kept(column: Column, other: Column) -> bool:
    """Whether a comparison of two texts converts the other one: to ``_bin``, and to the larger character set."""
    if not (column.is_text and other.is_text and column.collation and other.collation):
        return False
    mine, theirs = (each.collation.partition("_")[0] for each in (column, other) if each.collation)
    if mine == theirs:
        return column.collation.endswith("_bin") and not other.collation.endswith("_bin")
    if mine == "utf8mb4":
        return theirs in ("utf8mb3", "utf8") or not theirs.startswith("u")
    return mine.startswith("utf8") and not theirs.startswith("u")


def two_ways(table: Table, equal: Collection[str], order: Sequence[tuple[str, bool]]) -> str:
    """What serves an order of some columns up and others down, after ``equal``; empty if an index does."""
    wanted = tuple(order)
    other_way = tuple((name, not is_descending) for name, is_descending in wanted)
    for index in table.indexes:
        has = [((part.name or "").lower(), part.is_descending) for part in index.parts]
        rest = tuple(each for each in has if each[0] not in equal)[: len(wanted)]
        if index.is_used and rest in (wanted, other_way):
            return ""
    names = [*equal, *(f"{name} DESC" if is_descending else name for name, is_descending in wanted)]
    return f"an index on ({', '.join(names)}), from MySQL 8.0 and MariaDB 10.8 on"


def function(side: exp.Expr) -> str:
    if isinstance(side, exp.JSONArrayContains):
        return "MEMBER OF"
    if isinstance(side, exp.RegexpLike):
        return "REGEXP"
    if isinstance(side, exp.Func):
        name = str(side.sql(dialect="mysql").partition("(")[0]).upper()
        return name if re.fullmatch(r"\w+", name) else side.key.upper()
    return "an expression"


def rewrite(side: exp.Expr, column: str) -> str:
    name = function(side)
    if name in ("DATE", "CAST", "TRUNC"):
        return f"{column} >= 'day' AND {column} < 'day' + INTERVAL 1 DAY"
    if name == "YEAR":
        return f"{column} >= 'year-01-01' AND {column} < 'year+1-01-01'"
    return (
        "leave the column bare, or index the expression (a generated column, on MySQL 8 a functional index)"
    )


def instead(side: exp.Func, column: str) -> str:
    """What finds the rows of a function that is a condition by itself."""
    name = function(side)
    pattern = side.args.get("expression")
    if isinstance(side, exp.RegexpLike):
        if isinstance(pattern, exp.Literal) and re.match(r"\^\w", str(pattern.this)):
            return f"{column} LIKE 'the beginning%' AND this condition"
        return "a FULLTEXT index, or a column with what is looked for"
    if name in ("FIND_IN_SET", "LOCATE", "INSTR"):
        return "a table with one row for each value; for words of a text, a FULLTEXT index"
    if name in ("JSON_CONTAINS", "JSON_OVERLAPS", "MEMBER OF"):
        return (
            "from MySQL 8.0.17 on an index of (CAST(the path AS UNSIGNED ARRAY)); else a table of the values"
        )
    if name.startswith("ST_"):
        return "a SPATIAL index, of a column that is NOT NULL and has one SRID"
    return rewrite(side, column)
