"""What clients timed, in the history of `headrace serve`: the calls of each source are in their own minutes, once,
and what is left out is said. Lines and answers are as sources write them."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from headrace.base import hdr
from headrace.base.buckets import BEYOND, bucket_bounds
from headrace.base.errors import PlanError
from headrace.change.production import served
from headrace.history import questions
from headrace.history.archive.files import HOUR_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import CLIENTS, MOST_BUCKET, STATES
from headrace.history.collect.clients import Clients
from headrace.history.collect.readers import Statsd, bucket_ending_at
from headrace.history.collect.sources import Source, read_sources
from headrace.web import app
from tests.below import go_below
from tests.history import fill, site
from tests.unit.test_verify_served import put
from tests.unit.test_verify_sources import buckets, matrix, server
from tests.waiting import until_async

#: The start of an hour.
T0 = 1_772_000_000 // HOUR_S * HOUR_S
FLEET = frozenset(("db1", "db2"))
HEAD = "time,seconds,host,class,le_ms,count\n"


def kept(archive: Archive, host: str = "db1") -> list[tuple[int, str, float, int]]:
    """Of each row: minutes since ``T0``, class, bound in ms, calls. The bound is 0 of a minute's own row, and -1
    of what is beyond the last."""
    rows = Reader(archive).rows(
        "clients", "SELECT * FROM rows ORDER BY t_s, class, bucket", host, Range(T0, T0 + 3600)
    )
    return [
        (
            (row["t_s"] - T0) // 60,
            row["class"],
            -1 if row["bucket"] == BEYOND else round(float(bucket_bounds(row["bucket"])[1]) / 1e6, 1),
            row["count"],
        )
        for row in rows
    ]


def clients(archive: Archive, *sources: Source) -> Clients:
    return Clients(archive, sources, ["db1", "db2"])


def collected(found: Clients, *minutes: int) -> str:
    for minute in minutes:
        asyncio.run(found.collect(T0 + 60 * minute))
    return found.problem


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "history")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has \\[\\[clients\\]\\]"),
        ("[clients]\ncsv = 'x'", "has \\[\\[clients\\]\\]"),
        ("[[clients]]\ncsv = 'x'\nstatsd = ':1'", "name one of"),
        ("[[clients]]\nprometheus = 'http://p'", "prometheus needs query"),
        ("[[clients]]\nstatsd = '127.0.0.1:8125'", "a pattern with"),
        ("[[clients]]\nstatsd = '8125'\npattern = '{host}'", "ADDRESS:PORT"),
        ("[[clients]]\ncsv = 'x'\nunit = 'm'", "unit is one of"),
        ("[[clients]]\ncsv = 'x'\nquerry = 'm'", "querry"),
        ("x = ", "not TOML"),
    ],
)
def test_a_file_that_cannot_be_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "clients.toml").write_text(text)
    with pytest.raises(PlanError, match=said):
        read_sources(tmp_path / "clients.toml")


def test_lines_of_a_csv_are_taken_once_and_late_ones_are_added(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(f"{HEAD}{T0 - 600},60,db1,old,1,7\n")
    found = clients(archive, Source(csv=path, hosts={"orders": "db1"}))
    assert collected(found, 0) == ""
    with path.open("a") as file:
        file.write(
            f"{T0 + 60},30,orders,buy,1,5\n{T0 + 90},30,db1:3306,buy,2.5,3\n{T0 + 60},60,db1,buy,inf,1\n"
        )
        file.write(f"{T0 + 120},60,db1,buy,1,0\n{T0 + 180},60,db1,buy,1,9\n{T0 + 60},60,db1,bu")
    assert collected(found, 3) == ""
    assert kept(archive) == [
        (1, "", 0, 0), (1, "buy", 1.0, 5), (1, "buy", 2.5, 3), (1, "buy", -1, 1), (2, "", 0, 0),
    ]  # fmt: skip
    with path.open("a") as file:
        file.write("y,1,2\n")
    collected(found, 4)
    assert kept(archive)[1] == (1, "buy", 1.0, 7)
    assert (3, "buy", 1.0, 9) in kept(archive)


def test_what_a_csv_has_that_is_left_out_is_said(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = clients(archive, Source(csv=path))
    collected(found, 1)
    with path.open("a") as file:
        file.write(f"{T0 + 30},60,db1,a,1,5\n{T0},60,db9,a,1,5\n{T0},60,db1,a,-1,5\nnever,60,db1,a,1,5\n")
        file.write(f"{T0 - 7200},60,db1,a,1,55\n{T0},60,db1,a\n")
        file.write(f"{T0 + 12000},60,db1,a,1,5\n")
    said = collected(found, 2)
    assert said.count("1 line left out") == 3
    assert "2 lines for other reasons" in said
    for word in (
        "not within one minute",
        "no host of this fleet: db9",
        "not a latency",
        "55 calls came after their hour",
    ):
        assert word in said
    assert collected(found, 3) == ""
    assert kept(archive) == []
    path.unlink()
    assert "cannot be read: No such file" in collected(found, 4)
    path.write_text(f"{HEAD}{T0 + 300},60,db1,a,1,5\n")
    assert "may be lost" in collected(found, 6)
    assert (5, "a", 1.0, 5) in kept(archive)


def test_what_a_csv_got_before_its_rotation_is_read_or_said_to_be_lost(
    archive: Archive, tmp_path: Path
) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = clients(archive, Source(csv=path))
    collected(found, 0)
    with path.open("a") as file:
        file.write(f"{T0},60,db1,a,1,5\n")
    collected(found, 1)
    with path.open("a") as file:
        file.write(f"{T0 + 60},60,db1,a,1,6\n{T0 + 60},60,db1,b,1,4\n")
    path.rename(tmp_path / "times.csv-20260101")
    path.write_text(f"{HEAD}{T0 + 60},60,db1,a,1,2\n")
    assert collected(found, 2) == ""
    assert {(1, "a", 1.0, 8), (1, "b", 1.0, 4)} < set(kept(archive))
    # Packed or cut short: nobody knows what it had got.
    with path.open("a") as file:
        file.write(f"{T0 + 120},60,db1,a,1,3\n")
    path.write_text(HEAD)
    assert "may be lost" in collected(found, 3)
    assert collected(found, 4) == ""


def test_a_line_that_cannot_be_costs_no_other(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = clients(archive, Source(csv=path))
    collected(found, 1)
    with path.open("ab") as file:
        file.write(b"\xff\x00\rx\n" + b'"' + b"a," * 100_000 + b"\n")
        for cells in ("1,nan", "1,1e300", "nan,1"):
            file.write(f"{T0},60,db1,a,{cells}\n".encode())
        file.write(f"{T0 * 1000},60,db1,a,1,1\n{T0},60,db1,far,1e300,2\n{T0},60,db1,near,1e-300,3\n".encode())
    assert "left out" in collected(found, 2)
    assert kept(archive) == [(0, "", 0, 0), (0, "far", -1, 2), (0, "near", 0, 3)]


def test_a_file_without_its_columns_is_told(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("when,p99\n")
    found = clients(archive, Source(csv=path))
    collected(found, 1)
    with path.open("a") as file:
        file.write("12:00,3\n")
    assert "no line has the columns time, seconds and count" in collected(found, 2)


def test_histograms_of_prometheus_fall_into_their_minutes(archive: Archive) -> None:
    """A minute that could not be asked for is asked for with the next."""
    series = buckets("db1:9104", [0, 10, 30, 30], [0, 15, 40, 40], [0, 16, 42, 42])
    answers: list[bytes] = []
    with server(lambda _: answers[-1]) as url:
        found = clients(archive, Source(prometheus=url, query="x_bucket"))
        answers.append(matrix(*series, first=T0))
        collected(found, 1)
        assert kept(archive) == [(0, "", 0, 0), (0, "", 1.0, 10), (0, "", 10.0, 5), (0, "", -1, 1)]
        answers.append(b"{}")
        assert url in collected(found, 2)
        answers.append(matrix(*[(labels, own[1:]) for labels, own in series], first=T0 + 60))
        assert collected(found, 3) == ""
    assert kept(archive)[4:] == [
        (1, "", 0, 0),
        (1, "", 1.0, 20),
        (1, "", 10.0, 5),
        (1, "", -1, 1),
        (2, "", 0, 0),
    ]


def test_timers_of_statsd_have_their_host_and_class(archive: Archive) -> None:
    timers = Statsd(Source(statsd="127.0.0.1:0", pattern="app.{host}.sql.{class}.*"), FLEET)
    for line in (
        "app.db1.sql.buy.ms:2|ms", "app.db1.sql.buy.x:2|ms|@0.1|#env:prod", "app.db1.sql.buy.x:2|c",
        "app.db1.other:2|ms", "app.db1.sql.buy.x:slow|ms", "app.db1.sql.buy.x:1|ms|@0", "", "x",
        "app.db1.sql.buy.x:1|ms|@1e-300", "app.db1.sql.buy.x:nan|ms",
    ):  # fmt: skip
        timers.line(line, T0)
    timers.line("app.db1.sql.buy.x:2|ms", T0 + 60)
    [(key, counts)] = timers.take(T0 + 60).items()
    assert key == ("db1", T0)
    [((name, bucket), count)] = counts.items()
    low, high = bucket_bounds(bucket)
    assert (name, count) == ("buy", 11)
    assert low <= 2e6 <= high
    assert timers.notes() == ["4 lines left out: no time in ms"]
    # The clock was set back: that minute comes a second time.
    timers.line("app.db1.sql.buy.x:2|ms", T0)
    assert [at for _, at in timers.take(T0 + 120)] == [T0 + 60]


async def test_timers_come_over_udp_and_a_port_that_is_taken_is_said(archive: Archive) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
    ):
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        source = Source(statsd=f"127.0.0.1:{port}", pattern="{host}")
        refused = clients(archive, source)
        task = asyncio.create_task(refused.run())
        await asyncio.sleep(0)
        while not refused.problem:
            await refused.collect(T0)
        assert "cannot listen" in refused.problem
        task.cancel()
        taken.close()
        timers = Statsd(source, FLEET)
        await timers.listen()
        sender.sendto(b"db1:2|ms\ndb1:3|ms", ("127.0.0.1", port))
        # The minute in which it began is not a whole one.
        await until_async(lambda: timers._calls)
        assert timers.take(int(time.time()) + 120) == {}
        timers.close()


#: An interval of jHiccup's log, from the tests of HdrHistogram: 1.007 s from 0.127 s after the start.
HICCUP = (
    "0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZk"
    "KmcCAEf2CsI="
)


def test_an_interval_log_of_hdr_histogram(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "app.hlog"
    head = f'#[StartTime: {T0}.0 (seconds since epoch), then]\n"StartTimestamp","Interval_Length"\n'
    path.write_text(head + HICCUP + "\n")
    found = clients(archive, Source(hdr=path, host="db1", unit="ns"))
    collected(found, 0)
    histogram = HICCUP.rpartition(",")[2]
    with path.open("a") as file:
        file.write(f"30.1,1.0,2.769,{histogram}\n")  # of the minute in which this began
        file.write(f"119.7,1.0,2.769,{histogram}\nTag=checkout,61,1.0,2.769,{histogram}\n")
        file.write(f"110,30,2.769,{histogram}\n62,1,1,no histogram\n{T0 + 125},1.0,2.769,{histogram}\n")
    problem = collected(found, 1)
    assert collected(found, 2, 3) == ""
    counts = hdr.decode(histogram)
    rows = kept(archive)
    assert [(minute, name, sum(row[3] for row in rows if row[:2] == (minute, name))) for minute, name in (
        (0, ""), (1, ""), (1, "checkout"), (2, ""),
    )] == [(0, "", 0), (1, "", 741), (1, "checkout", 741), (2, "", 741)]  # fmt: skip
    assert sum(count for _, count in counts) == 741
    # The log's own maximum.
    assert round(counts[-1][0] / 1e6, 3) == 2.769
    for why in ("a part of the minute in which this began", "not within one minute", "no base64"):
        assert why in problem, problem
    with pytest.raises(ValueError, match="hdr needs host, and the unit"):
        Source(hdr=path, host="db1")


def test_the_chart_has_their_percentiles_and_nothing_for_what_is_beyond_the_last_bound(
    archive: Archive, tmp_path: Path
) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = clients(archive, Source(csv=path))
    collected(found, 0)
    with path.open("a") as file:
        file.write(f"{T0},60,db1,a,1,980\n{T0},60,db1,b,8,15\n{T0},60,db1,b,inf,5\n")
    collected(found, 1)
    chart = questions.client_times(Reader(archive), "db1", Range(T0, T0 + 120))
    values = {line.label: line.mean[0] for line in chart.lines}
    assert values == pytest.approx({"clients p50": 1e-3, "clients p90": 1e-3, "clients p99": 8e-3}, rel=0.01)
    assert questions.client_times(Reader(archive), "db2", Range(T0, T0 + 120)).lines == []


def test_a_host_with_times_of_clients_has_their_chart(tmp_path: Path) -> None:
    made = site(tmp_path, key="k")
    archive, start_s = made.reader.archive, int(time.time()) // 60 * 60 - 300
    fill(archive, "db1", start_s, 3)
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        title = "Response times as clients measured them"
        assert title not in client.get("/host?host=db1").text
        rows = [{"class": "a", "bucket": bucket_ending_at(5e6), "count": 9, "minutes": 1}]
        put(archive, CLIENTS, "db1", start_s, rows)
        assert title in client.get("/host?host=db1").text
        chart = client.get("/api/chart.json", params={"host": "db1", "metric": "clients"}).json()
    lines = {line["label"]: [value for value in line["mean"] if value] for line in chart["lines"]}
    assert lines["clients p99.9"] == pytest.approx([5e-3], rel=0.01)
    assert lines["server p99 (slow log)"]


def test_verify_takes_their_bins_as_wide_as_the_source_has_them(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = clients(archive, Source(csv=path))
    collected(found, 0)
    with path.open("a") as file:
        for minute in range(40):
            for host in ("db1", "db2"):
                file.write(f"{T0 + 60 * minute},60,{host},a,1,90\n{T0 + 60 * minute},60,{host},a,inf,1\n")
            file.write(f"{T0 + 60 * minute},60,db1,a,8,9\n")
    collected(found, 40)
    for host in ("db1", "db2"):
        put(archive, STATES, host, T0, [{"state": "lost", "limiting": "", "minutes": 1}])
        put(archive, STATES, host, T0 + 2400, [{"state": "lost", "limiting": "", "minutes": 1}])
    series = {each.host: each for each in served.observe([archive.root], T0 + 1200.0).series}
    assert series["db1"].edges_ns.tolist() == pytest.approx([0, 1e6, 8e6, np.inf], rel=0.01)
    assert series["db1"].counts.tolist() == [[450, 45, 5]] * 8
    assert series["db2"].counts.tolist() == [[450, 5]] * 8


def test_bounds_are_the_last_times_of_their_buckets() -> None:
    assert BEYOND <= MOST_BUCKET
    for bound in (1.0, 5e5, 1e6, 2.5e6, 1e9, 4e12):
        low, high = bucket_bounds(bucket_ending_at(bound))
        assert low <= bound - 1 <= high
        assert high <= bound * 1.01
