"""How much of one host a minute may hold.

A host that was taken over, or is broken, may send ever new classes and labels. The history and the memory of
``serve`` are for all hosts, so what is more than a host can have is left out, counted, and said on the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from headrace.archive.tables import TABLES
from headrace.web.minute import Row

#: Rows of one table. Honest hosts stay far below: the agent sends 2,000 classes, and a disk has ten series. A
#: class has many buckets.
MOST_ROWS, MOST_BUCKETS = 50_000, 200_000
#: Characters of what names a row.
MOST_NAME = 1000
#: Among the rows that wait for their minute: by table, how many found no room.
LEFT_OUT = "left out"


def most(table: str) -> int:
    return MOST_BUCKETS if table == "buckets" else MOST_ROWS


def add(pending: dict[str, list[Row]], table: str, rows: Iterable[Row]) -> None:
    """Append rows that wait for the next minute, as many as it may hold."""
    kept, left = pending.setdefault(table, []), 0
    for row in rows:
        if len(kept) < most(table):
            kept.append(row)
        else:
            left += 1
    if left:
        _count(pending, table, left)


def bounded(rows: Mapping[str, Sequence[Row]], samples: int = 0) -> tuple[dict[str, list[Row]], str]:
    """The rows of a minute, by table, and what is left out of them; empty if nothing is. ``samples``: values of
    samples that were left out before.
    """
    found = {name: [_named(name, row) for row in some[: most(name)]] for name, some in rows.items()}
    left = {str(row["table"]): int(row["rows"]) for row in found.pop(LEFT_OUT, [])}
    for name, some in rows.items():
        if len(some) > most(name):
            left[name] = left.get(name, 0) + len(some) - most(name)
    if samples:
        left["samples"] = samples
    return found, ", ".join(f"{count:,} of {name}" for name, count in sorted(left.items()))


def _count(pending: dict[str, list[Row]], table: str, left: int) -> None:
    counts = pending.setdefault(LEFT_OUT, [])
    for row in counts:
        if row["table"] == table:
            row["rows"] += left
            return
    counts.append({"table": table, "rows": left})


def _named(name: str, row: Row) -> Row:
    table = TABLES.get(name)
    keys = [key for key, kind in table.key.items() if pa.types.is_string(kind)] if table else []
    cut = {key: row[key][:MOST_NAME] for key in keys if len(row.get(key) or "") > MOST_NAME}
    return {**row, **cut} if cut else row
