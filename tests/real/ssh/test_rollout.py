"""``headrace rollout`` on real hosts, an sshd and a server each, under the driver's load: what helps is promoted,
what harms is taken back, what does nothing wins nothing, and no host stays changed whatever is killed or cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pymysql
import pytest

from headrace.rollout import look
from tests.commands import headrace, started
from tests.database_fleet import MARIADB, MYSQL, PROGRAMS, Databases, Vendor, databases
from tests.loads import load_by
from tests.traces import commands
from tests.waiting import until

pytestmark = pytest.mark.needs("root", *PROGRAMS)

NAMES = [f"db{number}" for number in range(1, 4)]
REPLICAS = NAMES[1:]
#: With more tables than the cache holds, each statement opens its table again, with all of its partitions.
TABLES, PARTITIONS = 12, 256
SMALL, LARGE = 10, 400
STAGES = """
[timing]
block_s = 1.5
wash_s = 0.3
soak_s = 1.5
lease_s = 5
sample_s = 0.1
[judge]
# A test may not be wrong as often as a verdict may.
alpha = 0.005
looks = [4, 8, 16, 24]
margin = 0.4
# A block of a second may hold what headrace itself asks to open and to change a server: about 75 queries.
idle_per_s = 100
[limits]
times = 50
fewer = {fewer}
[[stage]]
name = "first"
hosts = "db2"
"""


def shortened(stages: str) -> str:
    """Where the verdict is another test's matter: short blocks, and the first look is enough."""
    return stages.replace("_s = 1.5", "_s = 1").replace("margin = 0.4", "margin = 1")


FIRST = STAGES
SHORT = shortened(FIRST)
STAGES += """
[[stage]]
name = "sources"
take = "sources"
"""


@pytest.fixture(scope="module", params=[MARIADB], ids=lambda vendor: vendor.kind)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    vendor: Vendor = request.param
    folder = tmp_path_factory.mktemp("rollout")
    own = {"table_open_cache": str(LARGE)}
    # MySQL cannot put partitions into the system tablespace, and takes a minute to create a file for each.
    own |= {"innodb_file_per_table": "0"} if vendor is MARIADB else {}
    partitions = PARTITIONS if vendor is MARIADB else 1
    options = dict.fromkeys(NAMES, own)
    with databases(folder / "hosts", NAMES, options=options, sysctls={}, mounts={}, vendor=vendor) as running:
        parts = f"PARTITION BY HASH (id) PARTITIONS {partitions}"
        tables = [f"CREATE TABLE shop.t{n} (id INT PRIMARY KEY, c INT) {parts}" for n in range(TABLES)]
        rows = [f"INSERT INTO shop.t{n} VALUES (1, 1)" for n in range(TABLES)]
        running.sql("db1", "CREATE DATABASE shop", *tables, *rows)
        last = f"SELECT c FROM shop.t{TABLES - 1}"
        until(lambda: all(value(running, name, last) == "1" for name in REPLICAS), pause_s=0.1)
        # Four connections that rest a millisecond keep a CPU busy. Beside other tests no verdict depends on what
        # a table costs to open: longer rests leave the CPU to them, and with more connections a busy machine does
        # not make the host idle.
        is_beside = not any(
            item.path == request.path and item.get_closest_marker("alone") for item in request.session.items
        )
        with load(running, "db2", *((12, 0.03) if is_beside else (4, 0.001))):
            yield running


def load(
    found: Databases, name: str, connections: int, rest_s: float
) -> contextlib.AbstractContextManager[None]:
    operations = [
        {"name": f"t{n}", "statements": [{"sql": f"SELECT c, SLEEP({rest_s}) FROM t{n} WHERE id = 1"}]}
        for n in range(TABLES)
    ]
    workload = {"kind": "sql", "prepared": False, "operations": operations}
    spec = {"workload": workload, "connections": connections, "seconds": 1200.0}
    return load_by(str(found.hosts.own_disk(found.host(name)) / "s"), spec)


def value(found: Databases, name: str, sql: str) -> str:
    socket = found.hosts.own_disk(found.host(name)) / "s"
    try:
        with (
            contextlib.closing(pymysql.connect(unix_socket=str(socket), user="root")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            row = cursor.fetchone()
            return str(row[0]) if row else ""
    except pymysql.Error as error:
        return str(error)


def variable(found: Databases, name: str, names: list[str] | None = None) -> dict[str, str]:
    return {host: value(found, host, f"SELECT @@global.{name}") for host in names or NAMES}


def holds(found: Databases, name: str, wanted: str, hosts: list[str]) -> bool:
    return set(variable(found, name, hosts).values()) == {wanted}


class Rollouts:
    """The command, with a state of its own."""

    def __init__(self, found: Databases, state: Path, fewer: float = 50.0, stages: str = STAGES) -> None:
        self.found = found
        self.env = {**found.hosts.env, "XDG_STATE_HOME": str(state)}
        self.stages = state / "stages.toml"
        self.stages.write_text(stages.format(fewer=fewer))

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        return started("rollout", verb, *arguments, env=self.env)

    def run(self, verb: str, *arguments: str, code: int = 0) -> str:
        if verb not in ("plan", "go", "dry"):
            return self._here(verb, arguments, code)
        process = self.start(verb, *arguments)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, (out, err)
        assert "Traceback" not in err
        return out

    def here(self, verb: str, *arguments: str) -> str:
        return self._here(verb, arguments, 0)

    def _here(self, verb: str, arguments: Sequence[str], code: int) -> str:
        """In this process: most of the time of a short command is the start of another one."""
        done = headrace("rollout", verb, *arguments, env=self.env)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    def plan(self, *settings: str, is_here: bool = True) -> str:
        run = self.here if is_here else self.run
        # One second of load is enough to tell a busy server from an idle one.
        with mock.patch.object(look, "LOAD_S", 1):
            out = run("plan", *settings, "--fleet", self.found.toml, "--stages", str(self.stages), "--json")
        return str(json.loads(out)["id"])

    def approve(self, plan: str, stage: str) -> None:
        self.here("approve", plan, "--stage", stage, "--by", "Ann Lee")

    def status(self, plan: str) -> Mapping[str, Any]:
        content: Mapping[str, Any] = json.loads(self.here("status", plan, "--json"))
        return content


@pytest.mark.parametrize(
    "found",
    [MARIADB, pytest.param(MYSQL, marks=pytest.mark.beside)],
    ids=lambda vendor: vendor.kind,
    indirect=True,
)
def test_what_does_nothing_is_promoted_without_a_win_and_a_source_waits_for_a_person(
    found: Databases, tmp_path: Path
) -> None:
    # The judge does not know vendors: what MySQL adds is how it is asked and set.
    rollouts = Rollouts(found, tmp_path, stages=STAGES if found.vendor is MARIADB else shortened(STAGES))
    plan = rollouts.plan("server.innodb_io_capacity=300")
    rollouts.run("go", plan, code=15)
    status = rollouts.status(plan)
    assert {stage: each["passed"] for stage, each in status["stages"].items()} == {
        "first": True,
        "sources": False,
    }
    assert status["stages"]["first"]["verdict"]["is_win"] is False
    assert "needs an approval" in status["state"]
    assert variable(found, "innodb_io_capacity") == {"db1": "200", "db2": "300", "db3": "200"}
    rollouts.approve(plan, "sources")
    rollouts.run("go", plan)
    assert holds(found, "innodb_io_capacity", "300", ["db1", "db2"])
    assert rollouts.status(plan)["is_finished"]
    rollouts.run("abort", plan)
    assert set(variable(found, "innodb_io_capacity").values()) == {"200"}
    assert set(rollouts.status(plan)["hosts"].values()) == {"as before"}
    assert "every host is as before" in rollouts.status(plan)["state"]


def test_harm_is_proven_and_taken_back_and_the_others_never_had_it(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path)
    plan = rollouts.plan(f"server.table_open_cache={SMALL}")
    rollouts.run("go", plan, code=13)
    status = rollouts.status(plan)
    assert "worse" in status["aborting"]
    assert status["is_aborted"]
    assert {event["host"] for event in status["events"] if event["kind"] == "applying"} == {"db2"}
    assert set(variable(found, "table_open_cache").values()) == {str(LARGE)}


def test_a_limit_stops_it_within_its_first_block(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path, fewer=1.3)
    plan = rollouts.plan(f"server.table_open_cache={SMALL}")
    rollouts.run("go", plan, code=13)
    status = rollouts.status(plan)
    assert "recovered" in status["aborting"]
    assert set(variable(found, "table_open_cache").values()) == {str(LARGE)}


def events(found: Rollouts, plan: str) -> list[dict[str, Any]]:
    path = found.stages.parent / "headrace" / "rollouts" / plan / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def count(found: Rollouts, plan: str, kind: str) -> int:
    return sum(event["kind"] == kind for event in events(found, plan))


@pytest.mark.beside
def test_killed_at_any_moment_the_host_returns_and_the_same_command_continues(
    found: Databases, tmp_path: Path
) -> None:
    rollouts = Rollouts(found, tmp_path, stages=SHORT)
    plan = rollouts.plan("server.innodb_io_capacity=300")
    for wait_s in (0.0, random.uniform(0, 3)):
        tried = count(rollouts, plan, "applying")
        process = rollouts.start("go", plan)
        until(lambda tried=tried: count(rollouts, plan, "applying") > tried)  # type: ignore[misc]
        time.sleep(wait_s)
        process.kill()
        process.communicate()
        until(lambda: not agents(found), limit_s=60, pause_s=0.1)
        if rollouts.status(plan)["hosts"]["db2"] != "changed":
            # Nobody puts the deadline off any more; 5 s are its lease.
            until(lambda: holds(found, "innodb_io_capacity", "200", NAMES), pause_s=0.1)
    rollouts.run("go", plan)
    assert variable(found, "innodb_io_capacity") == {**dict.fromkeys(NAMES, "200"), "db2": "300"}
    rollouts.run("abort", plan)
    assert holds(found, "innodb_io_capacity", "200", NAMES)


def agents(found: Databases) -> list[list[bytes]]:
    """What samples on a host."""
    mark = f"{found.hosts.disk}/home/.cache/headrace/agent-".encode()
    return [words for words in commands().values() if words[0].startswith(mark) and b"sample" in words]


@pytest.mark.beside
def test_a_cut_connection_costs_a_pair_and_leaves_nothing_changed(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path, stages=SHORT)
    plan = rollouts.plan("server.innodb_io_capacity=300")
    process = rollouts.start("go", plan)
    until(lambda: holds(found, "innodb_io_capacity", "300", ["db2"]), pause_s=0.1)
    sessions = sessions_of(found, "db2")
    assert sessions
    for pid in sessions:
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, (out, err)
    assert count(rollouts, plan, "lost") > 0
    assert rollouts.status(plan)["is_finished"]
    rollouts.run("abort", plan)
    assert holds(found, "innodb_io_capacity", "200", NAMES)


def sessions_of(found: Databases, name: str) -> list[int]:
    """The logins at a host: what its sshd has started."""
    process = found.host(name).process
    assert process is not None
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (folder / "stat").read_text()
            parents[int(folder.name)] = (int(text.rpartition(")")[2].split()[1]), text.partition("(")[2][:4])
    below = {process.pid}
    while more := {pid for pid, (parent, _) in parents.items() if parent in below} - below:
        below |= more
    daemons = {pid for pid in below if pid in parents and parents[pid][1] == "sshd"}
    return [pid for pid in daemons if parents[pid][0] in daemons]


@pytest.mark.beside
def test_one_rollout_at_a_time_and_no_approval_before_its_turn(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path)
    plan = rollouts.plan("server.innodb_io_capacity=300")
    other = rollouts.plan("server.innodb_io_capacity=400")
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "go") == 1)
    assert rollouts.run("go", other, code=7) == ""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert holds(found, "innodb_io_capacity", "200", NAMES)
    assert rollouts.run("approve", plan, "--stage", "sources", code=5) == ""


@pytest.mark.beside
def test_a_setting_that_takes_a_restart_is_not_planned(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path)
    process = rollouts.start("plan", "server.innodb_flush_method=fsync", "--fleet", found.toml)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    assert "restart" in err


@pytest.mark.beside
def test_a_dry_run_changes_nothing_and_states_its_error(found: Databases, tmp_path: Path) -> None:
    rollouts = Rollouts(found, tmp_path, stages=FIRST)
    plan = rollouts.plan("server.innodb_io_capacity=300")
    out = json.loads(rollouts.run("dry", plan, "--pairs", "2", "--json"))
    assert out["blocks"] == 4
    assert all(rate["holds"] for rate in out["rates"])
    assert count(rollouts, plan, "applying") == 0
