"""A host is afterwards as it was before: all settings, files, mounts, loop devices, processes and variables of a
virtual machine are compared around every command, commands killed at random moments among them, and around a reset
of the machine.

``HEADRACE_KILLS`` says how many commands are killed, ``HEADRACE_SEED`` where chance begins. With 20 kills or more,
those commands run to their end, too, that take an emulated CPU minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import Refused
from headrace.lab import vm
from tests.conformance import LASTS, SLOW_LOG, Comparison, Kills, Kind, Settings, changed
from tests.guest import KERNEL, LOGIN, Guest

KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
IS_LONG = KILLS >= 20
LONG = pytest.mark.skipif(not IS_LONG, reason="an emulated CPU takes minutes: make torture")
MACHINE = f"test-conformance-{os.getpid()}"
#: What the kernel counts there.
COUNTERS = re.compile(
    r"ns_last_pid|random/|dentry|inode|file-nr|stat_refresh|/run/sshd\.log|byte_queue_limits/limit$"
)
#: Depends on the memory that is free at boot, or is given out anew at each: names of disks, processes, interrupts.
BOOT = re.compile(
    r"_mem$|_reserve_kbytes$|file-max$|threads-max$|min_free_kbytes$|max_\w+_namespaces$|"
    r"/proc/irq/|/sys/block/nvme|/usr/lib/modules$|sshd\.pid$|^mount /$"
)
SYSCTLS = {
    "host.vm.swappiness": "/proc/sys/vm/swappiness",
    "host.net.core.somaxconn": "/proc/sys/net/core/somaxconn",
    "host.vm.dirty_ratio": "/proc/sys/vm/dirty_ratio",
}
#: What a file makes last.
LASTING = ("host.vm.swappiness=7", "host.net.core.somaxconn=2048", "volume.scheduler@vda=mq-deadline")
SOME = (
    *LASTING,
    "host.vm.dirty_ratio=11",
    "host.rps_cpus@eth0=1",
    "host.thp=never",
    "volume.mount_options@/data=noatime",
)
OF_SERVER = ("server.max_connections=321", "server.innodb_io_capacity=300")
FILES = ("/etc/sysctl.d/99-zz-headrace.conf", "/etc/udev/rules.d/99-zz-headrace.rules")
JOURNAL, HISTORY = (f"/var/lib/headrace/{name}.jsonl" for name in ("journal", "history"))
PLAN = """
name = "conformance"
[target]
address = "root@guest"
[design]
kind = "factorial"
baseline = "stock"
blocks = 1
[workload]
kind = "fio"
seconds = 0.5
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "40M"
[base]
"volume.filesystem" = "ext4"
"host.vm.dirty_ratio" = 12
[factors.kernel.levels]
stock = { "host.vm.swappiness" = 50 }
other = { "volume.scheduler" = "mq-deadline", "volume.nr_requests" = 32, "host.vm.swappiness" = 11 }
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    disk = vm.DiskSpec(512 << 20)
    spec = vm.VmSpec(MACHINE, KERNEL, memory_bytes=768 << 20, disks=(disk,))
    machine = asyncio.run(vm.up(spec, print))
    found = Guest(machine, tmp_path_factory.mktemp("guest"))
    try:
        found.inside(f"cat >/srv/slow.log <<'END'\n{SLOW_LOG}END")
        found.serve()
        yield found
    finally:
        found.hang_up()
        asyncio.run(vm.down(MACHINE))


@pytest.fixture(scope="module")
def host(guest: Guest) -> Comparison:
    return Comparison(guest, COUNTERS.search, 1500)


@pytest.fixture(scope="module")
def plan(guest: Guest) -> Path:
    path = guest.folder / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.thorough
def test_what_only_looks_changes_nothing(guest: Guest, host: Comparison) -> None:
    commands = [
        ("facts",),
        ("doctor",),
        ("hunt", "--duration", "2s"),
        ("latencies", "--duration", "1s", *(["--file", "/data"] if IS_LONG else [])),
        ("digest", "/srv/slow.log"),
    ]
    if IS_LONG:
        commands += [("knobs", "host"), ("rollback", "--list")]
    for command in commands:
        said = guest.done(*command)
        assert said.strip(), command
        if IS_LONG:
            host.check(command)
    host.check(commands)


def test_what_is_applied_is_rolled_back_whole(guest: Guest, host: Comparison) -> None:
    guest.done("apply", *SOME, *OF_SERVER, *LOGIN, "--confirm-within", "10m")
    found = host.difference()
    assert {SYSCTLS[name] for name in SYSCTLS} < set(found), found
    assert {"mount /data", "@@max_connections", "@@innodb_io_capacity"} < set(found), found
    assert not [name for name in found if name.startswith("/etc/")], found
    guest.done("rollback")
    host.check("applied and rolled back")


@LONG
def test_what_is_kept_is_rolled_back_with_its_files(guest: Guest, host: Comparison) -> None:
    guest.done("apply", *LASTING, *LASTS, "--confirm-within", "10m")
    guest.done("apply", "--confirm")
    assert set(FILES) < set(host.difference())
    guest.done("rollback", "--last")
    host.check("kept and rolled back")


@LONG
@pytest.mark.thorough
def test_an_experiment_changes_nothing(guest: Guest, host: Comparison, plan: Path) -> None:
    guest.done("run", str(plan), "--output", str(guest.folder / "whole"))
    host.check("run")


@pytest.mark.thorough
def test_killed_at_any_moment_nothing_is_left(guest: Guest, host: Comparison, plan: Path) -> None:
    if "apply" not in guest.took_s:
        guest.done("apply", *SOME, "--confirm-within", "10m")
        guest.done("rollback")
    numbers = itertools.count()

    def running(_: random.Random) -> list[str]:
        return ["run", str(plan), "--output", str(guest.folder / f"run{next(numbers)}")]

    settings = Settings(LASTING, SOME, OF_SERVER, LOGIN)
    run = Kind(running, lambda _: [["rollback", "--everyone"]], lasts=5.0, on_journal=False)
    kills = Kills(guest, host, settings, {"run": run})
    for number in range(KILLS):
        kills.round(SEED + number)
    assert KILLS < 50 or kills.found["left something to undo"] > KILLS / 10, "this tested nothing"


@pytest.mark.thorough
def test_a_reset_leaves_what_was_confirmed_and_nothing_else(guest: Guest) -> None:
    """What is confirmed lasts. Of the rest the kernel's own values are back, and what was asked for is not made
    again, not even in the files of what lasts.
    """
    before = comparable(guest)
    guest.done("apply", *LASTING, *LASTS, "--confirm-within", "10m")
    guest.done("apply", "--confirm")
    said = guest.done("apply", "host.vm.dirty_ratio=11", *LASTS, "--confirm-within", "10m")
    guest.done("apply", "volume.mount_options@/data=noatime", "host.thp=never", "--confirm-within", "10m")
    guest.cut_power()
    after = comparable(guest)
    code, said = guest.run("apply", "--confirm", identity(said))
    assert code == Refused.exit_code, said
    print("confirm:", said)
    assert "undone" in said
    found = changed(before, comparable(guest))
    print("kept:", found)
    assert set(changed(before, after)) - set(found) == {JOURNAL}
    assert {name: found[path][1] for name, path in SYSCTLS.items() if path in found} == {
        "host.vm.swappiness": "7",
        "host.net.core.somaxconn": "2048",
    }
    assert set(FILES) < set(found)
    assert set(found) <= {*FILES, *SYSCTLS.values(), HISTORY}, found
    guest.done("rollback", "--last")
    assert changed(before, comparable(guest)) == {}


def identity(said: str) -> str:
    """Of the changes that ``apply`` made."""
    found = re.search(r"^id (\S+)$", said, re.MULTILINE)
    assert found, said
    return found[1]


def comparable(guest: Guest) -> dict[str, Any]:
    """What is the same at each boot."""
    return {
        name: value
        for name, value in guest.look().items()
        if not COUNTERS.search(name) and not BOOT.search(name) and not name.startswith("@@")
    }
