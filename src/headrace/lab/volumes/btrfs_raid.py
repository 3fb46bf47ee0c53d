"""Several devices under one btrfs, which does the RAID itself: there is no device above them."""

from __future__ import annotations

import uuid

from headrace.base.model import Tool
from headrace.lab.volumes import members
from headrace.lab.volumes.block import BLOCK
from headrace.lab.volumes.device import Device, DeviceSpec, Site
from headrace.lab.volumes.loop import LOOP

#: Its RAID 5 and 6 can lose data written during a crash: btrfs(5).
LEVELS = (0, 1, 10)


class BtrfsRaid:
    tools: tuple[Tool, ...] = (*BLOCK.tools, *LOOP.tools)

    def check(self, spec: DeviceSpec) -> None:
        members.refuse(members.check(spec, LEVELS), spec.kind, "chunk_bytes", "bitmap", "initial_sync")

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a btrfs over several devices")
        assert spec.raid is not None  # members.check
        own = str(uuid.uuid4())
        paths = await members.take(site, spec.parents, [own] * len(spec.parents))
        return Device(
            paths[0],
            uuid=own,
            discard=members.may_discard(spec.parents),
            members=paths,
            others=paths[1:],
            # At least two copies of metadata, the default of mkfs.btrfs for several devices.
            mkfs_options=("-d", f"raid{spec.raid.level}", "-m", f"raid{spec.raid.level or 1}"),
        )


BTRFS_RAID = BtrfsRaid()
