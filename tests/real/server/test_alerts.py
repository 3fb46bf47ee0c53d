"""Alerts of `headrace serve` on a live server: what stands out reaches a webhook within two minutes, once."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.history.archive.files import HOUR_S, Archive
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, TABLES
from headrace.history.collect.minute import table_of
from tests.history import state
from tests.servers import Server, mariadb, open_folder

HEADRACE = Path(sys.executable).parent / "headrace"
HOST = socket.gethostname()
TOLD_WITHIN_S = 120.0
LIMIT = 30


@contextlib.contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the notices that it got."""
    got: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(json.loads(content)["notice"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/", got
        http.shutdown()


def learn(archive: Archive, host: str) -> None:
    """Thirty quiet hours."""
    end_s = int(time.time()) // HOUR_S * HOUR_S
    known = {"source": PERFORMANCE_SCHEMA, "class": "known", "database": "", "calls": 3600, "time_ns": 3.6e9}
    for i in range(1, 31):
        for table, rows in (("states", [state()]), ("classes", [known])):
            t_s = end_s - i * HOUR_S
            archive.write(TABLES[table], host, "h", t_s, table_of(TABLES[table], rows, t_s))


@contextlib.contextmanager
def serving(root: Path, server: Server, url: str) -> Iterator[subprocess.Popen[str]]:
    (root / "hook.toml").write_text(f'url = "{url}"\n')
    words = ["serve", "--mysql-socket", server.socket, "--mysql-user", "root", "--listen", "127.0.0.1:0"]
    words += ["--data", str(root / "history"), "--experiments", str(root), "--link", "https://db.example"]
    words += ["--tell", f"webhook:{root / 'hook.toml'}"]
    process = subprocess.Popen(
        [HEADRACE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
        print(output)


@pytest.mark.thorough
def test_what_stands_out_reaches_a_webhook_within_two_minutes(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(open_folder())
        url, got = stack.enter_context(webhook())
        options = ("--performance-schema=ON", f"--max-connections={LIMIT}")
        server = stack.enter_context(mariadb(folder / "m", *options))
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)")
        server.sql("INSERT INTO shop.t VALUES (1, 1)")
        archive = Archive(root / "history")
        archive.create()
        learn(archive, HOST)
        stack.enter_context(serving(root, server, url))
        time.sleep(40)
        assert got == [], "nothing stands out yet"
        began_s = time.time()
        links = [
            stack.enter_context(
                contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True))
            )
            for _ in range(LIMIT - 4)
        ]
        links[0].begin()
        links[0].cursor().execute("UPDATE shop.t SET n = 2 WHERE id = 1")
        done = threading.Event()
        threads = [threading.Thread(target=_work, args=(link, done)) for link in links[1:7]]
        for thread in threads:
            thread.start()
        wanted = {"connections near the limit", "new bottleneck", "new query class"}
        at_s: dict[str, float] = {}
        while time.time() < began_s + TOLD_WITHIN_S and wanted - at_s.keys():
            for each in list(got):
                at_s.setdefault(each["subject"].split(": ")[1], time.time() - began_s)
            time.sleep(1)
        done.set()
        for thread in threads:
            thread.join()
        assert not wanted - at_s.keys(), at_s
        assert len({each["id"] for each in got}) == len(got), "each is told once"
        assert all(each["conclusion"] == "raised" and each["subject"].startswith(f"{HOST}: ") for each in got)


def _work(link: Any, done: threading.Event) -> None:
    """Waits for a row, again and again; and executes a class that is new."""
    cursor = link.cursor()
    cursor.execute("SET innodb_lock_wait_timeout = 2")
    while not done.is_set():
        with contextlib.suppress(pymysql.OperationalError):
            cursor.execute("UPDATE shop.t SET n = n + 1 WHERE id = 1")
        cursor.execute("SELECT SLEEP(0.2), COUNT(*) FROM shop.t")
