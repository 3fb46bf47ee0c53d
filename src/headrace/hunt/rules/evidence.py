"""The evidence of rules: a host's facts, its counters over a window as rates, its server's variables and status.

Every accessor without a default raises ``NotEnough`` if the number is missing, and says how to get it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

from headrace.base.errors import HostUnknown
from headrace.base.model import Facts, Vendor
from headrace.host.activity import Activity, StatementClass, cut
from headrace.host.cores import Core
from headrace.host.cores import cores as all_cores
from headrace.host.devices import Device, devices
from headrace.host.facts import HostFacts, OfServer
from headrace.host.snapshot import Snapshot
from headrace.host.window import Gauge, Window
from headrace.hunt import namespaced, resources, server_alone, sessions
from headrace.hunt.reclaim import reclaimable_cache_bytes
from headrace.hunt.resources import ResourceUsage, Verdict
from headrace.hunt.rules.cached import aside
from headrace.hunt.users import Group, Program, groups, programs
from headrace.knobs.knob import Versions

MIB, GIB = 1 << 20, 1 << 30

#: Variables with directories or files of a server beside its data and its logs.
_BESIDE = (
    "tmpdir", "innodb_tmpdir", "slave_load_tmpdir", "replica_load_tmpdir", "innodb_undo_directory",
    "innodb_temp_tablespaces_dir", "innodb_doublewrite_dir", "relay_log_basename",
)  # fmt: skip
#: For a rule that needs a server when none was named.
NO_SERVER = "no server was queried: name one with --mysql-socket or --mysql-host"
#: CPUs that servers use or wait for, below which they have nothing to do; the share of that time that they wait,
#: from which on they are held up.
AT_WORK, HELD_UP = 0.02, 0.05
#: Sessions that are active on average, below which none has work, in so many looks.
AT_REST, LOOKS = 0.1, 3


class NotEnough(Exception):
    """The evidence lacks something that a rule needs; the text says what, and how to get it."""


@dataclass(frozen=True)
class Number:
    """One piece of evidence: a name and its value, as people read it."""

    what: str
    value: str
    #: What ``value`` was made from, if that is nothing but a number; programs get it instead.
    exact: float | None = None


#: Requests per second of a server to its disks, below which nobody feels how long each takes.
ASKED_S = 20.0


class Evidence:
    """``facts`` are those of the agent, ``window`` the counters; ``limits`` measured limits of devices,
    in operations per second; ``alone_ms`` the measured time of one request of a device without load;
    ``activity`` what the server executed, None if it was not looked at."""

    def __init__(
        self,
        facts: Facts,
        window: Window,
        limits: Mapping[str, float] | None = None,
        alone_ms: Mapping[str, float] | None = None,
        activity: Activity | None = None,
    ) -> None:
        place = HostFacts(facts).server_place
        #: Where the server runs, as a sentence, if the examined host is not to be taken for its own; else empty.
        self.apart = ""
        if facts.data.get("server_settings") and place is not None and not place.is_on_host:
            self.apart = place.sentence
            why = facts.data.get("only_sql") or "run headrace on the server's own host"
            facts = Facts(facts.hash, {**facts.data, "only_sql": why})
        self.facts = HostFacts(facts)
        why = self.facts.only_sql
        self.raw: Mapping[str, Any] = OfServer(facts.data, why) if why else facts.data
        self.window = resources.of_server(window, self.facts)
        self.limits = dict(limits or {})
        self.alone_ms = dict(alone_ms or {})
        self.activity = activity

    @classmethod
    def of(cls, snapshot: Snapshot) -> Evidence:
        """The evidence of a saved snapshot of a host, or of a trial."""
        window = Window(snapshot.samples, snapshot.errors)
        return cls(snapshot.facts, window, snapshot.limits, snapshot.alone_ms, snapshot.activity)

    # The host

    @property
    def has_host(self) -> bool:
        """Whether the examined host is the server's; otherwise only SQL was asked, and no rule uses a host."""
        return not self.facts.only_sql

    @cached_property
    def load(self) -> sessions.Load | None:
        """The sessions at work and what they wait for; None without a server that lists them."""
        known = self.has_server or self.activity is not None
        return sessions.load_of(self.window, self.activity) if known else None

    @cached_property
    def verdict(self) -> Verdict:
        if not self.has_host:
            return server_alone.judge(self.load, self.activity, self.window, self.facts)
        own = self.used_devices
        if own is not None:
            own -= aside(self, self.data_directory, "write") & aside(self, self.data_directory, "read")
        found = resources.judge(self.window, self.facts, self.limits, self.alone_ms, own)
        return server_alone.with_sessions(found, self.load)

    @cached_property
    def cores(self) -> list[Core]:
        """Each CPU, without the sum. Raises NotEnough if the CPUs were not sampled."""
        if self.facts.given_cpus:
            raise NotEnough("how busy the CPUs are is unknown: only their number was given")
        found = all_cores(self.window)[1:]
        if not found:
            raise NotEnough("the CPUs were not sampled")
        return found

    @cached_property
    def devices(self) -> dict[str, Device]:
        """Every block device that served requests in the window."""
        if "disk" not in self.window.samplers():
            raise NotEnough("block devices were not sampled")
        return {device.name: device for device in devices(self.window)}

    @property
    def cpus(self) -> int | None:
        """CPUs of the server's host, sampled or given; None where nobody knows."""
        return len(self.cores) if self.has_host else self.facts.given_cpus

    @property
    def server_cpus(self) -> float:
        """CPUs that the servers use. Of a server alone the most that it can: a session that executes uses one or
        waits."""
        if self.has_host:
            return sum(program.cpus for program in self.programs if program.is_server)
        if self.load is not None:
            return self.load.executing
        return max(self.running - 1, 0.0)  # one is the sampler's

    @property
    def running(self) -> float:
        """The mean of Threads_running, the sampler's own among them, without threads that serve no client."""
        found = sessions.running(self.window, len(self.facts.replicas or ()))
        if found is None:
            raise NotEnough(self._missing("mysql_status", "threads_running"))
        return found

    @cached_property
    def control_groups(self) -> list[Group]:
        """Every control group that a process was seen in, by CPU time."""
        return groups(self.window)

    @cached_property
    def programs(self) -> list[Program]:
        """Every program that was seen in the window, by CPU time."""
        return programs(self.window)

    @property
    def is_server_held_up(self) -> bool:
        """Whether the servers had work and waited for a CPU, by their own threads; without these, whether they had
        work."""
        own = sum(program.cpus for program in self.programs if program.is_server)
        rates = self.window.rates("threads", "runqueue_ns")
        if not rates:
            return own >= AT_WORK
        waited = sum(rates.values()) / 1e9
        # Of a server that used next to no CPU it is our own questions and its timers that waited, unless sessions
        # are known to have had work.
        at_work = sessions.at_work(self.load) if self.load and self.load.looks >= LOOKS else 0.0
        if own < AT_WORK and at_work < AT_REST:
            return False
        return own + waited >= AT_WORK and waited >= HELD_UP * (own + waited)

    def use(self, resource: str, instance: str = "") -> ResourceUsage | None:
        """Raises HostUnknown for a host's resource where only SQL was asked."""
        if not self.has_host and resource != server_alone.SESSIONS:
            raise HostUnknown(self.facts.only_sql)
        uses = self.verdict.uses
        return next((u for u in uses if u.resource == resource and u.instance == instance), None)

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """A list of the facts: block_devices, network_interfaces, md_arrays, file_systems, servers, ..."""
        return list(self.raw.get(key) or ())

    def kernel_at_least(self, major: int, minor: int) -> bool:
        release = (self.raw.get("kernel") or {}).get("release")
        if not release:
            raise NotEnough("the host does not report its kernel release")
        digits = re.match(r"(\d{1,4})\.(\d{1,4})", str(release))
        if digits is None:
            raise NotEnough(f"the host's kernel release is {cut(str(release), 40)!r}")
        return (int(digits[1]), int(digits[2])) >= (major, minor)

    def sysctl(self, name: str) -> str:
        value = self.facts.sysctl(name)
        if namespaced.is_of_namespace(name) and (why := namespaced.why_not_of_server(self.facts)):
            raise NotEnough(f"the server's own {name} is unknown: {why}")
        if value is None:
            raise NotEnough(f"the host does not report {name}")
        return value

    def sysctl_number(self, name: str, usual: int | None = None) -> int:
        """A sysctl that is one number; ``usual``: what a kernel without it does."""
        if usual is not None and self.facts.sysctl(name) is None:
            return usual
        return self.sysctl_numbers(name, 1)[0]

    def sysctl_numbers(self, name: str, count: int) -> list[int]:
        text = self.sysctl(name)
        try:
            found = [int(word) for word in text.split()]
        except ValueError:
            found = []
        if len(found) != count:
            raise NotEnough(f"the host's {name} is {cut(text, 40)!r}, not {count} numbers")
        return found

    def rate(self, sampler: str, metric: str, label: str = "") -> float:
        """A counter's growth per second."""
        found = self.window.rate(sampler, metric, label)
        if found is None:
            raise NotEnough(self._missing(sampler, metric))
        return found

    def growth(self, sampler: str, metric: str, label: str = "") -> float:
        """Growth of a counter over the window."""
        found = self.window.growth(sampler, metric, label)
        if found is None:
            raise NotEnough(self._missing(sampler, metric))
        return found

    def gauge(self, sampler: str, metric: str, label: str = "") -> Gauge:
        found = self.window.gauge(sampler, metric, label)
        if found is None:
            raise NotEnough(self._missing(sampler, metric))
        return found

    def innodb(self, metric: str) -> Gauge:
        """A number of SHOW ENGINE INNODB STATUS: that text needs no other word of its server."""
        if "innodb_status" not in self.window.samplers():
            self.settings  # noqa: B018 - raises NotEnough without a server
        return self.gauge("innodb_status", metric)

    def memory_bytes(self) -> float:
        """All of the host's memory. Raises NotEnough."""
        if given := self.facts.given_memory_bytes:
            return float(given)
        total = (self.raw.get("memory") or {}).get("total_bytes") or self.window.last("memory", "MemTotal")
        if total is None:
            raise NotEnough("the host does not report how much memory it has")
        return float(total)

    def available_bytes(self) -> float:
        """The least memory that the kernel could hand out in the window. Raises NotEnough, also with ZFS whose
        cache was not sampled: the kernel counts it as used, and most of it is not."""
        low = self.gauge("memory", "MemAvailable").low
        cache = reclaimable_cache_bytes(self.window)
        if cache is None and self.facts.has_zfs:
            raise NotEnough(
                "ZFS's cache counts as used memory here, and its size was not sampled (sampler zfs)"
            )
        return low + (cache or 0.0)

    def last(self, sampler: str, metric: str, label: str = "") -> float:
        """The newest value: of a counter since its start, of a gauge now."""
        found = self.window.last(sampler, metric, label)
        if found is None:
            raise NotEnough(self._missing(sampler, metric))
        return found

    def _missing(self, sampler: str, metric: str) -> str:
        why = self.window.errors.get(sampler)
        return f"{sampler}.{metric} was not sampled" + (f": {why}" if why else "")

    # The server

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """``server_settings`` of the facts. Raises NotEnough without a server."""
        found = self.raw.get("server_settings")
        if not found:
            raise NotEnough(self.window.errors.get("server", NO_SERVER))
        return dict(found)

    @property
    def has_server(self) -> bool:
        return bool(self.raw.get("server_settings"))

    @property
    def vendor(self) -> Vendor:
        return Vendor(self.settings["vendor"])

    @property
    def version(self) -> str:
        return str(self.settings["version"])

    def is_for(self, applies_to: Mapping[Vendor, Versions]) -> bool:
        """Whether a rule is for this server's vendor and version; without a server the rule says so itself."""
        if not applies_to or not self.has_server:
            return True
        # A dump may lack the version: then a rule that needs a variable names it.
        return self.vendor in applies_to and (not self.version or self.version in applies_to[self.vendor])

    def variable(self, name: str) -> str:
        """A server variable as the server prints it."""
        known = self.settings.get("variables", {})
        if not known:
            raise NotEnough("the server's variables are unknown: SHOW GLOBAL VARIABLES tells them")
        value = known.get(name)
        if value is None:
            raise NotEnough(f"the server has no variable {name}")
        return str(value)

    def has_variable(self, name: str) -> bool:
        return self.has_server and name in self.settings.get("variables", {})

    def number(self, name: str) -> float:
        """A numeric server variable."""
        text = self.variable(name)
        try:
            return float(text)
        except ValueError:
            raise NotEnough(f"the server's {name} is {text!r}, not a number") from None

    @property
    def asks_disks(self) -> bool:
        """Whether InnoDB reads, writes and syncs so often that somebody feels how long each takes; true where its
        status is unknown."""
        names = ("innodb_data_reads", "innodb_data_writes", "innodb_data_fsyncs", "innodb_os_log_fsyncs")
        known = [rate for name in names if (rate := self.window.rate("mysql_status", name)) is not None]
        return not known or sum(known) >= ASKED_S

    def is_on(self, name: str) -> bool:
        return self.variable(name).lower() in ("on", "1", "yes", "true")

    def status(self, name: str) -> float:
        """A status variable, since the server's start or now. Name in lower case."""
        self.settings  # noqa: B018 - raises NotEnough without a server
        return self.last("mysql_status", name)

    def status_rate(self, name: str) -> float:
        """A status counter's growth per second in the window."""
        self.settings  # noqa: B018
        return self.rate("mysql_status", name)

    def status_per_second(self, name: str) -> float:
        """Growth per second in the window, or since the server's start if nothing happened in the window."""
        return self.status_rate(name) or self.status(name) / max(self.status("uptime"), 1.0)

    def executed(self, most: int = 3) -> list[StatementClass]:
        """The classes of statements on tables that were seen most often; empty if nobody looked."""
        classes = self.activity.classes if self.activity is not None else ()
        return [each for each in classes if each.tables][:most]

    def statement(self, digest: str) -> str:
        """The text of a digest without its values, as far as the server was asked for it; else its name."""
        known = self.activity.digest(digest) if self.activity is not None else None
        return cut(known.text) if known is not None and known.text else f"digest {digest}"

    @property
    def process(self) -> Mapping[str, Any] | None:
        """The queried server's process among ``servers`` of the facts, if it runs on this host."""
        return self.facts.server_process

    @property
    def server_process(self) -> Mapping[str, Any]:
        """The same for rules that need it. Raises NotEnough without one."""
        if (process := self.process) is None:
            place = self.facts.server_place
            several = sum(1 for each in self.facts.servers if each.get("program") != "memcached")
            raise NotEnough(
                place.sentence.rstrip(".")
                if place is not None and not place.is_on_host
                else f"{several} servers run on this host, and none was chosen: --mysql-socket"
                if several > 1
                else "no server process was found on this host"
            )
        return process

    @property
    def data_bytes(self) -> float:
        """Data and indexes of InnoDB. Raises NotEnough if the server did not report it."""
        engines = self.settings.get("engines")
        own = self.settings.get("innodb_size")
        if engines is None and own is not None:
            engines = [own]
        if engines is None:
            raise NotEnough("the server did not report the size of its tables")
        sizes = (
            (e.get("data_bytes") or 0) + (e.get("index_bytes") or 0)
            for e in engines
            if e["engine"] == "InnoDB"
        )
        return float(sum(sizes))

    @property
    def data_directory(self) -> str:
        """From the server, or else from its process. Raises NotEnough if neither reports it."""
        process = self.process or {}
        own = process.get("datadir") or process.get("working_directory")
        path = str(own) if own and not self.has_server else self.variable("datadir")
        return path.rstrip("/") or "/"

    @property
    def data_file_system(self) -> Mapping[str, Any] | None:
        """The mount that holds the server's data, as its process sees it; None if the server runs elsewhere."""
        return self.facts.server_file_system_of(self.data_directory)

    def device_of(self, path: str) -> str | None:
        """The kernel name of the block device beneath one of the server's paths."""
        mount = self.facts.server_file_system_of(path)
        # What a container without a volume writes goes to a folder of the host.
        return _device(mount) or _device(self.facts.below_overlay(mount))

    def room(self, path: str) -> tuple[float, float] | None:
        """Size and available bytes of the file system of one of the server's paths; None if unknown."""
        mount = self.facts.server_file_system_of(path) or {}
        size_bytes, available = mount.get("size_bytes"), mount.get("available_bytes")
        if mount and not self.facts.server_view:
            # Newer than the facts; but sampled by this host's own mount points.
            point = str(mount["mount_point"])
            total, free = (
                self.window.last("file_systems", metric, point)
                for metric in ("size_bytes", "available_bytes")
            )
            size_bytes, available = (total, free) if total and free is not None else (size_bytes, available)
        return (float(size_bytes), float(available)) if size_bytes and available is not None else None

    def disk_of(self, name: str) -> str:
        """The disk of a partition; anything else is its own."""
        for device in self.rows("block_devices"):
            if any(part["name"] == name for part in device.get("partitions") or ()):
                return str(device["name"])
        return name

    def beneath(self, path: str) -> list[str]:
        """The devices that a path's data end up on, from the top: ``["md0", "sda", "sdb"]``.

        Raises NotEnough if the path's device is unknown, as on a remote or a stacked file system.
        """
        top = self.device_of(path)
        if top is None:
            raise NotEnough(f"the device beneath {path} is unknown")
        found: list[str] = []
        waiting = [self.disk_of(top)]
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found.append(name)
                waiting += self.below(name)
        return found

    @cached_property
    def own_devices(self) -> frozenset[str] | None:
        """The devices of the server's data and logs, with all that is beneath them; None if no server was asked,
        or they are unknown."""
        if not self.has_host or not self.has_server or self.process is None:
            return None
        try:
            found = set(self.beneath(self.data_directory))
            for name in ("innodb_log_group_home_dir", "log_bin_basename", "innodb_data_home_dir"):
                path = self.variable(name) if self.has_variable(name) else ""
                found |= set(self.beneath(path)) if path.startswith("/") else set()
        except NotEnough:
            return None
        return frozenset(found)

    @cached_property
    def used_devices(self) -> frozenset[str] | None:
        """``own_devices`` with those of temporary, undo and relay files; None if the former are unknown."""
        if self.own_devices is None:
            return None
        found = set(self.own_devices)
        for name in _BESIDE:
            # tmpdir may be several directories.
            for path in self.variable(name).split(":") if self.has_variable(name) else ():
                with contextlib.suppress(NotEnough):  # in memory, or remote
                    found |= set(self.beneath(path)) if path.startswith("/") else set()
        return frozenset(found)

    def below(self, name: str) -> list[str]:
        """The devices right below a layer, as far as it says: its members, or the one of a loop device's file."""
        record = self.facts.block_device(name) or {}
        below = [self.disk_of(str(slave)) for slave in record.get("slaves") or ()]
        file = (record.get("loop") or {}).get("backing_file")
        if not below and file and (device := _device(self.facts.file_system_of(str(file)))):
            below = [self.disk_of(device)]
        return below


def _device(mount: Mapping[str, Any] | None) -> str | None:
    device = (mount or {}).get("block_device")
    return str(device) if device else None


def size(size_bytes: float | None) -> str:
    """``134217728`` -> ``128 MiB``."""
    if size_bytes is None:
        return "an unknown size"
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            shown = size_bytes / unit
            return f"{shown:.0f} {name}" if shown >= 100 or shown == round(shown) else f"{shown:.3g} {name}"
    return f"{size_bytes:.0f} bytes"


def share(part: float) -> str:
    return f"{100 * part:.0f}%" if part >= 0.0995 or part == 0 else f"{100 * part:.2g}%"


#: Numbers as servers write them into their variables: no version, no address, no list of numbers.
_AS_SERVERS_WRITE = re.compile(r"-?(0|[1-9]\d*)(\.\d{6})?")


def number(what: str, value: object, form: str = "") -> Number:
    """A value, and how people read it: ``form`` is a format such as ``,.1f``.

    Give a number itself, not its text: programs need it. A value with its unit ("3 GiB", "18%"), or of which
    nothing is known, is text for both.
    """
    exact: float | None = None
    if isinstance(value, str):
        exact = float(value) if _AS_SERVERS_WRITE.fullmatch(value) else None
    elif isinstance(value, Real) and not isinstance(value, bool):
        exact = float(value)
    text = format(value, form) if isinstance(value, Real) else str(value)
    return Number(what, text, exact if exact is None or exact % 1 else int(exact))
