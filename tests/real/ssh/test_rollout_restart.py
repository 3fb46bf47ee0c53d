"""``headrace rollout`` of a setting that takes a restart, on a source and two replicas that serve: drained,
restarted and returned by scripts, compared in a pair, promoted or taken back, and never under a client.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.database_fleet import PROGRAMS, Databases, databases
from tests.real.ssh.test_rollout import Rollouts, count, events, value
from tests.service import TABLE, Clients, put_scripts
from tests.waiting import until

pytestmark = pytest.mark.needs("root", *PROGRAMS)

NAMES = ["db1", "db2", "db3"]
SERVING = NAMES[1:]
MODE = "server.innodb_autoinc_lock_mode"
STAGES = """
[timing]
soak_s = 1
lease_s = 5
wash_s = 0.2
sample_s = 0.1
[judge]
alpha = 0.02
looks = [5, 10, 20, 40]
margin = 0.3
[limits]
times = 50
fewer = 50
[restart]
drain = "DISK/drain"
return = "DISK/return"
command = "DISK/restart"
within_s = 20
start_s = 40
warm_s = 30
warm = 0.8
block_s = 0.7
before = 10
equal = ["db[2-3]"]
[[stage]]
name = "both"
hosts = "db[2-3]"
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    folder = tmp_path_factory.mktemp("restart")
    own = {
        "innodb_autoinc_lock_mode": "1",
        "innodb_flush_log_at_trx_commit": "0",
        "innodb_log_file_size": "64M",
    }
    with databases(
        folder / "hosts", NAMES, options=dict.fromkeys(NAMES, own), sysctls={}, mounts={}, drop_in=True
    ) as running:
        running.sql("db1", "CREATE DATABASE shop", "USE shop", TABLE)
        for name in SERVING:
            until(lambda name=name: value(running, name, "SELECT COUNT(*) FROM shop.own") == "0")  # type: ignore[misc]
            put_scripts(running, name)
        yield running


@pytest.fixture
def clients(found: Databases, tmp_path: Path) -> Iterator[list[Clients]]:
    running = [Clients(found, name) for name in SERVING]
    yield running
    for log in tmp_path.rglob("log.jsonl"):
        left, plan = rollouts_of(found, log.parents[3]), log.parent.name
        # A test that failed must not fail the others: a host that has the value already is part of no plan.
        if count(left, plan, "applying") and not count(left, plan, "aborted"):
            left.start("abort", plan).communicate()
    for each in running:
        each.end()


def rollouts_of(
    found: Databases,
    state: Path,
    *,
    is_judged: bool = True,
    host_restarts: bool = False,
    is_beside: bool = False,
) -> Rollouts:
    """``is_judged``: what is asked needs a verdict, and so enough blocks before; more blocks after are no help."""
    stages = STAGES
    if is_beside:
        # Other tests take the CPU, and a server with fewer than 50 queries a block is idle.
        stages = stages.replace("block_s = 0.7", "block_s = 1.2")
    if not is_judged:
        stages = stages.replace("before = 10", "before = 3")
    if host_restarts:
        stages = stages.replace("before =", "host_restarts = true\nbefore =")
    return Rollouts(found, state, stages=stages.replace("DISK", str(found.hosts.disk)))


def modes(found: Databases) -> dict[str, str]:
    return {name: value(found, name, "SELECT @@global.innodb_autoinc_lock_mode") for name in SERVING}


def steps(found: Databases, name: str) -> list[str]:
    """What the scripts of a host were called for since the last time."""
    path = found.hosts.own_disk(found.host(name)) / "service.log"
    words = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return words


ONCE = ["drain", "restart", "return"]


def test_a_good_restart_is_promoted_the_way_back_is_harm_and_abort_restores_all(
    found: Databases, tmp_path: Path, clients: list[Clients]
) -> None:
    good = rollouts_of(found, tmp_path)
    plan = good.plan(f"{MODE}=2")
    stage = good.status(plan)["plan"]["stages"][0]
    assert [set(pair) for pair in stage["pairs"]] == [set(SERVING)]
    good.run("go", plan)
    assert good.status(plan)["stages"]["both"]["verdict"]["is_win"]
    assert modes(found) == dict.fromkeys(SERVING, "2")
    assert {name: steps(found, name) for name in SERVING} == dict.fromkeys(SERVING, ONCE)
    first, second = stage["pairs"][0]
    changed = [event["host"] for event in events(good, plan) if event["kind"] == "applying"]
    assert changed == [first, second]

    (tmp_path / "back").mkdir()
    harmful = rollouts_of(found, tmp_path / "back")
    back = harmful.plan(f"{MODE}=1")
    harmful.run("go", back, code=13)
    assert "worse" in harmful.status(back)["aborting"]
    assert modes(found) == dict.fromkeys(SERVING, "2")
    tried = {event["host"] for event in events(harmful, back) if event["kind"] == "applying"}
    assert len(tried) == 1
    assert {name: steps(found, name) for name in SERVING} == {
        name: 2 * ONCE if name in tried else [] for name in SERVING
    }

    good.run("abort", plan)
    assert modes(found) == dict.fromkeys(SERVING, "1")
    assert set(good.status(plan)["hosts"].values()) == {"as before"}
    assert {name: steps(found, name) for name in SERVING} == dict.fromkeys(SERVING, ONCE)
    assert [each.errors for each in clients] == [[], []]


@pytest.mark.thorough
@pytest.mark.beside
def test_killed_in_mid_restart_it_stays_out_of_service_until_go_or_abort(
    found: Databases, tmp_path: Path, clients: list[Clients]
) -> None:
    rollouts = rollouts_of(found, tmp_path, is_beside=True)
    plan = rollouts.plan(f"{MODE}=2")
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "restarting") == 1)
    process.kill()
    process.communicate()
    hosts = rollouts.status(plan)["hosts"]
    (out,) = [name for name, state in hosts.items() if state == "out of service"]
    disk = found.hosts.own_disk(found.host(out))
    # The host takes its file back, and does not know whether it may restart or return the server.
    until(lambda: not list(disk.glob("conf.d/*")), pause_s=0.1)
    assert (disk / "drained").exists()
    assert "return" not in steps(found, out)
    # It goes on from there: the host is restored first, and then tried.
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "undone") == 1)
    assert not (disk / "drained").exists()
    until(lambda: count(rollouts, plan, "restarting") == 3)
    process.kill()
    process.communicate()
    rollouts.run("abort", plan)
    must_be_as_before(rollouts, plan, clients)


def must_be_as_before(rollouts: Rollouts, plan: str, clients: list[Clients]) -> None:
    found = rollouts.found
    assert modes(found) == dict.fromkeys(SERVING, "1")
    assert set(rollouts.status(plan)["hosts"].values()) == {"as before"}
    for name in SERVING:
        disk = found.hosts.own_disk(found.host(name))
        assert not (disk / "drained").exists()
        assert not list(disk.glob("conf.d/*"))
        steps(found, name)
    assert [each.errors for each in clients] == [[], []]


@pytest.mark.beside
def test_a_host_that_may_restarts_by_itself_when_the_controller_is_gone(
    found: Databases, tmp_path: Path, clients: list[Clients]
) -> None:
    rollouts = rollouts_of(found, tmp_path, is_judged=False, host_restarts=True, is_beside=True)
    plan = rollouts.plan(f"{MODE}=2")
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "in") == 1, process)
    process.kill()
    process.communicate()
    (changed,) = [name for name, state in rollouts.status(plan)["hosts"].items() if state == "changing"]
    until(lambda: modes(found)[changed] == "1", pause_s=0.2)
    disk = found.hosts.own_disk(found.host(changed))
    until(lambda: not (disk / "drained").exists(), pause_s=0.1)
    assert steps(found, changed) == 2 * ONCE
    # It is not restarted again for what the host has done.
    rollouts.run("abort", plan)
    assert steps(found, changed) == []
    must_be_as_before(rollouts, plan, clients)


@pytest.mark.beside
def test_what_cannot_be_drained_is_not_restarted_and_what_does_not_start_is_taken_back(
    found: Databases, tmp_path: Path, clients: list[Clients]
) -> None:
    rollouts = rollouts_of(found, tmp_path, is_judged=False, is_beside=True)
    plan = rollouts.plan(f"{MODE}=2")
    stuck = [found.hosts.own_disk(found.host(name)) / "stuck" for name in SERVING]
    for path in stuck:
        path.touch()
    rollouts.run("go", plan, code=15)
    assert "the drain command failed with exit code 3" in rollouts.status(plan)["state"]
    assert "restart" not in {step for name in SERVING for step in steps(found, name)}
    assert set(rollouts.status(plan)["hosts"].values()) <= {"as before", "aside"}
    for path in stuck:
        path.unlink()

    # A directory that was there when the value was checked, and is gone when the server starts.
    for name in NAMES:
        folder = found.hosts.own_disk(found.host(name)) / "until-restart"
        folder.mkdir()
        folder.chmod(0o777)
    setting = f"server.secure_file_priv={found.hosts.disk}/until-restart"
    broken = rollouts.plan(setting, "--allow-weaker", "server.secure_file_priv")
    rollouts.run("go", broken, code=13)
    assert "without it the server is back" in rollouts.status(broken)["aborting"]
    tried = next(event["host"] for event in events(rollouts, broken) if event["kind"] == "applying")
    assert steps(found, tried) == ["drain", "restart", "restart", "return"]
    assert modes(found) == dict.fromkeys(SERVING, "1")
    assert [each.errors for each in clients] == [[], []]
