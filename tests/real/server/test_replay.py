"""`headrace-agent replay` and what stands on it, on real servers: recorded by tcpdump and by slow logs."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests import servers
from tests.driver import drive
from tests.programs import agent_path
from tests.proxies import proxy
from tests.replays import Said, captured, parse, play, record, slow_log, start
from tests.servers import Server

pytestmark = pytest.mark.needs("tcpdump")

SETUP = (
    "DROP DATABASE IF EXISTS shop",
    "CREATE DATABASE shop",
    "CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8, 2), note TEXT)",
    "INSERT INTO shop.item SELECT seq, CONCAT('item ', seq), seq / 7, IF(seq % 3, 'n', NULL) "
    "FROM shop.seq_1_to_500",
    "CREATE TABLE shop.sale (id BIGINT PRIMARY KEY, client INT, item INT, total DOUBLE)",
    "CREATE TABLE shop.seen (n INT, at DATETIME(6), KEY (at))",
    "CREATE USER IF NOT EXISTS app@'127.0.0.1' IDENTIFIED BY 'secret'",
    "GRANT ALL ON shop.* TO app@'127.0.0.1'",
)
#: With snapshot isolation, the default from 11.6 on, an UPDATE of a range waits for the row behind it, which
#: another session of the recording may hold until the replay has come further.
OPTIONS = ("--innodb-flush-log-at-trx-commit=2", "--loose-innodb-snapshot-isolation=OFF")
BY_ID: dict[str, Any] = {"kind": "int", "min": 1, "max": 500}
PREPARED = {
    "workload": {
        "kind": "sql",
        "operations": [
            {
                "name": "look",
                "statements": [{"sql": "SELECT name, price FROM item WHERE id = ?", "parameters": [BY_ID]}],
            },
            {
                "name": "sell",
                "transaction": True,
                "statements": [
                    {
                        "sql": "INSERT INTO sale (id, client, item, total) VALUES (?, 0, ?, ?)",
                        "parameters": [{"kind": "sequence"}, BY_ID, {"kind": "float", "min": 1, "max": 9}],
                    }
                ],
            },
        ],
    },
    "connections": 3,
    "seconds": 1.5,
    "pacing": {"kind": "open", "arrivals": "poisson", "rate_ops_s": 150},
}


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    (folder / "password").write_text("secret\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "s", *OPTIONS) as running:
        yield running


@pytest.fixture
def fresh(server: Server) -> Server:
    """The data as they were before anything was recorded."""
    server.sql(*SETUP)
    return server


def login(server: Server, folder: Path) -> list[str]:
    return [
        *("--mysql-host", "127.0.0.1", "--mysql-port", str(server.port)),
        *("--mysql-user", "app", "--mysql-password-file", str(folder / "password")),
    ]


def client(port: int, number: int) -> None:
    """A session in text: its own rows, user variables, transactions, an error, another database and back."""
    with (
        contextlib.closing(
            pymysql.connect(
                host="127.0.0.1", port=port, user="app", password="secret", database="shop", ssl_disabled=True
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        # Sessions must not wait for each other: a deadlock would not come again.
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("SET @client = %s", (number,))
        own = (1_000_000 * number, 1_000_000 * number + 99)
        for turn in range(20):
            cursor.execute("SELECT * FROM item WHERE id = %s", (1 + (number * 97 + turn * 13) % 500,))
            cursor.fetchall()
            cursor.execute("BEGIN")
            cursor.execute(
                "INSERT INTO sale VALUES (%s, @client, %s, 1.5)", (1_000_000 * number + turn, turn)
            )
            cursor.execute("UPDATE sale SET total = total * 2 WHERE id BETWEEN %s AND %s", own)
            cursor.execute("COMMIT" if turn % 3 else "ROLLBACK")
            cursor.execute("SELECT COUNT(*), SUM(total) FROM sale WHERE id BETWEEN %s AND %s", own)
            cursor.fetchall()
            time.sleep(0.02)
        with contextlib.suppress(pymysql.err.IntegrityError):
            cursor.execute("INSERT INTO item VALUES (1, 'twice', 0, NULL)")
        connection.select_db("information_schema")
        cursor.execute("SELECT DATABASE()")
        connection.select_db("shop")
        cursor.execute("SELECT name FROM item WHERE id BETWEEN 10 AND 30 ORDER BY id")
        cursor.fetchall()


@pytest.fixture(scope="module")
def traffic(server: Server, folder: Path) -> Path:
    """Text and prepared statements of several sessions at once, captured by tcpdump."""
    server.sql(*SETUP)
    pcap = folder / "shop.pcap"
    with captured(server.port, pcap):
        threads = [threading.Thread(target=client, args=(server.port, number)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        drive([*login(server, folder), "--mysql-database", "shop"], PREPARED)
        for thread in threads:
            thread.join()
    return record(pcap, folder / "shop.rec", "--port", str(server.port))


def content(server: Server) -> list[tuple[object, ...]]:
    return server.sql("SELECT id, client, item, total FROM shop.sale ORDER BY id")


def test_the_same_answers_on_a_fresh_copy(fresh: Server, traffic: Path, folder: Path) -> None:
    played = play(login(fresh, folder), traffic, "--check")
    assert played.end["errors"] == []
    assert played.different == set()
    assert played.end["comparison"]["compared"] > 500
    assert played.end["comparison"]["different"] == 0
    assert played.end["replay"]["not_sent"] == 0
    assert not any(played.end["replay"]["skipped"].values())
    assert played.counts["insert"] >= 60
    after = content(fresh)
    fresh.sql(*SETUP)
    # As fast as possible, and in the order of commits: the same data come about.
    fast = play(login(fresh, folder), traffic, "--check", "--speed", "max", "--commit-order")
    assert fast.end["comparison"]["different"] == 0, fast.classes[0]
    assert fast.length_s < played.length_s
    assert content(fresh) == after


def test_one_changed_row_is_named_by_its_classes(fresh: Server, traffic: Path, folder: Path) -> None:
    fresh.sql("UPDATE shop.item SET name = 'another' WHERE id = 17")
    played = play(login(fresh, folder), traffic, "--check")
    # Only the range is sure to have read it; who asks for single rows at random may have.
    sure = "select name from item where id between ? and ? order by id"
    may = {"select name, price from item where id = ?", "select * from item where id = ?"}
    assert sure in played.different
    assert played.different <= {sure, *may}
    line = next(line for line in played.classes if line["fingerprint"] == sure)
    assert line["different_checksum"] == line["different"] == line["count"] == 3
    assert line["different_rows"] == line["different_error"] == 0
    assert "BETWEEN 10 AND 30" in line["examples"][0]["statement"]


def seen(server: Server) -> tuple[list[int], list[float]]:
    """Who wrote into ``seen``, in the order of writing, and when, in s since the first."""
    rows = server.sql("SELECT n, at FROM shop.seen ORDER BY at, n")
    at: list[Any] = [row[1] for row in rows]
    return [int(str(row[0])) for row in rows], [(each - at[0]).total_seconds() for each in at]


def note(session: int, at_s: float, number: int) -> Said:
    # SYSDATE: when it is executed, and not when a clock of the statement stood still.
    return Said(session, at_s, 0.001, f"INSERT INTO seen VALUES ({number}, SYSDATE(6))")


@pytest.mark.parametrize(
    ("options", "expected_s"),
    [
        ((), [0, 0.2, 0.3, 1.5, 1.6]),
        (("--speed", "2"), [0, 0.1, 0.15, 0.75, 0.8]),
        (("--skip-idle", "300ms"), [0, 0.2, 0.3, 0.6, 0.7]),
        (("--since", "+250ms", "--until", "+1550ms"), [0, 1.2]),
    ],
)
def test_statements_come_when_they_came(
    fresh: Server, folder: Path, tmp_path: Path, options: tuple[str, ...], expected_s: list[float]
) -> None:
    said = [note(1 + n % 2, at_s, n) for n, at_s in enumerate([0, 0.2, 0.3, 1.5, 1.6])]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    played = play(login(fresh, folder), recording, *options)
    numbers, at_s = seen(fresh)
    assert numbers == sorted(numbers)
    # Wide: the machine may be busy.
    assert at_s == pytest.approx(expected_s, abs=0.12), played.end
    assert played.counts["insert"] == len(expected_s)


def test_a_session_waits_for_its_answers_and_is_late(fresh: Server, folder: Path, tmp_path: Path) -> None:
    """The server takes 0.5 s for what took 1 ms: what follows is late, and the server is to blame."""
    said = [Said(1, 0, 0.001, "SELECT SLEEP(0.5)"), note(1, 0.1, 1), note(2, 0.1, 2)]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    played = play(login(fresh, folder), recording, "--max-lag", "100ms")
    assert seen(fresh)[0] == [2, 1]
    assert 350e6 < played.end["lag"]["max_ns"] < 1500e6
    assert played.end["lateness"]["max_ns"] < 200e6
    inserts = [
        row["response"]["max_ns"] for row in played.intervals if row["operation"] == "insert" and row["count"]
    ]
    assert max(inserts) > 350e6
    assert any("the server was slower than recorded" in reason for reason in played.end["invalid"])


def test_writes_wait_for_writes_where_asked(fresh: Server, folder: Path, tmp_path: Path) -> None:
    slow = Said(1, 0, 0.001, "INSERT INTO seen SELECT 1 + SLEEP(0.6), SYSDATE(6)")
    recording = record(slow_log(tmp_path / "slow.log", [slow, note(2, 0.1, 2)]), tmp_path / "r.rec")
    play(login(fresh, folder), recording)
    assert seen(fresh)[0] == [2, 1]
    fresh.sql("DELETE FROM shop.seen")
    play(login(fresh, folder), recording, "--commit-order")
    assert seen(fresh)[0] == [1, 2]


def test_what_only_reads_and_copies_of_it(fresh: Server, traffic: Path, folder: Path) -> None:
    before = content(fresh)
    played = play(login(fresh, folder), traffic, "--read-only", "--sessions", "x4", "--speed", "max")
    assert content(fresh) == before
    assert played.end["replay"]["skipped"]["writes"] > 100
    assert "insert" not in played.counts
    assert "update" not in played.counts
    assert played.end["replay"]["sent"] == sum(played.counts.values())
    assert played.counts["select"] % 4 == 0
    done = subprocess.run(
        [agent_path(), "replay", str(traffic), *login(fresh, folder), "--sessions", "x4"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "--scale-writes" in done.stderr


def test_other_databases_and_accounts(fresh: Server, folder: Path, tmp_path: Path) -> None:
    fresh.sql(
        "DROP DATABASE IF EXISTS other", "CREATE DATABASE other", "CREATE TABLE other.seen LIKE shop.seen"
    )
    fresh.sql(
        "CREATE OR REPLACE USER played@'127.0.0.1' IDENTIFIED BY 'p w#'",
        "GRANT ALL ON other.* TO played@'127.0.0.1'",
    )
    said = [
        note(1, 0, 1),
        Said(1, 0.01, 0.001, "INSERT INTO seen SELECT 2, SYSDATE(6) WHERE USER() LIKE 'played@%'"),
    ]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    accounts = tmp_path / "accounts"
    accounts.write_text('[app]\nuser = played\npassword = "p w#"\n')
    options = ("--database-map", "shop=other", "--user-map", str(accounts))
    accounts.chmod(0o644)
    process = start(login(fresh, folder), recording, *options)
    assert "chmod 600" in process.communicate(timeout=30)[1]
    assert process.returncode == 5
    accounts.chmod(0o600)
    play(login(fresh, folder), recording, *options)
    assert fresh.sql("SELECT n FROM other.seen ORDER BY n") in ([(1,), (2,)], ((1,), (2,)))
    assert seen_count(fresh) == 0


def seen_count(server: Server) -> int:
    return int(str(server.sql("SELECT COUNT(*) FROM shop.seen")[0][0]))


def test_without_literals_there_is_nothing_to_send(fresh: Server, folder: Path, tmp_path: Path) -> None:
    recording = record(slow_log(tmp_path / "slow.log", [note(1, 0, 1)]), tmp_path / "r.rec", literals=False)
    process = start(login(fresh, folder), recording)
    assert "--with-literals" in process.communicate(timeout=30)[1]
    assert process.returncode == 3


def test_a_password_that_was_not_recorded_is_not_set(fresh: Server, folder: Path, tmp_path: Path) -> None:
    """What a recording has in its place would become the password, also of the replay's own account."""
    fresh.sql("CREATE OR REPLACE USER clerk@localhost IDENTIFIED BY 'own'")
    said = [
        Said(1, 0.0, 1e-4, "SET PASSWORD FOR clerk@localhost = PASSWORD('Str0ng!Pass')"),
        Said(1, 0.1, 1e-4, "CREATE USER eve@localhost IDENTIFIED BY 'Str0ng!Pass'"),
        Said(1, 0.2, 1e-4, "SELECT '***'"),
    ]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    assert b"Str0ng" not in recording.read_bytes()
    played = play(login(fresh, folder), recording)
    assert played.end["replay"]["skipped"]["redacted"] == 2
    assert any("passwords are not recorded: 2" in said for said in played.end["warnings"])
    assert fresh.sql("SELECT COUNT(*) FROM mysql.user WHERE User = 'eve'") == [(0,)]
    own = fresh.sql("SELECT authentication_string = PASSWORD('own') FROM mysql.user WHERE User = 'clerk'")
    assert own == [(1,)]
    fresh.sql("DROP USER clerk@localhost")


def test_a_replay_that_sends_or_compares_nothing_is_no_pass(
    fresh: Server, traffic: Path, folder: Path, tmp_path: Path
) -> None:
    late = play(login(fresh, folder), traffic, "--check", "--since", "+1h")
    assert "nothing was sent" in late.end["invalid"]
    damaged = tmp_path / "damaged.rec"
    content = bytearray(traffic.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    damaged.write_bytes(content)
    played = play(login(fresh, folder), damaged, "--check")
    assert any("damaged places of the recording" in why for why in played.end["invalid"])
    assert not any("damaged" in why for why in play(login(fresh, folder), damaged).end["invalid"])


def test_memory_stays_below_the_cap(fresh: Server, folder: Path, tmp_path: Path) -> None:
    """Two sessions, 300 MB of statements, one of them behind: 104 MB are enough, and nothing is lost."""
    long = "x" * 500_000
    said = [
        Said(1 + n % 2, n * 0.001, 0.0005, f"SELECT LENGTH('{long}{n:05}') + SLEEP({0.002 if n % 2 else 0})")
        for n in range(600)
    ]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    played = play(login(fresh, folder), recording, "--memory", "104MB")
    assert played.counts == {"select": 600}
    assert played.end["max_rss_bytes"] < 104e6
    assert played.end["replay"]["max_queued_bytes"] < 10e6


def test_a_server_that_dies_on_the_way(folder: Path, tmp_path: Path) -> None:
    said = [note(1 + n % 4, n * 0.01, n) for n in range(400)]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    with servers.mariadb(folder / "dies") as server:
        server.sql(*SETUP)

        def restart(process: subprocess.Popen[str]) -> None:
            while seen_count(server) < 100:
                time.sleep(0.01)
            server.process.kill()
            server.process.wait()
            time.sleep(0.5)
            server.start()

        played = play(login(server, folder), recording, "--check", during=restart)
        count = seen_count(server)
    assert 4 <= played.end["connections_lost"] <= 8
    assert any("lost their connection" in reason for reason in played.end["invalid"])
    # Every statement ended well or badly; what was answered is there.
    failed = sum(
        number
        for row in played.intervals
        for _, number in row["failed"]["buckets"]
        if row["operation"] != "connect"
    )
    assert played.counts["insert"] + failed == 400
    assert played.counts["insert"] <= count <= 400
    # And what was not answered differs from the recording.
    assert played.end["replay"]["unanswered"] == failed == played.end["comparison"]["different"]
    assert played.end["comparison"]["compared"] >= failed
    (inserts,) = [line for line in played.classes if line["fingerprint"].startswith("insert")]
    assert inserts["count"] == 400
    assert inserts["errors"] == inserts["different_error"] == failed


def test_stopped_it_says_how_far_it_came(fresh: Server, folder: Path, tmp_path: Path) -> None:
    recording = record(
        slow_log(tmp_path / "slow.log", [note(1, n * 0.1, n) for n in range(600)]), tmp_path / "r.rec"
    )

    def interrupt(process: subprocess.Popen[str]) -> None:
        while seen_count(fresh) < 5:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)

    began = time.monotonic()
    played = play(login(fresh, folder), recording, during=interrupt)
    assert time.monotonic() - began < 20
    assert "stopped before its end" in played.end["invalid"]
    assert played.counts["insert"] + played.end["replay"]["not_sent"] + played.end["unfinished"] == 600


def test_a_duration_ends_it(fresh: Server, folder: Path, tmp_path: Path) -> None:
    said = [note(1 + n % 3, n * 0.1, n) for n in range(600)]
    recording = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    played = play(login(fresh, folder), recording, "--warmup", "500ms", "--duration", "1s")
    # What is under way is waited for; the recording has a minute.
    assert 1.0 <= played.length_s < 30
    assert played.end["invalid"] == [] or all("late" in reason for reason in played.end["invalid"])
    assert seen_count(fresh) == pytest.approx(15, abs=3)


def test_the_command_shows_what_differs(fresh: Server, traffic: Path, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "headrace",
        "replay",
        str(traffic),
        *login(fresh, folder),
        "--check",
        "--speed",
        "max",
    ]
    done = subprocess.run(
        [*command, "--commit-order"], check=False, capture_output=True, text=True, timeout=120
    )
    # 14: where others take the CPU, the driver's own delays are too long, which answers do not feel.
    assert done.returncode in (0, 14), done.stderr
    assert "all equal those of the recording" in done.stdout
    fresh.sql(*SETUP, "DELETE FROM shop.item WHERE id = 20")
    done = subprocess.run(
        [*command, "--commit-order", "--json"], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (12, 14), done.stderr
    found = json.loads(done.stdout)
    assert found["end"]["comparison"]["different"] >= 3
    assert found["classes"][0]["different_rows"] >= 1
    assert found["throughput_ops_s"] > 0


@pytest.fixture
def another(folder: Path) -> Iterator[Server]:
    with servers.mariadb(folder / "another", *OPTIONS) as running:
        running.sql(*SETUP)
        yield running


def test_two_servers_are_compared_with_each_other(
    fresh: Server, another: Server, traffic: Path, folder: Path
) -> None:
    command = [sys.executable, "-m", "headrace", "replay", str(traffic), *login(fresh, folder)]
    command += ["--compare-with", f"127.0.0.1:{another.port}", "--speed", "max", "--commit-order"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "all equal those of the first server" in done.stdout
    assert content(fresh) == content(another) != []
    # Neither is as recorded, but they differ from each other in one row alone.
    for each in (fresh, another):
        each.sql(*SETUP, "UPDATE shop.item SET price = price + 1")
    another.sql("UPDATE shop.item SET name = 'another' WHERE id = 17")
    done = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 12, done.stderr
    found = json.loads(done.stdout)
    assert found["first"]["statements"] == found["second"]["statements"]
    assert "comparison" not in found["first"]["end"]
    different = {line["fingerprint"] for line in found["second"]["classes"] if line["different"]}
    # Only the range is sure to have read it; who asks for single rows at random may have.
    sure = "select name from item where id between ? and ? order by id"
    may = {"select name, price from item where id = ?", "select * from item where id = ?"}
    assert sure in different <= {sure, *may}


@contextlib.contextmanager
def recorded(server: Server, recording: Path) -> Iterator[pymysql.Connection[Any]]:
    """A session through a proxy that records it, answers included."""
    to = ("--server", f"127.0.0.1:{server.port}", "--no-tls", "--with-literals", "--checksums")
    with (
        proxy(recording.parent, *to, "-o", recording, lines=False) as middle,
        contextlib.closing(
            pymysql.connect(
                host="127.0.0.1", port=middle.port, user="app", password="secret", database="shop",
                ssl_disabled=True,
            )
        ) as connection,
    ):  # fmt: skip
        yield connection


def test_cursors_and_resets_of_statements(fresh: Server, folder: Path, tmp_path: Path) -> None:
    """With a cursor the rows come later; a statement that was never executed here has nothing to reset."""
    recording = tmp_path / "cursors.rec"
    with recorded(fresh, recording) as connection:

        def ask(command: int, body: bytes) -> Any:
            connection._execute_command(command, body)
            return connection._read_packet()

        def rows() -> int:
            count = 0
            while not connection._read_packet().is_eof_packet():
                count += 1
            return count

        prepared = ask(0x16, b"SELECT id FROM item WHERE id < 100")
        statement = prepared.get_all_data()[1:5]
        rows()
        ask(0x1A, statement)
        time.sleep(0.01)  # all that follows begins after --since, also on a fast machine
        for _ in range(3):
            # Execute with a cursor that reads only; the columns' end says that it is open. Fetch 60, and the rest.
            ask(0x17, statement + b"\x01\x01\0\0\0")
            rows()
            connection._execute_command(0x1C, statement + b"\x3c\0\0\0")
            assert rows() == 60
            connection._execute_command(0x1C, statement + b"\x3c\0\0\0")
            assert rows() == 39
            ask(0x1A, statement)
    # The session's beginning is missing: the statement is prepared when it is executed.
    for options in ((), ("--since", "+5ms")):
        played = play(login(fresh, folder), recording, "--check", "--mysql-database", "shop", *options)
        assert played.end["comparison"]["different"] == 0, played.classes
        assert played.end["replay"]["skipped"]["unknown_statements"] == 0
    assert played.counts["select"] >= 1


def test_an_anonymised_recording_is_replayed_without_errors(
    fresh: Server, folder: Path, tmp_path: Path
) -> None:
    """Pseudonyms of unique values are unique, fit the types of their columns, and nobody sleeps longer."""
    fresh.sql(
        "CREATE TABLE shop.small (id SMALLINT UNSIGNED PRIMARY KEY, code CHAR(2) UNIQUE, day DATE UNIQUE, "
        "at TIMESTAMP NULL, signed TINYINT)",
        "CREATE TABLE shop.large (id BIGINT PRIMARY KEY, n INT UNIQUE)",
        "CREATE TABLE shop.odd (s TINYINT, v DECIMAL(4, 1) UNIQUE, y YEAR, code BINARY(2) UNIQUE, is_on BIT)",
    )
    letters = "abcdefghijklmnopqrstuvwxyz"
    first = date(1999, 1, 1)
    texts = [
        text
        for n in range(600)
        for text in (
            f"INSERT INTO small VALUES ({65_535 - n}, '{letters[n // 26]}{letters[n % 26]}', "
            f"'{first + timedelta(n)}', '{first + timedelta(n)} 12:00:00', {n % 128})",
            f"INSERT INTO large VALUES ({2**63 - 1 - n}, {2**31 - 1 - n})",
            f"INSERT INTO large VALUES ({n}, {n})",
            f"INSERT INTO large VALUES ({-(2**63) + n}, {-(2**31) + n})",
            f"INSERT INTO odd VALUES ({-128 + n % 128}, {n + 0.5}, {1901 + n % 255}, 0x{n:04x}, b'{n % 2}')",
        )
    ]
    texts += ["SELECT NOW(6), CAST(v AS DECIMAL(10, 2)) FROM odd GROUP BY 1, 2 ORDER BY 2 LIMIT 5 OFFSET 3"]
    said = [Said(1, n * 0.0001, 0.00001, text) for n, text in enumerate(["DO SLEEP(0.1)", *texts])]
    whole = record(slow_log(tmp_path / "slow.log", said), tmp_path / "r.rec")
    hidden = tmp_path / "hidden.rec"
    argv = [agent_path(), "recording", "anonymise", str(whole), "--output", str(hidden)]
    subprocess.run(argv, check=True, capture_output=True)
    played = play(login(fresh, folder), hidden, "--speed", "max", "--mysql-database", "shop")
    assert played.end["errors"] == [], played.end["errors"]
    assert played.counts["insert"] == len(texts) - 1


def test_ranges_of_an_anonymised_recording_select_what_they_did(
    fresh: Server, folder: Path, tmp_path: Path
) -> None:
    """Where order is asked for: rows and affected rows of ranges, over ids whose digits grow, are as recorded."""
    first, whole = datetime(2023, 1, 1), tmp_path / "whole.rec"
    rows = ", ".join(
        f"({99_500 + 3 * n}, {5_000 + n * 31.25}, '{first + timedelta(hours=7 * n)}', "
        f"'{(first + timedelta(hours=7 * n)).date()}', 'row {n}')"
        for n in range(400)
    )
    with recorded(fresh, whole) as connection, connection.cursor() as cursor:
        for text in (
            "CREATE TABLE visit (id INT PRIMARY KEY, amount DECIMAL(12, 2), at DATETIME, day DATE, note CHAR(9))",
            f"INSERT INTO visit VALUES {rows}",
            "SELECT id FROM visit WHERE id BETWEEN 99890 AND '100210'",
            "SELECT id FROM visit WHERE at >= '2023-02-01' AND at < '2023-02-28 12:30:00'",
            "SELECT id FROM visit WHERE at < '2023-03-01' - INTERVAL 7 DAY AND amount > 6000.5",
            "SELECT day, COUNT(*) FROM visit WHERE day > '2023-03-05' GROUP BY 1 ORDER BY 2 DESC LIMIT 50",
            "UPDATE visit SET note = 'late' WHERE amount <= 7000",
            "DELETE FROM visit WHERE at > '2023-04-20 12:00:00' OR id < 99600",
            "SELECT * FROM visit",
        ):
            cursor.execute(text)
            cursor.fetchall()
    different = []
    for number, order in enumerate((["--keep-order", "dates,numbers"], [])):
        hidden = tmp_path / f"{number}.rec"
        argv = [agent_path(), "recording", "anonymise", str(whole), "--output", str(hidden), *order]
        subprocess.run(argv, check=True, capture_output=True)
        fresh.sql("DROP TABLE shop.visit")
        played = play(login(fresh, folder), hidden, "--check", "--speed", "max", "--mysql-database", "shop")
        assert played.end["errors"] == []
        different.append(played.end["comparison"]["different"])
    assert different[0] == 0
    assert different[1] >= 4


def test_answers_that_always_differ_are_set_apart(fresh: Server, folder: Path, tmp_path: Path) -> None:
    recording = tmp_path / "clock.rec"
    with recorded(fresh, recording) as connection, connection.cursor() as cursor:
        for text in ("SELECT UUID()", "SELECT name, NOW(6) FROM item WHERE id = 1", "SELECT name FROM item"):
            cursor.execute(text)
    command = [sys.executable, "-m", "headrace", "replay", str(recording), *login(fresh, folder), "--check"]
    # A busy machine is late at a pace of three statements.
    command += ["--speed", "max"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "set apart: 2 answers" in done.stdout
    assert "all others equal" in done.stdout
    # An error is none of these.
    fresh.sql("DROP TABLE shop.item")
    played = play(login(fresh, folder), recording, "--check")
    assert (played.end["comparison"]["different"], played.end["comparison"]["set_apart"]) == (2, 1)


def test_sessions_without_a_database_get_the_one_that_is_named(
    fresh: Server, folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "general.log"
    log.write_text("2024-03-01T12:00:00.000000Z\t    8 Query\tINSERT INTO seen VALUES (1, SYSDATE(6))\n")
    recording = record(log, tmp_path / "r.rec")
    played = play(login(fresh, folder), recording)
    assert [error["code"] for error in played.end["errors"]] == [1046]
    assert any("--mysql-database" in warning for warning in played.end["warnings"])
    command = [sys.executable, "-m", "headrace", "replay", str(recording), *login(fresh, folder)]
    done = subprocess.run(
        [*command, "--mysql-database", "shop", "--speed", "max"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "--mysql-database" not in done.stdout
    assert seen_count(fresh) == 1


def test_lines_are_whole(fresh: Server, traffic: Path, folder: Path, tmp_path: Path) -> None:
    """Every interval follows the one before, and classes sum up to what the operations counted."""
    played = play(login(fresh, folder), traffic)
    rows = [row for row in played.intervals if row["operation"] == "select"]
    for before, after in pairwise(rows):
        assert before["t_s"] + before["duration_s"] == pytest.approx(after["t_s"])
    session = played.counts.get("session", 0) + played.counts.get("prepare", 0)
    assert sum(line["count"] for line in played.classes) == sum(played.counts.values()) - session
    assert parse(json.dumps({"kind": "end"})).intervals == []
