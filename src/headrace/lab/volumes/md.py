"""An md array of several devices, identified by its UUID, because its name may change with a reboot."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping

from headrace.base.errors import TreatmentFailed
from headrace.base.model import Tool
from headrace.lab.volumes import members
from headrace.lab.volumes.block import BLOCK
from headrace.lab.volumes.device import Device, DeviceSpec, Raid, Site, Stripe
from headrace.lab.volumes.loop import LOOP

LEVELS = (0, 1, 10, 5, 6)

#: mdadm's default for arrays of 100 GB or more; here it does not depend on the size.
DEFAULT_BITMAP = "internal"

#: An initial sync without progress for this long will not end.
STUCK_S = 600.0

#: Limit for a sync that does not start, or that ended with a missing member.
IDLE_S = 15.0

_SYNC_FILES = ("array_state", "sync_action", "sync_completed", "resync_start", "degraded")
_SYNC_SCRIPT = 'cd "$0" && for f; do printf "%s %s\\n" "$f" "$(cat "$f" 2>/dev/null)"; done'


class Md:
    tools: tuple[Tool, ...] = (Tool("mdadm", "mdadm", ("--version",)), *BLOCK.tools, *LOOP.tools)

    def check(self, spec: DeviceSpec) -> None:
        members.check(spec, LEVELS)

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("an md array")
        raid = members.check(spec, LEVELS)
        await members.require_driver(site, "/proc/mdstat", "md_mod")
        own = str(uuid.uuid4())
        paths = await members.take(site, spec.parents, [own] * len(spec.parents))
        name = await _free_name(site)
        await site.record({"kind": "array", "uuid": own, "name": name})
        await _create(site, raid, own, name, paths)
        folder = f"/sys/block/{name}/md"
        if raid.stripe_cache:
            await site.journal.apply({f"{folder}/stripe_cache_size": str(raid.stripe_cache)})
        if raid.level != 0:
            await _in_step(site, folder, is_waited_for=raid.initial_sync == "wait")
        chunk_bytes = await _chunk(site, folder, raid)
        return Device(
            f"/dev/{name}",
            discard=members.may_discard(spec.parents),
            members=paths,
            stripe=stripe(raid.level, chunk_bytes, len(paths)),
        )


def stripe(level: int, chunk_bytes: int, devices: int) -> Stripe | None:
    """The geometry that a file system should have; None of a mirror, which has none.

    md tells the same as its queue's minimum_io_size and optimal_io_size: raid0.c, raid10.c, raid5.c of Linux. Two
    copies of RAID 10 on an odd number of devices make no whole stripe, and the kernel gives that of all devices.
    """
    data = {0: devices, 1: 0, 10: devices if devices % 2 else devices // 2, 5: devices - 1, 6: devices - 2}[
        level
    ]
    return Stripe(chunk_bytes, chunk_bytes * data) if data and chunk_bytes else None


async def _free_name(site: Site) -> str:
    taken = set((await site.run(["ls", "/sys/block"])).text.split())
    return next(name for number in range(len(taken) + 1) if (name := f"md{number}") not in taken)


async def _create(site: Site, raid: Raid, own: str, name: str, paths: tuple[str, ...]) -> None:
    argv = ["mdadm", "--create", f"/dev/{name}", "--run", "--quiet", "--metadata=1.2", f"--uuid={own}"]
    argv += ["--name=headrace", f"--level={raid.level}", f"--raid-devices={len(paths)}"]
    if raid.chunk_bytes:
        argv.append(f"--chunk={raid.chunk_bytes // 1024}K")
    if raid.level != 0:
        argv.append(f"--bitmap={raid.bitmap or DEFAULT_BITMAP}")
        if raid.initial_sync != "wait":
            argv.append("--assume-clean")
    made = await site.run([*argv, *paths], check=False)
    if made.exit_code == 0:
        return
    words = "; ".join(line.strip() for line in made.error_text.splitlines() if line.strip())
    raise TreatmentFailed(f"mdadm cannot create RAID {raid.level}: {words}", place=site.target.name)


async def _chunk(site: Site, folder: str, raid: Raid) -> int:
    """The chunk that the kernel has; raises TreatmentFailed where it is not the one that was asked for."""
    chunk_bytes = int((await site.run(["cat", f"{folder}/chunk_size"])).text)
    if raid.chunk_bytes and chunk_bytes != raid.chunk_bytes:
        raise TreatmentFailed(
            f"the array has a chunk of {chunk_bytes} bytes, and {raid.chunk_bytes} was asked for",
            place=folder,
        )
    return chunk_bytes


async def _in_step(site: Site, folder: str, *, is_waited_for: bool) -> None:
    """Return when no sync is under way and none is due; raises TreatmentFailed for one that does not end."""
    if is_waited_for:
        # The array is not in use yet, so the default limit of 200 MB/s has no benefit.
        await site.run(["sh", "-c", 'echo 100000000 > "$0/sync_speed_max"', folder])
    seen, since, idle_since = await _sync_state(site, folder), time.monotonic(), time.monotonic()
    while not _is_in_step(seen):
        await asyncio.sleep(0.5)
        now = await _sync_state(site, folder)
        if now != seen:
            seen, since = now, time.monotonic()
        if now.get("sync_action") != "idle":
            idle_since = time.monotonic()
        if time.monotonic() - since > STUCK_S or time.monotonic() - idle_since > IDLE_S:
            text = ", ".join(f"{name} {value}" for name, value in now.items())
            raise TreatmentFailed(f"the initial sync does not end: {text}", place=folder)
    if is_waited_for:
        await site.run(["sh", "-c", 'echo system > "$0/sync_speed_max"', folder])


async def _sync_state(site: Site, folder: str) -> Mapping[str, str]:
    text = (await site.run(["sh", "-c", _SYNC_SCRIPT, folder, *_SYNC_FILES])).text
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def _is_in_step(state: Mapping[str, str]) -> bool:
    return (
        state.get("sync_action") == "idle"
        and state.get("resync_start") in ("none", "")
        and state.get("degraded") in ("0", "")
    )


MD = Md()
