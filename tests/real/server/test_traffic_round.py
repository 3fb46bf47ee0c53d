"""A real round: one traffic, seen by tcpdump, the slow log and the proxy at once; digested, recorded, replayed.

Every statement passes the proxy, goes over loopback to the server's port and into its slow log: three witnesses
of the same traffic. Their digests must agree on counts exactly. A replay of the capture on a fresh copy of the
data must get the same rows; on a copy with one changed row it must name the classes that read it, and no other.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.driver import drive, driven
from tests.programs import agent_path
from tests.proxies import proxy
from tests.replays import captured, play, record
from tests.servers import Server, mariadb

NEEDED = ("mariadbd", "tcpdump", "sysbench", "mariadb-dump")
pytestmark = pytest.mark.needs("root", *NEEDED)

ROWS = 300
BY_ID: dict[str, Any] = {"kind": "int", "min": 1, "max": ROWS}
LOOK = "SELECT name, price FROM item WHERE id = ?"
SUM = "SELECT SUM(price) FROM item"
COUNT = "SELECT COUNT(*) FROM item"
SELL = "INSERT INTO sale (id, item) VALUES (?, ?)"

#: Prepared, by the driver; nobody reads what is written, so the answers do not hang on whose turn it was.
SHOP: dict[str, Any] = {
    "workload": {
        "kind": "sql",
        "operations": [
            {"name": "look", "statements": [{"sql": LOOK, "parameters": [BY_ID]}]},
            {"name": "sum", "statements": [{"sql": SUM}, {"sql": COUNT}]},
            {"name": "sell", "statements": [{"sql": SELL, "parameters": [{"kind": "sequence"}, BY_ID]}]},
        ],
    },
    "connections": 3,
    "seconds": 2,
    "pacing": {"kind": "open", "arrivals": "poisson", "rate_ops_s": 200},
}
SETUP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8, 2))",
    f"INSERT INTO shop.item SELECT seq, CONCAT('item ', seq), seq / 7 FROM shop.seq_1_to_{ROWS}",
    "CREATE TABLE shop.sale (id BIGINT PRIMARY KEY, item INT)",
    "CREATE DATABASE sbtest",
    "CREATE USER app@'127.0.0.1'",
    "GRANT ALL ON *.* TO app@'127.0.0.1'",
)
TABLES: dict[str, Any] = {"kind": "oltp", "script": "read_only", "tables": 2, "table_size": 1000}


@dataclass(frozen=True)
class Round:
    """The server, a dump of what it held before, and what the three witnesses wrote."""

    server: Server
    dump: Path
    pcap: Path
    slow_log: Path
    proxied: Path


def login(port: int, database: str = "shop") -> list[str]:
    return [
        "--mysql-host",
        "127.0.0.1",
        "--mysql-port",
        str(port),
        "--mysql-user",
        "app",
        "--mysql-database",
        database,
    ]


def sysbench(port: int, mode: str, *, events: int = 60) -> None:
    """Its read-only transactions, in text or prepared; reconnecting once on the way."""
    for _ in range(2):
        argv = [
            "sysbench",
            "oltp_read_only",
            "--mysql-host=127.0.0.1",
            f"--mysql-port={port}",
            "--mysql-user=app",
        ]
        argv += ["--mysql-db=sbtest", "--tables=2", "--table-size=1000", "--threads=2", f"--events={events}"]
        argv += ["--time=60", f"--db-ps-mode={mode}", "--mysql-ssl=off", "run"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def traffic(folder: Path) -> Iterator[Round]:
    log = folder / "s" / "slow.log"
    options = (
        f"--slow-query-log-file={log}",
        "--log-slow-verbosity=query_plan",
        "--log-slow-admin-statements=1",
    )
    with mariadb(folder / "s", *options) as server:
        server.sql(*SETUP)
        drive(login(server.port, "sbtest"), {"workload": TABLES}, verb="load")
        dump = folder / "before.sql"
        with dump.open("wb") as file:
            argv = ["mariadb-dump", f"--socket={server.socket}", "-uroot", "--databases", "shop", "sbtest"]
            subprocess.run(argv, stdout=file, check=True)
        recording, pcap = folder / "proxied.rec", folder / "server.pcap"
        with (
            captured(server.port, pcap),
            proxy(
                folder, "--server", f"127.0.0.1:{server.port}", "--no-tls", "-o", recording, lines=False
            ) as middle,
        ):
            server.sql("SET GLOBAL slow_query_log = 1", "SET GLOBAL long_query_time = 0")
            driven(login(middle.port), SHOP)
            sysbench(middle.port, "disable")
            sysbench(middle.port, "auto")
            server.sql("SET GLOBAL slow_query_log = 0")
        yield Round(server, dump, pcap, log, recording)


def digest(source: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Fingerprint -> class, of statements (what is no statement is logged by some witnesses only)."""
    argv = [agent_path(), "digest", str(source), "--format", "lines", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["type"] == "end"
    return {
        line["fingerprint"]: line
        for line in lines
        if line["type"] == "class" and not line["fingerprint"].startswith("administrator command")
    }


def seen(traffic: Round) -> tuple[dict[str, dict[str, Any]], ...]:
    """What the capture, the slow log and the proxy say."""
    pcap = digest(traffic.pcap, "--port", str(traffic.server.port))
    return pcap, digest(traffic.slow_log), digest(traffic.proxied)


def own(classes: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Counts of the traffic's statements: not those of the connection by which the test switched its log."""
    return {f: c["count"] for f, c in classes.items() if not f.startswith("set ")}


def test_three_witnesses_agree_on_every_count(traffic: Round) -> None:
    pcap, logged, proxied = map(own, seen(traffic))
    assert pcap == proxied
    assert pcap == logged
    for text in (LOOK, SUM, COUNT, SELL):
        assert any(f.replace(" ", "").startswith(text.replace(" ", "").lower()[:30]) for f in pcap), (
            text,
            pcap,
        )
    assert sum(pcap.values()) > 2 * 60 * 14


def test_their_times_agree_within_their_clocks(traffic: Round) -> None:
    """The server counts from when it has read a request to when it has an answer; the capture beside it also sees
    both on the wire; the proxy sees the client's wait. Each is at least the one before, but for the log's
    rounding."""
    pcap, logged, proxied = seen(traffic)
    for fingerprint in set(pcap) & set(logged) & set(proxied):
        at_server = logged[fingerprint]["response_sum_ns"]
        on_wire = pcap[fingerprint]["response_sum_ns"]
        at_client = proxied[fingerprint]["response_sum_ns"]
        count = pcap[fingerprint]["count"]
        rounding_ns = 1_000 * count
        assert at_server <= on_wire + rounding_ns, fingerprint
        # The proxy's own clock is read when a thread of it runs: on a busy machine that is late by some ms.
        assert on_wire <= at_client + rounding_ns + 0.05 * on_wire, fingerprint


def test_rows_are_counted_alike(traffic: Round) -> None:
    pcap, logged, _ = seen(traffic)
    for fingerprint in set(pcap) & set(logged):
        if fingerprint.startswith("select"):
            assert pcap[fingerprint]["rows_sent"] == logged[fingerprint]["rows_sent"], fingerprint


@pytest.fixture
def copy(traffic: Round, folder: Path) -> Iterator[Server]:
    """Another server with the data as they were."""
    with mariadb(folder / "copy") as server:
        server.sql("CREATE USER app@'127.0.0.1'", "GRANT ALL ON *.* TO app@'127.0.0.1'")
        with traffic.dump.open("rb") as file:
            subprocess.run(["mariadb", f"--socket={server.socket}", "-uroot"], stdin=file, check=True)
        yield server


def test_a_replay_gets_the_same_rows(traffic: Round, copy: Server, folder: Path) -> None:
    recording = record(traffic.pcap, folder / "same.rec", "--port", str(traffic.server.port))
    played = play(login(copy.port)[:6], recording, "--check", "--speed", "max")
    assert played.end["comparison"]["different"] == 0
    assert played.end["comparison"]["compared"] > 2 * 60 * 14
    (sold,) = traffic.server.sql("SELECT COUNT(*), SUM(id), SUM(item) FROM shop.sale")
    assert copy.sql("SELECT COUNT(*), SUM(id), SUM(item) FROM shop.sale") == [sold]


def test_a_changed_row_is_named_by_the_classes_that_read_it(
    traffic: Round, copy: Server, folder: Path
) -> None:
    recording = record(traffic.pcap, folder / "changed.rec", "--port", str(traffic.server.port))
    # A price that every sum has, and that some look meets: of 400 looks at 300 rows, the first ones.
    copy.sql("UPDATE shop.item SET price = price + 1 WHERE id <= 50")
    played = play(login(copy.port)[:6], recording, "--check", "--speed", "max")
    classes, *_ = seen(traffic)
    look, total = (next(f for f in classes if f.startswith(t)) for t in ("select name", "select sum(price"))
    assert played.different == {look, total}
