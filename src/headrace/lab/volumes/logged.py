"""A loop device whose writes and flushes are logged, so that a power cut can be had at any of them.

QEMU's storage daemon writes the log (its driver blklogwrites) in the format of the kernel's dm-log-writes, and
exports the disk by FUSE. A disk after a cut is made of the log, by ``headrace-agent power-cut``.
"""

from __future__ import annotations

import contextlib

from headrace.base.errors import CommandFailed, NotReady, PlanError
from headrace.base.model import OWNER_VARIABLE, Tool
from headrace.lab.volumes.device import Device, DeviceSpec, Site
from headrace.lab.volumes.loop import LOOP, must_fit

DAEMON = Tool("qemu-storage-daemon", "qemu-system-common", ("--version",))
READY_S = 15.0
_POLL_S = 0.05
_SECTOR_BYTES = 512
#: The disk, its log, and as much again for the disk after a cut and the one that cuts are made of.
_SHARE_NEEDED = 4


def log_of(place: str) -> str:
    """The log of the volume that is mounted at ``place``."""
    return f"{place}.log"


class Logged:
    tools: tuple[Tool, ...] = (DAEMON, *LOOP.tools)

    def check(self, spec: DeviceSpec) -> None:
        if spec.size_bytes <= 0:
            raise PlanError(f"volume.size = {spec.size_bytes}: a logged device needs a size, such as 1G")

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a logged device")
        if not await site.target.exists("/dev/fuse"):
            raise NotReady("no FUSE", place=site.target.name, hint="modprobe fuse")
        await must_fit(site, _SHARE_NEEDED * spec.size_bytes)
        place = f"{site.folder}/{site.name}"
        image, log, export = f"{place}.img", log_of(place), f"{place}.export"
        await site.record(
            *({"kind": "remove", "path": path} for path in (image, log, export)),
            {"kind": "mount", "path": export},
            {"kind": "loop", "backing": export},
        )
        await site.run(["truncate", "--size", str(spec.size_bytes), image])
        await site.run(["touch", log, export])
        await _start(site, image, log, export)
        path = (await site.run(["losetup", "--find", "--show", export])).text.strip()
        # The kernel keeps this of the loop device's former life, and with "write through" no flush gets here.
        cache = f"/sys/block/{path.removeprefix('/dev/')}/queue/write_cache"
        await site.run(["sh", "-c", 'echo "write back" > "$0"', cache])
        # A discard is no write: what it leaves is not defined.
        return Device(path, discard=False)


async def _start(site: Site, image: str, log: str, export: str) -> None:
    """The daemon, until its export is there. The volume's journal ends it, by its mark."""
    options = f"log-sector-size={_SECTOR_BYTES},log-super-update-interval=1"
    words = [DAEMON.program]
    for name, path in (("image", image), ("log", log)):
        words += ["--blockdev", f"driver=file,node-name={name},filename={_escaped(path)}"]
    words += ["--blockdev", f"driver=blklogwrites,node-name=logged,file=image,log=log,{options}"]
    words += ["--export", f"type=fuse,id=disk,node-name=logged,mountpoint={_escaped(export)},writable=on"]
    mark = {OWNER_VARIABLE: site.journal.owner}
    daemon = await site.target.spawn(words, env=mark, detached=True)
    for _ in range(round(READY_S / _POLL_S)):
        with contextlib.suppress(TimeoutError):
            await daemon.wait(_POLL_S)
            words_said = (await daemon.error_text()).strip()
            raise CommandFailed(f"qemu-storage-daemon ended: {words_said}", place=site.target.name)
        size = await site.run(["stat", "--format=%s", export], check=False)
        if size.text.strip() not in ("", "0"):
            return
    raise CommandFailed(
        f"qemu-storage-daemon did not export the disk within {READY_S:g} s", place=site.target.name
    )


def _escaped(path: str) -> str:
    """As QEMU's options take it: a comma would end it."""
    return path.replace(",", ",,")


LOGGED = Logged()
