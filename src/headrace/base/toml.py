"""The one reader of TOML: plans, fleets, settings. Python's parser, behind limits that no file for people reaches.

The parser compares each part of a dotted key with all parts before it, more than once: 30,000 parts, a file of
60 kB, keep it busy for minutes.
"""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path
from typing import Any

from headrace.base.whole import plain_file

#: 10,000 hosts with a line each are fewer; the worst text within both limits takes seconds.
MOST_CHARACTERS = 1 << 20
#: The longest key of ours has six parts.
MOST_PARTS = 20

# Nothing is given back that was matched, and a string that never ends is matched, too: the time is linear.
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\[^\n])*+"?|'[^'\n]*+'?)"""
_NEXT = rf"(?:[ \t]*+\.[ \t]*+{_PART})"
_TOKEN = re.compile(
    r"\#[^\n]*+"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}'
    r"|'''(?:[^']|'(?!''))*+'{0,5}"
    rf"|(?P<deep>{_PART}{_NEXT}{{{MOST_PARTS}}})"
    rf"|{_PART}{_NEXT}*+",
    re.DOTALL,
)
# In hexadecimal 64 bits are 16 digits, in binary 64; underscores may stand between them.
_LONG = re.compile(r"[0-9A-Fa-f_]{16}")


class LimitError(ValueError):
    """Too large to be written by people. The message holds nothing of the content."""


def read(path: Path) -> str:
    """A file's text. Raises OSError, or ValueError: LimitError, or not UTF-8."""
    with plain_file(path, may_be_pipe=True) as file:
        # Editors of Windows begin a file with a byte order mark.
        text = io.TextIOWrapper(file, encoding="utf-8-sig").read(MOST_CHARACTERS + 1)
    _check_size(text)
    return text


def parse(text: str) -> dict[str, Any]:
    """The content of a text. Raises ValueError, whatever it holds; LimitError for what is too large."""
    _check_size(text)
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "deep":
            line = text.count("\n", 0, token.start()) + 1
            raise LimitError(f"line {line}: a key with more than {MOST_PARTS} parts")
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise LimitError("too deeply nested") from error
    if _LONG.search(text):
        _check_numbers(found)
    return found


def _check_numbers(content: dict[str, Any]) -> None:
    """TOML's own limit, which Python's parser does not keep: what is beyond it fits no float either."""
    left: list[Any] = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise LimitError("a whole number of more than 64 bits")


def _check_size(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise LimitError(f"longer than {MOST_CHARACTERS:,} characters")
