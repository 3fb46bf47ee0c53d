"""What clients of a fleet waited for, with the mix held fixed; and the page of a rollout that shows it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headrace.base.buckets import BEYOND
from headrace.change import fleet_times
from headrace.history.archive.files import HOUR_S, Archive
from headrace.history.archive.reader import Range
from headrace.history.archive.tables import CLIENTS
from headrace.history.collect.readers import bucket_ending_at
from headrace.history.questions import Chart
from headrace.web import app
from headrace.web.users import Role
from tests.below import go_below, private_path
from tests.history import PASSWORD, site
from tests.unit.test_verify_served import calls, put, watched
from tests.unit.test_web_marks import tried

#: The start of an hour.
T0 = 1_772_000_000 // HOUR_S * HOUR_S
CHANGE_S = T0 + 1800
SPAN = Range(T0, T0 + 3600)
#: Calls a minute, by class and bound in ms.
Calls = dict[tuple[str, float], int]
QUICK, SLOW = ("quick", 1), ("slow", 100)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive(tmp_path / "history")
    found.create()
    return found


def minutes(archive: Archive, host: str, before: Calls, after: Calls, upto: int = 60) -> None:
    for i in range(upto):
        t_s = T0 + 60 * i
        rows = [
            {
                "class": name,
                "bucket": BEYOND if ms < 0 else bucket_ending_at(int(ms * 1e6)),
                "count": n,
                "minutes": 0,
            }
            for (name, ms), n in (before if t_s < CHANGE_S else after).items()
        ]
        put(archive, CLIENTS, host, t_s, [*rows, {"class": "", "bucket": 0, "count": 0, "minutes": 1}])
        watched(archive, host, t_s)


def asked(archive: Archive, *hosts: str) -> fleet_times.FleetTimes:
    found = fleet_times.over_time(archive.root, hosts, CHANGE_S, SPAN)
    assert found is not None
    return found


def of(found: Chart, label: str) -> tuple[float | None, float | None]:
    """Before and after, in ms: the same in every block of each."""
    [line] = [line for line in found.lines if line.label == label]
    half = sum(t < CHANGE_S for t in found.t_s)
    assert half == 6
    [before], [after] = {*line.mean[:half]}, {*line.mean[half:]}
    return before and before * 1e3, after and after * 1e3


def test_more_calls_of_a_slow_class_do_not_look_like_a_slower_server(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 9700, SLOW: 300}, {QUICK: 5000, SLOW: 5000})
    found = asked(archive, "db1")
    for chart in (found.worst, found.average):
        assert of(chart, "clients p90") == pytest.approx((1, 1), rel=0.1)
        # Within its bucket, of 1 to 100 ms, it is interpolated: of the slow class 2 of 3 are below it.
        assert of(chart, "clients p99") == pytest.approx((100 ** (2 / 3), 100 ** (2 / 3)), rel=0.1)


def test_a_class_that_became_slower_shows(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 9700, SLOW: 300}, {("quick", 4): 9700, SLOW: 9000})
    assert of(asked(archive, "db1").average, "clients p90") == pytest.approx((1, 4), rel=0.1)


def test_the_worst_host_is_the_slowest_and_the_average_has_each_host_with_one_weight(
    archive: Archive,
) -> None:
    minutes(archive, "db1", {QUICK: 100_000}, {QUICK: 100_000})
    minutes(archive, "db2", {QUICK: 2000}, {("quick", 64): 2000})
    found = asked(archive, "db1", "db2")
    assert of(found.worst, "clients p90") == pytest.approx((1, 64**0.9), rel=0.1)
    assert of(found.average, "clients p90") == pytest.approx((1, 64**0.45), rel=0.1)
    assert found.hosts == ("db1", "db2")


def test_a_percentile_needs_calls_beyond_it_and_a_bound(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 300}, {QUICK: 2800, ("quick", -1): 200})
    found = asked(archive, "db1").average
    assert {line.label for line in found.lines} == {"clients p90", "clients p99"}
    assert of(found, "clients p99")[1] is None


def test_a_source_whose_calls_are_all_beyond_its_last_bound_has_no_times(archive: Archive) -> None:
    minutes(archive, "db1", {("quick", -1): 300}, {("quick", -1): 300})
    assert fleet_times.over_time(archive.root, ["db1"], CHANGE_S, SPAN) is None


def test_a_host_that_was_hardly_timed_is_named_and_left_out(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 100}, {QUICK: 100})
    minutes(archive, "db2", {("quick", 70): 100}, {("quick", 70): 100}, upto=35)
    for minute in range(30):
        archive.path(CLIENTS.name, "db2", "m", T0 + 60 * minute).unlink() if minute % 10 else None
    found = asked(archive, "db1", "db2", "db3")
    assert found.hosts == ("db1",)
    assert of(found.worst, "clients p90") == pytest.approx((1, 1), rel=0.1)
    assert [note.partition(":")[0] for note in found.notes if "left out: it has" in note] == [
        "db2 is left out",
        "db3 is left out",
    ]


def test_the_servers_own_time_stands_beside_it(archive: Archive) -> None:
    minutes(archive, "db1", {QUICK: 300}, {QUICK: 300})
    for i in range(60):
        calls(1.0, seed=i)(archive, "db1", T0 + 60 * i)
    labels = [line.label for line in asked(archive, "db1").average.lines]
    assert labels == ["clients p90", "clients p99", "server p99 (slow log)"]


def test_nothing_was_timed(archive: Archive) -> None:
    assert fleet_times.over_time(archive.root, ["db1"], CHANGE_S, SPAN) is None


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
        # The change was just made: what follows is in minutes to come.
        for i in range(-20, 20):
            t_s = int(at) // 60 * 60 + 60 * i
            row = {"class": "", "bucket": bucket_ending_at(2_000_000), "count": 2000, "minutes": 1}
            put(found.reader.archive, CLIENTS, host, t_s, [row])
            watched(found.reader.archive, host, t_s)
        monkeypatch.setattr(time, "time", lambda: at + 1200)
        text = client.get(page).text
        source = f"/api/fleet_times.json?rollout={book.plan.id}&of=average"
        assert f"{private_path(client)}{source}".replace("&", "&amp;") in text
        assert 'data-mark="kept: server.innodb_io_capacity=2000; time per query' in text
        answer = client.get(source).json()
        lines = {line["label"]: [value for value in line["mean"] if value] for line in answer["lines"]}
        assert lines["clients p99"] == pytest.approx([2e-3] * len(lines["clients p99"]), rel=0.1)
        assert len(lines["clients p99"]) > 4
        assert client.get("/api/fleet_times.json?rollout=none").status_code == 404
