"""Marks of rollouts on charts: what was done to a host, with the verdict and the interval that decided it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.history.archive.reader import Range
from headrace.rollout.book import Book
from headrace.web import app, marks
from headrace.web.users import Role
from tests.below import go_below, private_path
from tests.history import PASSWORD, site
from tests.unit.test_rollout_expected import judged

ALL = Range(0, 4e9)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def tried(time_ratio: float = 1 / 1.15) -> tuple[Book, str]:
    """A rollout whose first host was changed, judged and keeps the change."""
    book = judged(None, time_ratio)
    host = book.plan.stages[0].hosts[0]
    for change in ("1", "2"):
        book.note("applying", host=host, change=f"{book.plan.id}-{change}")
        book.note("undone", host=host, change=f"{book.plan.id}-{change}")
    book.note("applying", host=host, change=f"{book.plan.id}-3")
    book.note("kept", host=host, change=f"{book.plan.id}-3")
    return book, host


def switch(book: Book, host: str, at_s: float = 5.0, who: str = "") -> dict[str, Any]:
    return {
        "host": host, "at_s": at_s, "kind": "applied", "what": "innodb_io_capacity", "before": "200",
        "after": "2000", "who": who or f"headrace-rollout/{book.plan.id}-1",
    }  # fmt: skip


def test_a_host_has_a_row_for_the_start_and_one_for_the_end_with_the_interval() -> None:
    book, host = tried()
    rows = marks.with_rollouts([switch(book, host), switch(book, host, 6.0, "apply/x")], [book], [host], ALL)
    assert [row["kind"] for row in rows] == ["kept", "on trial", "applied"]
    kept, trial, other = rows
    assert (kept["verdict"], trial["verdict"], trial["mark"]) == ("pass", "", "")
    assert kept["mark"].startswith("kept: server.innodb_io_capacity=2000; time per query -1")
    assert kept["effect"] in kept["mark"]
    assert " to " in kept["effect"]
    assert (kept["before"], kept["after"]) == ("200", "2000")
    assert (other["who"], other["mark"], other["verdict"]) == ("apply/x", "", "")


def test_what_was_taken_back_says_why() -> None:
    book = judged(None, 1.9)
    host = book.plan.stages[0].hosts[0]
    book.note("applying", host=host, change="1")
    [trial] = marks.with_rollouts([], [book], [host], ALL)
    assert (trial["kind"], trial["verdict"]) == ("on trial", "fail")
    book.note("aborting", why="harm", is_harmful=True)
    book.note("undone", host=host, change="1")
    last, _ = marks.with_rollouts([], [book], [host], ALL)
    assert (last["kind"], last["verdict"], last["before"], last["after"]) == (
        "taken back",
        "fail",
        "2000",
        "200",
    )


def test_the_trials_of_an_experiment_are_one_row_where_they_start_and_one_where_they_end() -> None:
    book, host = tried()
    who = "headrace-prove-STMT06-0123456789ab"
    process = {**switch(book, host, 9.0, who), "what": "process", "after": ""}
    switches = [switch(book, host, 10.0 + second, who) for second in range(5)]
    later = [switch(book, host, 4000.0 + second, who) for second in range(2)]
    rows = marks.with_rollouts(
        [*switches, process, *later, switch(book, host, 12.0, "apply/x")], [], [host], ALL
    )
    assert [(row["kind"], row["at_s"], row["who"]) for row in rows] == [
        ("trials over", 4001.0, "experiment prove-STMT06"),
        ("trials", 4000.0, "experiment prove-STMT06"),
        ("trials over", 14.0, "experiment prove-STMT06"),
        ("applied", 12.0, "apply/x"),
        ("trials", 9.0, "experiment prove-STMT06"),
    ]
    assert rows[-1]["what"] == "innodb_io_capacity"
    assert (rows[-1]["mark"], rows[-1]["after"]) == ("", "")


def test_other_hosts_and_other_times_have_none() -> None:
    book, host = tried()
    assert not marks.with_rollouts([], [book], ["elsewhere"], ALL)
    assert not marks.with_rollouts([], [book], [host], Range(0, 1000))


def test_only_logs_that_grew_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    book, host = tried()
    opened: list[str] = []
    original = Book.open

    def counted(name: str) -> Book:
        opened.append(name)
        return original(name)

    monkeypatch.setattr(Book, "open", counted)
    for _ in range(3):
        assert [each.plan.id for each in marks.books_since(0)] == [book.plan.id]
    assert opened == [book.plan.id]
    book.note("aborting", why="Ann")
    assert [each.state.aborting for each in marks.books_since(0)] == ["Ann"]
    assert not marks.books_since(4e9)
    (book.folder / "plan.json").write_text("{")
    book.note("undone", host=host, change="x")
    assert not marks.books_since(0)


def test_the_pages_show_it_with_a_link_to_the_rollout(tmp_path: Path) -> None:
    book, host = tried()
    found = site(tmp_path, (host,))
    with TestClient(app.application(found), base_url="http://localhost") as client:
        client.post("/login", data={"name": Role.VIEWER.word, "password": PASSWORD})
        go_below(client)
        for page in (f"/host?host={host}", "/changes"):
            text = client.get(page).text
            assert f'href="{private_path(client)}/rollout?id={book.plan.id}"' in text
            assert 'data-look="better"' in text
            assert 'data-mark="kept: server.innodb_io_capacity=2000; time per query' in text
        row = client.get("/api/changes.json").json()["rows"][0]
        assert (row["verdict"], row["kind"]) == ("pass", "kept")


def test_what_an_experiment_prepares_is_no_change_and_a_setting_with_two_names_changed_once() -> None:
    book, host = tried()
    made = {
        **switch(book, host, 9.0, "headrace-pool-0123456789ab/volume"),
        "what": "/var/tmp/headrace/volume",
    }
    set_ = {**switch(book, host, 10.0, ""), "kind": "settings", "before": "10", "after": "0"}
    rows = marks.with_rollouts(
        [
            made,
            {**set_, "what": "long_query_time"},
            {**set_, "what": "log_slow_query_time"},
            {**set_, "what": "log_slow_query", "after": "1"},
        ],
        [],
        [host],
        ALL,
    )
    # The second name of a variable that did not change with it is kept: nobody says that it is the same change.
    assert sorted(row["what"] for row in rows) == ["log_slow_query", "long_query_time"]
