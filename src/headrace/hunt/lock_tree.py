"""Who waits for whose lock, as a tree: at its root a connection that waits for nobody, below it all that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
#: In place of the statement of a connection that executes nothing, where performance_schema has no last one of it.
LAST_UNKNOWN = "last statement unknown"


def tree(listed: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows in the order of the tree, each with its ``depth``; the root that most wait behind is first.

    A connection that waits for several is shown below one that itself waits for nobody: that one has to end first.
    """
    users = {row["id"]: row.get("user") for row in listed if "id" in row}
    waiting: dict[Any, Row] = {}
    edges = [row for row in listed if row.get("lock", "open") != "open"]
    waiters = {row.get("waiter") for row in edges}
    for row in edges:
        known = waiting.get(row.get("waiter"))
        if known is None or (known.get("holder") in waiters and row.get("holder") not in waiters):
            waiting[row.get("waiter")] = row
    holding = {row["holder"]: row for row in edges if row.get("holder") is not None}
    below: dict[Any, list[Any]] = {}
    for waiter, row in waiting.items():
        below.setdefault(row.get("holder"), []).append(waiter)
    roots = [holder for holder in holding if holder not in waiting] + below.get(None, [])
    seen: set[Any] = set()
    found = [_drawn(root, 0, below, seen) for root in roots]
    # A circle has no root: the server is about to end it.
    found += [_drawn(each, 0, below, seen) for each in waiting if each not in seen]
    found.sort(key=lambda rows: -len(rows))
    return [
        {**_row(name, waiting.get(name), holding.get(name), users), "depth": depth, "behind": behind}
        for rows in found
        for name, depth, behind in rows
    ]


def _drawn(
    root: Any, depth: int, below: Mapping[Any, Sequence[Any]], seen: set[Any]
) -> list[tuple[Any, int, int]]:
    """A connection and those below it: name, depth, how many are below."""
    if root in seen:
        return []
    seen.add(root)
    rest = [row for each in below.get(root, ()) for row in _drawn(each, depth + 1, below, seen)]
    return [(root, depth, len(rest)), *rest]


def _row(name: Any, waits: Row | None, holds: Row | None, users: Mapping[Any, Any]) -> dict[str, Any]:
    known = waits or holds or {}
    statement = waits.get("waiter_class") if waits else known.get("holder_class")
    is_certain = waits is None or waits.get("is_certain")
    return {
        "connection": str(name),
        "waits_for": str(waits["holder"]) if waits and waits.get("holder") is not None else None,
        "lock": known.get("lock"),
        "table": known.get("table"),
        "statement": statement or "",
        "user": users.get(name) or (holds or {}).get("holder_user"),
        "open_s": (holds or {}).get("holder_open_s"),
        "is_certain": "yes" if is_certain else "no: the oldest open transaction",
    }
