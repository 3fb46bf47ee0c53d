"""A connection that breaks: what goes on without it, what does not, and who may use the next one first."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import ConnectionLost, TargetError
from headrace.host.agent import Agent, Journal
from headrace.host.target import link
from headrace.host.target.ssh import SshTarget
from tests import sshd
from tests.agent.test_apply import OWNER, Fake, replaced
from tests.contracts.target import gone, is_alive, pid_in
from tests.relay import Relay, relay_to
from tests.waiting import until_async


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@dataclass
class Far:
    """A host behind a way that can be cut."""

    server: sshd.Sshd
    relay: Relay
    target: SshTarget
    told: list[str] = field(default_factory=list)

    async def outage(self, seconds: float = 0.5) -> None:
        """Silence until it is noticed, and a little longer; returns when the connection is back."""
        before = len(self.target.interruptions)
        self.relay.cut()
        await self.is_noticed()
        await asyncio.sleep(seconds)
        self.relay.join()
        await until_async(lambda: len(self.target.interruptions) > before)

    async def is_noticed(self) -> None:
        await until_async(lambda: not self.target._link.is_up)


def target_at(server: sshd.Sshd, port: int, told: list[str], folder: Path) -> SshTarget:
    known = folder / "known_hosts"
    known.write_text(server.known_hosts.read_text().replace(f":{server.port} ", f":{port} "))
    return SshTarget(
        "127.0.0.1", port=port, user=sshd.user(), keys=[server.key], known_hosts=known, tell=told.append
    )


@pytest.fixture
async def far(server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Far]:
    monkeypatch.setattr(link, "KEEPALIVE_S", 0.3)
    monkeypatch.setattr(link, "KEEPALIVE_COUNT", 2)
    monkeypatch.setattr(link, "PAUSES_S", (0.1,))
    async with relay_to(server.port) as relay:
        told: list[str] = []
        target = target_at(server, relay.port, told, tmp_path)
        await target.connect()
        try:
            yield Far(server, relay, target, told)
        finally:
            relay.join()
            await target.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("ending", "expected"),
    [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", -9), ("kill -TERM $$", -15)],
)
async def test_what_was_spawned_ends_while_nobody_hears_it(
    far: Far, place: Path, ending: str, expected: int
) -> None:
    script = f"sleep 1; echo done; {ending}"
    process = await far.target.spawn(["sh", "-c", script], stdout_path=str(place / "out"))
    waiting = asyncio.create_task(process.wait(2))  # the time of the outage does not count
    await far.outage(2.0)
    assert await asyncio.wait_for(waiting, 20) == expected
    assert (place / "out").read_text() == "done\n"
    assert "the connection was lost" in far.told[0]
    assert "is back" in far.told[-1]


async def test_what_was_spawned_lives_on_and_takes_signals(far: Far, place: Path) -> None:
    process = await far.target.spawn(["sleep", "300"], stdout_path=str(place / "out"))
    await far.outage()
    assert is_alive(process.pid)
    with pytest.raises(TimeoutError):
        await process.wait(0.2)
    await process.signal("TERM")
    assert await process.wait(10) == -signal.SIGTERM
    assert len(far.target.interruptions) == 1


async def test_the_connection_may_be_lost_again_and_again(far: Far, place: Path) -> None:
    process = await far.target.spawn(["sleep", "300"], detached=True, stdout_path=str(place / "out"))
    for _ in range(3):
        await far.outage(0.1)
    await process.signal("KILL")
    assert await process.wait(10) == -signal.SIGKILL


async def test_what_was_run_is_ended_and_raises(far: Far, place: Path) -> None:
    script = f"echo $$ >{place}/pid; sleep 300"
    running = asyncio.create_task(far.target.run(["sh", "-c", script], timeout_s=None))
    pid = await pid_in(place / "pid")
    await far.outage()
    with pytest.raises(ConnectionLost, match="connection was lost"):
        await running
    assert await gone(pid)
    assert (await far.target.run(["echo", "on"])).text == "on\n"


async def test_what_may_be_repeated_is(far: Far, place: Path) -> None:
    script = f"echo x >>{place}/runs; sleep 1; wc -l <{place}/runs"
    running = asyncio.create_task(far.target.run(["sh", "-c", script], repeatable=True))
    await until_async((place / "runs").exists)
    await far.outage()
    assert (await running).text == "2\n"


async def test_files_arrive_whole(far: Far, place: Path, tmp_path: Path) -> None:
    content = os.urandom(30_000_000)
    (place / "there").write_bytes(content)
    works: list[Coroutine[Any, Any, None]] = [
        far.target.write(str(place / "written"), content),
        far.target.get(str(place / "there"), tmp_path / "got"),
    ]
    for work in works:
        task = asyncio.create_task(work)
        await asyncio.sleep(0.05)
        assert not task.done()
        await far.outage(0.1)
        await task
    assert (place / "written").read_bytes() == content
    assert (tmp_path / "got").read_bytes() == content
    assert sorted(p.name for p in place.iterdir()) == ["there", "written"]


async def test_streams_that_broke_say_so(far: Far) -> None:
    process = await far.target.spawn(["cat"])
    await process.write(b"one\n")
    lines = process.lines()
    assert await anext(lines) == "one"
    reading = asyncio.ensure_future(anext(lines, None))
    await far.outage()
    with pytest.raises(ConnectionLost):
        await reading
    with pytest.raises(ConnectionLost):
        await process.write(b"two\n")
    await process.signal("KILL")
    assert await process.wait(10) in (0, -9)  # it may have seen the end of its input first


async def test_who_comes_meanwhile_waits(far: Far) -> None:
    far.relay.cut()
    await far.is_noticed()
    asking = [asyncio.create_task(far.target.run(["echo", str(n)])) for n in range(12)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in asking)
    far.relay.join()
    assert [answer.text for answer in await asyncio.gather(*asking)] == [f"{n}\n" for n in range(12)]


async def test_whoever_holds_something_comes_first(far: Far) -> None:
    order: list[str] = []

    async def first() -> None:
        order.append((await far.target.run(["echo", "first"])).text.strip())

    forget = far.target.on_return(first)
    far.relay.break_off()
    await far.is_noticed()
    order.append((await far.target.run(["echo", "others"])).text.strip())
    assert order == ["first", "others"]
    forget()
    await far.outage(0.1)
    assert order == ["first", "others"]


async def test_it_is_given_up_in_the_end(far: Far, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only for attempts that nobody answers: one that is answered may take longer on a busy machine.
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", 3.0)
    monkeypatch.setattr(link, "PATIENCE_S", 0.5)
    process = await far.target.spawn(["sleep", "300"], stdout_path=str(place / "out"))
    waiting = asyncio.create_task(process.wait())
    far.relay.cut()
    with pytest.raises(TargetError, match="could not be restored within"):
        await asyncio.wait_for(waiting, 20)
    with pytest.raises(TargetError, match="could not be restored within"):
        await far.target.run(["true"])
    os.kill(process.pid, signal.SIGKILL)


async def test_a_host_that_is_another_afterwards_is_refused(
    server: sshd.Sshd, far: Far, tmp_path: Path
) -> None:
    """Whoever answers next must have the key of before, and is not asked a second time."""
    (tmp_path / "other").mkdir()
    with sshd.running_sshd(tmp_path / "other") as other:
        far.relay._to = other.port
        far.relay.break_off()
        with pytest.raises(TargetError, match="is not the one in"):
            await far.target.run(["sleep", "5"], repeatable=True)
    before = far.relay.connections
    await asyncio.sleep(0.5)
    assert far.relay.connections == before


class TestHolding:
    """The lock of the host, over a connection that breaks."""

    @pytest.fixture
    def state(self, tmp_path: Path) -> Path:
        return tmp_path / "state"

    def holder(self, state: Path) -> int:
        return int(json.loads((state / "lock").read_text())["pid"])

    async def test_the_host_is_taken_back(self, far: Far, state: Path) -> None:
        agent = await Agent.install(far.target)
        journal = Journal(agent, "test-lost", str(state))
        async with journal.hold():
            before = self.holder(state)
            await far.outage()
            after = self.holder(state)
            assert after != before
            assert not is_alive(before)
            assert is_alive(after)
            await journal.record([{"kind": "process", "mark": "test-lost"}])
            await far.outage()
            assert [u.error for u in await journal.rollback()] == [None]
        assert await gone(self.holder(state))

    async def test_not_from_somebody_else(self, far: Far, state: Path) -> None:
        agent = await Agent.install(far.target)
        other_target = far.server.target()
        await other_target.connect()
        other = Journal(Agent(other_target, agent.path), "somebody-else", str(state))

        async def work() -> None:
            async with Journal(agent, "test-lost", str(state)).hold():
                far.relay.cut()
                await far.is_noticed()
                os.kill(self.holder(state), signal.SIGKILL)
                async with other.hold():
                    far.relay.join()
                    await asyncio.sleep(20)
                pytest.fail("the work went on")

        with pytest.raises(TargetError, match="another process took over this host: somebody-else"):
            await work()
        await other_target.close()

    async def test_a_controller_that_fell_silent_loses_it(
        self, far: Far, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody tells the host that its controller is gone: a dead connection holds nothing for ever."""
        monkeypatch.setattr("headrace.host.agent.journal.LEASE_S", 1)
        monkeypatch.setattr("headrace.host.agent.journal.RENEW_S", 0.2)
        monkeypatch.setattr(link, "KEEPALIVE_S", 60.0)
        agent = await Agent.install(far.target)
        journal = Journal(agent, "test-lost", str(state))
        held = await journal._take()
        pid = self.holder(state)
        await asyncio.sleep(2)
        assert is_alive(pid)
        assert held.renewal
        held.renewal.cancel()
        assert await gone(pid)
        began = time.monotonic()
        async with Journal(agent, "next", str(state)).hold():
            assert time.monotonic() - began < 5


async def test_what_was_being_changed_is_undone_while_nobody_hears_it(far: Far, tmp_path: Path) -> None:
    """The controller lives on, and neither hears of it nor does it again when the connection is back."""
    host = Fake(tmp_path)
    many = range(300)
    for number in many:
        host.put(f"/sys/fake/{number}", f"original {number}")
    agent = await Agent.install(far.target)
    options = ["--owner", OWNER, "--root", str(host.folder), "--confirm-within", "2s"]
    argv = [agent.path, *host.argv("apply", *options)[1:]]
    changes = json.dumps([replaced(number) for number in many]).encode()
    applying = asyncio.create_task(far.target.run(argv, stdin=changes))
    await until_async(lambda: host.text("/sys/fake/0") == "replaced 0", pause_s=0)
    far.relay.cut()
    assert host.text(f"/sys/fake/{many[-1]}") == f"original {many[-1]}", "it was over before"
    await far.is_noticed()
    await until_async(lambda: not host.open_entries() and not host.watchers())
    far.relay.join()
    with pytest.raises(ConnectionLost):
        await applying
    assert all(host.text(f"/sys/fake/{number}") == f"original {number}" for number in many)
    assert host.open_entries() == []
