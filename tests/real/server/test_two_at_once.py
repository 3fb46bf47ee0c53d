"""Two commands on one machine: neither takes back what the other has on trial."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.base.model import ServerLogin
from headrace.host.agent import Agent, Journal
from headrace.host.agent.journal import is_of_another_server
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget
from tests.commands import headrace
from tests.servers import Server, started

PLAN = """
name = "beside"
[target]
address = "local"
[design]
kind = "cumulative"
baseline = "AS-IS"
blocks = 1
[design.rungs]
AS-IS = []
[workload]
kind = "observe"
seconds = 1
warmup_s = 0
mysql_socket = "{socket}"
mysql_user = "root"
"""


async def are_of_another_server(servers: Sequence[Server]) -> list[bool]:
    """Of the one open change."""
    agent = await Agent.install(LocalTarget())
    (entry,) = await Journal(agent, "apply").entries()
    logins = [ServerLogin(socket=server.socket, user="root") for server in servers]
    facts = [HostFacts(await agent.facts(login)) for login in logins]
    return [is_of_another_server(entry, each.server_identities) for each in facts]


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    with started("mariadb", folder / "a") as one, started("mariadb", folder / "b") as other:
        yield one, other


def test_an_experiment_leaves_what_is_on_trial_on_another_server(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = servers
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    login = ["--mysql-socket", one.socket, "--mysql-user", "root"]
    done = headrace("apply", "server.innodb_io_capacity=777", "--confirm-within", "60s", *login)
    assert done.returncode == 0, done.stderr
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(socket=other.socket))
    done = headrace("run", str(plan), "--output", str(tmp_path / "run"))
    assert done.returncode == 7, done.stderr
    assert "innodb_io_capacity" in done.stderr
    assert one.socket in done.stderr
    assert one.sql("SELECT @@GLOBAL.innodb_io_capacity") == [(777,)]
    assert asyncio.run(are_of_another_server([one, other])) == [False, True]
    assert headrace("rollback").returncode == 0
    done = headrace("run", str(plan), "--output", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr


def test_a_rollback_is_about_the_named_server(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    logins = [["--mysql-socket", server.socket, "--mysql-user", "root"] for server in servers]

    def has(*expected: object) -> bool:
        found = [server.sql("SELECT @@GLOBAL.innodb_io_capacity") for server in servers]
        return found == [[(number,)] for number in expected]

    before = [server.sql("SELECT @@GLOBAL.innodb_io_capacity")[0][0] for server in servers]
    for login in logins:
        words = ("apply", "server.innodb_io_capacity=777", "--confirm-within", "120s")
        assert headrace(*words, *login).returncode == 0
    listed = headrace("rollback", "--list").stdout
    assert all(f"(server at {server.socket})" in listed for server in servers)
    done = headrace("rollback")
    assert done.returncode == 5, done.stderr
    assert "changes of several servers are open" in done.stderr
    assert has(777, 777)
    done = headrace("rollback", *logins[1])
    assert done.returncode == 0, done.stderr
    assert has(777, before[1])
    said = " ".join(done.stderr.split())
    assert f"of another server or login (innodb_io_capacity of the server at {servers[0].socket})" in said
    # The other one's: neither kept nor taken back by somebody who names this one.
    done = headrace("apply", "--confirm", *logins[1])
    assert done.returncode == 5, done.stderr
    assert headrace("apply", "--confirm", *logins[0]).returncode == 0
    done = headrace("rollback", "--last", *logins[1])
    assert done.returncode == 5, done.stderr
    assert "what was kept last is of another server" in " ".join(done.stderr.split())
    assert has(777, before[1])
    done = headrace("rollback", "--last", *logins[0])
    assert done.returncode == 0, done.stderr
    assert has(*before)


@pytest.mark.thorough
def test_a_server_that_hangs_keeps_nobody_from_the_other_one(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    hangs, other = [["--mysql-socket", server.socket, "--mysql-user", "root"] for server in servers]
    before = servers[0].sql("SELECT @@GLOBAL.innodb_io_capacity, @@GLOBAL.max_connections")
    settings = ("server.innodb_io_capacity=777", "server.max_connections=77")
    assert headrace("apply", *settings, "--confirm-within", "120s", *hangs).returncode == 0
    os.kill(servers[0].pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        done = headrace("rollback", "--everyone")
        assert done.returncode == 6, done.stderr
        assert "did not answer within 5 s" in done.stdout
        assert "its server did not answer for the change before" in done.stdout
        assert time.monotonic() - began_s < 50, "one statement may take 60 s"
        done = headrace("apply", "server.innodb_io_capacity=555", *other)
        assert done.returncode == 0, done.stderr
        done = headrace("rollback", "--last", *hangs)
        assert done.returncode == 6, done.stderr
        done = headrace("rollback", "--last", *other)
        assert done.returncode == 0, done.stderr
        assert "innodb_io_capacity = 200: undone" in done.stdout
        assert "could not be undone (" in " ".join(done.stderr.split())
    finally:
        os.kill(servers[0].pid, signal.SIGCONT)
    headrace("rollback", "--everyone")
    assert servers[0].sql("SELECT @@GLOBAL.innodb_io_capacity, @@GLOBAL.max_connections") == before
