"""A real block device, whose content is lost. Used only if it is free: see ``must_be_free``."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import DiskFull, PlanError, Refused
from headrace.base.model import Tool
from headrace.lab.volumes.device import Device, DeviceSpec, Site, size_text

STABLE = "/dev/disk/by-id/"


class Block:
    tools: tuple[Tool, ...] = (
        Tool("lsblk", "util-linux", ("--version",)),
        Tool("wipefs", "util-linux", ("--version",)),
    )

    def check(self, spec: DeviceSpec) -> None:
        """The caller checks that the plan lists the device; this checks that the name is stable."""
        if not spec.id.startswith(STABLE) or "/" in spec.id.removeprefix(STABLE):
            raise PlanError(
                f"{spec.id!r} is not a stable device name: after a reboot it may be another disk",
                hint=f"name it as in {STABLE}",
            )

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a block device")
        path = (await must_be_free(site, spec)).path
        mark = str(uuid.uuid4())
        # The agent checks again, with an exclusive open, before it journals, and refuses what was missed here.
        await site.record({"kind": "wipe", "device": spec.id, "uuid": mark})
        return Device(path, uuid=mark)


@dataclass(frozen=True)
class Free:
    """An unused device: its current path, and its size."""

    path: str
    size_bytes: int


async def must_be_free(site: Site, spec: DeviceSpec) -> Free:
    """The device as it is now. Raises Refused unless nothing on the host uses it and it carries no signature."""
    path = (await site.run(["readlink", "--canonicalize", spec.id])).text.strip()
    columns = "NAME,TYPE,MOUNTPOINTS,RO,SIZE"
    answer = await site.run(["lsblk", "--json", "--bytes", "--output", columns, path], check=False)
    if answer.exit_code != 0:
        is_there = await site.target.exists(spec.id)
        raise Refused(
            f"{path} is not a block device" if is_there else "there is no such device", place=spec.id
        )
    device: dict[str, Any] = json.loads(answer.text)["blockdevices"][0]
    mounts = ", ".join(point for point in device["mountpoints"] if point)
    children = ", ".join(f"{child['name']} ({child['type']})" for child in device.get("children", ()))
    signatures = await site.run(["wipefs", "--no-act", "--noheadings", "--output", "TYPE,LABEL,UUID", path])
    for wrong, reason in (
        (device["type"] == "part", "is a partition: its queue is shared with the rest of the disk"),
        (device["ro"], "is read-only"),
        (mounts, f"is in use: {mounts}"),
        (children, f"has something on it: {children}"),
        (signatures.text.strip(), f"carries a signature: {' '.join(signatures.text.split())}"),
    ):
        if wrong:
            raise Refused(
                f"{path} {reason}",
                place=spec.id,
                hint="only an empty device that is not in use can be used",
            )
    if device["size"] < spec.size_bytes:
        sizes = f"{size_text(device['size'])}, and the plan asks for {size_text(spec.size_bytes)}"
        raise DiskFull(f"{path} has {sizes}", place=spec.id)
    return Free(path, int(device["size"]))


BLOCK = Block()
