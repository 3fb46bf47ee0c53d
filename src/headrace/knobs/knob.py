"""A knob: one named, typed, documented, reversible setting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.errors import PlanError
from headrace.model import Value, Vendor


class Kind(StrEnum):
    INTEGER = "integer"
    NUMBER = "number"
    SIZE = "size"  # bytes, or with K, M, G, T, P, E: powers of 1024
    SWITCH = "switch"
    CHOICE = "choice"
    TEXT = "text"
    LIST = "list"  # accumulates over base, bundles and factors
    ANY = "any"  # a knob without a record: one value, or a list


#: No machine has more memory. Linux on x86 addresses 64 TiB with four levels of page tables (kernel documentation,
#: 5-level paging), and no server has more with five.
MOST_MEMORY_BYTES = 64 * 1024**4

#: From here on the size of a limit means that there is none: servers write the largest number of their type.
NO_LIMIT_BYTES = 1024**6


class Cost(StrEnum):
    """What must happen before a new value takes effect."""

    DYNAMIC = "dynamic"
    RESTART = "restart"
    REMOUNT = "remount"
    REBUILD = "rebuild"
    REBOOT = "reboot"


class Durability(StrEnum):
    """Whether a value can weaken what survives a crash or a power cut."""

    KEPT = "kept"
    BY_VALUE = "by value"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Versions:
    """From ``since`` (with it) to ``until`` (without it); empty is no limit."""

    since: str = ""
    until: str = ""

    def __contains__(self, version: str) -> bool:
        own = _numbers(version)
        return (not self.since or own >= _numbers(self.since)) and (
            not self.until or own < _numbers(self.until)
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


@dataclass(frozen=True)
class Knob:
    """One setting. ``source`` names the document and its section that the record is taken from.

    ``allowed`` lists the values of a choice; ``low`` and ``high`` bound a number, in ``unit``.
    ``weak_values`` is a pattern of the values (lower case) that weaken durability, ``weak_reason`` says how.
    ``applies_to`` maps vendors to versions; empty if the knob is not a server's. ``location`` is the file of
    a host knob, with a name in braces for what a host may have several of: ``{device}``, ``{rx}``, ``{irq}`` (see
    ``instance``). ``dynamic_in`` lists servers that take the value without the restart that ``cost`` says,
    ``high_in`` vendors whose maximum is lower than ``high``. ``formerly`` is its name in older advice, and what
    became of that. ``never`` says why headrace does not set it on a live host, regardless of permission.
    """

    name: str
    kind: Kind
    cost: Cost
    doc: str
    source: str
    unit: str = ""
    allowed: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    durability: Durability = Durability.KEPT
    weak_values: str = ""
    weak_reason: str = ""
    applies_to: Mapping[Vendor, Versions] = field(default_factory=dict)
    dynamic_in: Mapping[Vendor, Versions] = field(default_factory=dict)
    high_in: Mapping[Vendor, float] = field(default_factory=dict)
    location: str = ""
    formerly: str = ""
    never: str = ""

    @property
    def placeholder(self) -> str:
        """The placeholder in the location: ``device``, ``rx``, ``irq``, ...; empty if it is one file."""
        found = re.search(r"\{(\w+)\}", self.location)
        return found[1] if found else ""

    @property
    def sysctl(self) -> str:
        """Its name for sysctl; empty if it is none."""
        name = self.location.removeprefix("/proc/sys/")
        return "" if name == self.location or self.placeholder else name.replace("/", ".")

    def applies(self, vendor: Vendor, version: str) -> bool:
        """Whether a server of this version has the variable; True if nothing is known."""
        return not self.applies_to or (vendor in self.applies_to and version in self.applies_to[vendor])

    def cost_on(self, vendor: Vendor | None, version: str) -> Cost:
        """What must happen on a server of this version before a new value takes effect."""
        versions = self.dynamic_in.get(vendor) if vendor else None
        return Cost.DYNAMIC if versions and version in versions else self.cost

    def check_on(self, vendor: Vendor, value: Value) -> None:
        """As ``check``, for what this vendor allows less of."""
        replace(self, high=self.high_in.get(vendor, self.high)).check(value)

    def path(self, device: str | None = None) -> str:
        """The file that holds the setting; ``device`` is a block device's name, as ``sda`` or ``/dev/sda``."""
        if not self.location:
            raise PlanError("this knob is not a file on the host", place=self.name)
        if not self.placeholder:
            return self.location
        if self.placeholder != "device":
            raise PlanError(f"needs its {self.placeholder}", place=self.name, hint="NAME@INSTANCE=VALUE")
        if not device:
            raise PlanError("needs a block device", place=self.name)
        return self.location.format(device=device.removeprefix("/dev/"))

    def check(self, value: Value) -> None:
        """Raises PlanError with the knob, the value and what is allowed."""
        problem = self._problem(value)
        if problem:
            unit = f" ({self.unit})" if self.unit else ""
            raise PlanError(f"{self.name} = {value!r}: must be {problem}{unit}", hint=self.doc)

    def meaning(self, value: Value) -> Value:
        """Equal for values that are one setting in two spellings, such as 8192K and 8388608."""
        if isinstance(value, list):
            return value
        text = value_text(value).lower()
        if self.kind is Kind.SWITCH:
            return text in ("on", "1", "true")
        if self.kind is Kind.SIZE or (self.kind is Kind.ANY and re.fullmatch(r"\d+[kmgtpe]", text)):
            return size_bytes(text)
        return float(text) if self.kind in (Kind.INTEGER, Kind.NUMBER) else _plain(text)

    def weakness(self, value: Value) -> str | None:
        """How this value reduces durability; None if it does not, as far as is known."""
        for text in value if isinstance(value, list) else [value]:
            if self.weak_values and re.fullmatch(self.weak_values, _plain(value_text(text))):
                return self.weak_reason
        return None

    def _problem(self, value: Value) -> str | None:
        if self.kind is Kind.LIST:
            good = isinstance(value, list) and all(isinstance(v, str) and v.isprintable() for v in value)
            return None if good else 'a list of strings, such as ["noatime"]'
        if isinstance(value, list):
            if self.kind is not Kind.ANY:
                return "one value, not a list"
            value = ",".join(value)
        text = value_text(value)
        if not text.isprintable():
            return "without control characters"
        switch = isinstance(value, bool) or text.lower() in ("on", "off", "0", "1", "true", "false")
        if self.kind is Kind.SWITCH:
            return None if switch else "true or false"
        if self.kind is Kind.CHOICE:
            return None if text.lower() in [a.lower() for a in self.allowed] else " or ".join(self.allowed)
        if self.kind in (Kind.TEXT, Kind.ANY):
            return None
        return self._number_problem(value)

    def _number_problem(self, value: str | int | float | bool) -> str | None:
        shape = {
            Kind.INTEGER: (r"-?\d+", "a whole number"),
            Kind.NUMBER: (r"-?\d+(\.\d+)?", "a number"),
            Kind.SIZE: (r"\d+[KMGTPEkmgtpe]?", 'a size, such as 134217728 or "128M"'),
        }
        pattern, wanted = shape[self.kind]
        if isinstance(value, bool) or not re.fullmatch(pattern, str(value)):
            return wanted
        number = size_bytes(str(value)) if self.kind is Kind.SIZE else float(value)
        if self.low is not None and number < self.low:
            return f"{wanted} of at least {self.low:g}"
        if self.kind is Kind.SIZE and self.high in (None, MOST_MEMORY_BYTES):
            is_limit = self.high is None and number >= NO_LIMIT_BYTES
            too_much = number > MOST_MEMORY_BYTES and not is_limit
            return f"{wanted} of at most 64T, because no machine has more" if too_much else None
        if self.high is not None and number > self.high:
            return f"{wanted} of at most {self.high:g}"
        return None


def value_text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _plain(text: str) -> str:
    """Lower case, and a number without leading zeros, so that ``02`` reads as a server reads it."""
    text = text.strip().lower()
    return str(int(text)) if re.fullmatch(r"-?\d+", text) else text


def size_bytes(text: str) -> int:
    """``128M`` -> 134217728."""
    suffix = "KMGTPE".find(text[-1].upper()) + 1
    return int(text[:-1]) * 1024**suffix if suffix else int(text)
