"""What clients of a fleet waited for, with the mix held fixed; and the page of a rollout that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headrace.base.buckets import BEYOND
from headrace.history import fleet_times
from headrace.history.archive.files import HOUR_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import CLIENTS
from headrace.history.collect.readers import bucket_ending_at
from headrace.history.questions import Chart
from headrace.web import app
from headrace.web.users import Role
from tests.below import go_below, private_path
from tests.history import PASSWORD, site
from tests.unit.test_verify_served import put
from tests.unit.test_web_marks import tried

#: The start of an hour.
T0 = 1_772_000_000 // HOUR_S * HOUR_S
SPAN = Range(T0, T0 + 600)
CHANGE_S = T0 + 300
#: Calls a minute, by class and time in ms.
QUICK, SLOW = ("quick", 1), ("slow", 100)
Calls = dict[tuple[str, float], int]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive(tmp_path / "history")
    found.create()
    return found


def minutes(archive: Archive, host: str, before: Calls, after: Calls, count: int = 10) -> None:
    for i in range(count):
        t_s = T0 + 60 * i
        rows = [
            {"class": name, "bucket": BEYOND if ms < 0 else bucket_ending_at(int(ms * 1e6)), "count": n}
            for (name, ms), n in (before if t_s < CHANGE_S else after).items()
        ]
        put(archive, CLIENTS, host, t_s, [{"minutes": 1, **row} for row in rows])


def asked(archive: Archive, *hosts: str) -> fleet_times.FleetTimes:
    found = fleet_times.of_fleet(Reader(archive), hosts, SPAN, CHANGE_S)
    assert found is not None
    return found


def of(found: Chart, label: str) -> tuple[float | None, float | None]:
    """Before and after, in ms: the same in every minute of each."""
    [line] = [line for line in found.lines if line.label == label]
    before, after = {*line.mean[:5]}, {*line.mean[5:]}
    [first], [last] = before, after
    return tuple(None if s is None else round(s * 1e3, 1) for s in (first, last))  # type: ignore[return-value]


def test_more_calls_of_a_slow_class_do_not_look_like_a_slower_server(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 9700, SLOW: 300}, {QUICK: 5000, SLOW: 5000})
    found = asked(archive, "db1")
    assert of(found.worst, "clients p90") == of(found.average, "clients p90") == (1.0, 1.0)
    assert of(found.average, "clients p99") == (99.9, 99.9)
    assert any("2 classes, each with its share" in note for note in found.notes)


def test_a_class_that_became_slower_shows(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 9700, SLOW: 300}, {("quick", 4): 9700, SLOW: 9000})
    assert of(asked(archive, "db1").average, "clients p90") == (1.0, 4.0)


def test_the_worst_host_is_the_slowest_and_the_average_has_each_host_with_one_weight(
    archive: Archive,
) -> None:
    minutes(archive, "db1", {QUICK: 100_000}, {QUICK: 100_000})
    minutes(archive, "db2", {QUICK: 2000}, {("quick", 50): 2000})
    found = asked(archive, "db1", "db2")
    assert of(found.worst, "clients p90") == (1.0, 49.9)
    # Of 102,000 calls 2% are slow; of the hosts it is half.
    assert of(found.average, "clients p90") == (1.0, 49.9)
    assert found.hosts == ("db1", "db2")


def test_a_percentile_needs_a_call_beyond_it_and_a_bound(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 150}, {QUICK: 1400, ("quick", -1): 100})
    found = asked(archive, "db1").average
    assert {line.label for line in found.lines} == {"clients p90", "clients p99"}
    assert of(found, "clients p99") == (1.0, None)


def test_a_host_that_was_hardly_timed_is_named_and_left_out(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 100}, {QUICK: 100})
    minutes(archive, "db2", {("quick", 70): 100}, {}, count=2)
    found = asked(archive, "db1", "db2", "db3")
    assert found.hosts == ("db1",)
    assert of(found.worst, "clients p90") == (1.0, 1.0)
    assert [note for note in found.notes if "left out" in note] == [
        "db2 is left out: clients timed its calls in 2 of 10 points",
        "db3 is left out: clients timed its calls in 0 of 10 points",
    ]


def test_a_minute_without_a_class_of_the_mix_is_a_gap(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 700, SLOW: 300}, {QUICK: 700})
    assert of(asked(archive, "db1").average, "clients p90") == (99.9, None)


def test_nothing_was_timed(archive: Archive) -> None:
    assert fleet_times.of_fleet(Reader(archive), ["db1"], SPAN, CHANGE_S) is None


def test_a_rollouts_page_has_its_charts_where_clients_timed_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    book, host = tried()
    found = site(tmp_path, (host,))
    with TestClient(app.application(found), base_url="http://localhost") as client:
        client.post("/login", data={"name": Role.VIEWER.word, "password": PASSWORD})
        go_below(client)
        page = f"/rollout?id={book.plan.id}"
        assert 'id="times"' not in client.get(page).text
        at = next(event["t"] for event in book.events if event["kind"] == "applying")
        for i in (20, 10):
            t_s = int(at) // 60 * 60 - 60 * i
            row = {"class": "", "bucket": bucket_ending_at(2_000_000), "count": 2000, "minutes": 1}
            put(found.reader.archive, CLIENTS, host, t_s, [row])
        text = client.get(page).text
        source = f"/api/fleet_times.json?rollout={book.plan.id}&of=average"
        assert f"{private_path(client)}{source}".replace("&", "&amp;") in text
        assert 'data-mark="kept: server.innodb_io_capacity=2000; time per query' in text
        answer = client.get(source).json()
        lines = {line["label"]: [value for value in line["mean"] if value] for line in answer["lines"]}
        assert lines["clients p99.9"] == pytest.approx([2e-3, 2e-3], rel=0.01)
        assert client.get("/api/fleet_times.json?rollout=none").status_code == 404
