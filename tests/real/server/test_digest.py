"""`headrace-agent digest` on real slow logs: beside a plain model and pt-query-digest, split in every way."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import slow_logs
from tests.programs import agent_path
from tests.servers import Server, mariadb, started

SLOW_LOG = ("--slow-query-log=1", "--long-query-time=0", "--slow-query-log-file=slow.log")
#: Statements of many shapes for both fingerprints. None of them is `use` or `SET timestamp`, after which
#: pt-query-digest loses an event.
SHAPES = [
    "CREATE TABLE t1 (id INT PRIMARY KEY, a VARCHAR(99), j JSON, d DATETIME, KEY (a))",
    "CREATE TABLE `odd name` (`select` INT, x2y INT)",
    "INSERT INTO t1 (id, a) VALUES (1, 'one'), (2, \"two\"), (3, 'it\\'s'), (4, NULL)",
    "INSERT INTO t1 (id, a) VALUES (5, 'one')",
    "REPLACE INTO t1 VALUES (7, 'seven', '{\"k\": [1, 2]}', NOW())",
    "INSERT INTO t1 SET id = 9, a = 'x' ON DUPLICATE KEY UPDATE a = VALUES(a)",
    "SELECT * FROM t1 WHERE id = 1",
    "SELECT * FROM t1 WHERE id = -1 AND a = 'x' OR a IS NULL",
    "SELECT  *\nFROM t1\n\tWHERE id=12345",
    "select * from t1 where id in (1, 2, 3)",
    "select * from t1 where id in (1)",
    "SELECT a, COUNT(*) FROM t1 GROUP BY a HAVING COUNT(*) > 1 ORDER BY a ASC, 2 DESC LIMIT 10",
    "SELECT a FROM t1 LIMIT 5, 10",
    "SELECT a FROM t1 LIMIT 10 OFFSET 5",
    "SELECT 1 UNION SELECT 2 UNION ALL SELECT 3",
    "SELECT /* a comment with 7 */ a FROM t1 WHERE id = 1e3 OR id = 1.5 OR id = 0xFF",
    "SELECT a FROM t1 -- the rest",
    "SELECT /*!40001 SQL_NO_CACHE */ a FROM t1 WHERE id BETWEEN 1 AND 9",
    "SELECT t1.a, x.x2y FROM t1 JOIN `odd name` AS x ON x.x2y = t1.id WHERE x.`select` <> 3",
    "UPDATE t1 SET a = CONCAT(a, 'more'), d = '2026-01-01 00:00:00' WHERE id = 3",
    "DELETE FROM t1 WHERE a LIKE '%nothing%'",
    "SELECT (SELECT MAX(id) FROM t1 AS inside WHERE inside.a = t1.a) FROM t1 WHERE EXISTS (SELECT 1)",
    "SET @x = 5",
    "SELECT @x + 1, @@sort_buffer_size",
    "SHOW TABLES LIKE 't%'",
    "EXPLAIN SELECT * FROM t1 WHERE id = 4",
    "BEGIN",
    "COMMIT",
    "SELECT TRUE, FALSE, null, 'a' 'b', '日本語', 1+1, 3 - 4",
    "ALTER TABLE t1 ADD COLUMN c9 INT DEFAULT 7",
    "CREATE PROCEDURE p1 (IN n INT) SELECT n + 1",
    "CALL p1(5)",
    "call p1( 6 )",
    "DROP TABLE `odd name`",
    "SELECT SLEEP(0.02)",
]
BROKEN = ["SELECT * FROM missing WHERE id = 5", "SELEC 1"]


def _talk(server: Server) -> None:
    """Every shape a few times, from two users, with commands that have no statement, and errors."""
    server.sql("CREATE DATABASE shop", "CREATE USER app@'%' IDENTIFIED BY 'x'", "GRANT ALL ON *.* TO app@'%'")
    for user, password in (("root", ""), ("app", "x")):
        connection = pymysql.connect(
            unix_socket=server.socket, user=user, password=password, database="shop", autocommit=True
        )
        cursor = connection.cursor()
        for statement in SHAPES * 2 + BROKEN:
            try:
                cursor.execute(statement)
                cursor.fetchall()
            except pymysql.Error:
                continue  # the second CREATE, and what is broken
            while cursor.nextset():
                pass
        connection.ping(reconnect=False)
        connection.select_db("mysql")
        connection.close()


def _log_of(server: Server, to: Path) -> Path:
    shutil.copy(server.folder / "data" / "slow.log", to)
    return to


@pytest.fixture(scope="module")
def mariadb_log(folder: Path) -> Path:
    with mariadb(folder / "m", *SLOW_LOG) as server:
        _talk(server)
        return _log_of(server, folder / "mariadb.log")


@pytest.fixture(scope="module")
def mysql_log(folder: Path) -> Path:
    with started("mysql", folder / "y", *SLOW_LOG) as server:
        _talk(server)
        return _log_of(server, folder / "mysql.log")


@pytest.fixture(scope="module")
def made_log(folder: Path) -> Path:
    path = folder / "made.log"
    with path.open("wb") as file:
        file.writelines(slow_logs.slow_log(6_000_000))
    return path


def digest(*arguments: str | Path, stdin: bytes | None = None) -> list[dict[str, Any]]:
    """The lines of one digest."""
    argv = [agent_path(), "digest", *map(str, arguments)]
    output = subprocess.run(argv, input=stdin, check=True, capture_output=True, timeout=120).stdout
    return parsed(output)


def parsed(output: bytes) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[0]["type"] == "digest"
    assert lines[-1] == {"type": "end", "classes": len(classes(lines))}
    return lines


def classes(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == "class"]


def pt_classes(log: Path) -> dict[str, tuple[str, int, float]]:
    """What pt-query-digest makes of a log: id -> fingerprint, calls, sum of response times in s."""
    argv = ["pt-query-digest", "--output", "json", "--limit", "100%", "--no-version-check", str(log)]
    output = subprocess.run(argv, check=True, capture_output=True, timeout=120).stdout
    return {
        found["checksum"]: (
            found["fingerprint"],
            found["query_count"],
            float(found["metrics"]["Query_time"]["sum"]),
        )
        for found in json.loads(output)["classes"]
    }


def assert_same_as_pt(log: Path) -> None:
    ours = {
        line["id"]: (line["fingerprint"], line["count"], line["response_sum_ns"] / 1e9)
        for line in classes(digest(log, "--mode", "pt"))
    }
    theirs = pt_classes(log)
    assert ours.keys() == theirs.keys(), (
        [found for key, found in ours.items() if key not in theirs],
        [found for key, found in theirs.items() if key not in ours],
    )
    for key, (fingerprint, count, sum_s) in theirs.items():
        assert ours[key][:2] == (fingerprint, count)
        assert ours[key][2] == pytest.approx(sum_s, abs=1.1e-6), fingerprint


@pytest.mark.parametrize("name", ["mariadb_log", "mysql_log"])
def test_pt_mode_is_what_pt_query_digest_says_of_a_real_log(
    name: str, request: pytest.FixtureRequest
) -> None:
    log: Path = request.getfixturevalue(name)
    assert_same_as_pt(log)


def test_pt_mode_is_what_pt_query_digest_says_of_a_made_log(made_log: Path) -> None:
    assert_same_as_pt(made_log)


def test_pt_mode_on_statements_of_many_shapes(folder: Path) -> None:
    log = folder / "shapes.log"
    chance = random.Random(7)
    with log.open("w") as file:
        for number in range(3000):
            commands = ("Quit", "Ping", "Prepare", "Init DB", "Close stmt", "Change user")
            is_command = chance.random() < 0.1
            statement = (
                f"# administrator command: {chance.choice(commands)}" if is_command else _shape(chance)
            )
            file.write(
                f"# User@Host: u[u] @ h []\n# Query_time: {chance.random():.6f}  Lock_time: 0.000000 "
                f"Rows_sent: 1  Rows_examined: {number}\n"
                f"SET timestamp={1_700_000_000 + number // 9};\n{statement};\n"
            )
    assert_same_as_pt(log)


def _shape(chance: random.Random) -> str:
    """A statement put together at random from what fingerprints treat in a way of its own."""

    def number() -> str:
        return chance.choice(["1", "-5", "3.14", "0x1F", "1e9", "+2", str(chance.randrange(10**12))])

    def text() -> str:
        return chance.choice(["'a'", '"b"', "'it\\'s'", "''", "'a b  c'", "'2026-01-01'"])

    def value() -> str:
        return chance.choice([number(), text(), "NULL", "true"])

    values = ", ".join(value() for _ in range(chance.randrange(1, 6)))
    column = chance.choice(["a", "b2", "`c`", "t.d", "tbl_3.e"])
    blank = chance.choice([" ", "  ", "\n", "\t"])
    return chance.choice(
        [
            f"SELECT{blank}{column} FROM t{chance.randrange(5)} WHERE {column} = {value()} LIMIT {number()}",
            f"select {column} from t where {column} in ({values}) order by {column} asc, b desc",
            f"INSERT INTO t_{chance.randrange(3)} (a, b) VALUES ({values}),{blank}({values})",
            f"UPDATE db{chance.randrange(3)}.t SET a={value()}, b = {value()} WHERE c>{number()}",
            f"SELECT a /* c {number()} */ FROM t{blank}WHERE b LIKE {text()} AND c IS NOT NULL",
            f"SELECT {value()} UNION SELECT {value()} UNION ALL SELECT {value()}",
            f"CALL proc_{chance.randrange(3)}({values})",
            f"DELETE FROM t WHERE a BETWEEN {number()} AND {number()} LIMIT {chance.randrange(9)}, {number()}",
            f"SET SESSION x{chance.randrange(3)} = {value()}",
        ]
    )


_TIMES = re.compile(
    rb"# Query_time: (\d+)\.(\d{6})\s+Lock_time: (\d+)\.(\d{6})\s+Rows_sent: (\d+)\s+Rows_examined: (\d+)"
)


def test_counts_are_those_of_a_plain_model(mariadb_log: Path, made_log: Path) -> None:
    for log in (mariadb_log, made_log):
        model: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
        user = ""
        for line in log.read_bytes().splitlines():
            if line.startswith(b"# User@Host: "):
                user = line.split(b"[")[1].split(b"]")[0].decode()
            elif found := _TIMES.match(line):
                seconds, micros, lock_s, lock_us, sent, examined = map(int, found.groups())
                response_ns = seconds * 10**9 + micros * 1000
                counted = model[user]
                counted[0] += 1
                counted[1] += response_ns
                counted[2] += response_ns**2
                counted[3] += lock_s * 10**9 + lock_us * 1000
                counted[4] += sent
                counted[5] += examined
        found_users = {
            line["key"]["user"]: [
                line["count"],
                line["response_sum_ns"],
                int(line["response_sum_squares"]),
                line["lock_ns"]["sum"],
                line["rows_sent"]["sum"],
                line["rows_examined"]["sum"],
            ]
            for line in classes(digest(log, "--group", "user"))
        }
        assert found_users == dict(model)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_workers_pipes_and_compression_change_nothing(made_log: Path, workers: int) -> None:
    one = digest(made_log, "--workers", "1")
    assert one[0]["coverage"]["damaged"] == 0
    several = digest(made_log, "--workers", str(workers))
    assert several == one
    zstd = subprocess.run(["zstd", "-c", str(made_log)], check=True, capture_output=True).stdout
    for text in (made_log.read_bytes(), zstd):
        piped = digest("-", stdin=text)
        assert piped[1:] == one[1:]


@pytest.mark.parametrize("seed", [1, 2])
def test_generated_names_in_any_order_read_any_way(folder: Path, seed: int) -> None:
    """More classes than are kept, in a random order: the heavy ones stand at the top whatever reads them."""
    draw = random.Random(seed)
    events: list[tuple[str, float]] = [
        (f"SELECT b FROM heavy{'abcd'[n % 4]} WHERE id = {n}", 0.5) for n in range(400)
    ]
    for number in range(24_000):
        name = f"tmp_{draw.randrange(16**12):x}x{number}"
        events.append((draw.choice([f"SELECT a FROM {name}", f"SAVEPOINT {name}"]), draw.random() / 1000))
    draw.shuffle(events)
    log = folder / f"generated{seed}.log"
    with log.open("w") as file:
        for number, (statement, seconds) in enumerate(events):
            file.write(
                f"# User@Host: u[u] @ h []\n# Query_time: {seconds:.6f}  Lock_time: 0.000000 Rows_sent: 1  "
                f"Rows_examined: {number}\nSET timestamp={1_700_000_000 + number // 99};\n{statement};\n"
            )
    one = digest(log, "--workers", "1")
    assert one[0]["events"] == len(events)
    heaviest = sorted(classes(one), key=lambda line: -line["response_sum_ns"])[:5]
    assert [line["count"] for line in heaviest if "heavy" in line["fingerprint"]] == [100] * 4
    for workers in ("2", "8"):
        assert digest(log, "--workers", workers) == one
    text = log.read_bytes()
    for piped in (text, gzip.compress(text, 1)):
        assert digest("-", stdin=piped)[1:] == one[1:]


def test_filters_take_away_what_they_say(made_log: Path) -> None:
    whole = digest(made_log)
    start_s = slow_logs.START_S
    # A slow log stamps the end: what began in the second before counts there.
    parts = [
        digest(made_log, "--until", str(start_s + 2)),
        digest(made_log, "--since", str(start_s + 2), "--filter", "user=shop"),
        digest(made_log, "--since", str(start_s + 2), "--filter", "user!=shop"),
    ]
    assert sum(part[0]["events"] for part in parts) == whole[0]["events"]
    for part in parts:
        assert 0 < part[0]["events"] < whole[0]["events"]
        assert part[0]["events"] + part[0]["filtered"] == whole[0]["events"]
    first = classes(whole)[0]
    only = digest(made_log, "--filter", f"class={first['id']}", "--group", "user,host")
    assert sum(line["count"] for line in classes(only)) == first["count"]
    assert {line["key"]["host"] for line in classes(only)} == {name for name, *_ in first["hosts"]}


def test_every_interval_a_whole_digest_while_a_log_grows(folder: Path, made_log: Path) -> None:
    text = made_log.read_bytes()
    growing = folder / "growing.log"
    growing.write_bytes(text[: len(text) // 2])
    argv = [
        agent_path(),
        "digest",
        str(growing),
        "--follow",
        "--every",
        "300ms",
        "-o",
        str(folder / "every.jsonl"),
    ]
    process = subprocess.Popen(argv)
    try:
        time.sleep(0.8)
        with growing.open("ab") as file:
            file.write(text[len(text) // 2 :])
        time.sleep(1.2)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    streams = (folder / "every.jsonl").read_bytes().split(b'{"type":"digest"')[1:]
    digests = [parsed(b'{"type":"digest"' + stream) for stream in streams]
    assert len(digests) >= 3
    whole = digest(made_log)
    assert sum(found[0]["events"] for found in digests) == whole[0]["events"]
    assert digests[-1][0]["coverage"]["events"] == whole[0]["events"]
    counts: dict[str, int] = defaultdict(int)
    for found in digests:
        for line in classes(found):
            counts[line["id"]] += line["count"]
    assert counts == {line["id"]: line["count"] for line in classes(whole)}


def test_no_password_is_in_a_sample_and_samples_can_be_left_out(mariadb_log: Path) -> None:
    lines = digest(mariadb_log)
    created = next(line for line in classes(lines) if line["fingerprint"].lower().startswith("create user"))
    assert created["sample"]["is_redacted"]
    assert "'x'" not in json.dumps(created)
    assert all(line["sample"] is None for line in classes(digest(mariadb_log, "--no-samples")))


def test_a_table_for_a_terminal(made_log: Path) -> None:
    argv = [agent_path(), "digest", str(made_log), "--format", "table", "--top", "5"]
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    lines = output.splitlines()
    assert lines[1].startswith("Coverage ")
    first = classes(digest(made_log))[0]
    row = next(line for line in lines if first["id"] in line)
    assert row.split()[0] == "1"
    assert str(first["count"]) in row.split()
    assert re.search(r"and \d+ more", lines[-1])


def test_what_is_no_traffic_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(bytes(range(256)) * 100)
    argv = [agent_path(), "digest", str(path)]
    assert subprocess.run(argv, check=False, capture_output=True).returncode == 3
    argv = [agent_path(), "digest", str(tmp_path / "missing")]
    found = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert found.returncode == 3
    assert "missing" in found.stderr
