"""Patterns of names as the C library matches them: fnmatch(3), and glob(3) for files.

Python's own differ: ``[^a]`` negates here, ``[[:digit:]]`` is a class, a backslash takes a letter for itself, and
of files no sign stands for a slash.
"""

from __future__ import annotations

import functools
import re

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "punct": r"!-/:-@\[-`{-~",
    "space": r"\s", "upper": "A-Z", "xdigit": "0-9a-fA-F",
}  # fmt: skip
#: More words than any file would have.
_MOST = 1000


def is_pattern(text: str) -> bool:
    """systemd takes nothing else for one: not ``{a,b}`` alone."""
    return any(letter in text for letter in "*?[")


def fits(name: str, pattern: str) -> bool:
    """fnmatch(3) without flags."""
    return _regex(pattern, ".").fullmatch(name) is not None


def is_globbed(path: str, pattern: str) -> bool:
    """glob(3) with ``{a,b}``, of a path that is there."""
    return any(_regex(each, "[^/]").fullmatch(path) for each in expanded(pattern))


def expanded(pattern: str) -> list[str]:
    """``/sys/{a,b}/x`` as two patterns; ``{a}`` is one, and ``{}`` is nothing. Too many words stand for any."""
    waiting, done = [pattern], []
    while waiting:
        each = waiting.pop()
        braces = re.search(r"(?<!\\)\{([^{}]*)\}", each)
        if braces is None:
            done.append(each)
            continue
        words = braces[1].split(",")
        if len(waiting) + len(done) + len(words) > _MOST:
            words = ["*"]
        waiting += [each[: braces.start()] + word + each[braces.end() :] for word in words]
    return done


@functools.cache
def _regex(pattern: str, one: str) -> re.Pattern[str]:
    parts, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            parts += f"{one}*"
        elif letter == "?":
            parts += one
        elif letter == "[" and (bracket := _bracket(pattern, at)) is not None:
            group, at = bracket
            parts += f"(?={one}){group}"
        elif letter == "\\" and at < len(pattern):
            parts += re.escape(pattern[at])
            at += 1
        else:
            parts += re.escape(letter)
    return re.compile(parts, re.DOTALL)


def _bracket(pattern: str, at: int) -> tuple[str, int] | None:
    """A set of letters as a regular expression, and where it ends; None if it does not end."""
    negates = pattern[at : at + 1] in ("!", "^")
    at += negates
    members, first = "", True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        if match := re.compile(r"\[:(\w+):\]").match(pattern, at):
            members += _CLASSES.get(match[1], "")
            at = match.end()
            continue
        low, at = _letter(pattern, at)
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _letter(pattern, at + 1)
            # From a later letter to an earlier one is none.
            members += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            members += re.escape(low)
    if at >= len(pattern):
        return None
    if not members:
        return ("." if negates else "(?!)"), at + 1
    return f"[{'^' if negates else ''}{members}]", at + 1


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """One letter of a set, escaped or not, and where the next begins."""
    at += pattern[at] == "\\" and at + 1 < len(pattern)
    return pattern[at], at + 1
