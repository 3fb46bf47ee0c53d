"""An index applied to real servers and taken back: alone, against a lock of others, and killed at a step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from headrace.base.errors import Busy, DiskFull
from headrace.base.model import ServerLogin
from headrace.indexes import applied, watching
from tests import commands
from tests.servers import Server, started
from tests.vendors import OF_EACH_VENDOR
from tests.waiting import until

INDEX = "shop.orders(customer, total)"


@pytest.fixture(scope="module", params=OF_EACH_VENDOR)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / f"applied-{request.param}") as server:
        server.sql(
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, total INT, note VARCHAR(80))",
            "CREATE TABLE other (id INT PRIMARY KEY, customer INT) ENGINE=MyISAM",
            "INSERT INTO orders (customer, total, note) VALUES (1, 1, REPEAT('x', 70))",
            *["INSERT INTO orders (customer, total, note) SELECT id % 997, id, note FROM orders"] * 13,
            "CREATE TABLE big (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, note VARCHAR(80))",
            "INSERT INTO big (customer, note) SELECT customer, note FROM orders",
            *["INSERT INTO big (customer, note) SELECT id % 997, note FROM big"] * 4,
        )
        yield server


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def login(server: Server) -> ServerLogin:
    return ServerLogin(socket=server.socket, user="root")


def headrace(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.headrace(*words, "--mysql-socket", str(server.socket), "--mysql-user", "root")


def names(server: Server) -> set[str]:
    rows = server.sql("SELECT index_name FROM information_schema.statistics WHERE table_schema = 'shop'")
    return {str(name) for (name,) in rows} - {"PRIMARY"}


def test_it_is_applied_listed_and_taken_back(server: Server) -> None:
    planned = headrace(server, "apply", f"index:{INDEX}", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "ALGORITHM=INPLACE, LOCK=NONE" in planned.stdout
    assert names(server) == set()

    done = headrace(server, "apply", f"index:{INDEX}")
    assert done.returncode == 0, done.stderr
    plan = server.sql("EXPLAIN SELECT total FROM shop.orders WHERE customer = 5")
    assert "hr_customer_total" in str(plan)
    again = headrace(server, "apply", f"index:{INDEX}")
    assert again.returncode == 5
    listed = json.loads(headrace(server, "rollback", "--list", "--json").stdout)
    assert [(each["index"]["name"], each["state"]) for each in listed["indexes"]] == [
        ("hr_customer_total", "shown")
    ]

    undone = headrace(server, "rollback", "--index", INDEX)
    assert undone.returncode == 0, undone.stderr
    assert names(server) == set()
    assert applied.journalled() == []
    assert headrace(server, "rollback", "--index", INDEX).returncode == 5


def test_what_cannot_be_online_is_refused_with_the_command_lines_of_others(server: Server) -> None:
    done = headrace(server, "apply", "index:shop.other(customer)")
    assert done.returncode == 5
    assert "gh-ost" in done.stderr
    assert "pt-online-schema-change" in done.stderr
    assert names(server) == set()


def test_a_table_that_others_hold_is_given_way_to(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied, "TRIES", 2)
    holder = pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
    waits: list[float] = []
    with holder.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT COUNT(*) FROM shop.orders")
        stop = threading.Event()

        def application() -> None:
            while not stop.is_set():
                started_s = time.monotonic()
                server.sql("SELECT id FROM shop.orders WHERE id = 5")
                waits.append(time.monotonic() - started_s)

        beside = threading.Thread(target=application)
        beside.start()
        try:
            with pytest.raises(Busy, match="gave way 2 times"):
                applied.make(login(server), applied.index_of(INDEX), lambda _: None, pause_s=0.2)
        finally:
            stop.set()
            beside.join()
    holder.close()
    assert max(waits) < applied.LOCK_WAIT_S + 2, max(waits)
    assert names(server) == set()
    assert applied.journalled() == []


def test_what_a_killed_one_left_is_in_the_journal_and_taken_back(server: Server) -> None:
    holder = pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
    with holder.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT COUNT(*) FROM shop.orders")
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "apply", f"index:{INDEX}",
             "--mysql-socket", str(server.socket), "--mysql-user", "root"],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ),
        )  # fmt: skip
        end = time.monotonic() + 30
        while not applied.journalled() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    holder.close()
    (entry,) = applied.journalled()
    assert entry.state is not applied.State.SHOWN
    applied.undo(login(server), INDEX, lambda _: None)
    time.sleep(0.5)
    assert names(server) == set()
    assert applied.journalled() == []


def test_writes_go_on_while_it_is_built_and_shown(server: Server) -> None:
    waits: list[float] = []
    begun, stop = threading.Event(), threading.Event()

    def application() -> None:
        with pymysql.connect(
            unix_socket=server.socket, user="root", ssl_disabled=True, autocommit=True
        ) as client:
            while not stop.is_set():
                started_s = time.monotonic()
                client.cursor().execute("INSERT INTO shop.big (customer, note) VALUES (5, 'x')")
                waits.append(time.monotonic() - started_s)
                begun.set()

    beside = threading.Thread(target=application)
    beside.start()
    try:
        assert begun.wait(60)
        entry = applied.make(login(server), applied.index_of("shop.big(customer, note)"), lambda _: None)
        assert entry.state is applied.State.SHOWN
        applied.undo(login(server), "shop.big(customer, note)", lambda _: None)
    finally:
        stop.set()
        beside.join()
    assert max(waits) < applied.LOCK_WAIT_S + 1, max(waits)
    assert names(server) == set()


def test_what_is_not_confirmed_is_dropped_at_its_deadline(server: Server) -> None:
    confirmed = "shop.orders(total)"
    for index in (INDEX, confirmed):
        done = headrace(server, "apply", f"index:{index}", "--confirm-within", "12s")
        assert done.returncode == 0, done.stderr
    assert names(server) == {"hr_customer_total", "hr_total"}
    kept = headrace(server, "apply", "--confirm", f"index:{confirmed}")
    assert kept.returncode == 0, kept.stderr
    assert headrace(server, "apply", "--confirm", f"index:{confirmed}").returncode == 5
    until(lambda: names(server) == {"hr_total"}, limit_s=90, pause_s=0.2)
    until(lambda: len(applied.journalled()) == 1, limit_s=30)
    # What took the other one back may not have ended yet, and until then the server's indexes are its own.
    until(lambda: headrace(server, "rollback", "--index", confirmed).returncode == 0, limit_s=60)
    assert names(server) == set()


def test_a_disk_that_gets_short_stops_the_build(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    make = applied.make
    with monkeypatch.context() as patch:
        patch.setattr(watching, "LEAST_FREE_BYTES", 1 << 60)
        with pytest.raises(DiskFull, match="are to stay free"):
            make(login(server), applied.index_of(INDEX), lambda _: None)
    assert applied.journalled() == []
    monkeypatch.setattr(watching, "LOOK_S", 0.05)
    looks = [watching.Space(1 << 40, 1)]
    monkeypatch.setattr(watching, "space_of", lambda _: looks.pop() if looks else watching.Space(0, 1))
    holder = pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
    with holder.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT COUNT(*) FROM shop.orders")
        with pytest.raises(DiskFull, match="stopped the build"):
            make(login(server), applied.index_of(INDEX), lambda _: None)
    holder.close()
    assert names(server) == set()
    assert applied.journalled() == []


def test_a_replica_that_does_not_say_how_far_it_is_stops_it_before_it_begins(server: Server) -> None:
    limits = watching.Limits((server.socket,))
    with pytest.raises(watching.Lagging, match="does it replicate"):
        applied.make(login(server), applied.index_of(INDEX), lambda _: None, limits=limits)
    assert names(server) == set()
    assert applied.journalled() == []


def test_it_is_kept_only_if_the_load_gets_faster(server: Server) -> None:
    if not int(str(server.sql("SELECT @@performance_schema")[0][0])):
        refused = headrace(server, "apply", "index:shop.big(customer)", "--judge")
        assert refused.returncode == 4, refused.stderr
        assert "performance_schema" in refused.stderr
        assert names(server) == set()
        return
    stop = threading.Event()

    def application() -> None:
        with pymysql.connect(
            unix_socket=server.socket, user="root", ssl_disabled=True, database="shop", autocommit=True
        ) as client:
            while not stop.is_set():
                client.cursor().execute("SELECT SUM(id) FROM big WHERE customer = 17")

    beside = threading.Thread(target=application)
    beside.start()
    try:
        short = ("--judge", "--duration", "2s", "--warmup", "0s", "--blocks", "3", "--json")
        done = headrace(server, "apply", "index:shop.big(customer)", *short)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["kept"] is True
        assert answer["whole"]["high"] < 1
        assert "hr_customer" in names(server)
        assert [each.deadline_s for each in applied.journalled()] == [None]
        # What no statement uses makes nothing faster.
        useless = headrace(server, "apply", "index:shop.big(note)", *short)
        assert useless.returncode in (13, 15), useless.stderr
        assert "hr_note" not in names(server)
        applied.undo(login(server), "shop.big(customer)", lambda _: None)
    finally:
        stop.set()
        beside.join()
