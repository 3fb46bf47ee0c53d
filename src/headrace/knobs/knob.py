"""A knob: one named, typed, documented, reversible setting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.base.errors import PlanError
from headrace.base.meant import meant
from headrace.base.model import Value, Vendor
from headrace.knobs import servers
from headrace.knobs.servers import Listed


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

ALLOCATOR = "server.allocator"

#: A connection copies these, too, and MySQL 8.0 lets no session set them, by which the lists know the others.
PER_CONNECTION = frozenset({"max_allowed_packet", "max_user_connections", "net_buffer_length"})

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

    ``allowed`` lists the values of a choice; ``low`` and ``high`` bound a number, in ``unit``. Those of a server's
    variable are the widest of all listed servers (see ``servers``); ``on`` narrows them to one server.
    ``is_memory``: no value above a machine's memory makes sense.
    ``weak_values`` is a pattern of the values (lower case) that weaken durability, ``weak_reason`` says how.
    ``applies_to`` maps vendors to versions, from documents, for servers that are not listed; empty if the knob is
    not a server's. ``variables`` maps servers to the name that the knob has there. ``location`` is the file of
    a host knob, with a name in braces for what a host may have several of: ``{device}``, ``{rx}``, ``{irq}`` (see
    ``instance``). ``dynamic_in`` lists servers that take the value without the restart that ``cost`` says, from
    documents; ``restart_at`` is a pattern of values which vendors that take the others live can neither leave nor
    enter. ``loses`` says what a new value may destroy for good. ``formerly`` is its name in older advice, and what
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
    restart_at: Mapping[Vendor, str] = field(default_factory=dict)
    variables: Mapping[Vendor, tuple[Versions, str]] = field(default_factory=dict)
    is_memory: bool = False
    loses: str = ""
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
        """Whether a server of this version has the variable or the option; True if nothing is known."""
        own = servers.of(vendor, version)
        if own and self.name.startswith("server.") and self.name != ALLOCATOR and own.is_of(version):
            return self.variable_on(vendor, version) in own.variables
        # Within a series variables come with a release: of another one than the listed, documents know more.
        return not self.applies_to or (vendor in self.applies_to and version in self.applies_to[vendor])

    def variable_on(self, vendor: Vendor | None, version: str) -> str:
        """The name of the server's variable there: ``transaction_isolation`` is MariaDB 10's ``tx_isolation``."""
        versions, other = self.variables.get(vendor, (None, "")) if vendor else (None, "")
        return other if versions and version in versions else self.name.removeprefix("server.")

    def listed_on(self, vendor: Vendor | None, version: str) -> Listed | None:
        """What that server says of it; None if there is no list of the server, or it has none."""
        if not self.name.startswith("server."):
            return None
        return servers.listed(vendor, version, self.variable_on(vendor, version))

    def is_of_sessions(self, vendor: Vendor | None, version: str) -> bool:
        """Whether a connection copies it when it is made, so that existing ones keep the old value.

        Of a server without a list it is taken to be so if one of the vendor's servers says so.
        """
        if not self.name.startswith("server."):
            return False
        variable = self.variable_on(vendor, version)
        own = servers.of(vendor, version)
        found = (own.variables.get(variable),) if own else servers.in_any(variable, vendor)
        return variable in PER_CONNECTION or any(each is not None and each.is_of_sessions for each in found)

    def on(self, vendor: Vendor | None, version: str) -> Knob:
        """The record as this server has it: its range and its names. The same record if there is no list of it."""
        own = self.listed_on(vendor, version)
        if own is None or not own.is_variable:
            # Without the variable, such as that of a plugin that was not loaded, an option has no known range.
            return self
        kind = {"number": Kind.NUMBER, "switch": Kind.SWITCH, "choice": Kind.CHOICE}.get(own.kind, Kind.TEXT)
        if own.kind == "integer":  # which numbers are bytes only people know
            is_plain = self.kind in (Kind.INTEGER, Kind.NUMBER)
            kind = self.kind if is_plain else Kind.INTEGER if (own.low or 0) < 0 else Kind.SIZE
        if self.kind is Kind.TEXT and kind is Kind.SWITCH:
            return self  # log_bin is a switch for SQL, and a name of files for option files
        if kind is Kind.TEXT:
            kind = self.kind
        return replace(self, kind=kind, low=own.low, high=own.high, allowed=own.names)

    def cost_on(self, vendor: Vendor | None, version: str, *values: Value | None) -> Cost:
        """What must happen on a server of this version before a new value takes effect.

        ``values``: the value that it has, and the new one, where they are known.
        """
        frozen = self.restart_at.get(vendor, "") if vendor else ""
        plain = [_plain(value_text(v)) for v in values if v is not None and not isinstance(v, list)]
        restart = self.cost if self.cost is not Cost.DYNAMIC else Cost.RESTART
        if frozen and any(re.fullmatch(frozen, text) for text in plain):
            return restart
        if (own := self.listed_on(vendor, version)) and own.is_variable:
            return Cost.DYNAMIC if own.is_dynamic else restart
        versions = self.dynamic_in.get(vendor) if vendor else None
        return Cost.DYNAMIC if versions and version in versions else self.cost

    def check_on(self, vendor: Vendor, version: str, value: Value) -> None:
        """As ``check``, with the range of this server. Nothing is refused by the range of another."""
        own, there = servers.of(vendor, version), self.on(vendor, version)
        if own is None:
            self.check(value)
        elif problem := there._problem(value):
            unit = f" ({self.unit})" if self.unit else ""
            raise PlanError(
                f"{self.name} = {value!r}: must be {problem}{unit} on {own.name}",
                hint=f"by that server's own list; {self.doc}",
            )

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
            raise PlanError(f"{self.name} = {value!r}: must be {problem}{unit}", hint=self._fix(value))

    def _fix(self, value: Value) -> str | None:
        """The value as it must be written; what the knob is, if that cannot be known."""
        if isinstance(value, list) and value and self.kind is not Kind.LIST:
            first = value[0]
            return f'one value: "{first}"' if isinstance(first, str) else f"one value: {first}"
        text = str(value).strip()
        if self.kind is Kind.CHOICE:
            lowered = [choice.lower() for choice in self.allowed]
            for words, own in ((_YES, "on"), (_NO, "off")):
                text = own if text.lower() in words and own in lowered else text
            near = text if text.lower() in lowered else meant(text, self.allowed)
            usual = next((each for each in self.allowed if each.lower() == "on"), self.allowed[0])
            return f'"{near}"' if near else f'"{usual}", or another of these'
        if self.kind is Kind.SWITCH and text.lower() in (*_YES, *_NO):
            return "true" if text.lower() in _YES else "false"
        if self.kind is Kind.LIST:
            return "[" + ", ".join(f'"{part.strip()}"' for part in text.split(",")) + "]"
        number = re.fullmatch(r"(-?\d+)(?:\.\d+)?\s*([KMGTPE]?)(?:i?B|bytes?)?", text, flags=re.IGNORECASE)
        if self.kind is Kind.SIZE and (size := _mended_size(text)):
            return f'"{size}"' if self._problem(size) is None else self._nearest(size_bytes(size))
        if self.kind is Kind.SIZE:
            return f'an amount, such as "{_SIZE_EXAMPLE}": a share of memory is not known in advance'
        if self.kind is Kind.SWITCH:
            return "true, or false"
        if self.kind not in (Kind.INTEGER, Kind.NUMBER):
            return self.doc
        if number is None:
            return f"a number, such as {max(self.low or 1, 1):g}"
        # A size where bytes are counted: 64K is 65536.
        whole = int(number[1]) * 1024 ** (" KMGTPE".index(number[2].upper() or " "))
        return str(whole) if self._problem(whole) is None else self._nearest(whole)

    def _nearest(self, number: float) -> str:
        """The limit that a number is beyond."""
        if self.low is not None and number < self.low:
            return f"{self.low:g}"
        if self.kind is Kind.SIZE:
            return f'no more than the machine has, such as "{_SIZE_EXAMPLE}"'
        return f"{self.high:g}" if self.high is not None else self.doc

    def meaning(self, value: Value) -> Value:
        """Equal for values that are one setting in two spellings, such as 8192K and 8388608."""
        if isinstance(value, list):
            return value
        text = value_text(value).lower()
        if not text:
            return text
        if self.kind is Kind.SWITCH:
            return text in ("on", "1", "true")
        if self.kind is Kind.SIZE or (self.kind is Kind.ANY and re.fullmatch(r"\d+[kmgtpe]", text)):
            return size_bytes(text)
        return float(text) if self.kind in (Kind.INTEGER, Kind.NUMBER) else _plain(text)

    def weakness(self, value: Value, vendor: Vendor | None = None, version: str = "") -> str | None:
        """How this value reduces durability; None if it does not, as far as is known.

        A server makes a number beyond its range the nearest one within, if only for a moment. On a vendor's server
        of which there is no list, the value counts by the weakest that a listed server would make of it.
        """
        found = self._weakness(value)
        if found or not self.weak_values or vendor is None or servers.of(vendor, version):
            return found
        for made in self._made_of(value, None if version else vendor):
            if weak := self._weakness(made):
                server = f"{vendor} {version}".strip()
                return f"the server may make it {made} (of {server} headrace knows no range): {weak}"
        return None

    def _weakness(self, value: Value) -> str | None:
        for text in value if isinstance(value, list) else [value]:
            if self.weak_values and re.fullmatch(self.weak_values, _plain(value_text(text))):
                return self.weak_reason
        return None

    def _made_of(self, value: Value, vendor: Vendor | None) -> list[str]:
        """What the listed servers make of a number: all, or those of a vendor whose release is open."""
        if isinstance(value, list | bool) or not re.fullmatch(r"-?\d+", str(value).strip()):
            return []
        found = []
        for own in servers.in_any(self.name.removeprefix("server."), vendor):
            ends = (own.low, own.high)
            if own.kind == "integer" and None not in ends:
                low, high = (int(end) for end in ends if end is not None)
                found.append(str(min(max(int(value), low), high)))
        return found

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
            names = [name.lower() for name in self.allowed]
            if switch and {"on", "off"} <= set(names):
                return None
            return None if text.lower() in names else " or ".join(self.allowed)
        if self.kind in (Kind.TEXT, Kind.ANY):
            return self._names_problem(text)
        return self._number_problem(value)

    def _names_problem(self, text: str) -> str | None:
        """Of a set of names, such as sql_mode, or ``name=on`` of a set of switches."""
        names = [name.lower() for name in self.allowed]
        parts = [part.partition("=")[0].strip().lower() for part in text.split(",") if part.strip()]
        wrong = [part for part in parts if part not in names and not part.isdigit()]
        return f"names of {' '.join(self.allowed)}, not {wrong[0]}" if names and wrong else None

    def _number_problem(self, value: str | int | float | bool) -> str | None:
        shape = {
            Kind.INTEGER: (r"-?\d+", "a whole number"),
            Kind.NUMBER: (r"-?\d+(\.\d+)?", "a number"),
            Kind.SIZE: (r"\d+[KMGTPEkmgtpe]?", 'a size, such as 134217728 or "128M"'),
        }
        pattern, wanted = shape[self.kind]
        if isinstance(value, bool) or not re.fullmatch(pattern, str(value)):
            return wanted
        number = size_bytes(str(value)) if self.kind is Kind.SIZE else _exact(str(value))
        if self.low is not None and number < self.low:
            return f"{wanted} of at least {self.low}"
        # Servers write the largest number of their type where there is no limit.
        is_limit = not self.is_memory and (number >= NO_LIMIT_BYTES or self.unit != "bytes")
        if self.kind is Kind.SIZE and number > MOST_MEMORY_BYTES and not is_limit:
            return f"{wanted} of at most 64T, because no machine has more"
        if self.high is not None and number > self.high:
            return f"{wanted} of at most {self.high}"
        return None


def _exact(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def value_text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _plain(text: str) -> str:
    """Lower case, and a number without leading zeros, so that ``02`` reads as a server reads it."""
    text = text.strip().lower()
    return str(int(text)) if re.fullmatch(r"-?\d+", text) else text


_SIZE_EXAMPLE = "1G"
_YES, _NO = ("yes", "enabled", "enable", "y"), ("no", "disabled", "disable", "n")


def _mended_size(text: str) -> str | None:
    """``1GB``, ``1 GiB``, ``1.5g`` -> ``1G``, ``1G``, ``1536M``; None for what is no size."""
    found = re.fullmatch(r"(\d+)(\.\d+)?\s*([KMGTPE]?)(?:i?B|bytes?)?", text, flags=re.IGNORECASE)
    if found is None:
        return None
    unit = found[3].upper()
    if not found[2]:
        return f"{found[1]}{unit}"
    units = " KMGTPE"
    smaller = units[units.index(unit) - 1].strip() if unit else ""
    return f"{round(float(found[1] + found[2]) * (1024 if unit else 1))}{smaller}"


def size_bytes(text: str) -> int:
    """``128M`` -> 134217728."""
    suffix = "KMGTPE".find(text[-1].upper()) + 1
    return int(text[:-1]) * 1024**suffix if suffix else int(text)
