"""``headrace rollout`` over a MySQL group of three: who is the primary, one member at a time, and a primary that
changes meanwhile.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import headrace
from tests.database_fleet import MYSQL, PROGRAMS, Databases, databases
from tests.loads import load_by
from tests.real.ssh.test_rollout import Rollouts, count, events, holds, value, variable
from tests.servers import free_port
from tests.waiting import until

pytestmark = pytest.mark.needs("root", *PROGRAMS)

NAMES = ["db1", "db2", "db3"]
GROUP = "5ca1ab1e-0000-4000-8000-000000000017"
STATE = (
    "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid"
)
ROLE = STATE.replace("MEMBER_STATE", "MEMBER_ROLE")
#: Short blocks and a wide margin: these rollouts pass unless something goes wrong.
RULES = """
[timing]
block_s = 1
wash_s = 0.3
soak_s = 1
lease_s = 5
sample_s = 0.1
[judge]
alpha = 0.005
looks = [4, 8, 16, 24]
margin = 1
[limits]
times = 50
fewer = {fewer}
"""
STAGES = (
    RULES
    + """
[[stage]]
name = "replicas"
take = "replicas"
[[stage]]
name = "sources"
take = "sources"
"""
)


def grouped(program: Path, ports: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Options of each member: a server finds its plugins where its program is."""
    common = {
        "plugin_dir": str(program.parent.parent / "lib" / "mysql" / "plugin"),
        "plugin_load_add": "group_replication.so",
        "loose_group_replication_group_name": GROUP,
        "loose_group_replication_start_on_boot": "OFF",
        "loose_group_replication_recovery_get_public_key": "ON",
        "loose_group_replication_group_seeds": ",".join(f"127.0.0.1:{port}" for port in ports.values()),
        # The hosts share an address, and their names lead nowhere.
        "report_host": "127.0.0.1",
    }
    return {
        name: {**common, "loose_group_replication_local_address": f"127.0.0.1:{port}"}
        for name, port in ports.items()
    }


@contextlib.contextmanager
def group(folder: Path, own: Mapping[str, str], *, drop_in: bool = False) -> Iterator[Databases]:
    """Three members that are online, db1 the primary; ``own`` are options of each."""
    options = grouped(Path(MYSQL.program()), {name: free_port() for name in NAMES})
    with databases(
        folder / "hosts",
        NAMES,
        options={name: {**each, **own} for name, each in options.items()},
        sysctls={},
        mounts={},
        drop_in=drop_in,
        groups=[[n] for n in NAMES],
        vendor=MYSQL,
    ) as running:
        account = "CHANGE REPLICATION SOURCE TO SOURCE_USER='copy', SOURCE_PASSWORD='copy' FOR CHANNEL "
        for name in NAMES:
            # What the fleet has made on each of them would be transactions that the others lack.
            running.sql(name, "RESET BINARY LOGS AND GTIDS", f"{account}'group_replication_recovery'")
        bootstrap = "SET GLOBAL group_replication_bootstrap_group = {}"
        running.sql("db1", bootstrap.format("ON"), "START GROUP_REPLICATION", bootstrap.format("OFF"))
        running.sql("db1", "CREATE DATABASE shop")
        for name in NAMES[1:]:
            running.sql(name, "START GROUP_REPLICATION")
        for name in NAMES[1:]:
            until(lambda name=name: value(running, name, STATE) == "ONLINE", pause_s=0.2)  # type: ignore[misc]
        yield running


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    with group(tmp_path_factory.mktemp("group"), {}) as running, contextlib.ExitStack() as stack:
        for name in NAMES[1:]:
            stack.enter_context(load(running, name))
        yield running


def load(found: Databases, name: str) -> contextlib.AbstractContextManager[None]:
    # Long enough that a busy machine is a small part of it: else the judge needs more blocks. So many at a time
    # that a block of few samples still has queries enough not to be taken for idle.
    operation = {"name": "own", "statements": [{"sql": "SELECT SLEEP(0.04)"}]}
    workload = {"kind": "sql", "prepared": False, "operations": [operation]}
    spec = {"workload": workload, "connections": 16, "seconds": 1200.0}
    return load_by(str(found.hosts.own_disk(found.host(name)) / "s"), spec)


def changed(rollouts: Rollouts, plan: str) -> list[tuple[str, bool]]:
    """In the order of the log: a host that gets the change, or gives it back or keeps it."""
    kinds = {"applying": True, "undone": False, "kept": False}
    return [(each["host"], kinds[each["kind"]]) for each in events(rollouts, plan) if each["kind"] in kinds]


def test_secondaries_are_changed_one_after_the_other_and_none_while_one_is_away_or_has_become_the_primary(
    found: Databases, tmp_path: Path
) -> None:
    rollouts = Rollouts(found, tmp_path, stages=STAGES)
    plan = rollouts.plan("server.innodb_io_capacity=300")
    members: dict[str, Any] = rollouts.status(plan)["plan"]["members"]
    assert {name: each["role"] for name, each in members.items()} == {
        "db1": "source", "db2": "replica", "db3": "replica",
    }  # fmt: skip
    assert {each["group"] for each in members.values()} == {"db1"}

    waits_for_one_that_has_left(rollouts, plan)
    leaves_one_alone_that_becomes_the_primary(rollouts, plan)

    rollouts.run("go", plan, code=15)
    assert "sources needs an approval" in rollouts.status(plan)["state"]
    assert variable(found, "innodb_io_capacity") == {"db1": "200", "db2": "300", "db3": "300"}
    steps = changed(rollouts, plan)
    # Whoever gets the change gives it back or keeps it before the next one gets it.
    assert [is_on for _, is_on in steps] == [True, False] * (len(steps) // 2)
    assert [one[0] for one in steps[::2]] == [one[0] for one in steps[1::2]]
    assert {name for name, _ in steps} == {"db2", "db3"}
    rollouts.run("abort", plan)
    assert holds(found, "innodb_io_capacity", "200", NAMES)


def waits_for_one_that_has_left(rollouts: Rollouts, plan: str) -> None:
    found = rollouts.found
    found.sql("db3", "STOP GROUP_REPLICATION")
    try:
        rollouts.run("go", plan, code=15)
        state = rollouts.status(plan)["state"]
        assert "db3: it does not replicate" in state or "db3 of the same group does not replicate" in state
        assert holds(found, "innodb_io_capacity", "200", NAMES)
    finally:
        found.sql("db3", "START GROUP_REPLICATION")
    until(lambda: value(found, "db3", STATE) == "ONLINE", pause_s=0.2)


def leaves_one_alone_that_becomes_the_primary(rollouts: Rollouts, plan: str) -> None:
    found = rollouts.found
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "pair") > 0, process)
    make_primary(found, "db1", "db2")
    try:
        process.communicate(timeout=240)
        after = rollouts.status(plan)
        assert process.returncode == 15, after
        assert "db2: it was a replica and is a source now" in after["state"]
        assert holds(found, "innodb_io_capacity", "200", ["db1", "db2"])
    finally:
        make_primary(found, "db2", "db1")


def make_primary(found: Databases, asked: str, name: str) -> None:
    """``asked``: a member that is told to make another one the primary."""
    uuid = value(found, name, "SELECT @@server_uuid")
    found.sql(asked, f"SELECT group_replication_set_as_primary('{uuid}')")


def test_threads_of_a_member_that_apply_for_its_group_are_no_sessions(found: Databases) -> None:
    socket = str(found.hosts.own_disk(found.host("db1")) / "s")
    login = ("--mysql-socket", socket, "--mysql-user", "root")
    done = headrace("hunt", "--sql-only", "--duration", "4s", "--json", *login)
    assert done.returncode == 0, done.stderr
    sessions = json.loads(done.stdout)["sessions"]
    # Its appliers have the user who started them, and are connections that execute nothing.
    assert not {"their login", "an event from coordinator"} & set(sessions["waits"])
    assert not {text for text in sessions["by"]["text"] if "applier" in text.lower()}
