"""Rules about limits that a server reaches before the hardware's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.counted import counted
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Above this, a storm of connections or a burst of tables can reach the limit.
NEAR = 0.80
#: Memory of a group: the kernel reclaims before it kills, so the pool may come closer.
MEMORY_NEAR = 0.95
#: A device throttled by the server's group does nearly what the group allows.
HELD_BACK = 0.90
#: Requests that InnoDB sets up for each of its I/O threads: 8 x OS_AIO_N_PENDING_IOS_PER_THREAD of its source.
REQUESTS_A_THREAD = 256
#: The limit of threads and processes of a control group.
PIDS_MAX = "pids.max"


def _name(process: Mapping[str, Any]) -> str:
    return f"{process['pid']}/{process['program']}"


@rule(
    "LIM01",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux getrlimit(2), RLIMIT_NOFILE; systemd.exec(5), LimitNOFILE=",
    refute="With all tables open and all connections in use, open files stay far below the limit.",
)
def open_files(evidence: Evidence) -> Iterator[Match]:
    """The server is close to its limit on open files.

    At the limit the server cannot open a table or accept a connection: errors 23 and 24, and a listener that
    spins.
    """
    process = evidence.server_process
    used = evidence.window.gauge("server_process", "open_files", _name(process))
    if used is None:
        raise NotEnough("the server's open files were not sampled (sampler server_process)")
    limit = process.get("nofile_soft")
    if not isinstance(limit, int) or used.high < NEAR * limit:
        return
    raised: dict[str, Any] = {}
    enough = f"at least {math.ceil(1.5 * used.high / 1_000) * 1_000}, for all that the server may open"
    if evidence.has_server:
        wanted = sizes.open_files(evidence, used.high)
        raised, enough = {"server.open_files_limit": wanted}, str(wanted)
    yield Match(
        _name(process),
        f"{process['program']} has {used.high:,.0f} files open of {limit:,}.",
        (
            number("open files, maximum", used.high, ",.0f"),
            number("limit", limit, ","),
            number("hard limit", process.get("nofile_hard")),
        ),
        (
            Remedy(
                raised,
                (
                    f"Raise the service's limit: systemctl edit, [Service] LimitNOFILE={enough}; then "
                    "restart the server.",
                ),
            ),
        ),
    )


@rule(
    "LIM02",
    severity=Severity.RISK,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, innodb_use_native_aio; Linux Documentation/admin-guide/sysctl/fs.rst, aio-nr",
    refute="All servers of the host start with native asynchronous I/O (no warning of io_setup in their logs).",
)
def asynchronous_requests(evidence: Evidence) -> Iterator[Match]:
    """The system allows fewer asynchronous requests than the servers will ask for.

    InnoDB reserves them at startup. A server that gets none falls back to simulated I/O or does not start; the one
    that started first keeps its share.
    """
    if evidence.has_variable("innodb_use_native_aio") and not evidence.is_on("innodb_use_native_aio"):
        return
    threads = evidence.number("innodb_read_io_threads") + evidence.number("innodb_write_io_threads")
    servers = [s for s in evidence.rows("servers") if s.get("program") in ("mysqld", "mariadbd")]
    asked = threads * REQUESTS_A_THREAD * max(len(servers), 1)
    allowed = evidence.sysctl_number("fs.aio-max-nr")
    if asked < NEAR * allowed:
        return
    yield Match(
        "",
        f"{counted(max(len(servers), 1), 'server')} with {threads:.0f} I/O threads ask for {asked:,.0f} requests; "
        f"fs.aio-max-nr is {allowed:,}.",
        (
            number("I/O threads per server", threads, ".0f"),
            number("servers", max(len(servers), 1)),
            number("fs.aio-max-nr", allowed, ","),
        ),
        (Remedy({"host.fs.aio-max-nr": max(1_048_576, int(4 * asked))}),),
    )


@rule(
    "LIM03",
    severity=Severity.RISK,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/sysctl/kernel.rst, pid_max and threads-max; "
    "Documentation/admin-guide/cgroup-v2.rst, pids.max",
    refute="With all connections in use, threads stay far below both limits.",
)
def threads(evidence: Evidence) -> Iterator[Match]:
    """The server has nearly as many threads as the system, or its control group, allows.

    A connection needs a thread; at the limit it is refused with error 1135. systemd limits the group of a service
    (TasksMax) far below what the system allows.
    """
    process = evidence.server_process
    running = process.get("threads")
    if running is None:
        raise NotEnough("the host does not report how many threads the server has")
    limits = {name: evidence.sysctl_number(name) for name in ("kernel.pid_max", "kernel.threads-max")}
    of_group = (process.get("cgroup") or {}).get("pids_max")
    if isinstance(of_group, int):
        limits[PIDS_MAX] = of_group
    least = min(limits, key=lambda name: limits[name])
    if running < NEAR * limits[least]:
        return
    yield Match(
        _name(process),
        f"{process['program']} has {counted(running, 'thread')}; {least} is {limits[least]:,}.",
        (number("threads", running, ","), *(number(name, value, ",") for name, value in limits.items())),
        (
            Remedy(
                steps=(
                    f"systemctl set-property UNIT TasksMax={4 * limits[least]} (with --runtime: until the "
                    "next boot).",
                ),
                label="allow more",
            )
            if least == PIDS_MAX
            else Remedy({f"host.{least}": 4 * limits[least]}, label="allow more"),
            Remedy(
                steps=("Fewer threads: a connection pool, or the server's thread pool.",), label="need fewer"
            ),
        ),
    )


@rule(
    "LIM04",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/cgroup-v2.rst, memory.max",
    refute="At the busiest time memory.current stays below memory.max, and memory.events counts no max.",
)
def memory_of_the_group(evidence: Evidence) -> Iterator[Match]:
    """The server is close to the memory limit of its control group.

    The host may have memory to spare: at the group's limit the kernel drops the group's page cache, then swaps,
    then kills the server. MemAvailable does not show this.
    """
    process = evidence.server_process
    limit = (process.get("cgroup") or {}).get("memory_max_bytes")
    resident = process.get("rss_bytes")
    if not isinstance(limit, int) or resident is None:
        # "max": the group has no limit.
        return
    if resident < MEMORY_NEAR * limit:
        return
    yield Match(
        _name(process),
        f"{process['program']} uses {size(resident)} of its control group's limit of {size(limit)} "
        f"({share(resident / limit)}).",
        (number("resident", size(resident)), number("memory.max", size(limit))),
        (
            Remedy(
                steps=(
                    "Raise the group's limit (systemctl set-property --runtime UNIT MemoryMax=), or make the "
                    "buffer pool smaller.",
                )
            ),
        ),
    )


@rule(
    "LIM05",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/cgroup-v2.rst, io.max",
    refute="With the limit removed, the device does no more requests.",
)
def io_of_the_group(evidence: Evidence) -> Iterator[Match]:
    """The server's control group throttles its requests to a device.

    The device has room and its latencies look good, yet the server waits: the kernel queues the requests above the
    device, where no device counter sees them.
    """
    for entry in (evidence.server_process.get("cgroup") or {}).get("io") or ():
        device = next(
            (d for d in evidence.rows("block_devices") if d.get("device_number") == entry["device_number"]),
            None,
        )
        if device is None:
            continue
        name = str(device["name"])
        of_device = {
            "read_ios": evidence.rate("disk", "reads", name),
            "write_ios": evidence.rate("disk", "writes", name),
            "read_bytes": 512 * evidence.rate("disk", "sectors_read", name),
            "write_bytes": 512 * evidence.rate("disk", "sectors_written", name),
        }
        for what, all_of_it in of_device.items():
            limit = entry.get(f"{what}_s")
            # Others may use the device, too. Without the group's own count, theirs cannot be told apart.
            own = evidence.window.rate("cgroup", what, f"{entry.get('path')} {entry['device_number']}")
            rate = all_of_it if own is None else own
            if own is None and evidence.own_devices is not None and name not in evidence.own_devices:
                continue
            if not isinstance(limit, int) or rate < HELD_BACK * limit:
                continue
            shown = what.replace("_", " ")
            who = name if own is None else f"the server's control group on {name}"
            limited = f"limited to {limit:,}"
            yield Match(
                name,
                f"{who} does {rate:,.0f} {shown}/s; "
                + (f"it is {limited}." if own is not None else f"the server's control group is {limited}."),
                (number(f"{shown}/s", rate, ",.0f"), number("io.max", limit, ",")),
                (Remedy(steps=("Raise or remove the group's io.max (IOReadIOPSMax= and the like).",)),),
            )
