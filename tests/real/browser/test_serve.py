"""``headrace serve`` on live servers of two vendors under load, as a browser sees it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pymysql
import pytest

from headrace.base.model import ServerLogin
from headrace.fleet.host import Host
from headrace.history.archive.files import MINUTE_S, Archive
from headrace.history.archive.reader import Reader
from headrace.history.collect.collector import Collector
from headrace.host.target import TargetSpec
from headrace.web.app import application
from headrace.web.sessions import Audit, Sessions
from headrace.web.site import Site
from headrace.web.users import Users
from tests import browser
from tests.below import within
from tests.history import SECRET
from tests.served import on_loopback
from tests.servers import Server, find_server, mariadb, open_folder, server
from tests.waiting import until

KEY = "key"
#: The texts of digests are there when the process list was looked at for a whole minute.
TIMEOUT_S = 90.0
PAGES = (
    "/", "/host?host=db1", "/queries", "/now?host=db1", "/alerts", "/compare", "/experiments", "/rollouts",
    "/capacity", "/changes",
)  # fmt: skip

#: Of what can be scrolled sideways: whether something of it is out of sight.
BEYOND = "(e) => e.scrollWidth > e.clientWidth + 1"


@dataclass
class Served:
    url: str
    site: Site
    loop: asyncio.AbstractEventLoop
    #: The address below which the tab's session is.
    within: str = ""

    def write(self) -> None:
        """End a minute now."""
        collector = self.site.collector
        last = (
            max(each.written_s for each in collector.hosts.values())
            or int(time.time()) // MINUTE_S * MINUTE_S - 5 * MINUTE_S
        )
        asyncio.run_coroutine_threadsafe(collector.write(last + MINUTE_S), self.loop).result(TIMEOUT_S)


@contextlib.contextmanager
def loaded(server: Server) -> Iterator[None]:
    """Statements that hold a script, until the block ends; one transaction keeps another waiting."""
    done = threading.Event()

    def work() -> None:
        with contextlib.closing(
            pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
        ) as link:
            cursor = link.cursor()
            while not done.is_set():
                cursor.execute(
                    "SELECT COUNT(*) FROM shop.`<img src=x onerror=alert(1)>` WHERE note <> '<script>'"
                )
                time.sleep(0.02)

    def block() -> None:
        """A chain: the second holds a row that the third wants, and waits for the first."""
        links = [pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True) for _ in range(3)]

        def update(link: Any, row: int) -> None:
            link.cursor().execute(f"UPDATE shop.t SET n = n + 1 WHERE id = {row}")

        for link in links:
            link.cursor().execute("SET innodb_lock_wait_timeout = 1000")
        update(links[0], 1)
        update(links[1], 2)
        waiters = [threading.Thread(target=update, args=words) for words in ((links[1], 1), (links[2], 2))]
        for waiter in waiters:
            waiter.start()
        done.wait()
        for link, waiter in zip(links, waiters, strict=False):
            link.rollback()
            waiter.join()
        for link in links:
            link.close()

    threads = [threading.Thread(target=work), threading.Thread(target=block)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    logs = ("--slow-query-log=ON", "--long-query-time=0", "--slow-query-log-file=s.log")
    table = "shop.`<img src=x onerror=alert(1)>`"
    mysqld = find_server("mysql-8.0")
    with open_folder() as root, contextlib.ExitStack() as stack:
        servers = [stack.enter_context(mariadb(root / "db1", "--performance-schema=ON", *logs))]
        if isinstance(mysqld, Path):
            servers.append(stack.enter_context(server("mysql-8.0", mysqld, root / "db2", *logs)))
        for each in servers:
            each.sql(
                "CREATE DATABASE shop",
                f"CREATE TABLE {table} (note TEXT)",
                f"INSERT INTO {table} VALUES ('x')",
                "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)",
                "INSERT INTO shop.t VALUES (1, 1), (2, 2)",
            )
            stack.enter_context(loaded(each))
        yield stack.enter_context(running(root, servers))


@contextlib.contextmanager
def running(root: Path, servers: Sequence[Server]) -> Iterator[Served]:
    archive = Archive(root / "history")
    archive.create()
    (root / "experiments").mkdir()
    hosts = [
        Host(f"db{i}", TargetSpec("local"), login=ServerLogin(socket=each.socket, user="root"))
        for i, each in enumerate(servers, 1)
    ]
    collector = Collector(archive, hosts, with_examples=True)
    sessions = Sessions(Users(root / "users"), SECRET, KEY)
    site = Site(Reader(archive), collector, sessions, Audit(root / "audit.log"), root / "experiments")
    with on_loopback(application(site)) as (url, loop):
        watched = list(collector.hosts.values())
        until(lambda: all(w.is_fresh and w.feed.facts and w.feed.ticks > 12 for w in watched))
        # The slow log's digest of a whole minute takes a minute: what it says is waited for elsewhere.
        until(lambda: all(any("lock" in row for row in w.listed) for w in watched))
        found = Served(url, site, loop)
        found.write()
        until(lambda: all(w.feed.ring.window(60).labels("statements", "count") for w in watched))
        time.sleep(11)  # the sampler of statements looks every ten seconds: two looks make a difference
        found.write()
        yield found


@pytest.fixture(scope="module")
def tab(served: Served) -> Iterator[browser.Page]:
    with browser.page() as page:
        served.within = within(page, f"{served.url}/enter?key={KEY}")
        yield page


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True), (2560, False)])
def test_every_page_is_drawn_without_an_error(
    served: Served, tab: browser.Page, width: int, dark: bool
) -> None:
    tab.look(width, dark=dark)
    for path in PAGES:
        tab.open(served.within + path)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} pixels wide in a window of {width}"
        assert (
            tab.evaluate(f"[...document.querySelectorAll('.scroll, nav > div')].filter({BEYOND}).length") == 0
        ), f"{path} has columns beyond the edge at {width}"
        assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert tab.evaluate("document.querySelector('h1').textContent.length") > 0
    assert not [url for url in tab.seen.network if not url.startswith(served.url)]
    assert not tab.seen.errors


def axe_script() -> str:
    axe = pytest.importorskip("axe_core_python")
    return (Path(axe.__path__[0]) / "axe.min.js").read_text()


def problems(tab: browser.Page, axe: str, rules: str = "") -> list[str]:
    """What axe-core calls serious or worse, by all rules or these."""
    only = f", runOnly: ['{rules}']" if rules else ""
    tab.evaluate(f"{axe}; 0")
    return list(
        tab.evaluate(
            f"axe.run(document, {{resultTypes: ['violations']{only}}}).then((found) => found.violations"
            ".filter((each) => ['serious', 'critical'].includes(each.impact))"
            ".map((each) => each.id + ': ' + each.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(' | ')))"
        )
    )


def test_every_page_can_be_read_and_used_by_everyone(served: Served, tab: browser.Page) -> None:
    script = axe_script()
    tab.look()
    tab.open(f"{served.within}/queries")
    query = tab.evaluate("document.querySelector('.classes tbody th a')?.href || ''").removeprefix(
        served.within
    )
    found = {}
    for dark in (False, True):
        tab.look(dark=dark)
        for path in (*PAGES, *([query] if query else [])):
            tab.open(served.within + path)
            found[f"{path}, {'dark' if dark else 'light'}"] = problems(
                tab, script, "color-contrast" if dark else ""
            )
    assert not {path: each for path, each in found.items() if each}


def test_a_finding_leads_to_its_statement_and_its_rule(served: Served, tab: browser.Page) -> None:
    tab.look()
    tab.open(f"{served.within}/host?host=db1")
    link = "[...document.querySelectorAll('#findings h3 a')].find((a) => a.textContent === 'LOCK02')"
    page = tab.evaluate(f"{link}.href")

    def has_statement() -> bool:
        tab.open(page)
        return bool(tab.evaluate("!!document.getElementById('statement')"))

    until(has_statement, pause_s=1)
    tab.evaluate("document.querySelector('[data-chart]').scrollIntoView()")
    until(lambda: tab.evaluate("!!document.querySelector('[data-chart] canvas')"))
    assert "update" in tab.evaluate("document.getElementById('statement').textContent").lower()
    assert not problems(tab, axe_script())
    for width, dark in ((400, True), (1280, False), (2560, False)):
        tab.look(width, dark=dark)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert not tab.seen.errors


def test_the_host_is_live_and_its_charts_are_drawn(served: Served, tab: browser.Page) -> None:
    tab.look()
    tab.open(f"{served.within}/host?host=db1")
    until(
        lambda: tab.evaluate("document.getElementById('live-state').textContent") == "one sample per second"
    )
    assert "Questions" in tab.evaluate("document.getElementById('live-keys').textContent")
    tab.evaluate("document.querySelector('[data-chart]').scrollIntoView()")
    until(lambda: tab.evaluate("!!document.querySelector('[data-chart] canvas')"))
    assert tab.evaluate("document.querySelector('.verdict').textContent.trim().length") > 20
    assert not tab.seen.errors


def test_a_query_is_found_and_its_plan_is_shown(served: Served, tab: browser.Page) -> None:
    source = "performance_schema"
    first = "document.querySelector('.classes tbody th a')?.href"

    def link() -> object:
        tab.open(f"{served.within}/queries?{urlencode({'source': source, 'q': 'onerror'})}")
        return tab.evaluate(first)

    until(link)
    assert "onerror" in tab.evaluate("document.querySelector('.classes tbody th').textContent")
    tab.open(tab.evaluate(first))
    tab.evaluate("document.querySelector('#plan [data-ask] button').click()")
    shown = "document.getElementById('plan-text').textContent"
    until(lambda: tab.evaluate(shown) not in ("", "asking …"))
    # MariaDB keeps no whole statement of a digest unless its history is on: then the answer says so.
    answer = tab.evaluate(shown)
    assert "query_block" in answer or "remembers no whole statement" in answer
    if not tab.evaluate("!!document.querySelector('#tables [data-ask]')"):
        return
    tab.evaluate("document.querySelector('#tables [data-ask] button').click()")
    sizes = "document.getElementById('tables-text').textContent"
    until(lambda: tab.evaluate(sizes) not in ("", "asking …"))
    assert "InnoDB, about" in tab.evaluate(sizes)
    assert tab.evaluate("document.querySelectorAll('main img').length") == 0
    assert not tab.seen.errors


def test_a_time_dragged_on_the_load_is_that_of_the_list_and_of_the_address(
    served: Served, tab: browser.Page
) -> None:
    tab.look()
    tab.open(f"{served.within}/queries?range=15m&host=db1&by=user")
    over = "document.querySelector('[data-load] .u-over')"
    until(lambda: tab.evaluate(f"!!{over}"))
    box = tab.evaluate(
        f"(() => {{ const r = {over}.getBoundingClientRect(); return [r.x, r.y, r.width]; }})()"
    )

    def mouse(kind: str, share: float) -> None:
        place = {"x": box[0] + share * box[2], "y": box[1] + 30}
        pressed = int(kind != "mouseReleased")
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=pressed, clickCount=1, **place)

    for kind, share in (
        ("mousePressed", 0.2),
        ("mouseMoved", 0.5),
        ("mouseMoved", 0.9),
        ("mouseReleased", 0.9),
    ):
        mouse(kind, share)
    until(lambda: "from=" in tab.evaluate("location.search") and tab.evaluate(f"!!{over}"))
    assert "Statements from" in tab.evaluate("document.querySelector('#classes h2').textContent")
    shown = "document.querySelector('[data-load] .u-legend').textContent"
    assert "root" in tab.evaluate(shown)
    assert "CPUs" in tab.evaluate("document.querySelector('[data-load]').textContent")
    assert tab.evaluate("document.querySelector('.u-select').offsetWidth") > 0
    assert not tab.seen.errors


@pytest.mark.parametrize("host", ["db1", "db2"])
def test_who_waits_for_whom_on_both_vendors(served: Served, tab: browser.Page, host: str) -> None:
    if served.site.watched(host) is None:
        pytest.skip("no MySQL 8.0")
    tab.open(f"{served.within}/now?host={host}")
    waits = tab.evaluate("document.getElementById('waits').textContent")
    assert "shop" in waits
    assert "row" in waits
    branches = "[...document.querySelectorAll('#waits tbody th .muted')]"
    # The branch of a branch is indented.
    assert tab.evaluate(f"{branches}.map((e) => e.textContent.length)") == [2, 3]


def test_two_vendors_are_compared(served: Served, tab: browser.Page) -> None:
    if served.site.watched("db2") is None:
        pytest.skip("no MySQL 8.0")
    source = "performance_schema"
    text = "document.querySelector('main').textContent"

    def both() -> bool:
        shown = []
        for host in ("db1", "db2"):
            tab.open(f"{served.within}/queries?{urlencode({'source': source, 'host': host})}")
            shown.append("onerror" in tab.evaluate(text))
        return all(shown)

    until(both)
    # Neither list has headrace's own statements.
    assert "performance_schema." not in tab.evaluate("document.querySelector('.classes').textContent")
    tab.open(f"{served.within}/compare?{urlencode({'source': source, 'with_host': 'db1', 'host': 'db2'})}")
    rows = tab.evaluate("document.querySelectorAll('#classes tbody tr').length")
    assert rows >= 2
    assert "cpu" in tab.evaluate("document.getElementById('resources').textContent")
    assert not tab.seen.errors


def test_a_logout_ends_the_stream_and_the_pages(served: Served, tab: browser.Page) -> None:
    with browser.page() as other:
        below = within(other, f"{served.url}/enter?key={KEY}")
        other.open(f"{below}/")
        other.evaluate("document.querySelector('.who button').click()")
        until(lambda: other.evaluate("location.pathname") == "/login")
        for address in (below, served.url):
            other.open(f"{address}/queries")
            until(lambda: other.evaluate("location.pathname + document.readyState") == "/logincomplete")
