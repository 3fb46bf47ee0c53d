"""Alerts: what is raised, told once, held back, told again and over; and what a simulated host is told of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from benches import alerts as bench

from headrace.base.clocks import Clocks
from headrace.base.errors import PlanError, TargetError
from headrace.history.archive.files import DAY_S, HOUR_S, WEEK_S, Archive
from headrace.history.archive.reader import Reader
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, TABLES
from headrace.history.collect.minute import table_of
from headrace.show.notice import Conclusion, Notice
from headrace.web import usual
from headrace.web.alerts import CLEAR_S, SERVE, Alerts, Quiet, quiet_of
from headrace.web.signs import EVERY_S, LOOKS, Busy, Kind, Look, signs_of
from headrace.web.usual import Usual
from tests.history import state

HOUR = 480_000
NOW_S = float(HOUR * HOUR_S + 30)
#: Ten days of hours in which nothing limited the host, and one class took a millisecond.
HOURS = [(HOUR - i) * HOUR_S for i in range(1, 240)]
CALM = Usual(
    frozenset(HOURS),
    {},
    {"a": dict.fromkeys(HOURS, (3600.0, 3600e6))},
    {"/": {hour: 1e12 - (hour - HOURS[-1]) for hour in HOURS}},
)
FINE = Look(
    NOW_S,
    limiting="",
    classes={"a": Busy(1000.0, 0.04)},
    connections=(10, 100),
    replicas={"": 0.0},
    room={"/": 1e12},
)


def raised(look: Look, before: Look | None = None, known: Usual = CALM) -> set[tuple[Kind, str]]:
    found = signs_of(look, before, known, 3.0).found
    return {key for key, sign in found.items() if sign.is_raised}


@pytest.mark.parametrize(
    ("look", "kind"),
    [
        (FINE, None),
        (replace(FINE, limiting="cpu"), Kind.BOTTLENECK),
        (replace(FINE, classes={"b": Busy(100.0, 1.0)}), Kind.NEW_CLASS),
        (replace(FINE, classes={"b": Busy(100.0, 0.1)}), None),
        (replace(FINE, classes={"a": Busy(1000.0, 0.4)}), Kind.SLOWER),
        (replace(FINE, classes={"a": Busy(5.0, 0.4)}), None),
        (replace(FINE, connections=(84, 100)), None),
        (replace(FINE, connections=(86, 100)), Kind.CONNECTIONS),
        (replace(FINE, replicas={"": 31.0}), Kind.REPLICA),
        (replace(FINE, replicas={"": math.inf}), Kind.REPLICA),
        (replace(FINE, replicas={"": 12.0}), Kind.REPLICA),
        (replace(FINE, replicas={"": 4.0}), None),
        (replace(FINE, room={"/": 0.9e12}), Kind.DISK),
        (replace(FINE, room={"/": 0.9999e12}), None),
        (replace(FINE, refusal="access denied"), Kind.LOST),
        (Look(NOW_S, "connection refused"), Kind.LOST),
    ],
)
def test_what_is_reason_for_an_alert(look: Look, kind: Kind | None) -> None:
    before = replace(FINE, at_s=NOW_S - EVERY_S, room={"/": 1e12})
    assert {key[0] for key in raised(look, before)} == ({kind} if kind else set())


def test_without_a_past_nothing_is_new_but_a_limit_is_a_limit() -> None:
    look = replace(FINE, limiting="cpu", classes={"b": Busy(9.0, 3.0)}, connections=(99, 100))
    assert raised(look, known=Usual()) == {(Kind.CONNECTIONS, "")}


def test_without_counts_what_the_process_list_shows_can_be_new_and_not_slower() -> None:
    known = replace(CALM, classes={}, seen=frozenset("a"), looked=frozenset(HOURS))
    look = replace(FINE, is_sampled=True, classes={"a": Busy(0.0, 9.0), "b": Busy(0.0, 2.0)})
    assert raised(look, known=known) == {(Kind.NEW_CLASS, "b")}
    assert Kind.SLOWER in signs_of(look, None, known, 3.0).unknown


def test_a_source_of_classes_that_was_just_turned_on_makes_none_new() -> None:
    look = replace(FINE, classes={"b": Busy(100.0, 1.0)})
    few = dict.fromkeys(HOURS[:20], (3600.0, 3600000000.0))
    assert not raised(look, known=replace(CALM, classes={"a": few}))
    sampled = replace(look, is_sampled=True)
    assert not raised(sampled, known=replace(CALM, seen=frozenset("a"), looked=frozenset(HOURS[:20])))


@pytest.mark.parametrize(
    ("days", "is_usual"),
    [((1,), False), ((1, 2), True), ((7,), True), ((4, 5), True), ((), False)],
)
def test_a_bottleneck_at_this_time_of_other_days_is_usual(days: tuple[int, ...], is_usual: bool) -> None:
    at = {HOUR * HOUR_S - day * DAY_S: 20.0 for day in days}
    assert replace(CALM, limits={"cpu": at}).has_limit("cpu", NOW_S) == is_usual
    elsewhere = {hour + 6 * HOUR_S: minutes for hour, minutes in at.items() if hour + DAY_S < NOW_S}
    assert not replace(CALM, limits={"cpu": elsewhere}).has_limit("cpu", NOW_S)


def test_what_is_slow_every_night_is_usual_and_one_bad_day_is_not() -> None:
    calm = dict.fromkeys(HOURS, (3600.0, 3600e6))

    def mean_ns(days: tuple[int, ...]) -> float | None:
        slow = {HOUR * HOUR_S - day * DAY_S: (3600.0, 36000e6) for day in days}
        return replace(CALM, classes={"a": calm | slow}).mean_ns("a", NOW_S)

    assert mean_ns((3,)) == pytest.approx(1e6)
    assert mean_ns((3, 4)) == mean_ns((7,)) == pytest.approx(10e6)
    assert CALM.mean_ns("never seen", NOW_S) is None


def test_a_purge_does_not_hide_growth_and_a_sawtooth_is_none() -> None:
    first = HOURS[-1]
    grows = {hour: 1e12 - (hour - first) * 2e6 - 1e9 * (hour % DAY_S == 0) for hour in HOURS}
    assert replace(CALM, room={"/": grows}).full_in_days("/", 2e11) == pytest.approx(1.157, abs=0.02)
    saw = {hour: 1e12 - hour % DAY_S * 1e6 for hour in HOURS}
    assert replace(CALM, room={"/": saw}).full_in_days("/", 9e11) > 100


class Told:
    """A place."""

    def __init__(self) -> None:
        self.got: list[Notice] = []
        self.is_down = False

    def __call__(self, notice: Notice) -> None:
        if self.is_down:
            raise TargetError("no answer within 10 s")
        self.got.append(notice)


@pytest.fixture
def place() -> Told:
    return Told()


@pytest.fixture
def made(tmp_path: Path, place: Told) -> Callable[..., Alerts]:
    def make(*quiet: Quiet) -> Alerts:
        return Alerts(tmp_path / "alerts.jsonl", {"webhook:x": place}, quiet, link="https://db.example/")

    return make


def looks(alerts: Alerts, look: Look, since_s: float, seconds: float) -> float:
    """Looks for so long, each told; the time after them."""
    at_s = since_s
    while at_s < since_s + seconds:
        alerts.look("db1", replace(look, at_s=at_s), CALM, lambda name: f"SELECT {name}")
        alerts.tell(at_s)
        at_s += EVERY_S
    return at_s


def test_an_alert_is_told_once_and_when_it_is_over(made: Callable[..., Alerts], place: Told) -> None:
    alerts = made()
    at_s = looks(alerts, replace(FINE, limiting="cpu", sentence="CPU time limits this host."), NOW_S, 3600)
    [notice] = place.got
    assert (notice.subject, notice.conclusion) == ("db1: new bottleneck: cpu", Conclusion.RAISED)
    assert notice.headline == "CPU time limits this host."
    assert notice.link == "https://db.example/host?host=db1"
    assert notice.at_s == NOW_S + (LOOKS[Kind.BOTTLENECK] - 1) * EVERY_S
    # It comes and goes: still the same one.
    at_s = looks(alerts, FINE, at_s, CLEAR_S / 2)
    at_s = looks(alerts, replace(FINE, limiting="cpu"), at_s, 100)
    assert len(place.got) == 1
    looks(alerts, FINE, at_s, CLEAR_S + 2 * EVERY_S)
    assert [each.conclusion for each in place.got] == [Conclusion.RAISED, Conclusion.RESOLVED]
    assert place.got[0].id == place.got[1].id
    assert [bool(each.resolved_s) for each in alerts.known] == [True]


def test_short_trouble_is_not_told(made: Callable[..., Alerts], place: Told) -> None:
    alerts = made()
    at_s = NOW_S
    for _ in range(20):
        at_s = looks(alerts, replace(FINE, connections=(99, 100)), at_s, 60)
        at_s = looks(alerts, FINE, at_s, 60)
    assert place.got == []


def test_unknown_neither_begins_nor_ends_an_alert(made: Callable[..., Alerts], place: Told) -> None:
    alerts = made()
    at_s = looks(alerts, replace(FINE, connections=(99, 100)), NOW_S, 200)
    at_s = looks(alerts, Look(NOW_S, "connection refused"), at_s, 2 * CLEAR_S)
    assert [each.subject for each in place.got] == [
        "db1: connections near the limit",
        "db1: host not answering",
    ]
    looks(alerts, replace(FINE, connections=None), at_s, 2 * CLEAR_S)
    assert [each.subject for each in place.got[2:]] == ["db1: host not answering"]


def test_a_monitors_class_is_not_told(made: Callable[..., Alerts], place: Told) -> None:
    alerts = made()
    for i in range(10):
        alerts.look(
            "db1", replace(FINE, at_s=NOW_S + i * EVERY_S, classes={"b": Busy(9.0, 3.0)}), CALM, lambda _: ""
        )
    alerts.tell(NOW_S + 300)
    assert place.got == []
    looks(alerts, replace(FINE, classes={"b": Busy(9.0, 3.0)}), NOW_S + 300, 100)
    assert place.got[0].headline.endswith("SELECT b")


def test_a_place_that_is_down_is_tried_again_and_a_restart_tells_nothing_twice(
    made: Callable[..., Alerts], place: Told
) -> None:
    alerts, place.is_down = made(), True
    full = replace(FINE, connections=(99, 100))
    at_s = looks(alerts, full, NOW_S, 300)
    assert alerts.problems == {"webhook:x": "no answer within 10 s"}
    # The process ends before anybody was told.
    alerts = made()
    place.is_down = False
    alerts.tell(time.time() + 1)
    looks(alerts, full, at_s, 300)
    assert len(place.got) == 1
    assert not alerts.problems
    again = made()
    looks(again, full, at_s + 300, 300)
    assert len(place.got) == 1
    looks(again, FINE, at_s + 600, 2 * CLEAR_S)
    assert [each.conclusion for each in place.got] == [Conclusion.RAISED, Conclusion.RESOLVED]


def test_in_quiet_hours_nothing_is_told_and_what_stands_at_their_end_is(
    made: Callable[..., Alerts], place: Told
) -> None:
    local = datetime.fromtimestamp(NOW_S)
    minute = local.hour * 60 + local.minute
    alerts = made(Quiet(minute, (minute + 60) % 1440))
    at_s = looks(alerts, replace(FINE, replicas={"": math.inf}), NOW_S, 600)
    looks(alerts, replace(FINE, connections=(99, 100)), at_s, 3600 - 600 + 120)
    assert [each.subject for each in place.got] == ["db1: connections near the limit"]
    assert len(alerts.known) == 2, "the page has both"


def test_serve_that_collects_nothing_is_told_at_once(made: Callable[..., Alerts], place: Told) -> None:
    alerts = made()
    alerts.collection("nothing is collected: no room on the disk", NOW_S)
    alerts.tell(NOW_S)
    [notice] = place.got
    assert notice.subject == f"{SERVE}: nothing is collected"
    assert notice.headline == "Nothing is collected: no room on the disk."


@pytest.mark.parametrize(
    ("word", "at", "holds"),
    [
        ("22:00-07:00", "2026-03-04 23:00", True),
        ("22:00-07:00", "2026-03-04 06:59", True),
        ("22:00-07:00", "2026-03-04 07:00", False),
        ("12:00-13:30", "2026-03-04 13:29", True),
        ("fri 22:00-07:00", "2026-03-07 06:00", True),
        ("fri 22:00-07:00", "2026-03-06 06:00", False),
        ("sat,sun 00:00-24:00", "2026-03-08 23:59", True),
        ("sat,sun 00:00-24:00", "2026-03-09 00:00", False),
    ],
)
def test_quiet_hours(word: str, at: str, holds: bool) -> None:
    assert quiet_of(word).holds(datetime.fromisoformat(at).timestamp()) == holds


@pytest.mark.parametrize(
    "word", ["", "22-7", "22:00", "25:00-07:00", "xyz 22:00-07:00", "07:00-07:00", "24:01-07:00"]
)
def test_what_is_no_quiet_hours_is_refused(word: str) -> None:
    with pytest.raises(PlanError):
        quiet_of(word)


def test_what_is_usual_is_read_of_the_history(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "history")
    archive.create()
    now_s = int(time.time()) // HOUR_S * HOUR_S
    rows = {
        "states": [state("cpu")],
        "classes": [
            {"source": PERFORMANCE_SCHEMA, "class": "a", "database": "d", "calls": 60, "time_ns": 60e6},
            {"source": PERFORMANCE_SCHEMA, "class": "a", "database": "e", "calls": 60, "time_ns": 60e6},
            {"source": PROCESS_LIST, "class": "", "database": "", "seen": 0, "looks": 30},
            {"source": PROCESS_LIST, "class": "p", "database": "d", "seen": 3, "looks": 30},
        ],
        "metrics": [
            {"metric": "file system available", "label": "/", "n": 1, "sum": 5, "least": 5, "most": 5}
        ],
    }
    for i in range(1, 4):
        for table, of in rows.items():
            t_s = now_s - i * HOUR_S
            archive.write(TABLES[table], "db1", "h", t_s, table_of(TABLES[table], of, t_s))
    found = usual.read(Reader(archive), "db1", now_s + 5)
    hours = [now_s - i * HOUR_S for i in (1, 2, 3)]
    assert sorted(found.hours, reverse=True) == hours
    assert found.limits == {"cpu": dict.fromkeys(hours, 1)}
    assert found.classes == {"a": dict.fromkeys(hours, (120, 120e6))}
    assert found.room == {"/": dict.fromkeys(hours, 5.0)}
    assert (found.seen, found.looked) == (frozenset({"", "p"}), frozenset(hours))
    assert not found.is_learned
    assert WEEK_S == 7 * DAY_S


def test_two_simulated_days_have_no_false_alert_and_every_planted_change_is_told(tmp_path: Path) -> None:
    """The bench does the same for years."""
    found = bench.audit(1, 2.0, 7, tmp_path, first_day=1.2, lasts_s=1200.0)
    assert sum(map(len, found.took_s.values())) == 7
    assert found.told_share == 1.0, found.took_s
    assert len(found.false) <= 1, found.false


@pytest.mark.parametrize("set_by_s", [3600.0, 3650 * DAY_S, -3650 * DAY_S])
def test_a_clock_that_is_set_neither_ends_an_alert_nor_keeps_it_from_being_told(
    made: Callable[..., Alerts], place: Told, monkeypatch: pytest.MonkeyPatch, set_by_s: float
) -> None:
    wall_s = NOW_S
    monkeypatch.setattr(Clocks, "now", lambda: Clocks(wall_s, 1000.0, "boot"))
    alerts = made()
    limited = replace(FINE, limiting="cpu")
    place.is_down = True
    at_s = looks(alerts, limited, NOW_S, 3600)
    assert not place.got
    # There, and back: what could not be told is not given up, and is tried again.
    for wall_s in (NOW_S + set_by_s, NOW_S):
        at_s = looks(alerts, limited, at_s - NOW_S + wall_s if wall_s != NOW_S else at_s - set_by_s, 100)
    assert [each.resolved_s for each in alerts.known] == [0.0]
    place.is_down = False
    at_s = looks(alerts, limited, at_s, 100)
    assert [each.conclusion for each in place.got] == [Conclusion.RAISED]
    # A moment without the sign, while the clock is set, is no end of it; ten minutes without are.
    wall_s = NOW_S + set_by_s
    at_s = looks(alerts, FINE, at_s + set_by_s, CLEAR_S / 2)
    assert len(place.got) == 1
    wall_s = NOW_S
    looks(alerts, FINE, at_s - set_by_s, CLEAR_S)
    assert [each.conclusion for each in place.got] == [Conclusion.RAISED, Conclusion.RESOLVED]
