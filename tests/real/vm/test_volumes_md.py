"""Volumes of several devices on real kernels that have md and dm: in a virtual machine with four disks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import Refused
from headrace.host.agent import Agent, Journal
from headrace.host.target import Target, open_target
from headrace.lab import vm
from headrace.lab.vm import DiskSpec, Vm, VmSpec
from headrace.lab.volumes import DeviceSpec, Raid, VolumeSpec, mounted
from tests.commands import started
from tests.waiting import until_async

MIB = 2**20
DISKS = tuple(f"/dev/disk/by-id/virtio-data{number}" for number in range(4))
SCRATCH = "/var/tmp/headrace/test"
STATE = "/var/lib/headrace"
OWNER = "md-test"
#: An emulated CPU of a busy machine is slow; a stuck one never ends.
PATIENCE_S = 900
#: HEADRACE_TEST_VM names one that stays, for whoever works on these tests.
NAME = os.environ.get("HEADRACE_TEST_VM") or f"test-md-{os.getpid()}"


def machine_spec(kernel: str) -> VmSpec:
    return VmSpec(NAME, kernel, disks=tuple(DiskSpec(384 * MIB) for _ in DISKS))


@pytest.fixture(scope="module")
def down() -> Iterator[None]:
    """One machine for all: its disks and its root stay when another kernel is booted."""
    yield
    if os.environ.get("HEADRACE_TEST_VM") != NAME:
        asyncio.run(vm.down(NAME))


#: Half the time is enough where every change is tried; test_kernels_real builds an array under both.
KERNELS = ["6.12", "6.1"] if os.environ.get("HEADRACE_TEST_ALL") else ["6.12"]


@pytest.fixture(scope="module", params=KERNELS)
def machine(request: pytest.FixtureRequest, down: None) -> Vm:
    async def booted() -> Vm:
        found = vm.find(NAME)
        if found is None:
            return await vm.up(machine_spec(request.param), print)
        if found.spec.kernel != request.param:
            await found.reboot(request.param, print)
        return found

    return asyncio.run(booted())


class Lab:
    """The machine, and a journal there."""

    def __init__(self, target: Target, agent: Agent) -> None:
        self.target = target
        self.journal = Journal(agent, OWNER, STATE)

    def mounted(self, spec: VolumeSpec) -> Any:
        return mounted(self.target, self.journal, spec, SCRATCH, "vol")

    async def said(self, *argv: str) -> str:
        return (await self.target.run(argv)).text.strip()

    async def read(self, path: str) -> str:
        return await self.said("cat", path)

    async def read_all(self, folder: str, *names: str) -> dict[str, str]:
        """What these files say: one command for all, for each takes an emulated CPU a while."""
        text = await self.said("sh", "-c", 'cd "$0" && cat -- "$@"', folder, *names)
        return dict(zip(names, text.splitlines(), strict=True))

    async def queues(self) -> str:
        """How the queues of the disks are set; which schedulers there are depends on the modules loaded by now."""
        script = """
            for disk; do
                cd "/sys/block/$(basename "$(readlink -f "$disk")")/queue"
                grep -o "[[].*[]]" scheduler
                cat nr_*
            done
        """
        return await self.said("sh", "-c", script, "sh", *DISKS)

    async def traces(self) -> list[str]:
        """What is left of any volume: arrays, mapped devices, loops, mounts, and whatever stands on the disks."""
        script = """
            for array in /sys/block/md*; do [ -e "$array" ] && basename "$array"; done
            for mapped in /sys/block/dm-*; do [ -e "$mapped" ] && basename "$mapped"; done
            ls -d /dev/headrace* /dev/mapper/headrace* 2>/dev/null
            for loop in /sys/block/loop*/loop; do [ -e "$loop" ] && echo "$loop"; done
            grep /var/tmp/headrace/test /proc/self/mountinfo
            ls -A /var/tmp/headrace/test 2>/dev/null
            for disk; do wipefs --no-act --noheadings "$disk"; blkid -p "$disk"; done
            true
        """
        return (await self.said("sh", "-c", script, "sh", *DISKS)).splitlines()


@pytest.fixture
async def lab(machine: Vm) -> AsyncIterator[Lab]:
    """After each test nothing may be left of its volumes, nor in the journal."""
    target = open_target(machine.target)
    await target.connect()
    lab = Lab(target, await Agent.install(target))
    yield lab
    left = (await lab.traces(), await lab.journal.entries())
    if left != ([], []):
        await lab.journal.rollback(everyone=True)
    await lab.target.close()
    assert left == ([], [])


def array(
    level: int,
    filesystem: str = "xfs",
    *,
    kind: str = "md",
    count: int = 4,
    over: str = "block",
    queue: dict[str, str] | None = None,
    size_bytes: int = 0,
    **raid: Any,
) -> VolumeSpec:
    parents = tuple(
        DeviceSpec("block", 0, name) if over == "block" else DeviceSpec("loop", 400 * MIB, "")
        for name in DISKS[:count]
    )
    device = DeviceSpec(kind, 0, "", parents, Raid(level, **raid))
    return VolumeSpec(device, filesystem, (), (), queue or {}, size_bytes)


@pytest.mark.parametrize(
    ("level", "chunk_kib", "filesystem", "data"),
    [
        pytest.param(0, 4, "xfs", 4, marks=pytest.mark.thorough),
        pytest.param(1, 0, "xfs", 0, marks=pytest.mark.thorough),
        pytest.param(10, 64, "ext4", 2, marks=pytest.mark.thorough),
        pytest.param(5, 64, "xfs", 3, marks=pytest.mark.thorough),
        (6, 16, "ext4", 2),
    ],
)
async def test_each_level_is_built_aligned_and_taken_down_whole(
    lab: Lab, level: int, chunk_kib: int, filesystem: str, data: int
) -> None:
    spec = array(level, filesystem, chunk_bytes=chunk_kib * 1024)
    async with lab.mounted(spec) as volume:
        md = f"/sys/block/{volume.device.removeprefix('/dev/')}/md"
        has_copies = ("sync_action", "bitmap/location") if level != 0 else ()
        found = await lab.read_all(md, "level", "raid_disks", "chunk_size", *has_copies)
        assert found["level"] == f"raid{level}"
        assert found["raid_disks"] == "4"
        assert found["chunk_size"] == str(chunk_kib * 1024)
        if level != 0:
            assert found["sync_action"] == "idle"
            assert found["bitmap/location"] != "none"
        assert volume.warnings == (), "not aligned"
        if data and filesystem == "xfs":
            assert {f"sunit={chunk_kib * 2}", f"swidth={chunk_kib * 2 * data}"} <= set(volume.options)
        if data and filesystem == "ext4":
            said = await lab.said("dumpe2fs", "-h", volume.device)
            assert f"RAID stride:              {chunk_kib // 4}" in said
            assert f"RAID stripe width:        {chunk_kib // 4 * data}" in said
        await lab.said("dd", "if=/dev/zero", f"of={volume.path}/file", "bs=1M", "count=8", "conv=fsync")


@pytest.mark.thorough
async def test_a_file_system_that_ignores_the_array_is_told(lab: Lab) -> None:
    """mkfs.xfs leaves the geometry out of what is smaller than 1 GiB, and says so to nobody with -q."""
    async with lab.mounted(array(0, count=2, chunk_bytes=65536, size_bytes=400 * MIB)) as volume:
        assert "XFS is not aligned to the array: sunit=0, swidth=0" in volume.warnings[0]
        assert "the array has sunit=128, swidth=256" in volume.warnings[0]


@pytest.mark.thorough
async def test_the_settings_of_an_array_are_where_they_belong(lab: Lab) -> None:
    queue = {"scheduler": "mq-deadline", "read_ahead_kb": "1024", "nr_requests": "32"}
    before = await lab.queues()
    spec = array(
        6,
        queue=queue,
        size_bytes=400 * MIB,
        bitmap="none",
        stripe_cache=1024,
        initial_sync="wait",
        chunk_bytes=65536,
    )
    async with lab.mounted(spec) as volume:
        name = volume.device.removeprefix("/dev/")
        wanted = {
            "stripe_cache_size": "1024",
            "bitmap/location": "none",
            "resync_start": "none",
            "degraded": "0",
        }
        assert await lab.read_all(f"/sys/block/{name}/md", *wanted) == wanted
        # Really synchronised: a check of all finds no difference.
        await lab.said("sh", "-c", 'echo check > "$0/sync_action"', f"/sys/block/{name}/md")
        for _ in range(240):
            if await lab.read(f"/sys/block/{name}/md/sync_action") == "idle":
                break
            await asyncio.sleep(0.5)
        assert await lab.read(f"/sys/block/{name}/md/mismatch_cnt") == "0"
        assert await lab.read(f"/sys/block/{name}/queue/read_ahead_kb") == "1024"
        for disk in DISKS:
            member = (await lab.said("readlink", "-f", disk)).removeprefix("/dev/")
            assert "[mq-deadline]" in await lab.read(f"/sys/block/{member}/queue/scheduler")
            assert await lab.read(f"/sys/block/{member}/queue/nr_requests") == "32"
        size = await lab.said("findmnt", "-bno", "SIZE", "--mountpoint", volume.path)
        assert 300 * MIB < int(size) <= 400 * MIB
    assert await lab.queues() == before


@pytest.mark.parametrize(
    ("kind", "filesystem", "options"),
    [
        ("lvm", "xfs", {"chunk_bytes": 16384}),
        pytest.param("dm-stripe", "ext4", {"chunk_bytes": 4096}, marks=pytest.mark.thorough),
        pytest.param("dm-stripe", "btrfs", {}, marks=pytest.mark.thorough),
    ],
)
async def test_a_stripe_of_the_device_mapper(
    lab: Lab, kind: str, filesystem: str, options: dict[str, Any]
) -> None:
    async with lab.mounted(array(0, filesystem, kind=kind, **options)) as volume:
        name = volume.device.removeprefix("/dev/")
        table = await lab.said("sh", "-c", 'dmsetup table "$(cat "$0")"', f"/sys/block/{name}/dm/name")
        sectors = options.get("chunk_bytes", 65536) // 512
        assert f" striped 4 {sectors} " in table
        assert volume.warnings == ()
        await lab.said("dd", "if=/dev/zero", f"of={volume.path}/file", "bs=1M", "count=8", "conv=fsync")


@pytest.mark.thorough
@pytest.mark.parametrize("level", [0, 1])
async def test_btrfs_over_several_devices(lab: Lab, level: int) -> None:
    async with lab.mounted(array(level, "btrfs", kind="btrfs-raid")) as volume:
        used = await lab.said("btrfs", "filesystem", "df", volume.path)
        assert f"Data, RAID{level}:" in used
        await lab.said("dd", "if=/dev/zero", f"of={volume.path}/file", "bs=1M", "count=8", "conv=fsync")


async def test_an_array_of_loops(lab: Lab) -> None:
    async with lab.mounted(array(10, "ext4", over="loop", chunk_bytes=65536)) as volume:
        slaves = (await lab.said("ls", f"/sys/block/{volume.device.removeprefix('/dev/')}/slaves")).split()
        assert len(slaves) == 4
        assert all(slave.startswith("loop") for slave in slaves)


async def test_members_that_are_somebodys_are_refused_and_stay(lab: Lab) -> None:
    create = ["mdadm", "--create", "/dev/md9", "--run", "--level=1", "--raid-devices=2", "--bitmap=none"]
    await lab.said(*create, DISKS[2], DISKS[3])
    try:
        with pytest.raises(Refused, match=r"has something on it: md9 \(raid1\)"):
            async with lab.mounted(array(0)):
                pass
        await lab.said("mdadm", "--stop", "/dev/md9")
        with pytest.raises(Refused, match="carries a signature: linux_raid_member"):
            async with lab.mounted(array(0)):
                pass
        assert "linux_raid_member" in await lab.said("wipefs", "--no-act", DISKS[3])
    finally:
        await lab.said("sh", "-c", "mdadm --stop /dev/md9 2>/dev/null; true")
        await lab.said("mdadm", "--zero-superblock", DISKS[2], DISKS[3])


#: Builds a volume and is killed while command number AT is under way; -1 builds it, says how many commands that
#: took, and is killed when it is mounted.
KILLED = """
import asyncio, os, signal, sys
from headrace.lab import vm
from headrace.host.agent import Agent, Journal
from headrace.host.target import open_target
from headrace.lab.volumes import DeviceSpec, Raid, VolumeSpec, mounted
name, scratch, state, owner, at, delay, kind, level = sys.argv[1:]
at, delay = int(at), float(delay)
async def main():
    target = open_target(vm.find(name).target)
    await target.connect()
    journal = Journal(await Agent.install(target), owner, state)
    run, commands = target.run, 0
    async def counted(argv, **options):
        nonlocal commands
        commands += 1
        if commands == at:
            asyncio.get_running_loop().call_later(delay, os.kill, os.getpid(), signal.SIGKILL)
        return await run(argv, **options)
    target.run = counted
    parents = tuple(DeviceSpec("block", 0, f"/dev/disk/by-id/virtio-data{n}") for n in range(4))
    device = DeviceSpec(kind, 0, "", parents, Raid(int(level)))
    spec = VolumeSpec(device, "ext4", (), (), {"scheduler": "mq-deadline"})
    async with mounted(target, journal, spec, scratch, "vol"):
        if at == -1:
            print(commands, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def controller(
    at: int, kind: str = "md", level: int = 6, delay_s: float = 0.0
) -> subprocess.CompletedProcess[str]:
    arguments = [NAME, SCRATCH, STATE, OWNER, str(at), str(delay_s), kind, str(level)]
    return subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "level"), [("md", 6), ("lvm", 0)])
async def test_killed_during_any_command_a_rollback_leaves_nothing(lab: Lab, kind: str, level: int) -> None:
    commands = 0

    async def kill_and_undo(at: int) -> None:
        nonlocal commands
        killed = await asyncio.to_thread(controller, at, kind, level, random.uniform(0, 0.3))
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
        if at == -1:
            commands = int(killed.stdout)
            assert await lab.traces() != [], "the volume was not there when its builder was killed"
        undone = await lab.journal.rollback(everyone=True)
        assert [u for u in undone if u.error] == [], f"killed in command {at}"
        assert await lab.traces() == [], f"killed in command {at}"
        assert await lab.journal.entries() == []

    await kill_and_undo(-1)
    # To take it down is one more. Every command takes too long where the CPU is emulated; HEADRACE_TEST_ALL=1
    # tries them all.
    chosen = list(range(1, commands + 2))
    if not os.environ.get("HEADRACE_TEST_ALL"):
        chosen = [random.choice(chosen[commands // 3 :])]
    for at in chosen:
        await kill_and_undo(at)


@pytest.mark.thorough
async def test_an_array_that_came_back_under_another_name_is_found(lab: Lab, machine: Vm) -> None:
    killed = await asyncio.to_thread(controller, -1)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "md0" in await lab.traces()
    await lab.target.close()
    await machine.reboot(machine.spec.kernel, print)
    target = open_target(machine.target)
    await target.connect()
    lab.target, lab.journal = target, Journal(await Agent.install(target), OWNER, STATE)
    # What udev does at the boot of an ordinary host.
    await lab.said("mdadm", "--assemble", "/dev/md127", "--run", *DISKS)
    undone = await lab.journal.rollback(everyone=True)
    assert [u for u in undone if u.error] == []
    assert "stop md0 (it was md127 by now)" in [u.what for u in undone]
    assert await lab.traces() == []


PLAN = """
name = "syncing"
[target]
address = "{address}"
identity_file = "{identity}"
known_hosts = "{known_hosts}"
[design]
kind = "cumulative"
baseline = "RAID5"
blocks = 1
rungs = {{ RAID5 = [] }}
[workload]
kind = "fio"
seconds = 2
rw = "randread"
size = "16M"
ioengine = "psync"
[volume]
device = "md"
size = "350M"
devices = {devices}
[base]
"volume.raid_level" = 5
"volume.raid_chunk" = "64K"
"""

#: Slowly, so that it lasts longer than the trial.
CHECK = """
    until grep -q /var/tmp/headrace /proc/self/mountinfo; do sleep 0.1; done
    echo 2000 > /sys/block/md0/md/sync_speed_max
    echo check > /sys/block/md0/md/sync_action
"""


@pytest.mark.thorough
async def test_a_trial_during_which_the_array_synchronised_is_invalid(
    lab: Lab, machine: Vm, tmp_path: Path
) -> None:
    spec = machine.target
    plan = tmp_path / "syncing.toml"
    plan.write_text(
        PLAN.format(
            address=f"{spec.user}@{spec.host}:{spec.port}",
            identity=spec.identity_file,
            known_hosts=spec.known_hosts,
            devices=json.dumps(DISKS),
        )
    )
    check = asyncio.create_task(lab.target.run(["sh", "-c", CHECK], timeout_s=PATIENCE_S))
    record = tmp_path / "out" / "trials" / "0001" / "trial.json"
    run = started("run", str(plan), "-o", str(tmp_path / "out"), env={**os.environ, "NO_COLOR": "1"})
    # Without its other trials, and before this one is measured again, undisturbed.
    await until_async(lambda: record.exists() or run.poll() is not None)
    run.send_signal(signal.SIGINT)
    said, error = await asyncio.to_thread(run.communicate, timeout=PATIENCE_S)
    # Where the experiment ended before it had a volume, nothing will ever be there to check.
    check.cancel()
    await asyncio.gather(check, return_exceptions=True)
    assert record.exists(), said + error
    first = json.loads(record.read_text())
    assert first["state"] == "invalid", said + error
    assert "the array md0 was resyncing in" in first["reason"], said + error
