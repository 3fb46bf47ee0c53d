"""The agent as Python uses it: found, copied once, read, and its journal held, written and rolled back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import zstandard

from headrace.base.errors import Busy, NotReady, PlanError, Refused, TargetError
from headrace.base.model import OWNER_VARIABLE
from headrace.experiment import readiness
from headrace.host.agent import Agent, Applied, Journal, failure, find_binary
from headrace.host.facts import HostFacts
from headrace.host.target import Target, link
from headrace.host.target.fixture import FixtureTarget
from headrace.host.target.local import LocalTarget
from headrace.host.target.ssh import SshTarget
from tests import programs, sshd
from tests.contracts.target import gone

needs_sshd = pytest.mark.needs("sshd")

#: A setting that nothing depends on, for the tests that really change one.
HARMLESS = "/proc/sys/kernel/printk_ratelimit_burst"


@pytest.fixture(autouse=True)
def this_checkouts_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_AGENT", programs.agent_path())


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    target = LocalTarget()
    yield target
    await target.close()


@pytest.fixture
async def journal(target: Target, tmp_path: Path) -> Journal:
    return Journal(await Agent.install(target), "test-agent", str(tmp_path / "state"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[sshd.Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    with sshd.running_sshd(folder) as running:
        yield running


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["facts", "--mysql-socket", "/x", "--mysql-password-file"], "cannot read the password file /"),
        (["facts", "--mysql-socket", "/x", "--mysql-defaults-file"], "cannot read the defaults file /"),
        (["recording", "info"], "cannot read /"),
        (["digest"], "No such file"),
    ],
)
def test_a_file_that_the_caller_names_and_that_is_missing_is_wrong_input(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    """`headrace` has the same exit code; it was 6, as for a host that cannot be reached."""
    command = [programs.agent_path(), *arguments, str(tmp_path / "missing")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3, ended.stderr
    assert said in ended.stderr
    failed = failure(ended.returncode, ended.stderr, "host")
    assert isinstance(failed, PlanError)
    assert failed.exit_code == 3


class Counting(SshTarget):
    """An SSH target that counts what it copies."""

    puts: list[str]

    @staticmethod
    async def connected(server: sshd.Sshd) -> Counting:
        counting = Counting(
            "127.0.0.1", port=server.port, user=sshd.user(), keys=[server.key], known_hosts=server.known_hosts
        )
        counting.puts = []
        await counting.connect()
        return counting

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        self.puts.append(path)
        await super().put(source, path, mode=mode)


def holder_of(state: Path) -> int:
    """The pid that the lock file names."""
    return int(json.loads((state / "lock").read_text())["pid"])


def test_the_agent_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_binary() == Path(programs.agent_path())
    monkeypatch.setenv("HEADRACE_AGENT", str(tmp_path / "nothing"))
    with pytest.raises(NotReady, match="HEADRACE_AGENT"):
        find_binary()
    monkeypatch.delenv("HEADRACE_AGENT")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReady) as caught:
        find_binary()
    assert caught.value.hint == "make setup"
    (tmp_path / "headrace-agent").write_text("")
    with pytest.raises(NotReady):  # it is no program
        find_binary()
    (tmp_path / "headrace-agent").chmod(0o755)
    assert find_binary() == tmp_path / "headrace-agent"


@needs_sshd
async def test_a_host_gets_the_agent_once(server: sshd.Sshd) -> None:
    target = await Counting.connected(server)
    agents = [await Agent.install(target) for _ in range(3)]
    assert {agent.path for agent in agents} == set(target.puts)
    assert len(target.puts) == 1
    assert [p.name for p in (server.home / ".cache" / "headrace").iterdir()] == [Path(agents[0].path).name]
    assert (await agents[0].facts()).data["kernel"]["release"] == os.uname().release
    await target.close()


@needs_sshd
async def test_a_second_connection_copies_nothing(server: sshd.Sshd) -> None:
    for _ in range(2):
        target = await Counting.connected(server)
        await Agent.install(target)
        await target.close()
    assert target.puts == []


@needs_sshd
async def test_an_agent_that_is_not_whole_is_copied_again(server: sshd.Sshd) -> None:
    first = await Counting.connected(server)
    path = Path((await Agent.install(first)).path)
    await first.close()
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        target = await Counting.connected(server)
        agent = await Agent.install(target)
        assert target.puts == [str(path)]
        assert path.read_bytes() == whole
        assert (await agent.facts()).hash
        await target.close()


@needs_sshd
async def test_another_agent_is_copied_beside_it(
    server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await Counting.connected(server)
    await Agent.install(target)
    newer = tmp_path / "newer"
    newer.write_bytes(Path(programs.agent_path()).read_bytes() + b"\0")
    newer.chmod(0o755)
    monkeypatch.setenv("HEADRACE_AGENT", str(newer))
    await Agent.install(target)
    assert len(set(target.puts)) == 2
    await target.close()


@needs_sshd
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(11) + (243).to_bytes(2, "little"), "is for riscv64, the host is"),
        (b"#!/bin/sh\nexit 0\n", r"is for an unknown format \(not ELF\)"),
    ],
)
async def test_an_agent_for_other_processors_is_refused(
    server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, reason: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(header)
    wrong.chmod(0o755)
    monkeypatch.setenv("HEADRACE_AGENT", str(wrong))
    target = await Counting.connected(server)
    with pytest.raises(NotReady, match=reason):
        await Agent.install(target)
    assert target.puts == []
    await target.close()


@needs_sshd
async def test_a_host_of_another_processor_gets_the_agent_made_for_it(
    server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours is for riscv64 here, so that this machine is the one of another processor."""
    ours, real = tmp_path / "headrace-agent", Path(programs.agent_path())
    ours.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + (243).to_bytes(2, "little"))
    ours.chmod(0o755)
    monkeypatch.setenv("HEADRACE_AGENT", str(ours))
    machine = os.uname().machine
    target = await Counting.connected(server)
    with pytest.raises(NotReady) as missing:
        await Agent.install(target)
    assert str(missing.value.hint).endswith(f"{tmp_path}/headrace-agent-{machine}")
    other = tmp_path / f"headrace-agent-{machine}"
    other.write_bytes(ours.read_bytes())
    with pytest.raises(NotReady, match=f"headrace-agent-{machine} is for riscv64, the host is {machine}"):
        await Agent.install(target)
    assert target.puts == []
    other.write_text("#!/bin/sh\necho headrace-agent 0.0.7\n")
    monkeypatch.setattr(
        "headrace.host.agent.program._machine_of",
        lambda content: machine if content != ours.read_bytes() else "riscv64",
    )
    for _ in range(2):  # the second time it is there already
        with pytest.raises(NotReady, match=r"is version 0\.0\.7, headrace is"):
            await Agent.install(target)
    target.puts = []
    other.write_bytes(real.read_bytes())
    agents = [await Agent.install(target) for _ in range(2)]
    assert target.puts == [agents[0].path] == [agents[1].path]
    assert (await agents[1].facts()).data["kernel"]["release"] == os.uname().release
    await target.close()


@needs_sshd
async def test_an_agent_that_does_not_start_is_told(
    server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(Path(programs.agent_path()).read_bytes()[:4096])
    broken.chmod(0o755)
    monkeypatch.setenv("HEADRACE_AGENT", str(broken))
    target = await Counting.connected(server)
    with pytest.raises(NotReady, match="does not start"):
        await Agent.install(target)
    await target.close()


async def test_facts_of_this_machine(target: Target) -> None:
    agent = await Agent.install(target)
    facts = await agent.facts()
    host = HostFacts(facts)
    assert host.kernel_release == os.uname().release
    assert host.cpu_count == len(os.sched_getaffinity(0)) or host.cpu_count == os.cpu_count()
    assert host.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert len(facts.hash) == 16


async def test_the_hash_changes_with_the_configuration_only(tmp_path: Path) -> None:
    for folder in ("proc/sys/vm", "proc/sys/kernel", "sys/block"):
        (tmp_path / folder).mkdir(parents=True)
    fixture = FixtureTarget(tmp_path)
    agent = await Agent.install(fixture)

    async def hash_with(free_kb: int, uptime_s: int, swappiness: int) -> str:
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 8000000 kB\nMemFree: {free_kb} kB\n")
        (tmp_path / "proc/uptime").write_text(f"{uptime_s}.00 1.00\n")
        (tmp_path / "proc/sys/vm/swappiness").write_text(f"{swappiness}\n")
        facts = await agent.facts()
        assert facts.data["memory"]["free_bytes"] == free_kb * 1024
        return facts.hash

    assert await hash_with(1, 1, 60) == await hash_with(2, 2, 60)
    assert await hash_with(2, 2, 60) != await hash_with(2, 2, 1)


async def test_the_sampler_writes_until_it_gets_term(target: Target, tmp_path: Path) -> None:
    agent = await Agent.install(target)
    output = tmp_path / "samples.jsonl.zst"
    process = await agent.start_sampler(str(output), owner="test-agent", interval_s=0.1)
    environment = [b""]
    while environment == [b""]:  # it is on its way into the program
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    assert f"{OWNER_VARIABLE}=test-agent".encode() in environment
    await asyncio.sleep(1)
    await process.signal("TERM")
    assert await process.wait(10) == 0, await process.error_text()
    with output.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().decode()
    samples = [json.loads(line) for line in text.splitlines()]
    cpu = [sample for sample in samples if sample["sampler"] == "cpu"]
    assert len(cpu) >= 2
    assert all(sample["ok"] for sample in cpu)


async def test_a_held_host_is_busy_for_others(target: Target, journal: Journal, tmp_path: Path) -> None:
    other = Journal(await Agent.install(target), "somebody-else", str(tmp_path / "state"))
    async with journal.hold():
        with pytest.raises(Busy, match="test-agent") as caught:
            async with other.hold():
                pass
        assert caught.value.place == "local"
        with pytest.raises(Busy):
            await other.record([])
    async with other.hold():
        pass


async def test_doctor_tells_a_running_trial_from_a_killed_one(
    target: Target, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))

    async def looked() -> tuple[bool, str]:
        check = await readiness._journal(target)
        return check.ok, check.detail

    assert await looked() == (True, "nothing to restore")
    async with journal.hold():
        await journal.part("trial").record([{"kind": "process", "mark": "test-agent/trial"}])
        assert await journal.holder() == "test-agent"
        assert await looked() == (True, "test-agent is running; nothing else to restore")
    # The lock's file still names it, and the number of its process may be anybody's by now.
    lock = json.loads((tmp_path / "state/lock").read_text())
    (tmp_path / "state/lock").write_text(json.dumps({**lock, "pid": os.getpid()}))
    assert await journal.holder() is None
    assert await looked() == (False, "changes of an unfinished run: 1")


async def test_losing_the_host_stops_the_work(journal: Journal, tmp_path: Path) -> None:
    reached = []

    async def work() -> None:
        async with journal.hold():
            os.kill(holder_of(tmp_path / "state"), signal.SIGKILL)
            await asyncio.sleep(10)
            reached.append("the end")

    with pytest.raises(TargetError, match=r"held this host for headrace is gone.*exit code -9"):
        await work()
    assert not reached
    task = asyncio.current_task()
    assert task
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_stays_one_and_frees_the_host(journal: Journal) -> None:
    started = asyncio.Event()

    async def work() -> None:
        async with journal.hold():
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with journal.hold():
        pass


async def test_an_error_inside_is_the_error_outside(journal: Journal) -> None:
    with pytest.raises(KeyError):
        async with journal.hold():
            raise KeyError


async def test_what_is_recorded_is_rolled_back(target: Target, journal: Journal, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = scratch / "made"
    await journal.record([{"kind": "scratch", "path": str(scratch)}, {"kind": "remove", "path": str(path)}])
    await journal.record([{"kind": "process", "mark": "test-agent"}])
    (path / "inside").mkdir(parents=True)
    process = await target.spawn(["sleep", "300"], env={OWNER_VARIABLE: "test-agent"}, detached=True)
    assert [entry["kind"] for entry in await journal.entries()] == ["remove", "process"]
    undone = await journal.rollback()
    assert sorted((u.kind, u.done, u.error) for u in undone) == [
        ("process", True, None),
        ("remove", True, None),
    ]
    assert not path.exists()
    assert scratch.exists()
    assert await gone(process.pid)
    assert await journal.entries() == []
    assert await journal.rollback() == []


async def test_everyone_takes_the_changes_of_other_owners(
    target: Target, journal: Journal, tmp_path: Path
) -> None:
    other = Journal(await Agent.install(target), "killed-long-ago", str(tmp_path / "state"))
    await other.record([{"kind": "process", "mark": "killed-long-ago"}])
    async with journal.hold():
        assert await journal.rollback() == []
        assert [u.kind for u in await journal.rollback(everyone=True)] == ["process"]
    assert await journal.entries() == []


async def test_a_wrong_entry_is_an_error(journal: Journal) -> None:
    with pytest.raises(PlanError, match="no-such-kind"):
        await journal.record([{"kind": "no-such-kind"}])
    with pytest.raises(Refused, match="not below a scratch folder"):
        await journal.record([{"kind": "remove", "path": "/var/tmp/headrace-test"}])


@pytest.mark.needs("root")
async def test_settings_are_applied_and_restored(journal: Journal) -> None:
    before = Path(HARMLESS).read_text().strip()
    wanted = str(int(before) + 1)
    assert await journal.apply({}) == []
    try:
        assert await journal.apply({HARMLESS: wanted}) == [Applied(HARMLESS, before, wanted)]
        assert await journal.apply({HARMLESS: wanted}) == [Applied(HARMLESS, wanted, wanted)]
        assert Path(HARMLESS).read_text().strip() == wanted
    finally:
        undone = await journal.rollback()
    assert [(u.kind, u.error) for u in undone] == [("setting", None)]
    assert Path(HARMLESS).read_text().strip() == before


@pytest.mark.needs("root")
async def test_a_refused_setting_leaves_the_host_as_it_was(journal: Journal) -> None:
    before = Path(HARMLESS).read_text()
    for path in ("/proc/sys/vm/headrace_no_such_setting", "/etc/hostname"):
        with pytest.raises(Refused, match=path):
            await journal.apply({HARMLESS: "77", path: "1"})
        assert Path(HARMLESS).read_text() == before
    assert await journal.entries() == []


@pytest.mark.needs("root")
async def test_an_undo_that_fails_is_told_and_tried_again(
    target: Target, journal: Journal, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = scratch / "made"
    await journal.record([{"kind": "scratch", "path": str(scratch)}, {"kind": "remove", "path": str(path)}])
    path.mkdir()
    await target.run(["mount", "-t", "tmpfs", "none", str(path)])
    try:
        (failed,) = await journal.rollback()
        assert not failed.done
        assert "mounted" in str(failed.error)
        assert len(await journal.entries()) == 1
    finally:
        await target.run(["umount", str(path)])
    assert [u.error for u in await journal.rollback()] == [None]
    assert not path.exists()


@needs_sshd
async def test_the_host_is_held_over_ssh_until_the_connection_ends(
    server: sshd.Sshd, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody_is_there() -> NoReturn:
        raise TargetError("nobody is there")

    remote = await Counting.connected(server)
    over_ssh = Journal(await Agent.install(remote), "over-ssh", str(tmp_path / "state"))
    pids = []

    async def work() -> None:
        async with over_ssh.hold():
            pids.append(holder_of(tmp_path / "state"))
            with pytest.raises(Busy, match="over-ssh"):
                await journal.record([])
            monkeypatch.setattr(link, "PATIENCE_S", 0.0)
            monkeypatch.setattr(remote._link, "_dial", nobody_is_there)
            assert remote._link._connection
            remote._link._connection.abort()
            await asyncio.sleep(10)

    with pytest.raises(TargetError, match=r"is gone.*connection was lost"):
        await work()
    # The connection may be made again; then what it left is ended, and the host is free.
    assert await gone(pids[0], within_s=60)
    async with journal.hold():
        pass
    await remote.close()


async def test_the_state_folder_can_be_chosen(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "chosen"))
    async with Journal(await Agent.install(target), "test-agent").hold():
        assert (tmp_path / "chosen" / "lock").exists()
    monkeypatch.delenv("HEADRACE_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    target.is_root = False
    async with Journal(await Agent.install(target), "test-agent").hold():
        assert (tmp_path / "xdg" / "headrace" / "lock").exists()
