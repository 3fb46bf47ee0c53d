"""What the driver says it did, against what the server counted: every script, every kind of parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Driven, drive, driven
from tests.servers import Server, mariadb

TABLES = {"kind": "oltp", "tables": 2, "table_size": 2000}
COUNTERS = ("Com_select", "Com_insert", "Com_update", "Com_delete", "Com_begin", "Com_commit", "Com_rollback")

#: Script -> what one operation is for the server: selects, inserts, updates, deletes, transactions.
SCRIPTS = {
    "point_select": (1, 0, 0, 0, 0),
    "read_only": (14, 0, 0, 0, 1),
    "read_write": (14, 1, 2, 1, 1),
    "write_only": (0, 1, 2, 1, 1),
    "update_index": (0, 0, 1, 0, 0),
    "update_non_index": (0, 0, 1, 0, 0),
    "insert": (0, 1, 0, 0, 0),
    "delete": (0, 0, 0, 1, 0),
    "study": (1, 1, 1, 0, 0),
}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest")
        drive(login(server), {"workload": TABLES}, verb="load")
        yield server


def login(server: Server) -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]


def counted(server: Server, spec: dict[str, Any]) -> tuple[Driven, dict[str, int]]:
    """The run, and how much the server's counters grew. No operation is in flight before or after it."""
    before = counters(server)
    run = driven(login(server), {"connections": 3, "seconds": 0.6, "warmup_s": 0.3, **spec})
    after = counters(server)
    grown = {name: after[name] - before[name] for name in COUNTERS}
    # Reading them the first time ended with a commit of its own.
    grown["Com_commit"] -= 1
    return run, grown


def counters(server: Server) -> dict[str, int]:
    rows = {str(name): str(value) for name, value in server.sql("SHOW GLOBAL STATUS LIKE 'Com\\_%'")}
    return {name: int(rows[name]) for name in COUNTERS}


@pytest.mark.parametrize("is_prepared", [True, False], ids=["prepared", "text"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_server_counts_what_the_driver_counts(server: Server, script: str, is_prepared: bool) -> None:
    workload = {**TABLES, "script": script, "prepared": is_prepared}
    run, grown = counted(server, {"workload": workload})
    done, retried = run.sum("count"), run.sum("retries")
    assert done > 0
    assert run.sum("errors") == retried
    selects, inserts, updates, deletes, transactions = SCRIPTS[script]
    # A retried operation was broken off somewhere: it has at most all of its statements once more.
    for name, times in (
        ("Com_select", selects),
        ("Com_insert", inserts),
        ("Com_update", updates),
        ("Com_delete", deletes),
        ("Com_begin", transactions),
    ):
        assert done * times <= grown[name] <= (done + retried) * times, name
    assert grown["Com_commit"] == done * transactions
    assert grown["Com_rollback"] <= retried
    for kind in ("response", "service"):
        assert sum(run.histogram(kind).values()) == done
    assert sum(run.histogram("failed").values()) == 0


def test_without_transactions(server: Server) -> None:
    run, grown = counted(server, {"workload": {**TABLES, "script": "read_only", "transactions": False}})
    assert grown["Com_select"] == 14 * run.sum("count") > 0
    assert grown["Com_begin"] == grown["Com_commit"] == 0


def test_a_row_that_two_put_back_is_a_lost_race(server: Server) -> None:
    """As in sysbench where it is told to ignore the error: without transactions it would end with the first."""
    workload = {**TABLES, "tables": 1, "table_size": 2, "script": "write_only", "transactions": False}
    run, _ = counted(server, {"workload": workload, "connections": 16, "retries": 1000, "seconds": 1})
    assert 1062 in {error["code"] for error in run.end["errors"]}
    assert run.sum("errors") == run.sum("retries") > 0
    assert sum(run.histogram("failed").values()) == 0


def test_rows_are_counted(server: Server) -> None:
    # The scripts before have deleted rows.
    for verb in ("clean", "load"):
        drive(login(server), {"workload": TABLES}, verb=verb)
    workload = {**TABLES, "script": "read_only", "transactions": False, "range_size": 10}
    for key in ("sum_ranges", "order_ranges", "distinct_ranges", "point_selects"):
        workload[key] = 0
    run, _ = counted(server, {"workload": workload})
    # A range at the end of the table is cut short.
    assert 8 * run.sum("count") < run.sum("rows") <= 10 * run.sum("count")
    assert run.sum("bytes") > 120 * run.sum("rows")


OWN = {
    "kind": "sql",
    "setup": [
        "DROP TABLE IF EXISTS own",
        "CREATE TABLE own (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, score DOUBLE, class VARCHAR(10))",
    ],
    "operations": [
        {
            "name": "add",
            "weight": 3,
            "transaction": True,
            "statements": [
                {
                    "sql": "INSERT INTO own VALUES (?, ?, ?, ?) -- not a parameter: ?",
                    "parameters": [
                        {"kind": "sequence", "start": 10},
                        {"kind": "text", "min_length": 5, "max_length": 9},
                        {"kind": "float", "min": -1.0, "max": 1.0},
                        {"kind": "choice", "values": ["it's", 'a "b"', "c\\d", "é"]},
                    ],
                },
                {"sql": "UPDATE own SET score = 2 WHERE id = ?", "parameters": [{"kind": "same", "as": 0}]},
            ],
        },
        {
            "name": "look",
            "weight": 1,
            "statements": [
                {
                    "sql": "SELECT COUNT(*) FROM own WHERE id BETWEEN ? AND 1000",
                    "parameters": [{"kind": "int", "min": 1, "max": 100, "distribution": {"kind": "zipf"}}],
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("is_prepared", [True, False], ids=["prepared", "text"])
def test_own_operations(server: Server, is_prepared: bool) -> None:
    spec = {"workload": {**OWN, "prepared": is_prepared}}
    drive(login(server), spec, verb="load")
    run, grown = counted(server, spec)
    added, looked = run.sum("count", "add"), run.sum("count", "look")
    assert run.sum("errors") == 0
    assert 1 < added / looked < 9
    assert (grown["Com_insert"], grown["Com_update"], grown["Com_commit"]) == (added, added, added)
    # A sequence over all clients: no number twice, each client takes every third.
    rows = server.sql("SELECT id, name, score, class FROM sbtest.own")
    assert len(rows) == added
    assert min(int(str(row[0])) for row in rows) in (10, 11, 12)
    assert all(re.fullmatch("[A-Za-z0-9]{5,9}", str(row[1])) for row in rows)
    assert {row[2] for row in rows} == {2.0}
    assert {str(row[3]) for row in rows} == {"it's", 'a "b"', "c\\d", "é"}


def test_a_broken_statement_is_counted_and_quoted(server: Server) -> None:
    operation = {"name": "broken", "statements": [{"sql": "SELECT nothing FROM nowhere"}]}
    spec = {"workload": {"kind": "sql", "prepared": False, "operations": [operation]}, "connections": 2}
    run = driven(login(server), {**spec, "seconds": 0.5})
    assert run.sum("count") == 0
    assert run.sum("errors") == sum(run.histogram("failed").values()) > 0
    (error,) = run.end["errors"]
    assert (error["code"], error["operation"], error["count"]) == (1146, "broken", run.sum("errors"))
    assert "nowhere" in error["message"]


def test_several_drivers_share_one_load(server: Server) -> None:
    """Connections and rate are those of the whole; sequences are unique over all."""
    drive(login(server), {"workload": OWN}, verb="load")
    only_add = {**OWN, "operations": OWN["operations"][:1]}
    spec = {"workload": only_add, "connections": 5, "seconds": 1.0}
    spec["pacing"] = {"kind": "open", "arrivals": "constant", "rate_ops_s": 100}
    runs = [driven(login(server), {**spec, "share": {"index": index, "of": 2}}) for index in range(2)]
    assert [run.start["connections"] for run in runs] == [2, 3]
    # Half a second apart of each other or not: each has its own half of the arrivals.
    assert [run.sum("count") for run in runs] == [50, 50]
    assert server.sql("SELECT COUNT(*) FROM sbtest.own") == [(100,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"connections": 0}, "connections = 0"),
        ({"seconds": -1}, "seconds = -1"),
        ({"nonsense": 1}, "unknown field `nonsense`"),
        ({"share": {"index": 2, "of": 2}}, "there is no part 2 of 2"),
        ({"pacing": {"kind": "open"}}, "either rate_ops_s or a profile"),
        ({"pacing": {"kind": "open", "rate_ops_s": 0}}, "no arrivals"),
        ({"workload": {**TABLES, "script": "nonsense"}}, "unknown variant `nonsense`"),
        ({"workload": {**TABLES, "distribution": {"kind": "pareto", "h": 2}}}, "h = 2"),
        ({"workload": {**TABLES, "tables": 0}}, "tables = 0"),
    ],
)
def test_a_bad_spec_is_refused(server: Server, change: dict[str, Any], message: str) -> None:
    done = drive(login(server), {"workload": TABLES, "seconds": 1, **change}, check=False)
    assert done.returncode == 3
    assert message in done.stderr
