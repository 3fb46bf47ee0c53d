"""The guest's root: Debian with what experiments need, built once by mmdebstrap and kept.

Its folder is named by a hash of the recipe, so that a changed recipe builds a new one, but a security update of
Debian does not. Kernels are not in it: their modules are on a separate disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.base.errors import CommandFailed, DiskFull, NotReady
from headrace.host.target import Target
from headrace.lab.vm import processes
from headrace.lab.vm.cache import Tell, folder, locked, require_programs

__all__ = ["Image", "cached", "recipe", "root_image"]

SUITE = "bookworm"
PACKAGES = (
    "openssh-server,busybox-static,iproute2,procps,kmod,util-linux,mount,sudo,ethtool,numactl,zstd",
    "mdadm,lvm2,dmsetup,thin-provisioning-tools,xfsprogs,btrfs-progs,e2fsprogs",
    "fio,sysbench,memcached,mariadb-server,mariadb-client,libjemalloc2,libtcmalloc-minimal4",
)
#: Files not needed in a guest.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
#: The file system's size; the image and a machine's overlay only use the space that is written.
ROOT_BYTES = 24 << 30
#: It is the one partition of its disk. The kernel finds it by the disk's number, because names of disks are given
#: out in the order in which they answer.
PARTITION_START_BYTES = 1 << 20
DISK_ID = 0x68656164
LEAST_FREE_BYTES = 4 << 30
BUILD_PATIENCE_S = 1800.0
FILES = Path(__file__).parent / "guest"
WORKSHOP = ".headrace-root-"
DEBIAN_MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"


@dataclass(frozen=True)
class Image:
    """A root that machines start from. ``identity`` is the private key that it lets in."""

    key: str
    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root.img"

    @property
    def identity(self) -> Path:
        return self.folder / "id"

    def known_host(self, port: int) -> str:
        """The line of a known_hosts file for a guest behind this port."""
        kind, key, *_ = (self.folder / "host_key").read_text().split()
        return f"[127.0.0.1]:{port} {kind} {key}\n"

    @property
    def complete(self) -> bool:
        return all((self.folder / name).is_file() for name in ("root.img", "id", "host_key", "image.json"))


def recipe() -> dict[str, Any]:
    """Everything that determines the image."""
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(FILES.iterdir())
        if file.is_file()
    }
    return {
        "suite": SUITE,
        "packages": PACKAGES,
        "left_out": LEFT_OUT,
        "root_bytes": ROOT_BYTES,
        "disk_id": DISK_ID,
        "files": files,
    }


def current() -> Image:
    """The image of this version of headrace, built or not."""
    key = hashlib.sha256(json.dumps(recipe(), sort_keys=True).encode()).hexdigest()[:16]
    return Image(key, folder("roots") / key)


def cached() -> list[Image]:
    """The cached images, including those of older headrace versions."""
    return [
        image
        for path in sorted(folder("roots").iterdir())
        if not path.name.startswith(".") and (image := Image(path.name, path)).complete
    ]


async def root_image(host: Target, tell: Tell) -> Image:
    """The image, built if missing. Raises NotReady, DiskFull, TargetError."""
    image = current()
    if image.complete:
        return image
    await require_programs(host, "mmdebstrap", "mke2fs", "ssh-keygen")
    async with locked(folder("roots"), "the root image", tell, BUILD_PATIENCE_S):
        if not image.complete:
            await remove_leftovers(host)
            await _build(host, image, tell)
    return image


async def _build(host: Target, image: Image, tell: Tell) -> None:
    free = shutil.disk_usage(folder("roots")).free
    if free < LEAST_FREE_BYTES:
        raise DiskFull(
            f"{free / 2**30:.1f} GiB are free, and building the root image takes {LEAST_FREE_BYTES >> 30}",
            place=str(folder("roots")),
            hint="free some space, or set XDG_CACHE_HOME to a larger disk",
        )
    tell("building the root image, once: a minute or two")
    start = time.monotonic()
    async with _workshop(host) as place:
        await host.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "headrace-lab", "-f", f"{place}/id"]
        )
        for file in FILES.iterdir():
            if file.is_file():
                shutil.copy(file, place / file.name)
        (place / "out").mkdir()
        os.chmod(place / "out", 0o777)
        await _bootstrap(host, place)
        draft = folder("roots") / f".{image.key}.part"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        out = place / "out" / "root.img"
        await host.run(
            ["cp", "--sparse=always", str(out), str(draft / "root.img")], timeout_s=BUILD_PATIENCE_S
        )
        with (draft / "root.img").open("r+b") as disk:
            disk.write(partition_table())
        shutil.copy(f"{out}.host_key", draft / "host_key")
        shutil.copy(place / "id", draft / "id")
        packages = dict(line.split(" ", 1) for line in Path(f"{out}.packages").read_text().splitlines())
        for name, mode in (("root.img", 0o600), ("id", 0o600), ("host_key", 0o644)):
            os.chmod(draft / name, mode)
        description = {
            **recipe(),
            "built_at": time.time(),
            "took_s": time.monotonic() - start,
            "versions": packages,
        }
        (draft / "image.json").write_text(json.dumps(description, indent=2))
        shutil.rmtree(image.folder, ignore_errors=True)
        draft.rename(image.folder)
    tell(f"the root image is built: {time.monotonic() - start:.0f} s")


def partition_table() -> bytes:
    """A master boot record with one partition, all of the disk from its first MiB on."""
    table = bytearray(512)
    struct.pack_into("<I", table, 0x1B8, DISK_ID)
    start, sectors = PARTITION_START_BYTES // 512, ROOT_BYTES // 512
    struct.pack_into("<B3sB3sII", table, 0x1BE, 0, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", start, sectors)
    table[510:] = b"\x55\xaa"
    return bytes(table)


@asynccontextmanager
async def _workshop(host: Target) -> AsyncIterator[Path]:
    """A build folder that a user namespace can read; as root, in the cache."""
    base = folder("roots") if host.is_root else _elsewhere()
    place = Path(tempfile.mkdtemp(prefix=WORKSHOP, dir=base))
    # Others may traverse it to known names, but its name is random.
    place.chmod(0o711)
    try:
        yield place
    finally:
        await remove(host, place)


async def remove(host: Target, place: Path) -> None:
    """Remove a build folder, and kill processes still working in it."""
    await processes.end_marked(place)
    # A killed mmdebstrap takes its mounts with it; should one be left, rm must not follow it.
    await host.run(
        ["rm", "-rf", "--one-file-system", "--", str(place)], timeout_s=BUILD_PATIENCE_S, check=False
    )


async def remove_leftovers(host: Target) -> None:
    """Remove the remains of a killed build. Only under the lock."""
    for place in leftovers():
        await remove(host, place)


def leftovers() -> list[Path]:
    """Folders of builds; unused if the lock is free."""
    ours = [path for path in _elsewhere().glob(f"{WORKSHOP}*") if path.stat().st_uid == os.getuid()]
    return sorted([*folder("roots").glob(".*"), *ours])


def _elsewhere() -> Path:
    return Path(os.environ.get("TMPDIR", "/var/tmp"))


async def _bootstrap(host: Target, place: Path) -> None:
    hook = f'sh {place}/customize "$1" {place} {place}/out/root.img {ROOT_BYTES} {PARTITION_START_BYTES}'
    argv = ["mmdebstrap", "--variant=minbase", "--format=null", f"--include={','.join(PACKAGES)}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    argv += ['--aptopt=APT::Install-Recommends "false"', f"--customize-hook={hook}", SUITE, "/dev/null"]
    argv += await _sources(host)
    process = await host.spawn(argv, env={"TMPDIR": str(place / "out"), processes.MARK: str(place)})
    try:
        code = await process.wait(BUILD_PATIENCE_S)
    except TimeoutError:
        raise CommandFailed(f"mmdebstrap did not end within {BUILD_PATIENCE_S:g} s") from None
    finally:
        await process.signal("KILL")
    if code == 0:
        return
    words = (await process.error_text()).strip().splitlines()[-12:]
    text = "\n".join(words)
    # The last is what it says of a user for whom neither a user namespace nor fakechroot nor root will do.
    if any(word in text for word in ("newuidmap", "subuid", "unable to pick chroot mode")):
        raise NotReady(
            text,
            place="mmdebstrap",
            hint="apt-get install -y uidmap, with lines for you in /etc/subuid and /etc/subgid; or run as root",
        )
    raise CommandFailed(
        f"exit code {code}: {text}", place="mmdebstrap", hint="is the Debian mirror reachable?"
    )


async def _sources(host: Target) -> list[str]:
    """The lines of sources.list: this machine's own mirrors of the suite where it has some."""
    listed = await host.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)"], check=False
    )
    mirrors = {}
    for line in listed.text.splitlines():
        origin, codename, uri = (*line.split(), "", "", "")[:3]
        if origin == "Debian" and codename in (SUITE, f"{SUITE}-security", f"{SUITE}-updates"):
            mirrors[codename] = uri
    mirrors.setdefault(SUITE, DEBIAN_MIRROR)
    mirrors.setdefault(f"{SUITE}-security", SECURITY_MIRROR)
    return [f"deb {uri} {codename} main" for codename, uri in sorted(mirrors.items())]
