"""Saved trees of /proc and /sys: the host's facts, and a sample of each reading, made by the agent.

The agent has the one parser of each file. A reading that came as texts is laid out as a tree for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.base import received
from headrace.base.received import OF_VERBS, BadContent, an_object
from headrace.base.whole import at_most
from headrace.host.agent import Agent
from headrace.host.target.fixture import FixtureTarget
from headrace.host.target.local import LocalTarget
from headrace.hunt.dumps.piece import Numbered, number_of

#: Files of a tree that samplers read.
READ = (
    "proc/stat", "proc/interrupts", "proc/softirqs", "proc/net/softnet_stat", "proc/diskstats", "proc/meminfo",
    "proc/vmstat", "proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/net/dev",
    "proc/net/snmp", "proc/net/netstat", "proc/net/sockstat", "proc/sys/kernel/tainted", "proc/uptime",
    "proc/spl/kstat/zfs/arcstats", "proc/self/mountinfo",
)  # fmt: skip
#: Where a container finds its own group, by version 2 and 1.
_OWN_GROUP = (
    "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpu/cpu.stat", "sys/fs/cgroup/cpu,cpuacct/cpu.stat",
    "sys/fs/cgroup/cpuacct,cpu/cpu.stat",
)  # fmt: skip
#: The stat of each process in one file, as ``headrace collect`` writes it.
ALL_PROCESSES = "proc/processes"
#: Of each process.
OF_PROCESS = ("stat", "status", "io", "comm", "schedstat", "cmdline", "limits")
#: Of a server's process: which control groups it is in, and where it sees them.
OF_SERVER = ("comm", "cgroup", "mountinfo")
SERVERS = frozenset({"mysqld", "mariadbd"})
#: What control groups count, and what says whether it is counted.
COUNTED_BY_GROUPS = frozenset({
    "cpu.stat", "memory.events", "memory.failcnt", "memory.oom_control", "pids.current", "pids.events", "io.stat",
    "blkio.throttle.io_serviced", "blkio.throttle.io_service_bytes",
})  # fmt: skip
LIMITS_OF_GROUPS = frozenset({
    "pids.max", "io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
})  # fmt: skip
#: Folders below control groups' mounts that are looked into.
MOST_GROUPS = 2_000
MOST_PROCESSES = 5_000
MOST_FILE = 16 << 20
#: Readings that are sampled: more are thinned out evenly.
MOST_READINGS = 300
#: Samplers that ask nothing of this machine.
SAMPLERS = (
    "cpu,interrupts,softirqs,softnet,disk,memory,vmstat,psi,network,snmp,sockstat,process,cgroup,taint,zfs"
)

#: Path of a file -> its content.
Reading = Mapping[str, str]


async def facts_of(tree: Path) -> dict[str, Any]:
    """The agent's facts of a saved host, of an empty directory too. Raises HeadraceError."""
    host = FixtureTarget(tree)
    agent = await Agent.install(host)
    try:
        return dict((await agent.facts()).data)
    finally:
        await host.close()


async def samples_of(readings: Mapping[float, Reading], scratch: Path) -> Iterator[dict[str, Any]]:
    """The sampler's records of each reading, at its time in seconds."""
    agent = await Agent.install(LocalTarget())
    records: list[dict[str, Any]] = []
    times = sorted(readings)
    if len(times) > MOST_READINGS:
        step = (len(times) - 1) / (MOST_READINGS - 1)
        times = [times[round(number * step)] for number in range(MOST_READINGS)]
    for number, at_s in enumerate(times):
        root = scratch / f"reading-{number}"
        lay_out(readings[at_s], root)
        words = ("--root", str(root), "--duration", "0s", "--processes", "all", "--samplers", SAMPLERS)
        for line in received.lines(await agent.text("sample", *words)):
            record = _record(line)
            # What a dump does not have has not failed.
            if record is not None and record.get("ok") and record.get("values"):
                records.append({**record, "t_ns": round(at_s * 1e9), "cost_ns": 0})
    return iter(records)


def _record(line: str) -> dict[str, Any] | None:
    try:
        return an_object(line, OF_VERBS["sample"])
    except BadContent:
        return None


def lay_out(reading: Reading, root: Path) -> None:
    root.mkdir()
    (root / "proc").mkdir()
    for path, content in reading.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, errors="replace")


def reading_of(tree: Path) -> dict[str, str]:
    """The files of a tree that samplers read, as far as it has them."""
    found = {path: text for path in READ if (text := text_of(tree, path)) is not None}
    processes = [entry.name for entry in _listed(tree / "proc") if entry.name.isdecimal()][:MOST_PROCESSES]
    listed = text_of(tree, ALL_PROCESSES) or ""
    for match in re.finditer(r"^(\d+) \(.*\) \S .*$", listed, re.MULTILINE):
        found[f"proc/{match[1]}/stat"] = f"{match[0]}\n"
    found |= _groups(tree, processes)
    # Of some of a host's processes nothing follows for the others: the first is there only if all are.
    if not listed and not (tree / "proc/1/stat").is_file():
        return found
    for pid in processes:
        for name in OF_PROCESS:
            if (text := text_of(tree, f"proc/{pid}/{name}")) is not None:
                found[f"proc/{pid}/{name}"] = text
    return found


def _groups(tree: Path, processes: Sequence[str]) -> dict[str, str]:
    """What says which control groups the tree's servers are in, and the files of groups."""
    found: dict[str, str] = {}
    waiting = [Path("sys/fs/cgroup")]
    for pid in processes:
        if (text_of(tree, f"proc/{pid}/comm") or "").strip() in SERVERS:
            waiting.append(Path(f"proc/{pid}/root/sys/fs/cgroup"))
            paths = (f"proc/{pid}/{name}" for name in OF_SERVER)
            found |= {path: text for path in paths if (text := text_of(tree, path)) is not None}
    for _ in range(MOST_GROUPS):
        if not waiting:
            break
        folder = waiting.pop(0)
        for entry in _listed(tree / folder):
            if entry.name in COUNTED_BY_GROUPS | LIMITS_OF_GROUPS:
                path = f"{folder}/{entry.name}"
                if (text := text_of(tree, path)) is not None:
                    found[path] = text
            elif entry.is_dir() and not entry.is_symlink():
                waiting.append(folder / entry.name)
    return found


def with_groups(readings: Mapping[float, Reading], trees: Sequence[Path]) -> dict[float, dict[str, str]]:
    """Readings that have counters of control groups, with what the first tree says of servers and limits: that is
    read once, the counters each second. A server that has ended has no groups any more."""
    whole = {at_s: dict(reading) for at_s, reading in readings.items()}
    said = {
        path: text
        for path, text in (reading_of(trees[0]) if trees else {}).items()
        if path == "proc/self/mountinfo"
        or re.fullmatch(_SAID_OF_SERVER, path)
        or _name(path) in LIMITS_OF_GROUPS
    }
    for reading in whole.values():
        if any(_name(path) in COUNTED_BY_GROUPS for path in reading):
            for path, text in said.items():
                match = re.fullmatch(_SAID_OF_SERVER, path)
                if match is None or f"proc/{match[1]}/stat" in reading:
                    reading.setdefault(path, text)
    return whole


_SAID_OF_SERVER = rf"proc/(\d+)/(?:{'|'.join(OF_SERVER)})"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _listed(folder: Path) -> Sequence[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def text_of(tree: Path, path: str) -> str | None:
    """None for what is not a file inside the tree: a link of a saved host must not lead to this machine's."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(tree / path, flags), "rb") as opened:
            # Where what is open is, whatever its name leads to by now.
            place = Path(os.readlink(f"/proc/self/fd/{opened.fileno()}"))
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode) or not place.is_relative_to(
                tree.resolve()
            ):
                return None
            content = at_most(opened, MOST_FILE + 1)
    except OSError:
        return None
    return content.decode("utf-8", "replace") if len(content) <= MOST_FILE else None


def times_of(trees: Sequence[Path]) -> list[float | None]:
    """When each tree was read, in seconds: by its directory's name, or else by the uptime in it.

    The uptime has hundredths of a second: where all have both, the names only say when the host booted.
    """
    named = [_named_time(tree.name) for tree in trees]
    words = [(text_of(tree, "proc/uptime") or "").split()[:1] for tree in trees]
    uptimes = [number_of(word[0]) if word else None for word in words]
    both = [
        (name, uptime) for name, uptime in zip(named, uptimes, strict=True) if name and uptime is not None
    ]
    if both:
        # A name is rounded down, so the latest is the nearest.
        boot_s = max(name - uptime for name, uptime in both)
        return [
            boot_s + uptime if uptime is not None else name
            for name, uptime in zip(named, uptimes, strict=True)
        ]
    return [name or uptime for name, uptime in zip(named, uptimes, strict=True)]


def names_of(trees: Sequence[Path]) -> set[str]:
    """The names of the hosts that trees are of."""
    paths = ("proc/sys/kernel/hostname", "etc/hostname", "sos_commands/host/hostname")
    found = ((text_of(tree, path) or "").strip() for tree in trees for path in paths)
    return {name.partition(".")[0].lower() for name in found if name}


def group_of(tree: Path) -> dict[str, int]:
    """What a tree's own control group counts of its CPU quota, by the names of the sampler; empty without one."""
    text = next((text for path in _OWN_GROUP if (text := text_of(tree, path)) is not None), "")
    counts = {
        name: int(value)
        for name, value in re.findall(r"^(nr_periods|nr_throttled) (\d+)$", text, re.MULTILINE)
    }
    for name, value in re.findall(r"^(throttled_usec|throttled_time) (\d+)$", text, re.MULTILINE):
        counts["throttled_us"] = int(value) // (1 if name == "throttled_usec" else 1000)
    return counts if {"nr_periods", "nr_throttled"} <= counts.keys() else {}


def groups_of(trees: Sequence[Path]) -> list[Numbered]:
    """The own group of each of several trees, as samples. ``members_unknown``: no dump tells who is in it."""
    counts = [(at_s, group_of(tree)) for tree, at_s in zip(trees, times_of(trees), strict=True)]
    known = [(at_s, numbers) for at_s, numbers in counts if numbers and at_s is not None]
    if len(known) < 2:
        return []
    return [
        Numbered(
            "cgroup",
            {
                name: {"/sys/fs/cgroup": float(value)}
                for name, value in {**numbers, "members_unknown": 1}.items()
            },
            at_s,
        )
        for at_s, numbers in known
    ]


def throttling_of(trees: Sequence[Path]) -> str:
    """What trees say of their own control group's quota, whose members a dump does not tell; empty without one."""
    counts = [numbers for tree in trees if (numbers := group_of(tree))]
    nothing = {"nr_periods": 0, "nr_throttled": 0}
    first, last = (counts[0], counts[-1]) if len(counts) > 1 else (nothing, counts[0] if counts else nothing)
    periods, throttled = (last[name] - first[name] for name in ("nr_periods", "nr_throttled"))
    if periods <= 0 or throttled <= 0:
        return ""
    when = "" if len(counts) > 1 else " since it was made"
    return (
        f"the CPU quota of the saved control group throttled it in {throttled / periods:.0%} of its periods"
        f"{when}: whether the server is in it is unknown, and the CPUs counted are the machine's"
    )


def _named_time(name: str) -> float | None:
    """``1764346233.5``, or a date and a time."""
    if re.fullmatch(r"\d{9,11}(\.\d+)?", name):
        return float(name)
    if match := re.search(r"(\d{4})-?(\d\d)-?(\d\d)[T_-]?(\d\d)[:_-]?(\d\d)[:_-]?(\d\d)", name):
        with contextlib.suppress(ValueError):
            year, month, day, hour, minute, second = map(int, match.groups())
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    return None


def completed(facts: dict[str, Any], reading: Reading) -> None:
    """Adds to facts what a saved tree says elsewhere than a live host."""
    cpu = facts.setdefault("cpu", {})
    if cpu.get("online_count") is None:
        stat = re.findall(r"^cpu(\d+) ", reading.get("proc/stat", ""), re.MULTILINE)
        info = re.findall(r"^processor\s+: (\d+)$", reading.get("proc/cpuinfo", ""), re.MULTILINE)
        if found := (stat or info):
            cpu["online_count"] = len(found)
            cpu["online"] = sorted(map(int, found))
    kernel = facts.setdefault("kernel", {})
    version = re.match(r"Linux version (\S+)", reading.get("proc/version", ""))
    if kernel.get("release") is None and version:
        kernel["release"] = version[1]
    memory = facts.setdefault("memory", {})
    total = re.search(r"^MemTotal:\s+(\d+) kB", reading.get("proc/meminfo", ""), re.MULTILINE)
    if memory.get("total_bytes") is None and total:
        memory["total_bytes"] = int(total[1]) * 1024
