"""Kernels: Debian's cloud kernels by version, found with apt; or any vmlinuz with its modules.

``6.12`` is the newest cached 6.12, else the newest that apt has, so that a mirror's update does not change a
running experiment. ``6.12.43`` is exactly that one. A path is a kernel of the user's own: ``/boot/vmlinuz-6.9.1``,
whose modules are looked for in ``/lib/modules``, or ``vmlinuz:modules-folder``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from headrace.base.errors import HeadraceError, NotReady, PlanError
from headrace.host.target import Target
from headrace.lab.vm import bzimage
from headrace.lab.vm.cache import Tell, folder, locked, require_programs

__all__ = ["Kernel", "cached", "kernel_of"]

#: The machine's own disks, and what of the kernel must be built in to find the root without an initrd.
ROOT_DRIVERS = {"nvme": "nvme.ko", "virtio-blk": "virtio_blk.ko"}
FETCH_PATIENCE_S = 900.0
VERSION = re.compile(r"\d+(\.\d+){1,3}")


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted: ``image`` is what QEMU loads, ``modules`` an ext4 image for /lib/modules."""

    release: str
    source: str
    image: Path
    modules: Path
    root_driver: str

    @property
    def folder(self) -> Path:
        return self.modules.parent


def cached() -> list[Kernel]:
    """The cached kernels, oldest version first."""
    found = []
    for file in folder("kernels").glob("*/kernel.json"):
        try:
            content: dict[str, Any] = json.loads(file.read_text())
            paths = {key: file.parent / content[key] for key in ("image", "modules")}
            found.append(
                Kernel(content["release"], content["source"], root_driver=content["root_driver"], **paths)
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half removed: fetched again on demand
    return sorted(found, key=lambda kernel: natural(kernel.release))


async def kernel_of(host: Target, name: str, tell: Tell) -> Kernel:
    """The kernel of that name, fetched if missing. Raises PlanError, NotReady, TargetError."""
    if "/" in name:
        return await _own(host, name, tell)
    if not VERSION.fullmatch(name):
        raise PlanError(
            f"kernel {name!r} is neither a version nor a path",
            hint='a version of Debian\'s cloud kernels as "6.12", or the path of a vmlinuz',
        )
    here = [
        kernel
        for kernel in cached()
        if kernel.source.startswith("linux-image-") and _is(kernel.release, name)
    ]
    return here[-1] if here else await _from_apt(host, name, tell)


def natural(version: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts 6.9 before 6.12."""
    return tuple((int(digits or 0), word) for digits, word in re.findall(r"(\d+)|(\D+)", version))


def _is(release: str, version: str) -> bool:
    """Whether the release is of this version, as 6.12.9 is of 6.12 and not of 6.1; an empty one is any."""
    return not version or (
        release.startswith(version) and not release[len(version) : len(version) + 1].isdigit()
    )


async def _from_apt(host: Target, version: str, tell: Tell) -> Kernel:
    await require_programs(host, "apt-get")
    packages = await _packages(host, version)
    if not packages and host.is_root and not await _packages(host, ""):
        tell("apt lists no kernels at all: run apt-get update")
        await host.run(["apt-get", "-q", "update"], timeout_s=FETCH_PATIENCE_S, check=False)
        packages = await _packages(host, version)
    if not packages:
        raise NotReady(
            f"apt lists no Debian cloud kernel {version}",
            hint="apt-get update; Debian's backports have newer ones; or name the path of a vmlinuz",
        )
    await require_programs(host, "dpkg-deb", "depmod", "mke2fs")
    package = max(packages, key=natural)
    async with _workshop(tell) as place:
        if fetched := next((kernel for kernel in cached() if kernel.source == package), None):
            return fetched  # by the process that held the lock
        tell(f"fetching {package}")
        script = 'cd "$0" && apt-get -q download "$1" && dpkg-deb -x ./*.deb tree'
        await host.run(["sh", "-c", script, str(place), package], timeout_s=FETCH_PATIENCE_S)
        tree = place / "tree"
        vmlinuz = next(tree.glob("boot/vmlinuz-*"), None)
        modules = next(tree.glob("lib/modules/*"), None) or next(tree.glob("usr/lib/modules/*"), None)
        if vmlinuz is None or modules is None:
            raise HeadraceError("the package has no kernel, or no modules", place=package)
        return await _keep(host, place, vmlinuz, modules, package, tell)


async def _packages(host: Target, version: str) -> list[str]:
    listed = await host.run(["apt-cache", "pkgnames", f"linux-image-{version}"], check=False)
    return [name for name in listed.text.split() if _is_cloud_kernel(name, version)]


@asynccontextmanager
async def _workshop(tell: Tell) -> AsyncIterator[Path]:
    """A folder to unpack in; remains of killed runs are removed."""
    async with locked(folder("kernels"), "kernels", tell, FETCH_PATIENCE_S):
        for left in leftovers():
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder("kernels")) as place:
            yield Path(place)


def leftovers() -> list[Path]:
    """Folders of fetches; unused if the lock is free."""
    return sorted(folder("kernels").glob(".*"))


def _is_cloud_kernel(package: str, version: str) -> bool:
    """An image of that version, with a release in its name: not a meta package, not one with debug symbols."""
    release = package.removeprefix("linux-image-").removesuffix("-cloud-amd64")
    return (
        package.endswith("-cloud-amd64")
        and _is(release, version)
        and re.search(r"\d+\.\d+\.\d+", release) is not None
    )


async def _own(host: Target, name: str, tell: Tell) -> Kernel:
    path, _, modules_name = name.partition(":")
    vmlinuz = Path(path).expanduser().resolve()
    try:
        content = await asyncio.to_thread(vmlinuz.read_bytes)
    except OSError as error:
        raise PlanError(f"the kernel cannot be read: {error.strerror}", place=path) from error
    release = bzimage.release_of(content)
    if release is None:
        raise PlanError("is not a Linux kernel for x86 (a bzImage)", place=path)
    given = Path(modules_name).expanduser() if modules_name else None
    modules = _modules_folder(release, given, vmlinuz)
    # What of the modules can change without the kernel: their list, which depmod or a build writes anew.
    state = [f"{file.name} {file.stat().st_mtime_ns}" for file in sorted(modules.glob("modules.*"))]
    key = hashlib.sha256(content + "\n".join([str(modules.resolve()), *state]).encode()).hexdigest()[:12]
    source = f"{vmlinuz} {key}"
    for kernel in cached():
        if kernel.source == source:
            return kernel
    await require_programs(host, "depmod", "mke2fs")
    async with _workshop(tell) as place:
        return await _keep(host, place, vmlinuz, modules, source, tell)


def _modules_folder(release: str, given: Path | None, vmlinuz: Path) -> Path:
    """The folder with this release's modules.dep or modules.builtin."""
    if given is not None:
        places = [given, given / release, given / "lib/modules" / release]
    else:
        places = [vmlinuz.parent.parent / "lib/modules" / release, Path("/lib/modules") / release]
    for place in places:
        if (place / "modules.builtin").is_file():
            return place
    raise PlanError(
        f"there are no modules of {release} in {' or '.join(map(str, places))}",
        place=str(vmlinuz),
        hint='give their directory: kernel = "/path/vmlinuz:/path/lib/modules/RELEASE"',
    )


async def _keep(host: Target, place: Path, vmlinuz: Path, modules: Path, source: str, tell: Tell) -> Kernel:
    """Put a kernel into the cache: its image, and its modules as a disk that a guest mounts."""
    content = await asyncio.to_thread(vmlinuz.read_bytes)
    release = (
        modules.name if source.startswith("linux-image-") else bzimage.release_of(content) or modules.name
    )
    driver = _root_driver((modules / "modules.builtin").read_text().splitlines(), release)
    tell(f"packing the modules of {release}")
    ready = place / "ready"
    ready.mkdir()
    tree = place / "modules"
    size = await asyncio.to_thread(_copy_modules, modules, tree / "lib/modules" / release)
    # Debian moved /lib to /usr/lib, and depmod looks into the first of them only.
    await host.run(["depmod", "-b", str(tree), release], timeout_s=FETCH_PATIENCE_S)
    image = ready / "modules.img"
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-E", "root_owner=0:0"]
    argv += [
        "-L",
        "headrace-modules",
        "-d",
        str(tree / "lib/modules"),
        str(image),
        f"{size // 1024 * 5 // 4 + 16384}k",
    ]
    await host.run(argv, timeout_s=FETCH_PATIENCE_S)
    plain = await asyncio.to_thread(bzimage.direct_image, content)
    boot = ready / ("vmlinux" if plain else "vmlinuz")
    await asyncio.to_thread(boot.write_bytes, plain or content)
    description = {
        "release": release,
        "source": source,
        "root_driver": driver,
        "image": boot.name,
        "modules": image.name,
    }
    (ready / "kernel.json").write_text(json.dumps(description, indent=2))
    key = hashlib.sha256(source.encode()).hexdigest()[:8]
    final = folder("kernels") / f"{release}-{key}"
    shutil.rmtree(final, ignore_errors=True)
    ready.rename(final)
    return Kernel(release, source, final / boot.name, final / image.name, driver)


def _root_driver(builtin: list[str], release: str) -> str:
    """How the guest reaches its root with the kernel's built-in drivers."""
    here = {line.rpartition("/")[2] for line in builtin}
    if "ext4.ko" in here:
        for driver, module in ROOT_DRIVERS.items():
            if module in here and (driver == "nvme" or "virtio_pci.ko" in here):
                return driver
    raise PlanError(
        "ext4, and nvme or virtio_blk with virtio_pci, are not all built in: without an initrd it finds no root",
        place=f"kernel {release}",
        hint="build it with CONFIG_EXT4_FS=y and CONFIG_BLK_DEV_NVME=y, as Debian's cloud kernels are",
    )


def _copy_modules(source: Path, target: Path) -> int:
    """Copy them, unpacked: xz takes an emulated CPU seconds. Bytes in blocks of 4 KiB."""
    size = 0
    for file in sorted(source.rglob("*")):
        if file.is_symlink() or not file.is_file():
            continue  # build, source
        content = file.read_bytes()
        copy = target / file.relative_to(source)
        match file.suffix:
            case ".xz":
                content, copy = lzma.decompress(content), copy.with_suffix("")
            case ".zst":
                content, copy = (
                    zstandard.ZstdDecompressor().decompressobj().decompress(content),
                    copy.with_suffix(""),
                )
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        size += -(-len(content) // 4096) * 4096 + 4096
    return size
