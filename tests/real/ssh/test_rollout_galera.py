"""``headrace rollout`` over a Galera cluster of three: one node at a time, none while another is not synced, and a
node outside the primary component or one that is a donor is waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.database_fleet import PROGRAMS, Databases, databases
from tests.real.ssh.test_rollout import Rollouts, count, events, holds, value
from tests.real.ssh.test_rollout_group import RULES, changed, load
from tests.servers import free_port
from tests.waiting import until

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")

pytestmark = [
    pytest.mark.needs("root", "rsync", *PROGRAMS),
    pytest.mark.skipif(not PROVIDER.exists(), reason="no Galera: install galera-4"),
]

NAMES = ["db1", "db2", "db3"]
SETTING, OLD, NEW = "server.innodb_io_capacity=300", "200", "300"
STAGES = (
    RULES
    + """
[[stage]]
name = "nodes"
take = "sources"
"""
)


def clustered(ports: Mapping[str, tuple[int, int, int]]) -> dict[str, dict[str, str]]:
    """Options of each node, which has ports for the cluster and for what it lacks: parts of the data, or all. The
    first one begins the cluster.
    """
    peers = ",".join(f"127.0.0.1:{own}" for own, _, _ in ports.values())
    return {
        name: {
            "read_only": "0",
            "innodb_autoinc_lock_mode": "2",
            "innodb_read_io_threads": "4",
            "wsrep_on": "ON",
            "wsrep_provider": str(PROVIDER),
            "wsrep_cluster_name": "shop",
            "wsrep_node_name": name,
            "wsrep_node_address": f"127.0.0.1:{own}",
            "wsrep_provider_options": f"gmcast.listen_addr=tcp://127.0.0.1:{own};ist.recv_addr=127.0.0.1:{part}",
            "wsrep_sst_receive_address": f"127.0.0.1:{whole}",
            "wsrep_cluster_address": "gcomm://" if name == "db1" else f"gcomm://{peers}",
            "wsrep_sst_method": "rsync",
        }
        for name, (own, part, whole) in ports.items()
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    folder = tmp_path_factory.mktemp("galera")
    ports = iter({free_port() for _ in range(20)})
    with databases(
        folder / "hosts",
        NAMES,
        options=clustered({name: (next(ports), next(ports), next(ports)) for name in NAMES}),
        sysctls={},
        mounts={},
        drop_in=True,
        # A user that is made on one node is there on all of them.
        groups=[["db1"]],
        copied=True,
    ) as running:
        until(lambda: all(is_synced(running, name) for name in NAMES), pause_s=0.2)
        running.sql("db1", "CREATE DATABASE shop")
        with contextlib.ExitStack() as stack:
            for name in NAMES:
                stack.enter_context(load(running, name))
            yield running


def wsrep(found: Databases, name: str, variable: str) -> str:
    sql = f"SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_{variable}'"
    return value(found, name, sql)


def is_synced(found: Databases, name: str) -> bool:
    return (wsrep(found, name, "local_state"), wsrep(found, name, "cluster_size")) == ("4", "3")


def cut_off(found: Databases, name: str, is_cut: bool) -> None:
    """From the other nodes; SSH and its clients still reach it."""
    # Not ``sql``: a node that is cut off refuses its COMMIT.
    value(found, name, f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={int(is_cut)}'")
    if is_cut:
        until(lambda: wsrep(found, name, "cluster_status") == "non-Primary", pause_s=0.2)
    else:
        until(lambda: all(is_synced(found, each) for each in NAMES), pause_s=0.2)


@contextlib.contextmanager
def donor(found: Databases, name: str) -> Iterator[None]:
    """A node is one for as long."""
    found.sql(name, "SET GLOBAL wsrep_desync = 1")
    try:
        yield
    finally:
        found.sql(name, "SET GLOBAL wsrep_desync = 0")


def test_one_node_after_the_other_is_changed_and_none_while_one_is_a_donor_or_outside_the_primary_component(
    found: Databases, tmp_path: Path
) -> None:
    rollouts = Rollouts(found, tmp_path, stages=STAGES)
    plan = rollouts.plan(SETTING)
    rollouts.run("go", plan, code=15)
    first = rollouts.status(plan)
    members = first["plan"]["members"]
    assert {each["group"] for each in members.values()} == {"db1"}
    assert {(each["cluster"], each["cluster_size"]) for each in members.values()} == {("galera shop", 3)}
    assert "nodes needs an approval" in first["state"]
    rollouts.approve(plan, "nodes")

    with donor(found, "db3"):
        waits(rollouts, plan, "is not synced with its cluster (Donor/Desynced)")
    cut_off(found, "db3", True)
    try:
        waits(rollouts, plan, "is in no primary component of its cluster (non-Primary)")
    finally:
        cut_off(found, "db3", False)

    costs_a_block_and_is_no_harm(rollouts, plan)
    assert holds(found, "innodb_io_capacity", NEW, NAMES)
    steps = changed(rollouts, plan)
    assert [is_on for _, is_on in steps] == [True, False] * (len(steps) // 2)
    assert [one[0] for one in steps[::2]] == [one[0] for one in steps[1::2]]
    assert {name for name, _ in steps} == set(NAMES)
    rollouts.run("abort", plan)
    assert holds(found, "innodb_io_capacity", OLD, NAMES)


def waits(rollouts: Rollouts, plan: str, words: str) -> None:
    """No node is changed because of db3."""
    rollouts.run("go", plan, code=15)
    state = rollouts.status(plan)["state"]
    for name in NAMES[:2]:
        assert f"{name}: db3 of the same group {words}" in state
    assert f"db3: it {words}" in state
    assert count(rollouts, plan, "applying") == 0


def costs_a_block_and_is_no_harm(rollouts: Rollouts, plan: str) -> None:
    """A node becomes a donor while it has the change; all of them have it in the end."""
    found, before = rollouts.found, count(rollouts, plan, "lost")
    process = rollouts.start("go", plan)
    until(lambda: value(found, "db1", "SELECT @@global.innodb_io_capacity") == NEW, process)
    with donor(found, "db1"):
        until(lambda: count(rollouts, plan, "lost") > before, process)
    lost = [each["why"] for each in events(rollouts, plan) if each["kind"] == "lost"]
    assert "donor" in lost[before]
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, (out, err)
