"""The tables of a query class, as its page shows them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import NotReady
from headrace.web import schema


def test_a_table_without_a_database_may_be_in_any_of_the_class() -> None:
    assert schema.names_of(["shop.a", "`shop`.`b`", "c"], ["x", "y"]) == ["shop.a", "shop.b", "x.c", "y.c"]
    assert schema.names_of(["a", "shop.", ""], []) == []
    assert len(schema.names_of([f"t{i}" for i in range(80)], ["x"])) == schema.MOST


class Agent:
    """Answers what an agent answered."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows
        self.words: tuple[str, ...] = ()

    async def text(self, *words: str, timeout_s: float) -> str:
        self.words = words
        return "".join(json.dumps(row) + "\n" for row in self.rows)

    def document(self, verb: str, text: str) -> Any:
        return json.loads(text)


def watched(agent: Agent | None) -> Any:
    login = SimpleNamespace(is_named=True, argv=("--mysql-socket", "/s"))
    return SimpleNamespace(feed=SimpleNamespace(agent=agent, login=login, no_login=""), problem="")


def index(name: str, is_unique: bool, *columns: tuple[str, int | None, int | None]) -> dict[str, Any]:
    keys = ("name", "prefix", "cardinality")
    return {
        "name": name,
        "is_unique": is_unique,
        "columns": [dict(zip(keys, each, strict=True)) for each in columns],
    }


TABLE = {
    "database": "shop",
    "table": "orders",
    "engine": "InnoDB",
    "rows": 1204000,
    "data_bytes": 3 << 30,
    "index_bytes": 88 << 20,
    "free_bytes": None,
    "indexes": [
        index("PRIMARY", True, ("id", None, 1204000)),
        index("at", False, ("day", None, 90), ("note", 7, None)),
    ],
}


async def test_sizes_and_indexes_as_a_text() -> None:
    agent = Agent(TABLE, {**TABLE, "table": "view", "engine": None, "indexes": []})
    text = await schema.ask(watched(agent), ["orders"], ["shop"])
    assert agent.words == ("tables", "--mysql-socket", "/s", "--", "shop.orders")
    assert text.splitlines() == [
        "shop.orders: InnoDB, about 1,204,000 rows, data 3.0 GiB, indexes 88.0 MiB",
        "  PRIMARY  (id) unique, about 1,204,000 values",
        "  at       (day, note(7))",
        "",
        "shop.view: a view",
    ]


def whole(*columns: str) -> dict[str, Any]:
    """A table as the agent describes it, with all that candidates need."""
    names = {"is_nullable": True, "collation": None, "most_bytes": None}
    parts = [{"name": each, "prefix": None, "cardinality": None, "is_descending": False} for each in columns]
    indexes = [{"name": "k", "is_unique": False, "kind": "BTREE", "is_used": True, "columns": parts}]
    return {
        **TABLE,
        "fields": [{"name": name, "kind": kind, **names} for name, kind in (("id", "int"), ("day", "date"))],
        "indexes": indexes if columns else [],
        "foreign_keys": [],
    }


@pytest.mark.parametrize(
    ("columns", "text", "said"),
    [
        (
            (),
            "select id from orders where day = ?",
            "headrace apply 'index:shop.orders(day)' --judge --mysql-socket /s",
        ),
        (("day",), "select id from orders where day = ?", "No index is missing: k of shop.orders serves it"),
        ((), "select id from orders where year(day) = ?", "No index on shop.orders.day serves YEAR(day) = ?"),
        ((), "select id from where", "Not read: "),
        ((), "select 1 from orders where nobody.day = ?", "No index is missing: no predicate"),
    ],
)
async def test_what_a_class_lacks_is_said_with_the_command(
    columns: tuple[str, ...], text: str, said: str
) -> None:
    answer = await schema.ask(watched(Agent(whole(*columns))), ["orders"], ["shop"], text)
    assert said in answer.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("agent", "tables", "databases", "words"),
    [
        (None, ["orders"], ["shop"], "no server to query"),
        (Agent(), ["orders"], [], "database of these tables is unknown"),
        (Agent(), [], ["shop"], "names no table"),
        (Agent(), ["orders"], ["shop"], "no such table"),
    ],
)
async def test_what_is_not_known_is_said(
    agent: Agent | None, tables: list[str], databases: list[str], words: str
) -> None:
    with pytest.raises(NotReady, match=words):
        await schema.ask(watched(agent), tables, databases)
