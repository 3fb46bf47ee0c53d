"""Small labs for tests, of loop devices and network namespaces of our own: all is gone when the block ends.

As root only. Nothing here touches a device or an interface that was there before.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
READY_S = 10.0


def check(*argv: str | Path) -> str:
    """Run to its end; what it printed."""
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": PATH},
    )
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout.strip()


@contextlib.contextmanager
def running(argv: Sequence[str | Path], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program for as long as the block lasts."""
    process = subprocess.Popen(
        [str(word) for word in argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": PATH},
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def loop_device(image: Path, *, direct: bool = True) -> Iterator[str]:
    """The image as a block device; ``direct``: past the page cache."""
    device = check("losetup", f"--direct-io={'on' if direct else 'off'}", "-f", "--show", image)
    # The kernel keeps this setting after a detach, and with "write through" no flush reaches the image.
    cache = Path("/sys/block") / Path(device).name / "queue/write_cache"
    try:
        cache.write_text("write back")
        yield device
    finally:
        cache.write_text("write back")
        check("losetup", "-d", device)


@contextlib.contextmanager
def confined(pid: int, controller: str, limits: Mapping[str, str]) -> Iterator[None]:
    """A process in a control group of its own (version 1) with these limits: file -> text, in their order."""
    top = Path("/sys/fs/cgroup") / controller
    group = top / f"headrace-{pid}"
    group.mkdir()
    try:
        for name, text in limits.items():
            (group / name).write_text(text)
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (top / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextlib.contextmanager
def fuse(export: Path) -> Iterator[None]:
    """Unmounts what the program in the block was killed upon."""
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", export], capture_output=True, check=False)


@contextlib.contextmanager
def exported_device(folder: Path, name: str, size: str = "1G", iops: int = 0) -> Iterator[str]:
    """A block device behind another program, which serves at most ``iops`` a second (0: as fast as it can)."""
    image, export = folder / f"{name}.img", folder / f"{name}.export"
    check("truncate", "-s", size, image)
    export.touch()
    blocks: list[str | Path] = ["--blockdev", f"driver=file,node-name=f,filename={image}"]
    node = "f"
    if iops:
        blocks += ["--object", f"throttle-group,id=g,x-iops-total={iops}"]
        blocks += ["--blockdev", "driver=throttle,node-name=t,throttle-group=g,file=f"]
        node = "t"
    with exported(blocks, node, export), loop_device(export) as device:
        yield device


@contextlib.contextmanager
def exported(blocks: Sequence[str | Path], node: str, export: Path) -> Iterator[None]:
    """A QEMU block node exported as a file: ``blocks`` defines it, ``export`` is an empty file."""
    export_option = f"type=fuse,id=e,node-name={node},mountpoint={export},writable=on"
    with fuse(export), running(["qemu-storage-daemon", *blocks, "--export", export_option]):
        until(lambda: export.stat().st_size, limit_s=READY_S, pause_s=0.05, what="the export did not come up")
        yield


@contextlib.contextmanager
def mounted(device: str, folder: Path, kind: str, *options: str) -> Iterator[Path]:
    """A new file system on the device."""
    check(f"mkfs.{kind}", "-q", device)
    folder.mkdir()
    check("mount", *(["-o", ",".join(options)] if options else []), device, folder)
    try:
        yield folder
    finally:
        check("umount", folder)


@dataclass(frozen=True)
class Pair:
    """A veth pair: ``interface`` with ``address`` here, the other end in the namespace."""

    namespace: str
    interface: str
    address: str

    def inside(self, *argv: str | Path, cpu: int = 0) -> list[str | Path]:
        """A command in the namespace, on one CPU."""
        return ["ip", "netns", "exec", self.namespace, "taskset", "-c", str(cpu), *argv]

    def queue(self, name: str) -> Path:
        return Path(f"/sys/class/net/{self.interface}/queues/rx-0/{name}")


@contextlib.contextmanager
def veth(name: str = "hrt", network: str = "10.214.77") -> Iterator[Pair]:
    """A namespace that reaches us over an interface of its own. We are .1 of the network, it is .2."""
    pair = Pair(f"{name}ns", f"{name}0", f"{network}.1")
    check("ip", "netns", "add", pair.namespace)
    try:
        check(
            "ip",
            "link",
            "add",
            pair.interface,
            "type",
            "veth",
            "peer",
            "name",
            f"{name}1",
            "netns",
            pair.namespace,
        )
        check("ip", "addr", "add", f"{pair.address}/24", "dev", pair.interface)
        check("ip", "link", "set", pair.interface, "up")
        for argv in (
            ("ip", "addr", "add", f"{network}.2/24", "dev", f"{name}1"),
            ("ip", "link", "set", f"{name}1", "up"),
            ("ip", "link", "set", "lo", "up"),
        ):
            check("ip", "netns", "exec", pair.namespace, *argv)
        yield pair
    finally:
        # The pair goes with its namespace, but not at once.
        subprocess.run(["ip", "link", "del", pair.interface], capture_output=True, check=False)
        check("ip", "netns", "del", pair.namespace)
