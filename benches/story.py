"""A planted fault, found in the pages of ``headrace serve`` by clicks alone, tested, and rolled out.

    python benches/story.py [DIR]

A MariaDB serves a small shop to a dozen customers. Somebody turns off one switch of the optimiser, so
a plan becomes a scan, transactions hold their row locks longer, and others wait. From the first page on everything
is reached by clicks in Chromium; commands are only those that a page shows, and those of a rollout. DIR gets a
picture of each step: docs/assets/story has those of docs/howto/follow-a-slow-query.md.

The hour before the fault is made of the minutes that were measured before it. All that follows is measured.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
from pymysql.cursors import Cursor

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests import browser  # noqa: E402
from tests.programs import agent_path  # noqa: E402
from tests.servers import Server, mariadb, open_folder  # noqa: E402
from tests.waiting import until  # noqa: E402

from headrace.history.archive.files import MINUTE_S, Archive  # noqa: E402
from headrace.history.archive.tables import TABLES  # noqa: E402

MINUTES = 15
NEEDS = {"chromium": "chromium", "mariadbd": "mariadb-server"}

HOST, FAULT, FIX = "db1", "index_merge=off", "server.optimizer_switch=index_merge=on"
ROWS, CUSTOMERS = 120_000, 20_000
#: Minutes before the fault that are measured, and the minutes that are made of them.
HEALTHY, COPIED = 1, 58
#: Minutes with the fix, for the last picture.
FIXED_MINUTES = 3
#: How long a busy machine may take for what takes minutes.
LATE_S = 600.0
WIDTH, HEIGHT = 1180, 780
FINDINGS_HEIGHT = 760

SETUP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.stock (id INT PRIMARY KEY, sold INT)",
    "INSERT INTO shop.stock VALUES (1, 0)",
    "CREATE TABLE shop.item (id INT PRIMARY KEY, name CHAR(40))",
    "INSERT INTO shop.item SELECT seq, CONCAT('item ', seq) FROM shop.seq_1_to_10000",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer INT, referrer INT, total INT, note CHAR(60), "
    "KEY customer (customer), KEY referrer (referrer))",
    f"INSERT INTO shop.orders SELECT seq, seq % {CUSTOMERS}, seq * 7919 % {CUSTOMERS}, 10, 'paid' "
    f"FROM shop.seq_1_to_{ROWS}",
    "ANALYZE TABLE shop.orders",
)
#: What sessions do: of three steps one is a purchase, two look at an item.
SELL = "UPDATE stock SET sold = sold + 1 WHERE id = 1"
SUM = "SELECT COUNT(*), SUM(total) FROM orders WHERE customer = %s OR referrer = %s"
LOOK = "SELECT name FROM item WHERE id = %s"
RENAME = "UPDATE item SET name = 'item 7' WHERE id = 7"
#: Sessions of the shop, their pause before each step (short, so that purchases with a scan queue on any machine),
#: and how long a connection lives: not long, because the switch is copied when a connection is made. They are
#: closed as they should be: the rollout counts aborted ones.
SESSIONS, PAUSE_S, LIVES_S = 12, 0.05, 2.5
#: Customers who buy without a pause while locks are looked at, and clerks who correct one item, then its stock.
#: All want the same row, so there is a queue however fast the machine is; the second clerk waits for the first.
BUYERS, CLERKS = 4, 2
STAGES = """
[timing]
block_s = 7
wash_s = 3
soak_s = 6
sample_s = 0.2
[judge]
looks = [6, 8, 10]
idle_per_s = 1
[[stage]]
name = "production"
take = "sources"
"""


def main() -> None:
    with open_folder() as folder:
        tell(folder)


def tell(folder: Path) -> None:
    pictures = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    logs = ("--slow-query-log=ON", "--long-query-time=0", "--slow-query-log-file=slow.log")
    more = ("--performance-schema=ON", "--innodb-buffer-pool-size=256M")
    began = time.monotonic()
    with mariadb(folder / "db1", *logs, *more) as server:
        server.sql(*SETUP)
        with working([shop] * SESSIONS, server), Commands(folder, server) as commands, browser.page() as tab:
            Story(server, commands, tab, pictures).told()
    sizes = {path.name: path.stat().st_size for path in sorted(pictures.glob("*.webp"))}
    for name, size in sizes.items():
        print(f"{name}: {size / 1000:.0f} kB")
    print(f"{len(sizes)} pictures, {sum(sizes.values()) / 1000:.0f} kB; {time.monotonic() - began:.0f} s")


@contextlib.contextmanager
def working(sessions: Sequence[Callable[[Cursor, threading.Event], None]], server: Server) -> Iterator[None]:
    """Each on a connection of its own until it returns, then on a new one, until the block ends."""
    done = threading.Event()
    failed: list[BaseException] = []

    def work(session: Callable[[Cursor, threading.Event], None]) -> None:
        options: dict[str, Any] = {"unix_socket": server.socket, "user": "root", "database": "shop"}
        try:
            while not done.is_set():
                with (
                    contextlib.closing(pymysql.connect(**options, ssl_disabled=True)) as link,
                    link.cursor() as cursor,
                ):
                    session(cursor, done)
        except pymysql.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in sessions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def buy(cursor: Cursor) -> None:
    cursor.execute(SELL)
    cursor.execute(SUM, [random.randrange(CUSTOMERS), random.randrange(CUSTOMERS)])
    cursor.connection.commit()


def shop(cursor: Cursor, done: threading.Event) -> None:
    """A customer, for as long as a connection lives."""
    end = time.monotonic() + LIVES_S
    while time.monotonic() < end and not done.wait(PAUSE_S):
        if random.randrange(3):
            cursor.execute(LOOK, [random.randint(1, 10_000)])
            cursor.connection.commit()
        else:
            buy(cursor)


def hurry(cursor: Cursor, done: threading.Event) -> None:
    while not done.is_set():
        buy(cursor)


def correct(cursor: Cursor, done: threading.Event) -> None:
    while not done.is_set():
        cursor.execute(RENAME)
        cursor.execute(SELL)
        cursor.connection.commit()


class Commands:
    """``headrace serve``, and other commands, with a state of their own."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.archive = Archive(folder / "history")
        (folder / "experiments").mkdir()
        state = {"XDG_STATE_HOME": str(folder / "state"), "HEADRACE_STATE": str(folder / "journal")}
        # Absolute: the commands run elsewhere.
        sources = {"PYTHONPATH": str(HERE.parent / "src"), "HEADRACE_AGENT": agent_path()}
        self.env = {**os.environ, **state, **sources, "COLUMNS": "160"}
        fleet = f'[fleet]\nfiles = ["hosts.json"]\n[fleet.mysql]\nsocket = "{server.socket}"\nuser = "root"\n'
        (folder / "fleet.toml").write_text(fleet)
        hosts = {"_meta": {"hostvars": {HOST: {"ansible_connection": "local"}}}, "all": {"hosts": [HOST]}}
        (folder / "hosts.json").write_text(json.dumps(hosts))
        (folder / "stages.toml").write_text(STAGES)

    def __enter__(self) -> Commands:
        argv = ["serve", "--data", str(self.archive.root), "--listen", "127.0.0.1:0", "--examples", "--plans"]
        argv += [
            "--experiments",
            str(self.folder / "experiments"),
            "--fleet",
            str(self.folder / "fleet.toml"),
        ]
        self._log = (self.folder / "serve.log").open("w")
        self._serve = subprocess.Popen(
            [sys.executable, "-m", "headrace", *argv],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self.env,
            text=True,
            cwd=self.folder,
        )
        assert self._serve.stdout
        self.link = self._serve.stdout.readline().strip()
        assert self.link, (self.folder / "serve.log").read_text()
        return self

    def __exit__(self, *_: object) -> None:
        self._serve.terminate()
        self._serve.wait(60)
        self._log.close()

    def run(self, *words: str, code: int = 0) -> str:
        print(f"$ headrace {shlex.join(words)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        print(done.stdout[-1500:], flush=True)
        return done.stdout

    def minutes(self) -> list[int]:
        return [file.t_s for file in self.archive.files("states", HOST) if file.kind == "m"]

    def newest(self) -> int:
        """The last minute; their number falls when an hour is rolled up."""
        return max(self.minutes(), default=0)

    def copy_back(self) -> None:
        """Minutes before the first one, made of those that were measured; the first is not whole."""
        first, *whole = self.minutes()
        for name in ("states", "resources", "metrics", "classes", "buckets"):
            paths = [self.archive.path(name, HOST, "m", t_s) for t_s in whole]
            rows = [pq.read_table(path) for path in paths if path.exists()]
            for i in range(1, COPIED + 1):
                t_s, copy = first - i * MINUTE_S, rows[i % len(rows)]
                at = copy.schema.get_field_index("t_s")
                copy = copy.set_column(at, "t_s", pa.array([t_s] * len(copy), pa.int64()))
                self.archive.write(TABLES[name], HOST, "m", t_s, copy)


class Story:
    """A person with a mouse."""

    def __init__(self, server: Server, commands: Commands, tab: browser.Page, pictures: Path) -> None:
        self.server, self.commands, self.tab, self.pictures = server, commands, tab, pictures

    def told(self) -> None:
        self.healthy()
        self.the_fault()
        self.which_query()
        self.what_changed()
        self.who_waits()
        self.is_tested()
        self.is_rolled_out()
        self.is_on_the_chart()
        assert not self.tab.seen.errors, self.tab.seen.errors

    def healthy(self) -> None:
        wait(lambda: len(self.commands.minutes()) >= HEALTHY + 1, "healthy minutes", LATE_S)
        wait(lambda: self.commands.archive.files("plans", HOST), "the plan before", LATE_S)
        self.commands.copy_back()

    def the_fault(self) -> None:
        self.server.sql(f"SET GLOBAL optimizer_switch = '{FAULT}'")
        self.fault_s = time.time()
        self.tab.look(WIDTH, HEIGHT)
        self.tab.open(self.commands.link)
        before = self.commands.newest()
        wait(lambda: self.commands.newest() >= before + 2 * MINUTE_S, "minutes with the fault", LATE_S)

    def which_query(self) -> None:
        self.click("nav a", "Queries")
        self.click(".switch.links a", "15m")
        self.click("th a[href*='p99_change']", "before")
        top = [self.text(f".classes tbody tr:nth-child({i}) th") for i in (1, 2)]
        assert any("orders" in each for each in top), top
        self.picture("1-queries", "main", 430)
        self.click(".classes tbody th a", "orders")
        wait(lambda: self.exists("#time canvas"), "the charts of the class")
        self.picture("2-class", "body", HEIGHT)

    def what_changed(self) -> None:
        """The page of the class again and again, until its new plan is in the history."""

        def has_two() -> bool:
            self.click(".switch.links a", "15m")
            return int(self.tab.evaluate("document.querySelectorAll('#plan details').length")) >= 2

        wait(has_two, "the new plan of the class", LATE_S, 5)
        plans = [self.text(f"#plan details:nth-of-type({i}) pre") for i in (1, 2)]
        assert "ALL" in plans[0], plans
        assert "index_merge" in plans[1], plans
        self.click("#plan details:nth-of-type(2) summary")
        self.picture("3-plans", "#plan", 520)
        self.click("nav a", "Changes")

        def is_named() -> bool:
            self.click(".switch.links a", "1h")
            return "index_merge=off" in self.text("main")

        wait(is_named, "the changed setting", LATE_S, 5)

    def who_waits(self) -> None:
        self.click("nav a", "Now")

        def is_deep() -> bool:
            self.click("main a", "Refresh")
            rows = int(self.tab.evaluate("document.querySelectorAll('#waits tbody tr').length"))
            # A branch of a branch is indented.
            branches = "[...document.querySelectorAll('#waits tbody th .muted')]"
            nested = f"{branches}.some((e) => e.textContent.length > 2)"
            root = self.text("#waits tbody tr:nth-child(1)")
            return rows >= BUYERS and "orders" in root and bool(self.tab.evaluate(nested))

        with working([hurry] * BUYERS + [correct] * CLERKS, self.server):
            wait(is_deep, "a tree of waits", LATE_S, 0.5)
        self.picture("4-waits", "#waits", 480)

    def is_tested(self) -> None:
        self.click("nav a", "Hosts")
        self.click(".hosts tbody th a", HOST)
        row = "[...document.querySelectorAll('.findings tbody tr')].find((r) => r.textContent.includes('STMT06'))"

        def is_found() -> bool:
            self.click(".switch.links a", "1h")
            return bool(self.tab.evaluate(f"!!({row})"))

        wait(is_found, "the finding", 180, 5)
        # A busy machine has more findings, and worse ones.
        top = "document.querySelector('#findings').getBoundingClientRect().top"
        far = float(
            self.tab.evaluate(f"({row}).id = 'found', ({row}).getBoundingClientRect().bottom - {top}")
        )
        self.picture("5-finding", "#findings" if far < FINDINGS_HEIGHT else "#found", FINDINGS_HEIGHT)
        shown = str(self.tab.evaluate(f"({row}).querySelector('[data-label=\"Tested by\"]').textContent"))
        for command in shown.split(" && "):
            name, *words = shlex.split(command)
            assert name == "headrace", shown
            # Shorter than by default.
            self.commands.run(*words, *(["--duration", "6s", "--blocks", "3"] if words[0] == "prove" else []))
        self.click("nav a", "Experiments")
        self.click("main tbody th a", "")
        wait(lambda: self.exists("iframe.report"), "the report")
        time.sleep(3)  # the report draws itself
        self.picture("6-report", "body", HEIGHT)

    def is_rolled_out(self) -> None:
        options = ["--fleet", "fleet.toml", "--stages", "stages.toml", "--evidence", "experiments"]
        plan = json.loads(self.commands.run("rollout", "plan", FIX, *options, "--json"))["id"]
        self.commands.run("rollout", "go", plan, code=15)
        self.click("nav a", "Rollouts")
        self.click("main tbody th a", "")
        self.click("#approve button", "Approve")
        wait(lambda: "is approved by" in self.text("#approve"), "the approval")
        self.commands.run("rollout", "go", plan)
        self.click("nav a", "Rollouts")
        self.click("main tbody th a", "")
        assert "pass" in self.text("#stages"), self.text("#stages")
        self.picture("7-rollout", "body", HEIGHT)

    def is_on_the_chart(self) -> None:
        enough = self.commands.newest() + FIXED_MINUTES * MINUTE_S
        wait(
            lambda: self.commands.newest() >= enough,
            "minutes with the fix",
            FIXED_MINUTES * MINUTE_S + LATE_S,
        )
        self.click("nav a", "Queries")
        self.click("th a[href*='p99_change']", "before")
        self.click(".classes tbody th a", "orders")

        def is_marked() -> bool:
            self.click(".switch.links a", "15m")
            return self.exists("#time .marks") and "kept" in self.text("#time .marks")

        wait(is_marked, "the mark", 120, 3)
        said = self.text("#time .marks")
        assert "pass" in said, said
        assert " to " in said, said
        self.picture("8-mark", "#time", 620)
        for row in self.tab.evaluate(
            "[...document.querySelectorAll('[data-changes] tbody tr')].map(r => r.innerText)"
        ):
            print("change", row.replace("\n", " | "), flush=True)
        print(f"the mark: {said}")

    # The mouse and the eye

    def click(self, selector: str, words: str = "") -> None:
        """Click on the first element that holds the words; if it leads to another page, wait for that."""
        every = f"[...document.querySelectorAll({json.dumps(selector)})]"
        find = f"{every}.find((e) => e.textContent.includes({json.dumps(words)}))"
        box: dict[str, Any] = {}

        def is_there() -> bool:
            found = self.tab.evaluate(
                f"(() => {{ const e = {find}; if (!e || document.readyState !== 'complete') return null; "
                "e.scrollIntoView({block: 'center'}); "
                "const b = (e.firstElementChild || e).getBoundingClientRect(); "
                "return b && b.width ? {x: b.x + Math.min(b.width / 2, 60), y: b.y + b.height / 2, "
                "leads: !!e.closest('a, form:not([data-ask]) button')} : null; })()"
            )
            box.update(found or {})
            return bool(found)

        wait(is_there, f"{selector} with {words!r}", 60)
        self.tab.evaluate("window.was = true")
        for kind in ("mousePressed", "mouseReleased"):
            self.tab.call(
                "Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1
            )
        if box["leads"]:
            here = "!window.was && document.readyState === 'complete'"
            wait(lambda: bool(self.tab.evaluate(here)), f"the page behind {selector} {words!r}", 60)

    def text(self, selector: str) -> str:
        return str(self.tab.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent || ''"))

    def exists(self, selector: str) -> bool:
        return bool(self.tab.evaluate(f"!!document.querySelector({json.dumps(selector)})"))

    def picture(self, name: str, selector: str, height: int) -> None:
        """From the element's top on."""
        self.tab.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView()")
        time.sleep(1)  # charts are drawn when they come near
        top = self.tab.evaluate(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top + scrollY"
        )
        whole = self.tab.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": max(top - 8, 0), "width": WIDTH, "height": min(height, whole - top), "scale": 1}
        shot = self.tab.call(
            "Page.captureScreenshot", format="webp", quality=60, clip=clip, captureBeyondViewport=True
        )
        (self.pictures / f"{name}.webp").write_bytes(base64.b64decode(shot["data"]))
        print(f"picture {name}, {time.strftime('%H:%M:%S')}", flush=True)


def wait(condition: Any, what: str, limit_s: float = 120.0, pause_s: float = 0.2) -> None:
    """Until it holds; a page that is being left cannot be asked."""

    def holds() -> bool:
        try:
            return bool(condition())
        except RuntimeError:
            return False

    until(holds, limit_s=limit_s, pause_s=pause_s, what=what)


if __name__ == "__main__":
    main()
