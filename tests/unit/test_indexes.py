"""Statements as tables see them, the candidates that follow, and indexes that another one replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.base.errors import StoreError
from headrace.indexes import costly
from headrace.indexes.candidates import Advice, candidates
from headrace.indexes.existing import Redundant
from headrace.indexes.existing import surplus as surplus_of
from headrace.indexes.parsing import Unread
from headrace.indexes.schema import Schema, read
from headrace.indexes.statement import Statement
from headrace.indexes.statement import read as read_statement
from headrace.indexes.writes import written_time

ORDERS = {
    "id": "bigint", "customer": "int", "state": "enum('new','paid')", "code": "varchar(32)", "created": "datetime",
    "total": "decimal(10,2)", "note": "text", "shop": "int",
}  # fmt: skip
CUSTOMERS = {"id": "int", "email": "varchar(200)", "country": "char(2)", "code": "varchar(32)"}


def line(
    name: str, columns: dict[str, str], *indexes: str, rows: int = 1_000_000, **more: Any
) -> dict[str, Any]:
    """As the agent prints it; an index is `name(a,b:10)`, with `!` in front if it is unique."""
    return {
        "database": "shop", "table": name, "engine": "InnoDB", "rows": rows, "data_bytes": 1 << 30,
        "index_bytes": 1 << 20, "free_bytes": 0, "foreign_keys": [],
        "fields": [
            {"name": column, "kind": kind, "is_nullable": True, "most_bytes": None,
             "collation": "utf8mb4_general_ci" if kind.startswith(("varchar", "char", "text", "enum")) else None}
            for column, kind in columns.items()
        ],
        "indexes": [index(text) for text in indexes],
    } | more  # fmt: skip


def index(text: str) -> dict[str, Any]:
    name, _, inside = text.lstrip("!").removesuffix(")").partition("(")
    parts = []
    for part in inside.split(","):
        column, _, prefix = part.strip().partition(":")
        known = {"cardinality": None, "is_descending": False}
        parts.append({"name": column or None, "prefix": int(prefix) if prefix else None, **known})
    return {
        "name": name,
        "is_unique": text.startswith("!"),
        "kind": "BTREE",
        "is_used": True,
        "columns": parts,
    }


SHOP = [line("orders", ORDERS, "!PRIMARY(id)"), line("customers", CUSTOMERS, "!PRIMARY(id)")]


def advised(*texts: str, schema: Iterable[dict[str, Any]] = SHOP, examined: int | None = 1_000_000) -> Advice:
    statements = [Statement(text, text, "shop", 1, 10**9 - at, examined, 1) for at, text in enumerate(texts)]
    return candidates(statements, read(schema))


def columns_of(advice: Advice) -> list[str]:
    return [f"{each.table.name}({','.join(each.columns)})" for each in advice.candidates]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from orders where customer = 5", ["orders(customer)"]),
        ("select * from shop.orders o where o.customer = 5 and o.code = 'x'", ["orders(customer,code)"]),
        ("select * from orders where customer = 5 and created > '2026-01-01'", ["orders(customer,created)"]),
        ("select * from orders where created between '2026-01-01' and '2026-02-01'", ["orders(created)"]),
        ("select * from orders where customer = 5 order by created desc limit 10", ["orders(customer,created)"]),
        ("select * from orders order by created limit 10", ["orders(created)"]),
        ("select customer, count(*) from orders group by customer", ["orders(customer)"]),
        ("select distinct customer from orders", ["orders(customer)"]),
        # Two groups of all rows: only an index that has all columns is read instead of the table.
        ("select state, sum(total) from orders group by state", []),
        ("select state, count(*) from orders group by state", ["orders(state)"]),
        ("select distinct o.customer as x from orders o", ["orders(customer)"]),
        ("select count(distinct customer) from orders where shop = 3", ["orders(shop,customer)"]),
        # The join begins with orders, whatever its primary key is compared with.
        ("select o.id from orders o join customers c on c.id = o.id where o.customer = 7", ["orders(customer)"]),
        ("select o.id from orders o join customers c on c.id = o.id where o.customer = 7 and c.country = 'x'",
         ["customers(country)", "orders(customer)"]),
        # A join begins where values are: what it joins does not stand before a range or an order.
        ("select o.id from orders o join customers c on c.id = o.customer where o.created > '2026-01-01'",
         ["orders(created)"]),
        ("select o.id from orders o join customers c on c.id = o.customer order by o.created limit 5",
         ["orders(created)"]),
        ("select o.id from orders o join customers c on c.id = o.customer where o.shop = 3 order by o.created"
         " limit 5", ["orders(shop,created)"]),
        ("select o.id from orders o join customers c on c.id = o.customer where o.created > '2026-01-01' and"
         " c.country > 'x'", ["customers(country)", "orders(created)", "orders(customer,created)"]),
        # Its primary key finds rows of the other table, and values may, too.
        ("select c.id from orders o join customers c on c.id = o.customer where o.code > 'x' and c.email = 'y'",
         ["customers(email)", "orders(customer,code)"]),
        # Of one table twice: found by its values, then by those of the other.
        ("select a.id from orders a join orders b on b.customer = a.customer and b.code = 'x' where a.code = 'y'"
         " and a.shop = 3 and b.shop > 3", ["orders(code,customer,shop)", "orders(code,shop)"]),
        # The rows are sought by those of an outer query.
        ("select c.id from customers c where exists (select 1 from orders o join customers b on b.id = o.shop"
         " where o.customer = c.id and o.created > '2026-01-01')", ["orders(shop,customer,created)"]),
        ("select * from orders where customer in (1, 2, 3) and code is null", ["orders(customer,code)"]),
        ("select * from orders where code like 'ab%'", ["orders(code)"]),
        # Most rows may have NULL there.
        ("select * from orders where created is null and code = 'x'", ["orders(code,created)"]),
        ("select * from orders where code not like 'ab%'", []),
        ("select * from orders where code like concat('ab', '%')", ["orders(code)"]),
        ("select * from orders where code like concat('%', 'ab')", []),
        ("select * from orders where total > (select avg(id) from customers)", ["orders(total)"]),
        ("select * from orders o where total > (select avg(id) from customers c where c.id = o.shop)", []),
        ("select * from orders where code not in ('a')", []),
        ("select * from orders where code not between 'a' and 'b'", []),
        ("select * from orders where customer = 1 or customer = 2", ["orders(customer)"]),
        ("select * from orders where (customer, code) = (1, 'x')", ["orders(customer,code)"]),
        ("select * from orders where ? = customer", ["orders(customer)"]),
        ("select * from orders where (customer, code) in ((1, 'x'), (2, 'y'))", ["orders(customer,code)"]),
        ("select * from orders where (customer, code) in (select 1, 'x')", ["orders(customer,code)"]),
        # Each value of a list has an order of its own.
        ("select * from orders where customer in (1, 2) order by created limit 5", ["orders(customer)"]),
        ("select * from orders where customer in (1) order by created limit 5", ["orders(customer,created)"]),
        # What all alternatives have bounds the rows.
        ("select * from orders where (customer = 1 and shop = 3) or (customer = 2 and shop = 4)",
         ["orders(customer,shop)"]),
        ("select * from orders where (customer = 1 and code = 'x') or (customer = 2 and shop = 4)",
         ["orders(customer)"]),
        ("select * from orders where shop > 5 or (shop = 5 and id > 9) order by shop, id limit 7",
         ["orders(shop)"]),
        ("select * from orders where shop = 5 or code > 'x'", []),
        # InnoDB appends the primary key.
        ("select * from orders where shop = 3 and id > 9 order by id limit 5", ["orders(shop)"]),
        # Rows that an outer join lacks are found by no value.
        ("select c.id from customers c left join orders o on o.customer = c.id where o.id is null",
         ["orders(customer)"]),
        ("select c.id from orders o right join customers c on o.customer = c.id where o.code is null",
         ["orders(customer)"]),
        # Nor is the other side found by what an outer join compares.
        ("select 1 from orders o left join customers c on c.id = o.customer and o.shop = 3 where c.id is null",
         []),
        ("delete o from orders o left join customers c on c.id = o.customer where c.id is null", []),
        ("select o.id from customers c right join orders o on o.customer = c.id", []),
        # A condition on the side that may lack rows makes it a join as any other.
        ("select o.id from orders o left join customers c on c.id = o.customer where c.email = 'x'",
         ["customers(email)", "orders(customer)"]),
        ("select * from orders where code like _utf8mb4'ab%'", ["orders(code)"]),
        ("select * from orders where code like 'ab%' collate utf8mb4_general_ci", ["orders(code)"]),
        ("select max(created) from orders", ["orders(created)"]),
        ("select min(created), max(created) from orders where customer = 5", ["orders(customer,created)"]),
        ("select max(created), max(total) from orders", []),
        ("select max(created) from orders group by customer", ["orders(customer)"]),
        ("select * from customers natural join (select 'x' as code, 1 as other) x", ["customers(code)"]),
        ("select * from customers natural join orders", []),
        ("select id from orders where customer = shop", []),
        ("select id from orders where created like '2026-01%'", []),
        ("select id from orders where customer like '12%'", []),
        ("update customers c join (select customer, count(*) as n from orders where code = 'a' group by"
         " customer) x on x.customer = c.id set c.code = x.n", ["orders(code,customer)"]),
        # The most of each group: one index for the groups and for the join.
        ("select o.id from orders o join (select shop, max(total) as top from orders group by shop) x"
         " on x.shop = o.shop and x.top = o.total", ["orders(shop,total)"]),
        ("select * from customers c join orders o on o.customer = c.id where c.id = 7", ["orders(customer)"]),
        ("select * from customers c where exists (select 1 from orders o where o.customer = c.id)",
         ["orders(customer)"]),
        ("with x as (select * from orders where code = 'a') select * from x", ["orders(code)"]),
        ("update orders set total = 1 where code = 'a'", ["orders(code)"]),
        ("delete from orders where created < now() - interval 1 day limit 100", ["orders(created)"]),
        ("insert into customers select id, code, 'x', code from orders where shop = 3", ["orders(shop)"]),
        ("insert high_priority ignore into customers (id) select id from orders where shop = 3", ["orders(shop)"]),
        ("/* from cron */ replace delayed customers (id) select id from orders where shop = 3", ["orders(shop)"]),
        ("update low_priority ignore orders set total = 1 where code = 'a'", ["orders(code)"]),
        ("-- nightly\ndelete low_priority quick ignore from orders where code = 'a'", ["orders(code)"]),
        ("delete o.* from orders o join customers c on c.id = o.id where o.code = 'a'", ["orders(code)"]),
        ("create temporary table x as select id from orders where shop = 3", ["orders(shop)"]),
        ("select all sql_small_result distinctrow id from orders where shop = 3", ["orders(shop)"]),
        ("select id from orders where shop = 3 into @a, @b", ["orders(shop)"]),
        ("select id from orders where shop = 3 into outfile '/tmp/x'", ["orders(shop)"]),
        ("replace into customers select id, code, 'x', code from orders where shop = 3", ["orders(shop)"]),
        ("select * from orders where shop = 3 union all select * from orders where code = 'b'",
         ["orders(code)", "orders(shop)"]),
    ],
)  # fmt: skip
def test_what_a_statement_lacks(text: str, expected: list[str]) -> None:
    assert sorted(columns_of(advised(text))) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select * from orders where id = 5", "PRIMARY of shop.orders serves it"),
        ("select * from orders where id = 5 and state = 'new'", "PRIMARY of shop.orders serves it"),
        ("select * from orders where state = 'new'", "shop.orders.state has few values (enum('new','paid'))"),
    ],
)
def test_what_needs_no_index(text: str, why: str) -> None:
    advice = advised(text)
    assert not advice.candidates
    assert [reason for _, reason in advice.content] == [why]


def test_a_small_table_and_a_statement_that_examines_little_need_none() -> None:
    text = "select * from orders where customer = 5"
    assert "about 900 rows" in advised(text, schema=[line("orders", ORDERS, rows=900)]).content[0][1]
    assert "examines 9.0 rows" in advised(text, examined=9).content[0][1]
    # Of groups ten rows each are many, one row each is not.
    grouped = "select customer, count(*) from orders group by customer"
    assert columns_of(advised(grouped, examined=10)) == ["orders(customer)"]
    assert not advised(grouped, examined=1).candidates
    # Not known is not little.
    assert columns_of(advised(text, examined=None)) == ["orders(customer)"]


def test_rows_that_a_join_buffer_hides_are_no_reason_for_content() -> None:
    text = "select c.id from customers c left join orders o on o.customer = c.id where c.id < 5"
    assert columns_of(advised(text, examined=3)) == ["orders(customer)"]
    assert not advised("select * from orders where customer = 5", examined=3).candidates
    # Nor does MySQL count those for a derived table or a table expression.
    for derived in (
        "select * from (select shop, count(*) as n from orders where customer = 5 group by shop) x where n > 3",
        "with x as (select * from orders where customer = 5) select count(*) from x",
        "select * from (select 1 union all select shop from orders where customer = 5) x",
        "update customers c join (select shop from orders where customer = 5) x on x.shop = c.id set code = 'x'",
    ):
        assert columns_of(advised(derived, examined=3)) in (["orders(customer)"], ["orders(customer,shop)"])
    assert not advised("select (select shop from orders where customer = 5)", examined=3).candidates


def test_a_column_of_few_values_extends_no_index() -> None:
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "k(shop,created)")]
    advice = advised("select * from orders where shop = 5 and state = 'new'", schema=schema)
    assert not advice.candidates
    assert advice.content[0][1] == "k of shop.orders serves it, but for columns with few values"


def test_a_long_prefix_finds_rows_as_the_whole_column_does() -> None:
    for columns, expected in (
        ("code:10,shop", ["orders(code)"]),
        ("code:64", []),
        ("shop,code:64", ["orders(code)"]),
    ):
        schema = [line("orders", ORDERS, "!PRIMARY(id)", f"k({columns})")]
        assert columns_of(advised("select * from orders where code = 'x'", schema=schema)) == expected
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "k(code:64,shop)")]
    assert not advised("select * from orders where code = 'x' and shop = 3", schema=schema).candidates
    ordered = "select * from orders where code = 'x' order by shop limit 5"
    assert columns_of(advised(ordered, schema=schema)) == ["orders(code,shop)"]


def test_a_prefix_that_no_candidate_has_is_said() -> None:
    text = "select * from orders where shop = 3 and note = 'x'"
    (_, said), *_ = advised(text).hindrances
    assert (said.column, said.rewrite) == ("note", "try ADD INDEX (shop, note(20))")
    assert not advised(text, examined=1).hindrances
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "p(note:20)")]
    assert not advised(text, schema=schema).hindrances


def test_an_existing_index_serves_what_it_begins_with() -> None:
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "k(code,customer,created)", "p(note:20)")]
    for text in (
        "select * from orders where customer = 5 and code = 'x'",
        "select * from orders where code = 'x'",
        "select * from orders where code = 'x' and customer = 5 order by created limit 3",
    ):
        assert not advised(text, schema=schema).candidates, text
    assert columns_of(advised("select * from orders where customer = 5", schema=schema)) == [
        "orders(customer)"
    ]
    ordered = "select * from orders order by shop, created limit 5"
    down = [line("orders", ORDERS, "!PRIMARY(id)", "k(shop,created,id)")]
    assert not advised(ordered, schema=down).candidates
    down[0]["indexes"][1]["columns"][0]["is_descending"] = True
    assert [(each.columns, each.extends) for each in advised(ordered, schema=down).candidates] == [
        (("shop", "created"), "")
    ]
    two_ways = "select * from orders order by shop desc, created limit 5"
    assert not advised(two_ways, schema=down).hindrances
    (_, hindrance), *_ = advised(two_ways).hindrances
    assert hindrance.rewrite.startswith("an index on (shop DESC, created)")
    (_, hindrance), *_ = advised(two_ways.replace("order by", "where customer = 5 order by")).hindrances
    assert hindrance.rewrite.startswith("an index on (customer, shop DESC, created)")
    assert not advised(
        "select * from orders where shop = 3 and id > 5",
        schema=[line("orders", ORDERS, "!PRIMARY(id)", "k(shop)")],
    ).candidates
    hidden = [line("orders", ORDERS, "!PRIMARY(id)", "k(customer)")]
    hidden[0]["indexes"][1]["is_used"] = False
    assert columns_of(advised("select * from orders where customer = 5", schema=hidden)) == [
        "orders(customer)"
    ]


def test_a_key_has_no_more_columns_than_it_has_room_for() -> None:
    wide = line("orders", ORDERS, "!PRIMARY(id)")
    for field in wide["fields"]:
        if field["name"] in ("code", "note"):
            field |= {"kind": "varchar(500)", "most_bytes": 2000}
    text = "select * from orders where code = 'x' and note = 'y' and shop = 3"
    assert columns_of(advised(text, schema=[wide])) == ["orders(code,shop)"]
    for field in wide["fields"]:
        if field["name"] == "code":
            field |= {"kind": "varchar(1000)", "most_bytes": 4000}
    found = advised("select * from orders where code = 'x' and shop = 3", schema=[wide])
    assert columns_of(found) == ["orders(shop)"]
    assert found.hindrances[0][1].rewrite == "try ADD INDEX (shop, code(20))"


def test_a_long_column_and_an_index_of_an_expression_are_named() -> None:
    text = "select * from orders where note = 'x'"
    assert "as in ADD INDEX (note(20))" in advised(text).content[0][1]
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "p(note:20)", "f()")]
    assert advised(text, schema=schema).content[0][1] == "p of shop.orders has a prefix of note"
    assert not advised(text, schema=schema).hindrances
    schema[0] |= {"rows": 100_000}
    schema[0]["indexes"][1]["columns"][0]["cardinality"] = 3
    (_, hindrance), *_ = advised(text, schema=schema).hindrances
    assert "its first 20 characters, which an index has" in hindrance.why
    assert hindrance.rewrite == "try ADD INDEX (note(40))"
    (_, hindrance), *_ = advised("select * from orders where lower(code) = 'x'", schema=schema).hindrances
    assert hindrance.rewrite.startswith("f may be of this expression")


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("select * from orders where date(created) = '2026-01-01'", "created", "DATE is applied"),
        ("select * from orders where code like '%ab'", "code", "begins with a wildcard"),
        ("select * from orders where code = 5", "code", "compared with a number"),
        ("select * from orders where 5 between customer and shop", "customer", "an index bounds one side"),
        ("select * from orders where code = 'a' or shop = 3", "code", "OR over several"),
        ("select * from orders where customer + 1 = 5", "customer", "an expression is applied"),
        ("select * from orders where customer = shop", "customer", "two columns of the same row"),
        ("select * from orders where case when shop = 1 then 2 end = 5", "shop", "CASE is applied"),
        ("select * from orders where created like '2026%'", "created", "each row's datetime is converted"),
        ("select * from orders where (shop, id) > (5, 9)", "shop", "not a range"),
        ("select * from orders where code in ('a', 5)", "code", "compared with a number"),
        ("select * from orders where 5 in (customer, shop)", "customer", "OR over several"),
        ("select * from orders where code regexp '^ab'", "code", "REGEXP decides for each row"),
        ("select * from orders where find_in_set('7', code)", "code", "FIND_IN_SET decides"),
        ("select * from orders where json_contains(note, '7', '$.tags')", "note", "JSON_CONTAINS decides"),
        ("select * from orders where 7 member of (note->'$.tags')", "note", "MEMBER OF decides"),
        ("select * from orders use index (k) where code = 'a'", "code", "the hint allows no other index"),
        (
            "select * from orders o join customers c on o.code = c.id",
            "code",
            "varchar(32) is compared with int",
        ),
    ],
)
def test_what_no_index_can_serve_is_said(text: str, column: str, why: str) -> None:
    advice = advised(text)
    said = [(each.column, each.why) for _, each in advice.hindrances]
    assert any(name == column and why in reason for name, reason in said), said
    assert not any(column in each.columns for each in advice.candidates)
    # A number compared with text is converted once, not for each row.
    assert not advised("select * from orders where customer = '5'").hindrances


def test_what_finds_its_rows_well_is_not_hindered() -> None:
    text = "select * from orders where id = 5 and date(created) = '2026-01-01'"
    assert advised(text).hindrances
    assert advised(text, examined=None).hindrances
    assert not advised(text, examined=1).hindrances
    # Of a join not all rows are counted.
    joined = "select o.id from orders o join customers c on o.code = c.id"
    assert advised(joined, examined=1).hindrances
    # A hint for the order alone leaves open how rows are found.
    ordered = "select id from orders use index for order by (k) where code = 'a' order by id"
    assert columns_of(advised(ordered)) == ["orders(code)"]


def test_what_a_view_reads_and_how_a_pattern_begins_may_be_unknown() -> None:
    view = line("recent", ORDERS, engine=None)
    assert advised("select * from recent where code = 'a'", schema=[view]).unknown[0][1] == (
        "the tables behind the view shop.recent"
    )
    assert "how the pattern of LIKE begins" in advised("select * from orders where code like ?").unknown[0][1]


def test_collations_that_differ_are_a_hindrance() -> None:
    other = line("customers", CUSTOMERS)
    for column in other["fields"]:
        column["collation"] = "utf8mb4_bin" if column["collation"] else None
    text = "select * from orders o join customers c on o.code = c.code"
    advice = advised(text, schema=[SHOP[0], other])
    # The other side's values are compared as `_bin`, so an index of that side serves.
    assert [(each.table, each.column) for _, each in advice.hindrances] == [("shop.orders", "code")]
    assert "utf8mb4_general_ci and utf8mb4_bin" in advice.hindrances[0][1].why
    assert columns_of(advice) == ["customers(code)"]
    for collation, kept in (("latin1_swedish_ci", ["orders(code)"]), ("utf8mb4_unicode_ci", [])):
        for column in other["fields"]:
            column["collation"] = collation if column["collation"] else None
        assert columns_of(advised(text, schema=[SHOP[0], other])) == kept


def test_one_candidate_serves_many_statements() -> None:
    advice = advised(
        "select * from orders where customer = 5 and code = 'x' and created > '2026-01-01'",
        "select * from orders where code = 'y'",
        "select * from orders where code = 'y' and customer = 3 order by created limit 1",
        "select * from orders where shop = 3",
    )
    assert columns_of(advice) == ["orders(code,customer,created)", "orders(shop)"]
    assert [len(each.reasons) for each in advice.candidates] == [3, 1]
    assert advice.candidates[0].ddl == (
        "ALTER TABLE `shop`.`orders` ADD INDEX `hr_code_customer_created` (`code`, `customer`, `created`), "
        "ALGORITHM=INPLACE, LOCK=NONE"
    )


def test_a_longer_index_replaces_the_one_that_it_begins_with() -> None:
    schema = [line("orders", ORDERS, "!PRIMARY(id)", "k(customer)", "!u(code)")]
    text = "select * from orders where customer = 5 and shop = 2"
    assert [(each.columns, each.extends) for each in advised(text, schema=schema).candidates] == [
        (("customer", "shop"), "k")
    ]


def test_what_cannot_be_read_is_named_and_never_guessed() -> None:
    schema = read(SHOP)
    for text, why in (
        ("call refresh(5)", "reads no table"),
        ("select * from where", None),
        ("select 1; select 2", "2 statements"),
        ("", "no statement"),
        ("(" * 3000 + "1" + ")" * 3000, None),
    ):
        with pytest.raises(Unread, match=why):
            read_statement(Statement("x", text), schema)
    lost = "select * from nowhere n, orders where n.a = 1 and code = 'x'"
    reading = read_statement(Statement("x", lost, "shop"), schema)
    assert reading.unknown == ("table nowhere",)
    both = read_statement(Statement("x", "select 1 from orders, customers where code = 'x'", "shop"), schema)
    assert both.unknown == ("column code, which several tables have",)
    assert not any(use.equal for use in both.uses)


def test_a_table_of_another_shape_is_an_error() -> None:
    with pytest.raises(StoreError, match="another shape"):
        read([{"database": "shop"}])


def redundant(schema: Schema) -> tuple[Redundant, ...]:
    return surplus_of(schema).redundant


def needed(text: str, *indexes: str, **more: Any) -> dict[str, str]:
    schema = read([line("orders", ORDERS, "!PRIMARY(id)", *indexes, **more), SHOP[1]])
    found = surplus_of(schema, [Statement(text, text, "shop", 1, 1)])
    assert not {each.index.name for each in found.redundant} & {each.index.name for each in found.needed}
    return {each.index.name: each.why for each in found.needed}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # (a) is (a, id) in InnoDB, and (a, b) is not.
        ("select * from orders where customer = 5 order by id desc limit 9", "order of the primary key"),
        ("select * from orders where customer = 5 and id > 7", "order of the primary key"),
        ("select * from orders force index (a) where customer = 5", "a hint names it"),
        ("select * from orders use key for order by (`A`, x) where customer = 5", "a hint names it"),
        ("select /*+ INDEX(orders a) */ * from orders where customer = 5", "a hint names it"),
        # A statement that cannot be read may be of this table, and one of another table is not.
        ("handler orders open force index (a)", "a hint names it"),
        ("select * from customers force index (a) where id = 5", ""),
        ("select * from orders where customer = 5", ""),
        ("select * from orders where customer = 5 and code = 'x' order by id limit 9", ""),
        ("select * from orders order by id limit 9", ""),
    ],
)
def test_what_the_traffic_needs_is_not_surplus(text: str, expected: str) -> None:
    found = needed(text, "a(customer)", "b(customer,code)")
    assert list(found) == (["a"] if expected else [])
    assert expected in found.get("a", "")


def test_what_a_foreign_key_alone_rests_on_is_not_surplus() -> None:
    keys = [{"name": "fk", "columns": ["customer", "id"]}]
    assert needed("", "a(customer)", "b(customer,id)", foreign_keys=keys) == {
        "b": "the foreign key fk rests on it"
    }
    # A third one that has the columns will do; neither a full-text index nor a prefix does.
    assert needed("", "a(customer)", "b(customer,id)", "c(customer,id,code)", foreign_keys=keys) == {}
    keys[0]["columns"] = ["customer"]
    assert needed("", "a(customer)", "b(customer,id)", foreign_keys=keys) == {}
    keys[0]["columns"] = ["code"]
    assert needed("", "a(code)", "b(code:10)", foreign_keys=keys) == {}
    table = line("orders", ORDERS, "!PRIMARY(id)", "a(code)", "b(code)", "f(code)", foreign_keys=keys)
    table["indexes"][3]["kind"] = "FULLTEXT"
    known = read([table]).tables["shop", "orders"]
    assert [known.rests_on(index, ["b"]) for index in known.indexes] == ["", "fk", "", ""]
    assert not known.rests_on(known.indexes[1])


def surplus(*indexes: str, engine: str = "InnoDB") -> dict[str, str]:
    schema: Schema = read([line("orders", ORDERS, "!PRIMARY(id)", *indexes, engine=engine)])
    return {each.index.name: each.kept for each in redundant(schema)}


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        (["a(customer)", "b(customer)"], {"b": "a"}),
        (["a(customer)", "b(customer,code)"], {"a": "b"}),
        (["a(customer)", "!b(customer)"], {"a": "b"}),
        (["!a(customer)", "b(customer,code)"], {}),
        (["!a(customer)", "!b(customer)"], {"b": "a"}),
        (["a(customer)", "b(customer,id)"], {"b": "a"}),
        (["a(id)"], {"a": "PRIMARY"}),
        (["a(code,customer)", "b(customer,code)"], {}),
        (["a(code:10)", "b(code)"], {"a": "b"}),
        (["a(code)", "b(code:10)"], {"b": "a"}),
        (["a(code:20)", "b(code:10)"], {"b": "a"}),
        (["a()", "b()"], {}),
    ],
)
def test_indexes_that_another_one_replaces(indexes: list[str], expected: dict[str, str]) -> None:
    assert surplus(*indexes) == expected


def test_only_innodb_appends_the_primary_key() -> None:
    assert surplus("a(customer)", "b(customer,id)", engine="MyISAM") == {"a": "b"}


def test_a_full_text_index_and_a_hidden_one_replace_nothing() -> None:
    table = line("orders", ORDERS, "a(code)", "b(code)")
    table["indexes"][1]["kind"] = "FULLTEXT"
    assert redundant(read([table])) == ()
    table["indexes"][1] |= {"kind": "BTREE", "is_used": False}
    assert [each.index.name for each in redundant(read([table]))] == ["b"]


def test_a_foreign_key_is_named_before_its_index_is_hidden() -> None:
    table = line(
        "orders",
        ORDERS,
        "a(customer)",
        "b(customer,code)",
        foreign_keys=[{"name": "fk", "columns": ["customer"]}],
    )
    (one,) = redundant(read([table]))
    assert "foreign key fk" in one.cautions[0]
    assert one.hide_ddl == (
        "ALTER TABLE `shop`.`orders` ALTER INDEX `a` INVISIBLE",
        "ALTER TABLE `shop`.`orders` ALTER INDEX `a` IGNORED",
    )


def test_what_an_index_spares_a_change_is_no_cost_of_its_writes() -> None:
    text = "delete from orders where code = 'a'"
    (candidate,) = advised(text).candidates
    statement = Statement(text, text, "shop", 1, 1000)
    for left, expected in (({}, 1000), ({text: 0.1}, 100)):
        times = written_time([statement], read(SHOP), [candidate], left)
        assert times == {("shop.orders", "DELETE"): expected}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("select id from orders order by id limit 10 offset 20000", "OFFSET 20,000"),
        ("select id from orders order by id limit 20000, 10", "OFFSET 20,000"),
        ("select id from orders order by id limit 10 offset 20", ""),
        ("select id from customers order by rand() limit 3", "ORDER BY RAND()"),
        (f"select id from orders where id in ({', '.join(map(str, range(150)))})", "a list of 150 values"),
        ("select id from orders where id in (1, 2)", ""),
        ("select from", ""),
    ],
)
def test_what_is_costly_whatever_the_indexes_are(text: str, what: str) -> None:
    found = costly.statements([Statement(text, text, "shop", 1, 10**9)], read(SHOP))
    assert len(found) == bool(what)
    assert all(what in each.what for each in found)


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (line("orders", ORDERS), "no primary key"),
        (line("orders", ORDERS, rows=100), ""),
        (line("orders", ORDERS, engine="MyISAM"), ""),
        (line("orders", ORDERS, "!PRIMARY(id)", "k(customer)"), ""),
        # 92 more bytes a row than a BIGINT takes, in one other index of a million rows.
        (line("orders", ORDERS, "!PRIMARY(code)", "k(customer)"), "up to 88 MiB more"),
        (line("orders", ORDERS, "!PRIMARY(code)"), ""),
    ],
)
def test_primary_keys_that_cost(table: dict[str, Any], what: str) -> None:
    for column in table["fields"]:
        column["most_bytes"] = 100 if column["name"] == "code" else None
    found = costly.layouts(read([table]))
    assert len(found) == bool(what)
    assert all(what in each.what for each in found)
