"""A host's facts, read by name, so that only this module knows the JSON's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import TargetError
from headrace.model import Facts, Vendor

GIB = 1 << 30

#: What facts that do not tell the size of a page were collected on.
X86_PAGE = 4096


class HostFacts:
    """Look-ups in one snapshot. Values that the host does not have or report are None, never 0."""

    def __init__(self, facts: Facts) -> None:
        self._data = facts.data

    @property
    def hostname(self) -> str | None:
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
        return int(self._required("cpu", "online_count"))

    @property
    def numa_node_count(self) -> int | None:
        return len(self._rows("numa_nodes")) or None

    @property
    def memory_bytes(self) -> int:
        return int(self._required("memory", "total_bytes"))

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
    def server_process(self) -> Mapping[str, Any] | None:
        """The queried server's process, if it runs on this host; without one, the only server's of databases."""
        pid = self._table("server_settings").get("pid")
        servers = self._rows("servers")
        found = [server for server in servers if pid is not None and server.get("pid") == pid]
        databases = [server for server in servers if server.get("program") in ("mysqld", "mariadbd")]
        return found[0] if found else databases[0] if len(databases) == 1 else None

    def has_group(self, folder: str) -> bool:
        """Whether the server is in this control group or below it; true also where that is not known."""
        own = ((self.server_process or {}).get("cgroup") or {}).get("folders")
        return not own or any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for path in own.values())

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
        below = [fs for fs in self._rows("file_systems") if _lies_below(path, str(fs["mount_point"]))]
        return max(reversed(below), key=lambda fs: len(fs["mount_point"]), default=None)

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
    def server_pid(self) -> int | None:
        """Of the server that was queried, if it runs on this host."""
        pid = self._table("server_settings").get("pid")
        return pid if isinstance(pid, int) else None

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
        yield "system", f"{self.os_name or 'unknown'}, kernel {self.kernel_release}"
        yield "processors", f"{self.cpu_count} x {self.cpu_model or 'unknown'}{self._topology()}"
        yield (
            "memory",
            f"{self.memory_bytes / GIB:.1f} GiB, huge pages {self.transparent_huge_pages or 'unknown'}",
        )
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
        f"{nic.get('driver')} {nic.get('speed_mbit_s') or '?'} Mbit/s"
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


def _lies_below(path: str, mount_point: str) -> bool:
    return mount_point == "/" or path == mount_point or path.startswith(f"{mount_point}/")


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


def _nic(nic: Mapping[str, Any]) -> str:
    parts = [nic.get("driver"), nic.get("operstate")]
    if nic.get("speed_mbit_s"):
        parts.append(f"{nic['speed_mbit_s']} Mbit/s")
    parts.append(f"{len(nic.get('rx_queues') or ())} receive queues")
    return ", ".join(part for part in parts if part)


def _server(server: Mapping[str, Any]) -> str:
    allocator = (server.get("allocator") or {}).get("name") or "unknown"
    parts = [f"pid {server['pid']}", server.get("exe"), f"allocator {allocator}"]
    if server.get("rss_bytes") is not None:
        parts.append(f"{_gib(server['rss_bytes'])} resident")
    return ", ".join(part for part in parts if part)
