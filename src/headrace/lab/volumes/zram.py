"""A compressed RAM disk: the fastest device there is, and one that costs CPU. No stand-in for flash durability."""

from __future__ import annotations

import re

from headrace.base.errors import Busy, DiskFull, NotReady, PlanError
from headrace.base.model import Tool
from headrace.lab.volumes.device import Device, DeviceSpec, Site, size_text

CONTROL = "/sys/class/zram-control"


class Zram:
    tools: tuple[Tool, ...] = ()

    def check(self, spec: DeviceSpec) -> None:
        if spec.size_bytes <= 0:
            raise PlanError(f"volume.size = {spec.size_bytes}: a zram device needs a size, such as 1G")

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a zram device")
        if not await site.target.exists(f"{CONTROL}/hot_add"):
            # Loading the module would leave it, and a device zram0, behind.
            raise NotReady("no zram", place=site.target.name, hint="modprobe zram")
        await _must_fit(site, spec.size_bytes)
        name = await _add(site)
        await site.run(["sh", "-c", 'echo "$0" > "$1"', str(spec.size_bytes), f"/sys/block/{name}/disksize"])
        return Device(f"/dev/{name}")


async def _must_fit(site: Site, size_bytes: int) -> None:
    """Assume the worst: data that does not compress."""
    text = (await site.run(["cat", "/proc/meminfo"])).text
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    available_bytes = int(found.group(1)) * 1024 if found else 0
    if size_bytes > available_bytes:
        have = f"{size_text(available_bytes)} of memory available"
        raise DiskFull(
            f"a zram device of {size_text(size_bytes)} may not fit: {have}",
            place=site.target.name,
            hint="reduce volume.size",
        )


async def _add(site: Site) -> str:
    """A new device. The kernel gives the lowest free number, so it is known, and journaled, in advance."""
    taken = set((await site.run(["ls", "/sys/block"])).text.split())
    expected = next(name for number in range(len(taken) + 1) if (name := f"zram{number}") not in taken)
    await site.record({"kind": "zram", "device": expected})
    # Reading the file is what adds a device: once, so not through Target.read, which may read in pieces.
    name = f"zram{(await site.run(['cat', f'{CONTROL}/hot_add'])).text.strip()}"
    if name != expected:
        await site.run(["sh", "-c", f'echo "$0" > {CONTROL}/hot_remove', name.removeprefix("zram")])
        raise Busy(
            f"another process created {expected} at the same moment", place=site.target.name, hint="try again"
        )
    return name


ZRAM = Zram()
