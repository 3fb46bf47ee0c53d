"""A loop device over a file of the scratch folder, with direct I/O so that nothing is cached twice."""

from __future__ import annotations

from headrace.base.errors import CommandFailed, DiskFull, PlanError
from headrace.base.model import Tool
from headrace.lab.volumes.device import Device, DeviceSpec, Site, size_text

#: Space that the file system below needs for its metadata.
RESERVE_BYTES = 64 * 2**20


class Loop:
    tools: tuple[Tool, ...] = (
        Tool("losetup", "mount", ("--version",)),
        Tool("fallocate", "util-linux"),
    )

    def check(self, spec: DeviceSpec) -> None:
        if spec.size_bytes <= 0:
            raise PlanError(f"volume.size = {spec.size_bytes}: a loop device needs a size, such as 4G")

    async def attach(self, site: Site, spec: DeviceSpec) -> Device:
        site.must_be_root("a loop device")
        await must_fit(site, spec.size_bytes)
        backing = f"{site.folder}/{site.name}.img"
        await site.record({"kind": "remove", "path": backing}, {"kind": "loop", "backing": backing})
        await _make_file(site, backing, spec.size_bytes)
        path = await _attach(site, backing)
        # A discard would punch holes into the file and release its reserved space.
        return Device(path, discard=False)


async def must_fit(site: Site, size_bytes: int) -> None:
    answer = await site.run(["stat", "--file-system", "--format=%a %S", site.folder])
    blocks, block_bytes = map(int, answer.text.split())
    if blocks * block_bytes < size_bytes + RESERVE_BYTES:
        raise DiskFull(
            f"a volume of {size_text(size_bytes)} does not fit: {size_text(blocks * block_bytes)} free",
            place=site.folder,
            hint='reduce volume.size, or set [target] scratch = "..." to a bigger disk',
        )


async def _make_file(site: Site, backing: str, size_bytes: int) -> None:
    """A file with reserved space, so that no trial runs out of disk half-way."""
    made = await site.run(["fallocate", "--length", str(size_bytes), backing], check=False)
    if made.exit_code == 0:
        return
    if "No space left" in made.error_text:
        raise DiskFull(made.error_text.strip(), place=backing, hint="reduce volume.size")
    if "not supported" not in made.error_text:
        raise CommandFailed(made.error_text.strip(), place=backing)
    await site.run(["truncate", "--size", str(size_bytes), backing])
    site.warnings.append(f"{backing}: its file system cannot reserve space; the file grows during the trial")


async def _attach(site: Site, backing: str) -> str:
    attach = ["losetup", "--find", "--show", backing]
    made = await site.run([*attach, "--direct-io=on"], check=False)
    if made.exit_code != 0:
        # Some versions of losetup fail where direct I/O cannot be had, others go on without: sysfs knows.
        made = await site.run(attach)
    path = made.text.strip()
    direct = await site.run(["cat", f"/sys/block/{path.removeprefix('/dev/')}/loop/dio"])
    if direct.text.strip() != "1":
        site.warnings.append(
            f"{path}: no direct I/O on {backing}; the page cache below it affects the measurement"
        )
    return path


LOOP = Loop()
