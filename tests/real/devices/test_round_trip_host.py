"""Every kind of setting, applied and undone: mounts, whole files, a device's queue, a namespace's sysctls.

All that the kernel tells is compared afterwards, and of files also owner, mode and extended attributes. A restored
file has the modification time of its rollback.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_journal import Host
from tests.programs import has
from tests.waiting import until

OWNER = "apply/round"
OWN_FLAGS = ("nosuid", "nodev", "noexec", "nodiratime", "nosymfollow", "ro")
ACCESS = ("noatime", "relatime", "strictatime")
#: Option of the file system, and what it is mounted with: neither, and each way round.
FILE_SYSTEMS = {
    "tmpfs": ([], ["noatime", "relatime", "strictatime"]),
    "ext4": (
        ["commit=7", "discard", "lazytime", "sync"],
        [*ACCESS, "lazytime", "commit=11", "discard", "nodiscard", "sync", "async"],
    ),
    "xfs": (["lazytime", "sync"], [*ACCESS, "lazytime", "nolazytime", "sync", "async"]),
    "btrfs": (["commit=7", "discard=async"], [*ACCESS, "commit=11", "discard", "nodiscard"]),
}
PLACES = (
    "/etc/sysctl.d/99-zz-headrace.conf",
    "/etc/tmpfiles.d/headrace.conf",
    "/etc/udev/rules.d/99-zz-headrace.rules",
    "/etc/systemd/system/mariadb.service.d/headrace.conf",
    "/etc/mysql/mariadb.conf.d/zz-headrace.cnf",
    "/etc/my.cnf.d/zz-headrace.cnf",
    "/etc/tuned/headrace-mysql/tuned.conf",
    "/etc/tuned/profiles/headrace-mysql/tuned.conf",
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def undone(host: Host, *options: str) -> None:
    results = host.call("rollback", *options, owner=OWNER)
    assert all(one["done"] for one in results), results
    assert host.open_entries() == []


def run(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def mount_line(point: Path) -> str:
    """All that the kernel says of a mount, but for its number."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return next(line.split(maxsplit=2)[2] for line in lines if line.split()[4] == str(point))


@contextlib.contextmanager
def mounted(folder: Path, kind: str) -> Iterator[tuple[Path, Path | str]]:
    """A place, and what to mount there."""
    point = folder / "m"
    point.mkdir()
    if kind == "tmpfs":
        yield point, "headrace-test"
        return
    image = folder / "image"
    image.touch()
    os.truncate(image, 320 << 20)
    device = run("losetup", "--find", "--show", image).strip()
    try:
        run(f"mkfs.{kind}", "-q", device)
        yield point, device
    finally:
        run("losetup", "--detach", device)


def mount(*argv: str | Path) -> None:
    """A test beside that makes a namespace has a copy of the last mount in it: as long as that is writable, the
    device cannot be mounted read-only.
    """
    until(
        lambda: subprocess.run(["mount", *argv], capture_output=True, check=False).returncode == 0,
        limit_s=60,
        pause_s=0.2,
    )


@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_a_mount_has_every_option_that_it_had(kind: str, host: Host, tmp_path: Path) -> None:
    if kind != "tmpfs" and not has(f"mkfs.{kind}"):
        pytest.skip(f"needs mkfs.{kind}")
    super_options, wanted = FILE_SYSTEMS[kind]
    starts = [
        [],
        *([flag] for flag in OWN_FLAGS),
        list(OWN_FLAGS[:5]),
        super_options,
        [*super_options, "nodev"],
    ]
    trips = 0
    with mounted(tmp_path, kind) as (point, device):
        for start, access in itertools.product(starts, ACCESS):
            mount("-t", kind, "-o", ",".join([*start, access]), str(device), point)
            try:
                before = mount_line(point)
                both = [f"{wanted[0]},{wanted[-1]}"] if wanted[-1] not in ACCESS else []
                for option in [*wanted, *both]:
                    changes = [{"mount": str(point), "options": option}]
                    host.call("apply", owner=OWNER, stdin=changes)
                    trips += len(host.open_entries())
                    undone(host)
                    assert mount_line(point) == before, (start, access, option)
            finally:
                run("umount", point)
    assert trips > len(starts) * len(ACCESS)


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
@pytest.mark.parametrize("access", ["ro", "rw"])
def test_a_place_and_its_file_system_are_each_as_writable_as_before(
    kind: str, access: str, host: Host, tmp_path: Path
) -> None:
    """A read-only place of a file system that is written elsewhere, and the other way round."""
    if not has(f"mkfs.{kind}"):
        pytest.skip(f"needs mkfs.{kind}")
    other = {"ro": "rw", "rw": "ro"}[access]
    place = tmp_path / "place"
    place.mkdir()
    with mounted(tmp_path, kind) as (point, device):
        run("mount", "-t", kind, "-o", other, str(device), point)
        try:
            run("mount", "--bind", point, place)
            run("mount", "-o", f"remount,bind,{access}", place)
            before = mount_line(point), mount_line(place)
            assert f"/ {place} {access}," in before[1]
            host.call("apply", owner=OWNER, stdin=[{"mount": str(place), "options": "commit=11"}])
            changed = mount_line(point), mount_line(place)
            assert tuple(line.replace(",commit=11", "") for line in changed) == before
            assert before[0] != changed[0]
            undone(host)
            # The kernel prints the default once it was set.
            now = tuple(
                line.replace(",commit=5", "").replace(",commit=30", "")
                for line in (mount_line(point), mount_line(place))
            )
            assert now == before
        finally:
            run("umount", place)
            run("umount", point)


def about(path: Path) -> tuple[object, ...] | None:
    """All that a file is, but for its times and its place on the disk."""
    if not path.exists():
        return None
    status = path.stat()
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return path.read_bytes(), status.st_mode, status.st_uid, status.st_gid, status.st_nlink, attributes


def set_attribute(path: Path) -> None:
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(path, "user.headrace-test", b"theirs")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["undone", "confirmed and undone"])
def test_a_whole_file_is_what_it_was(place: str, way: str, host: Host, tmp_path: Path) -> None:
    root = ("--root", str(tmp_path))
    path = tmp_path / place[1:]
    path.parent.parent.mkdir(parents=True)
    text = "# by somebody\nx = 1\n"
    mask = os.umask(0o077)
    try:
        for is_there in (False, True):
            if is_there:
                path.parent.mkdir()
                path.write_text(text)
                path.chmod(0o640)
                os.chown(path, 12, 34)
                set_attribute(path)
            before = about(path), path.parent.exists()
            assert "taken away" in host.call("apply", *root, stdin=[{"file": place, "content": ""}], code=2)
            for content in ("x = 2\n", "é" * 30_000):
                changes = [{"file": place, "content": content}]
                options = ["--confirm-within", "1h"] if way == "confirmed and undone" else []
                host.call("apply", *root, *options, owner=OWNER, stdin=changes)
                if options:
                    host.call("confirm", *root, owner=OWNER)
                now = about(path)
                assert now is not None
                if before[0]:
                    assert now == (content.encode(), *before[0][1:]), "whose it is and who reads it stays"
                else:
                    # The server reads its option files as another user, whatever the umask of root is.
                    assert (now[0], now[1]) == (content.encode(), 0o100644)
                    assert path.parent.stat().st_mode & 0o777 == 0o755
                undone(host, *root, *(["--kept", "last"] if options else []))
                assert (about(path), path.parent.exists()) == before
            assert not list(path.parent.glob(".*")), "no draft stays"
    finally:
        os.umask(mask)


def settings_below(folder: Path) -> dict[str, str]:
    """Every file that can be read and written."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_mode & 0o200:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found[str(path)] = path.read_text()
    return found


def others(text: str) -> list[str]:
    """Values that the kernel may take instead."""
    words = text.split()
    if "[" in text:
        return [word for word in words if "[" not in word]
    if len(words) == 1 and words[0].lstrip("-").isdigit():
        number = int(words[0])
        return [str(n) for n in dict.fromkeys((1 - number, number + 1, number // 2, 2)) if 0 <= n != number]
    if words and all(word.isdigit() for word in words):
        return [" ".join(str(int(word) + 1) for word in words)]
    return []


def test_every_file_of_a_queue(host: Host, tmp_path: Path) -> None:
    with mounted(tmp_path, "ext4") as (_, device):
        queue = Path("/sys/block") / Path(device).name / "queue"
        before = settings_below(queue)
        changed = set()
        for path, text in before.items():
            for value in others(text):
                if apply_or_refuse(host.argv("apply", "--owner", OWNER), path, value):
                    changed |= {path} if host.open_entries() else set()
                undone(host)
                assert settings_below(queue) == before, (path, value)
        assert {"scheduler", "read_ahead_kb", "nr_requests"} <= {Path(path).name for path in changed}


def apply_or_refuse(argv: list[str], path: str, value: str) -> bool:
    changes: list[dict[str, Any]] = [{"path": path, "value": value}]
    done = subprocess.run(argv, input=json.dumps(changes), text=True, check=False, capture_output=True)
    assert done.returncode in (0, 5), done.stderr
    return done.returncode == 0


@pytest.mark.needs("unshare")
def test_every_sysctl_of_a_network_namespace(host: Host) -> None:
    """In a namespace of its own; what the kernel makes of itself (counters of memory) is not compared."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep infinity"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        try:
            assert holder.stdout
            holder.stdout.readline()
            inside = ["nsenter", f"--target={holder.pid}", "--net", "--"]
            listing = "find /proc/sys/net/core /proc/sys/net/ipv4 -maxdepth 1 -type f -perm -200"
            read = [
                "sh",
                "-c",
                f"for f in $({listing}); do echo \"$f=$(tr '\\n' ' ' < $f)\"; done 2>/dev/null",
            ]

            def state() -> dict[str, str]:
                lines = [line.partition("=") for line in run(*inside, *read).splitlines()]
                return {path: text for path, _, text in lines if path not in UNCOMPARED}

            before = state()
            applied = 0
            for path, text in before.items():
                for value in others(text)[:2]:
                    apply = [*inside, *host.argv("apply", "--owner", OWNER)]
                    if apply_or_refuse(apply, path, value):
                        applied += len(host.open_entries())
                        run(*inside, *host.argv("rollback", "--owner", OWNER))
                    assert host.open_entries() == [], (path, value)
            assert state() == before
            assert applied > 40
        finally:
            holder.kill()


#: Told by the kernel to all namespaces, or no settings.
UNCOMPARED = ("/proc/sys/net/ipv4/route",)
