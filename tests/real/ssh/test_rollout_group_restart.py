"""``headrace rollout`` of a setting that takes a restart, over a MySQL group of three: the secondaries in a pair,
one member away at a time, and the primary only once a person has approved it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.database_fleet import PROGRAMS, Databases
from tests.real.ssh.test_rollout import Rollouts, events, value
from tests.real.ssh.test_rollout_group import NAMES, ROLE, STATE, group, make_primary
from tests.service import Clients, put_scripts

pytestmark = pytest.mark.needs("root", *PROGRAMS)

SERVING = NAMES[1:]
SETTING, VARIABLE = "server.innodb_read_io_threads", "innodb_read_io_threads"
OLD, NEW = "4", "5"
STAGES = """
[timing]
soak_s = 1
lease_s = 60
wash_s = 0.2
sample_s = 0.1
[judge]
alpha = 0.02
looks = [5, 10, 20, 40]
margin = 1
[limits]
times = 50
fewer = 50
[restart]
drain = "DISK/drain"
return = "DISK/return"
command = "DISK/restart"
within_s = 20
start_s = 60
warm_s = 30
warm = 0.5
block_s = 0.7
before = 5
equal = ["db[2-3]"]
[[stage]]
name = "replicas"
take = "replicas"
[[stage]]
name = "sources"
take = "sources"
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    own = {VARIABLE: OLD}
    with group(tmp_path_factory.mktemp("group-restart"), own, drop_in=True) as running:
        for name in NAMES:
            # One that is restarted joins the group by itself.
            path = running.hosts.own_disk(running.host(name)) / "my.cnf"
            path.write_text(path.read_text().replace("start_on_boot = OFF", "start_on_boot = ON"))
            put_scripts(running, name)
        yield running


class Watch:
    """Asks all members again and again. ``together``: those that were away at a time, if there were two;
    ``early``: those that were in service before they were online.
    """

    def __init__(self, found: Databases) -> None:
        self.found = found
        #: Kept open: on a busy machine it takes longer to connect than to ask.
        self.connections: dict[str, pymysql.Connection[Any]] = {}
        self.together: set[tuple[str, ...]] = set()
        self.early: set[str] = set()
        self.left: set[str] = set()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _is_away(self, name: str) -> bool:
        drained = self.found.hosts.own_disk(self.found.host(name)) / "drained"
        if drained.exists():
            # To be restarted, which ends it: that it is broken afterwards would say nothing of the new server.
            self._close(name)
            return True
        is_online = self._state(name) == "ONLINE"
        if not is_online and not drained.exists():
            self.early.add(name)
        return not is_online

    def _state(self, name: str) -> str:
        socket = self.found.hosts.own_disk(self.found.host(name)) / "s"
        try:
            if name not in self.connections:
                # Without a transaction, for whose end a primary that is given back would wait.
                self.connections[name] = pymysql.connect(
                    unix_socket=str(socket), user="root", autocommit=True
                )
            with self.connections[name].cursor() as cursor:
                cursor.execute(STATE)
                row = cursor.fetchone()
                return str(row[0]) if row else ""
        except pymysql.Error as error:
            self._close(name)
            return str(error)

    def _close(self, name: str) -> None:
        with contextlib.suppress(KeyError, pymysql.Error):
            self.connections.pop(name).close()

    def _run(self) -> None:
        while not self.is_over.is_set():
            away = [name for name in NAMES if self._is_away(name)]
            self.left.update(away)
            # One after the other was asked: only those that are still away were so at the same time.
            if len(away) > 1 and len(away := [name for name in away if self._is_away(name)]) > 1:
                self.together.add(tuple(away))
            time.sleep(0.02)

    def end(self) -> None:
        self.is_over.set()
        self.thread.join()
        for name in NAMES:
            self._close(name)


@pytest.fixture
def watch(found: Databases) -> Iterator[Watch]:
    watch = Watch(found)
    yield watch
    watch.end()


@pytest.fixture
def clients(found: Databases) -> Iterator[list[Clients]]:
    running = [Clients(found, name, sql="SELECT SLEEP(0.03)") for name in SERVING]
    yield running
    for each in running:
        each.end()


def values(found: Databases) -> dict[str, str]:
    return {name: value(found, name, f"SELECT @@global.{VARIABLE}") for name in NAMES}


def roles(found: Databases) -> dict[str, str]:
    return {name: value(found, name, ROLE) for name in NAMES}


def restarts(rollouts: Rollouts, plan: str) -> list[str]:
    return [each["host"] for each in events(rollouts, plan) if each["kind"] == "restarting"]


@pytest.mark.thorough
def test_one_member_at_a_time_and_the_primary_after_an_approval(
    found: Databases, tmp_path: Path, clients: list[Clients], watch: Watch
) -> None:
    rollouts = Rollouts(found, tmp_path, stages=STAGES.replace("DISK", str(found.hosts.disk)))
    plan = rollouts.plan(f"{SETTING}={NEW}")
    first, second = rollouts.status(plan)["plan"]["stages"]
    assert [set(pair) for pair in first["pairs"]] == [set(SERVING)]
    assert second["hosts"] == ["db1"]

    rollouts.run("go", plan, code=15)
    assert "sources needs an approval" in rollouts.status(plan)["state"]
    assert values(found) == {"db1": OLD, "db2": NEW, "db3": NEW}
    done = restarts(rollouts, plan)
    assert set(done) == set(SERVING)
    assert watch.left == set(SERVING)
    assert roles(found) == {"db1": "PRIMARY", "db2": "SECONDARY", "db3": "SECONDARY"}

    rollouts.approve(plan, "sources")
    rollouts.run("go", plan)
    assert values(found) == dict.fromkeys(NAMES, NEW)
    assert set(restarts(rollouts, plan)[len(done) :]) == {"db1"}
    # The group has elected another one, which a restart would cut: a person decides when.
    (primary,) = [name for name, role in roles(found).items() if role == "PRIMARY"]
    assert primary != "db1"
    rollouts.run("abort", plan, code=6)
    hosts = rollouts.status(plan)["hosts"]
    assert {name for name, state in hosts.items() if state != "as before"} == {primary}
    assert values(found) == {**dict.fromkeys(NAMES, OLD), primary: NEW}
    assert {value(found, name, STATE) for name in NAMES} == {"ONLINE"}
    # Given back by a person, who also continues: the option file is the old one already.
    make_primary(found, primary, "db1")
    rollouts.run("abort", plan)
    assert rollouts.status(plan)["is_aborted"]
    assert values(found) == dict.fromkeys(NAMES, OLD)
    assert {value(found, name, STATE) for name in NAMES} == {"ONLINE"}
    assert watch.together == set()
    assert watch.early == set()
    assert [each.errors for each in clients] == [[], []]
