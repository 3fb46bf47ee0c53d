"""The pages on a small history: what they list, and how they arrive."""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.base.model import Facts, ServerLogin
from headrace.fleet.host import Host
from headrace.history.archive import rollup
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, TABLES
from headrace.history.collect import plans
from headrace.history.collect.minute import class_name, seen_rows, table_of, text_of, text_row
from headrace.history.collect.watched import watched as watched_of
from headrace.host.activity import summed
from headrace.host.target import TargetSpec
from headrace.hunt.live import Link
from headrace.hunt.rules import Evidence, all_rules, judge
from headrace.web import app, capacity, locks, merged, said, tables
from headrace.web.asked import Asked
from headrace.web.listing import Listing
from headrace.web.reviews import Reviews
from headrace.web.site import Site
from headrace.web.templates import environment
from tests.below import go_below, private_path
from tests.history import SLOW, fill, query, site, state, write
from tests.rules.hosts import unwell

METRICS, STATES = TABLES["metrics"], TABLES["states"]


@pytest.fixture
def found(tmp_path: Path) -> Site:
    made = site(tmp_path, key="k")
    fill(made.reader.archive, "db1", start_s(), 3)
    return made


@pytest.fixture
def client(found: Site) -> Iterator[TestClient]:
    with TestClient(app.application(found), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        yield client


def start_s() -> int:
    return int(time.time()) // MINUTE_S * MINUTE_S - 5 * MINUTE_S


@pytest.mark.parametrize(
    ("text", "of", "is_own"),
    [
        ("select * from t", "shop.t", False),
        ("select count(*) from performance_schema.threads", "performance_schema.threads", True),
        ("select 1", "`performance_schema`.`threads`, information_schema.PROCESSLIST", True),
        ("select 1", "performance_schema.threads, shop.t", False),
        ("SHOW GLOBAL STATUS", "", True),
        ("set session max_execution_time = ?", "", True),
        ("commit", "", False),
        ("select ?", "", False),
        ("SELECT `UNIX_TIMESTAMP` ( )", "", True),
        ("select unix_timestamp() from t", "", False),
        ("SELECT `VERSION` ( )", "", True),
        ("SELECT `CONCAT` ( @@`hostname` , ? ) , `CONCAT` ( @@PORT , ? )", "", True),
        ("select concat(first, last) from t", "", False),
        ("explain format = json select * from t", "shop.t", True),
        ("text unknown", "", False),
    ],
)
def test_what_only_looks_at_the_server(text: str, of: str, is_own: bool) -> None:
    assert tables.looks_at_server(text, of) is is_own


def test_monitors_are_left_out_unless_they_are_asked_for(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() + 3 * MINUTE_S
    write(archive, "classes", "db1", t_s, [query("own", 9, 1e9)])
    own = text_row(SLOW, "own", "select ? from threads", ["performance_schema.threads"])
    write(archive, "texts", "db1", t_s, [own])

    def shown(parameters: dict[str, str]) -> set[str]:
        return {row["class"] for row in client.get("/api/classes.json", params=parameters).json()["rows"]}

    assert shown({}) == {"a", "b"}
    assert shown({"own": "1"}) == {"a", "b", "own"}
    assert shown({"q": "threads"}) == set()
    assert shown({"q": "SELECT `?`FROM threads", "own": "1"}) == {"own"}
    page = client.get("/query", params={"class": "own", "source": SLOW})
    assert "select ? from threads" in page.text


def test_sums_have_no_columns_of_single_calls(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() + 3 * MINUTE_S
    sums = [query("a", 1, 1e6), query("digest", 9, 1e9)]
    write(archive, "classes", "db1", t_s, [{**each, "source": PERFORMANCE_SCHEMA} for each in sums])
    address = f"/queries?source={PERFORMANCE_SCHEMA}&own=1"
    for page in (client.get(address).text, client.get(f"{address}&sort=p99_change").text):
        assert "digest" in page
        assert "Calls/s" in page
        assert "p99" not in page.partition("<table")[2].partition("</table>")[0]
    assert ">p99" in client.get(f"/queries?source={SLOW}").text
    # By load, as without an order that this source has.
    rows = client.get(f"/api/classes.json?source={PERFORMANCE_SCHEMA}&sort=p99_change").json()["rows"]
    assert [row["class"] for row in rows] == ["digest", "a"]


def test_no_column_of_a_list_is_beyond_its_statement(found: Site, client: TestClient) -> None:
    page = client.get(f"/queries?source={SLOW}").text
    table = page.partition('<table class="listing classes')[2].partition("</table>")[0]
    head, _, body = table.partition("<tbody>")
    assert "Databases" not in head
    first = body.partition("</th>")[0]
    assert "databases <b>shop</b>" in first
    assert "class <b>" in first


def test_findings_are_cards_with_what_would_refute_them(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() + 3 * MINUTE_S
    kept = {
        "id": "LOCK02",
        "title": "<b>Rows</b>",
        "severity": "bottleneck",
        "summary": "3 wait",
        "fix": "one; or two",
    }
    kept |= {"test": "", "refuted_if": "nobody waits"}
    write(archive, "states", "db1", t_s, [state(findings=json.dumps([kept]))])
    page = client.get("/host?host=db1").text
    card = page.partition('<article class="finding bottleneck"')[2].partition("</article>")[0]
    assert "&lt;b&gt;Rows" in card
    assert re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card) == [
        ("fix", "one"), ("or", "two"), ("refuted if", "nobody waits"),
    ]  # fmt: skip


def test_a_finding_has_a_page_of_its_own(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() - 10 * MINUTE_S
    row = {
        "id": "LOCK02@<i>", "title": "<b>Rows</b>", "severity": "bottleneck", "summary": "3 wait", "fix": "one",
        "test": "", "refuted_if": "nobody waits", "statement": "select ?",
    }  # fmt: skip
    nearly = {**row, "id": "LOCK02", "summary": 'has "id": "LOCK02@<i>" in it'}
    for minute, rows in enumerate(([nearly], [row, nearly], [row], [])):
        write(archive, "states", "db1", t_s + minute * MINUTE_S, [state(findings=json.dumps(rows))])
    asked = {"host": "db1", "id": "LOCK02@<i>"}
    page = client.get("/finding", params=asked).text
    assert "2 of 7 judged minutes of this range: first" in page
    assert "Whether it stands now is unknown" in page
    assert "&lt;b&gt;Rows" in page
    assert '<article class="finding bottleneck"' in page
    # Its statement's class, with what can be asked of it; then its rule.
    assert "class=a" in page.partition('id="statement"')[2].partition('id="rule"')[0]
    assert 'query/tables"' in page
    assert "why it matters" in page.partition('id="rule"')[2]
    chart = client.get("/api/chart.json", params={"host": "db1", "finding": "LOCK02@<i>"}).json()
    assert [value for value in chart["lines"][0]["mean"] if value is not None][:4] == [0, 1, 1, 0]
    assert chart["kind"] == "share"
    card = client.get(f"/host?host=db1&until={t_s + 3 * MINUTE_S}").text
    assert re.search(r'href="[^"]*/finding\?host=db1&amp;[^"]*id=LOCK02%40%3Ci%3E"', card)
    assert client.get("/finding", params={"host": "db1", "id": "CPU01"}).status_code == 404
    assert client.get("/finding", params={"host": "", "id": "CPU01"}).status_code == 400


def test_a_page_says_which_slow_log_it_lacks(tmp_path: Path) -> None:
    made = site(tmp_path, key="k")
    watched = watched_of(Host("db1", TargetSpec("local")))
    variables = {"slow_query_log": "ON", "log_output": "TABLE"}
    watched.feed.facts = Facts("", {"server_settings": {"variables": variables}})
    made.collector.hosts = {"db1": watched}
    write(
        made.reader.archive,
        "classes",
        "db1",
        start_s(),
        [{**query("a", 1, 1e6), "source": PERFORMANCE_SCHEMA}],
    )
    said = "Of db1 the slow log is not read: log_output is TABLE"
    assert said in asyncio.run(tables.classes(made, Asked())).note
    watched.feed.facts = Facts("", {"server_settings": {"variables": {**variables, "slow_query_log": "OFF"}}})
    assert "is off" in asyncio.run(tables.classes(made, Asked())).note
    made.collector.slow_log = "/other.log"
    on = {"slow_query_log": "ON", "log_output": "FILE", "slow_query_log_file": "/a.log"}
    watched.feed.facts = Facts("", {"server_settings": {"variables": on}})
    assert "but the server writes /a.log" in asyncio.run(tables.classes(made, Asked())).note


def sorts(wait: str, seen: float, text: str, user: str = "web") -> dict[str, Any]:
    names = {"class": class_name(text) if text else "", "wait": wait, "state": "s", "user": user}
    return {**names, "client": "10.0.0.1", "seen": seen, "looks": None}


def looked(looks: int) -> dict[str, Any]:
    return {**dict.fromkeys(("class", "wait", "state", "user", "client"), ""), "seen": 0.0, "looks": looks}


async def test_a_server_that_does_not_answer_is_said_before_its_host(tmp_path: Path) -> None:
    pages = site(tmp_path)
    watched = pages.collector.hosts["db1"]
    watched.host = replace(watched.host, why_not="")
    watched.feed.link, watched.feed.heard_at = Link.LIVE, time.monotonic()
    watched.verdict = replace(
        Evidence(Facts("a", {}), watched.feed.ring.window(10)).verdict, sentence="All is well."
    )
    for error in ("refused", ""):
        at_ns = time.time_ns()
        values = {"values": {"questions": {"": 1.0}}} if not error else {"error": error}
        sample = {"t_ns": at_ns, "sampler": "mysql_status", "ok": not error, "cost_ns": 1, **values}
        watched.feed.ring.add(sample)
        [row] = (await tables.hosts(pages, Asked())).rows
        said = "The server does not answer: refused. Its host: All is well." if error else "All is well."
        assert (row["state"], row["sentence"]) == ("lost" if error else "ok", said)


def test_load_is_over_the_looks_of_each_host_without_monitors(tmp_path: Path) -> None:
    made = site(tmp_path, ("db1", "db2"), key="k")
    archive, t_s = made.reader.archive, start_s()
    locked = sorts("row locks", 45, "update t set n = ?")
    own = sorts("", 9, "select ? from threads")
    write(archive, "sessions", "db1", t_s, [looked(30), locked, sorts("", 15, "commit", "job"), own])
    write(archive, "sessions", "db1", t_s + MINUTE_S, [looked(30)])
    write(archive, "sessions", "db2", t_s, [looked(10), sorts("row locks", 5, "update t set n = ?")])
    texts = [text_row(PROCESS_LIST, class_name("select ? from threads"), "q", ["performance_schema.threads"])]
    write(archive, "texts", "db1", t_s, texts)
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        answer = client.get("/api/load.json?by=wait&range=15m").json()
        at = answer["t_s"].index(t_s)
        assert {line["label"]: line["mean"][at : at + 3] for line in answer["lines"]} == {
            "row locks": [2.0, 0.0, None], "executes": [0.5, 0.0, None],
        }  # fmt: skip
        users = client.get("/api/load.json?by=user&range=15m&host=db1").json()["lines"]
        assert {line["label"]: line["mean"][at] for line in users} == {"web": 1.5, "job": 0.5}
        own_too = client.get("/api/load.json?by=wait&range=15m&own=1").json()["lines"]
        assert {line["label"]: line["mean"][at] for line in own_too}["executes"] == pytest.approx(0.8)


def test_a_time_that_was_selected_is_of_the_statements_and_not_of_the_chart(
    found: Site, client: TestClient
) -> None:
    first = start_s()
    selected = f"range=1h&from={first + MINUTE_S}&to={first + 2 * MINUTE_S}"
    [a, b] = client.get(f"/api/classes.json?{selected}&sort=class&order=asc").json()["rows"]
    assert (a["class"], b["class"]) == ("a", "b")
    # The second minute alone: 2 calls of a, 5 of b.
    assert (a["calls_s"], b["calls_s"]) == (pytest.approx(2 / 60), pytest.approx(5 / 60))
    assert len(client.get(f"/api/load.json?{selected}").json()["t_s"]) >= 60
    page = client.get(f"/queries?{selected}").text
    assert f'data-from="{float(first + MINUTE_S)}"' in page
    assert f"from={first + MINUTE_S}" in page
    wrong = client.get(f"/queries?from={first}&to={first}")
    assert wrong.status_code == 400
    assert "ends before it begins" in wrong.text


def test_a_list_of_nothing_but_monitors_says_so(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() + 3 * MINUTE_S
    write(archive, "classes", "db1", t_s, [{**query("own", 9, 1e9), "source": PERFORMANCE_SCHEMA}])
    own = {**text_row(PERFORMANCE_SCHEMA, "own", "SELECT @@version", [])}
    write(archive, "texts", "db1", t_s, [own])
    address = f"/queries?source={PERFORMANCE_SCHEMA}"
    assert said.ONLY_OWN in client.get(address).text
    assert "No class matches." in client.get(f"{address}&q=nowhere").text


def test_a_slow_page_comes_in_two_pieces_that_are_one_page(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.get("/queries").text
    read = tables.classes

    async def slow(site: Site, asked: Asked, most: int = 0, only: str = "") -> Listing:
        await asyncio.sleep(0.3)
        return await read(site, asked, most, only)

    monkeypatch.setattr(tables, "classes", slow)
    answer = client.get("/queries")
    assert "content-length" not in answer.headers
    frame, waits, rest = answer.text.partition('<p class="loading">Reading …</p>')
    assert waits
    assert "<nav" in frame
    assert "<header" in rest
    assert "<nav" not in rest
    assert (frame + rest).count("<tr") == whole.count("<tr")
    missing = client.get("/query", params={"class": "never", "source": SLOW})
    assert "was not seen in this range" in missing.text
    assert missing.text.rstrip().endswith("</html>")


def test_heat_maps_of_cores_and_of_latencies(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s()
    for i in range(3):
        rows = [
            {"metric": "cores", "label": str(core), "n": 1, "sum": busy, "least": busy, "most": busy}
            for core, busy in ((10, 0.9), (2, 0.1))
        ]
        write(archive, "metrics", "db1", t_s + i * MINUTE_S, rows)
    cores = client.get("/api/heat.json", params={"host": "db1", "metric": "cores"}).json()
    assert cores["labels"] == ["2", "10"]
    assert [v for v in cores["cells"][1] if v is not None] == [0.9] * 3
    calls = client.get("/api/heat.json", params={"host": "db1", "source": SLOW, "class": "a"}).json()
    assert len(calls["labels"]) == len(calls["cells"])
    assert all(len(row) == len(calls["t_s"]) for row in calls["cells"])
    assert sum(v or 0 for row in calls["cells"] for v in row) == 1 + 2 + 3
    assert client.get("/api/heat.json", params={"metric": "cores"}).status_code == 400
    none = client.get("/api/heat.json", params={"host": "db1", "source": SLOW, "class": "never"}).json()
    assert none["cells"] == []


def test_a_comparison_is_of_the_workload(found: Site, client: TestClient) -> None:
    archive, t_s = found.reader.archive, start_s() + 3 * MINUTE_S
    write(archive, "classes", "db1", t_s, [query("own", 9, 1e9)])
    write(archive, "texts", "db1", t_s, [text_row(SLOW, "own", "show global status", [])])
    shown = client.get("/compare", params={"host": "db1", "range": "6h"}).text
    assert "only right" in shown
    assert "show global status" not in shown
    assert "show global status" in client.get("/compare", params={"own": "1", "range": "6h"}).text


def hour(archive: Archive, host: str, t_s: int, minutes: int) -> None:
    """An hour of which so many minutes were watched: a call each second, of half a second."""
    rows = {"classes": query("a", 60 * minutes, 5e8), "states": state(minutes=minutes)}
    for name, row in rows.items():
        archive.write(TABLES[name], host, "h", t_s, table_of(TABLES[name], [row], t_s))


def over_time(page: str) -> list[dict[str, Any]]:
    """The points of a query's charts, without gaps."""
    found = re.search(r'data-series="([^"]*)"', page)
    assert found
    return [point for point in json.loads(html.unescape(found[1]))["points"] if point]


def test_rates_are_of_all_hosts_and_of_the_time_that_was_watched(tmp_path: Path) -> None:
    """The newest hour has only begun, and two hosts have twice the calls of one."""
    made = site(tmp_path, ("db1", "db2"), key="k")
    start = int(time.time()) // HOUR_S * HOUR_S - 3 * HOUR_S
    for host in ("db1", "db2"):
        hour(made.reader.archive, host, start, 60)
        hour(made.reader.archive, host, start + HOUR_S, 10)
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        for hosts, name in ((2, ""), (1, "db1")):
            asked = {"range": "24h", "host": name}
            [row] = client.get("/api/classes.json", params=asked).json()["rows"]
            points = over_time(client.get("/query", params={**asked, "class": "a", "source": SLOW}).text)
            assert row["calls_s"] == pytest.approx(hosts)
            assert row["load"] == pytest.approx(hosts / 2)
            assert [p["calls"] for p in points] == pytest.approx([hosts] * 2)
            assert [p["load"] for p in points] == pytest.approx([hosts / 2] * 2)
            assert [v for v in row["spark"] if v is not None] == pytest.approx([hosts / 2] * 2)


def test_threads_are_over_all_looks_also_those_that_saw_nothing(tmp_path: Path) -> None:
    """A thread seen in one minute of ten counts as a tenth, read in minutes or in hours."""
    made = site(tmp_path, key="k")
    archive, start = made.reader.archive, int(time.time()) // HOUR_S * HOUR_S - HOUR_S
    running = {
        "id": 1,
        "user": "u",
        "time_s": 4,
        "class": "select ?",
        "tables": ["shop.t"],
        "command": "Query",
    }
    for i in range(10):
        classes, texts = seen_rows(summed([{"statements": [running] if i == 3 else []}] * 30))
        for name, rows in (("classes", classes), ("texts", texts), ("states", [state()])):
            write(archive, name, "db1", start + i * MINUTE_S, rows)
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)

        def threads(**asked: str) -> Any:
            [row] = client.get("/api/classes.json", params=asked).json()["rows"]
            assert row["share"] == 1
            asked |= {"class": row["class"], "source": PROCESS_LIST}
            return row["threads"], [p["threads"] for p in over_time(client.get("/query", params=asked).text)]

        assert threads(range="1h", until=str(start + HOUR_S)) == (pytest.approx(0.1), [1.0])
        rollup.roll_up(archive, "db1", start + HOUR_S)
        assert threads(range="24h") == (pytest.approx(0.1), [pytest.approx(0.1)])


def plan_of(key: str, rows: int) -> dict[str, Any]:
    table = {"table_name": "t", "access_type": "ref", "key": key, "rows_examined_per_scan": rows}
    return {
        "format": "json",
        "plan": {"query_block": {"table": {**table, "attached_condition": "id = 4711"}}},
    }


def test_a_plan_is_kept_when_its_shape_changes(found: Site, client: TestClient) -> None:
    watched = found.collector.hosts["db1"]
    for answer in (plan_of("a", 1), plan_of("a", 900), plan_of("b", 1), plan_of("a", 1)):
        plans.note(watched, SLOW, "a", answer)
    rows = watched.pending["plans"]
    assert [row["plan"].split()[5] for row in rows] == ["a", "b", "a"]
    assert "4711" not in str(rows)
    for i, row in enumerate(rows):
        row["at_s"] = start_s() + i
    write(found.reader.archive, "plans", "db1", start_s(), rows)
    # A restart of headrace notes the last shape again; the page shows only changes.
    again = {**rows[-1], "at_s": start_s() + 60.0}
    write(found.reader.archive, "plans", "db1", start_s() + MINUTE_S, [again])
    page = client.get("/query", params={"class": "a", "source": SLOW}).text
    assert page.count("<summary>") == 3
    assert "(the latest)" in page


def test_plans_are_asked_for_of_what_reads_and_again_when_a_call_takes_longer() -> None:
    reads, writes = "SELECT 1 FROM t WHERE id = 4711", "UPDATE t SET a = 1"
    looks = "select count(*) from `performance_schema`.threads"
    rows = [query("a", 10, 1e6), query("b", 10, 9e6), query("c", 10, 9e6), query("no example", 10, 9e9)]
    rows.append({**query("digest", 10, 1e3), "source": PERFORMANCE_SCHEMA})
    examples = [{"source": SLOW, "class": "a", "text": reads}, {"source": SLOW, "class": "b", "text": writes}]
    examples.append({"source": SLOW, "class": "c", "text": looks})
    found = plans.busiest(rows, examples)
    assert [each.name for each in found] == ["a", "digest"]
    asked = {found[0].key: (0.0, 1e6)}
    assert plans.due(found, asked, 600.0) == found[1]
    asked[found[1].key] = 0.0, 1e3
    assert plans.due(found, asked, 600.0) is None
    slower = [found[0], replace(found[1], mean_ns=2.5e3)]
    assert plans.due(slower, asked, 600.0) == slower[1]
    assert plans.due(slower, asked, plans.AGAIN_S / 2) is None
    assert plans.due(found, asked, plans.EVERY_S) == found[0]


def review(client: TestClient, **form: str) -> str:
    token = client.get("/").text.partition('data-token="')[2].partition('"')[0]
    return client.post("/query/review", data={"token": token, "source": SLOW, "class": "a", **form}).text


def test_a_review_is_kept_and_shown(found: Site, client: TestClient) -> None:
    assert "There are no notes" in client.get("/query", params={"class": "a", "source": SLOW}).text
    assert "&lt;b&gt;an index is missing" in review(client, state="to do", comment="<b>an index is missing")
    page = review(client, state="reviewed")
    assert page.index("reviewed</span>") < page.index("an index is missing")
    rows = {row["class"]: row for row in client.get("/api/classes.json").json()["rows"]}
    assert (rows["a"]["review"], rows["b"]["review"]) == ("reviewed", "")
    assert "Not saved" in review(client, state="forged")
    assert "Not saved" in review(client)
    assert "Not saved" in review(client, comment="x" * 2001)
    assert found.reviews.path.stat().st_mode & 0o777 == 0o600


def test_a_note_that_was_cut_short_costs_only_itself(tmp_path: Path) -> None:
    reviews = Reviews(tmp_path / "reviews.jsonl")
    reviews.add("ann", SLOW, "a", "to do", "one")
    with reviews.path.open("ab") as file:
        file.write(b'{"at_s": 1, "who": "b')
    reviews.add("bob", SLOW, "a", "", "two\r\nlines")
    assert [note.comment for note in reviews.of(SLOW, "a")] == ["two\nlines", "one"]
    assert reviews.states(SLOW) == {"a": "to do"}
    assert [note.comment for note in Reviews(reviews.path).of(SLOW, "a")] == ["two\nlines", "one"]


def fill_use(made: Site, **first: float) -> None:
    """20 days, by host: half a core of 8, and at noon ``first``, growing by 0.1 a day."""
    today = int(time.time()) // DAY_S
    for host, least in first.items():
        for day in range(today - 20, today):
            for hour in range(24):
                most = least + 0.1 * (day - today + 20) if hour == 12 else 0.5
                row = {"metric": "demand", "label": "cpu", "n": 60, "sum": 30.0, "least": 0.4, "most": most}
                cores = {"metric": "limit", "label": "cpu", "n": 60, "sum": 480.0, "least": 8.0, "most": 8.0}
                made.reader.archive.write(
                    METRICS, host, "h", day * DAY_S + hour * HOUR_S,
                    table_of(METRICS, [row, cores], day * DAY_S + hour * HOUR_S),
                )  # fmt: skip
            fill_state(made.reader.archive, host, day * DAY_S)


def test_when_hosts_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """db1 is full now, db2 on a date. Computed once for many readers."""
    made = site(tmp_path, key="k")
    fill_use(made, db1=7.0, db2=2.0)
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        assert "could share a host</a>" not in client.get("/capacity").text
        assert client.get("/capacity/merge").status_code == 404
        assert client.get("/capacity/merge/report").status_code == 404
        rows = client.get("/api/capacity.json").json()["rows"]
        assert [(row["host"], row["resource"]) for row in rows] == [("db1", "CPU"), ("db2", "CPU")]
        assert rows[0]["full"] == "now"
        # 2 cores and 0.1 more a day reach the knee of 8 cores after about 50 days.
        assert rows[1]["full"] > datetime.now(UTC).date().isoformat()
        assert rows[1]["between"] != "–"
        assert "db2" not in client.get("/capacity", params={"host": "db1"}).text
        assert "Report with charts" in client.get("/capacity").text
        page = client.get("/capacity/report")
        assert page.headers["content-security-policy"].startswith("sandbox")
        assert "What would one more unit of a resource bring?" in page.text
        monkeypatch.setattr(capacity, "_read", None)
        assert client.get("/api/capacity.json").json()["rows"] == rows


def test_which_databases_could_share_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned once an hour from the history, with replicas apart; a catalogue that is broken by then is said."""
    made = site(tmp_path, ["db1", "db2", "db3"], key="k")
    fill_use(made, db1=2.0, db2=2.0, db3=2.0)
    made.catalogue = tmp_path / "hosts.csv"
    with TestClient(app.application(made), base_url="http://localhost") as client:
        client.get("/enter?key=k")
        go_below(client)
        assert f'href="{private_path(client)}/capacity/merge"' in client.get("/capacity").text
        said = client.get("/capacity/merge/report")
        assert said.status_code >= 400
        assert "hosts.csv" in said.text
        source = made.watched("db1")
        replica = made.watched("db2")
        assert source is not None
        assert replica is not None
        source.feed.facts = Facts("1", {"hostname": "db1"})
        channel = {"replication": [{"source_host": "db1"}]}
        replica.feed.facts = Facts("2", {"hostname": "db2", "server_settings": channel})
        made.catalogue.write_text("name,cpu,cpu_knee,price,currency\nbig,64,0.8,500,USD\n")
        assert f'src="{private_path(client)}/capacity/merge/report"' in client.get("/capacity/merge").text
        page = client.get("/capacity/merge/report")
        assert page.headers["content-security-policy"].startswith("sandbox")
        assert "Yes: 3 databases fit onto 2 hosts." in page.text
        monkeypatch.setattr(merged, "_planned", None)
        assert client.get("/capacity/merge/report").text == page.text


def test_hosts_that_replicate_with_each_other_are_one_group() -> None:
    """By name or by address, in one direction, over a server in between; others stay alone."""
    told: dict[str, tuple[str, dict[str, Any]]] = {
        "a": ("10.0.0.1", {"links": []}),
        "b": ("10.0.0.2", {"links": ["10.0.0.1"]}),
        "c": ("10.0.0.3", {"links": ["b", "elsewhere"]}),
        "d": ("10.0.0.4", {"links": ["elsewhere"]}),
        "e": ("10.0.0.5", {"links": []}),
    }
    assert merged.groups(told) == [["a", "b", "c"]]


def test_a_host_is_of_the_type_that_a_tag_names() -> None:
    """Other tags say nothing of it; two types are none."""
    tags = {"a": {"eu", "big"}, "b": {"eu"}, "c": {"big", "small"}}
    assert merged.types(tags, {"big", "small"}) == {"a": "big"}


def fill_state(archive: Archive, host: str, t_s: int) -> None:
    rows = table_of(STATES, [state()], t_s)
    archive.write(STATES, host, "h", t_s, rows)


def test_without_a_history_there_is_no_capacity(client: TestClient) -> None:
    page = client.get("/capacity")
    assert "No host has a history of its use yet." in page.text
    assert client.get("/capacity/report").status_code == 404


def test_a_finding_names_the_commands_that_test_it_where_it_was_found(tmp_path: Path) -> None:
    remote = Host(
        "db1", TargetSpec.parse("root@db1.example:2222"), login=ServerLogin(socket="/run/s", user="me")
    )
    found = site(tmp_path, key="k")
    for host, where in (
        (remote, "-t root@db1.example:2222 --mysql-socket /run/s --mysql-user me"),
        (replace(remote, spec=TargetSpec("local")), "--mysql-socket /run/s --mysql-user me"),
    ):
        watched = watched_of(host)
        off = {
            "optimizer_switch": "index_merge=off",
            "slow_query_log": "ON",
            "slow_query_log_file": "/slow.log",
        }
        rules = judge(unwell(variables=off, status_rates={"handler_read_rnd_next": 2e6}), all_rules())
        watched.judgement = rules
        found.collector.hosts = {"db1": watched}
        rows = {row["id"]: row for row in asyncio.run(tables.findings(found, Asked(host="db1"))).rows}
        assert rows["STMT06"]["test"] == f"headrace hunt {where} && headrace prove STMT06 --live {where}"
        assert rows["SESS12"]["test"] == ""
        assert rows["SESS12"]["next"] == f"headrace indexes /slow.log {where}"


def test_a_long_statement_is_kept_whole() -> None:
    assert len(text_row(SLOW, "a", "x" * 50_000, [])["text"]) == 20_000


def test_a_finding_leads_to_the_statements_that_it_names() -> None:
    numbers = [
        (what, value, text_of(what, value))
        for what, value in (
            ("often seen", "select id from shop.t where a = ?"),
            ("waiting for shop.t", "update t set b = ? ...: 3.0"),
            ("waiting for log_latch", "0.12 s per second"),
            ("the holder's statement", "unknown: it executes nothing"),
        )
    ]
    assert [text for _, _, text in numbers] == [
        "select id from shop.t where a = ?",
        "update t set b = ?",
        "",
        "",
    ]
    row = {
        "title": "Scans",
        "severity": "cost",
        "id": "SESS12",
        "summary": "s",
        "why": "",
        "next": "headrace indexes /s",
    }
    macros = environment().get_template("macros.html").make_module({"asked": Asked(host="db1"), "query": {}})
    card = macros.findings(Listing((), [{**row, "numbers": numbers}]))  # type: ignore[attr-defined]
    links = re.findall(r'href="(/queries[^"]*)"', card)
    assert links == [
        "/queries?host=db1&amp;range=1h&amp;q=select+id+from+shop.t+where+a+%3D+%3F",
        "/queries?host=db1&amp;range=1h&amp;q=update+t+set+b+%3D+%3F",
    ]
    assert "<dt>next</dt><dd><code>headrace indexes /s</code>" in card
    fixed = {**row, "numbers": [], "fix": "An index on `a`: `headrace indexes <s>`; or add `--prove`."}
    card = macros.findings(Listing((), [fixed]))  # type: ignore[attr-defined]
    assert "<dd>An index on `a`: <code>headrace indexes &lt;s&gt;</code></dd>" in card
    assert "<dd>add <code>--prove</code>.</dd>" in card


def wait(waiter: int, holder: int | None, **more: Any) -> dict[str, Any]:
    known = {"lock": "row", "table": "shop.t", "waiter_class": f"of {waiter}", "holder_class": f"of {holder}"}
    return {**known, "waiter": waiter, "holder": holder, "holder_open_s": 9, "is_certain": True, **more}


@pytest.mark.parametrize(
    ("edges", "drawn"),
    [
        ([(2, 1), (3, 1)], [("1", 0, 2), ("2", 1, 0), ("3", 1, 0)]),
        ([(3, 2), (2, 1)], [("1", 0, 2), ("2", 1, 1), ("3", 2, 0)]),
        ([(3, 2), (3, 1), (2, 1)], [("1", 0, 2), ("3", 1, 0), ("2", 1, 0)]),
        ([(2, 1), (6, 5), (7, 5)], [("5", 0, 2), ("6", 1, 0), ("7", 1, 0), ("1", 0, 1), ("2", 1, 0)]),
        ([(1, 2), (2, 1)], [("1", 0, 1), ("2", 1, 0)]),
        ([(2, None)], [("2", 0, 0)]),
    ],
    ids=[
        "two wait",
        "one behind the other",
        "for both",
        "two trees",
        "a circle",
        "a holder that is not known",
    ],
)
def test_waits_are_a_tree(edges: list[tuple[int, int | None]], drawn: list[tuple[str, int, int]]) -> None:
    found = locks.tree([wait(*each) for each in edges])
    assert [(row["connection"], row["depth"], row["behind"]) for row in found] == drawn
    for row in found:
        assert row["statement"] == f"of {row['connection']}"
        assert (row["waits_for"] is None) == (row["depth"] == 0 and (1, 2) not in edges)


def test_the_tree_is_drawn(found: Site, client: TestClient) -> None:
    watched = found.collector.hosts["db1"]
    watched.listed = [{"id": 2, "user": "app"}, wait(2, 1), wait(3, 2)]
    page = client.get("/now", params={"host": "db1"}).text
    assert "\u2003└ " in page
    assert "of 1" in page
    watched.listed = [wait(2, 1, holder_class=None)]
    assert "last statement unknown" in client.get("/now", params={"host": "db1"}).text
    assert client.get("/api/waits.json", params={"host": "db1"}).json()["rows"][0]["statement"] == ""
    watched.listed = [{"id": 2, "user": "app"}, wait(2, 1), wait(3, 2)]
    rows = client.get("/api/waits.json", params={"host": "db1"}).json()["rows"]
    assert [(row["connection"], row["waits_for"], row["user"]) for row in rows] == [
        ("1", None, None),
        ("2", "1", "app"),
        ("3", "2", None),
    ]
