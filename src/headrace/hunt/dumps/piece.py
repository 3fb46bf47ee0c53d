"""What readers make of texts: pieces of a host's or a server's state, each with its time where the text has one.

Times are seconds since 1970 or None. Numbers are those of the text; nothing is filled in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

#: Metric -> label -> number, as a sampler of the agent writes them.
Numbers = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Status:
    """One SHOW GLOBAL STATUS: names in lower case. ``uptime`` among them is its clock."""

    values: Mapping[str, float]
    at_s: float | None = None
    #: The names as the server writes them: a spelling is a vendor's.
    source: str = "SHOW GLOBAL STATUS"


@dataclass(frozen=True)
class Variables:
    """SHOW GLOBAL VARIABLES, or as many of them as the text has (``is_whole``: all)."""

    values: Mapping[str, str]
    is_whole: bool = True


@dataclass(frozen=True)
class Numbered:
    """One sample of a sampler whose text is not a file of /proc."""

    sampler: str
    numbers: Numbers
    at_s: float | None = None
    #: The program that printed it; empty for node_exporter and what its sampler names.
    source: str = ""


@dataclass(frozen=True)
class Channels:
    """What a replica says of its channels, as in the facts, and whose server it is as far as that tells."""

    rows: Sequence[Mapping[str, Any]]
    vendor: str = ""


@dataclass(frozen=True)
class Threads:
    """One process list: the columns in lower case."""

    rows: Sequence[Mapping[str, str]]
    at_s: float | None = None


@dataclass(frozen=True)
class Kernel:
    """One reading of a file of /proc, by its path without the first slash."""

    path: str
    text: str
    at_s: float | None = None


@dataclass(frozen=True)
class Rates:
    """What a program printed for one interval: growth per second, and gauges at its end. ``seconds``: its length,
    None if the text does not say it."""

    source: str
    sampler: str
    per_second: Numbers
    gauges: Numbers = field(default_factory=dict)
    seconds: float | None = None
    at_s: float | None = None


@dataclass(frozen=True)
class About:
    """Facts of the host: (part, name) or (name,) of the agent's facts -> value."""

    facts: Mapping[tuple[str, ...], Any]


@dataclass(frozen=True)
class Stacks:
    """Where CPU time went: folded stacks, as ``host.stacks`` reads them."""

    folded: str


@dataclass(frozen=True)
class Unread:
    """Content that was recognised and is not read, with the reason and what to give instead.

    ``refusal``: what the server said where it did not let the client in that was to ask it.
    """

    why: str
    refusal: str = ""


@dataclass(frozen=True)
class Said:
    """A caution about what was read."""

    text: str


Piece = Status | Variables | Numbered | Channels | Threads | Kernel | Rates | About | Stacks | Unread | Said

#: pt-stalk's, and that of ``headrace collect``: seconds, then a date for people.
_STAMP = re.compile(r"^TS (\d{9,11}(?:\.\d+)?)(?: [^\n]*)?\n", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")


def stamped(text: str) -> list[tuple[float | None, str]]:
    """The parts of a text that begin with ``TS SECONDS``, each with its time; the whole text if there are none."""
    found = list(_STAMP.finditer(text))
    if not found:
        return [(None, text)]
    ends = [*(match.start() for match in found[1:]), len(text)]
    parts: list[tuple[float | None, str]] = []
    if text[: found[0].start()].strip():
        parts.append((None, text[: found[0].start()]))
    for match, end in zip(found, ends, strict=True):
        parts.append((float(match[1]), text[match.end() : end]))
    return parts


def number_of(text: str) -> float | None:
    """A finite number as programs print it; None for anything else."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def time_of(date: str, clock: str) -> float | None:
    """``2026-11-28``, ``16:09:26`` as UTC: of a text without a zone only differences matter."""
    try:
        return datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
