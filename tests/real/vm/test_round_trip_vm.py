"""Every setting below /proc/sys of a real kernel, changed and undone, in a virtual machine that may be harmed.

What concerns the whole kernel (vm, kernel, fs) cannot be tried on the host of the tests; a network namespace's
settings and a device's queue are tried there (tests/real/devices/test_round_trip_host.py).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from headrace.base.errors import Refused
from headrace.host.agent import Agent, Journal
from headrace.host.target import Target, open_target
from headrace.lab import vm
from tests.real.devices.test_round_trip_host import others

pytestmark = pytest.mark.thorough
NAME = f"test-sysctl-{os.getpid()}"
#: What goes only one way, moves by itself, or ends the machine.
LEFT_OUT = re.compile(
    r"modules_disabled|kexec_load|unprivileged_bpf|yama|ns_last_pid|random/|panic|/usermodehelper|"
    r"binfmt_misc|sysrq|poweroff|ctrl-alt-del|hung_task_detect|oops|/tainted|mount-max|bpf_stats|perf_event_paranoid"
)
#: One process for all of them, as this is done after each change: one for each takes an emulated CPU minutes.
LIST = (
    "find /proc/sys/vm /proc/sys/kernel /proc/sys/fs -type f -perm -600 -exec grep -s -a -H '' {} + || true"
)


@pytest.fixture(scope="module")
def machine() -> Iterator[vm.Vm]:
    yield asyncio.run(vm.up(vm.VmSpec(NAME, "6.12"), print))
    asyncio.run(vm.down(NAME))


@pytest.fixture
async def target(machine: vm.Vm) -> AsyncIterator[Target]:
    target = open_target(machine.target)
    await target.connect()
    yield target
    await target.close()


async def settings(target: Target) -> dict[str, str]:
    text = (await target.run(["sh", "-c", LIST], timeout_s=300)).text
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        path, _, value = line.partition(":")
        if not LEFT_OUT.search(path):
            found.setdefault(path, []).append(value)
    return {path: " ".join(values).rstrip() for path, values in found.items()}


async def test_every_setting_of_the_kernel_is_what_it_was(target: Target) -> None:
    journal = Journal(await Agent.install(target), "sysctls", "/var/lib/headrace")
    before = await settings(target)
    changed, refused = [], []
    for path, text in before.items():
        for value in others(text)[:2]:
            # Where the kernel does not survive it, the last line says what it was.
            print(path, text, "->", value)
            try:
                await journal.apply({path: value})
                changed.append(path)
            except Refused as error:
                refused.append(f"{path} {text} -> {value}: {error.message}")
            undone = await journal.rollback()
            assert all(each.done for each in undone), (path, value, undone)
        now = await settings(target)
        assert now == before, (
            path,
            {key: (before[key], now.get(key)) for key in before if now.get(key) != before[key]},
        )
    print(
        f"{len(before)} settings, {len(set(changed))} changed, {len(refused)} values refused",
        *refused,
        sep="\n",
    )
    assert len(set(changed)) > 60
    assert await journal.entries() == []
