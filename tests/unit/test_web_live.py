"""Live figures: one stream however many look, and none when nobody does; the tables' two other forms."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headrace.base.errors import PlanError
from headrace.fleet.host import Host
from headrace.history.archive.files import MINUTE_S
from headrace.history.collect.watched import Watched, watched
from headrace.host.target import TargetSpec
from headrace.web import api, app, live
from headrace.web.asked import Asked, seconds_of
from headrace.web.listing import Column, Listing
from headrace.web.pages import TABLES
from tests.below import go_below
from tests.history import fill, site

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def host() -> Watched:
    return watched(Host("db1", TargetSpec("local")))


async def first(stream: AsyncIterator[str]) -> str:
    return await anext(stream)


async def test_two_hundred_look_at_one_stream(host: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def shot(_: Watched) -> dict[str, int]:
        nonlocal made
        made += 1
        return {"number": made}

    monkeypatch.setattr(live, "shot_of", shot)
    monkeypatch.setattr(live, "EVERY_S", 0.01)
    streams = live.Streams()
    looking = [streams.follow(host) for _ in range(200)]
    seen = await asyncio.gather(*(first(each) for each in looking))
    assert streams.looking == 200
    assert made < 20, "a shot is made once for all"
    assert all(json.loads(each)["number"] >= 1 for each in seen)
    # A reader that stops does not slow the others, and gets the newest when it comes back.
    at = made
    while made < at + 5:
        await anext(looking[0])
    assert json.loads(await anext(looking[1]))["number"] > at
    for each in looking:
        await each.aclose()  # type: ignore[attr-defined]
    assert streams.looking == 0
    stopped = made
    await asyncio.sleep(0.05)
    assert made == stopped, "nobody looks: nothing is made"


async def test_there_is_room_for_so_many(host: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_LOOKING", 2)
    streams = live.Streams()
    looking = [streams.follow(host) for _ in range(2)]
    await asyncio.gather(*(first(each) for each in looking))
    with pytest.raises(live.TooMany):
        streams.check_room()
    for each in looking:
        await each.aclose()  # type: ignore[attr-defined]
    streams.check_room()


def test_a_host_without_samples_says_so(host: Watched) -> None:
    shot = live.shot_of(host)
    assert shot["shot"] is None
    assert shot["link"] == "connecting"
    assert shot["problem"]
    json.dumps(shot, allow_nan=False)


class TestListing:
    columns = (Column("name", "Name"), Column("n", "N", "n"), Column("spark", "Over time", "spark"))
    rows = (
        {"name": "b", "n": 2.0},
        {"name": "a", "n": None},
        {"name": "C", "n": float("inf"), "spark": [1, None]},
    )

    def test_what_is_not_known_is_last(self) -> None:
        listing = Listing(self.columns, self.rows)
        assert [row["name"] for row in listing.sorted("n", descending=True).rows] == ["C", "b", "a"]
        assert [row["name"] for row in listing.sorted("n", descending=False).rows] == ["b", "C", "a"]
        assert [row["name"] for row in listing.sorted("name", descending=False).rows] == ["a", "b", "C"]
        assert listing.sorted("nothing", descending=True) is listing

    def test_json_has_no_infinity_and_csv_no_lists(self) -> None:
        listing = Listing(self.columns, self.rows)
        text = json.dumps(listing.to_json(), allow_nan=False)
        assert json.loads(text)["rows"][2] == {"name": "C", "n": None, "spark": [1, None]}
        assert listing.to_csv().splitlines()[0] == "name,n"


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-5", "1e99", "99999999999", "2026-13-01", "nan", "inf", "١٢"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(PlanError):
        seconds_of(text)


def test_times() -> None:
    assert seconds_of("1795390680") == 1795390680
    assert seconds_of("2026-11-22T23:38") == seconds_of("2026-11-22T23:38:00+00:00") == 1795390680
    assert seconds_of("2026-11-23T00:38+01:00") == 1795390680


def test_an_address_keeps_what_was_chosen() -> None:
    asked = Asked("a&b", "7d", "1795390680", words="x=1")
    assert asked.address("/queries") == "/queries?host=a%26b&range=7d&until=1795390680&q=x%3D1"
    assert asked.address("/", host="", until="", q="", range="") == "/"
    assert asked.address("/", path="x", self="y").endswith("&path=x&self=y")


def test_every_table_is_described_and_answers_as_json_and_csv(tmp_path: Path) -> None:
    found = site(tmp_path, key="k")
    now = int(time.time()) // MINUTE_S * MINUTE_S
    fill(found.reader.archive, "db1", now - 4 * MINUTE_S, 3)
    described = api.openapi()["paths"]
    with TestClient(app.application(found), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        assert client.get("/api/openapi.json").json()["paths"].keys() == described.keys()
        for name, table in TABLES.items():
            parameters = {"host": "db1", "range": "6h"} if "host" in table.takes else {}
            rows = client.get(f"/api/{name}.json", params=parameters).json()["rows"]
            answer = client.get(f"/api/{name}.csv", params=parameters)
            assert len(answer.text.strip().splitlines()) == len(rows) + 1, name
            assert f"/api/{name}.json" in described
        chart = client.get("/api/chart.json", params={"host": "db1", "metric": "cpu"}).json()
        assert len(chart["t_s"]) == len(chart["lines"][0]["mean"])
        [a, b] = client.get("/api/classes.json", params={"sort": "calls_s"}).json()["rows"]
        assert (b["class"], b["mean_ns"]) == ("a", 1e6)
        assert a["calls_s"] == pytest.approx(15 / 180)
        assert b["p99_ns"]
        assert client.get("/api/classes.json", params={"q": "commit"}).json()["rows"][0]["class"] == "b"
