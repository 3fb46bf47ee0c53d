"""The evidence of rules: a host's facts, its counters over a window as rates, its server's variables and status.

Every accessor without a default raises ``NotEnough`` if the number is missing, and says how to get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.activity import Activity, StatementClass, cut
from headrace.analysis import resources
from headrace.analysis.devices import Device, devices
from headrace.analysis.resources import Core, ResourceUsage, Verdict
from headrace.analysis.users import Group, Program, groups, programs
from headrace.analysis.window import Gauge, Window
from headrace.facts import HostFacts
from headrace.knobs.knob import Versions
from headrace.model import Facts, Vendor
from headrace.snapshot import Snapshot

MIB, GIB = 1 << 20, 1 << 30

#: For a rule that needs a server when none was named.
NO_SERVER = "no server was queried: name one with --mysql-socket or --mysql-host"


class NotEnough(Exception):
    """The evidence lacks something that a rule needs; the text says what, and how to get it."""


@dataclass(frozen=True)
class Number:
    """One piece of evidence: a name and its value."""

    what: str
    value: str


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
        self.raw: Mapping[str, Any] = facts.data
        self.facts = HostFacts(facts)
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

    @cached_property
    def verdict(self) -> Verdict:
        return resources.judge(self.window, self.facts, self.limits, self.alone_ms)

    @cached_property
    def cores(self) -> list[Core]:
        """Each CPU, without the sum. Raises NotEnough if the CPUs were not sampled."""
        found = resources.cores(self.window)[1:]
        if not found:
            raise NotEnough("the CPUs were not sampled")
        return found

    @cached_property
    def devices(self) -> dict[str, Device]:
        """Every block device that served requests in the window."""
        if "disk" not in self.window.samplers():
            raise NotEnough("block devices were not sampled")
        return {device.name: device for device in devices(self.window)}

    @cached_property
    def control_groups(self) -> list[Group]:
        """Every control group that a process was seen in, by CPU time."""
        return groups(self.window)

    @cached_property
    def programs(self) -> list[Program]:
        """Every program that was seen in the window, by CPU time."""
        return programs(self.window)

    def use(self, resource: str, instance: str = "") -> ResourceUsage | None:
        uses = self.verdict.uses
        return next((u for u in uses if u.resource == resource and u.instance == instance), None)

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """A list of the facts: block_devices, network_interfaces, md_arrays, file_systems, servers, ..."""
        return list(self.raw.get(key) or ())

    def kernel_at_least(self, major: int, minor: int) -> bool:
        release = (self.raw.get("kernel") or {}).get("release")
        if not release:
            raise NotEnough("the host does not report its kernel release")
        numbers = str(release).split(".")
        digits = ["".join(c for c in part if c.isdigit()) for part in numbers[:2]]
        return (int(digits[0] or 0), int(digits[1] or 0)) >= (major, minor)

    def sysctl(self, name: str) -> str:
        value = self.facts.sysctl(name)
        if value is None:
            raise NotEnough(f"the host does not report {name}")
        return value

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

    def memory_bytes(self) -> float:
        """All of the host's memory. Raises NotEnough."""
        total = (self.raw.get("memory") or {}).get("total_bytes") or self.window.last("memory", "MemTotal")
        if total is None:
            raise NotEnough("the host does not report how much memory it has")
        return float(total)

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
        return self.vendor in applies_to and self.version in applies_to[self.vendor]

    def variable(self, name: str) -> str:
        """A server variable as the server prints it."""
        value = self.settings.get("variables", {}).get(name)
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
            raise NotEnough("no server process was found on this host")
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
        """The mount that holds the server's data; None if the server runs elsewhere."""
        return self.facts.file_system_of(self.data_directory)

    def device_of(self, path: str) -> str | None:
        """The kernel name of the block device beneath a path."""
        mount = self.facts.file_system_of(path)
        device = (mount or {}).get("block_device")
        return str(device) if device else None

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
                record = self.facts.block_device(name) or {}
                waiting += [self.disk_of(str(slave)) for slave in record.get("slaves") or ()]
        return found


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


def number(what: str, value: object) -> Number:
    return Number(what, str(value))
