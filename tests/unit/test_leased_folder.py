"""A folder on a host whose controller is killed: the host ends what writes to it, and removes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.host.target import leased, leased_folder
from headrace.host.target.local import LocalTarget
from tests.traces import commands
from tests.waiting import until

#: A controller that is killed while a program of its writes to the folder.
KILLED = """
import asyncio, os, signal, sys
from headrace.host.target import FOLDER_VARIABLE, leased, leased_folder
from headrace.host.target.local import LocalTarget
leased.LEASE_S, leased.LOOK_S = int(sys.argv[2]), 1
async def work():
    target = LocalTarget()
    async with leased_folder(target, sys.argv[1]) as folder:
        argv = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", folder]
        await target.spawn(argv, env={FOLDER_VARIABLE: folder})
        print(folder, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(work())
"""


def users(folder: str) -> list[list[bytes]]:
    return [words for words in commands().values() if folder.encode() in words]


@pytest.mark.parametrize("lease_s", [1, 900])
def test_the_host_removes_what_a_killed_controller_left(tmp_path: Path, lease_s: int) -> None:
    """Not only when the lease is over: a controller that is killed closes its side."""
    argv = [sys.executable, "-c", KILLED, str(tmp_path / "folders"), str(lease_s)]
    folder = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    assert Path(folder).parent == tmp_path / "folders"
    until(lambda: not Path(folder).exists() and not users(folder), what=f"{folder} or its users remain")


def test_one_that_lives_keeps_it_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased, "LEASE_S", 3)
    monkeypatch.setattr(leased, "LOOK_S", 1)
    monkeypatch.setattr(leased, "RENEW_S", 0.2)

    async def work() -> str:
        async with leased_folder(LocalTarget(), str(tmp_path)) as folder:
            await asyncio.sleep(5)
            assert Path(folder).is_dir()
            assert Path(folder).stat().st_mode & 0o777 == 0o700
            return folder

    folder = asyncio.run(work())
    assert not Path(folder).exists()
    until(lambda: not users(folder), what="the watcher remains")
