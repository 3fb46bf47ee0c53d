"""The members of a combined device: all are checked before the first is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from headrace.base.counted import counted
from headrace.base.errors import NotReady, PlanError, Refused
from headrace.lab.volumes.block import BLOCK, Free, must_be_free
from headrace.lab.volumes.device import DeviceSpec, Raid, Site, size_text
from headrace.lab.volumes.loop import LOOP

#: The fewest devices of a level. Linux allows a RAID 5 of two, which is effectively a mirror.
FEWEST = {0: 2, 1: 2, 10: 2, 5: 3, 6: 4}

#: The kernel wants whole pages, and powers of two of every level but 0.
SMALLEST_CHUNK_BYTES, LARGEST_CHUNK_BYTES = 4096, 64 * 2**20

#: Members whose sizes differ by more than this share leave part of the larger ones aside, or in a narrower stripe.
SAME_SIZE = 0.01


def check(spec: DeviceSpec, levels: Sequence[int]) -> Raid:
    """How the devices are to become one; raises PlanError for what is wrong whatever the host looks like."""
    raid = spec.raid
    known = ", ".join(map(str, levels))
    if raid is None:
        raise PlanError(f"volume.raid_level is missing: a {spec.kind} volume has one of {known}")
    if raid.level not in levels:
        raise PlanError(f"volume.raid_level = {raid.level}: a {spec.kind} volume has one of {known}")
    _check_chunk(raid)
    if raid.level not in (5, 6) and raid.stripe_cache:
        raise PlanError(
            f"volume.stripe_cache = {raid.stripe_cache}: RAID {raid.level} has none, only 5 and 6 do"
        )
    if raid.level == 0 and raid.bitmap not in ("", "none"):
        raise PlanError(f"volume.raid_bitmap = {raid.bitmap!r}: RAID 0 has nothing to resync")
    if len(spec.parents) < FEWEST[raid.level]:
        raise PlanError(
            f"{counted(len(spec.parents), 'device')}: RAID {raid.level} needs at least {FEWEST[raid.level]}",
            hint="list them in [volume] devices; volume.raid_devices is how many of them are taken",
        )
    _check_parents(spec.parents)
    return raid


def _check_chunk(raid: Raid) -> None:
    chunk = raid.chunk_bytes
    if not chunk:
        return
    if raid.level == 1:
        raise PlanError(f"volume.raid_chunk = {_short(chunk)}: RAID 1 has no chunk, every device holds all")
    if chunk & (chunk - 1) or not SMALLEST_CHUNK_BYTES <= chunk <= LARGEST_CHUNK_BYTES:
        raise PlanError(f"volume.raid_chunk = {_short(chunk)}: must be a power of two from 4K to 64M")


def _short(size_bytes: int) -> str:
    """As a plan writes it."""
    return f"{size_bytes // 1024}K" if size_bytes % 1024 == 0 else str(size_bytes)


def refuse(raid: Raid, kind: str, *names: str) -> None:
    """Raise PlanError for settings that this kind does not have."""
    for name in names:
        value = getattr(raid, name)
        if value:
            knob = {"chunk_bytes": "raid_chunk", "bitmap": "raid_bitmap"}.get(name, name)
            shown = _short(value) if name == "chunk_bytes" else value
            raise PlanError(f"volume.{knob} = {shown}: a {kind} volume has no such setting")


def _check_parents(parents: Sequence[DeviceSpec]) -> None:
    for parent in parents:
        if parent.kind not in ("block", "loop"):
            raise PlanError(f"{parent.kind!r}: an array is made of block devices or of loops")
        (BLOCK if parent.kind == "block" else LOOP).check(parent)
    names = [parent.id for parent in parents if parent.kind == "block"]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise PlanError(f"{twice} is listed twice in volume.devices")


async def take(site: Site, parents: Sequence[DeviceSpec], marks: Sequence[str]) -> tuple[str, ...]:
    """The paths of the members, which are ours from now on.

    ``marks`` are the UUIDs that will stand on them: on real devices nothing else is ever wiped. Raises Refused
    before anything was changed unless every one is free.
    """
    real = [(parent, mark) for parent, mark in zip(parents, marks, strict=True) if parent.kind == "block"]
    free = await _all_free(site, [parent for parent, _ in real])
    paths = [device.path for device in free]
    for (parent, _), path in zip(real, paths, strict=True):
        if paths.count(path) > 1:
            raise Refused(f"{path} is listed under two names", place=parent.id)
    sizes = [device.size_bytes for device in free]
    if sizes and max(sizes) > min(sizes) * (1 + SAME_SIZE):
        site.warnings.append(
            f"the devices have different sizes, {size_text(min(sizes))} to {size_text(max(sizes))}: the "
            "array is not uniform"
        )
    if real:
        # One line of the journal. The agent checks again, with an exclusive open, before it writes it.
        await site.record(*({"kind": "wipe", "device": parent.id, "uuid": mark} for parent, mark in real))
    loops = []
    for number, parent in enumerate(parent for parent in parents if parent.kind == "loop"):
        own = replace(site, name=f"{site.name}-{number}")
        loops.append((await LOOP.attach(own, parent)).path)
    return (*paths, *loops)


async def _all_free(site: Site, parents: Sequence[DeviceSpec]) -> list[Free]:
    """All at once: each takes several commands, and a host may be far away. Raises the first one's error."""
    looks = (must_be_free(site, parent) for parent in parents)
    found = await asyncio.gather(*looks, return_exceptions=True)
    for error in found:
        if isinstance(error, BaseException):
            raise error
    return [one for one in found if isinstance(one, Free)]


async def require_driver(site: Site, trace: str, module: str) -> None:
    """Raise NotReady unless the kernel has the driver, loaded or not; ``trace`` is there when it is."""
    if await site.target.exists(trace):
        return
    # The programs that follow would load it, too; but what they say where it is missing is no reason.
    await site.run(["modprobe", module], check=False)
    if not await site.target.exists(trace):
        raise NotReady(f"this kernel has no {module}", place=site.target.name, hint=f"modprobe {module}")


def may_discard(parents: Sequence[DeviceSpec]) -> bool:
    """A discard would punch holes into the loop files and release their reserved space."""
    return all(parent.kind != "loop" for parent in parents)
