"""A host's facts, read by name, so that only this module knows the JSON's layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.base.counted import counted
from headrace.base.errors import HostUnknown, TargetError
from headrace.base.model import Facts, Vendor
from headrace.host.places import below_overlay, mount_of, mount_of_server, real_path
from headrace.host.server_place import Answer, ServerPlace, is_of_server

GIB = 1 << 30

#: What facts that do not tell the size of a page were collected on.
X86_PAGE = 4096


#: Keys of facts that do not describe a host.
OF_SERVER = frozenset({"server_settings", "errors", "hostname", "only_sql", "given", "server_asked"})


class OfServer(Mapping[str, Any]):
    """Facts of which the host's may not be used. Raises HostUnknown for these."""

    def __init__(self, data: Mapping[str, Any], why: str) -> None:
        self._data, self._why = data, why

    def __getitem__(self, key: str) -> Any:
        if key not in OF_SERVER:
            raise HostUnknown(self._why)
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._data if key in OF_SERVER)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class HostFacts:
    """Look-ups in one snapshot. Values that the host does not have or report are None, never 0.

    Raises HostUnknown for what only a host can tell, if the server alone was examined (``only_sql``).
    """

    def __init__(self, facts: Facts) -> None:
        why = str(facts.data.get("only_sql") or "")
        self._data: Mapping[str, Any] = OfServer(facts.data, why) if why else facts.data

    @property
    def only_sql(self) -> str:
        """Why nothing is known of the server's host; empty if the host was examined."""
        return str(self._data.get("only_sql") or "")

    @property
    def given_cpus(self) -> int | None:
        """CPUs of the server's host, as whoever asked says."""
        found = self._table("given").get("cpus")
        return int(found) if found else None

    @property
    def given_memory_bytes(self) -> int | None:
        """Memory of the server's host, as whoever asked says."""
        found = self._table("given").get("memory_bytes")
        return int(found) if found else None

    @property
    def hostname(self) -> str | None:
        if self.only_sql:
            return self.variable("hostname")
        return _text(self._data.get("hostname"))

    @property
    def kernel_release(self) -> str:
        return str(self._required("kernel", "release"))

    @property
    def os_name(self) -> str | None:
        return _text(self._table("os").get("name"))

    @property
    def cpu_model(self) -> str | None:
        return _text(self._table("cpu").get("model"))

    @property
    def accel(self) -> str:
        """``tcg`` if the CPUs are emulated in software, ``kvm`` on KVM, empty if unknown."""
        clocks = " ".join(map(str, (self._table("clock_source").get("available") or ())))
        model = self.cpu_model or ""
        if "kvm-clock" in clocks:
            return "kvm"
        # QEMU's own model name; on KVM it also offers kvm-clock, unless that is disabled.
        return "tcg" if model.startswith(("QEMU TCG CPU", "QEMU Virtual CPU")) else ""

    @property
    def cpu_count(self) -> int:
        """Logical CPUs that are online."""
        return self.given_cpus or int(self._required("cpu", "online_count"))

    @property
    def numa_node_count(self) -> int | None:
        return len(self._rows("numa_nodes")) or None

    @property
    def cpus_known(self) -> int:
        """Logical CPUs that are online, 0 where a saved host does not tell."""
        count = self._table("cpu").get("online_count")
        return count if isinstance(count, int) else 0

    @property
    def size(self) -> str:
        """``8 CPUs, kernel 6.1.0-18``, in words for what a saved host does not tell."""
        count = counted(self.cpus_known, "CPU") if self.cpus_known else "CPUs unknown"
        return f"{count}, kernel {self._table('kernel').get('release') or 'unknown'}"

    @property
    def memory_bytes(self) -> int:
        return self.given_memory_bytes or int(self._required("memory", "total_bytes"))

    @property
    def page_bytes(self) -> int:
        """Of the kernel's pages, in which /proc/vmstat counts."""
        found = self._table("memory").get("page_bytes")
        return found if isinstance(found, int) else X86_PAGE

    @property
    def transparent_huge_pages(self) -> str | None:
        """``always``, ``madvise`` or ``never``."""
        enabled = (self._table("memory").get("transparent_huge_pages") or {}).get("enabled") or {}
        return _text(enabled.get("selected"))

    def sysctl(self, name: str) -> str | None:
        """A sysctl by its dotted name, as the kernel prints it."""
        return _text(self._table("sysctls").get(name))

    @property
    def server_asked(self) -> str:
        """The server that was asked, by its socket, or host and port; empty if none was, or in old facts."""
        return str(self._data.get("server_asked") or "")

    @property
    def server_silence(self) -> str:
        """Why the server that was asked said nothing of itself; empty if it did, or if none was asked."""
        if not (asked := self.server_asked) or self._table("server_settings"):
            return ""
        why = next((f": {row.get('error')}" for row in self._rows("errors") if row.get("path") == asked), "")
        return f"the server at {asked} does not answer{why}"

    @property
    def server_place(self) -> ServerPlace | None:
        """Where the server runs that was asked; None if none was, or if the facts do not say."""
        settings = self._table("server_settings")
        found = settings.get("place")
        asked = self.server_asked
        if isinstance(found, Mapping):
            known = found.get("answer") in list(Answer)
            forwarder = found.get("answered_by") or {}
            return ServerPlace(
                Answer(found["answer"]) if known else Answer.UNKNOWN,
                asked,
                self.server_pid,
                tuple(map(str, found.get("namespaces") or ())),
                f"{forwarder['program']} (pid {forwarder['pid']})" if forwarder else "",
                tuple(map(str, found.get("evidence") or ())),
                str(found.get("missing") or "") if known else "a newer headrace",
            )
        if asked and not settings:
            return ServerPlace(Answer.UNKNOWN, asked, missing="a login")
        if self.server_pid is not None:
            evidence = (f"it calls its host {self.hostname}", "the process works in its data directory")
            return ServerPlace(Answer.HERE, asked, self.server_pid, evidence=evidence)
        if isinstance(settings.get("pid"), int):
            return ServerPlace(
                Answer.UNKNOWN, asked, missing="a new hunt: these are facts of an older headrace"
            )
        if settings and not self.only_sql and self._data.get("agent_version"):
            return ServerPlace(Answer.UNKNOWN, asked, missing="facts of a newer agent")
        return None

    @property
    def server_process(self) -> Mapping[str, Any] | None:
        """The process of the server that was asked, if it runs here; if none was, the only database server's.

        None also where it is not known to run here: another server's process is not its own.
        """
        place = self.server_place
        if place is not None:
            return next((s for s in self.servers if place.is_on_host and s.get("pid") == place.pid), None)
        databases = [s for s in self.servers if s.get("program") in ("mysqld", "mariadbd")]
        return databases[0] if len(databases) == 1 else None

    @property
    def knows_groups(self) -> bool:
        """Whether the control groups of the server are known."""
        return bool(_folders(self.server_process))

    def has_group(self, folder: str) -> bool:
        """Whether the server is in this control group or below it.

        Where its own groups are not known, true for a group that no other server is seen in, as long as the server
        runs on this host: the agent samples those of servers alone. Also true for all of these where the server
        behind a Unix socket, which is here, answered nothing: what keeps it from that may be its group's limit.
        """
        if self.only_sql:
            return True
        process, place = self.server_process, self.server_place
        if own := _folders(process):
            return _is_in(folder, own)
        if not self._table("server_settings") and (self.server_asked or "").startswith("/"):
            return True
        if place is not None and not place.is_on_host:
            return False
        others = [each for each in self.servers if each is not process]
        # Of several servers, none chosen, each one's limits are of interest.
        return process is None or not any(_is_in(folder, _folders(each)) for each in others)

    @property
    def block_devices(self) -> list[Mapping[str, Any]]:
        return self._rows("block_devices")

    def block_device(self, name: str) -> Mapping[str, Any] | None:
        """A device by kernel name (``nvme0n1``), path in /dev, or stable id (a name in /dev/disk/by-id)."""
        wanted = name.removeprefix("/dev/disk/by-id/").removeprefix("/dev/")
        for device in self._rows("block_devices"):
            if wanted == device["name"] or wanted in (device.get("stable_ids") or ()):
                return device
        return None

    def file_system_of(self, path: str) -> Mapping[str, Any] | None:
        """The mount of an absolute path: the longest mount point, and its latest mount."""
        return mount_of(path, self._rows("file_systems"))

    def server_file_system_of(self, path: str) -> Mapping[str, Any] | None:
        """The mount of one of the server's own paths, as its process sees it; None if it does not run here.

        A server with its own mounts (a container, PrivateTmp, chroot) has other files at the same path.
        """
        place = self.server_place
        if place is not None and not place.is_on_host:
            return None
        process = self.server_process or {}
        path = real_path(
            path, self.variable("datadir") or process.get("datadir"), process.get("working_directory")
        )
        return mount_of_server(path, process.get("file_systems") or self._rows("file_systems"), process)

    def below_overlay(self, mount: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return below_overlay(mount, self._rows("file_systems"))

    @property
    def server_view(self) -> str:
        """Whose paths the server's are: ``in the mount namespace of process 4711``; empty if this host's."""
        process = self.server_process or {}
        if process.get("root"):
            return f"below {process['root']}, the root of process {process['pid']}"
        own = "mnt" in (process.get("namespaces") or ())
        return f"in the mount namespace of process {process['pid']}" if own else ""

    def is_mount_of_host(self, mount: Mapping[str, Any]) -> bool:
        """Whether this host has the same mount at the same place: most of a unit's with PrivateTmp= are."""
        same = ("device_number", "root", "mount_point")
        return any(all(fs.get(key) == mount.get(key) for key in same) for fs in self._rows("file_systems"))

    def path_on_host(self, path: str) -> str:
        """One of the server's paths as this host can open it: ``/proc/4711/root/var/lib/mysql``."""
        return f"/proc/{(self.server_process or {}).get('pid')}/root{path}" if self.server_view else path

    @property
    def has_zfs(self) -> bool:
        """Whether a file system of ZFS is mounted."""
        return any(fs.get("kind") == "zfs" for fs in self._rows("file_systems"))

    @property
    def block_file_systems(self) -> list[Mapping[str, Any]]:
        """The mounts of block devices."""
        return [fs for fs in self._rows("file_systems") if fs.get("block_device")]

    def disks_below(self, device: str) -> list[str]:
        """The disks that hold a device or partition, through arrays and volumes."""
        for each in self._rows("block_devices"):
            if device == each["name"] or device in [part["name"] for part in each.get("partitions") or ()]:
                below = [disk for slave in each.get("slaves") or () for disk in self.disks_below(str(slave))]
                return below or [str(each["name"])]
        return []

    def network_interface(self, name: str) -> Mapping[str, Any] | None:
        return next((nic for nic in self._rows("network_interfaces") if nic["name"] == name), None)

    @property
    def network_interfaces(self) -> list[Mapping[str, Any]]:
        return self._rows("network_interfaces")

    @property
    def md_arrays(self) -> list[Mapping[str, Any]]:
        return self._rows("md_arrays")

    @property
    def interrupts(self) -> list[Mapping[str, Any]]:
        """The numbered ones: number, device, affinity, whether the kernel manages them."""
        return list(self._table("irqs").get("lines") or ())

    @property
    def online_cpus(self) -> list[int]:
        return list(self._table("cpu").get("online") or ())

    @property
    def frequency_policies(self) -> list[Mapping[str, Any]]:
        return list((self._table("cpu").get("frequency") or {}).get("policies") or ())

    @property
    def idle_states(self) -> list[Mapping[str, Any]]:
        """Idle states of one CPU, in the kernel's order: the index is the state's number."""
        return list((self._table("cpu").get("idle") or {}).get("states") or ())

    @property
    def servers(self) -> list[Mapping[str, Any]]:
        """Running mariadbd, mysqld and memcached processes, with pid, command line, allocator, limits."""
        return self._rows("servers")

    @property
    def caches(self) -> list[Mapping[str, Any]]:
        """The memcached servers that were asked: pid, name, version, settings, or why they were not read."""
        return list(self._table("memcached").get("instances") or ())

    @property
    def caches_not_covered(self) -> list[Mapping[str, Any]]:
        """Processes of other stores of that kind, by program and pid."""
        return list(self._table("memcached").get("not_covered") or ())

    @property
    def variables(self) -> Mapping[str, str]:
        """All variables of the queried server, as it prints them. Empty without a server."""
        return self._table("server_settings").get("variables") or {}

    def variable(self, name: str) -> str | None:
        """A variable of the queried server, as it prints it. Also None without a server."""
        return _text(self.variables.get(name))

    @property
    def vendor(self) -> Vendor | None:
        """Of the server that was queried."""
        return Vendor(self.server_vendor) if self.server_vendor else None

    @property
    def privileges_missing(self) -> tuple[str, ...]:
        """Of the account that queried the server: ``PROCESS``, ``SELECT ON *.*``, ..."""
        return tuple(str(name) for name in self._table("server_settings").get("privileges_missing") or ())

    @property
    def server_pid(self) -> int | None:
        """Of the server that was queried, if it is known to run on this host."""
        pid, place = (self._table("server_settings").get(name) for name in ("pid", "place"))
        is_here = isinstance(place, Mapping) and place.get("answer") in (Answer.HERE, Answer.NAMESPACE)
        if place is None and isinstance(pid, int):
            is_here = is_of_server(pid, self._data, self.hostname, self.variable)
        return pid if isinstance(pid, int) and is_here else None

    @property
    def replicas(self) -> list[str] | None:
        """Who replicates from the queried server, by name or address; None if that is unknown."""
        settings = self._table("server_settings")
        named = settings.get("replicas") or settings.get("replica_addresses")
        if named is None:
            return None
        return sorted(str(each.get("host") if isinstance(each, dict) else each) for each in named)

    @property
    def server_identities(self) -> frozenset[str]:
        """The names that a journal may have for the queried server: its own identity, or where it is."""
        own = {self.variable(name) for name in ("server_uuid", "server_uid")} - {None, ""}
        place = [self.variable(name) for name in ("hostname", "port", "datadir")]
        if None not in place:
            own.add(" ".join(str(word) for word in place))
        return frozenset(str(name) for name in own)

    @property
    def server_allocator(self) -> str | None:
        """What the process of the queried server has mapped: ``system``, ``jemalloc``, ``tcmalloc``."""
        own = [server for server in self.servers if server.get("pid") == self.server_pid]
        return _text((own[0].get("allocator") or {}).get("name")) if own else None

    @property
    def server_vendor(self) -> str | None:
        """``mariadb``, ``mysql`` or ``percona``."""
        return _text(self._table("server_settings").get("vendor"))

    @property
    def server_version(self) -> str | None:
        """Only the numbers: ``10.11.6``."""
        return _text(self._table("server_settings").get("version"))

    @property
    def data_bytes(self) -> int | None:
        """Tables and indexes of all engines, by the engines' estimates. None if the server did not report them."""
        engines = self._table("server_settings").get("engines")
        if engines is None:
            return None
        return sum((e.get("data_bytes") or 0) + (e.get("index_bytes") or 0) for e in engines)

    def digest(self) -> Iterator[tuple[str, str]]:
        """A summary for people: a name and one line each."""
        yield "host", self.hostname or "unknown"
        if self.only_sql:
            yield "hardware", f"unknown: {self.only_sql}"
            for name, value in (("CPUs", self.given_cpus), ("memory", self.given_memory_bytes)):
                if value:
                    yield f"{name} (given)", str(value) if name == "CPUs" else f"{value / GIB:.1f} GiB"
            return
        kernel = self._table("kernel").get("release") or "unknown"
        yield "system", f"{self.os_name or 'unknown'}, kernel {kernel}"
        count = self._table("cpu").get("online_count") or "unknown number of"
        yield "processors", f"{count} x {self.cpu_model or 'unknown'}{self._topology()}"
        total = self._table("memory").get("total_bytes")
        size = "unknown" if total is None else f"{total / GIB:.1f} GiB"
        yield "memory", f"{size}, huge pages {self.transparent_huge_pages or 'unknown'}"
        for device in self._rows("block_devices"):
            yield f"disk {device['name']}", _disk(device)
        for array in self._rows("md_arrays"):
            yield f"array {array['name']}", _array(array)
        for fs in self._rows("file_systems"):
            if fs.get("block_device"):
                options = ",".join(dict.fromkeys([*fs["options"], *fs.get("super_options", ())]))
                yield f"mount {fs['mount_point']}", f"{fs['kind']} on {fs['block_device']}, {options}"
        for nic in self._rows("network_interfaces"):
            if nic.get("physical"):
                yield f"network {nic['name']}", _nic(nic)
        for server in self.servers:
            yield f"server {server['program']}", _server(server)
        for error in self._rows("errors"):
            yield "not readable", ", ".join(str(value) for value in error.values())

    def _topology(self) -> str:
        cpu = self._table("cpu")
        parts = [
            f"{count} {name}{'s' if count > 1 else ''}"
            for name, count in (("socket", cpu.get("sockets")), ("core", cpu.get("cores")))
            if count
        ]
        if (self.numa_node_count or 0) > 1:
            parts.append(f"{self.numa_node_count} NUMA nodes")
        return f" ({', '.join(parts)})" if parts else ""

    def _table(self, key: str) -> Mapping[str, Any]:
        return self._data.get(key) or {}

    def _rows(self, key: str) -> list[Mapping[str, Any]]:
        return list(self._data.get(key) or ())

    def _required(self, table: str, key: str) -> Any:
        value = self._table(table).get(key)
        if value is None:
            raise TargetError(f"the facts do not say {table}.{key}", place=self.hostname)
        return value


#: The kernel's own share of memory varies between boots by less than this.
MEMORY_TOLERANCE = 0.01

#: Devices that come and go, and are not part of a machine.
_MADE_DEVICES = frozenset({"device-mapper", "loop", "md", "ram", "zram"})


def differences(one: Facts, other: Facts) -> list[str]:
    """The differences between two machines that should be equal, each as ``what: one / other``: hardware, kernel,
    and host-wide settings that no trial sets.
    """
    a, b = likeness(one), likeness(other)
    found = []
    for name in a:
        values = a[name], b[name]
        if name == "memory" and None not in values:
            if abs(values[0] / values[1] - 1) > MEMORY_TOLERANCE:
                found.append(f"{name}: {_gib(values[0])} / {_gib(values[1])}")
        elif isinstance(values[0], dict) and isinstance(values[1], dict):
            named = {**values[0], **values[1]}
            unlike = [key for key in named if values[0].get(key) != values[1].get(key)]
            found += [f"{name}: {', '.join(unlike)}"] if unlike else []
        elif values[0] != values[1]:
            found.append(f"{name}: {_shown(values[0])} / {_shown(values[1])}")
    return found


def likeness(facts: Facts) -> dict[str, Any]:
    """What two machines that should be equal have in common, by name: values, lists, or tables of values."""
    data = facts.data
    tables = {name: data.get(name) or {} for name in ("kernel", "os", "cpu", "memory", "clock_source")}
    cpu = tables["cpu"]
    policies = (cpu.get("frequency") or {}).get("policies") or ()
    disks = [
        f"{device.get('model') or device.get('driver') or device['name']} {_gib(device.get('size_bytes'))}"
        for device in data.get("block_devices") or ()
        if device.get("kind") not in _MADE_DEVICES
        and not device["name"].startswith(("zram", "ram", "sr", "fd"))
    ]
    nics = [
        f"{nic.get('driver')} {link_speed_mbit_s(nic) or '?'} Mbit/s"
        for nic in data.get("network_interfaces") or ()
        if nic.get("physical") and nic.get("operstate") == "up"
    ]
    return {
        "CPU": cpu.get("model"),
        "CPUs online": cpu.get("online_count"),
        "CPU layout": [cpu.get(name) for name in ("sockets", "cores", "threads_per_core", "smt")],
        "microcode": cpu.get("microcode"),
        "CPU governor": sorted({str(policy.get("governor")) for policy in policies}),
        "CPU mitigations": data.get("mitigations"),
        "clock source": tables["clock_source"].get("selected"),
        "memory": tables["memory"].get("total_bytes"),
        "NUMA nodes": len(data.get("numa_nodes") or ()),
        "kernel": tables["kernel"].get("release"),
        "kernel build": tables["kernel"].get("version"),
        "system": tables["os"].get("name"),
        "transparent huge pages": HostFacts(facts).transparent_huge_pages,
        "disks": sorted(disks),
        "network": sorted(nics),
    }


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join("?" if part is None else str(part) for part in value) or "none"
    return "?" if value is None else str(value)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _folders(process: Mapping[str, Any] | None) -> list[str]:
    """Of a server's control groups; empty where they are not known."""
    found = ((process or {}).get("cgroup") or {}).get("folders") or {}
    return [path for path in found.values() if isinstance(path, str)]


def _is_in(folder: str, paths: Iterable[str]) -> bool:
    """Whether one of these groups is the folder's, or below it."""
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for path in paths)


def _gib(size_bytes: int | None) -> str:
    return "size unknown" if size_bytes is None else f"{size_bytes / GIB:.1f} GiB"


def _disk(device: Mapping[str, Any]) -> str:
    queue = device.get("queue") or {}
    kind = {True: "rotational", False: "solid state"}.get(device.get("rotational"))  # type: ignore[arg-type]
    parts = [_gib(device.get("size_bytes")), device.get("model"), kind, device.get("driver")]
    parts += [f"{name} {queue[name]}" for name in ("scheduler", "nr_requests") if queue.get(name) is not None]
    if device.get("slaves"):
        parts.append(f"on {' '.join(device['slaves'])}")
    return ", ".join(part for part in parts if part)


def _array(array: Mapping[str, Any]) -> str:
    parts = [array.get("level"), " ".join(member["name"] for member in array.get("members") or ())]
    if array.get("chunk_bytes"):
        parts.append(f"chunk {array['chunk_bytes'] // 1024} KiB")
    parts += [array.get("sync_action"), "degraded" if array.get("degraded") else None]
    return ", ".join(part for part in parts if part)


#: How drivers write an unknown speed: 0, -1, and -1 in 16 and 32 bits without a sign (ethtool's SPEED_UNKNOWN).
UNKNOWN_SPEEDS = frozenset({-1, 0, 2**16 - 1, 2**31 - 1, 2**32 - 1})
#: Faster than any link: -1 divided by 10, by 100 or by 1000.
FASTEST_MBIT_S = 3_200_000
#: What an interface carries above its own speed is still the error of two readings; more than that cannot be.
MOST_OF_LINK = 1.1


def link_speed_mbit_s(nic: Mapping[str, Any], carried_mbit_s: float = 0.0) -> int | None:
    """The speed of an interface in Mbit/s; None if it does not report one, or one below what it carried: TUN and
    some emulated cards report 10 Mbit/s whatever they carry. A virtual interface with nothing beneath it (veth,
    TUN) has a speed by name only."""
    speed = nic.get("speed_mbit_s")
    if nic.get("physical") is False and not nic.get("lower"):
        return None
    if isinstance(speed, bool) or not isinstance(speed, int) or speed <= 0 or speed in UNKNOWN_SPEEDS:
        return None
    if speed > FASTEST_MBIT_S:
        return None
    return speed if carried_mbit_s <= MOST_OF_LINK * speed else None


def _nic(nic: Mapping[str, Any]) -> str:
    parts = [nic.get("driver"), nic.get("operstate")]
    if speed := link_speed_mbit_s(nic):
        parts.append(f"{speed} Mbit/s")
    parts.append(counted(len(nic.get("rx_queues") or ()), "receive queue"))
    return ", ".join(part for part in parts if part)


def _server(server: Mapping[str, Any]) -> str:
    allocator = (server.get("allocator") or {}).get("name") or "unknown"
    parts = [f"pid {server['pid']}", server.get("exe"), f"allocator {allocator}"]
    if server.get("rss_bytes") is not None:
        parts.append(f"{_gib(server['rss_bytes'])} resident")
    return ", ".join(part for part in parts if part)
