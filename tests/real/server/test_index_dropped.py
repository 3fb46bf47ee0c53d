"""A surplus index hidden, dropped after its time and brought back; what a constraint needs stays."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import PlanError, Refused
from headrace.base.model import ServerLogin
from headrace.indexes import dropping
from tests import commands
from tests.servers import Server, started
from tests.vendors import OF_EACH_VENDOR

SURPLUS = "shop.orders.by_customer"


@pytest.fixture(scope="module", params=OF_EACH_VENDOR)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    # MySQL 9 takes no foreign key to a column that is not unique.
    code = "id" if request.param.startswith("mysql-9") else "code"
    with started(request.param, folder / f"dropped-{request.param}") as server:
        server.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE customers (id INT PRIMARY KEY, code INT, note VARCHAR(20), KEY by_code (code))",
            "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, total INT, code INT, at DATE,"
            " note VARCHAR(80), KEY by_customer (customer), KEY by_customer_total (customer, total), UNIQUE KEY"
            " one (total), FULLTEXT KEY words (note), KEY by_code (code),"
            " CONSTRAINT fk FOREIGN KEY (customer) REFERENCES customers (id),"
            f" CONSTRAINT fk_code FOREIGN KEY (code) REFERENCES customers ({code}))",
            "CREATE TABLE seen (a INT, id INT AUTO_INCREMENT, b INT, PRIMARY KEY (a, id), KEY by_id (id),"
            " KEY by_a (a), KEY by_b (b), KEY by_b_too (b, a))",
            "CREATE VIEW recent AS SELECT id FROM seen FORCE INDEX (by_a) WHERE a > 5",
            "CREATE PROCEDURE some() SELECT id FROM seen USE INDEX FOR JOIN (`by_b`) WHERE b > 5",
            "CREATE PROCEDURE other() SELECT id FROM orders FORCE INDEX (by_id) WHERE id > 5",
        )
        yield server


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def login(server: Server) -> ServerLogin:
    return ServerLogin(socket=server.socket, user="root")


def headrace(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.headrace(*words, "--mysql-socket", server.socket, "--mysql-user", "root")


def created(server: Server) -> str:
    return str(server.sql("SHOW CREATE TABLE shop.orders")[0][1])


def test_it_is_hidden_first_and_dropped_only_after_its_time(server: Server) -> None:
    before = created(server)
    hidden = headrace(server, "apply", f"drop-index:{SURPLUS}", "--hidden-for", "1h")
    assert hidden.returncode == 0, hidden.stderr
    assert created(server) != before
    assert "by_customer`" in created(server)
    early = headrace(server, "apply", f"drop-index:{SURPLUS}", "--hidden-for", "1s")
    assert early.returncode == 5, early.stderr
    assert "is not dropped before" in early.stderr
    listed = json.loads(headrace(server, "rollback", "--list", "--json").stdout)["surplus"]
    assert [(each["name"], each["state"]) for each in listed] == [("by_customer", "hidden")]
    shown = headrace(server, "rollback", "--index", SURPLUS)
    assert shown.returncode == 0, shown.stderr
    assert created(server) == before
    assert dropping.journalled() == []


def test_one_that_was_never_hidden_is_hidden_first(server: Server) -> None:
    """As when the command was killed between its journal and its change, or somebody showed it again."""
    dropping.hide_or_drop(login(server), SURPLUS, 0, lambda _: None)
    word = "NOT IGNORED" if "IGNORED" in created(server) else "VISIBLE"
    server.sql(f"ALTER TABLE shop.orders ALTER INDEX by_customer {word}")
    again = dropping.hide_or_drop(login(server), SURPLUS, 3600, lambda _: None)
    assert again.state is dropping.State.HIDDEN
    with pytest.raises(Refused, match="is not dropped before"):
        dropping.hide_or_drop(login(server), SURPLUS, 0, lambda _: None)
    dropping.bring_back(login(server), SURPLUS, lambda _: None)


def test_a_dropped_one_is_built_again_as_it_was(server: Server) -> None:
    before = created(server)
    assert dropping.hide_or_drop(login(server), SURPLUS, 0, lambda _: None).state is dropping.State.HIDDEN
    assert dropping.hide_or_drop(login(server), SURPLUS, 0, lambda _: None).state is dropping.State.DROPPED
    assert "`by_customer`" not in created(server)
    dropping.bring_back(login(server), SURPLUS, lambda _: None)
    # It stands last now.
    assert sorted(each.strip(", ") for each in created(server).splitlines()) == sorted(
        each.strip(", ") for each in before.splitlines()
    )


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ("shop.orders.PRIMARY", "more than a way to find rows"),
        ("shop.orders.one", "more than a way to find rows"),
        ("shop.orders.words", "more than a way to find rows"),
        ("shop.orders.by_code", "the foreign key fk_code of shop.orders rests on it alone"),
        ("shop.customers.by_code", "the foreign key fk_code of shop.orders rests on it alone"),
        # Of the table's own AUTO_INCREMENT, and not the hint in `other`, which is of another table.
        ("shop.seen.by_id", "id counts by itself"),
        ("shop.seen.by_a", "fails as soon as it is hidden: view shop.recent"),
        ("shop.seen.by_b", "fails as soon as it is hidden: routine shop.some"),
    ],
)
def test_what_a_constraint_needs_is_not_even_hidden(server: Server, index: str, why: str) -> None:
    if index == "shop.customers.by_code" and "REFERENCES `customers` (`code`)" not in created(server):
        pytest.skip("this server takes no foreign key to a column that is not unique")
    before = created(server)
    with pytest.raises(Refused, match=why):
        dropping.hide_or_drop(login(server), index, 0, lambda _: None)
    assert created(server) == before
    assert dropping.journalled() == []
    with pytest.raises(PlanError, match="no such index"):
        dropping.hide_or_drop(login(server), "shop.orders.nothing", 0, lambda _: None)
