"""Rules about what runs out: space, numbers, tasks and connection tracking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.base.model import Vendor
from headrace.hunt.rules.evidence import GIB, MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.filesystems import written_mounts
from headrace.hunt.rules.pressure import SOON_S, lasting
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Growth counts as steady if each part of the window has at least this share of the mean.
STEADY = 0.5
#: Growth in the window below this is a log file.
GROWN = 16 * MIB
#: Inodes left below which new files soon fail, as a share of all.
INODES_LEFT = 0.02
#: An AUTO_INCREMENT column that used up this much of its type.
NUMBERS_USED = 0.80
#: Connections that the firewall tracks, this close to the limit.
NEAR = 0.80
#: The temporary tablespace's part of the space that it could take.
TEMPORARY = 0.25
#: Delays of the group's allocations per second.
HELD_BACK_S = 0.1

_GROUPS = "Linux Documentation/admin-guide/cgroup-v2.rst"


def _steady_loss_s(evidence: Evidence, metric: str, point: str) -> float:
    """How much a file system loses per second; 0 unless it does so in every part of the window."""
    values = evidence.window.values("file_systems", metric, point)
    series = evidence.window.series("file_systems", metric, point)
    if series is None or len(values) < 3 or len(series.t_s) != len(values) - 1:
        return 0.0
    # The last look comes sooner after the one before than the others do.
    rates = (values[:-1] - values[1:]) / np.diff(series.t_s, prepend=0.0)
    mean = float(values[0] - values[-1]) / float(series.t_s[-1])
    return 0.0 if rates.min() < STEADY * mean else mean


@rule(
    "FS11",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="Linux statvfs(3), f_bavail and f_favail; MySQL Reference Manual, How MySQL Handles a Full Disk",
    refute="df shows the same space an hour later, or the growth ends with the job that causes it.",
)
def full_soon(evidence: Evidence) -> Iterator[Match]:
    """At this rate a file system that the server writes to is full within a day.

    When it is full, transactions hang until space is freed, and a replica or a dump fails. Growth from a nightly
    job ends with the job; growth of binary logs that expire too late does not.
    """
    if "file_systems" not in evidence.window.samplers():
        raise NotEnough("free space of file systems was not sampled (sampler file_systems)")
    for point, holds in written_mounts(evidence).items():
        free = evidence.window.last("file_systems", "available_bytes", point)
        loss = _steady_loss_s(evidence, "available_bytes", point)
        if free is None or loss * evidence.window.seconds < GROWN or free / loss > SOON_S:
            continue
        yield Match(
            point,
            f"{point} ({', '.join(holds)}) fills up by {size(loss)}/s: the remaining {size(free)} last "
            f"{lasting(free / loss)}.",
            (
                number("lost per second", size(loss)),
                number("available", size(free)),
                number("full in", lasting(free / loss)),
            ),
            (
                Remedy(
                    steps=(
                        "See what grows: du -x on the mount, SHOW BINARY LOGS, temporary files of the server "
                        "(lsof +L1).",
                        "Grow the file system, or end the job. Purge binary logs only up to what every replica "
                        "and backup has read.",
                    )
                ),
            ),
        )


@rule(
    "FS12",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux statvfs(3), f_favail; ext4(5): the number of inodes is fixed when the file system is made",
    refute="df -i shows more free inodes.",
)
def inodes_run_out(evidence: Evidence) -> Iterator[Match]:
    """A file system that the server writes to is nearly out of inodes.

    No file can be created without one, however much space is free: no table, no binary log, no temporary file.
    """
    if "file_systems" not in evidence.window.samplers():
        raise NotEnough("free inodes of file systems were not sampled (sampler file_systems)")
    for point, holds in written_mounts(evidence).items():
        total = evidence.window.last("file_systems", "inodes", point)
        free = evidence.window.last("file_systems", "available_inodes", point)
        # btrfs makes inodes as it needs them, and reports none.
        if not total or free is None:
            continue
        loss = _steady_loss_s(evidence, "available_inodes", point)
        is_soon = loss * evidence.window.seconds >= 100 and free / loss <= SOON_S
        if free >= INODES_LEFT * total and not is_soon:
            continue
        yield Match(
            point,
            f"{point} ({', '.join(holds)}) has {free:,.0f} of {total:,.0f} inodes left"
            + (f", for {lasting(free / loss)} at this rate." if is_soon else "."),
            (number("available inodes", free, ",.0f"), number("inodes", total, ",.0f")),
            (
                Remedy(
                    steps=(
                        "Find the directory with the many files (du --inodes -x), and remove what is not "
                        "needed.",
                        "ext4 cannot get more inodes than it was created with (mkfs.ext4 -N); XFS allocates "
                        "them as needed.",
                    )
                ),
            ),
        )


@rule(
    "FS13",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux mount(8), errors=remount-ro of ext4; proc_pid_mountinfo(5)",
    refute="A file can be created in the directory, or the server is meant to read only.",
)
def mounted_read_only(evidence: Evidence) -> Iterator[Match]:
    """A file system that the server writes to is mounted read-only.

    With errors=remount-ro, ext4 becomes read-only after a device error. The server can still read, so it looks
    alive, but creating a file fails, and so do writes through files that it opens from now on.
    """
    if evidence.has_variable("innodb_read_only") and evidence.is_on("innodb_read_only"):
        return
    for point, holds in written_mounts(evidence).items():
        mount = evidence.facts.server_file_system_of(point) or {}
        options = {*(mount.get("options") or ()), *(mount.get("super_options") or ())}
        if "ro" not in options:
            continue
        yield Match(
            point,
            f"{point} ({', '.join(holds)}) is mounted read-only.",
            (
                number("options", ",".join(mount.get("options") or ())),
                number("of the file system", ",".join(mount.get("super_options") or ())),
            ),
            (
                Remedy(
                    steps=(
                        "Read dmesg first: a device that fails must be replaced, not mounted again.",
                        "Stop the server, unmount, check the file system (e2fsck, xfs_repair), mount it, start "
                        "the server, and look for damaged tables (mysqlcheck).",
                    )
                ),
            ),
        )


@rule(
    "LIM06",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Using AUTO_INCREMENT; Integer Types",
    refute="The table gets no new rows, or its next numbers are set back on purpose.",
)
def numbers_run_out(evidence: Evidence) -> Iterator[Match]:
    """An AUTO_INCREMENT column is near the largest number of its type.

    After the last number every INSERT fails with a duplicate key. Changing the type of a large table takes
    hours, so the time to do it is now. Rolled back inserts and bulk inserts use up numbers too.
    """
    counters = evidence.settings.get("auto_increment")
    if counters is None:
        raise NotEnough("the server did not report its AUTO_INCREMENT columns")
    for counter in counters:
        name, next_, limit = counter.get("column"), counter.get("next"), counter.get("limit")
        if not name or not next_ or not limit or next_ < NUMBERS_USED * limit:
            continue
        kind = counter.get("column_type") or "unknown type"
        yield Match(
            str(name),
            f"{name} ({kind}) has used {share(next_ / limit)} of its numbers: the next is {next_:,} of {limit:,}.",
            (number("next", next_, ","), number("largest", limit, ","), number("type", kind)),
            (
                Remedy(
                    steps=(
                        "Change it, and every column that refers to it, to BIGINT UNSIGNED with an online "
                        "schema change tool: ALTER TABLE rebuilds the table and blocks writes meanwhile.",
                    )
                ),
            ),
        )


@rule(
    "LIM07",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_GROUPS}, memory.high and memory.events",
    refute="With memory.high raised, memory.events counts no more high, but throughput and p99 are equivalent.",
)
def allocations_are_held_back(evidence: Evidence) -> Iterator[Match]:
    """The server's control group is above memory.high, and the kernel slows down its allocations.

    Nothing is killed, so nothing is logged: threads that allocate are put to sleep, and the group's page cache is
    reclaimed again and again, while the host has memory to spare.
    """
    if "cgroup" not in evidence.window.samplers():
        raise NotEnough("control groups were not sampled (sampler cgroup)")
    high = (evidence.server_process.get("cgroup") or {}).get("memory_high_bytes")
    for group, rate in evidence.window.rates("cgroup", "memory_high").items():
        if rate < HELD_BACK_S:
            continue
        yield Match(
            group,
            f"{group} went above memory.high {rate:,.1f} times per second"
            + (f", which is {size(high)}." if isinstance(high, int) else "."),
            (
                number("memory.events, high/s", rate, ",.1f"),
                number("memory.high", size(high) if isinstance(high, int) else "of a group above"),
                number("resident", size(evidence.server_process.get("rss_bytes") or 0)),
            ),
            (
                Remedy(
                    steps=(
                        "Raise it (systemctl set-property --runtime UNIT MemoryHigh=), or shrink the buffer "
                        "pool so that the pool and the sessions fit below it.",
                    )
                ),
            ),
        )


@rule(
    "LIM08",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/cgroup-v2.rst, pids.max and pids.events; "
    "systemd.resource-control(5), TasksMax=",
    refute="With pids.max raised, pids.events counts no more max, but clients are refused as before.",
)
def threads_are_refused(evidence: Evidence) -> Iterator[Match]:
    """The kernel refuses to create a thread for the server, because its control group has reached its task limit.

    A thread counts as a task, and so does every process of the group. A connection that gets no thread fails with
    error 1135, which looks like lack of memory; if a background thread cannot start, the server exits.
    """
    if "cgroup" not in evidence.window.samplers():
        raise NotEnough("control groups were not sampled (sampler cgroup)")
    for group in evidence.window.labels("cgroup", "tasks_refused"):
        refused = evidence.growth("cgroup", "tasks_refused", group)
        if refused <= 0:
            continue
        limit = evidence.last("cgroup", "tasks_limit", group)
        tasks = evidence.gauge("cgroup", "tasks", group).high
        wanted = int(tasks + evidence.number("max_connections")) if evidence.has_server else int(2 * tasks)
        yield Match(
            group,
            f"{group} was refused {refused:,.0f} tasks during the window; it has {tasks:,.0f} of {limit:,.0f}.",
            (
                number("refused", refused, ",.0f"),
                number("tasks, maximum", tasks, ",.0f"),
                number("pids.max", limit, ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        "Raise it above the number of connections that are allowed: systemctl set-property "
                        f"UNIT TasksMax={wanted} (with --runtime: until the next boot).",
                    )
                ),
            ),
        )


@rule(
    "NET09",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/networking/nf_conntrack-sysctl.rst, nf_conntrack_max and nf_conntrack_count",
    refute="At the busiest time nf_conntrack_count stays far below nf_conntrack_max, and dmesg says nothing.",
)
def tracked_connections(evidence: Evidence) -> Iterator[Match]:
    """The firewall tracks nearly as many connections as it can.

    When the table is full, packets of new connections are dropped without an answer: clients time out, and
    neither the server nor the interface counts an error. Closed connections stay in it for two minutes.
    """
    name = "net.netfilter.nf_conntrack_"
    if evidence.facts.sysctl(f"{name}max") is None:
        return  # the kernel tracks none
    limit, used = (evidence.sysctl_number(f"{name}{what}") for what in ("max", "count"))
    if limit <= 0 or used < NEAR * limit:
        return
    wanted = 1 << (2 * int(used)).bit_length()
    yield Match(
        "",
        f"{int(used):,} of {int(limit):,} connections are tracked ({share(int(used) / int(limit))}).",
        (number("nf_conntrack_count", int(used), ","), number("nf_conntrack_max", int(limit), ",")),
        (
            Remedy({f"host.{name}max": wanted}, label="a larger table"),
            Remedy(
                steps=("Keep connections open, or exempt the server's port from tracking (NOTRACK).",),
                label="fewer entries",
            ),
        ),
    )


def _temporary_file(evidence: Evidence) -> Mapping[str, Any]:
    path = evidence.variable("innodb_temp_data_file_path")
    written = evidence.settings.get("temporary_tablespace_bytes")
    if written is None:
        raise NotEnough("the server did not report the size of its temporary tablespace")
    return {"path": path, "bytes": float(written)}


@rule(
    "LIM09",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, innodb_temp_data_file_path; MariaDB, InnoDB Temporary Tablespaces",
    refute="The file was this large at its last restart too, and the file system has room for twice as much.",
    applies_to={
        Vendor.MARIADB: Versions(),
        # Since 8.0.13 each session's temporary tables are in files of their own, which end with the session.
        Vendor.MYSQL: Versions(until="8.0.13"),
        Vendor.PERCONA: Versions(until="8.0.13"),
    },
)
def temporary_tablespace_grows(evidence: Evidence) -> Iterator[Match]:
    """The temporary tablespace has no limit and takes much of the file system.

    ibtmp1 grows for the largest temporary table that any session ever made, and never shrinks while the server
    runs. One bad report query can fill the disk that holds all tables.
    """
    file = _temporary_file(evidence)
    if ":max:" in str(file["path"]).lower():
        return
    mount = evidence.data_file_system
    point = str(mount["mount_point"]) if mount else ""
    room = evidence.room(evidence.data_directory)
    if room is None:
        raise NotEnough("free space of file systems was not sampled (sampler file_systems)")
    free = room[1]
    if file["bytes"] < TEMPORARY * (file["bytes"] + free):
        return
    first = str(file["path"]).partition(":")[0]
    gibs = max(-(-int(file["bytes"]) // GIB), 1)
    yield Match(
        "",
        f"{first} has {size(file['bytes'])}, and {size(free)} is left on {point}; "
        "innodb_temp_data_file_path sets no "
        "maximum.",
        (
            number("size", size(file["bytes"])),
            number("available", size(free)),
            number("innodb_temp_data_file_path", file["path"]),
        ),
        (
            Remedy(
                steps=(
                    f"Set innodb_temp_data_file_path={first}:12M:autoextend:max:{gibs}G, and restart, which also "
                    "makes the file small again (MariaDB 11.3: SET GLOBAL "
                    "innodb_truncate_temporary_tablespace_now=ON).",
                    "Find the statement that makes such tables: Created_tmp_disk_tables, the slow log.",
                )
            ),
        ),
    )
