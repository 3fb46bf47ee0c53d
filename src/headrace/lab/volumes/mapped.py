"""Stripes of the device mapper: a striped LVM volume, or plain dm-stripe. Identified by a unique name."""

from __future__ import annotations

import secrets
import string
import uuid
from collections.abc import Sequence

from headrace.base.errors import CommandFailed, DiskFull, TreatmentFailed
from headrace.base.model import Tool
from headrace.lab.volumes import members
from headrace.lab.volumes.block import BLOCK
from headrace.lab.volumes.device import Device, DeviceSpec, Site, Stripe
from headrace.lab.volumes.loop import LOOP

#: LVM's default stripe size.
DEFAULT_CHUNK_BYTES = 64 * 1024

_SECTOR_BYTES = 512
_DRIVER = ("/sys/class/misc/device-mapper", "dm_mod")
_DMSETUP = Tool("dmsetup", "dmsetup", ("--version",))

#: LVM's archive of what was and its list of devices know nothing of a volume that lives as long as a trial.
_LVM_CONFIG = "devices{use_devicesfile=0} backup{backup=0 archive=0}"


class DmStripe:
    """It writes nothing to the devices, so only the file system is wiped off them."""

    tools: tuple[Tool, ...] = (_DMSETUP, Tool("blockdev", "util-linux"), *BLOCK.tools, *LOOP.tools)

    def check(self, spec: DeviceSpec) -> None:
        _check(spec)

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a dm-stripe device")
        chunk_bytes = _check(spec)
        await members.require_driver(site, *_DRIVER)
        own = str(uuid.uuid4())
        paths = await members.take(site, spec.parents, [own] * len(spec.parents))
        sizes = (await site.run(["blockdev", "--getsize64", *paths])).text.split()
        each_bytes = min(map(int, sizes)) // chunk_bytes * chunk_bytes
        if not each_bytes:
            raise DiskFull("the devices are smaller than one chunk", place=paths[0])
        name = f"headrace-{own}"
        await site.record({"kind": "mapped", "name": name})
        length = each_bytes * len(paths) // _SECTOR_BYTES
        ends = " ".join(f"{path} 0" for path in paths)
        table = f"0 {length} striped {len(paths)} {chunk_bytes // _SECTOR_BYTES} {ends}"
        await _make(site, ["dmsetup", "create", name, "--uuid", name, "--table", table])
        return Device(
            await _node(site, name),
            uuid=own,
            discard=members.may_discard(spec.parents),
            members=paths,
            stripe=Stripe(chunk_bytes, chunk_bytes * len(paths)),
        )


class Lvm:
    """A volume group of its own; every physical volume carries a UUID that we gave it."""

    tools: tuple[Tool, ...] = (
        Tool("pvcreate", "lvm2"),
        Tool("vgcreate", "lvm2"),
        Tool("lvcreate", "lvm2", ("--version",)),
        _DMSETUP,
        *BLOCK.tools,
        *LOOP.tools,
    )

    def check(self, spec: DeviceSpec) -> None:
        _check(spec)

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("an LVM volume")
        chunk_bytes = _check(spec)
        await members.require_driver(site, *_DRIVER)
        marks = [_physical_uuid() for _ in spec.parents]
        paths = await members.take(site, spec.parents, marks)
        group = f"headrace_{uuid.uuid4().hex}"
        name = f"{group}-volume"
        await site.record({"kind": "mapped", "name": name})
        for path, mark in zip(paths, marks, strict=True):
            await _lvm(site, "pvcreate", "--uuid", mark, "--norestorefile", path)
        await _lvm(site, "vgcreate", group, *paths)
        stripes = ["--type", "striped", "--stripes", str(len(paths))]
        stripes += ["--stripesize", f"{chunk_bytes // 1024}k", "--extents", "100%FREE"]
        await _lvm(site, "lvcreate", *stripes, "--wipesignatures", "n", "--name", "volume", group)
        return Device(
            await _node(site, name),
            discard=members.may_discard(spec.parents),
            members=paths,
            stripe=Stripe(chunk_bytes, chunk_bytes * len(paths)),
        )


def _check(spec: DeviceSpec) -> int:
    raid = members.check(spec, (0,))
    members.refuse(raid, spec.kind, "bitmap", "stripe_cache")
    return raid.chunk_bytes or DEFAULT_CHUNK_BYTES


def _physical_uuid() -> str:
    """A UUID as LVM writes it: 32 letters and digits in seven groups."""
    letters = string.ascii_letters + string.digits
    return "-".join("".join(secrets.choice(letters) for _ in range(n)) for n in (6, 4, 4, 4, 4, 4, 6))


async def _lvm(site: Site, program: str, *words: str) -> None:
    await _make(site, [program, "--config", _LVM_CONFIG, "--quiet", "--yes", *words])


async def _make(site: Site, argv: Sequence[str]) -> None:
    try:
        await site.run(argv)
    except CommandFailed as error:
        raise TreatmentFailed(error.message, place=error.place, hint=error.hint) from error


async def _node(site: Site, name: str) -> str:
    """The device as the kernel calls it: /sys/block knows no other name."""
    script = 'grep -lx -- "$0" /sys/block/dm-*/dm/name | cut -d / -f 4'
    return f"/dev/{(await site.run(['sh', '-c', script, name])).text.strip()}"


DM_STRIPE = DmStripe()
LVM = Lvm()
