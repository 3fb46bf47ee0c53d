"""Captures of sysbench, by tcpdump and by the agent itself: what they count is what the server counted."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import agent_path
from tests.replays import TCPDUMP_S
from tests.servers import Server, mariadb
from tests.waiting import until

pytestmark = pytest.mark.needs("sysbench", "tcpdump")

# No commits: asking for the counters makes some.
VERBS = ("select", "insert", "update", "delete", "begin")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m", "--log-bin=db7", "--performance-schema=ON") as running:
        running.sql(
            "CREATE USER sb@'127.0.0.1'", "GRANT ALL ON *.* TO sb@'127.0.0.1'", "CREATE DATABASE sbtest"
        )
        _sysbench(running, "prepare", "disable")
        yield running


def _sysbench(server: Server, command: str, prepared: str) -> None:
    argv = ["sysbench", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=sb"]
    argv += [f"--db-ps-mode={prepared}", "--tables=2", "--table-size=1000", "--threads=4", "--time=3"]
    subprocess.run([*argv, "oltp_read_write", command], check=True, capture_output=True, timeout=100)


def _counts(agent: str, file: Path, port: int, group: str) -> tuple[dict[str, int], Counter[str]]:
    """Coverage, and how often each command or verb was sent."""
    argv = [agent, "digest", "--port", str(port), "--group", group, str(file)]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=100).stdout
    coverage: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for line in map(json.loads, text.splitlines()):
        if line["type"] == "digest":
            coverage = line["coverage"]
        if line["type"] == "class":
            name = line["key"]["command"] if group == "command" else line["verb"]
            counts[(name or "none").lower()] += line["count"]
    return coverage, counts


@pytest.mark.parametrize(
    ("interface", "prepared"), [pytest.param("lo", "auto", marks=pytest.mark.path), ("any", "disable")]
)
def test_counts_are_the_servers(server: Server, tmp_path: Path, prepared: str, interface: str) -> None:
    agent = agent_path()
    capture, recording = tmp_path / "x.pcap", tmp_path / "x.recording"
    dump = [
        "tcpdump",
        "-i",
        interface,
        "-B",
        "65536",
        "-Z",
        "root",
        "-w",
        str(capture),
        f"port {server.port}",
    ]
    record = [agent, "record", "--interface", interface, "--port", str(server.port)]
    record += [
        "--with-literals",
        "-o",
        str(recording),
        "--mysql-socket",
        server.socket,
        "--mysql-user",
        "root",
    ]
    [(log, offset, *_)] = server.sql("SHOW MASTER STATUS")
    names = [f"Com_{verb}" for verb in VERBS]
    names += ["Com_stmt_prepare", "Com_stmt_execute", "Com_stmt_close"]
    watchers = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for argv in (dump, record)]
    try:
        time.sleep(2)
        before = {name: server.status(name) for name in names}
        _sysbench(server, "run", prepared)
        told = {name: server.status(name) - before[name] for name in names}
        time.sleep(TCPDUMP_S)
    finally:
        for watcher in watchers:
            watcher.send_signal(signal.SIGINT)
        errors = [watcher.communicate(timeout=60)[1] for watcher in watchers]
    assert [watcher.returncode for watcher in watchers] == [0, 0], errors
    info = subprocess.run(
        [agent, "recording", "info", "--quick", str(recording)], capture_output=True, check=True
    )
    position = json.loads(info.stdout)["segments"][0]["position"]
    assert (position["log"], position["offset"], position["problem"]) == (log, offset, "")
    assert position["gtid"].startswith("0-")
    for file in (capture, recording):
        coverage, commands = _counts(agent, file, server.port, "command")
        for name in ("gaps", "damaged", "dropped_packets", "unknown_statements", "midstream_sessions"):
            assert coverage[name] == 0, (file, coverage)
        assert coverage["sessions"] == 4
        if prepared == "auto":
            assert told["Com_stmt_execute"] > 1000
            assert commands["execute"] == told["Com_stmt_execute"], (file, commands)
            assert commands["prepare"] == told["Com_stmt_prepare"], (file, commands)
        else:
            assert commands["query"] > 1000
            _, verbs = _counts(agent, file, server.port, "class")
            assert {verb: verbs[verb] for verb in VERBS} == {verb: told[f"Com_{verb}"] for verb in VERBS}, (
                file
            )


@pytest.mark.path
def test_sessions_that_were_open_are_those_that_the_server_names(server: Server, tmp_path: Path) -> None:
    agent, recording = agent_path(), tmp_path / "x.recording"
    argv = [
        "sysbench",
        "--mysql-host=127.0.0.1",
        f"--mysql-port={server.port}",
        "--mysql-user=sb",
        "--threads=2",
    ]
    argv += [
        "--tables=1",
        "--table-size=1000",
        "--db-ps-mode=auto",
        "--time=30",
        "--rate=40",
        "oltp_point_select",
        "run",
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as load:
        try:
            prepared = "performance_schema.prepared_statements_instances WHERE SQL_TEXT LIKE 'SELECT c%'"
            until(lambda: server.sql(f"SELECT COUNT(*) FROM {prepared}") == [(2,)])
            record = [agent, "record", "--interface", "lo", "--port", str(server.port), "--duration", "2s"]
            record += ["-o", str(recording), "--mysql-socket", server.socket, "--mysql-user", "root"]
            subprocess.run(record, check=True, capture_output=True)
        finally:
            load.terminate()
    coverage, commands = _counts(agent, recording, server.port, "command")
    assert (coverage["joined_sessions"], coverage["midstream_sessions"]) == (2, 0), coverage
    assert commands["execute"] > 10
    assert coverage["unknown_statements"] == 0
    info = subprocess.run([agent, "recording", "info", str(recording)], capture_output=True, check=True)
    found = json.loads(info.stdout)
    assert [each["name"] for each in found["users"]["names"]] == ["sb"]
    assert [each["name"] for each in found["databases"]["names"]] == ["sbtest"]
    _, verbs = _counts(agent, recording, server.port, "class")
    assert verbs["select"] == commands["execute"]
