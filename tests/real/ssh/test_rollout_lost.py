"""``headrace rollout`` on real hosts that are lost, full, promoted, re-keyed or changed by others meanwhile. Each
is said, and no host stays changed unless the change was kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import sshd
from tests.database_fleet import MARIADB, PROGRAMS, Databases, databases
from tests.networks import Namespace, networks
from tests.real.ssh.test_rollout import Rollouts, count, events, holds, value, variable
from tests.real.ssh.test_rollout_group import RULES, load
from tests.waiting import until

pytestmark = pytest.mark.needs("root", "ip", *PROGRAMS)

NAMES = ["db1", "db2", "db3"]
SETTING, NEW, OLD = "server.innodb_io_capacity=300", "300", "200"
STAGES = (
    RULES.replace("soak_s = 1", "soak_s = 2")
    + """
[[stage]]
name = "first"
hosts = "db2"
[[stage]]
name = "sources"
take = "sources"
"""
)
#: The same without a verdict, where that is not what is asked: a host that counts as idle is only watched.
WATCHED = STAGES.replace("[judge]", "[judge]\nidle_per_s = 1e9")
#: Of ``~/.ssh/config``. A host that is cut off until it takes the change back (5 s) keeps its connection.
IMPATIENT = """
Host *
  ConnectTimeout 5
  ServerAliveInterval 3
  ServerAliveCountMax 2
"""


@dataclass(frozen=True)
class Lab:
    found: Databases
    places: Mapping[str, Namespace]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lost")
    with (
        networks(NAMES) as places,
        databases(folder / "hosts", NAMES, options={}, sysctls={}, mounts={}, places=places) as found,
    ):
        found.sql("db1", "CREATE DATABASE shop")
        until(lambda: value(found, "db2", "SHOW DATABASES LIKE 'shop'") == "shop", pause_s=0.1)
        with load(found, "db1"), load(found, "db2"):
            yield Lab(found, places)


@pytest.fixture
def rollouts(lab: Lab, tmp_path: Path) -> Iterator[Rollouts]:
    yield Rollouts(lab.found, tmp_path, stages=STAGES)
    for place in lab.places.values():
        place.join()
    for name in NAMES:
        lab.found.sql(name, f"SET GLOBAL innodb_io_capacity = {OLD}")


@pytest.fixture
def watched(lab: Lab, rollouts: Rollouts, tmp_path: Path) -> Rollouts:
    (tmp_path / "watched").mkdir()
    return Rollouts(lab.found, tmp_path / "watched", stages=WATCHED)


def impatient(rollouts: Rollouts) -> None:
    """From here on its controller waits shorter for a host that is away."""
    config = rollouts.stages.parent / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text(IMPATIENT)
    rollouts.env["HOME"] = str(config.parent.parent)


def is_new(lab: Lab, name: str) -> bool:
    return value(lab.found, name, "SELECT @@global.innodb_io_capacity") == NEW


def has_it(lab: Lab, rollouts: Rollouts, plan: str, name: str, stage: str = "") -> bool:
    """Whether the host has the change and may not keep it yet; with ``stage``: only after its verdict."""
    own = events(rollouts, plan)
    if stage and not any(each["kind"] == "verdict" and each["stage"] == stage for each in own):
        return False
    steps = [each for each in own if each["kind"] in ("applying", "undone", "kept", "verdict")]
    last = steps[-1] if steps else {}
    return last.get("kind") == "applying" and last["host"] == name and is_new(lab, name)


def carried_on(rollouts: Rollouts, plan: str, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The running ``go``, or the next one: a host that is away may end it."""
    if process.poll() is None:
        return process
    _, err = process.communicate()
    assert process.returncode in (0, 15), err
    assert "Traceback" not in err
    if "needs an approval" in rollouts.status(plan)["state"]:
        rollouts.approve(plan, "sources")
    return rollouts.start("go", plan)


def losses(rollouts: Rollouts, plan: str, name: str) -> int:
    """How often the log says that the host was lost."""
    return sum(each["kind"] == "lost" and each["host"] == name for each in events(rollouts, plan))


@pytest.mark.thorough
def test_cut_off_in_every_stage_the_host_returns_by_itself_and_go_ends_where_it_would_have(
    lab: Lab, rollouts: Rollouts
) -> None:
    """In a block, until it is noticed; and while it is watched, for so short that the connection lives on."""
    plan = rollouts.plan(SETTING)
    impatient(rollouts)
    process = rollouts.start("go", plan)
    pairs = 0
    for name, stage, is_watched in (
        ("db2", "first", False),
        ("db2", "first", True),
        ("db1", "sources", False),
        ("db1", "sources", True),
    ):
        while not has_it(lab, rollouts, plan, name, stage if is_watched else ""):
            process = carried_on(rollouts, plan, process)
            time.sleep(0.02)
        before = losses(rollouts, plan, name)
        lab.places[name].cut()
        until(lambda name=name: not is_new(lab, name), pause_s=0.05)  # type: ignore[misc]
        if is_watched:
            lab.places[name].join()
        # The second loss with the change ends the `go`.
        while losses(rollouts, plan, name) == before and process.poll() is None:
            time.sleep(0.1)
        lab.places[name].join()
        # What was measured before counts.
        assert count(rollouts, plan, "pair") >= pairs
        pairs = count(rollouts, plan, "pair")
    while not rollouts.status(plan)["is_finished"]:
        process = carried_on(rollouts, plan, process)
        time.sleep(0.1)
    process.communicate()
    assert variable(lab.found, "innodb_io_capacity") == {"db1": NEW, "db2": NEW, "db3": OLD}
    assert count(rollouts, plan, "verdict") == 2
    rollouts.run("abort", plan)
    assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)


def test_a_host_that_is_lost_with_the_change_is_given_up_and_has_lost_the_change(
    lab: Lab, rollouts: Rollouts
) -> None:
    plan = rollouts.plan(SETTING)
    assert "no such host" in failed(rollouts, "give-up", plan, "db9")
    assert "it answers" in failed(rollouts, "give-up", plan, "db2")
    process = rollouts.start("go", plan)
    until(lambda: has_it(lab, rollouts, plan, "db2"), process)
    lab.places["db2"].cut()
    process.kill()
    process.communicate()
    impatient(rollouts)
    rollouts.run("go", plan, code=15)
    assert f"headrace rollout give-up {plan} db2" in rollouts.status(plan)["state"]
    rollouts.run("give-up", plan, "db2", "--by", "Ann Lee")
    assert rollouts.status(plan)["hosts"]["db2"] == "given up"
    rollouts.run("go", plan, code=15)
    assert "no host is left to try it on (db2: given up by Ann Lee" in rollouts.status(plan)["state"]
    until(lambda: holds(lab.found, "innodb_io_capacity", OLD, NAMES), pause_s=0.1)
    rollouts.run("abort", plan)
    assert rollouts.status(plan)["is_aborted"]


def test_an_abort_names_the_host_that_is_away_and_ends_without_it_once_it_is_given_up(
    lab: Lab, watched: Rollouts
) -> None:
    plan = watched.plan(SETTING)
    watched.run("go", plan, code=15)
    assert watched.status(plan)["hosts"] == {"db1": "as before", "db2": "changed", "db3": "as before"}
    lab.places["db2"].cut()
    impatient(watched)
    assert "not restored: db2 (changed)" in failed(watched, "abort", plan)
    out, err = said(watched, "give-up", plan, "db2", "--by", "Ann Lee")
    (kept,) = re.findall(r"db2: may still have (\S+): if it returns", err)
    assert "given up" in out
    assert watched.status(plan)["is_aborted"]
    # A change that was kept has no deadline: the host's own journal knows it.
    lab.places["db2"].join()
    assert is_new(lab, "db2")
    journal = lab.found.hosts.own_disk(lab.found.host("db2")) / "state"
    assert any(kept in path.read_text(errors="replace") for path in journal.rglob("*") if path.is_file())


def test_a_host_whose_server_only_is_down_is_given_up_by_force(lab: Lab, watched: Rollouts) -> None:
    plan = watched.plan(SETTING)
    watched.run("go", plan, code=15)
    server = process_of(lab, "db2", b"mariadbd\0--defaults-file")
    os.kill(server, signal.SIGSTOP)
    try:
        words = failed(watched, "give-up", plan, "db2")
        assert "its SSH answers, so it is not given up" in words
        assert f"headrace rollout give-up {plan} db2 --force" in words
        assert watched.status(plan)["hosts"]["db2"] == "changed"
        _, err = said(watched, "give-up", plan, "db2", "--force", "--by", "Ann Lee")
        assert "db2: may still have" in err
        assert watched.status(plan)["hosts"]["db2"] == "given up"
    finally:
        os.kill(server, signal.SIGCONT)
    assert "it answers" in failed(watched, "give-up", plan, "db1", "--force")
    watched.run("abort", plan)
    assert watched.status(plan)["is_aborted"]


def failed(rollouts: Rollouts, verb: str, *arguments: str) -> str:
    """What a command that must fail says."""
    process = rollouts.start(verb, *arguments)
    _, err = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "Traceback" not in err
    return " ".join(err.split())


def said(rollouts: Rollouts, verb: str, *arguments: str) -> tuple[str, str]:
    process = rollouts.start(verb, *arguments)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, (out, err)
    return " ".join(out.split()), " ".join(err.split())


def test_a_replica_that_somebody_else_promotes_meanwhile_is_left_alone(lab: Lab, rollouts: Rollouts) -> None:
    plan = rollouts.plan(SETTING)
    process = rollouts.start("go", plan)
    until(lambda: count(rollouts, plan, "pair") > 0 and has_it(lab, rollouts, plan, "db2"), process)
    lab.found.sql("db2", "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
    try:
        process.communicate(timeout=240)
        state = rollouts.status(plan)["state"]
        assert process.returncode == 15, state
        assert "it was a replica and is a alone now" in state
        assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)
    finally:
        source = {"host": lab.found.host("db1").at, "port": lab.found.ports["db1"]}
        again = (each.format(**source) for each in MARIADB.replicate)
        lab.found.sql("db2", "SET GLOBAL read_only = 1", *again)
    until(lambda: value(lab.found, "db2", "SELECT @@global.read_only") == "1")


def test_two_controllers_never_change_one_host(lab: Lab, rollouts: Rollouts, tmp_path: Path) -> None:
    """They share no lock: the second one finds the first one's change in the host's journal."""
    (tmp_path / "other").mkdir()
    other = Rollouts(lab.found, tmp_path / "other", stages=WATCHED.replace("soak_s = 2", "soak_s = 600"))
    first = other.plan("server.innodb_io_capacity=400")
    plan = rollouts.plan(SETTING)
    process = other.start("go", first)
    until(lambda: value(lab.found, "db2", "SELECT @@global.innodb_io_capacity") == "400", process)
    rollouts.run("go", plan, code=15)
    assert f"db2: changes of apply/{first}" in rollouts.status(plan)["state"]
    assert count(rollouts, plan, "applying") == 0
    assert value(lab.found, "db2", "SELECT @@global.innodb_io_capacity") == "400"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)


def daemon(lab: Lab, name: str) -> int:
    """The sshd of a host that waits for logins."""
    return process_of(lab, name, b"sshd", b"sshd_config")


def process_of(lab: Lab, name: str, *parts: bytes) -> int:
    """The last process of a host with these parts in its command line; what it has started is not looked at."""
    process = lab.found.host(name).process
    assert process is not None
    below, found = [process.pid], 0
    while below:
        pid = below.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            found = child if all(part in words for part in parts) else found
            below += [] if found == child else [child]
    assert found
    return found


@contextlib.contextmanager
def small_disk(lab: Lab, name: str) -> Iterator[Callable[[], None]]:
    """The host's state lies on a disk of its own, which the function fills."""
    inside = ["nsenter", "-t", str(daemon(lab, name)), "-m", "-p"]
    place = f"{lab.found.hosts.disk}/state"
    subprocess.run([*inside, "mkdir", "-p", place], check=True)
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", place], check=True)

    def fill() -> None:
        argv = [*inside, "dd", "if=/dev/zero", f"of={place}/full", "bs=4k"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "No space left" in done.stderr

    try:
        yield fill
    finally:
        subprocess.run([*inside, "umount", "-l", place], check=True)


def test_a_full_disk_is_said_and_a_change_is_undone_on_it(lab: Lab, rollouts: Rollouts) -> None:
    with small_disk(lab, "db2") as fill:
        plan = rollouts.plan(SETTING)
        process = rollouts.start("go", plan)
        until(lambda: has_it(lab, rollouts, plan, "db2"), process)
        fill()
        process.kill()
        process.communicate()
        until(lambda: not is_new(lab, "db2"), pause_s=0.1)
        rollouts.run("go", plan, code=15)
        # It is full until somebody has made room: the first failure sets the host aside.
        assert (count(rollouts, plan, "lost"), count(rollouts, plan, "aside")) == (0, 1)
        assert "no space" in rollouts.status(plan)["state"].lower()
        assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)
    rollouts.run("abort", plan)


def test_a_host_with_another_key_is_not_touched_until_it_has_its_own_again(
    lab: Lab, watched: Rollouts
) -> None:
    plan = watched.plan(SETTING)
    process = watched.start("go", plan)
    until(lambda: has_it(lab, watched, plan, "db2"), process)
    process.kill()
    process.communicate()
    folder = lab.found.host("db2").config.parent
    key = folder / "host_key"
    own = key.read_bytes()
    try:
        rekey(lab, key, sshd.make_key(folder / "other_key").read_bytes())
        watched.run("go", plan, code=15)
        state = watched.status(plan)["state"]
        assert "db2 may still be changed, and cannot be asked" in state
        assert "key" in state.partition("asked:")[2].partition(";")[0]
        until(lambda: not is_new(lab, "db2"), pause_s=0.1)
    finally:
        rekey(lab, key, own)
    watched.run("go", plan, code=15)
    assert "needs an approval" in watched.status(plan)["state"]
    watched.run("abort", plan)
    assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)


def rekey(lab: Lab, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.kill(daemon(lab, "db2"), signal.SIGHUP)
    host = lab.found.host("db2")
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True
    ).stdout
    scan = ["ssh-keyscan", "-p", str(host.port), host.at]

    def is_served() -> bool:
        done = subprocess.run(scan, capture_output=True, text=True, check=False)
        return public.split()[1] in done.stdout

    until(is_served, pause_s=0.2)


def test_a_controller_whose_clock_is_off_measures_the_same_and_an_approval_expires_by_it(
    lab: Lab, rollouts: Rollouts, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()

    def ahead(seconds: int) -> None:
        text = f"import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
        (own / "sitecustomize.py").write_text(text)
        rollouts.env["PYTHONPATH"] = str(own)

    ahead(600)
    plan = rollouts.plan(SETTING, is_here=False)
    rollouts.run("go", plan, code=15)
    status = rollouts.status(plan)
    assert status["stages"]["first"]["passed"], status
    rollouts.run("approve", plan, "--stage", "sources", "--by", "Ann Lee")
    ahead(600 + 5 * 3600)
    rollouts.run("go", plan, code=15)
    assert "the approval of stage sources by Ann Lee has expired" in rollouts.status(plan)["state"]
    ahead(-600)
    rollouts.run("abort", plan)
    assert holds(lab.found, "innodb_io_capacity", OLD, NAMES)
