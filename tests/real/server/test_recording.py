"""Recordings of real traffic: what sysbench sent is what stands in the file, whatever happened to the recorder."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import headrace
from tests.programs import agent_path
from tests.replays import TCPDUMP_S
from tests.servers import mariadb
from tests.waiting import until

pytestmark = pytest.mark.needs("sysbench", "tcpdump")
PASSWORD = "hunter2secret"


@dataclass(frozen=True)
class Traffic:
    """A capture of one sysbench run, and what sysbench says of it."""

    path: Path
    port: int
    queries: int


def run(*argv: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=140, check=False, **options)
    assert done.returncode == 0 or not check, done.stderr
    return done


def agent(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(str(agent_path()), *arguments, check=check)


def info(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agent("recording", "info", str(path)).stdout)
    return found


@pytest.fixture(scope="module")
def captures(folder: Path) -> dict[str, Traffic]:
    found = {}
    with mariadb(folder / "m") as server:
        server.sql(
            "CREATE DATABASE sbtest",
            f"CREATE USER sb@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            "GRANT ALL ON *.* TO sb@'127.0.0.1' WITH GRANT OPTION",
        )
        login = [f"--mysql-port={server.port}", "--mysql-user=sb", f"--mysql-password={PASSWORD}"]
        base = ["sysbench", "oltp_read_write", "--mysql-host=127.0.0.1", *login]
        base += ["--tables=2", "--table-size=1000"]
        run(*base, "prepare")
        for mode in ("auto", "disable"):
            path = folder / f"{mode}.pcap"
            dump = ["tcpdump", "-i", "lo", "-B", "65536", "-Z", "root", "-w", str(path)]
            with subprocess.Popen([*dump, f"tcp port {server.port}"], stderr=subprocess.PIPE) as process:
                assert process.stderr is not None
                process.stderr.readline()
                said = run(*base, "--threads=4", "--time=0", "--events=300", f"--db-ps-mode={mode}", "run")
                client = ["mariadb", "-h127.0.0.1", f"-P{server.port}", "-usb", "--skip-ssl"]
                statement = f"CREATE USER IF NOT EXISTS other IDENTIFIED BY '{PASSWORD}'"
                run(*client, "-e", statement, env={"MYSQL_PWD": PASSWORD, "PATH": "/usr/bin:/bin"})
                time.sleep(TCPDUMP_S)
                process.send_signal(signal.SIGTERM)
                process.wait(30)
            queries = re.search(r"queries:\s+(\d+)", said.stdout)
            assert queries
            found[mode] = Traffic(path, server.port, int(queries.group(1)))
    return found


def record(traffic: Traffic, output: Path, *options: str) -> dict[str, Any]:
    done = agent("record", str(traffic.path), "--port", str(traffic.port), "-o", str(output), *options)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mode", ["auto", "disable"])
@pytest.mark.parametrize("literals", [True, False])
def test_every_query_of_sysbench_is_there_and_takes_less_than_60_bytes(
    captures: dict[str, Traffic], tmp_path: Path, mode: str, literals: bool
) -> None:
    path = tmp_path / "a.rec"
    summary = record(captures[mode], path, *(["--with-literals"] if literals else []))
    assert summary["bytes_per_event"] < 60
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = info(path)
    commands = found["commands"]
    assert found["coverage"]["damaged"] == 0
    assert found["damage"]["damaged"] == 0
    assert commands["Connect"] == commands["Quit"] == found["sessions"] == 5
    name = "Execute" if mode == "auto" else "Query"
    sent = [each["events"] for each in found["users"]["names"] if each["name"] == "sb"]
    assert sent == [found["events"]]
    # sysbench counts no statement that a deadlock ended; the client that makes an account sends a query or two.
    more = commands[name] - captures[mode].queries
    assert 0 <= more <= found["errors"] + (4 if name == "Query" else 0)
    verified = json.loads(agent("recording", "verify", str(path)).stdout)
    assert verified["is_whole"]
    assert verified["events"] == found["events"]


def test_no_password_and_no_literal_is_kept(captures: dict[str, Traffic], tmp_path: Path) -> None:
    for name, options in (("with", ["--with-literals"]), ("without", [])):
        path = tmp_path / name
        summary = record(captures["disable"], path, *options)
        copy = tmp_path / f"{name}.all"
        # Whatever a reader can get out of it: a digest with its samples shows texts.
        seen = agent("digest", str(path)).stdout + path.read_bytes().decode("latin-1")
        assert PASSWORD not in seen
        assert "IDENTIFIED" in seen.upper()
        assert not copy.exists()
        assert bool(summary["totals"]["redacted_events"]) == bool(options)


def test_a_pipe_is_recorded_and_ctrl_c_finishes_the_file(
    captures: dict[str, Traffic], tmp_path: Path
) -> None:
    traffic, path = captures["auto"], tmp_path / "a.rec"
    argv = [
        str(agent_path()),
        "record",
        "-",
        "--port",
        str(traffic.port),
        "-o",
        str(path),
        "--progress",
        "100ms",
    ]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(traffic.path.read_bytes())
        process.stdin.flush()
        # It has read all of it when the count stands still.
        counts = [-1]
        while counts[-1] <= 0 or len(counts) < 6 or len(set(counts[-5:])) > 1:
            counts.append(json.loads(process.stderr.readline())["events"])
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        summary = json.loads(process.stdout.read())
    whole = record(traffic, tmp_path / "whole.rec")
    assert summary["totals"]["events"] == whole["totals"]["events"]
    assert json.loads(agent("recording", "verify", str(path)).stdout)["is_whole"]


def written(path: Path) -> int:
    """Events in a recording that is being written; none before its header is whole."""
    done = run(str(agent_path()), "recording", "info", str(path), check=False)
    return int(json.loads(done.stdout)["events"]) if done.returncode == 0 else 0


def test_a_killed_recorder_leaves_a_file_that_can_be_read_and_gone_on_with(
    captures: dict[str, Traffic], tmp_path: Path
) -> None:
    traffic, path = captures["auto"], tmp_path / "a.rec"
    argv = [str(agent_path()), "record", "-", "--port", str(traffic.port), "-o", str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(traffic.path.read_bytes())
        process.stdin.flush()
        # What waits is written after five seconds, and again when nothing more has come.
        until(lambda: written(path) >= traffic.queries, limit_s=90, pause_s=0.2)
        process.kill()
        process.wait()
    found = info(path)
    assert found["segments"][0]["totals"] is None
    assert not found["blocks"]["has_index"]
    assert found["events"] >= traffic.queries
    with path.open("ab") as file:
        file.write(b"\x89HRREC\r\ntorn")
    again = json.loads(
        agent("record", str(traffic.path), "--port", str(traffic.port), "--append", "-o", str(path)).stdout
    )
    both = info(path)
    assert both["events"] == found["events"] + again["totals"]["events"]
    assert both["sessions"] == found["sessions"] + 5
    assert len(both["segments"]) == 2
    assert both["damage"]["damaged"] == 0


def test_parts_make_the_whole(captures: dict[str, Traffic], tmp_path: Path) -> None:
    whole = tmp_path / "whole.rec"
    record(captures["auto"], whole, "--with-literals")
    found = info(whole)
    middle = (found["first_start_ns"] + found["last_start_ns"]) // 2 // 1_000_000
    first_ms = -(-(middle * 1_000_000 - found["first_start_ns"]) // 1_000_000)
    parts = []
    for name, bounds in (("a", ["--until", f"+{first_ms}ms"]), ("b", ["--since", f"+{first_ms}ms"])):
        part = tmp_path / f"{name}.rec"
        said = headrace("recording", "cut", str(whole), *bounds, "-o", str(part), "--json")
        assert said.returncode == 0, said.stderr
        parts.append(json.loads(said.stdout))
    assert sum(part["events"] for part in parts) == found["events"]
    # The second half needs logins and prepares of the first.
    assert parts[1]["state_events"] > 4
    assert parts[0]["state_events"] == 0
    merged = headrace(
        "recording", "merge", *(part["file"] for part in parts), "-o", str(tmp_path / "c.rec"), "--json"
    )
    assert json.loads(merged.stdout)["events"] == found["events"]
    hidden = tmp_path / "d.rec"
    assert headrace("recording", "anonymise", str(whole), "-o", str(hidden)).returncode == 0
    assert [each["name"] for each in info(hidden)["users"]["names"]] != ["sb"]
    writes = headrace(
        "recording",
        "filter",
        str(whole),
        "read_only=no",
        "command=execute",
        "-o",
        str(tmp_path / "e"),
        "--json",
    )
    # Two updates, a delete and an insert of twenty; what deadlocks ended and began again comes on top.
    share = json.loads(writes.stdout)["events"] / found["commands"]["Execute"]
    assert share == pytest.approx(4 / 20, rel=0.01)


def test_the_command_brings_the_file_and_says_what_it_costs(
    captures: dict[str, Traffic], tmp_path: Path
) -> None:
    traffic, path = captures["auto"], tmp_path / "a.rec"
    arguments = ["record", str(traffic.path), "--port", str(traffic.port), "-o", str(path)]
    said = headrace(*arguments, "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["totals"]["events"] == info(path)["events"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    refused = headrace(*arguments)
    assert refused.returncode == 5
    assert "--force" in refused.stderr
    estimate = headrace(
        "record", str(traffic.path), "--port", str(traffic.port), "-o", "x.rec", "--estimate", "--json"
    )
    assert json.loads(estimate.stdout)["mib_per_hour"] > 0
    assert not Path("x.rec").exists()
    shown = headrace("recording", "info", str(path))
    assert "sbtest" in shown.stdout
    assert shown.returncode == 0


def test_damage_is_told_with_its_place_and_an_exit_code(captures: dict[str, Traffic], tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    record(captures["auto"], path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    said = headrace("recording", "verify", str(path))
    assert said.returncode == 9
    assert "checksum" in said.stdout


def test_a_missing_source_and_its_own_output_are_refused(
    captures: dict[str, Traffic], tmp_path: Path
) -> None:
    path = tmp_path / "a.rec"
    assert agent("record", "/no/such/file", "-o", str(path), check=False).returncode != 0
    path.unlink(missing_ok=True)
    record(captures["auto"], path)
    before = path.read_bytes()
    for arguments in (
        ["record", str(path)],
        ["recording", "cut", str(path)],
        ["recording", "merge", str(path)],
    ):
        done = agent(*arguments, "--force", "-o", str(path), check=False)
        assert done.returncode == 5, done.stderr
    assert path.read_bytes() == before
