"""What a server executed: looks at its process list, summed up, saved and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.host.activity import MOST, Activity, Lacking, summed
from headrace.host.snapshot import load, save
from headrace.hunt import hunt
from headrace.hunt.report.page import page_of
from headrace.show import html
from tests.rules.hosts import saved
from tests.rules.locks_cases import HELD, HOT_ROW, MDL, WAIT
from tests.rules.statements_cases import DIGESTS, POINT, SCAN, looked


def test_the_share_of_looks_is_the_share_of_the_time() -> None:
    found = summed([{"statements": [SCAN, POINT]}, {"statements": [SCAN, SCAN]}, {"statements": []}])
    assert found.looks == 3
    assert [(each.text, found.threads(each)) for each in found.classes] == [
        (SCAN["class"], 1.0),
        (POINT["class"], pytest.approx(1 / 3)),
    ]


def test_a_table_without_a_database_is_in_the_sessions_own() -> None:
    rows = [{**SCAN, "tables": ["orders", "log.events"]}]
    assert summed([{"statements": rows}]).classes[0].tables == ("shop.orders", "log.events")


def test_a_failed_look_is_no_look() -> None:
    found = summed([{"error": "access denied", "statements": []}, {"statements": [SCAN]}])
    assert (found.looks, found.error) == (1, "access denied")


def test_one_that_waits_for_a_lock_is_no_work() -> None:
    found = summed([{"statements": [SCAN, POINT, {**WAIT, "waiter": POINT["id"]}]}])
    assert [each.text for each in found.classes] == [SCAN["class"]]


def test_a_lasting_holder_is_one_and_those_of_a_moment_are_one_kind() -> None:
    assert [(wait.holder, wait.sightings) for wait in HELD.waits] == [(5, 10)]
    assert [wait.sightings for wait in HOT_ROW.waits] == [10]


def test_who_holds_others_up_waits_for_nobody() -> None:
    """In a chain the one at its head has to end first, and only that one is named by rules."""
    first = {**WAIT, "lock": "row", "waiter": 6, "holder": 5, "is_certain": True, "holder_open_s": 9}
    chain = [first, {**first, "waiter": 7, "holder": 6}]
    assert [wait.holder for wait in summed([{"statements": chain}]).waits] == [5]
    # A lock on metadata that is held by one who waits for a row is another matter.
    both = [first, {**first, "lock": "metadata", "waiter": 7, "holder": 6}]
    assert {wait.holder for wait in summed([{"statements": both}]).waits} == {5, 6}


def test_an_idle_holder_of_an_old_server_is_said_to_be_a_guess() -> None:
    guess = {**WAIT, "is_certain": False, "holder_class": None}
    wait = summed([{"statements": [guess]}]).waits[0]
    assert wait.what == (
        "unknown: it is not executing a statement, and performance_schema has no last statement of it"
    )
    nobody = summed([{"statements": [{**guess, "holder": None}]}]).waits[0]
    assert nobody.who == "a connection that the server does not name"


def test_statements_that_differ_each_time_take_no_more_room() -> None:
    many = ({"statements": [{**POINT, "class": f"select {n}"}, SCAN]} for n in range(20 * MOST))
    found = summed(many)
    assert len(found.classes) == MOST
    assert found.classes[0].text == SCAN["class"]


@pytest.mark.parametrize("activity", [HELD, HOT_ROW, DIGESTS, looked(SCAN), None])
def test_a_saved_hunt_keeps_it(activity: Activity | None, tmp_path: Path) -> None:
    save(replace(saved(), activity=activity), tmp_path / "a.hunt")
    assert load(tmp_path / "a.hunt").activity == activity


def test_a_hostile_statement_is_text_in_the_page() -> None:
    script = "select * from `<script>alert(1)</script>` where a = ?"
    held = summed([{"statements": [{**WAIT, "holder_class": script}]}])
    page = html.render(page_of(hunt.examine(replace(saved(gauges=MDL), activity=held))))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_looks_that_were_left_out_are_counted() -> None:
    found = summed([{"statements": [SCAN], "spared": 7}, {"error": "gone", "spared": 2}, {"statements": []}])
    assert (found.looks, found.spared) == (2, 9)
    found = replace(found, lacking=(Lacking("0a1b", ("shop.t(a,b)",), ("find rows by a",), why="x"),))
    assert Activity.of_json(json.loads(json.dumps(found.to_json()))) == found
    old = {key: value for key, value in found.to_json().items() if key != "spared"}
    assert Activity.of_json(old).spared == 0


def test_the_oldest_transaction_is_no_wait(tmp_path: Path) -> None:
    row = {**WAIT, "lock": "open", "waiter": 0, "holder": 9, "holder_open_s": 78, "holder_user": "report"}
    found = summed([{"statements": [SCAN]}, {"statements": [SCAN, row]}])
    assert found.waits == ()
    assert found.oldest is not None
    assert (found.oldest.holder, found.oldest.holder_user, found.oldest.holder_open_s) == (9, "report", 78.0)
    save(replace(saved(), activity=found), tmp_path / "a.hunt")
    assert load(tmp_path / "a.hunt").activity == found
