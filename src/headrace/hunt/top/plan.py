"""A plan of EXPLAIN as an indented tree: one line per table or operation, with what it costs.

Conditions are left out: they hold the values of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: Of a table, in this order; other vendors' names of the same in one tuple.
SHOWN = (
    (("access_type",), ""),
    (("key",), "key "),
    (("rows", "rows_examined_per_scan", "estimated_rows"), "rows "),
    (("filtered",), "filtered % "),
    (("prefix_cost", "query_cost", "cost", "estimated_total_cost"), "cost "),
)
#: Of these, what the shape of a plan has.
SHAPE = SHOWN[:2]
Shown = Sequence[tuple[tuple[str, ...], str]]
#: Wrappers that say nothing of their own.
SILENT = ("cost_info", "used_columns", "used_key_parts", "possible_keys", "key_length", "ref", "select_id")


#: Errors of a server that is asked for the plan of a connection -> what they mean to who pressed enter.
_NO_PLAN = {
    r"server error \b(1933|3012)\b": "It executes nothing that has a plan now: press enter while "
    "its statement runs.",
    r"server error \b1094\b": "The connection is gone.",
    # The agent's own: its advice is for a command line.
    "remembers no whole statement": "The server keeps no example of this class, so there is nothing to explain: "
    "press 4, and enter on a row while such a statement runs.",
}


def why_not(error: str) -> str:
    """Why there is no plan, in words."""
    return next((words for code, words in _NO_PLAN.items() if re.search(code, error)), error)


def tree(answer: Mapping[str, Any], shown: Shown = SHOWN) -> list[str]:
    """The lines of what ``headrace-agent explain`` prints: a JSON plan, or rows of a table."""
    if answer.get("format") == "traditional":
        return [_row(row, shown) for row in answer.get("rows") or ()]
    return list(_lines(answer.get("plan", answer), 0, shown))


def shape(answer: Mapping[str, Any]) -> str:
    """What stays the same while only estimates change: tables in their order, how they are read, by which key."""
    return "\n".join(tree(answer, SHAPE))


def _row(row: Mapping[str, Any], shown: Shown) -> str:
    is_kept = {"id", "select_type", "table", "type", "key", "extra"}.__contains__
    cells = (
        f"{name} {value}"
        for name, value in row.items()
        if value not in (None, "") and (shown is SHOWN or is_kept(name.lower()))
    )
    return "  ".join(cells)


def _lines(node: Any, depth: int, shown: Shown) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _lines(each, depth, shown)
    if not isinstance(node, Mapping):
        return
    for name, value in node.items():
        if name in SILENT or not isinstance(value, Mapping | list):
            continue
        if name == "table" and isinstance(value, Mapping):
            yield "  " * depth + _table(value, shown)
            yield from _lines(value, depth + 1, shown)
        elif name == "nested_loop":
            yield "  " * depth + "nested loop"
            yield from _lines(value, depth + 1, shown)
        elif isinstance(value, Mapping):
            yield "  " * depth + " ".join([name.replace("_", " "), *_facts(value, shown)])
            yield from _lines(value, depth + 1, shown)
        elif any(isinstance(each, Mapping) for each in value):
            yield "  " * depth + name.replace("_", " ")
            yield from _lines(value, depth + 1, shown)


def _table(table: Mapping[str, Any], shown: Shown) -> str:
    name = table.get("table_name") or table.get("message") or "table"
    return " ".join([str(name), *_facts(table, shown)])


def _facts(node: Mapping[str, Any], shown: Shown) -> Iterator[str]:
    costs = node.get("cost_info")
    known = {**(costs if isinstance(costs, Mapping) else {}), **node}
    for names, title in shown:
        value = next((known[name] for name in names if known.get(name) is not None), None)
        if value is not None and not isinstance(value, Mapping | list):
            yield f"{title}{value}"
