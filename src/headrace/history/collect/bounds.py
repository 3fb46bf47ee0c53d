"""How much of one host a minute may hold, and what cannot be.

A host that was taken over, or is broken, may send ever new classes and labels, and numbers that cannot be. The
history and the memory of ``serve`` are for all hosts, so what is more than a host can have is left out, and a row
that cannot be is refused as a whole: a nearest value would be invented. Both are counted and said on the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.history.archive.tables import MOST_COUNT, TABLES, Table
from headrace.history.collect.minute import Row, table_of

#: Rows of one table. Honest hosts stay far below: the agent sends 2,000 classes, and a disk has ten series. A
#: class has many buckets.
MOST_ROWS, MOST_BUCKETS = 50_000, 200_000
#: Characters of what names a row.
MOST_NAME = 1000
#: Characters of a host's rows that wait for their minute: more than 2,000 classes have with the longest texts and
#: examples, and a bound for a host that sends nothing but long words.
MOST_WAITING = 64 << 20
#: Among the rows that wait for their minute: how many characters they have, and by table how many found no room.
WAITING, LEFT_OUT = "waiting", "left out"
#: Among them: by table, how many could not be.
REFUSED = "refused"


def most(table: str) -> int:
    return MOST_BUCKETS if table == "buckets" else MOST_ROWS


def add(pending: dict[str, list[Row]], table: str, rows: Iterable[Row]) -> None:
    """Append rows that wait for the next minute, as many as it may hold."""
    kept, left = pending.setdefault(table, []), 0
    waiting = pending.setdefault(WAITING, [{"characters": 0}])[0]
    for row in rows:
        cut = _named(table, row)
        size = sum(len(word) for word in cut.values() if isinstance(word, str))
        if len(kept) < most(table) and waiting["characters"] + size <= MOST_WAITING:
            kept.append(cut)
            waiting["characters"] += size
        else:
            left += 1
    if left:
        _count(pending, LEFT_OUT, table, left)


def refuse(pending: dict[str, list[Row]], table: str) -> None:
    """Count a row that could not even be read."""
    _count(pending, REFUSED, table, 1)


def bounded(rows: Mapping[str, Sequence[Row]], samples: int = 0) -> tuple[dict[str, list[Row]], str]:
    """The rows of a minute, by table, and what is left out of them; empty if nothing is. ``samples``: values of
    samples that were left out before.
    """
    found = {
        name: [_named(name, row) for row in some[: most(name)]]
        for name, some in rows.items()
        if name != WAITING
    }
    left = {str(row["table"]): int(row["rows"]) for row in found.pop(LEFT_OUT, [])}
    for name, some in rows.items():
        if len(some) > most(name):
            left[name] = left.get(name, 0) + len(some) - most(name)
    if samples:
        left["samples"] = samples
    return found, _said(left)


def possible(rows: Mapping[str, Sequence[Row]], t_s: int) -> tuple[dict[str, pa.Table], str]:
    """The tables of a minute without rows that cannot be, and how many were refused; empty if none was."""
    refused = {str(row["table"]): int(row["rows"]) for row in rows.get(REFUSED, ())}
    found: dict[str, pa.Table] = {}
    for name, table in TABLES.items():
        if not (some := rows.get(name)):
            continue
        found[name], wrong = _possible(table, some, t_s)
        if wrong:
            refused[name] = refused.get(name, 0) + wrong
    return found, _said(refused)


def _possible(table: Table, rows: Sequence[Row], t_s: int) -> tuple[pa.Table, int]:
    try:
        made = table_of(table, rows, t_s)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # A word where a number belongs, half a character, or more than 64 bits: row by row, to refuse only that.
        made = table_of(table, [row for row in rows if _has_its_types(table, row, t_s)], t_s)
    wrong = table.impossible(made, MOST_COUNT)
    if wrong is not None:
        made = made.filter(pc.invert(wrong))
    return made, len(rows) - len(made)


def _has_its_types(table: Table, row: Row, t_s: int) -> bool:
    try:
        table_of(table, [row], t_s)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} of {name}" for name, count in sorted(counts.items()))


def _count(pending: dict[str, list[Row]], why: str, table: str, left: int) -> None:
    counts = pending.setdefault(why, [])
    for row in counts:
        if row["table"] == table:
            row["rows"] += left
            return
    counts.append({"table": table, "rows": left})


def _named(name: str, row: Row) -> Row:
    table = TABLES.get(name)
    keys = [key for key, kind in table.key.items() if pa.types.is_string(kind)] if table else []
    cut = {
        key: word[:MOST_NAME]
        for key in keys
        if isinstance(word := row.get(key), str) and len(word) > MOST_NAME
    }
    return {**row, **cut} if cut else row
