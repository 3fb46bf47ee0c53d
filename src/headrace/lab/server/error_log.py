"""The lines of a server's error log that say why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LINES = 15

# A crash prints its reason once, then registers, a backtrace and advice.
_CRASH = re.compile(
    r"got (signal|exception)|Assertion failure|assertion .* failed|terminate called|\[FATAL\]", re.I
)
_BAD = re.compile(r"\[(error|warning)\]|\berror\b|cannot|can't|unknown|failed|denied|refused|killed", re.I)
_UNKNOWN = re.compile(r"unknown (?:variable|option) '(?:--)?([A-Za-z0-9_-]+)")
_BAD_VALUE = re.compile(r"Error while setting value '([^']*)' to '(?:--)?([A-Za-z0-9_-]+)'")


def excerpt(text: str) -> list[str]:
    """At most MAX_LINES lines: from the crash on, else the last ones that complain, else simply the last."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if _CRASH.search(line):
            return lines[number : number + MAX_LINES]
    return ([line for line in lines if _BAD.search(line)] or lines)[-MAX_LINES:]


def explanation(lines: Iterable[str]) -> str | None:
    """One sentence where the cause is a variable of the plan; it names the variable."""
    for line in lines:
        if match := _UNKNOWN.search(line):
            return f"it has no variable {match[1].replace('-', '_')}"
        if match := _BAD_VALUE.search(line):
            return f"it does not accept {match[2].replace('-', '_')} = {match[1]!r}"
    return None
