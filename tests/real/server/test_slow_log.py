"""Slow and general logs that real servers wrote, read by the agent and by pt-query-digest beside it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.programs import agent_path
from tests.servers import Server, started

pytestmark = pytest.mark.needs("pt-query-digest")

#: What a client may say. The last ones look like the log itself.
STATEMENTS = [
    "select 1",
    "select 'it''s', \"two\nlines\", 'back\\\\slash'",
    "-- a comment\nselect 2",
    "select 3 /* over\n# two lines */",
    "insert into t values (1, 'a'), (2, 'b;\n')",
    "update t set b = 'é漢字😀' where a = 1",
    "select * from t order by b limit 1",
    "create procedure p() begin select 1; select 2; end",
    "call p()",
    "prepare s from 'select ? + 1'",
    "set @a = 5",
    "execute s using @a",
    "select sleep(0.05)",
    "select 'x\n# no header'",
]
#: pt-query-digest takes the first for a part of the header, and what follows for its statement; it cuts the last.
LOST_BY_PT = ["use other", "use first", "select 'x;\n# Timeless'"]

VERBOSE = {
    "mariadb": ["set session log_slow_verbosity = 'query_plan,innodb,explain'"],
    "mysql": ["set global log_slow_extra = on"],
}


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    options = ["--slow-query-log=1", "--long-query-time=0", "--general-log=1"]
    options += [f"--{kind}-file={{}}/{kind}" for kind in ("slow-query-log", "general-log")]
    home = folder / request.param[:3]
    options = [option.format(home) for option in options]
    with started(request.param, home, *options) as one:
        yield one


def connect(server: Server) -> pymysql.Connection[Any]:
    return pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True, autocommit=True)


def say(server: Server, statements: Sequence[str], database: str | None = None) -> int:
    """One session that says all this; its number."""
    with closing(connect(server)) as connection, connection.cursor() as cursor:
        if database:
            connection.select_db(database)
        for statement in statements:
            cursor.execute(statement)
            while cursor.nextset():
                pass
        cursor.execute("select connection_id()")
        ((number,),) = cursor.fetchall()
        connection.ping(reconnect=False)
        return int(number)


def traffic(server: Server, more: Sequence[str] = ()) -> int:
    """Something of everything, in two databases; the number of one session."""
    for database in ("first", "other"):
        server.sql(f"create database if not exists {database}")
        server.sql(f"create table if not exists {database}.t (a int, b varchar(40)) charset utf8mb4")
    server.sql("drop procedure if exists first.p")
    is_mariadb = "MariaDB" in str(server.sql("select version()")[0][0])
    number = say(server, [*STATEMENTS, *more], "first")
    say(server, [*VERBOSE["mariadb" if is_mariadb else "mysql"], *STATEMENTS[:7], *more], "other")
    with closing(connect(server)) as connection, pytest.raises(pymysql.Error):
        connection.query("select no_such_column from first.t")
    return number


def events(path: Path, *options: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    done = subprocess.run([agent_path(), "events", *options, str(path)], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[:-1], lines[-1]["coverage"]


def of_pt(path: Path) -> list[tuple[str, str]]:
    """pt-query-digest's events: their Query_time and their text."""
    show = 'print "$event->{Query_time}\\x01$event->{arg}\\x02"'
    done = subprocess.run(
        ["pt-query-digest", "--no-report", "--no-version-check", "--filter", show, str(path)],
        capture_output=True,
        check=True,
    )
    records = done.stdout.decode(errors="replace").split("\x02")[:-1]
    return [(seconds, text) for seconds, text in (record.split("\x01", 1) for record in records)]


def ours(lines: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The same of the agent's events, in pt-query-digest's words."""
    found = []
    for line in lines:
        text = line["text"] if line["command"] == "Query" else f"administrator command: {line['command']}"
        found.append((f"{line['response_ns'] / 1e9:.6f}", text))
    return found


def slow_log(server: Server) -> Path:
    return server.folder / "slow-query-log"


def test_the_events_are_those_of_pt_query_digest(server: Server) -> None:
    start = slow_log(server).stat().st_size
    traffic(server)
    part = server.folder / "part"
    part.write_bytes(slow_log(server).read_bytes()[start:])
    lines, coverage = events(part)
    assert coverage["damaged"] == 0, coverage
    assert coverage["skipped_bytes"] == 0
    assert coverage["events"] == len(lines) > 30
    assert ours(lines) == of_pt(part)
    texts = [line["text"] for line in lines]
    for statement in STATEMENTS:
        # Servers write these in words of their own, with the values in them.
        assert statement in texts or statement.startswith(("prepare", "execute")), statement


def test_what_pt_query_digest_loses(server: Server) -> None:
    start = slow_log(server).stat().st_size
    traffic(server, LOST_BY_PT)
    part = server.folder / "part"
    part.write_bytes(slow_log(server).read_bytes()[start:])
    lines, coverage = events(part)
    assert coverage["damaged"] == 0, coverage
    lost = Counter(ours(lines)) - Counter(of_pt(part))
    assert lost
    said = Counter(line["text"] for line in lines)
    assert said["use other"] == said["use first"] == 2


def test_users_databases_and_times(server: Server) -> None:
    ((before,),) = server.sql("select unix_timestamp(now(6)) * 1000000")
    number = traffic(server)
    ((after,),) = server.sql("select unix_timestamp(now(6)) * 1000000")
    # All of the log, because the database stands where it changes.
    lines, _ = events(slow_log(server))
    own = [line for line in lines if line["session"] == number]
    assert {line["user"] for line in own} == {"root"}
    assert {line["host"] for line in own} == {"localhost"}
    assert {line["database"] for line in own if line["text"] in STATEMENTS} == {"first"}
    (sleep,) = (line for line in own if "sleep" in line["text"])
    assert 50_000_000 <= sleep["response_ns"] < 1_000_000_000
    # MariaDB's stamps are whole seconds.
    slack_us = 1_100_000
    for line in own:
        assert int(str(before).split(".")[0]) - slack_us <= line["start_ns"] // 1000, line
        assert line["start_ns"] // 1000 <= int(str(after).split(".")[0]) + slack_us, line
    if any(line["errno"] is not None for line in lines):
        assert 1054 in {line["errno"] for line in lines}


def test_several_threads_count_the_same(server: Server) -> None:
    traffic(server)
    log = slow_log(server).read_bytes()
    large = server.folder / "large"
    large.write_bytes(log * (12_000_000 // len(log) + 1))
    one, two = (events(large, "--count", f"--workers={workers}")[1] for workers in (1, 2))
    assert one == two
    assert one["bytes"] == large.stat().st_size
    assert one["damaged"] == 0, one["places"]


def test_the_general_log_has_the_same_statements(server: Server) -> None:
    path = server.folder / "general-log"
    start = path.stat().st_size
    number = traffic(server)
    part = server.folder / "part"
    part.write_bytes(path.read_bytes()[start:])
    lines, coverage = events(part)
    assert coverage["damaged"] == 0, coverage
    own = [line for line in lines if line["session"] == number]
    assert [own[0]["command"], own[0]["user"], own[0]["host"]] == ["Connect", "root", "localhost"]
    texts = [line["text"] for line in own if line["command"] == "Query"]
    for statement in STATEMENTS:
        assert statement in texts or statement.startswith("prepare"), statement
    assert {line["database"] for line in own if line["text"] == "select 1"} == {"first"}
