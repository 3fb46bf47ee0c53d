"""What sessions send again and again, and forms of statements that the counts of the traffic show to be costly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.indexes import costly
from headrace.indexes.repeated import Sent, repeated, why_unknown
from headrace.indexes.schema import Schema, read
from headrace.indexes.sessions import Habits, habits
from headrace.indexes.statement import Statement
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.lines import read_rows
from tests.unit.test_indexes import CUSTOMERS, ORDERS, line

SCHEMA: Schema = read(
    [
        line("orders", ORDERS, "!PRIMARY(id)"),
        line("customers", CUSTOMERS, "!PRIMARY(id)"),
        line("tokens", {"id": "char(36)", "note": "varchar(9)"}, "!PRIMARY(id)", "k(note)"),
        line("wide", {"id": "int"} | {f"c{at}": "int" for at in range(30)}, "!PRIMARY(id)"),
    ]
)
LIST = "select id from customers where country = 'de'"
LOOKUP = "select * from orders where customer = 5"
INSERT = "insert into orders (id, total) values (1, 2)"


def sent(
    session: str,
    text: str,
    calls: int,
    rows: int | None = None,
    changed: int | None = None,
    pace: float = 100.0,
) -> Sent:
    return Sent(session, text, Statement(text, text, "shop", calls, calls * 10**6), rows, changed, pace)


def said(*all_sent: Sent) -> list[str]:
    return [each.what for each in repeated(all_sent, SCHEMA)]


def test_a_lookup_for_each_row_of_another_statement() -> None:
    pages = [sent(str(at), LIST, 2, 50) for at in range(3)]
    lookups = [sent(str(at), LOOKUP, 50 + at, 90) for at in range(3)]
    (found,) = repeated([*pages, *lookups], SCHEMA)
    assert found.what.startswith("once for each row of another: 153 calls in 3 sessions after 150 rows of")
    assert (found.statement.calls, found.statement.time_ns) == (153, 153 * 10**6)
    # By chance two sessions are near, but not exact; of sessions that differ from the rows it is not said.
    assert not said(*pages[:2], *lookups[1:])
    assert said(*pages[:1], lookups[0])
    assert not said(*pages, *(sent(str(at), LOOKUP, 80, 90) for at in range(3)))
    # A list for each lookup, and a session that does nothing else: nothing led to it.
    assert not said(*(sent(str(at), LIST, 50, 50) for at in range(3)), *lookups)
    assert not said(*lookups)


@pytest.mark.parametrize(
    "text",
    [
        "select * from orders where customer in (5, 6)",
        "select * from orders where customer > 5",
        "select * from orders where customer = 5 and created > '2026-01-01'",
        "select o.id from orders o join customers c on c.id = o.customer where c.id = 5",
        "update orders set total = 1 where id = 5",
        "select from",
    ],
)
def test_only_a_lookup_by_one_key_could_be_joined(text: str) -> None:
    lists = [sent(str(at), LIST, 2, 40) for at in range(3)]
    assert not said(*lists, *(sent(str(at), text, 40) for at in range(3)))
    assert said(*lists, *(sent(str(at), LOOKUP, 40) for at in range(3)))


def test_lookups_in_each_transaction() -> None:
    assert said(sent("1", "begin", 10), sent("1", LOOKUP, 100), sent("1", "commit", 10)) == [
        "10.0 times in each transaction: 100 calls in 10 transactions of 1 session"
    ]
    assert not said(sent("1", "begin", 50), sent("1", LOOKUP, 100), sent("1", "commit", 50))


def test_whether_the_keys_differ_is_told_where_it_is_known() -> None:
    given = [sent("1", LIST, 2, 50), sent("1", LOOKUP, 50)]
    for same, what, rather in (
        ((1, 50), "49 of 50 calls of a session have other values", "IN (...)"),
        ((40, 50), "40 of 50 calls of a session have the same values", "keep the answer"),
        (None, "of select id", "IN (...)"),
    ):
        (found,) = repeated(given, SCHEMA, lambda _, same=same: same)  # type: ignore[misc]
        assert what in found.what
        assert rather in found.rather


def test_rows_that_are_committed_one_by_one() -> None:
    (found,) = repeated([sent("1", INSERT, 400, changed=400), sent("2", INSERT, 400, changed=400)], SCHEMA)
    assert found.what == (
        "one row at a time, each committed by itself (autocommit): 800 calls in 2 sessions, up to 100/s in one"
    )
    # Without a count the example tells.
    for text in (INSERT, "update orders set total = 1 where id = 5", "delete from orders where id = 5"):
        assert said(sent("1", text, 400))
    both = [sent("1", "begin", 400), sent("1", INSERT, 400, changed=400), sent("1", "commit", 400)]
    assert "each in a transaction of its own" in said(*both)[0]


@pytest.mark.parametrize(
    "given",
    [
        # Put together already, or many rows in each; few; slow; a small part of a session; unknown.
        [sent("1", INSERT, 400, changed=400), sent("1", "commit", 4)],
        [sent("1", INSERT, 400, changed=4_000)],
        [sent("1", "insert into orders (id, total) values (1, 2), (3, 4)", 400)],
        [sent("1", "insert into orders (id) select id from customers", 400)],
        [sent("1", "update orders set total = 1 where shop = 5", 400)],
        [sent("1", "delete from orders where id in (5, 6)", 400)],
        [sent("1", INSERT, 40, changed=40)],
        [sent("1", INSERT, 400, changed=400, pace=2.0)],
        [sent("1", INSERT, 400, changed=400), sent("1", LOOKUP, 5_000)],
        [sent("1", INSERT, 400, changed=400), sent("1", "set autocommit = 0", 1)],
        [sent("1", INSERT, 400, changed=400), sent("1", "set autocommit = 1", 9)],
    ],
)
def test_rows_that_are_not(given: Sequence[Sent]) -> None:
    assert not said(*given)
    assert said(sent("1", INSERT, 400, changed=400), sent("1", "set autocommit=1", 1))


def test_a_source_that_leaves_statements_out_tells_nothing() -> None:
    assert why_unknown(100, 0, 3) == ""
    assert "quick statements (none below 10.0 ms)" in why_unknown(10**7, 0, 3)
    assert "only some" in why_unknown(100, 7, 3)
    assert "which session" in why_unknown(100, 0, 0)


def digest_of(*classes: tuple[str, str, int, int], least_ns: int = 1_000) -> Digest:
    """Of (session, text, calls, rows sent), as the agent prints it."""
    number = {"sum_squares": "0", "min": 0, "max": 9, "buckets": []}
    rows = [
        {"type": "class", "id": text, "key": {"class": text, "session": session}, "is_others": False,
         "fingerprint": text, "verb": text.split()[0], "tables": [], "folded_id": None, "count": calls,
         "timed": calls, "errors": {}, "failed": 0, "unanswered": 0, "unjudged": 0,
         "response_sum_ns": calls * 10**6, "response_sum_squares": "0", "response_min_ns": least_ns,
         "response_max_ns": 10**6, "buckets": [], "first_byte": None, "summarised": None, "first_ns": 0,
         "last_ns": 0, "slices": [[0, calls, 1, 1, 0]], "users": [], "hosts": [], "databases": [],
         "rows_sent": {"known": calls, "sum": sent} | number,
         "sample": {"start_ns": 0, "text": text, "text_bytes": len(text), "database": "shop"}}
        for session, text, calls, sent in classes
    ]  # fmt: skip
    whole = {**rows[0], "type": "totals", "count": sum(each[2] for each in classes)}
    head = {
        "type": "digest", "version": 1, "mode": "strict", "group": ["class", "session"], "measures": ["rows_sent"],
        "inputs": ["x"], "filter": {}, "host": "h", "agent": "1", "first_ns": 0, "last_ns": 1, "slice_ns": 10**9,
        "heat_slice_ns": 10**9, "coverage": {}, "events": 1, "filtered": 0, "undated": 0, "others": 0,
    }  # fmt: skip
    end = {"type": "end", "classes": len(rows)}
    return open_digest(read_rows([head, whole, {"type": "heat", "slices": []}, *rows, end], "x"))


def test_sessions_of_a_source_are_read_and_their_values_compared() -> None:
    asked: list[Sequence[str]] = []

    def reader(source: str, conditions: Sequence[str]) -> Digest:
        asked.append(conditions)
        if conditions:
            return digest_of(("7", LOOKUP, 49, 90))
        return digest_of(
            ("7", LIST, 2, 50), ("7", LOOKUP, 50, 90), least_ns=1_000 if source == "a" else 10**7
        )

    found: Habits = habits(["a", "b"], SCHEMA, reader)
    assert [each.what.rpartition("; ")[2] for each in found.found] == [
        "49 of 50 calls of a session have other values than its slowest"
    ]
    assert asked[1] == [f"class={LOOKUP}", "session=7", f"text!={LOOKUP}"]
    assert [each.partition(": ")[0] for each in found.unknown] == ["what sessions repeat is not known of b"]


V4 = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


@pytest.mark.parametrize(
    ("text", "counts", "what"),
    [
        ("select count(*) from orders where customer = 5", {"examined": 30_000, "sent": 10},
         "COUNT reads 3,000 rows a call"),
        ("select count(*) from orders where customer = 5", {"examined": 30, "sent": 10}, ""),
        ("select count(*) from orders where customer = 5", {}, ""),
        ("select shop, count(*) from orders group by shop", {"examined": 30_000, "sent": 10}, ""),
        ("delete from orders where shop = 5", {"sent": 900_000}, "changes 90,000 rows a call"),
        ("delete from orders where shop = 5", {"sent": 900}, ""),
        ("select * from wide where id = 5", {"sent": 100, "sent_bytes": 200_000},
         "SELECT * of 31 columns sends 20,000 bytes a call; no statement of this traffic names 30 of them"),
        ("select * from wide where id = 5", {"sent": 100}, "sends an unknown number of bytes a call"),
        ("select * from wide where id = 5", {"sent": 100, "sent_bytes": 2_000}, ""),
        ("select id from wide where id = 5", {"sent": 100}, ""),
        ("select * from customers where id = 5", {"sent": 100}, ""),
        ("select * from orders where id = 5", {"sent": 100}, "(note among them)"),
        ("select * from elsewhere where id = 5", {"sent": 100}, ""),
        (f"insert into tokens (note, id) values ('x', '{V4}')", {}, "a random UUID is the primary key"),
        (f"insert into tokens values ('{V4}', 'x')", {}, "and 1 other index repeat"),
        (f"insert into tokens values (unhex('{V4.replace('-', '')}'), 'x')", {}, "a random UUID"),
        (f"insert into tokens (id, note) values ('x', '{V4}')", {}, ""),
        ("insert into tokens values ('01890a5d-ac96-774b-bcce-b302099a8057', 'x')", {}, ""),
        (f"insert into customers (id, email) values (5, '{V4}')", {}, ""),
    ],
)  # fmt: skip
def test_costly_by_the_counts_of_the_traffic(text: str, counts: dict[str, int], what: str) -> None:
    found = costly.statements([Statement(text, text, "shop", 10, 10**9, **counts)], SCHEMA)
    assert len(found) == bool(what), found
    assert all(what in each.what for each in found)
