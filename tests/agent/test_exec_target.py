"""``exec:COMMAND``: it keeps the contract of targets, through noise too, and says what is wrong with a command."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.base.errors import HeadraceError, NotReady, PlanError, TargetError
from headrace.host.agent import Agent
from headrace.host.target import Target, TargetSpec, open_target
from headrace.host.target.execute import ExecTarget
from tests.contracts.target import RunsCommands, gone

#: As in a container: nothing of our environment, and a banner on both outputs before the program.
NOISY = 'env -i PATH=/usr/bin:/bin HOME=/root sh -c \'echo welcome; echo "a banner" >&2; exec "$@"\' sh'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


class TestExec(RunsCommands):
    @pytest.fixture
    async def target(self) -> AsyncIterator[Target]:
        target = open_target(TargetSpec.parse(f"exec:{NOISY}"))
        await target.connect()
        yield target
        await target.close()

    async def test_who_we_are(self, target: Target) -> None:
        assert target.is_root == (os.geteuid() == 0)

    async def test_what_is_spawned_ends_with_the_target(self, target: Target) -> None:
        process = await target.spawn(["sleep", "300"])
        await target.close()
        assert await process.wait(10) < 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program-here run", "no-such-program-here: not found"),
        ("false", "did not run sh there: it ended with exit code 1"),
        ("sh -c 'echo No such container: db >&2; exit 1' sh", "No such container: db"),
        ("echo", "did not run sh there"),
        ("sh -c 'exec \"$@\" </dev/null' sh", "standard input does not reach"),
        ("sh -c '\"$@\" | sed -u s/$/\\\\r/' sh", "terminal"),
        ("env -i PATH=/nowhere /bin/sh -c '/bin/sh \"$@\"' sh -c 'echo x; exit 3' --", "x"),
        ("sh -c 'kill -9 $$' sh", "signal 9"),
    ],
)
async def test_a_command_that_does_not_do_is_one_clear_error(command: str, said: str) -> None:
    target = ExecTarget(f"exec:{command}")
    with pytest.raises(TargetError, match=re.escape(said)) as error:
        await target.connect()
    assert error.value.place == f"exec:{command}"
    await target.close()


@pytest.mark.parametrize("does", ["yes", "sleep 1000", "sh -c 'while :; do printf x; sleep 1; done'"])
async def test_a_host_that_never_says_what_it_should_is_left_within_two_seconds(does: str) -> None:
    target = ExecTarget(f"exec:sh -c {shlex.quote(f'exec {does}')}")
    asking = asyncio.ensure_future(target.connect())
    await asyncio.sleep(0.2)
    began = asyncio.get_running_loop().time()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await target.close()
    assert asyncio.get_running_loop().time() - began < 2


@pytest.mark.parametrize("address", ["exec:", "exec:   ", "exec:docker 'exec"])
def test_an_address_without_a_command_is_a_wrong_argument(address: str) -> None:
    with pytest.raises(PlanError):
        open_target(TargetSpec.parse(address))


def test_the_address_is_what_was_given() -> None:
    assert TargetSpec.parse("exec:docker exec -i db").address == "exec:docker exec -i db"


async def installed(command: str) -> str:
    target = ExecTarget(f"exec:{command}")
    await target.connect()
    try:
        agent = await Agent.install(target)
        await agent.version()
        return agent.path
    finally:
        await target.close()


async def test_the_agent_is_where_the_environment_says(tmp_path: Path) -> None:
    path = await installed(f"env -i PATH=/usr/bin:/bin HOME=/proc/nothing XDG_CACHE_HOME={tmp_path}/cache")
    assert Path(path).parent == tmp_path / "cache" / "headrace"


async def test_two_at_once_are_two_programs(place: Path) -> None:
    target = ExecTarget(f"exec:{NOISY}")
    await target.connect()
    done = await asyncio.gather(*(target.run(["echo", str(number)]) for number in range(8)))
    assert [each.text for each in done] == [f"{number}\n" for number in range(8)]
    await target.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs mount namespaces")
@pytest.mark.parametrize("read_only", [False, True])
async def test_folders_that_take_no_program(tmp_path: Path, read_only: bool) -> None:
    option = "ro" if read_only else "noexec"
    folders = "/root /tmp /var/tmp /dev/shm /run"
    mounts = f'for f in {folders}; do mount -t tmpfs -o {option} none $f; done; exec "$@"'
    command = f"unshare --mount env HOME=/root sh -c {shlex.quote(mounts)} sh"
    with pytest.raises(NotReady, match="no folder there in which a program may be written and run") as error:
        await installed(command)
    assert isinstance(error.value, HeadraceError)
    assert "XDG_CACHE_HOME" in str(error.value.hint)


async def test_a_flood_of_lines_leaves_others_their_turn() -> None:
    target = open_target(TargetSpec.parse("exec:env"))
    await target.connect()
    process = await target.spawn(["sh", "-c", "yes {} | head -c 900000; sleep 300"])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async for _ in process.lines():
        break
    await asyncio.sleep(0.5)
    task = asyncio.ensure_future(other())
    count = 0
    async for _ in process.lines():
        count += 1
        if count > 100_000:
            break
    task.cancel()
    assert turns > 100
    await target.close()


@pytest.mark.parametrize("address", ["exec:env", "local"])
async def test_what_a_leased_program_started_ends_with_the_target(address: str) -> None:
    target = open_target(TargetSpec.parse(address))
    await target.connect()
    agent = await Agent.install(target)
    process = await target.spawn(
        [agent.path, "leased", "--lease", "30s", "--", "sh", "-c", "sleep 301 & echo $!; wait"]
    )
    pid = int(await anext(process.lines()))
    await target.close()
    assert await gone(pid)
