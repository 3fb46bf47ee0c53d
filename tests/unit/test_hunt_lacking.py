"""The index that the costliest class of a hunt lacks, in its finding and in what `prove` takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import CommandFailed
from headrace.base.model import ServerLogin
from headrace.experiment.commands import prove
from headrace.host.activity import Activity, Digest, Lacking
from headrace.host.agent import door
from headrace.host.snapshot import Snapshot, save
from headrace.hunt import hunt as hunts
from headrace.hunt.commands import lacking
from tests.commands import headrace
from tests.rules.hosts import saved
from tests.rules.statements_cases import EVEN, HEAVY
from tests.unit.test_indexes import SHOP

TEXT = "SELECT * FROM `orders` WHERE `customer` = ? AND `code` IN (...) LIMIT ?"
RATES = {**EVEN, f"statements.rows_examined.{HEAVY}": 1e6, f"statements.rows_sent.{HEAVY}": 10.0}
LOGIN = ServerLogin(socket="/s.sock")


class Hands:
    """Answers as the agent: the tables of a shop, and the plan of a digest, or its words if it has none."""

    def __init__(self, plan: Mapping[str, Any] | None, tables: list[dict[str, Any]] | None) -> None:
        self._plan = plan
        self._tables = tables
        self.asked: list[tuple[str, ...]] = []

    async def text(self, *words: str, timeout_s: float | None = None) -> str:
        self.asked.append(words)
        if self._tables is None:
            raise CommandFailed("access denied", place="db1")
        return "\n".join(map(json.dumps, self._tables))

    async def answer(self, *words: str) -> Mapping[str, Any]:
        if self._plan is None:
            raise CommandFailed("no whole statement is kept", place="db1")
        return self._plan

    @staticmethod
    def document(_: str, line: str) -> Any:
        return json.loads(line)


def watched(text: str = TEXT, tables: tuple[str, ...] = ("shop.orders",)) -> Snapshot:
    activity = Activity(10, digests=(Digest(f"{HEAVY}aaaa", text, "shop", tables),))
    return replace(saved(rates=RATES), activity=activity)


def named(
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Snapshot,
    plan: Mapping[str, Any] | None = None,
    tables: list[dict[str, Any]] | None = SHOP,
) -> tuple[Snapshot, Hands]:
    hands = Hands(plan, tables)

    async def install(_: Any) -> Hands:
        return hands

    monkeypatch.setattr(door.Agent, "install", install)
    host: Any = None
    return asyncio.run(lacking.named(host, LOGIN, snapshot)), hands


def only(snapshot: Snapshot) -> Lacking:
    assert snapshot.activity is not None
    (found,) = snapshot.activity.lacking
    return found


def test_the_candidate_is_named_with_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": 1, "table": "orders", "type": "ALL", "rows": 900}]
    found, hands = named(monkeypatch, watched(tables=("orders",)), {"format": "traditional", "rows": rows})
    assert hands.asked == [("tables", *LOGIN.argv, "--", "shop.orders")]
    assert only(found) == Lacking(
        f"{HEAVY}aaaa",
        ("shop.orders(customer,code)",),
        ("find rows by customer, code",),
        "id 1  table orders  type ALL  rows 900",
        notes=("about 57.2 MiB on disk",),
    )
    assert only(named(monkeypatch, watched())[0]).plan == ""


def test_a_statement_that_needs_a_table_twice_has_both_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT `id` FROM `orders` WHERE `customer` = ? AND `code` = ?"
    found = only(
        named(monkeypatch, watched(f"{text} UNION SELECT `id` FROM `orders` WHERE `customer` = ?"))[0]
    )
    assert found.indexes == ("shop.orders(customer,code)",)
    # Who finds rows by both finds them by the first one.
    assert found.uses == ("find rows by customer, code",)
    text = f"( {text} ) UNION ( SELECT `id` FROM `orders` WHERE `customer` = ? ORDER BY `code` LIMIT ? )"
    (use,) = only(named(monkeypatch, watched(text))[0]).uses
    assert use == "find rows by customer and spare the sort by code, or to find rows by customer, code"


@pytest.mark.parametrize(
    ("text", "tables", "why"),
    [
        ("SELECT * FROM `orders` WHERE `id` = ?", SHOP, "PRIMARY of shop.orders serves it"),
        ("SELECT * FROM `orders` WHERE DATE ( `created` ) = ?", SHOP, "DATE is applied to the column"),
        ("SELECT * FROM `orders` WHERE `customer` = ? AND ...", SHOP, "it was not read"),
        (TEXT, [], "no such table"),
        (TEXT, None, "its tables could not be read: access denied"),
    ],
)
def test_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, text: str, tables: list[dict[str, Any]] | None, why: str
) -> None:
    found = only(named(monkeypatch, watched(text), tables=tables)[0])
    assert why in found.why
    assert not found.indexes


def test_a_server_that_counts_no_classes_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for snapshot in (
        saved(),
        replace(saved(), activity=Activity(10)),
        watched("", ()),
        watched("COMMIT", ()),
    ):
        found, hands = named(monkeypatch, snapshot)
        assert found == snapshot
        assert not hands.asked


def test_prove_takes_the_index_of_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = named(monkeypatch, watched())
    finding = hunts.examine(found).finding(f"STMT02@{HEAVY}")
    assert finding is not None
    assert finding.index == "shop.orders(customer,code)"
    assert finding.next_command == "headrace prove 'index:shop.orders(customer,code)' --live"
    save(found, tmp_path / "db1.hunt")
    take = prove._with_index
    assert take([finding.id], tmp_path / "db1.hunt") == ["index:shop.orders(customer,code)"]
    for other in ("POOL01", "innodb_io_capacity=900", "index:shop.t(a)"):
        assert take([other], tmp_path / "db1.hunt") == [other]
    assert take([finding.id], tmp_path / "none.hunt") == [finding.id]


def test_an_index_of_another_host_says_how_the_server_is_reached() -> None:
    """A hunt of a target names this command, which connects from here."""
    shown = headrace("prove", "index:shop.orders(customer)", "--live", "-t", "root@db1:2222")
    assert shown.returncode == 3
    assert "--mysql-host db1" in shown.stderr
