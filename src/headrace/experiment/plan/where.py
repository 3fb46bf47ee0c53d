"""The lines of a plan file, so that an error names the one it is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headrace.base import toml
from headrace.base.errors import PlanError

_BARE = r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'"""
_KEY = re.compile(rf"\s*((?:{_BARE})(?:\s*\.\s*(?:{_BARE}))*)\s*=(?!=)")
_TABLE = re.compile(rf"\s*\[\[?\s*((?:{_BARE})(?:\s*\.\s*(?:{_BARE}))*)\s*\]\]?\s*(?:#.*)?$")
_PART = re.compile(_BARE)

#: What a message begins with: the key that it is about, and perhaps its value.
_SUBJECT = re.compile(
    r"(?P<key>[A-Za-z@][\w@./=-]*?)(?:\[\d+\])?(?: = (?P<value>.*?))?(?:: | in |, )", re.DOTALL
)


def lines(text: str) -> dict[str, int]:
    """Key, with its tables, separated by dots -> its line. Quotes are left out: a knob's dots remain."""
    found: dict[str, int] = {}
    table, quote = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        if quote:
            quote = "" if quote in line else quote
            continue
        if header := _TABLE.match(line):
            table = _joined(header[1]) + "."
            found.setdefault(table.rstrip("."), number)
        elif key := _KEY.match(line):
            found.setdefault(table + _joined(key[1]), number)
            value = line[key.end() :]
            quote = next((q for q in ('"""', "'''") if value.count(q) % 2), "")
    return found


def _joined(key: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(key))


def line_of(text: str, key: str, value: str = "") -> int | None:
    """The line of a key, or of the nearest table above it; a knob's is where its ``value`` is written."""
    found = lines(text)
    written = text.splitlines()
    uses = [
        number
        for number, line in enumerate(written, start=1)
        if re.search(rf"[\"']{re.escape(key)}[\"']", line.partition("#")[0])
    ]
    if uses:
        plain = value.strip("'\"")
        # A factor's knob: its levels hold the value.
        near = [n for n in (*uses, *(u + 1 for u in uses), *(u - 1 for u in uses)) if 0 < n <= len(written)]
        holds = [n for n in near if plain and re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", written[n - 1])]
        return (holds or uses)[0]
    if key in found:
        return found[key]
    below = [number for name, number in found.items() if name.startswith(f"{key}.")]
    if below:
        return min(below)
    parts = key.split(".")
    for size in range(len(parts) - 1, 0, -1):
        if (above := ".".join(parts[:size])) in found:
            return found[above]
    return 1


def located(error: PlanError, place: str, text: str | None = None) -> PlanError:
    """The error with ``FILE:LINE`` as its place, if the file has the key that its message begins with."""
    if error.place and re.fullmatch(rf"{re.escape(place)}:\d+", error.place):
        return error
    message = f"{error.place}: {error.message}" if error.place not in (None, place) else error.message
    subject = _SUBJECT.match(message)
    line = None
    text = _text(place) if text is None else text
    if subject and text is not None:
        line = line_of(text, subject["key"], subject["value"] or "")
    hint = error.hint
    if hint and (meant := re.fullmatch(r"did you mean (.+)\?", hint)):
        hint = f'"{meant[1]}"'
    if subject and hint and re.match(r"workload\.\w+$", subject["key"]) and re.match(r"\w+ = ", hint):
        row = _row(text or "", line)
        # A factor's knob is written with its area, and its values are in its levels.
        hint = f'"workload.{hint.partition(" = ")[0]}"' if f'"{subject["key"]}"' in row else hint
    return type(error)(message, place=f"{place}:{line}" if line else place, hint=hint)


def _row(text: str, line: int | None) -> str:
    rows = text.splitlines()
    around = rows[max(0, line - 2) : line + 1] if line else []
    return "\n".join(around)


def _text(place: str) -> str | None:
    """None if it is no file: then nobody knows a line of it."""
    try:
        return toml.read(Path(place))
    except (OSError, ValueError):
        return None


def assigned(content: Mapping[str, object]) -> str:
    """A table as TOML writes it in one line."""
    return "{ " + ", ".join(f"{key} = {value_text(value)}" for key, value in content.items()) + " }"


def value_text(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return assigned(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
