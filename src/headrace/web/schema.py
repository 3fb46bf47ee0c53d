"""The tables that a query class reads: their sizes and indexes, asked for on the server now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base import received
from headrace.base.counted import counted
from headrace.base.errors import NotReady
from headrace.history.collect.watched import Watched, server_of
from headrace.indexes.names import places
from headrace.lab.volumes.device import size_text
from headrace.web import lacking

#: Tables that are asked for at a time.
MOST = 50
ASK_S = 15.0


def names_of(tables: Sequence[str], databases: Sequence[str]) -> list[str]:
    """DATABASE.TABLE of the tables of a class. One that is written without its database may be in any of these."""
    return list(dict.fromkeys(name for table in tables for name in places(table.strip(), databases)))[:MOST]


async def ask(watched: Watched, tables: Sequence[str], databases: Sequence[str], text: str = "") -> str:
    """A text: each table with its sizes, and below it each index with its columns. With the ``text`` of the class
    also what it lacks."""
    agent, login = server_of(watched)
    names = names_of(tables, databases)
    if not names:
        raise NotReady("the database of these tables is unknown" if tables else "this class names no table")
    answer = await agent.text("tables", *login.argv, "--", *names, timeout_s=ASK_S)
    found = [agent.document("tables", line) for line in received.lines(answer)]
    if not found:
        raise NotReady(f"the server has no such table, or this account may not see it: {', '.join(names)}")
    parts = [_described(table) for table in found]
    if text:
        parts.append(lacking.said(found, text, databases[0] if len(databases) == 1 else "", login.argv))
    return "\n\n".join(parts)


def _described(table: Mapping[str, Any]) -> str:
    name = f"{table['database']}.{table['table']}"
    if table["engine"] is None:
        return f"{name}: a view"
    facts = [
        table["engine"],
        f"about {counted(table['rows'], 'row')}" if table["rows"] is not None else "rows unknown",
        *(
            f"{word} {size_text(table[key])}"
            for word, key in (("data", "data_bytes"), ("indexes", "index_bytes"), ("free", "free_bytes"))
            if table[key] is not None
        ),
    ]
    width = max((len(index["name"]) for index in table["indexes"]), default=0)
    lines = [f"  {index['name']:{width}}  {_columns(index)}" for index in table["indexes"]]
    return "\n".join([f"{name}: {', '.join(facts)}", *(lines or ["  no index"])])


def _columns(index: Mapping[str, Any]) -> str:
    columns = ", ".join(
        (each["name"] or "an expression") + (f"({each['prefix']})" if each["prefix"] else "")
        for each in index["columns"]
    )
    distinct = index["columns"][-1]["cardinality"]
    words = ["unique"] if index["is_unique"] else []
    if distinct is not None:
        words.append(f"about {counted(distinct, 'value')}")
    return f"({columns}) {', '.join(words)}".rstrip()
