"""Names of indexes as people write them and as they are shown: what has a dot or a comma is between backticks."""

from __future__ import annotations

import pytest

from headrace.base.errors import PlanError
from headrace.indexes import applied, dropping, names
from headrace.indexes.candidates import candidates
from headrace.indexes.schema import read
from headrace.indexes.statement import Statement
from tests.unit.test_indexes import line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shop.orders(a,b)", (("shop", "orders"), ("a", "b"))),
        (" shop.orders (a, `b`) ", (("shop", "orders"), ("a", "b"))),
        ("`a.b`.`c d`(`x.y`,z)", (("a.b", "c d"), ("x.y", "z"))),
        ("`a``b`.t(`c,d`, `e(f)`)", (("a`b", "t"), ("c,d", "e(f)"))),
        ("shop.t(größe)", (("shop", "t"), ("größe",))),
    ],
)
def test_an_index_is_read_as_it_is_written(
    text: str, expected: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert names.index_parts(text) == expected
    index = applied.index_of(text)
    assert ((index.database, index.table), index.columns) == expected
    again = f"{names.written(*expected[0])}({','.join(map(names.written, expected[1]))})"
    assert names.index_parts(again) == expected


@pytest.mark.parametrize(
    "text", ["orders(a)", "a.b.c(d)", "shop.orders()", "shop.orders(a,)", "shop.`o(a)", ""]
)
def test_what_names_no_index_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not an index"):
        applied.index_of(text)


def test_a_surplus_index_may_have_a_dot() -> None:
    assert dropping.is_written("shop.orders.k")
    assert names.parts("`a.b`.`c d`.`k.1`") == ("a.b", "c d", "k.1")
    assert names.written("a.b", "c d", "k.1") == "`a.b`.`c d`.`k.1`"
    assert not dropping.is_written("a.b.c.d")
    assert not dropping.is_written("shop.orders")


def test_a_candidate_of_a_table_with_a_dot_can_be_applied() -> None:
    schema = read([line("a.b", {"id": "int", "x.y": "int"}, "!PRIMARY(id)")])
    text = "select id from `a.b` where `x.y` = 5"
    (found,) = candidates([Statement(text, text, "shop", 1, 10**9, 10**6, 1)], schema).candidates
    assert found.place == "shop.`a.b`(`x.y`)"
    assert applied.index_of(found.place).columns == ("x.y",)
    assert found.ddl.startswith("ALTER TABLE `shop`.`a.b` ADD INDEX `hr_x.y` (`x.y`)")


@pytest.mark.parametrize(
    ("table", "is_dotted", "expected"),
    [
        ("shop.orders", False, ["shop.orders"]),
        ("orders", False, ["x.orders", "`y.z`.orders"]),
        ("`shop.eu`.orders", False, ["`shop.eu`.orders"]),
        ("`a.b`", False, ["x.`a.b`", "`y.z`.`a.b`"]),
        # The digest has neither backticks nor a word on which of the dots is a name's.
        ("p.q.t", False, ["p.`q.t`", "`p.q`.t", "x.`p.q.t`", "`y.z`.`p.q.t`"]),
        ("a.b", True, ["a.b", "x.`a.b`", "`y.z`.`a.b`"]),
        ("shop.", False, []),
        ("", False, []),
    ],
)  # fmt: skip
def test_a_table_is_asked_for_in_every_database_that_it_may_be_in(
    table: str, is_dotted: bool, expected: list[str]
) -> None:
    assert names.places(table, ["x", "y.z", ""], may_be_dotted=is_dotted) == expected
