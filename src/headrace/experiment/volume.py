"""The volume to build for a treatment: its settings over the plan's ``[volume]``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.base.errors import PlanError, Refused
from headrace.base.model import Treatment, Value
from headrace.experiment.plan import Plan, VolumeTable, size_in_bytes
from headrace.experiment.workloads.power_cut import ONE_ONLY, PowerCut
from headrace.lab import volumes
from headrace.lab.volumes import DeviceSpec, Raid, VolumeSpec

#: Default number of loop devices: enough for every level.
DEFAULT_LOOPS = 4

_RAID = ("raid_level", "raid_chunk", "raid_devices", "raid_bitmap", "stripe_cache", "initial_sync")

#: Kinds with only one level; for the others a plan sets it.
_ONLY_LEVEL = {"lvm": 0, "dm-stripe": 0}


def spec_of(table: VolumeTable, treatment: Treatment) -> VolumeSpec:
    """The volume of a treatment, with defaults from the ``table``, ``[volume]``.

    Raises Refused for a device that the plan does not list, PlanError for inconsistent settings.
    """
    own = {k.removeprefix("volume."): v for k, v in treatment.settings.items() if k.startswith("volume.")}
    kind = str(own.pop("device", table.device))
    identity = ""
    if kind.startswith("/dev/"):
        kind, identity = "block", kind
        if identity not in table.devices:
            raise Refused(
                f"{identity} is not listed in volume.devices: its content would be lost",
                hint=f'if you want this: [volume] devices = ["{identity}"]',
            )
    elif kind == "block":
        identity = _only_disk(table)
    raid = {name: own.pop(name) for name in _RAID if name in own}
    filesystem = str(own.pop("filesystem", "btrfs" if kind == "btrfs-raid" else "xfs"))
    filesystem_size = str(own.pop("filesystem_size", "0"))
    mkfs_options = _words(own.pop("mkfs_options", []))
    mount_options = _words(own.pop("mount_options", []))
    if kind in volumes.MADE_OF_OTHERS:
        device = _of_others(table, kind, raid)
    elif raid:
        names = ", ".join(f"volume.{name} = {value}" for name, value in raid.items())
        raise PlanError(
            f"{names}: a {kind} volume is one device",
            hint=f"volume.device = {' or '.join(sorted(volumes.MADE_OF_OTHERS))}",
        )
    else:
        device = DeviceSpec(kind=kind, size_bytes=size_in_bytes(table.size), id=identity)
    if kind == "directory":
        return VolumeSpec(device, "", (), (), {})
    queue = {name: str(value) for name, value in own.items()}
    size_bytes = size_in_bytes(filesystem_size)
    return VolumeSpec(device, filesystem, mkfs_options, mount_options, queue, size_bytes)


def check(plan: Plan, treatment: Treatment) -> None:
    """Raise PlanError, before anything runs, for devices that cannot be combined as the treatment requires."""
    kind = str(treatment.settings.get("volume.device", plan.volume.device))
    if plan.workload.kind == PowerCut.kind:
        _check_cuts(kind, treatment)
    has_raid = any(f"volume.{name}" in treatment.settings for name in _RAID)
    if kind not in (*volumes.MADE_OF_OTHERS, "block") and not has_raid:
        return
    try:
        volumes.check(spec_of(plan.volume, treatment))
    except PlanError as error:
        hint = error.hint or _way_out(plan, treatment, error.message)
        raise PlanError(f"{error.message}, in {treatment.name}", hint=hint) from error


def _check_cuts(kind: str, treatment: Treatment) -> None:
    """What a power cut leaves is made of the log of a volume, and mounted beside it."""
    if kind != "logged":
        raise PlanError(
            f"volume.device = {kind!r} in {treatment.name}: power cuts need a volume whose writes are logged",
            hint='[volume] device = "logged"',
        )
    if (filesystem := treatment.settings.get("volume.filesystem")) in ONE_ONLY:
        raise PlanError(
            f"volume.filesystem = {filesystem!r} in {treatment.name}: the kernel cannot mount what a power cut "
            "leaves beside the volume, because both have one identity",
            hint="ext4 or xfs",
        )


def _only_disk(table: VolumeTable) -> str:
    """The disk of a ``block`` volume: the only one that is listed."""
    if len(table.devices) != 1:
        raise PlanError(
            f"volume.device = block: [volume] devices must list one disk, and lists {len(table.devices)}",
            hint='volume.device = "/dev/disk/by-id/..." names the one that is meant',
        )
    return table.devices[0]


def _of_others(table: VolumeTable, kind: str, raid: Mapping[str, Value]) -> DeviceSpec:
    size_bytes = size_in_bytes(table.size)
    if table.raid_over == "loop":
        count = int(str(raid.get("raid_devices", DEFAULT_LOOPS)))
        parents = tuple(DeviceSpec("loop", size_bytes, "") for _ in range(count))
    else:
        count = int(str(raid.get("raid_devices", len(table.devices))))
        if count > len(table.devices):
            raise PlanError(
                f"volume.raid_devices = {count}: [volume] devices lists {len(table.devices)}",
                hint='list that many, by /dev/disk/by-id/..., or test with raid_over = "loop"',
            )
        parents = tuple(DeviceSpec("block", size_bytes, identity) for identity in table.devices[:count])
    return DeviceSpec(kind, size_bytes, "", parents, _raid(kind, raid))


def _raid(kind: str, raid: Mapping[str, Value]) -> Raid | None:
    level = raid.get("raid_level", _ONLY_LEVEL.get(kind))
    if level is None:
        return None
    return Raid(
        level=int(str(level)),
        chunk_bytes=size_in_bytes(str(raid.get("raid_chunk", "0"))),
        bitmap=str(raid.get("raid_bitmap", "")),
        stripe_cache=int(str(raid.get("stripe_cache", 0))),
        initial_sync=str(raid.get("initial_sync", "")),
    )


def _way_out(plan: Plan, treatment: Treatment, message: str) -> str | None:
    """How to exclude combinations that cannot exist, in the plan's syntax."""
    named = re.match(r"volume\.\w+", message)
    if not named:
        return None
    levels = {
        factor: treatment.levels[factor]
        for factor, table in plan.factors.items()
        if factor in treatment.levels and _sets(table.knob, table.levels, (named[0], "volume.raid_level"))
    }
    if named[0] in plan.base:
        return f"set {named[0]} in the levels that have one, instead of [base]"
    if len(levels) < 2:
        return None
    pairs = ", ".join(f'{factor} = "{level}"' for factor, level in levels.items())
    return f"exclude the combination: [design] exclude = [{{ {pairs} }}]"


def _sets(knob: str | None, levels: object, names: tuple[str, ...]) -> bool:
    if knob is not None:
        return knob in names
    settings = levels.values() if isinstance(levels, dict) else ()
    return any(name in setting for setting in settings if isinstance(setting, dict) for name in names)


def _size(text: str) -> int:
    """A knob's size in bytes, already validated by its definition."""
    return size_in_bytes(text)


def _words(value: Value) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(value)
    return tuple(str(value).split(",")) if value else ()
