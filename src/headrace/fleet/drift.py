"""What differs between the hosts of a fleet, and on one host between what runs and what its files say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.base.model import Facts
from headrace.change.persist.last_word import sysctl_value
from headrace.fleet.folded import Folded
from headrace.host.agent.stable import without_what_changes_by_itself
from headrace.host.facts import GIB, MEMORY_TOLERANCE, HostFacts, likeness
from headrace.knobs.values import (
    BY_ROLE,
    OWN_SYSCTLS,
    is_at_its_end,
    is_own,
    is_second_name,
    means_the_same,
    plain_value,
    without_host,
)

#: What a queue of a disk is set to; the rest of it says what the disk is.
QUEUE = ("scheduler", "nr_requests", "rq_affinity", "read_ahead_kb", "nomerges", "max_sectors_kb", "wbt_lat_usec",
         "write_cache", "add_random", "iostats")  # fmt: skip
_KERNEL = ("kernel", "kernel build", "system", "clock source", "transparent huge pages", "CPU governor")
#: Of ``stats settings``: addresses, and the age of the oldest item.
OWN_OF_MEMCACHED = ("inter", "tcpport", "udpport", "domain_socket", "oldest")
#: Mounts of containers and packages come and go.
_PASSING = ("/var/lib/docker/", "/var/lib/containers/", "/var/lib/kubelet/", "/run/", "/snap/", "/media/")


class Area(StrEnum):
    VARIABLE = "server variable"
    MEMCACHED = "memcached setting"
    SYSCTL = "sysctl"
    QUEUE = "queue"
    MOUNT = "mount"
    VERSION = "version"
    KERNEL = "kernel"
    HARDWARE = "hardware"


class Between(StrEnum):
    """The drifts from the host's files come first."""

    FILE = "running, not in the file"
    PERSISTED = "running, not persisted"
    BOTH = "file and persisted"
    NOWHERE = "set while running, in no file"


@dataclass(frozen=True)
class Difference:
    """``groups``: value -> hosts, most frequent first. ``usual`` is None if two values are equally frequent."""

    area: Area
    name: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def usual(self) -> str | None:
        counts = [len(hosts) for _, hosts in self.groups]
        return self.groups[0][0] if counts[0] > counts[1] else None

    @property
    def odd(self) -> tuple[str, ...]:
        """The hosts without the usual value; all of them if there is none."""
        rest = self.groups if self.usual is None else self.groups[1:]
        return tuple(host for _, hosts in rest for host in hosts)

    @property
    def knob(self) -> str:
        """Its name in the catalogue of knobs; empty if it is none."""
        prefix = {Area.VARIABLE: "server.", Area.SYSCTL: "host.", Area.QUEUE: "volume."}.get(self.area)
        return f"{prefix}{self.name.removeprefix('data disk: ')}" if prefix else ""


@dataclass(frozen=True)
class OwnDrift:
    """On these hosts a setting changes with the next start. ``file`` says where ``named`` is from."""

    between: Between
    area: Area
    name: str
    running: str
    named: str
    file: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Failover:
    """A replica that would be slower than its source, or would serve fewer."""

    replica: str
    source: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Drift:
    differences: tuple[Difference, ...]
    own: tuple[OwnDrift, ...]
    failovers: tuple[Failover, ...]
    hosts: int
    compared: int
    #: Settings that differ between hosts by their nature, and were not compared.
    masked: tuple[str, ...]
    #: What could not be compared, and why -> on which hosts.
    gaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Collected:
    """``add`` host by host; ``drift`` at the end."""

    _values: Folded = field(default_factory=Folded)
    _masked: dict[str, None] = field(default_factory=dict)
    _own: dict[tuple[Between, Area, str, str, str, str], list[str]] = field(default_factory=dict)
    _servers: list[Member] = field(default_factory=list)
    _memory: list[float] = field(default_factory=list)
    _gaps: dict[str, list[str]] = field(default_factory=dict)
    _hosts: int = 0

    def add(self, name: str, answer: Mapping[str, Any]) -> None:
        """``answer`` has the host's ``facts`` and what its files set: ``lasting``."""
        data = without_what_changes_by_itself(answer["facts"])
        facts = HostFacts(Facts("", data))
        self._hosts += 1
        self._values.host(name)
        for area, key, value in self._readings(facts, data, answer["facts"]):
            self._values.add(f"{area}\0{key}", value)
        for drift in own_drifts(answer["facts"], answer.get("lasting") or {}):
            self._own.setdefault(drift, []).append(name)
        if answer["facts"].get("server_settings"):
            self._servers.append(Member.of(name, answer["facts"]))
        for gap in _gaps(answer):
            self._gaps.setdefault(gap, []).append(name)

    def drift(self) -> Drift:
        differences, compared = [], 0
        for key in self._values.keys:
            area, _, name = key.partition("\0")
            groups = self._values.groups(key)
            compared += 1
            if len(groups) > 1:
                differences.append(Difference(Area(area), name, tuple(groups)))
        own = tuple(OwnDrift(*what, tuple(hosts)) for what, hosts in self._own.items())
        return Drift(
            tuple(differences),
            own,
            tuple(failovers(self._servers)),
            self._hosts,
            compared,
            tuple(sorted(self._masked)),
            {gap: tuple(hosts) for gap, hosts in self._gaps.items()},
        )

    def _readings(
        self, facts: HostFacts, data: Mapping[str, Any], whole: Mapping[str, Any]
    ) -> Iterator[tuple[Area, str, str]]:
        """``data`` are the facts without what changes by itself, ``whole`` with it."""
        yield from self._machine(data)
        for name, value in (data.get("sysctls") or {}).items():
            if OWN_SYSCTLS.fullmatch(name):
                self._masked[name] = None
            elif value is not None:
                yield Area.SYSCTL, name, " ".join(str(value).split())
        yield from disks(facts)
        yield from self._caches(facts)
        settings = data.get("server_settings") or {}
        if not settings:
            return
        yield Area.VERSION, "server", f"{settings.get('vendor')} {settings.get('version_text')}"
        role = role_of(whole["server_settings"])
        variables = settings.get("variables") or {}
        for name, value in variables.items():
            if is_second_name(name, variables):
                continue
            if is_own(name):
                self._masked[name] = None
            elif name in BY_ROLE:
                yield Area.VARIABLE, f"{name} of a {role}", str(value)
            else:
                yield Area.VARIABLE, name, without_host(str(value), facts.hostname)
        pid = whole["server_settings"].get("pid")
        for server in whole.get("servers") or ():
            if server["pid"] == pid:
                allocator = (server.get("allocator") or {}).get("name")
                yield Area.VERSION, "server's allocator", str(allocator or "unknown")

    def _caches(self, facts: HostFacts) -> Iterator[tuple[Area, str, str]]:
        """Their ports, by which those of several on a host are told apart, are where clients look for them."""
        for row in facts.caches:
            found = row.get("settings") or {}
            if not found:
                continue
            path = found.get("domain_socket", "NULL")
            place = found.get("tcpport", "?") if path in ("NULL", "") else path
            yield Area.VERSION, f"memcached {place}", str(row.get("version") or "unknown")
            for name, value in found.items():
                if name in OWN_OF_MEMCACHED:
                    self._masked[f"memcached: {name}"] = None
                else:
                    yield Area.MEMCACHED, f"{place}: {name}", str(value)

    def _machine(self, data: Mapping[str, Any]) -> Iterator[tuple[Area, str, str]]:
        for name, value in likeness(Facts("", data)).items():
            area = Area.KERNEL if name in _KERNEL else Area.HARDWARE
            if isinstance(value, Mapping):
                yield from ((Area.KERNEL, f"{name}: {key}", str(found)) for key, found in value.items())
            elif name == "memory" and value:
                yield area, name, self._like(float(value))
            elif value is not None:
                words = value if isinstance(value, list) else [value]
                yield area, name, ", ".join("?" if word is None else str(word) for word in words) or "none"

    def _like(self, size_bytes: float) -> str:
        """The kernel's own share of the memory varies between boots: sizes that are near are one."""
        for known in self._memory:
            if abs(size_bytes / known - 1) <= MEMORY_TOLERANCE:
                return f"{known / GIB:.1f} GiB"
        self._memory.append(size_bytes)
        return f"{size_bytes / GIB:.1f} GiB"


def _gaps(answer: Mapping[str, Any]) -> Iterator[str]:
    """What is missing of one host: a server that was not asked must not look like one that agrees."""
    facts = answer["facts"]
    if not facts.get("server_settings"):
        why = answer.get("why_no_server") or next(
            (
                str(error["error"])
                for error in facts.get("errors") or ()
                if "log in" in str(error.get("error"))
            ),
            "",
        )
        yield f"no server was compared{f': {why}' if why else ''}"
    for row in (facts.get("memcached") or {}).get("instances") or ():
        if not row.get("settings"):
            yield f"memcached was not compared: {row.get('why') or 'its settings were not read'}"
    if unreadable := (answer.get("lasting") or {}).get("unreadable"):
        yield f"files that could not be read: {', '.join(unreadable)}"


def role_of(settings: Mapping[str, Any]) -> str:
    return "replica" if settings.get("replication") else "source"


def disks(facts: HostFacts) -> Iterator[tuple[Area, str, str]]:
    """Queues and mounts. Disks have other names elsewhere, so those of the data are known by what they hold."""
    data = facts.server_file_system_of(facts.variable("datadir") or "") if facts.variable("datadir") else None
    for fs in facts.block_file_systems:
        place = str(fs["mount_point"])
        options = ",".join(sorted({*fs["options"], *fs.get("super_options", ())}))
        is_data = data is not None and place == data["mount_point"]
        if is_data or not place.startswith(_PASSING):
            name = "data directory" if is_data else place
            yield Area.MOUNT, f"{name}: file system", str(fs["kind"])
            yield Area.MOUNT, f"{name}: options", options
    held = set(facts.disks_below(str(data["block_device"]))) if data else set()
    of_data: dict[str, set[str]] = {}
    for device in facts.block_devices:
        queue = device.get("queue") or {}
        for name in QUEUE:
            if queue.get(name) is None:
                continue
            if device["name"] in held:
                of_data.setdefault(name, set()).add(str(queue[name]))
            elif device.get("kind") == "disk":
                yield Area.QUEUE, f"{device['name']}: {name}", str(queue[name])
    for name, values in of_data.items():
        yield Area.QUEUE, f"data disk: {name}", ", ".join(sorted(values))


def own_drifts(
    facts: Mapping[str, Any], lasting: Mapping[str, Any]
) -> Iterator[tuple[Between, Area, str, str, str, str]]:
    """What one host will have after its next boot, or start of its server, and has not now."""
    running = facts.get("sysctls") or {}
    for name, (value, file) in (lasting.get("sysctls") or {}).items():
        now = running.get(name)
        if now is not None and sysctl_value(str(now)) != sysctl_value(value):
            yield Between.FILE, Area.SYSCTL, name, str(now), value, file
    settings = facts.get("server_settings") or {}
    variables: Mapping[str, str] = settings.get("variables") or {}
    options = lasting.get("options") or {}
    persisted = settings.get("persisted") or {}
    for name in {**options, **persisted}:
        now = variables.get(name)
        if now is None or is_own(name) or (is_second_name(name, variables) and name not in options):
            continue
        in_file = options.get(name)
        if name in persisted:
            kept = str(persisted[name])
            if not _starts_with(name, now, kept, variables):
                yield Between.PERSISTED, Area.VARIABLE, name, now, kept, "mysqld-auto.cnf"
            if in_file and not means_the_same(name, kept, in_file[0], variables):
                yield Between.BOTH, Area.VARIABLE, name, kept, in_file[0], in_file[1]
        elif in_file and not _starts_with(name, now, in_file[0], variables):
            yield Between.FILE, Area.VARIABLE, name, now, in_file[0], in_file[1]
    # Without the files it is not known what is in none.
    knows_files = lasting.get("options") is not None and not lasting.get("unreadable")
    for name in settings.get("set_since_start") or () if knows_files else ():
        is_kept = name in options or name in persisted
        if not is_kept and name in variables and not is_own(name) and not is_second_name(name, variables):
            yield Between.NOWHERE, Area.VARIABLE, name, variables[name], "", ""


def _starts_with(name: str, now: str, named: str, variables: Mapping[str, str]) -> bool:
    """Whether a start with the one would run with the other; a server brings a number into its range."""
    return means_the_same(name, now, named, variables) or is_at_its_end(name, now, named, variables)


#: More of it serves more: a replica with less is slower as a source.
MORE = ("innodb_buffer_pool_size", "innodb_redo_log_capacity", "innodb_log_file_size", "innodb_io_capacity",
        "innodb_io_capacity_max", "innodb_read_io_threads", "innodb_write_io_threads", "innodb_log_buffer_size",
        "table_open_cache", "max_connections", "thread_cache_size", "key_buffer_size")  # fmt: skip
#: The cost of a commit, cheapest first, where a value is dearer than another one.
COMMIT = {"sync_binlog": ("0", "1"), "innodb_flush_log_at_trx_commit": ("0", "2", "1")}
_SIZES = ("innodb_buffer_pool_size", "innodb_redo_log_capacity", "innodb_log_file_size", "innodb_log_buffer_size",
          "key_buffer_size")  # fmt: skip


@dataclass(frozen=True)
class Member:
    """A server of a replication group, as far as a failover needs it."""

    host: str
    server_id: str
    uuid: str
    addresses: frozenset[str]
    sources: tuple[Mapping[str, Any], ...]
    replica_ids: frozenset[str]
    variables: Mapping[str, str]
    cpus: int | None
    memory_bytes: int | None

    @classmethod
    def of(cls, host: str, facts: Mapping[str, Any]) -> Member:
        settings = facts["server_settings"]
        variables = settings.get("variables") or {}
        wanted = (*MORE, *COMMIT, "rotational")
        names = {host, str(facts.get("hostname")), variables.get("hostname"), variables.get("report_host")}
        return cls(
            host,
            str(variables.get("server_id", "")),
            str(variables.get("server_uuid", "")),
            frozenset(name for name in names if name),
            tuple(settings.get("replication") or ()),
            frozenset(str(replica.get("server_id")) for replica in settings.get("replicas") or ()),
            {name: variables[name] for name in wanted if name in variables},
            (facts.get("cpu") or {}).get("online_count"),
            (facts.get("memory") or {}).get("total_bytes"),
        )

    def is_source_of(self, other: Member) -> bool:
        """By what both servers know: ids, and names where there is no better."""
        if self.host == other.host:
            return False
        for channel in other.sources:
            if channel.get("source_uuid") and self.uuid:
                if channel["source_uuid"] == self.uuid:
                    return True
                continue
            has_id = str(channel.get("source_server_id") or "") == self.server_id
            if has_id and other.server_id in self.replica_ids:
                return True
            if has_id and str(channel.get("source_host") or "") in self.addresses:
                return True
        return False


def failovers(members: Sequence[Member]) -> Iterator[Failover]:
    by_id: dict[str, list[Member]] = {}
    for member in members:
        by_id.setdefault(member.server_id, []).append(member)
    for replica in members:
        ids = {str(channel.get("source_server_id") or "") for channel in replica.sources}
        for source in (found for own in sorted(ids) for found in by_id.get(own, ())):
            if source.is_source_of(replica) and (reasons := tuple(_slower(replica, source))):
                yield Failover(replica.host, source.host, reasons)


def _slower(replica: Member, source: Member) -> Iterable[str]:
    if replica.cpus and source.cpus and replica.cpus < source.cpus:
        yield f"{replica.cpus} CPUs against {source.cpus}"
    least = (source.memory_bytes or 0) * (1 - MEMORY_TOLERANCE)
    if replica.memory_bytes and source.memory_bytes and replica.memory_bytes < least:
        yield f"memory {replica.memory_bytes / GIB:.1f} GiB against {source.memory_bytes / GIB:.1f} GiB"
    for name in MORE:
        own, other = replica.variables.get(name), source.variables.get(name)
        if own is not None and other is not None and _number(own) < _number(other):
            yield f"{name} {_shown(name, own)} against {_shown(name, other)}"
    for name, order in COMMIT.items():
        own, other = (plain_value(each.variables.get(name, "")) for each in (replica, source))
        if own in order and other in order and order.index(own) > order.index(other):
            yield f"{name} {own} against {other}: each commit waits longer"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _shown(name: str, value: str) -> str:
    size = _number(value)
    if name not in _SIZES or size < 1 << 20:
        return value
    return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / (1 << 20):.4g} MiB"
