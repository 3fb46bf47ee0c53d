"""Volumes on the real kernel: built, read back, and gone without a trace however the trial ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import (
    CommandFailed,
    DiskFull,
    HeadraceError,
    NotReady,
    PlanError,
    Refused,
)
from headrace.host.agent import Agent, Journal
from headrace.host.target import Completed
from headrace.host.target.local import LocalTarget
from headrace.lab.volumes import (
    DEVICES,
    FILESYSTEMS,
    Device,
    DeviceSpec,
    Raid,
    VolumeSpec,
    check,
    mounted,
    required_tools,
)
from headrace.lab.volumes.filesystems import kernel_words
from tests.traces import loops_below

SIZE_BYTES = 512 * 2**20
OWNER = f"volumes-{os.getpid()}"


def loop_spec(
    filesystem: str = "ext4",
    *,
    mkfs: Sequence[str] = (),
    options: Sequence[str] = (),
    queue: Mapping[str, str] | None = None,
    size_bytes: int = SIZE_BYTES,
) -> VolumeSpec:
    device = DeviceSpec("loop", size_bytes, "")
    return VolumeSpec(device, filesystem, tuple(mkfs), tuple(options), queue or {})


DIRECTORY = VolumeSpec(DeviceSpec("directory", 0, ""), "", (), (), {})


class Lab:
    """This machine, a scratch folder and a journal of the test's own."""

    def __init__(self, target: LocalTarget, journal: Journal, folder: Path) -> None:
        self.target = target
        self.journal = journal
        self.folder = folder
        self.scratch = str(folder / "scratch")

    def mounted(self, spec: VolumeSpec, target: LocalTarget | None = None) -> Any:
        return mounted(target or self.target, self.journal, spec, self.scratch, "vol")

    def traces(self) -> list[str]:
        """What is left on the machine of any volume below the test's folder."""
        found = [str(path) for path in (self.folder / "scratch").glob("*")]
        found += loops_below(self.folder)
        found += [
            line for line in Path("/proc/self/mountinfo").read_text().splitlines() if self.scratch in line
        ]
        return found


def output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def queue_settings() -> dict[str, str]:
    """Of the loop devices that nobody uses. Without what the kernel sets anew whenever one is attached."""
    names = ("scheduler", "nr_requests", "wbt_lat_usec", "rq_affinity", "nomerges")
    free = [path for path in Path("/sys/block").glob("loop*") if not (path / "loop").exists()]
    files = [folder / "queue" / name for folder in free for name in names]
    return {str(file): file.read_text() for file in files if file.exists()}


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    target = LocalTarget()
    await target.connect()
    journal = Journal(await Agent.install(target), OWNER, str(tmp_path / "state"))
    lab = Lab(target, journal, tmp_path)
    before = queue_settings()
    yield lab
    # Everything is undone, then judged, so that one failing test does not make others fail.
    left = (lab.traces(), await journal.entries())
    await journal.rollback(everyone=True)
    after = queue_settings()
    await target.close()
    assert left == ([], [])
    both = before.keys() & after.keys()
    assert {file: after[file] for file in both} == {file: before[file] for file in both}


# What holds on any machine


def test_a_directory_takes_no_settings() -> None:
    check(DIRECTORY)
    assert required_tools(DIRECTORY) == ()
    for wrong in (
        VolumeSpec(DIRECTORY.device, "xfs", (), (), {}),
        VolumeSpec(DIRECTORY.device, "", (), ("noatime",), {}),
        VolumeSpec(DIRECTORY.device, "", (), (), {"scheduler": "none"}),
    ):
        with pytest.raises(PlanError, match="a directory has no"):
            check(wrong)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            VolumeSpec(DeviceSpec("floppy", 1, ""), "xfs", (), (), {}),
            "loop, logged, zram, block, md, lvm, dm-stripe, btrfs-raid, directory",
        ),
        (loop_spec("zfs"), "'zfs': must be one of xfs, ext4, btrfs"),
        (loop_spec(size_bytes=0), "needs a size"),
        (loop_spec(queue={"../../vda/queue/scheduler": "none"}), "not the name of a queue setting"),
        (VolumeSpec(DeviceSpec("block", 0, "/dev/sdb"), "xfs", (), (), {}), "not a stable device name"),
        (
            VolumeSpec(DeviceSpec("block", 0, "/dev/disk/by-id/../sdb"), "xfs", (), (), {}),
            "not a stable device name",
        ),
        (VolumeSpec(DeviceSpec("loop", 1, "", (DIRECTORY.device,)), "xfs", (), (), {}), "not made of"),
    ],
)
def test_a_wrong_spec_is_told_before_anything_happens(spec: VolumeSpec, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(spec)


def test_each_program_that_is_needed_has_its_package() -> None:
    for filesystem in FILESYSTEMS:
        for kind in DEVICES:
            tools = required_tools(VolumeSpec(DeviceSpec(kind, 0, ""), filesystem, (), (), {}))
            assert f"mkfs.{filesystem}" in [tool.program for tool in tools]
            assert all(tool.package for tool in tools)


def test_options_of_the_plan_join_ours() -> None:
    argv = FILESYSTEMS["ext4"].mkfs_argv(
        Device("/dev/x", "U-U", discard=False), ["-E", "stride=4", "-O ^has_journal"]
    )
    joined = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,stride=4"
    assert argv[-3:] == ["-E", joined, "/dev/x"]
    assert argv.count("-E") == 1
    assert argv[argv.index("-U") :][:2] == ["-U", "U-U"]
    assert argv[argv.index("-O") :][:2] == ["-O", "^has_journal"]
    assert "nodiscard" not in " ".join(FILESYSTEMS["ext4"].mkfs_argv(Device("/dev/x"), []))
    assert "uuid=U-U" in FILESYSTEMS["xfs"].mkfs_argv(Device("/dev/x", "U-U"), ["-d", "su=64k,sw=4"])


def test_the_kernels_words_are_those_about_this_mount() -> None:
    before = "[  1.0] boot\n[  2.5] EXT4-fs (loop0): mounted\n"
    news = "[  3.0] usb 1-1: new device\n[  3.1] xfs: Unknown parameter 'nobarrier'\n[  3.2] XFS (loop1): x\n"
    assert kernel_words(before, before + news, "xfs", "loop0") == "xfs: Unknown parameter 'nobarrier'"
    assert kernel_words(before, before + news, "xfs", "loop1").endswith("; XFS (loop1): x")
    assert kernel_words("", "", "xfs", "loop0") == ""
    # The log is a ring: its first lines may be gone.
    assert kernel_words(before, "[  2.5] EXT4-fs (loop0): mounted\n" + news, "xfs", "loop9") != ""
    assert kernel_words(before, before, "ext4", "loop0") == ""


# What a volume is


async def test_a_directory_is_an_ordinary_folder(lab: Lab) -> None:
    async with lab.mounted(DIRECTORY) as volume:
        assert volume.device is None
        (Path(volume.path) / "file").write_text("x")
    assert lab.traces() == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (loop_spec("xfs", options=["noatime", "logbsize=256k"]), {"rw", "noatime", "logbsize=256k"}),
        (loop_spec("ext4", options=["data=ordered"]), {"relatime", "data=ordered"}),
        (loop_spec("ext4", options=["data=journal"], mkfs=["-E stride=4"]), {"data=journal", "stripe=4"}),
        (loop_spec("btrfs", options=["nodatacow", "noatime"]), {"nodatacow", "noatime"}),
    ],
    ids=["xfs", "ext4-ordered", "ext4-journal", "btrfs"],
)
async def test_a_loop_volume_is_what_was_asked_for(lab: Lab, spec: VolumeSpec, expected: set[str]) -> None:
    async with lab.mounted(spec) as volume:
        assert expected <= set(volume.options)
        assert volume.warnings == ()
        name = volume.device.removeprefix("/dev/")
        assert Path(f"/sys/block/{name}/loop/dio").read_text() == "1\n"
        image = Path(f"{lab.scratch}/vol.img").stat()
        assert image.st_blocks * 512 >= SIZE_BYTES, "the room of the file is not reserved"
        (Path(volume.path) / "file").write_bytes(os.urandom(2**20))
    assert lab.traces() == []


@pytest.mark.parametrize("level", [0, 1])
async def test_btrfs_over_several_devices(lab: Lab, level: int) -> None:
    """The one kind of several devices that needs neither md nor dm."""
    loops = tuple(DeviceSpec("loop", SIZE_BYTES // 2, "") for _ in range(3))
    spec = VolumeSpec(DeviceSpec("btrfs-raid", 0, "", loops, Raid(level)), "btrfs", (), (), {})
    async with lab.mounted(spec) as volume:
        shown = output("btrfs", "filesystem", "df", volume.path)
        assert f"Data, RAID{level}:" in shown
        assert output("btrfs", "filesystem", "show", volume.path).count("devid") == len(loops)
        (Path(volume.path) / "file").write_bytes(os.urandom(2**20))
    assert lab.traces() == []


@pytest.mark.path
async def test_queue_settings_are_applied_and_restored(lab: Lab) -> None:
    queue = {"nr_requests": "64", "scheduler": "mq-deadline", "read_ahead_kb": "16"}
    async with lab.mounted(loop_spec(queue=queue)) as volume:
        folder = f"/sys/block/{volume.device.removeprefix('/dev/')}/queue"
        assert [applied.after for applied in volume.settings] == ["mq-deadline", "64", "16"]
        assert "[mq-deadline]" in Path(f"{folder}/scheduler").read_text()
        assert Path(f"{folder}/nr_requests").read_text() == "64\n"
    assert "[none]" in Path(f"{folder}/scheduler").read_text()
    assert Path(f"{folder}/nr_requests").read_text() == "128\n"
    assert Path(f"{folder}/read_ahead_kb").read_text() == f"{volume.settings[2].before}\n"


@pytest.mark.needs("zram")
async def test_a_zram_volume_is_a_device_of_its_own(lab: Lab) -> None:
    before = sorted(os.listdir("/sys/block"))
    spec = VolumeSpec(DeviceSpec("zram", SIZE_BYTES, ""), "xfs", (), (), {})
    async with lab.mounted(spec) as volume:
        name = volume.device.removeprefix("/dev/")
        assert name not in before
        assert Path(f"/sys/block/{name}/disksize").read_text() == f"{SIZE_BYTES}\n"
    assert sorted(os.listdir("/sys/block")) == before
    huge = VolumeSpec(DeviceSpec("zram", 2**50, ""), "xfs", (), (), {})
    with pytest.raises(DiskFull, match=r"1048576\.0 GiB may not fit"):
        async with lab.mounted(huge):
            pass


class NoDirect(LocalTarget):
    """A losetup that cannot do direct I/O and fails, as some do."""

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if "--direct-io=on" in argv:
            return Completed(tuple(argv), 1, b"", b"losetup: set direct io failed: Invalid argument")
        return await super().run(argv, **options)


async def test_a_scratch_folder_that_cannot_do_all_is_a_warning(lab: Lab) -> None:
    """ext2 cannot reserve the room of a file."""
    outer = lab.folder / "outer.img"
    output("truncate", "--size", str(SIZE_BYTES), str(outer))
    device = output("losetup", "--find", "--show", str(outer))
    output("mkfs.ext2", "-q", device)
    Path(lab.scratch).mkdir()
    output("mount", device, lab.scratch)
    (Path(lab.scratch) / "lost+found").rmdir()
    try:
        async with lab.mounted(loop_spec(size_bytes=SIZE_BYTES // 2), NoDirect()) as volume:
            assert "cannot reserve space" in volume.warnings[0]
            assert "no direct I/O" in volume.warnings[1]
    finally:
        output("umount", lab.scratch)
        output("losetup", "--detach", device)


async def test_a_disk_that_is_too_small_is_told_with_numbers(lab: Lab) -> None:
    with pytest.raises(DiskFull, match=r"a volume of 4096\.0 GiB does not fit: \d+\.\d GiB free"):
        async with lab.mounted(loop_spec(size_bytes=2**42)):
            pass


async def test_without_root_a_loop_volume_is_not_ready(lab: Lab) -> None:
    lab.target.is_root = False
    with pytest.raises(NotReady, match="needs root"):
        async with lab.mounted(loop_spec()):
            pass


# What fails leaves no trace


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (loop_spec("ext4", mkfs=["-O", "flying"]), CommandFailed, "Invalid filesystem option set: flying"),
        (loop_spec("xfs", options=["nobarrier"]), CommandFailed, "xfs: Unknown parameter 'nobarrier'"),
        (
            loop_spec("ext4", options=["data=journal", "delalloc"]),
            CommandFailed,
            "both data=journal and delalloc",
        ),
        (loop_spec("btrfs", options=["wings=2"]), CommandFailed, "btrfs: Unknown parameter 'wings'"),
        (loop_spec(queue={"scheduler": "cfq"}), Refused, "accepted: none mq-deadline"),
        (loop_spec(queue={"nr_wishes": "3"}), Refused, "no such setting"),
    ],
)
async def test_a_treatment_that_fails_says_why_and_leaves_no_trace(
    lab: Lab, spec: VolumeSpec, error: type[HeadraceError], message: str
) -> None:
    with pytest.raises(error) as caught:
        async with lab.mounted(spec):
            pass
    assert message in caught.value.message
    assert lab.traces() == []
    if "nobarrier" in spec.mount_options:
        assert "4.19" in (caught.value.hint or "")


class Interrupting(LocalTarget):
    """Cancels a task once command number ``at`` is under way."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self.commands = 0
        self.victim: asyncio.Task[None] | None = None

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.commands += 1
        if self.commands == self._at and self.victim:
            asyncio.get_running_loop().call_later(random.uniform(0, 0.005), self.victim.cancel)
        return await super().run(argv, **options)


async def test_cancelled_during_any_command_nothing_is_left(lab: Lab) -> None:
    async def build(target: LocalTarget) -> None:
        spec = loop_spec(queue={"scheduler": "mq-deadline"})
        journal = Journal(await Agent.install(target), OWNER, str(lab.folder / "state"))
        async with mounted(target, journal, spec, lab.scratch, "vol"):
            pass

    counting = Interrupting(0)
    await build(counting)
    cancelled = 0
    for at in range(1, counting.commands + 1):
        target = Interrupting(at)
        target.victim = asyncio.create_task(build(target))
        await asyncio.wait([target.victim])
        # The last command may end before the cancellation comes.
        cancelled += target.victim.cancelled()
        assert target.victim.cancelled() or target.victim.exception() is None
        assert lab.traces() == []
        assert await lab.journal.entries() == []
    assert cancelled >= counting.commands - 1


#: Builds a volume, lets a tool write beside it, and is killed while command number AT is under way.
KILLED = """
import asyncio, os, signal, sys
from headrace.host.agent import Agent, Journal
from headrace.host.target import scratch_folder
from headrace.host.target.local import LocalTarget
from headrace.lab.volumes import DeviceSpec, VolumeSpec, mounted
scratch, state, owner, at, delay = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
class Target(LocalTarget):
    commands = 0
    async def run(self, argv, **options):
        Target.commands += 1
        if Target.commands == at:
            asyncio.get_running_loop().call_later(delay, os.kill, os.getpid(), signal.SIGKILL)
        return await super().run(argv, **options)
async def main():
    target = Target()
    journal = Journal(await Agent.install(target), owner, state)
    spec = VolumeSpec(DeviceSpec("loop", 512 * 2**20, ""), "ext4", (), (), {"scheduler": "mq-deadline"})
    async with mounted(target, journal, spec, scratch, "vol") as volume:
        async with scratch_folder(target, volume.aside) as folder:
            await target.run(["touch", f"{folder}/words"])
    print(Target.commands)
asyncio.run(main())
"""


async def test_killed_during_any_command_a_rollback_leaves_nothing(lab: Lab) -> None:
    def controller(at: int) -> subprocess.CompletedProcess[str]:
        arguments = [lab.scratch, str(lab.folder / "state"), OWNER, str(at), str(random.uniform(0, 0.01))]
        return subprocess.run(
            [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False
        )

    whole = await asyncio.to_thread(controller, 0)
    assert whole.returncode == 0, whole.stderr
    dirty = 0
    for at in range(1, int(whole.stdout) + 1):
        killed = await asyncio.to_thread(controller, at)
        # The last command may end before the kill comes.
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
        dirty += bool(lab.traces())
        undone = await lab.journal.rollback()
        assert [u for u in undone if u.error] == []
        assert lab.traces() == []
        assert await lab.journal.entries() == []
    assert dirty > 3, "nothing was built when the controller was killed: this tested nothing"


# A real device, for which a loop device with a stable name stands in


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A stable name and the device behind it."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    path = output("losetup", "--find", "--show", "--partscan", str(image))
    folder = Path("/dev/disk/by-id")
    made = [folder_ for folder_ in (folder, folder.parent) if not folder_.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / f"headrace-{os.getpid()}"
    name.symlink_to(path)
    yield str(name), path
    name.unlink()
    for folder_ in made:
        folder_.rmdir()
    output("losetup", "--detach", path)
    image.unlink()


def block_spec(name: str, size_bytes: int = 0, options: Sequence[str] = ()) -> VolumeSpec:
    device = DeviceSpec("block", size_bytes, name)
    return VolumeSpec(device, "ext4", (), tuple(options), {"scheduler": "mq-deadline"})


def signatures(path: str) -> str:
    return output("wipefs", "--no-act", path)


async def refusal(lab: Lab, name: str, kind: type[HeadraceError] = Refused, size_bytes: int = 0) -> str:
    with pytest.raises(kind) as caught:
        async with lab.mounted(block_spec(name, size_bytes)):
            pass
    return caught.value.message


async def test_an_empty_device_is_used_and_wiped(lab: Lab, disk: tuple[str, str]) -> None:
    name, path = disk
    async with lab.mounted(block_spec(name)) as volume:
        assert volume.device == path
        assert "ext4" in signatures(path)
        (Path(volume.path) / "file").write_text("x")
    assert signatures(path) == ""
    with pytest.raises(CommandFailed, match="wings"):
        async with lab.mounted(block_spec(name, options=["wings=2"])):
            pass
    assert signatures(path) == ""
    # Our parent's traces() knows the image by its folder.
    assert lab.traces() == [path.removeprefix("/dev/")]


async def test_a_device_that_is_somebodys_is_refused_with_the_reason(
    lab: Lab, disk: tuple[str, str], tmp_path: Path
) -> None:
    name, path = disk
    descriptor = os.open(path, os.O_RDONLY | os.O_EXCL)
    assert "is in use" in await refusal(lab, name)
    os.close(descriptor)
    assert "asks for 1.0 GiB" in await refusal(lab, name, DiskFull, 2**30)
    assert "no such device" in await refusal(lab, f"{name}-gone")

    # One partition of type Linux over most of the disk, in the fewest bytes.
    entry = bytes.fromhex("00000000 83 000000 00080000 00f80700")
    Path(path).write_bytes(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    output("partx", "--update", path)
    assert "p1 (part)" in await refusal(lab, name)
    output("partx", "--delete", path)
    assert "carries a signature: dos" in await refusal(lab, name)
    output("wipefs", "--all", path)

    output("mkfs.ext4", "-q", "-L", "precious", path)
    before = signatures(path)
    assert "carries a signature: ext4 precious" in await refusal(lab, name)
    point = tmp_path / "m"
    point.mkdir()
    output("mount", path, str(point))
    try:
        assert f"is in use: {point}" in await refusal(lab, name)
    finally:
        output("umount", str(point))
    point.rmdir()
    assert signatures(path) == before

    output("wipefs", "--all", path)
    output("mkswap", path)
    assert "carries a signature: swap" in await refusal(lab, name)
    output("wipefs", "--all", path)
    assert await lab.journal.entries() == []
