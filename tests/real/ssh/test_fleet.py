"""``headrace fleet`` on real hosts, an sshd and a MariaDB each: a source and its replicas, planted differences."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import commands as command_line
from tests.commands import started
from tests.database_fleet import PROGRAMS, Databases, databases
from tests.fleet import wait_for
from tests.traces import commands
from tests.waiting import until

pytestmark = pytest.mark.needs("root", *PROGRAMS)

NAMES = [f"db{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    folder = tmp_path_factory.mktemp("fleet")
    with databases(
        folder / "hosts",
        NAMES,
        options={"db3": {"innodb_io_capacity": "2000"}, "db5": {"innodb_buffer_pool_size": "32M"}},
        sysctls={"db4": "# planted\nvm/swappiness = 7\n"},
        mounts={"db2": "noatime"},
    ) as running:
        running.sql("db4", "SET GLOBAL max_connections = 77")
        running.sql("db1", "SET GLOBAL long_query_time = 3")
        yield running


def start(found: Databases, verb: str, *arguments: str, state: Path) -> subprocess.Popen[str]:
    env = {**found.hosts.env, "XDG_STATE_HOME": str(state)}
    return started("fleet", verb, "--fleet", found.toml, *arguments, env=env)


def headrace(found: Databases, verb: str, *arguments: str, state: Path, code: int = 0) -> str:
    env = {**found.hosts.env, "XDG_STATE_HOME": str(state)}
    done = command_line.headrace("fleet", verb, "--fleet", found.toml, *arguments, env=env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def drift(found: Databases, *arguments: str, state: Path, code: int = 0) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        headrace(found, "drift", "--json", *arguments, state=state, code=code)
    )
    return answer


def test_every_planted_difference_is_found_and_none_is_invented(found: Databases, tmp_path: Path) -> None:
    _wait_for_replicas(found, tmp_path)
    answer = drift(found, state=tmp_path)
    odd = {
        row["name"]: {host: group["value"] for group in row["values"][1:] for host in group["hosts"]}
        for row in answer["differences"]
    }
    assert "noatime" in odd["data directory: options"].pop("db2")
    assert odd == {
        "innodb_io_capacity": {"db3": "2000"},
        "innodb_buffer_pool_size": {"db5": str(32 << 20)},
        "max_connections": {"db4": "77"},
        "long_query_time": {"db1": "3.000000"},
        "data directory: options": {},
    }
    own = {(row["between"], row["name"], *row["hosts"]): row["lasting"] for row in answer["own"]}
    assert own == {
        ("file", "max_connections", "db4"): "100",
        ("file", "vm.swappiness", "db4"): "7",
        ("nowhere", "long_query_time", "db1"): "",
    }
    assert answer["failovers"] == [
        {"replica": "db4", "source": "db1", "reasons": ["max_connections 77 against 100"]},
        {"replica": "db5", "source": "db1", "reasons": ["innodb_buffer_pool_size 32 MiB against 64 MiB"]},
    ]
    assert {"server_id", "port", "report_host", "hostname"} <= set(answer["masked"])
    assert answer["states"] == {"ok": 5, "failed": 0, "unreachable": 0, "skipped": 0}
    text = headrace(found, "drift", state=tmp_path)
    assert "db3" in text
    assert "innodb_io_capacity = 2000" in text
    assert "secret" not in json.dumps(answer)


def _wait_for_replicas(found: Databases, state: Path) -> None:
    """Until the source knows its replicas, which is how a failover is judged."""
    deadline = time.monotonic() + 60
    while True:
        answer = json.loads(headrace(found, "facts", "--only", "db1", "--json", state=state))
        settings = answer["hosts"]["db1"]["answer"]["server_settings"]
        if len(settings["replicas"] or ()) == 4:
            assert {replica["host"] for replica in settings["replicas"]} == {"db2", "db3", "db4", "db5"}
            return
        assert time.monotonic() < deadline


def test_a_run_asks_only_the_hosts_that_are_missing(found: Databases, tmp_path: Path) -> None:
    """A host dies; the others answer, and it is shown as it was. When it is back, it alone is asked."""
    run = tmp_path / "run.jsonl"
    headrace(found, "facts", state=tmp_path)
    lost = found.host("db2")
    lost.die()
    try:
        answer = json.loads(headrace(found, "facts", "--json", "--run", str(run), state=tmp_path, code=6))
        assert answer["hosts"]["db2"]["state"] == "unreachable"
        assert answer["hosts"]["db2"]["answer"]["hostname"] == "db2"
        assert answer["hosts"]["db2"]["age_s"] > 0
        text = headrace(found, "facts", "--only", "db[1-2]", state=tmp_path, code=6)
        assert "1 shown as last known" in text
    finally:
        (found.hosts.own_disk(lost) / "mysql" / "aria_log_control").unlink(missing_ok=True)
        lost.start()
        wait_for(lost)
    before = run.read_text().splitlines()
    headrace(found, "facts", "--run", str(run), state=tmp_path)
    new = run.read_text().splitlines()[len(before) :]
    assert [json.loads(line)["host"] for line in new] == ["db2"]
    answer = json.loads(headrace(found, "facts", "--json", "--run", str(run), state=tmp_path))
    assert {host["state"] for host in answer["hosts"].values()} == {"ok"}


def test_ctrl_c_keeps_what_has_answered(found: Databases, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    process = start(
        found,
        "hunt",
        "--duration",
        "60s",
        "--run",
        str(run),
        "--fan-out",
        "4",
        "--only",
        "db[1-5]",
        state=tmp_path,
    )
    until(lambda: len(_watchers(found)) >= 4, process, limit_s=60, pause_s=0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "5 hosts: 5 not finished" in out
    assert "Traceback" not in err
    assert _watchers(found) == []
    answer = json.loads(
        headrace(found, "hunt", "--duration", "3s", "--only", "db[1-3]", "--json", state=tmp_path)
    )
    assert set(answer["verdicts"]) == {"db1", "db2", "db3"}
    assert answer["not_finished"] == 0


def _watchers(found: Databases) -> list[str]:
    """The samplers that run on the hosts."""
    agent = f"{found.hosts.disk}/home/.cache/headrace/agent-".encode()
    return [str(words) for words in commands().values() if words[0].startswith(agent) and b"sample" in words]


def test_status_and_doctor_of_all(found: Databases, tmp_path: Path) -> None:
    answer = json.loads(headrace(found, "status", "--json", state=tmp_path))
    assert answer["answers"]["open changes"] == [{"value": "none", "hosts": NAMES}]
    text = headrace(found, "doctor", "--tag", "replicas", state=tmp_path)
    assert "all 4" in text


def test_the_replicas_are_followed_from_their_source(found: Databases, tmp_path: Path) -> None:
    """By the names that they report, which ~/.ssh/config knows, as on a user's machine."""
    _wait_for_replicas(found, tmp_path)
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True)
    (ssh / "config").write_text(found.ssh_config())
    toml = tmp_path / "fleet.toml"
    login = f'[fleet.mysql]\nsocket = "{found.hosts.disk}/s"\nuser = "root"\n'
    toml.write_text(f'[fleet]\nhosts = ["db1"]\nfollow = true\n{login}')
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "fleet", "status", "--fleet", str(toml), "--json"],
        env={**found.hosts.env, "HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["answers"]["account"][0]["hosts"]) == set(NAMES)
