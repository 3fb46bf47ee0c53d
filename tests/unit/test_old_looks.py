"""What an old look at the process list saw is told with its age: no sentence contradicts a newer sample."""

from __future__ import annotations

import time

import pytest

from headrace.hunt.live import Feed
from headrace.hunt.top import lists
from tests.unit.test_top_views import feed_of, shot_of

WAIT = {
    "lock": "row", "table": "shop.t", "waiter": 7, "holder": 5, "is_certain": True, "waiter_class": "update t",
    "holder_user": "app", "holder_host": "db2", "holder_open_s": 6, "holder_idle_s": 5,
}  # fmt: skip


def looked(feed: Feed, monkeypatch: pytest.MonkeyPatch, ago_s: float) -> None:
    feed.took({"statements": [WAIT]})
    now = time.monotonic()
    monkeypatch.setattr("headrace.hunt.live.time.monotonic", lambda: now + ago_s)


def test_a_holder_that_was_seen_long_ago_is_told_with_the_age_of_the_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed(feed_of().spec)
    looked(feed, monkeypatch, 17)
    assert feed.activity is not None
    assert feed.activity.waits[0].who == (
        "connection 5 of app@db2 (17 s ago: idle for 5 s, its transaction is open for 6 s)"
    )


def test_a_fresh_look_has_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of()
    looked(feed, monkeypatch, 1)
    assert feed.activity is not None
    assert "ago" not in feed.activity.waits[0].who
    assert not any("ago" in note for note in lists.notes(shot_of(feed), "locks"))


def test_the_lists_say_how_old_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of()
    looked(feed, monkeypatch, 9)
    for screen in ("locks", "processlist"):
        assert lists.notes(shot_of(feed), screen)[0].startswith("Seen 9 s ago, and the ages are of then")
