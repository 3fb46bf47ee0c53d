"""Volumes as factors: device -> queue settings -> file system -> mount, and back without a trace.

Every step is journaled before it is done, and taking a volume down is just the rollback of its part of the
journal. So success, failure, Ctrl-C and ``kill -9`` all go through the same code.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from headrace.base.errors import HeadraceError, PlanError, TreatmentFailed
from headrace.base.model import Tool
from headrace.host.agent import Applied, Journal
from headrace.host.target import Target, to_the_end
from headrace.lab.volumes import directory, geometry
from headrace.lab.volumes.block import BLOCK
from headrace.lab.volumes.btrfs_raid import BTRFS_RAID
from headrace.lab.volumes.device import Device, DeviceKind, DeviceSpec, Raid, Site
from headrace.lab.volumes.filesystems import FILESYSTEMS, Filesystem, kernel_words
from headrace.lab.volumes.logged import LOGGED
from headrace.lab.volumes.loop import LOOP
from headrace.lab.volumes.mapped import DM_STRIPE, LVM
from headrace.lab.volumes.md import MD
from headrace.lab.volumes.zram import ZRAM

__all__ = [
    "DEVICES",
    "FILESYSTEMS",
    "MADE_OF_OTHERS",
    "Device",
    "DeviceSpec",
    "Raid",
    "Volume",
    "VolumeSpec",
    "check",
    "mounted",
    "required_tools",
]

#: The kinds of block device; ``directory`` is not one.
DEVICES: Mapping[str, DeviceKind] = {
    "loop": LOOP,
    "logged": LOGGED,
    "zram": ZRAM,
    "block": BLOCK,
    "md": MD,
    "lvm": LVM,
    "dm-stripe": DM_STRIPE,
    "btrfs-raid": BTRFS_RAID,
}

#: The kinds built from several devices.
MADE_OF_OTHERS = frozenset({"md", "lvm", "dm-stripe", "btrfs-raid"})

_MOUNT_TOOLS = (Tool("mount", "mount", ("--version",)), Tool("findmnt", "util-linux"))


@dataclass(frozen=True)
class VolumeSpec:
    """What to build. ``queue`` maps a file of ``/sys/block/<device>/queue`` to its value.

    ``filesystem_bytes`` is the size of a file system smaller than its device; 0: the whole device.
    """

    device: DeviceSpec
    filesystem: str
    mkfs_options: tuple[str, ...]
    mount_options: tuple[str, ...]
    queue: Mapping[str, str]
    filesystem_bytes: int = 0


@dataclass(frozen=True)
class Volume:
    """A mounted volume. ``options`` are the kernel's mount options, including defaults.

    ``aside`` is the path of a folder outside it, for what tools write about their work. It does not exist yet, and
    is removed with the volume, also after a crash.
    """

    path: str
    device: str | None
    settings: list[Applied]
    options: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    aside: str = ""


def required_tools(spec: VolumeSpec) -> tuple[Tool, ...]:
    """The programs that building ``spec`` needs on the target."""
    if spec.device.kind == "directory":
        return ()
    _must_be_known(spec)
    return (*DEVICES[spec.device.kind].tools, FILESYSTEMS[spec.filesystem].tool, *_MOUNT_TOOLS)


def check(spec: VolumeSpec) -> None:
    """Raise PlanError for a spec that is wrong on any host."""
    if spec.device.kind == "directory":
        settings = (spec.filesystem, *spec.mkfs_options, *spec.mount_options, *spec.queue)
        if any(settings):
            wrong = " ".join(filter(None, settings))
            raise PlanError(f"a directory has no file system, mount or queue of its own: {wrong}")
        return
    _must_be_known(spec)
    DEVICES[spec.device.kind].check(spec.device)
    if (spec.device.parents or spec.device.raid) and spec.device.kind not in MADE_OF_OTHERS:
        raise PlanError(
            f"a {spec.device.kind} device is not made of other devices",
            hint=f"volume.raid_* and stripe_cache are of volume.device = {' or '.join(sorted(MADE_OF_OTHERS))}",
        )
    if spec.device.kind == "btrfs-raid" and (spec.filesystem != "btrfs" or spec.filesystem_bytes):
        raise PlanError(
            "volume.device = 'btrfs-raid': only btrfs spreads over several devices, and takes all of them",
            hint='volume.filesystem = "btrfs", without volume.filesystem_size',
        )
    if spec.filesystem == "btrfs" and "read_ahead_kb" in spec.queue:
        raise PlanError(
            "volume.read_ahead_kb: btrfs reads ahead by a setting of its own and ignores the queue's",
            hint="leave it out for btrfs",
        )
    for name in spec.queue:
        if not re.fullmatch(r"[a-z_]+(/[a-z_]+)?", name):
            raise PlanError(
                f"volume.{name}: not the name of a queue setting", hint="such as volume.scheduler"
            )


def _must_be_known(spec: VolumeSpec) -> None:
    for name, value, known in (
        ("volume.device", spec.device.kind, (*DEVICES, "directory")),
        ("volume.filesystem", spec.filesystem, FILESYSTEMS),
    ):
        if value not in known:
            raise PlanError(f"{name} = {value!r}: must be one of {', '.join(known)}")


@contextlib.asynccontextmanager
async def mounted(
    target: Target, journal: Journal, spec: VolumeSpec, scratch: str, name: str
) -> AsyncIterator[Volume]:
    """A volume, for as long as the context lasts; afterwards the host is as it was before.

    It is mounted at ``<scratch>/<name>``; a loop device's file lies beside it. ``scratch`` is made if need be
    and stays. The journal entries belong to ``<owner>/<name>``.

    Raises PlanError, Refused (a device that is not ours to take, a setting the kernel does not accept),
    DiskFull, NotReady, TreatmentFailed (mkfs, mount), CommandFailed, and HeadraceError when the host could not be
    restored.
    """
    check(spec)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise PlanError(f"{name!r}: not a valid volume name")
    made = await target.run(["sh", "-c", 'mkdir -p -- "$0" && cd -- "$0" && pwd -P', scratch])
    part = journal.part(name)
    site = Site(target, part, made.text.removesuffix("\n"), name)
    try:
        aside = f"{site.folder}/{name}.aside"
        await site.record(
            {"kind": "process", "mark": part.owner},
            {"kind": "scratch", "path": site.folder},
            {"kind": "remove", "path": aside},
        )
        yield replace(await _build(site, spec), aside=aside)
    except BaseException as error:
        try:
            await to_the_end(_take_down(part))
        except HeadraceError as failure:
            # Raise the first error; the rest is in the journal for the next rollback.
            error.add_note(str(failure))
        raise
    await to_the_end(_take_down(part))


async def _build(site: Site, spec: VolumeSpec) -> Volume:
    if spec.device.kind == "directory":
        return Volume(await directory.make(site), None, [])
    kind, filesystem = DEVICES[spec.device.kind], FILESYSTEMS[spec.filesystem]
    device = await kind.attach(site, spec.device)
    settings = await _set_queue(site, device, spec.queue)
    argv = filesystem.mkfs_argv(device, spec.mkfs_options, spec.filesystem_bytes)
    made = await site.run(argv, check=False)
    if made.exit_code != 0:
        raise TreatmentFailed(
            f"`{shlex.join(argv)}` ended with exit code {made.exit_code}: {reason_of(made.error_text)}",
            place=site.target.name,
        )
    path = await _mount(site, device, spec, filesystem)
    answer = await site.run(
        ["findmnt", "--kernel", "--noheadings", "--raw", "--output", "OPTIONS", "--mountpoint", path]
    )
    options = tuple(answer.text.strip().split(","))
    if not geometry.is_set_by(spec.mkfs_options) and not geometry.is_set_by(spec.mount_options):
        wrong = await geometry.mismatch(site, device, spec.filesystem, options)
        site.warnings.extend([wrong] if wrong else [])
    return Volume(path, device.path, settings, options, tuple(site.warnings))


async def _set_queue(site: Site, device: Device, queue: Mapping[str, str]) -> list[Applied]:
    if not queue:
        return []
    # A new scheduler resets nr_requests and others, and max_sectors_kb the read-ahead.
    names = sorted(queue, key=lambda name: (name != "scheduler", name == "read_ahead_kb"))
    return await site.journal.apply(
        {f"/sys/block/{of}/queue/{name}": queue[name] for name in names for of in _queues(device, name)}
    )


def reason_of(text: str) -> str:
    """What mkfs said, without how it is used, which mkfs.xfs and others print behind the reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    usage = next((i for i, line in enumerate(lines) if line.lower().startswith("usage:")), len(lines))
    return "; ".join((lines[:usage] or lines)[-4:])


def _queues(device: Device, setting: str) -> list[str]:
    """The devices whose queues a setting is for. An array has no requests: they are queued in its members. But
    read-ahead is a setting of the array.
    """
    if not device.members or (setting == "read_ahead_kb" and not device.others):
        return [device.kernel_name]
    return [path.removeprefix("/dev/") for path in device.members]


async def _mount(site: Site, device: Device, spec: VolumeSpec, filesystem: Filesystem) -> str:
    path = f"{site.folder}/{site.name}"
    await site.record({"kind": "remove", "path": path}, {"kind": "mount", "path": path})
    await site.run(["mkdir", path])
    # Without udev, the kernel has to be told about the other devices of a file system.
    wanted = [*spec.mount_options, *(f"device={path}" for path in device.others)]
    options = ["-o", ",".join(wanted)] if wanted else []
    before = await site.run(["dmesg"], check=False)
    answer = await site.run(["mount", "-t", spec.filesystem, *options, device.path, path], check=False)
    if answer.exit_code != 0:
        after = await site.run(["dmesg"], check=False)
        # mount itself only says "wrong fs type, bad option, bad superblock"; the kernel knows which.
        words = kernel_words(before.text, after.text, spec.filesystem, device.kernel_name)
        words = words or answer.error_text.strip()
        raise TreatmentFailed(
            f"{spec.filesystem} does not mount with {','.join(spec.mount_options) or 'its defaults'}: {words}",
            place=site.target.name,
            hint=filesystem.trap(spec.mount_options),
        )
    return path


async def _take_down(part: Journal) -> None:
    failed = [undone for undone in await part.rollback() if undone.error]
    if failed:
        raise HeadraceError(
            "; ".join(f"{undone.what}: {undone.error}" for undone in failed),
            place="restoring the host",
            hint="fix the cause; the journal still has the entry, and the next rollback tries again",
        )
