"""Rules about file systems of the server: their options, their free space, and what shares them."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.hunt.resources import Level
from headrace.hunt.rules.evidence import GIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.waited import waited_for_io

#: Writes per second above which a file system's own work can show in a trial.
MANY_WRITES_S = 500.0
#: Share of the time that tasks wait for I/O above which the host is I/O-bound.
WAITS_FOR_IO = 0.25
#: ext4 and XFS search longer for free space when nearly full, and a full one stops the server.
NEARLY_FULL = 0.90
#: On a large file system the last tenth is a lot: with this much left there is time.
ROOM_ENOUGH = 100 * GIB
#: Redo written per second above which its location matters.
MUCH_REDO_S = 1e6

#: XFS: option -> the kernel that removed it. Linux Documentation/admin-guide/xfs.rst.
REMOVED_XFS = {
    **dict.fromkeys(("delaylog", "nodelaylog", "ihashsize", "irixsgid"), (4, 0)),
    **dict.fromkeys(("osyncisdsync", "osyncisosync"), (4, 0)),
    **dict.fromkeys(("barrier", "nobarrier"), (4, 19)),
}
#: Kinds that do not guarantee durability on their own, or copy before they write.
NOT_FOR_DATA = {
    "overlay": "it copies a whole file at the first write to it",
    "nfs": "every fsync is a round trip to the server",
    "nfs4": "every fsync is a round trip to the server",
    "cifs": "locks and fsync depend on the server",
    "9p": "every request is a message to the hypervisor",
    "virtiofs": "every request is a message to the hypervisor",
    "tmpfs": "nothing survives a restart of the host",
    "ramfs": "nothing survives a restart of the host, and nothing limits its size",
    "smb3": "locks and fsync depend on the server",
    "ceph": "every fsync is a round trip to the storage",
    "fuse": "every request passes through another program",
}
#: Share of the time that a device works on discards above which other requests feel it.
FELT_DISCARDS = 0.05


def _data_mount(evidence: Evidence) -> Mapping[str, Any]:
    mount = evidence.data_file_system
    if mount is None:
        raise NotEnough(f"no file system is known for {evidence.data_directory}")
    return mount


def _options(mount: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*(mount.get("options") or ()), *(mount.get("super_options") or ())]))


def _value(options: list[str], name: str) -> str | None:
    return next((text.partition("=")[2] for text in options if text.startswith(f"{name}=")), None)


def _instead(
    evidence: Evidence,
    mount: Mapping[str, Any],
    gone: tuple[str, ...],
    new: str = "",
    more: tuple[str, ...] = (),
) -> Remedy:
    """An option that replaces others; without one, the mount's options less those to remove. ``more``: steps.

    A mount of the server's own namespace is a step: at the same path this host has another mount, or none.
    """
    kept = [text for text in _options(mount) if text.partition("=")[0] not in gone and text not in gone]
    if evidence.facts.server_view and not evidence.facts.is_mount_of_host(mount):
        options = ",".join(["remount", *([new] if new else kept)])
        pid, point = evidence.server_process["pid"], shlex.quote(str(mount["mount_point"]))
        enter = f"nsenter --target {pid} --mount -- mount -o {shlex.quote(options)} {point}"
        last = "Set it where the container or unit gets its mounts, or it is back at the next start."
        return Remedy(steps=(enter, last, *more))
    return Remedy({f"volume.mount_options@{mount['mount_point']}": [new] if new else kept}, more)


def _writes(evidence: Evidence) -> float:
    name = evidence.beneath(evidence.data_directory)[0]
    device = evidence.devices.get(name)
    return device.writes if device else 0.0


def _is_bound_by_writes(evidence: Evidence) -> bool:
    name = evidence.beneath(evidence.data_directory)[0]
    device = evidence.devices.get(name)
    waits = evidence.rate("psi", "some_total_us", "io") / 1e6
    return device is not None and waits >= WAITS_FOR_IO and device.writes >= max(MANY_WRITES_S, device.reads)


@rule(
    "FS01",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux ext4(5), data=journal; Documentation/admin-guide/ext4.rst (no delayed allocation, no O_DIRECT)",
    refute="With data=ordered, writes per second to the device and commits per second are equivalent.",
)
def data_in_the_journal(evidence: Evidence) -> Iterator[Match]:
    """The file system writes the server's data twice: into its journal, then into place.

    InnoDB has its own redo log and doublewrite buffer. With data=journal every page also goes through the journal,
    and direct I/O silently becomes buffered I/O.
    """
    mount = _data_mount(evidence)
    if mount.get("kind") != "ext4" or _value(_options(mount), "data") != "journal":
        return
    yield Match(
        str(mount["mount_point"]),
        f"{mount['mount_point']}, with the server's data, is ext4 with data=journal at "
        f"{_writes(evidence):,.0f} writes/s.",
        (
            number("mount options", ",".join(_options(mount))),
            number("writes/s of the device", _writes(evidence), ",.0f"),
        ),
        (
            # The kernel lists the options that data=journal implies.
            _instead(
                evidence,
                mount,
                ("data", "nodelalloc", "nodioread_nolock"),
                "data=ordered",
                ("A remount cannot change it: stop the server, unmount and mount.",),
            ),
        ),
    )


@rule(
    "FS02",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux ext4(5), barrier; Documentation/admin-guide/xfs.rst, removed options",
    refute="Every device beneath keeps its cache through a power cut (write_cache says write through).",
)
def no_barriers(evidence: Evidence) -> Iterator[Match]:
    """Barriers are off: a power cut may lose committed transactions and the file system itself.

    The option stops the kernel from flushing the device's cache at fsync. On a device with a protected cache it
    saves nothing, since the kernel sends no flushes there; on any other device it loses data.
    """
    mount = _data_mount(evidence)
    options = _options(mount)
    if "nobarrier" not in options and "barrier=0" not in options:
        return
    names = evidence.beneath(evidence.data_directory)
    caches = {
        n: ((evidence.facts.block_device(n) or {}).get("queue") or {}).get("write_cache") for n in names
    }
    if all(cache == "write through" for cache in caches.values()):
        return
    yield Match(
        str(mount["mount_point"]),
        f"{mount['mount_point']}, with the server's data, is mounted without barriers on {', '.join(names)}.",
        (
            number("mount options", ",".join(options)),
            number(
                "write cache", ", ".join(f"{name} {cache or 'unknown'}" for name, cache in caches.items())
            ),
        ),
        (_instead(evidence, mount, ("nobarrier", "barrier"), "barrier"),),
    )


@rule(
    "FS03",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/xfs.rst, discard (fstrim is recommended); ext4(5)",
    refute="Without discard, p99 while tables and binary logs are dropped is equivalent.",
)
def discard_at_once(evidence: Evidence) -> Iterator[Match]:
    """The file system reports every freed block to the device immediately.

    Dropping a table or purging binary logs then sends a burst of discards between the server's requests. A weekly
    fstrim is enough for the device.
    """
    mount = _data_mount(evidence)
    if mount.get("kind") not in ("xfs", "ext4") or "discard" not in _options(mount):
        return
    name = evidence.beneath(evidence.data_directory)[0]
    discards = evidence.window.rate("disk", "discards", name)
    yield Match(
        str(mount["mount_point"]),
        f"{mount['mount_point']}, with the server's data, is mounted with discard.",
        (
            number("mount options", ",".join(_options(mount))),
            number("discards/s now", "unknown" if discards is None else discards, ",.1f"),
        ),
        (_instead(evidence, mount, ("discard",), "nodiscard", ("systemctl enable --now fstrim.timer",)),),
        Severity.COST if _feels_discards(evidence, name) else None,
    )


def _feels_discards(evidence: Evidence, name: str) -> bool:
    """Whether requests of the server wait for them: those of others are nothing to one that asks for little."""
    return evidence.asks_disks and _share_of_discards(evidence, name) >= FELT_DISCARDS


def _share_of_discards(evidence: Evidence, name: str) -> float:
    """Share of the window that the device spent on discards; 0 before Linux 4.18, which does not count them."""
    return (evidence.window.rate("disk", "discard_ms", name) or 0.0) / 1e3


@rule(
    "FS04",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/xfs.rst, logbsize",
    refute="With logbsize=256k, writes per second and their p99 are equivalent.",
)
def small_log_buffers(evidence: Evidence) -> Iterator[Match]:
    """XFS uses small log buffers with many writes.

    XFS gathers metadata changes in these buffers. Larger ones are written less often; every fsync of a growing
    file waits for one.
    """
    mount = _data_mount(evidence)
    buffer = _value(_options(mount), "logbsize")
    if mount.get("kind") != "xfs" or buffer not in ("16k", "32k", "16384", "32768"):
        return
    writes = _writes(evidence)
    if writes < MANY_WRITES_S:
        return
    yield Match(
        str(mount["mount_point"]),
        f"{mount['mount_point']} has log buffers of {buffer} at {writes:,.0f} writes/s.",
        (number("logbsize", buffer), number("writes/s", writes, ",.0f")),
        (_instead(evidence, mount, ("logbsize",), "logbsize=256k"),),
    )


@rule(
    "FS05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux mount(8), noatime, relatime and strictatime",
    refute="With noatime, writes per second and their p99 are equivalent.",
)
def access_times(evidence: Evidence) -> Iterator[Match]:
    """Reads write file access times on a host that waits for writes.

    strictatime writes at every read, relatime once per file per day. A server needs neither. Expect little gain
    over relatime: the server's files are few and always changing.
    """
    mount = _data_mount(evidence)
    options = _options(mount)
    if mount.get("options") is None:
        raise NotEnough(f"the options of the mount {mount['mount_point']} are unknown")
    if "noatime" in options or mount.get("kind") not in ("ext4", "xfs", "btrfs"):
        return
    kind = "relatime" if "relatime" in options else "strictatime"
    is_first = _value(options, "data") != "journal" and _is_bound_by_writes(evidence)
    if kind == "relatime" and not is_first:
        return
    yield Match(
        str(mount["mount_point"]),
        f"{mount['mount_point']}, with the server's data, is mounted with {kind}.",
        (number("mount options", ",".join(options)), number("writes/s", _writes(evidence), ",.0f")),
        (_instead(evidence, mount, ("relatime", "strictatime", "lazytime"), "noatime"),),
        Severity.COST if kind == "strictatime" else None,
    )


def places(evidence: Evidence) -> dict[str, str]:
    """What the server writes -> where. Without a server to query, only the data directory."""
    data = evidence.data_directory
    found = {"data": data}
    for what, variable in (
        ("redo log", "innodb_log_group_home_dir"),
        ("binary log", "log_bin_basename"),
        ("temporary tables", "tmpdir"),
    ):
        if evidence.has_variable(variable) and evidence.variable(variable):
            # MySQL and MariaDB accept several directories for tmpdir, separated by colons.
            first = evidence.variable(variable).partition(":")[0]
            found[what] = posixpath.normpath(posixpath.join(data, first))
    return found


def written_mounts(evidence: Evidence) -> dict[str, list[str]]:
    """Mount point -> what the server writes there."""
    found: dict[str, list[str]] = {}
    for what, path in places(evidence).items():
        mount = evidence.facts.server_file_system_of(path)
        if mount is not None:
            found.setdefault(str(mount["mount_point"]), []).append(what)
    if not found:
        raise NotEnough(f"no file system is known for {evidence.data_directory}")
    return found


@rule(
    "FS06",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux statvfs(3), f_bavail; MySQL Reference Manual, How MySQL Handles a Full Disk",
    refute="df shows more free space, or a quota that is not the end of the file system.",
)
def nearly_full(evidence: Evidence) -> Iterator[Match]:
    """A file system that the server writes to is nearly full.

    A server that cannot write stalls all its transactions until space is freed; a binary log or temporary table
    that cannot grow fails its statement.
    """
    known = 0
    for point, holds in written_mounts(evidence).items():
        room = evidence.room(point)
        if room is None:
            continue
        total, free = room
        known += 1
        used = 1 - free / total
        if used < NEARLY_FULL or free >= ROOM_ENOUGH:
            continue
        steps = (
            "Grow the file system, or free space: drop old tables, and purge binary logs that neither a "
            "replica (running or stopped) nor the oldest backup still needs.",
        )
        yield Match(
            point,
            f"{point} ({', '.join(holds)}) is {share(used)} full: {size(free)} of {size(total)} is left.",
            (number("available", size(free)), number("size", size(total)), number("holds", ", ".join(holds))),
            (Remedy(steps=steps),),
        )
    if not known:
        raise NotEnough("free space of file systems was not sampled (sampler file_systems)")


@rule(
    "FS07",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/ext4.rst and xfs.rst",
    refute="On XFS on the same device, throughput and p99 of writes are equivalent.",
    disputed="Published tests have gone either way, depending on kernel, device and load.",
)
def another_file_system(evidence: Evidence) -> Iterator[Match]:
    """The host waits for writes to ext4: XFS may do better, or worse.

    The two differ in how they lock files under direct I/O and in how they allocate space. This matters if many
    threads write to a few large files; trying it means rebuilding the volume.
    """
    mount = _data_mount(evidence)
    # If the journal also takes the data (FS01), that comes first.
    if mount.get("kind") != "ext4" or _value(_options(mount), "data") == "journal":
        return
    if not _is_bound_by_writes(evidence):
        return
    waits = evidence.rate("psi", "some_total_us", "io") / 1e6
    yield Match(
        str(mount["mount_point"]),
        f"tasks wait for I/O {share(waits)} of the time, and {mount['mount_point']} (ext4) takes "
        f"{_writes(evidence):,.0f} writes/s.",
        (number("waited for I/O", share(waits)), number("writes/s", _writes(evidence), ",.0f")),
        (
            Remedy(
                {"volume.filesystem": "xfs"}, ("Copy the data onto a new volume: try it on a spare device.",)
            ),
        ),
    )


@rule(
    "FS08",
    severity=Severity.COST,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, Optimizing InnoDB Disk I/O",
    refute="With redo and binary log on another device, commits per second and their p99 are equivalent.",
)
def logs_beside_data(evidence: Evidence) -> Iterator[Match]:
    """Redo log, binary log and data share a device that is saturated.

    Commits wait for small writes at the end of the logs. On a shared device, each of these writes waits behind the
    queued page writes.
    """
    device = evidence.beneath(evidence.data_directory)[0]
    use = evidence.use("block", device)
    redo = evidence.status_rate("innodb_os_log_written")
    if use is None or use.level is not Level.SATURATED or redo < MUCH_REDO_S:
        return
    there = [
        what
        for what, path in places(evidence).items()
        if what.endswith("log") and evidence.disk_of(evidence.device_of(path) or "") == device
    ]
    if not there:
        return
    yield Match(
        device,
        f"{device} is saturated and holds the data, the {' and the '.join(there)}; {redo / 1e6:,.1f} MB/s of "
        f"redo is written.",
        (
            number("requests in flight", use.numbers["queue"], ".1f"),
            number("time per request", f"{use.numbers['wait_ms']:.2f} ms"),
            number("redo, MB/s", redo / 1e6, ",.2f"),
        ),
        (
            Remedy(
                steps=(
                    f"Move the {' and the '.join(there)} to a separate device (innodb_log_group_home_dir, "
                    "log_bin), with the server stopped.",
                )
            ),
        ),
    )


@rule(
    "FS09",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/xfs.rst, Removed Mount Options",
    refute="The file system is mounted with these options under a newer kernel.",
)
def options_that_will_be_gone(evidence: Evidence) -> Iterator[Match]:
    """A mount uses options that newer kernels refuse: after an upgrade it will not mount.

    Guides from 2015 recommend them. A kernel that has removed them refuses the mount, and the host comes up
    without the data.
    """
    for mount in evidence.rows("file_systems"):
        if mount.get("kind") != "xfs":
            continue
        names = [text.partition("=")[0] for text in _options(mount)]
        gone = [n for n in names if n in REMOVED_XFS and not evidence.kernel_at_least(*REMOVED_XFS[n])]
        if not gone:
            continue
        first = min(REMOVED_XFS[name] for name in gone)
        yield Match(
            str(mount["mount_point"]),
            f"{mount['mount_point']} is mounted with {', '.join(gone)}, which Linux "
            f"{first[0]}.{first[1]} refuses.",
            (number("options", ", ".join(gone)), number("kernel", evidence.facts.kernel_release)),
            (Remedy(steps=(f"Remove {', '.join(gone)} from /etc/fstab before the kernel is upgraded.",)),),
        )


@rule(
    "FS10",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/filesystems/overlayfs.rst, nfs(5), tmpfs.rst",
    refute="On a volume of a local device, commits per second and their p99 are equivalent.",
)
def not_a_place_for_data(evidence: Evidence) -> Iterator[Match]:
    """The server's data is on a layered, remote or volatile file system.

    A container without a volume keeps its data in the image's overlay: that is slow, and the data is lost with the
    container.
    """
    mount = _data_mount(evidence)
    # A file system in user space is called fuse.glusterfs.
    why = NOT_FOR_DATA.get(str(mount.get("kind")).partition(".")[0])
    if why is None:
        return
    yield Match(
        str(mount["mount_point"]),
        f"{evidence.data_directory} is on {mount['kind']}: {why}.",
        (number("file system", mount["kind"]), number("source", mount.get("source"))),
        (Remedy(steps=("Put the data directory on a volume of a local device (ext4 or XFS).",)),),
        Severity.RISK if mount["kind"] in ("tmpfs", "ramfs") else None,
    )


@rule(
    "FS14",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux mount(8), sync; open(2), O_SYNC",
    refute="With async, writes per second of the device and commits per second are equivalent.",
)
def mounted_sync(evidence: Evidence) -> Iterator[Match]:
    """A file system that the server writes to is mounted with sync: every write waits for the device.

    The server syncs its files where a crash could lose something. With sync, each write of a page, of a temporary
    table or of a log also waits until the device has it, with the file's metadata and a flush of the device's
    cache. The option often comes from an example for removable drives or for NFS.
    """
    waits = waited_for_io(evidence.window)
    for point, holds in written_mounts(evidence).items():
        mount = evidence.facts.server_file_system_of(point) or {}
        if "sync" not in _options(mount):
            continue
        disk = evidence.disk_of(str(mount.get("block_device") or ""))
        writes = evidence.window.rate("disk", "writes", disk) or 0.0
        yield Match(
            point,
            f"{point} ({', '.join(holds)}) is mounted with sync, at {writes:,.0f} writes/s; {waits.said}.",
            (
                number("mount options", ",".join(_options(mount))),
                number("writes/s of the device", writes, ",.0f"),
                waits.number,
            ),
            (
                _instead(
                    evidence,
                    mount,
                    ("sync",),
                    "async",
                    ("Remove sync from /etc/fstab or the mount unit, or it is back at the next mount.",),
                ),
            ),
            Severity.LIMIT if waits.is_high else None,
        )
