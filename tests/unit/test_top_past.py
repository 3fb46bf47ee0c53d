"""`headrace top`: the last hour, figures over time, filters, what a tall terminal shows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.hunt.commands import live
from headrace.hunt.commands.live import Live
from headrace.hunt.live import Feed
from headrace.hunt.top import below, lines, locks, screen
from headrace.hunt.top import shot as shots
from headrace.hunt.top.past import KEEP_EVERY_S, KEPT_S, OLD_EVERY_S, Past
from headrace.hunt.top.screen import Pages, Position, press
from headrace.hunt.top.series import Point, Series
from headrace.hunt.top.shot import Shot, concluded
from tests.unit.test_top_advice import blocked
from tests.unit.test_top_views import feed_of, shot_of, text_of


def hour_of(feed: Feed, seconds: int) -> tuple[Past, Shot]:
    """The same shot every second, which differs in its clock and in who waits."""
    past, shot = Past(), shot_of(feed)
    for second in range(seconds):
        listed = {"locks": [], "processlist": [{"id": second, "time_s": 1, "class": f"select {second}"}]}
        shot = replace(shot, clock=f"second {second}", listed=listed)
        past.add(shot, float(second))
    return past, shot


def test_the_last_hour_is_kept_and_no_more() -> None:
    past, _ = hour_of(feed_of(), 40)
    assert len(past.series.points) == 40
    assert past.moments() == [0, 5, 10, 15, 20, 25, 30, 35]
    feed = feed_of()
    shot = shot_of(feed)
    for second in range(40, int(KEPT_S) + 26, 5):
        past.add(shot, float(second))
    moments = past.moments()
    assert moments[0] == past.series.points[0].t_s + 5 == 30
    assert moments[-1] == KEPT_S + 25
    assert moments[1] - moments[0] == OLD_EVERY_S
    assert moments[-1] - moments[-2] == KEEP_EVERY_S
    assert past.step(moments[1], -5.0) == moments[0]
    assert past.step(moments[0], 5.0) == moments[1]


def test_a_moment_of_the_past_is_whole() -> None:
    feed = feed_of()
    past, newest = hour_of(feed, 40)
    shot = past.shot(15.0, 40.0)
    assert shot is not None
    assert (shot.clock, shot.back_s) == ("second 15", 25.0)
    assert shot.verdict == newest.verdict
    now = text_of(newest).splitlines()[1:18]
    assert text_of(shot).splitlines()[1:18] == now
    assert "25 s AGO (end: now)" in text_of(shot)
    assert "select 15" in text_of(shot, Position("processlist"), width=120)
    assert shot.series is not None
    assert shot.series.points[-1].t_s == 15


@pytest.mark.parametrize(
    ("at_s", "seconds", "moment"),
    [
        (None, -5.0, 35.0), (35.0, -5.0, 30.0), (None, -60.0, 0.0), (0.0, -5.0, 0.0), (30.0, 5.0, 35.0),
        (35.0, 5.0, None), (10.0, 60.0, None), (None, 5.0, None),
    ],
)  # fmt: skip
def test_steps_through_the_past(at_s: float | None, seconds: float, moment: float | None) -> None:
    past, _ = hour_of(feed_of(), 40)
    assert past.step(at_s, seconds) == moment
    assert Past().step(None, -5.0) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.hunt.top.past.MOST_BYTES", 20_000)
    past, _ = hour_of(feed_of(), 60)
    assert 1 <= len(past.moments()) < 60 / KEEP_EVERY_S
    assert past.moments()[-1] == 55


@pytest.mark.parametrize(
    ("values", "width", "top", "drawn"),
    [
        ([0.0, 4.0, 8.0], 3, 0.0, "▁▄█"),
        ([None, 0.0, None, 8.0], 4, 0.0, " ▁ █"),
        ([1.0, 1.0], 2, 8.0, "▁▁"),
        ([0.001, 1000.0], 2, 0.0, "▁█"),
        ([8.0], 4, 0.0, "   █"),
        ([0.0, 0.0, 8.0, 8.0], 2, 0.0, "▁█"),
        ([], 3, 0.0, "   "),
        ([None, None], 2, 0.0, "  "),
    ],
)
def test_sparklines(values: list[float | None], width: int, top: float, drawn: str) -> None:
    assert lines.sparkline(values, width, top) == drawn


def test_a_second_without_a_sample_is_a_gap() -> None:
    points = [Point(float(t), {"running": float(t)}, {"row locks": 2.0}) for t in (1, 2, 5)]
    assert Series(points).of("running", 5) == [1.0, 2.0, None, None, 5.0]
    assert Series(points).of("unknown", 2) == [None, None]
    assert Series(points).waiting("row locks", 5) == [2.0, 2.0, None, None, 2.0]
    assert Series().of("running", 2) == [None, None]


def busy() -> Shot:
    feed = feed_of()
    blocked(feed)
    past, _ = hour_of(feed, 30)
    return replace(shot_of(feed), series=past.series)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_a_screen_is_used_and_nothing_of_the_verdict_is_cut(width: int, height: int) -> None:
    shot = busy()
    for name in ("overview", "locks"):
        drawn = text_of(shot, Position(name), width, height).splitlines()
        assert sum(map(bool, drawn)) > height / 3, name
    text = " ".join(text_of(shot, width=width, height=height).split())
    assert shot.verdict.sentence in text
    assert "▁" in text
    if height >= 40:
        assert "sessions at work, by what they wait for" in text
        assert "update t set n = ?" in text
        assert "last statement unknown" not in text.partition("connection")[2].partition("└")[0]


def test_a_tall_screen_has_courses_of_figures_with_their_limits() -> None:
    shot = busy()
    drawn = [line.plain for line in below.figures(shot, 200, 20)]
    assert drawn[0].startswith("the last ")
    assert any("statements" in line and "12,000/s" in line and "≤12,000/s" in line for line in drawn)
    assert below.figures(replace(shot, series=None), 200, 20) == []


def test_a_filter_is_written_kept_and_removed() -> None:
    at = Position("processlist")
    for key, character in (("slash", "/"), ("q", "q"), ("3", "3"), ("backspace", ""), ("question_mark", "?")):
        at = press(key, at, [], character)
    assert (at.filter, at.typing, at.screen) == ("q?", True, "processlist")
    at = press("enter", at, [])
    assert (at.filter, at.typing) == ("q?", False)
    assert press("escape", at, []) == Position("processlist")
    assert press("escape", press("escape", at, []), []) == Position()
    assert not press("slash", Position(), []).typing
    rows: list[dict[str, Any]] = [
        {"id": 1, "user": "App", "time_s": 2, "class": "select"}, {"id": 2, "user": "web", "time_s": 1},
    ]  # fmt: skip
    shot = replace(shot_of(feed_of()), listed={"processlist": rows})
    at = Position("processlist", filter="aPP")
    assert screen.names(shot, at) == ["1"]
    text = text_of(shot, at, width=100)
    assert "only rows with 'aPP': 1 of 2" in text
    assert "only rows with 'zzz': 0 of 2" in text_of(shot, replace(at, filter="zzz"), width=100)


def test_who_sleeps_in_a_transaction_is_listed_and_the_others_are_counted() -> None:
    feed = feed_of()
    blocked(feed)
    values = {"threads": {"Query": 2, "Sleep": 40}}
    feed.ring.add({"t_ns": feed.ring.newest_s * 1e9, "sampler": "processlist", "ok": True, "values": values})
    text = text_of(shot_of(feed), Position("processlist"), width=120)
    row = next(line for line in text.splitlines() if "idle in transaction" in line)
    assert row.split()[:2] == ["5", "app"]
    assert "40 connections asleep" in text
    assert "information_schema.PROCESSLIST" in text


def test_what_ends_a_connection_is_copied_and_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of()
    blocked(feed)
    shot = shot_of(feed)
    assert locks.kill(shot, "5") == "KILL 5;"
    assert locks.kill(shot, "6") == locks.kill(shot, "5; DROP TABLE t") == ""
    page = text_of(shot, Position("locks", page="5"), width=100)
    assert "how many it has locked and changed is not sampled" in page
    assert "trx_mysql_thread_id = 5\\G" in page
    drawn = screen.draw(shot, Position("locks"), Pages(), 80, 24, said="KILL 5;  copied")
    assert drawn[-1].plain.startswith("KILL 5;  copied")


async def test_keys_go_back_in_time_and_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of()
    blocked(feed)

    async def still(*_: Any) -> None:
        return None

    monkeypatch.setattr(Feed, "run", still)
    monkeypatch.setattr(Feed, "look", still)
    copied: list[str] = []
    app = Live(feed)
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        app.tick()
        await pilot.press("7", "c")
        assert copied == ["KILL 5;"]
        assert "nothing was sent" in app.shown[-1].plain
        await pilot.press("left")
        assert "AGO (end: now)" in app.shown[0].plain
        await pilot.press("end")
        assert "AGO" not in app.shown[0].plain
        await pilot.press("/", "q", "p", "c", "left")
        assert "only rows with 'qpc_': 0 of 3" in app.shown[1].plain
        await pilot.press("escape", "4", "left", "enter")
        assert "The past has no plans" in app.shown[1].plain


def test_a_verdict_is_made_with_the_rules_and_not_with_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], []

    def counted(*arguments: Any) -> Any:
        made.append(now[0])
        return concluded(*arguments)

    monkeypatch.setattr(
        live, "time", SimpleNamespace(monotonic=lambda: now[0], strftime=lambda _: "12:00:00")
    )
    monkeypatch.setattr(live, "concluded", counted)
    monkeypatch.setattr(shots, "concluded", counted)
    monkeypatch.setattr(Live, "draw", lambda _: None)
    app = Live(feed_of())
    for _ in range(9):
        app.tick()
        assert app.shot is not None
        assert app.shot.verdict.sentence
        now[0] += 1.0
    assert made == [100.0, 100.0 + live.VERDICT_EVERY_S, 100.0 + 2 * live.VERDICT_EVERY_S]
