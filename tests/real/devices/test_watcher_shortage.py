"""The watcher of a deadline where memory is short and the kernel's OOM killer ends processes around it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.test_apply import OWNER, Fake, kernel
from tests.memory_group import MemoryGroup, memory_group
from tests.waiting import until

LIMIT_BYTES = 64 << 20
#: Of the caller, which the watcher inherits: who has it and does not ask to be spared is killed before what eats
#: the memory. To ask for less than 0 takes CAP_SYS_RESOURCE, which not every root has.
FIRST_TO_BE_KILLED = 1000
#: Before the change, all memory has been eaten several times.
DEADLINE = "8s"
#: What a victim had may still be missing for a moment after its end, and then another one is killed. Without
#: CAP_SYS_RESOURCE this must be one that is larger than the watcher.
LARGER = f"held = bytearray({LIMIT_BYTES} >> 3); print(); input()"
#: A quarter of it is a file in memory, which counts for no process: what the kernel weighs is far below the score.
EAT = f"""
import os
file = os.memfd_create("quarter")
for _ in range({LIMIT_BYTES} >> 22):
    os.write(file, bytes(1 << 20))
bytearray({LIMIT_BYTES})
"""


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    with memory_group(LIMIT_BYTES) as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture
def host(tmp_path: Path, group: MemoryGroup) -> Iterator[Fake]:
    yield Fake(tmp_path)
    for pid in group.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def exhaust(group: MemoryGroup) -> None:
    """Eat all memory of the group, until the kernel ends what eats it."""
    eat = group.within([sys.executable, "-S", "-c", EAT])
    done = subprocess.run(eat, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def hold(group: MemoryGroup) -> subprocess.Popen[bytes]:
    """A process that is larger than the watcher, and stays."""
    argv = group.within([sys.executable, "-S", "-c", LARGER])
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline()
    return process


def test_a_watcher_lives_through_a_shortage_and_undoes(host: Fake, group: MemoryGroup) -> None:
    apply = host.argv("apply", "--owner", OWNER, "--root", str(host.folder), "--confirm-within", DEADLINE)
    bystander = subprocess.Popen(group.within(["sleep", "infinity"], oom_score=FIRST_TO_BE_KILLED))
    until(lambda: bystander.pid in group.processes())
    in_group = group.within(apply, oom_score=FIRST_TO_BE_KILLED)
    subprocess.run(in_group, input=json.dumps([kernel(1)]), text=True, check=True, capture_output=True)
    [watcher] = host.watchers()
    assert watcher in group.processes()
    kills_before_the_deadline = 0
    larger = hold(group)
    while host.text("/sys/fake/1") == "changed":
        kills_before_the_deadline = group.kills()
        assert watcher in group.processes() or host.text("/sys/fake/1") != "changed", "it was killed"
        exhaust(group)
        larger = larger if larger.poll() is None else hold(group)
    assert kills_before_the_deadline > 0
    # As small as the watcher, with the score that it had.
    assert bystander.wait() == -signal.SIGKILL
    until(lambda: host.text("/sys/fake/1") == "original 1")
    until(lambda: host.watchers() == [], what="the end of the watcher")
    assert host.open_entries() == []
