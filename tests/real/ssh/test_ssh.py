"""Whole experiments and commands on hosts behind a network: jump hosts, sudo, agents, cuts, clocks."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import NothingMeasured, TargetError
from headrace.base.model import TrialState
from headrace.experiment import plan as plans
from headrace.experiment.run import run
from headrace.experiment.runner import Event, Note, Step
from headrace.experiment.store import ExperimentFolder
from headrace.host.agent import Agent, Journal
from headrace.host.target import Target, TargetSpec, link, open_target
from tests import programs
from tests.ssh_hosts import (
    DBA,
    FAR,
    FAR_BEHIND_NEAR,
    GUEST,
    NEAR,
    NEAR_BEHIND_FAR,
    Host,
    Hosts,
    two_hosts,
)
from tests.waiting import until_async

pytestmark = pytest.mark.needs("root", "ip")


needs_server = pytest.mark.needs("mariadbd")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.fixture(autouse=True)
def at_home(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's keys and known hosts are those of its home, as for everybody."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.setenv("HEADRACE_AGENT", programs.agent_path())
    monkeypatch.setenv("HEADRACE_STATE", "/var/tmp/headrace-state")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(link, "KEEPALIVE_S", 1.0)
    monkeypatch.setattr(link, "KEEPALIVE_COUNT", 2)
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", 3.0)


@contextlib.asynccontextmanager
async def reached(address: str, **login: Any) -> AsyncIterator[Target]:
    target = open_target(TargetSpec.parse(address, **login))
    await target.connect()
    try:
        yield target
    finally:
        await target.close()


async def hostname(target: Target) -> str:
    return (await target.run(["hostname"])).text.strip()


class TestTheWayThere:
    async def test_both_are_hosts_of_their_own(self) -> None:
        async with reached(f"root@{NEAR}") as near, reached(f"root@{FAR}") as far:
            assert [await hostname(near), await hostname(far)] == ["hrnear", "hrfar"]
            assert near.is_root

    async def test_nobody_gets_there_without_the_jump(self) -> None:
        with pytest.raises(TargetError):
            async with reached(f"root@{FAR_BEHIND_NEAR}"):
                pass

    @pytest.mark.parametrize(
        ("address", "jump", "name", "whence"),
        [
            (f"root@{FAR_BEHIND_NEAR}", f"root@{NEAR}", "hrfar", NEAR_BEHIND_FAR),
            (f"root@{FAR_BEHIND_NEAR}:22+jump=root@{NEAR}:22", "", "hrfar", NEAR_BEHIND_FAR),
            (
                f"root@{NEAR_BEHIND_FAR}",
                f"root@{NEAR},root@{FAR_BEHIND_NEAR}",
                "hrnear",
                FAR_BEHIND_NEAR,
            ),
        ],
    )
    async def test_a_jump(self, address: str, jump: str, name: str, whence: str) -> None:
        async with reached(address, jump=jump) as target:
            assert await hostname(target) == name
            connection = await target.run(["sh", "-c", "echo $SSH_CONNECTION"])
            assert connection.text.split()[0] == whence

    async def test_the_jump_of_the_users_own_configuration(self, hosts: Hosts) -> None:
        config = hosts.home / ".ssh" / "config"
        config.write_text(f"Host behind\n  HostName {FAR_BEHIND_NEAR}\n  ProxyJump root@{NEAR}\n")
        known = hosts.known_hosts.read_text()
        key = next(line for line in known.splitlines() if line.startswith(FAR_BEHIND_NEAR))
        hosts.known_hosts.write_text(known + key.replace(FAR_BEHIND_NEAR, "behind") + "\n")
        try:
            async with reached("root@behind") as target:
                assert await hostname(target) == "hrfar"
        finally:
            config.unlink()

    async def test_the_key_of_a_jump_host_is_checked(self, hosts: Hosts, tmp_path: Path) -> None:
        lines = hosts.known_hosts.read_text().splitlines()
        (tmp_path / "known").write_text("\n".join(x for x in lines if not x.startswith(NEAR)) + "\n")
        with pytest.raises(TargetError, match="is not in") as caught:
            async with reached(
                f"root@{FAR_BEHIND_NEAR}", jump=f"root@{NEAR}", known_hosts=str(tmp_path / "known")
            ):
                pass
        assert caught.value.place == f"root@{NEAR}"

    async def test_keys_of_an_agent_and_the_agent_itself(
        self, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ssh_agent(hosts, monkeypatch):
            async with reached(f"root@{NEAR}") as target:
                there = await target.run(["sh", "-c", 'echo "$SSH_AUTH_SOCK"'])
                assert there.text == "\n"
            async with reached(f"root@{NEAR}+agent") as target:
                listed = await target.run(["ssh-add", "-l"])
                assert "ED25519" in listed.text

    async def test_an_agent_that_is_not_there(self) -> None:
        with pytest.raises(TargetError, match="not forwarded"):
            async with reached(f"root@{NEAR}", forward_agent=True):
                pass


@contextlib.contextmanager
def ssh_agent(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that has the key, while no file does."""
    socket = hosts.home / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    hidden = hosts.key.with_name("hidden")
    try:
        while not socket.exists():
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", hosts.key], check=True)
        hosts.key.rename(hidden)
        yield
    finally:
        if hidden.exists():
            hidden.rename(hosts.key)
        agent.terminate()
        agent.wait(10)


@pytest.mark.needs("sudo")
class TestSudo:
    """As a user who is not root, but may become it without a password."""

    @pytest.fixture
    async def target(self) -> AsyncIterator[Target]:
        async with reached(f"{DBA}@{NEAR}", sudo=True) as target:
            yield target

    async def test_who_we_are(self, target: Target) -> None:
        assert target.is_root
        async with reached(f"{DBA}@{NEAR}") as plain:
            assert not plain.is_root
        async with reached(f"{DBA}@{NEAR}+sudo") as named:
            assert named.is_root

    async def test_files_are_roots(self, target: Target, hosts: Hosts) -> None:
        await target.write("/root/of-root", b"x", mode=0o600)
        assert (hosts.near.folder / "root" / "of-root").stat().st_uid == 0
        assert await target.read("/root/of-root") == b"x"
        process = await target.spawn(["id", "-un"], stdout_path="/root/out", stderr_path="/root/err")
        assert await process.wait(10) == 0
        assert (hosts.near.folder / "root" / "out").read_text() == "root\n"

    async def test_signals_reach_the_whole_group(self, target: Target) -> None:
        process = await target.spawn(["sh", "-c", "sleep 300 & echo $!; wait"])
        lines = process.lines()
        child = int(await anext(lines))
        await process.signal("TERM")
        assert await process.wait(10) == -signal.SIGTERM
        assert not await target.exists(f"/proc/{child}")

    async def test_the_time_limit_kills_the_children_too(self, target: Target) -> None:
        with pytest.raises(TargetError, match="longer than"):
            await target.run(["sh", "-c", "sleep 301 & sleep 301"], timeout_s=0.5)
        left = await target.run(["pgrep", "-f", "sleep 30[1]"], check=False)
        assert left.text == ""

    @pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 200])
    async def test_exit_codes_and_output(self, target: Target, code: int) -> None:
        answer = await target.run(["sh", "-c", f"cat; echo bad >&2; exit {code}"], stdin=b"in", check=False)
        assert (answer.exit_code, answer.stdout, answer.stderr) == (code, b"in", b"bad\n")

    async def test_the_environment_arrives(self, target: Target) -> None:
        assert (await target.run(["sh", "-c", "echo $A_B"], env={"A_B": "it's"})).text == "it's\n"

    async def test_a_host_is_changed_and_restored(self, target: Target) -> None:
        path = "/proc/sys/net/core/somaxconn"
        before = await target.read(path)
        journal = Journal(await Agent.install(target), "test-sudo")
        async with journal.hold():
            await journal.apply({path: "4321"})
            assert await target.read(path) == b"4321\n"
            assert [undone.error for undone in await journal.rollback()] == [None]
        assert await target.read(path) == before

    async def test_without_the_right_it_says_so(self) -> None:
        with pytest.raises(TargetError, match="no root by sudo") as caught:
            async with reached(f"{GUEST}@{NEAR}", sudo=True):
                pass
        assert "visudo" in str(caught.value.hint)
        assert caught.value.place == f"{GUEST}@{NEAR}"


PLAN = """
name = "far-away"
[target]
address = "root@{near}"
scratch = "/var/tmp/headrace"
reconnect_s = {reconnect_s}
[design]
kind = "cumulative"
baseline = "queue"
blocks = 1
rungs = {{ queue = [] }}
[server]
port = 3399
[base]
"host.net.core.somaxconn" = 4097
[workload]
{workload}
"""
#: As few as a plan can have: its one configuration, twice.
TRIALS = 2

FIO = """
kind = "fio"
seconds = {seconds}
rw = "randread"
size = "{size}"
ioengine = "psync"
direct = false
"""

#: The server on one host, all of the load from the other. In a closed loop no driver is late on a busy machine:
#: such a trial would be measured again.
OLTP = f"""
kind = "oltp"
seconds = 6
warmup_s = 1
script = "point_select"
table_size = 1000
connections = 4
think_time_s = 0.02
clients = ["root@{FAR}"]
server_address = "10.214.82.1"
"""

SOMAXCONN = "/proc/sys/net/core/somaxconn"


class Trip:
    """An experiment on the hosts, with something that happens to the network in its first trial."""

    def __init__(self, folder: Path, workload: str, reconnect_s: float = 60.0) -> None:
        self.events: list[Event] = []
        self.folder = folder / "experiment"
        self.plan = folder / "plan.toml"
        self.plan.write_text(PLAN.format(near=NEAR, workload=workload, reconnect_s=reconnect_s))
        self._happened: asyncio.Task[None] | None = None

    async def run(
        self, step: str = "", happens: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> ExperimentFolder:
        def listen(event: Event) -> None:
            self.events.append(event)
            if isinstance(event, Step) and event.text == step and happens and self._happened is None:
                self._happened = asyncio.create_task(happens())

        # On a busy machine every driver may be late.
        with contextlib.suppress(NothingMeasured):
            await run(plans.load(self.plan), self.folder, listen)
        if self._happened:
            await self._happened
        return ExperimentFolder.open(self.folder)

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Note))


async def left_behind(address: str) -> str:
    """What an experiment must not leave on a host."""
    async with reached(f"root@{address}") as target:
        found = await target.run(
            [
                "sh",
                "-c",
                "cat /var/tmp/headrace-state/journal.jsonl; pgrep -al 'fio|mariadbd|headrace-agent'",
            ],
            check=False,
        )
        return found.text


def outage(host: Host, seconds: float, after_s: float = 1.0) -> Callable[[], Coroutine[Any, Any, None]]:
    async def happens() -> None:
        await asyncio.sleep(after_s)
        host.cut()
        await asyncio.sleep(seconds)
        host.join()

    return happens


@pytest.fixture
def joined(hosts: Hosts) -> Iterator[None]:
    yield
    hosts.near.join()
    hosts.far.join()


@pytest.mark.usefixtures("joined")
class TestTheNetworkIsCut:
    @pytest.mark.parametrize(
        ("workload", "which", "seconds"),
        [
            pytest.param(FIO.format(size="8M", seconds=6), "near", 8.0, id="fio"),
            pytest.param(OLTP, "near", 9.0, id="the server's host", marks=needs_server),
            pytest.param(OLTP, "far", 5.0, id="the client's host", marks=needs_server),
        ],
    )
    async def test_in_mid_trial_and_comes_back(
        self, hosts: Hosts, tmp_path: Path, workload: str, which: str, seconds: float
    ) -> None:
        host = getattr(hosts, which)
        before = host.inside("cat", SOMAXCONN)
        trip = Trip(tmp_path, workload)
        folder = await trip.run("measuring", outage(host, seconds))
        first, *others = folder.trials()
        # On a busy machine a driver is late, and the trial is measured again.
        if not first.earlier:
            assert any(f"the connection to root@{host.address} was lost for" in w for w in first.warnings)
        assert not any("was lost for" in w for trial in others for w in trial.warnings)
        assert f"root@{host.address}: the connection is back" in trip.notes
        for trial in (first, *others):
            # On a busy machine a driver may be late; nothing else may be wrong.
            assert trial.state is not TrialState.FAILED, trial.reason
            assert trial.state is TrialState.COMPLETE or "connection" not in trial.reason, trial.reason
            assert trial.window_end_ns - trial.window_start_ns > 5.9e9
        self.assert_whole(folder, first.number)
        assert host.inside("cat", SOMAXCONN) == before
        assert await left_behind(NEAR) == await left_behind(FAR) == ""

    def assert_whole(self, folder: ExperimentFolder, number: int) -> None:
        """The host was sampled, and the load went on, in each second, also while nobody could reach it."""
        record = folder.trial(number)
        assert record is not None
        database = folder.database()
        times = database.execute(
            "SELECT DISTINCT t_ns FROM samples WHERE trial = ? AND sampler = 'cpu' AND t_ns BETWEEN ? AND ? "
            "ORDER BY 1",
            [number, record.window_start_ns, record.window_end_ns],
        ).fetchall()
        assert len(times) >= 5
        counts = database.execute(
            "SELECT sum(count) FROM intervals WHERE trial = ? AND t_s >= 0 GROUP BY t_s ORDER BY t_s",
            [number],
        ).fetchall()
        assert len(counts) >= 6
        assert all(count > 0 for (count,) in counts[:6])

    async def test_a_trial_that_cannot_go_on_is_invalid_and_the_next_one_runs(
        self, hosts: Hosts, tmp_path: Path
    ) -> None:
        """Preparing its files is nothing that may be done twice."""

        async def happens() -> None:
            await until_async(lambda: "fio" in running(hosts.near), pause_s=0.01)
            hosts.near.break_connections()

        trip = Trip(tmp_path, FIO.format(size="500M", seconds=1))
        folder = await trip.run("files", happens)
        first, *others = folder.trials()
        reasons = [first.reason, *first.earlier]
        assert any("connection was lost" in reason for reason in reasons), reasons
        assert [trial.reason for trial in others if "connection" in trial.reason] == []
        assert await left_behind(NEAR) == ""

    async def test_for_good_and_the_next_run_restores(self, hosts: Hosts, tmp_path: Path) -> None:
        before = hosts.near.inside("cat", SOMAXCONN)

        async def happens() -> None:
            await asyncio.sleep(1)
            hosts.near.cut()

        trip = Trip(tmp_path, FIO.format(size="8M", seconds=3), reconnect_s=2.0)
        with pytest.raises(TargetError, match="could not be restored within 2 s"):
            await trip.run("measuring", happens)
        assert hosts.near.inside("cat", SOMAXCONN) == "4097" != before
        hosts.near.join()
        # Its old process holds the host still, and cannot hear that nobody is there any more.
        folder = await trip.run()
        assert "restored:" in trip.notes
        assert len(folder.trials()) == TRIALS
        assert hosts.near.inside("cat", SOMAXCONN) == before
        assert await left_behind(NEAR) == ""

    async def test_a_controller_that_is_killed_meanwhile_is_no_obstacle(
        self, hosts: Hosts, tmp_path: Path
    ) -> None:
        before = hosts.near.inside("cat", SOMAXCONN)
        trip = Trip(tmp_path, FIO.format(size="8M", seconds=3))
        runner = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "run", str(trip.plan), "-o", str(trip.folder)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await until_async(lambda: hosts.near.inside("cat", SOMAXCONN) == "4097")
        await asyncio.sleep(1)
        hosts.near.cut()
        runner.kill()
        await runner.wait()
        await asyncio.sleep(1)
        hosts.near.join()
        folder = await trip.run()
        assert "restored:" in trip.notes
        assert len(folder.trials()) == TRIALS
        assert hosts.near.inside("cat", SOMAXCONN) == before


def running(host: Host) -> set[str]:
    """The names of a host's processes."""
    found = set()
    for pid in host.pids():
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


async def test_clocks_are_measured_and_recorded(tmp_path: Path) -> None:
    trip = Trip(tmp_path, FIO.format(size="8M", seconds=1))
    folder = await trip.run()
    for trial in folder.trials():
        # The hosts have our clock: what is measured is the error, and must hold it.
        clock = trial.clocks[f"root@{NEAR}"]
        assert abs(clock["offset_ns"]) <= clock["error_ns"] < 500_000_000
