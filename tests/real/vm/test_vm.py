"""A real virtual machine: its kernels, its disks, an array on them, and every way in which something dies.

One root image and two kernels are made at first, and kept under ``~/.cache/headrace/vm`` for later runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import Busy, TargetError, TreatmentFailed
from headrace.experiment.boot import Boot, check_arguments_of
from headrace.host.target import open_target
from headrace.lab import vm
from headrace.lab.vm import kernels, processes, state
from headrace.lab.vm import machine as vm_machine
from tests.waiting import until

ROOT = os.geteuid() == 0
NAME = f"test-{os.getpid()}"
DISKS = (vm.DiskSpec(256 << 20, queues=2), vm.DiskSpec(256 << 20, queues=2), vm.DiskSpec(64 << 20, iops=40))
SPEC = vm.VmSpec(NAME, "6.1", memory_bytes=768 << 20, disks=DISKS, nic_queues=2 if ROOT else 1)
#: An emulated CPU of a busy machine is slow; a stuck one never ends.
PATIENCE_S = 400


def told(text: str) -> None:
    print(f"{time.monotonic():.1f} {text}", file=sys.stderr)


@pytest.fixture(scope="module")
def machine() -> Iterator[vm.Vm]:
    made = asyncio.run(vm.up(SPEC, told, owner="/test"))
    yield made
    asyncio.run(vm.down(NAME))


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "headrace"
    argv = [str(program), "lab", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def inside(script: str) -> str:
    answer = lab("ssh", "--name", NAME, "--", script)
    assert answer.returncode == 0, f"{script}: {answer.stderr}"
    return answer.stdout.strip()


def status(name: str) -> dict[str, object] | None:
    found = {one["name"]: one for one in json.loads(lab("status", "--json").stdout)}
    return found.get(name)


def is_gone(name: str) -> bool:
    place = state.machine_folder(name)
    return not place.exists() and not processes.marked(place) and name not in state.namespaces()


def test_it_is_what_was_asked_for(machine: vm.Vm) -> None:
    release, cpus, queues, *disks = inside(
        "uname -r; nproc; ls /sys/block/$(basename $(readlink /dev/disk/by-id/virtio-data0))/mq | wc -l;"
        "for disk in /dev/disk/by-id/*; do echo ${disk##*/} $(blockdev --getsize64 $disk); done"
    ).splitlines()
    assert release == machine.release
    assert release.startswith("6.1.")
    assert (cpus, queues) == ("2", "2")
    assert disks == [f"virtio-data{number} {disk.size_bytes}" for number, disk in enumerate(DISKS)]
    found = status(NAME)
    assert found
    assert (found["state"], found["accel"], found["owner"]) == ("running", machine.accel, "/test")
    record = state.read(state.machine_folder(NAME))
    assert record
    # An emulated machine's disks lose requests if its threads run on several CPUs.
    threads = [int(task.name) for task in Path(f"/proc/{record.pid}/task").iterdir()]
    kept_to = {frozenset(os.sched_getaffinity(thread)) for thread in threads}
    assert machine.accel == "kvm" or [len(cpus) for cpus in kept_to] == [1]


@pytest.mark.needs("root")
def test_the_second_card_has_its_queues_and_its_namespace(machine: vm.Vm) -> None:
    code = "import socket; print(socket.create_connection(('10.73.0.2', 22), 60).recv(7).decode())"
    argv = ["ip", "netns", "exec", state.namespace_of(NAME), sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == "SSH-2.0"
    assert inside("ls -d /sys/class/net/eth1/queues/rx-* | wc -l") == "2"


def test_a_limit_holds(machine: vm.Vm) -> None:
    fio = "fio --name=x --filename=/dev/disk/by-id/virtio-data2 --direct=1 --rw=randread --bs=4k --iodepth=8"
    result = json.loads(inside(f"{fio} --ioengine=libaio --time_based --runtime=3 --output-format=json"))
    # A tenth of a second's worth may come at once; an emulated CPU may do less than it is allowed to.
    assert 0 < result["jobs"][0]["read"]["iops"] < 48


def test_it_is_taken_over_by_its_owner_only(machine: vm.Vm) -> None:
    assert asyncio.run(vm.up(SPEC, told, owner="/test")).target == machine.target
    with pytest.raises(Busy, match="belongs to /test"):
        asyncio.run(vm.up(SPEC, told))


def test_another_kernel_finds_the_same_root_and_array(machine: vm.Vm) -> None:
    members = "/dev/disk/by-id/virtio-data0 /dev/disk/by-id/virtio-data1"
    inside(
        f"mdadm --create /dev/md0 --run --level=0 --chunk=64 --raid-devices=2 {members} 2>&1 &&"
        "mkfs.xfs -q /dev/md0 && mount /dev/md0 /mnt && echo kept >/mnt/file && echo kept >/var/tmp/file"
    )
    before = status(NAME)
    asyncio.run(machine.reboot("6.12", told, arguments="transparent_hugepage=never no_such_thing=1"))
    after = status(NAME)
    assert before
    assert after
    assert before["pid"] != after["pid"]
    found = inside(
        f"uname -r && mdadm --assemble /dev/md0 {members} 2>&1 >/dev/null && mount /dev/md0 /mnt &&"
        "cat /sys/block/md0/md/level /mnt/file /var/tmp/file"
    )
    release, *rest = [line for line in found.splitlines() if not line.startswith("mdadm")]
    assert release.startswith("6.12.")
    assert rest == ["raid0", "kept", "kept"]
    assert machine.spec.kernel == "6.12"
    # The same boot: no other costs a minute.
    assert inside("cat /sys/kernel/mm/transparent_hugepage/enabled").endswith("[never]")
    with pytest.raises(TreatmentFailed, match=r"kernel 6\.12 does not know no_such_thing=1$"):
        asyncio.run(checked("transparent_hugepage=never no_such_thing=1"))
    said = asyncio.run(checked("transparent_hugepage=never"))
    assert not said


async def checked(arguments: str) -> list[str]:
    running = vm.find(NAME)
    assert running is not None
    target = open_target(running.target, told)
    said: list[str] = []
    await target.connect()
    try:
        await check_arguments_of(target, Boot("6.12", arguments), said.append)
    finally:
        await target.close()
    return said


def test_a_killed_qemu_is_seen_and_started_anew(machine: vm.Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    found = status(NAME)
    assert found
    pid = found["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (found := status(NAME)) and found["state"] != "dead":
        assert time.monotonic() < deadline
    assert vm.find(NAME) is None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Between our look for a free port and QEMU's start somebody else takes it.
        ports = [taken.getsockname()[1]]
        free_port = vm_machine._free_port
        monkeypatch.setattr(
            vm_machine, "_free_port", lambda wanted: ports.pop() if ports else free_port(wanted)
        )
        again = asyncio.run(vm.up(SPEC, told, owner="/test"))
    assert ports == []
    assert again.release.startswith("6.1.")
    assert inside("ls /var/tmp/file || echo fresh") == "fresh"


def test_down_leaves_nothing(machine: vm.Vm) -> None:
    assert lab("down", NAME).returncode == 0
    assert is_gone(NAME)
    assert status(NAME) is None


def test_a_qemu_that_does_not_start_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = kernels.Kernel("6.1.0-none", "none", Path("/no/vmlinux"), Path("/no/modules.img"), "nvme")

    async def kernel_of(*_: object) -> kernels.Kernel:
        return missing

    monkeypatch.setattr(kernels, "kernel_of", kernel_of)
    with pytest.raises(TargetError, match=r"QEMU ended.*modules\.img"):
        asyncio.run(vm.up(vm.VmSpec(f"{NAME}-c"), told))
    assert is_gone(f"{NAME}-c")


@pytest.fixture
def booting() -> Iterator[subprocess.Popen[bytes]]:
    """A controller whose machine has a QEMU, and does not answer yet."""
    name = f"{NAME}-b"
    program = Path(sys.executable).parent / "headrace"
    argv = [str(program), "lab", "up", name, "--kernel", "6.1", "--disks", "2", "--memory", "512M"]
    with subprocess.Popen([*argv, "--nic-queues", str(SPEC.nic_queues)]) as process:
        folder = state.machine_folder(name)
        until(
            lambda: (found := state.read(folder)) and found.alive, process, limit_s=PATIENCE_S, pause_s=0.05
        )
        yield process
        process.kill()
    asyncio.run(vm.down(name))


def test_ctrl_c_while_it_boots_leaves_nothing(booting: subprocess.Popen[bytes]) -> None:
    booting.send_signal(signal.SIGINT)
    assert booting.wait(30) == 130
    assert is_gone(f"{NAME}-b")


def test_what_a_killed_controller_left_is_seen_and_removed(booting: subprocess.Popen[bytes]) -> None:
    name = f"{NAME}-b"
    found = status(name)
    assert found
    assert found["state"] == "booting"
    booting.kill()
    booting.wait()
    found = status(name)
    assert found
    assert found["state"] == "unfinished"
    assert processes.marked(state.machine_folder(name))
    assert lab("down", name).returncode == 0
    assert is_gone(name)
