"""What the driver does when something happens to a real MariaDB: killed, full, locked, slow.

Nothing hangs, and every operation that began is accounted for. What no real server does is in
``test_drive_protocol``.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.base.buckets import bucket_value
from tests.driver import PING_CONNECTIONS, drive, driven
from tests.faults import (
    CANNOT_CONNECT,
    CONNECTION_LOST,
    asking,
    assert_adds_up,
    assert_refused,
    begun,
    errors,
    failed,
    interrupted,
    meanwhile,
    tcp,
)
from tests.servers import Server, mariadb
from tests.waiting import until

TABLE = {"kind": "oltp", "tables": 1, "table_size": 1000}
LONGEST_QUERY_S = 0.2


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run(
        [*certificate, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
    )
    (folder / "key.pem").chmod(0o644)
    (folder / "secret").write_text("rosebud-7731")
    (folder / "wrong").write_text("rosebud-7732")
    options = [f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem", "--max-allowed-packet=64M"]
    options += ["--innodb-lock-wait-timeout=1", "--max-connections=20"]
    with mariadb(folder / "m", *options) as server:
        server.sql(
            "CREATE DATABASE sbtest",
            "CREATE USER driver@'%'",
            "CREATE USER locked@'%' IDENTIFIED BY 'rosebud-7731'",
            "CREATE USER encrypted@'%' REQUIRE SSL",
            f"CREATE USER hurried@'%' WITH MAX_STATEMENT_TIME {LONGEST_QUERY_S}",
            *[f"GRANT ALL ON *.* TO {user}@'%'" for user in ("driver", "locked", "encrypted", "hurried")],
            # With these it would find room beyond max_connections.
            "REVOKE SUPER, CONNECTION ADMIN ON *.* FROM driver@'%'",
        )
        drive(local(server), {"workload": TABLE}, verb="load")
        yield server


def local(server: Server, user: str = "driver") -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", user, "--mysql-database", "sbtest"]


def as_user(server: Server, user: str, *more: str) -> list[str]:
    return [*tcp(server.port, user), "--mysql-database", "sbtest", *more]


def connections_of(server: Server, user: str = "driver", command: str = "%") -> list[int]:
    rows = server.sql(
        "SELECT id FROM information_schema.processlist"
        f" WHERE user = '{user}' AND command LIKE '{command}' AND db = 'sbtest'"
    )
    return [int(str(row[0])) for row in rows]


@pytest.mark.parametrize("pacing", ["closed", "open"])
def test_killed_and_back(server: Server, pacing: str) -> None:
    spec: dict[str, Any] = {"workload": {**TABLE, "script": "read_only"}, "connections": 4, "seconds": 4}
    spec["pacing"] = {"kind": pacing}
    if pacing == "open":
        spec["pacing"] |= {"arrivals": "constant", "rate_ops_s": 100}
    with meanwhile(local(server), spec) as end:
        until(lambda: len(connections_of(server)) == 4)
        time.sleep(1)
        server.process.kill()
        server.process.wait()
        gone_s = time.monotonic()
        time.sleep(0.7)
        server.start()
        gone_s = time.monotonic() - gone_s
        run = end()
    assert_adds_up(run, spec)
    lost = errors(run, "read_only")
    assert set(lost) <= {CONNECTION_LOST}
    assert sum(lost.values()) <= run.end["connections_lost"] == run.sum("count", "connect") == 4
    # Each client tries 8 times in the first second, then about once a second.
    attempts = errors(run, "connect")
    assert set(attempts) <= {CANNOT_CONNECT, CONNECTION_LOST}
    assert 4 * 3 <= sum(attempts.values()) <= 4 * (9 + 2 * gone_s)
    last = run.rows("read_only")[-1]
    assert last["count"] > 0, "it did not go on"
    slowest_s = max(row["response"]["max_ns"] or 0 for row in run.rows()) / 1e9
    if pacing == "closed":
        assert lost[CONNECTION_LOST] >= 1
        assert slowest_s < gone_s, "a reconnect is a class of its own"
    else:
        assert begun(run, "read_only") == 400
        assert slowest_s > 0.9 * gone_s, "users waited"


def test_wrong_password(server: Server) -> None:
    folder = server.folder.parent
    for login in (local(server, "locked"), as_user(server, "locked")):
        secret = ["--mysql-password-file", str(folder / "wrong")]
        said = assert_refused([*login, *secret], asking(), "Access denied for user 'locked'", "(error 1045)")
        assert "rosebud" not in said
        run = driven([*login, "--mysql-password-file", str(folder / "secret")], asking())
        assert run.sum("count") == 60


def test_no_room(server: Server) -> None:
    said = assert_refused(local(server), asking(connections=30), "Too many connections", "(error 1040)")
    assert said.count("\n") == 1
    until(lambda: not connections_of(server))
    assert driven(local(server), asking(connections=10)).sum("count") == 60


def test_deadlocks_are_counted_and_mended(server: Server) -> None:
    hot = {"kind": "hot", "keys": 0.002, "operations": 1}
    spec: dict[str, Any] = {"workload": {**TABLE, "script": "write_only", "distribution": hot}}
    spec |= {"connections": 8, "seconds": 2, "retries": 3}
    before = server.status("Innodb_deadlocks")
    run = driven(local(server), spec)
    assert_adds_up(run, spec)
    assert run.sum("count") > 0
    lost = errors(run, "write_only")
    assert set(lost) == {1213}
    assert lost[1213] == server.status("Innodb_deadlocks") - before > 0
    assert 0 < run.sum("retries") == lost[1213] - failed(run, "write_only")
    # No transaction stayed open behind a deadlock: the table is whole and nobody holds a lock.
    assert server.sql("SELECT COUNT(*) FROM sbtest.sbtest1") == [(1000,)]


def test_lock_waits_time_out(server: Server) -> None:
    spec = asking("UPDATE sbtest1 SET k = k + 1 WHERE id = 1", seconds=2.5, retries=1, connections=2)
    spec |= {"pacing": {"kind": "closed", "think_time_s": 0.01}}
    before = server.sql("SELECT k FROM sbtest.sbtest1 WHERE id = 1")
    with contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root")) as blocker:
        blocker.begin()
        blocker.cursor().execute("SELECT id FROM sbtest.sbtest1 WHERE id = 1 FOR UPDATE")
        with meanwhile(local(server), spec) as end:
            until(lambda: len(connections_of(server, command="Query")) == 2)
            time.sleep(2.3)
            blocker.rollback()
            run = end()
    assert_adds_up(run, spec)
    # Of each client: one wait that is tried anew, another that ends the operation.
    assert set(errors(run)) == {1205}
    assert run.sum("retries") >= 2
    assert failed(run, "ask") >= 2
    assert run.sum("count") >= 2
    ((k,),) = before
    assert server.sql("SELECT k FROM sbtest.sbtest1 WHERE id = 1") == [(k + run.sum("count"),)]  # type: ignore[operator]


def test_statements_run_into_the_servers_limit(server: Server) -> None:
    spec = asking("SELECT SLEEP(?)", seconds=2, pacing={"kind": "closed"})
    waits = {"kind": "choice", "values": [0, 30]}
    spec["workload"]["operations"][0]["statements"][0]["parameters"] = [waits]
    run = driven(local(server, "hurried"), spec)
    assert_adds_up(run, spec)
    assert errors(run) == {1969: failed(run, "ask")}
    assert failed(run, "ask") >= 4
    assert run.sum("count") > 0
    assert run.end["connections_lost"] == 0
    limits_s = [float(bucket_value(bucket)) / 1e9 for bucket in run.histogram("failed")]
    # MariaDB is late by two, four or six seconds now and then; its slow log agrees. Nobody slept to the end.
    assert LONGEST_QUERY_S * 0.95 < min(limits_s) <= max(limits_s) < 0.95 * 30


def test_a_client_thinks_longer_than_the_server_waits(server: Server) -> None:
    """The server closes what rests a second. The client comes back, and begins when it had thought."""
    spec = asking(connections=2, seconds=4, pacing={"kind": "closed", "think_time_s": 1.6})
    server.sql("SET GLOBAL wait_timeout = 1")
    try:
        run = driven(local(server), spec)
    finally:
        server.sql("SET GLOBAL wait_timeout = DEFAULT")
    assert_adds_up(run, spec)
    assert (run.sum("count"), run.sum("errors")) == (4, 0)
    assert run.end["connections_lost"] == run.sum("count", "connect") >= 4


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_an_administrator_kills(server: Server, what: str) -> None:
    """A query that is killed fails alone; a connection that is killed is made anew."""
    spec = asking("SELECT SLEEP(8)", seconds=1.5, connections=3, pacing={"kind": "closed"})
    killed = 0
    with meanwhile(local(server), spec) as end:
        deadline_s = time.monotonic() + 3
        while time.monotonic() < deadline_s:
            for number in connections_of(server, command="Query"):
                with contextlib.suppress(pymysql.err.OperationalError):  # it has gone already
                    server.sql(f"KILL {what} {number}")
                    killed += 1
            time.sleep(0.1)
        run = end()
    assert_adds_up(run, spec)
    assert run.sum("count") == 0
    assert 6 <= begun(run) <= killed
    if what == "QUERY":
        assert set(errors(run)) == {1317}
        assert run.end["connections_lost"] == 0
    else:
        assert set(errors(run)) <= {CONNECTION_LOST, 1927}
        assert run.end["connections_lost"] == begun(run)
        assert run.sum("count", "connect") >= begun(run) - 3


@pytest.mark.parametrize("tls", ["disabled", "required"])
@pytest.mark.parametrize("is_prepared", [False, True], ids=["text", "prepared"])
def test_results_of_20_mb(server: Server, is_prepared: bool, tls: str) -> None:
    """A row of two frames, and one of many rows: nothing of it is kept, and every byte is counted."""
    size = 20 << 20
    one = f"SELECT REPEAT('x', {size}) AS c"
    many = f"SELECT REPEAT('x', {size // 200}) AS c FROM seq_1_to_200"
    spec = asking(one, is_prepared=is_prepared, connections=2, seconds=1)
    spec["workload"]["operations"][0]["statements"].append({"sql": many})
    spec["pacing"] = {"kind": "closed"}
    run = driven(as_user(server, "driver", "--mysql-tls", tls), spec)
    assert_adds_up(run, spec)
    assert errors(run) == {}
    assert run.sum("count") > 0
    assert run.sum("rows") == 201 * run.sum("count")
    # The number of columns, the column, the end of the columns, and the end of the rows.
    head = 5 + (4 + 4 + 5 + 1 + 13) + 9 + 9
    null_bitmap = 2 if is_prepared else 0
    wide = 2 * 4 + null_bitmap + 9 + size
    narrow = 200 * (4 + null_bitmap + 4 + size // 200)
    assert run.sum("bytes") == (2 * head + wide + narrow) * run.sum("count")
    assert run.end["max_rss_bytes"] < 2 * size


def test_tls_is_required(server: Server) -> None:
    refused = as_user(server, "encrypted", "--mysql-tls", "disabled")
    assert_refused(refused, asking(), "Access denied", "(error 1045)")
    before = server.status("Ssl_accepts")
    run = driven(as_user(server, "encrypted", "--mysql-tls", "required"), asking())
    assert run.sum("count") == 60
    assert server.status("Ssl_accepts") - before == 4 + PING_CONNECTIONS


def test_interrupted(server: Server) -> None:
    """What was counted is what the server did, to those that were at work."""
    spec = {"workload": {**TABLE, "script": "point_select"}, "connections": 4, "seconds": 60}
    before = server.status("Com_select")
    run = interrupted(local(server), spec, lambda: until(lambda: server.status("Com_select") > before + 1000))
    assert_adds_up(run, spec | {"seconds": 15})
    done = server.status("Com_select") - before
    assert run.sum("count") <= done <= begun(run, "point_select")
    assert run.end["unfinished"] <= 4
