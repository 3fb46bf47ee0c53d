"""Every command that takes a target, on a host behind a network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import EXIT_CODES
from headrace.base.model import NetworkLogin, Vendor
from headrace.host.target import TargetSpec, open_target
from headrace.lab.server import PrivateServer, ServerSpec
from tests import programs
from tests.commands import started
from tests.ssh_hosts import DBA, FAR, NEAR, NEAR_BEHIND_FAR, Host, Hosts, two_hosts
from tests.waiting import until

pytestmark = pytest.mark.needs("root", "ip")
needs_server = pytest.mark.needs("mariadbd")
needs_sudo = pytest.mark.needs("sudo")
SOMAXCONN = "/proc/sys/net/core/somaxconn"
SLOW_LOG = """\
# Time: 240102  3:04:05
# User@Host: app[app] @ [10.0.0.1]
# Thread_id: 7  Schema: shop  QC_hit: No
# Query_time: 0.125000  Lock_time: 0.000010  Rows_sent: 1  Rows_examined: 9
SET timestamp=1704164645;
SELECT * FROM orders WHERE id = 7;
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
        for host in (both.near, both.far):
            (host.tmp / "slow.log").write_text(SLOW_LOG)
        yield both


@pytest.fixture
def env(hosts: Hosts) -> dict[str, str]:
    # As on a user's machine: keys and known hosts of the home folder, nothing else.
    own = {
        "HOME": str(hosts.home),
        "HEADRACE_AGENT": programs.agent_path(),
        "HEADRACE_STATE": "/var/tmp/headrace-state",
        "NO_COLOR": "1",
        "COLUMNS": "150",
    }
    return {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"} | own


def headrace(env: dict[str, str], *arguments: str, code: int = 0) -> str:
    process = started(*arguments, env=env)
    out, err = process.communicate(timeout=140)
    assert process.returncode == code, (EXIT_CODES.get(process.returncode), err)
    return out


def test_facts_and_doctor(env: dict[str, str]) -> None:
    facts = json.loads(headrace(env, "facts", "-t", f"root@{NEAR}", "--json"))
    assert facts["hostname"] == "hrnear" if "hostname" in facts else "hrnear" in json.dumps(facts)
    checks = json.loads(headrace_any(env, "doctor", "-t", f"root@{NEAR}", "--json"))
    assert {"root", "fio"} <= {check["name"] for check in checks}


def headrace_any(env: dict[str, str], *arguments: str) -> str:
    """Of a command whose exit code tells of the machine."""
    process = started(*arguments, env=env)
    out, err = process.communicate(timeout=140)
    assert process.returncode in (0, 4), err
    return out


def test_hunt_saves_what_it_saw(env: dict[str, str], tmp_path: Path) -> None:
    saved = tmp_path / "near.hunt"
    found = json.loads(
        headrace(env, "hunt", "-t", f"root@{NEAR}", "--duration", "3s", "--save", str(saved), "--json")
    )
    assert found["target"] == f"root@{NEAR}"
    (again,) = json.loads(headrace(env, "hunt", "--from", str(saved), "--json"))
    assert again["target"] == f"root@{NEAR}"


def test_top(env: dict[str, str]) -> None:
    shot = json.loads(headrace(env, "top", "-t", f"root@{NEAR}", "--once", "--json"))
    assert shot["target"] == f"root@{NEAR}"


@pytest.mark.parametrize("address", [f"root@{NEAR}", pytest.param(f"{DBA}@{NEAR}+sudo", marks=needs_sudo)])
def test_settings_are_applied_confirmed_and_rolled_back(
    env: dict[str, str], hosts: Hosts, address: str
) -> None:
    before = hosts.near.inside("cat", SOMAXCONN)
    setting = "host.net.core.somaxconn=5001"
    headrace(env, "apply", setting, "-t", address, "--confirm-within", "60s")
    assert hosts.near.inside("cat", SOMAXCONN) == "5001"
    headrace(env, "apply", "--confirm", "-t", address)
    assert "somaxconn" in headrace(env, "rollback", "--list", "-t", address)
    assert hosts.near.inside("cat", SOMAXCONN) == "5001"
    headrace(env, "rollback", "--last", "-t", address)
    assert hosts.near.inside("cat", SOMAXCONN) == before


def test_what_nobody_confirms_is_undone_without_us(env: dict[str, str], hosts: Hosts) -> None:
    """The host does it, while no packet gets there."""
    before = hosts.near.inside("cat", SOMAXCONN)
    headrace(env, "apply", "host.net.core.somaxconn=5002", "-t", f"root@{NEAR}", "--confirm-within", "3s")
    assert hosts.near.inside("cat", SOMAXCONN) == "5002"
    hosts.near.cut()
    try:
        until(lambda: hosts.near.inside("cat", SOMAXCONN) == before, limit_s=30, pause_s=0.2)
    finally:
        hosts.near.join()


def test_ladder(env: dict[str, str]) -> None:
    rungs = json.loads(headrace(env, "latencies", "-t", f"root@{NEAR}", "--duration", "2s", "--json"))
    assert rungs


def test_digest_of_several_hosts(env: dict[str, str]) -> None:
    both = ("-t", f"root@{NEAR}", "-t", f"root@{FAR}")
    found = json.loads(headrace(env, "digest", "/var/tmp/slow.log", *both, "--json"))
    assert found["all"]["calls"] == 2


class TestRecord:
    def test_a_log_of_the_host(self, env: dict[str, str], hosts: Hosts, tmp_path: Path) -> None:
        output = tmp_path / "slow.rec"
        said = json.loads(
            headrace(env, "record", "-t", f"root@{NEAR}", "/var/tmp/slow.log", "-o", str(output), "--json")
        )
        assert said["totals"]["events"] == 1
        assert info(env, output)["events"] == 1
        assert not list(hosts.near.tmp.glob("headrace-????????"))

    def test_a_log_that_is_not_there(self, env: dict[str, str], hosts: Hosts, tmp_path: Path) -> None:
        words = ("record", "-t", f"root@{NEAR}", "/var/tmp/none.log", "-o", str(tmp_path / "x.rec"))
        process = started(*words, env=env)
        _, err = process.communicate(timeout=60)
        assert process.returncode not in (0, 1)
        assert "/var/tmp/none.log" in err
        assert not (tmp_path / "x.rec").exists()
        assert not list(hosts.near.tmp.glob("headrace-????????"))

    def test_ctrl_c_brings_what_there_is(self, env: dict[str, str], hosts: Hosts, tmp_path: Path) -> None:
        output = tmp_path / "stopped.rec"
        log = hosts.near.tmp / "growing.log"
        log.write_text(SLOW_LOG)
        words = (
            "record",
            "-t",
            f"root@{NEAR}",
            "/var/tmp/growing.log",
            "--follow",
            "-o",
            str(output),
            "--json",
        )
        process = started(*words, env=env)
        begun(hosts.near)
        with log.open("a") as file:
            file.write(SLOW_LOG)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert json.loads(out)["was_stopped"]
        assert info(env, output)["events"] == 2

    @needs_server
    @pytest.mark.parametrize("breaks", [False, True], ids=["", "the connection breaks"])
    async def test_packets_of_a_server(
        self, env: dict[str, str], hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
    ) -> None:
        monkeypatch.setenv("HOME", env["HOME"])
        output = tmp_path / "packets.rec"
        async with private_server() as login:
            recorder = started(
                *("record", "-t", f"root@{NEAR}", "--interface", "any", "--port", str(login.port)),
                *("--duration", "15s", "-o", str(output), "--json"),
                env=env,
            )
            await asyncio.to_thread(begun, hosts.near)
            for number in range(30):
                if breaks and number == 10:
                    hosts.near.break_connections()
                await asyncio.to_thread(query, login)
            out, err = await asyncio.to_thread(recorder.communicate, timeout=90)
        assert recorder.returncode == 0, err
        assert ("is back" in err) == breaks
        found = json.loads(out)["totals"]
        assert found["coverage"]["dropped_packets"] == 0
        # Each client says more than its one statement.
        assert found["events"] >= 30
        assert info(env, output)["events"] == found["events"]


def begun(host: Host) -> None:
    """Wait until the recorder writes."""
    until(lambda: list(host.tmp.glob("headrace-????????/recording")), limit_s=60, pause_s=0.1)
    time.sleep(1)


def info(env: dict[str, str], output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(headrace(env, "recording", "info", str(output), "--json"))
    return found


@contextlib.asynccontextmanager
async def private_server() -> AsyncIterator[NetworkLogin]:
    """A server on the near host that the far one may reach."""
    target = open_target(TargetSpec.parse(f"root@{NEAR}"))
    await target.connect()
    server = PrivateServer(
        target,
        ServerSpec(Vendor.MARIADB, port=3398),
        "/var/tmp/server/data",
        "/var/tmp/server/run",
        "test-record",
        network_host=NEAR_BEHIND_FAR,
    )
    try:
        await target.run(["mkdir", "-p", "/var/tmp/server"])
        await server.initialise()
        endpoint = await server.start()
        assert endpoint.network
        await server.query("CREATE DATABASE headrace")
        yield endpoint.network
    finally:
        await server.stop(discard=True)
        await target.run(["rm", "-rf", "/var/tmp/server"])
        await target.close()


def query(login: NetworkLogin) -> None:
    """Ask it from the far host's network."""
    subprocess.run(
        [
            *("ip", "netns", "exec", "hrfar", "mariadb", "--no-defaults", f"--host={login.host}"),
            *(f"--port={login.port}", f"--user={login.user}", "-e", "SELECT 1 + 1"),
        ],
        env={**os.environ, "MYSQL_PWD": login.password},
        check=True,
        capture_output=True,
    )
