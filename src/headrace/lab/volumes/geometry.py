"""Does the file system know the array's stripe? mkfs takes it from the device; here it is read back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.lab.volumes.device import Device, Site, Stripe

#: Options with which a plan sets the geometry itself, so that any value is intended.
_OWN = re.compile(r"\b(su|sunit|sw|swidth|stride|stripe|stripe[_-]width)=|\bnoalign\b")

#: XFS reports its geometry in sectors of 512 bytes, regardless of the device's: xfs(5).
_XFS_UNIT_BYTES = 512


def is_set_by(options: Sequence[str]) -> bool:
    return any(_OWN.search(option) for option in options)


async def mismatch(site: Site, device: Device, filesystem: str, mounted_with: Sequence[str]) -> str | None:
    """The file system's geometry if it differs from the array's; None if it is the same, or there is none."""
    if device.stripe is None or filesystem not in ("xfs", "ext4"):
        return None
    if filesystem == "xfs":
        return xfs_mismatch(device.stripe, mounted_with)
    return ext4_mismatch(device.stripe, (await site.run(["dumpe2fs", "-h", device.path])).text)


def xfs_mismatch(stripe: Stripe, mounted_with: Sequence[str]) -> str | None:
    """``mounted_with`` are the kernel's mount options, which include sunit and swidth unless 0."""
    options = dict(option.split("=", 1) for option in mounted_with if "=" in option)
    found = tuple(int(options.get(name, "0")) for name in ("sunit", "swidth"))
    wanted = (stripe.unit_bytes // _XFS_UNIT_BYTES, stripe.width_bytes // _XFS_UNIT_BYTES)
    if found == wanted:
        return None
    return _told("XFS", "sunit={}, swidth={} (sectors of 512 bytes)", found, wanted)


def ext4_mismatch(stripe: Stripe, superblock: str) -> str | None:
    """``superblock`` is what ``dumpe2fs -h`` printed."""
    block_bytes = _number(superblock, "Block size")
    if not block_bytes:
        return "dumpe2fs reports no geometry: whether ext4 is aligned to the array is unknown"
    found = (_number(superblock, "RAID stride"), _number(superblock, "RAID stripe width"))
    # mke2fs leaves out what is no more than a block.
    wanted = tuple(
        size // block_bytes if size > block_bytes else 0 for size in (stripe.unit_bytes, stripe.width_bytes)
    )
    return None if found == wanted else _told("ext4", "stride={}, stripe_width={} (blocks)", found, wanted)


def _number(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _told(filesystem: str, form: str, found: Sequence[int], wanted: Sequence[int]) -> str:
    own, arrays = form.format(*found), form.format(*wanted)
    return f"{filesystem} is not aligned to the array: {own}, and the array has {arrays}"
