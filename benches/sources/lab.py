"""The server of benches/clients.py, the ways by which it is recorded, and what the server itself counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs import agent_path
from tests.proxies import proxy
from tests.servers import Server

from .libraries import DRIVERS, Driver, Library

CASES = (
    "text", "prepared", "prepared_sql", "multi", "local", "cursors", "unbuffered", "change_user", "compression",
    "tls", "large", "kill", "errors",
)  # fmt: skip
#: With their passes: what records the same traffic at once.
SOURCES = {
    "direct": ("general log", "slow log", "capture", "interface"),
    "proxied": ("proxy",),
    "proxied, TLS": ("proxy, TLS",),
}
TIMEOUT_S = 300
HOST = "127.0.0.1"
#: The large requests of one client are 81 MiB: they must not wait for a busy machine in vain.
CAPTURE_KIB = 256 << 10

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(100), price DECIMAL(8, 2))",
    "INSERT INTO t (name, price) VALUES ('one', 1), ('two', 2), ('three', 3), ('four', 4), ('five', 5)",
    "CREATE TABLE many (id INT PRIMARY KEY, name VARCHAR(100))",
    "INSERT INTO many SELECT seq, REPEAT(CHAR(65 + seq % 26), seq % 90) FROM seq_1_to_1000",
    "CREATE TABLE loaded (id INT, name VARCHAR(40))",
    """CREATE TABLE types (
        id INT PRIMARY KEY AUTO_INCREMENT, tiny TINYINT, utiny TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT,
        whole INT, uwhole INT UNSIGNED, big BIGINT, ubig BIGINT UNSIGNED, single FLOAT, twice DOUBLE,
        exact DECIMAL(20, 6), bits BIT(12), day DATE, moment DATETIME(6), stamp TIMESTAMP(6) NULL, clock TIME(6),
        since YEAR, short VARCHAR(40), long_text TEXT, bytes BLOB, doc JSON, one_of ENUM('a', 'b'),
        some_of SET('a', 'b', 'c'))""",
    "ALTER TABLE types MODIFY long_text MEDIUMTEXT",
    """CREATE PROCEDURE two(how_many INT) BEGIN
        SELECT id FROM t ORDER BY id LIMIT 2; UPDATE t SET price = 9 WHERE id = how_many; SELECT 'second';
    END""",
)
#: Every statement and command by its account; those in a procedure are the procedure's.
COUNTED = """SELECT USER, EVENT_NAME, COUNT_STAR
    FROM performance_schema.events_statements_summary_by_user_by_event_name
    WHERE COUNT_STAR > 0 AND EVENT_NAME NOT LIKE 'statement/sp/%' AND USER LIKE '{}\\_%'"""
CONNECTED = "SELECT USER, TOTAL_CONNECTIONS FROM performance_schema.users WHERE USER LIKE '{}\\_%'"
#: What rules need to know and sources are not compared in: executions of the protocol, and logins that succeeded.
OF_EXECUTE, OF_CONNECTIONS = "of Execute", "of connections"
#: Not into the logs that are compared.
QUIET = ("SET SESSION sql_log_off = 1", "SET SESSION slow_query_log = 0")

#: (case, kind of event) -> how many. The kind is `statement`, or the protocol's name of a command.
Counts = Counter[tuple[str, str]]


@dataclass
class Pass:
    """One run of a client's cases: what the server counted, and a recording of each source."""

    name: str
    executed: Counts
    recordings: dict[str, Path]
    coverage: dict[str, dict[str, Any]]
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def prepare(server: Server, client: str) -> None:
    """The client's database as it is at the beginning, and its accounts."""
    accounts = [f"{client}_{case}" for case in (*CASES, "change_user_b")]
    server.sql(
        *QUIET,
        f"DROP DATABASE IF EXISTS {client}",
        f"CREATE DATABASE {client} CHARACTER SET utf8mb4",
        f"USE {client}",
        *TABLES,
        *(f"CREATE USER IF NOT EXISTS {name} IDENTIFIED BY 'secret'" for name in accounts),
        *(f"GRANT ALL ON {client}.* TO {name}" for name in accounts),
    )


def executed(server: Server, client: str) -> Counts:
    found: Counts = Counter()
    for user, event, number in server.sql(*QUIET, COUNTED.format(client.replace("_", "\\_"))):
        _, group, name = str(event).split("/", 2)
        is_statement = group != "com" or name in ("Execute", "Query")
        case = case_of(str(user), client)
        found[case, "statement" if is_statement else name] += int(str(number))
        if name == "Execute":
            found[case, OF_EXECUTE] += int(str(number))
    for user, number in server.sql(*QUIET, CONNECTED.format(client.replace("_", "\\_"))):
        found[case_of(str(user), client), OF_CONNECTIONS] += int(str(number))
    return found


def case_of(user: str, client: str) -> str:
    """The case of an account, or nothing."""
    name = user.removeprefix(f"{client}_").removesuffix("_b")
    return name if name in CASES else ""


def idle(server: Server, client: str) -> None:
    """Until no connection of the client is left: what it does is counted when it ends."""
    look = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER LIKE '{client}\\_%'"
    deadline = time.monotonic() + 20
    while server.sql(*QUIET, look)[0][0] and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.3)


@contextlib.contextmanager
def logs(server: Server, general: Path, slow: Path) -> Iterator[None]:
    """Both logs of the server, on for the time of the block."""
    server.sql(
        *QUIET,
        f"SET GLOBAL general_log_file = '{general}'",
        f"SET GLOBAL slow_query_log_file = '{slow}'",
        "SET GLOBAL long_query_time = 0",
        "SET GLOBAL general_log = 1",
        "SET GLOBAL slow_query_log = 1",
    )
    try:
        yield
    finally:
        server.sql(*QUIET, "SET GLOBAL general_log = 0", "SET GLOBAL slow_query_log = 0")


@contextlib.contextmanager
def interrupted(argv: list[str], said: dict[str, str]) -> Iterator[None]:
    """A program that runs beside the block and ends by SIGINT; ``said`` gets its standard output and error."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        yield
        # The kernel hands its last, unfilled block of packets over only after a read timeout.
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        said["out"], said["error"] = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def direct(server: Server, library: Library, driver: Driver, folder: Path) -> Pass:
    """Past the proxy, under the eyes of both logs, of tcpdump and of our own capture."""
    general, slow = server.folder / "general.log", server.folder / "slow.log"
    pcap, live = folder / "server.pcap", folder / "interface.rec"
    for path in (general, slow):
        path.unlink(missing_ok=True)
    port = str(server.port)
    tcpdump = [
        "tcpdump",
        "-i",
        "lo",
        "-U",
        "-B",
        str(CAPTURE_KIB),
        "-s",
        "0",
        "-w",
        str(pcap),
        "tcp",
        "port",
        port,
    ]
    record = [agent_path(), "record", "--interface", "lo", "--port", port, "--with-literals", "--force"]
    record += ["--max-cpu", "100", "-o", str(live)]
    heard: dict[str, str] = {}
    result = Pass("direct", Counter(), {"interface": live}, {})
    with logs(server, general, slow), interrupted(tcpdump, {}), interrupted(record, heard):
        spoken(server, library, driver, server.port, result)
    result.coverage["interface"] = json.loads(heard["out"])["totals"]["coverage"]
    for source, path in {"general log": general, "slow log": slow, "capture": pcap}.items():
        result.recordings[source] = folder / f"{source.replace(' ', '-')}.rec"
        argv = [agent_path(), "record", str(path), "--with-literals", "--force", "--port", port]
        done = subprocess.run(
            [*argv, "-o", str(result.recordings[source])], capture_output=True, text=True, check=True
        )
        result.coverage[source] = json.loads(done.stdout)["totals"]["coverage"]
    pcap.unlink()
    return result


def proxied(
    server: Server, library: Library, driver: Driver, folder: Path, certificate: tuple[Path, Path] | None
) -> Pass:
    """Through the proxy: all in plain, or all of it under TLS."""
    name = "proxied, TLS" if certificate else "proxied"
    (source,) = SOURCES[name]
    path = folder / f"{source.replace(', ', '-')}.rec"
    how: list[str | Path] = ["--no-tls"]
    if certificate:
        how = ["--tls-cert", certificate[0], "--tls-key", certificate[1]]
    how += [
        "--server",
        f"{HOST}:{server.port}",
        "--with-literals",
        "--checksums",
        "--force",
        "--queue-mib",
        "512",
        "-o",
        path,
    ]
    result = Pass(name, Counter(), {source: path}, {})
    with proxy(folder, *how, lines=False) as middle:
        spoken(server, library, driver, middle.port, result)
    result.coverage[source] = middle.summary["coverage"]
    return result


def spoken(server: Server, library: Library, driver: Driver, port: int, result: Pass) -> None:
    """Run the driver; ``result`` gets what the server counted meanwhile, and what the driver said."""
    client, is_encrypted = library.name, result.name == "proxied, TLS"
    # Where all of it is encrypted, or nothing can be, the case of TLS is another's.
    cases = [case for case in CASES if result.name != "proxied" or case != "tls"]
    local = server.folder / "local.csv"
    local.write_text("".join(f"{number},name {number}\n" for number in range(1000)))
    local.chmod(0o644)
    environment = {
        "HR_HOST": HOST, "HR_PORT": str(port), "HR_CLIENT": client, "HR_TLS": str(int(is_encrypted)),
        "HR_FILE": str(local), "HR_STATEMENTS": str(DRIVERS / "statements.txt"),
    }  # fmt: skip
    before = executed(server, client)
    done = subprocess.run(
        [*driver.argv, *cases], env={**os.environ, **driver.environment, **environment}, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    idle(server, client)
    result.executed.update(executed(server, client))
    result.executed.subtract(before)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        for key, kept in (("absent", result.absent), ("failed", result.failed)):
            if key in said:
                kept[said["case"]] = said[key]
    if done.returncode:
        result.failed["driver"] = f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        print(done.stderr, file=sys.stderr)


def recorded(path: Path, client: str) -> Counts:
    """The events of a recording; a request with several statements counts as the statements that it has."""
    argv = [agent_path(), "digest", str(path), "--group", "class,user,command"]
    done = subprocess.run([*argv, "--no-samples"], capture_output=True, text=True, check=True)
    found: Counts = Counter()
    for line in map(json.loads, done.stdout.splitlines()):
        if line["type"] != "class":
            continue
        case, command = case_of(line["key"]["user"], client), line["key"]["command"]
        # As performance_schema spells it.
        command = command.replace("Reset Connection", "Reset connection")
        is_statement = command in ("Query", "Execute")
        statements = 1 + line["fingerprint"].rstrip("; ").count(";") if is_statement else 1
        found[case, "statement" if is_statement else command] += statements * line["count"]
    return found
