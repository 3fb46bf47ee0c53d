"""What servers say of their own variables: one file a series, written by ``scripts/knobs_of_servers.py``.

    listed(Vendor.MYSQL, "8.0.31", "innodb_io_capacity")    low, high, names, default, option, ...

A server of another series has no list here: the nearest is never taken for it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.base.model import Vendor


@dataclass(frozen=True)
class Listed:
    """One variable of one server. ``kind`` is the server's: integer, number, switch, choice, set or text.

    ``low`` and ``high`` in the server's own unit; None if it names none. ``names`` are those of a choice or set.
    ``option`` is the option that sets it, spelled as in option files; empty if none does. ``is_variable`` is False
    for an option that no variable has. ``refuses`` is why the server with its default refuses even the value that
    it has, ``deprecated`` what the server says of that. ``starts`` is what a start makes of the default where its
    program prints another value: empty where that depends on the machine or on other options.
    A number is taken in whole ``step``s, and rounded down to one.
    """

    kind: str
    low: int | float | None = None
    high: int | float | None = None
    names: tuple[str, ...] = ()
    default: str | None = None
    is_dynamic: bool = False
    is_of_sessions: bool = False
    option: str = ""
    is_variable: bool = True
    refuses: str = ""
    deprecated: str = ""
    starts: str | None = None
    step: int = 1

    @property
    def usual(self) -> str | None:
        """What a server has of it that nobody gave it."""
        return self.starts or self.default

    @property
    def range(self) -> str:
        """In words; empty if it has neither ends nor names."""
        if self.names:
            return " ".join(self.names)
        if self.low is None and self.high is None:
            return ""
        low, high = ("" if end is None else str(end) for end in (self.low, self.high))
        return f"{low} to {high}" if high else f"from {low}"


@dataclass(frozen=True)
class ServerList:
    """All variables and options of the server that the file was made from, by name with underscores. ``ignored``
    are options of older releases, and of MySQL, that it takes and does nothing with, ``unlisted`` those without a
    default, so without a row.
    """

    vendor: Vendor
    version: str
    variables: Mapping[str, Listed]
    ignored: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.vendor} {self.version}"

    def is_of(self, version: str) -> bool:
        """Whether it is from the same release, not only the same series."""
        return re.findall(r"\d+", version)[:3] == re.findall(r"\d+", self.version)[:3]


def lists() -> tuple[ServerList, ...]:
    """Every list, by vendor and version."""
    return tuple(_read(path) for path in _paths().values())


def of(vendor: Vendor | None, version: str) -> ServerList | None:
    """The list of this series (10.11 of MariaDB 10.11.6), None if there is none.

    Percona Server is not the MySQL that it is made from: it has no list.
    """
    path = _paths().get(f"{vendor}-{series(version)}")
    return _read(path) if path else None


def listed(vendor: Vendor | None, version: str, variable: str) -> Listed | None:
    """What this server says of a variable or option; None if it has none, or if there is no list of it."""
    own = of(vendor, version)
    return own.variables.get(variable) if own else None


def in_any(variable: str, vendor: Vendor | None = None) -> tuple[Listed, ...]:
    """What each listed server that has it says of a variable; those of a vendor, if it has any."""
    own = [each for each in lists() if vendor in (None, each.vendor)] or lists()
    return tuple(each.variables[variable] for each in own if variable in each.variables)


def series(version: str) -> str:
    """``10.11.6-MariaDB`` -> ``10.11``."""
    return ".".join(re.findall(r"\d+", version)[:2])


@functools.cache
def _paths() -> dict[str, Path]:
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.json"))}


@functools.cache
def _read(path: Path) -> ServerList:
    content = json.loads(path.read_text(encoding="utf-8"))
    head = content["server"]
    found = {name: _listed(row) for name, row in content["variables"].items()}
    others = (frozenset(content[key]) for key in ("ignored", "unlisted"))
    return ServerList(Vendor(head["vendor"]), head["version"], found, *others)


def _listed(row: Mapping[str, Any]) -> Listed:
    return Listed(
        row["kind"],
        row.get("low"),
        row.get("high"),
        tuple(row.get("allowed", ())),
        row.get("default"),
        row.get("dynamic", False),
        row.get("session", False),
        row.get("option", ""),
        row.get("variable", True),
        row.get("refuses", ""),
        row.get("deprecated", ""),
        row.get("starts"),
        row.get("step", 1),
    )
