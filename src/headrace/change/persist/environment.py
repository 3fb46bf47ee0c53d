"""Variables that systemd gives a unit, and the words of its commands, as systemd reads them.

systemd.exec(5) about EnvironmentFile=, systemd.service(5) about command lines, env-file.c where these are silent;
``tests/real/devices/test_boot.py`` compares with a program of systemd.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

#: Up to a name and its ``=``; a line without one is skipped, and so is a comment.
_LINE = re.compile(r"[ \t\n\r]*(?:[#;][^\n\r]*|(?P<name>[^=\n\r]*)=|[^=\n\r]+)")
#: What a value may begin with, or go on with behind a closing quote.
_SINGLE = re.compile(r"'([^']*)(?:'|\Z)")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
#: Quotes inside of it are letters.
_BARE = re.compile(r"(?:\\(?:.|\Z)|[^\\\n\r])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_IN_QUOTES = '"\\`$'
#: In a unit's own lines: cunescape() of systemd. Only printable ones are looked for.
_OF_UNIT = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|([nrts]))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "s": " "}
#: A blank that was escaped, until the words are apart.
_KEPT = "\0"


def of_file(content: bytes) -> Iterator[tuple[int, str, str]]:
    """Line, name and value of each assignment: an escaped end of a line joins two, and quotes hold several."""
    text = content.decode("utf-8", "surrogateescape")
    at = 0
    while match := _LINE.match(text, at):
        at = match.end()
        if match["name"] is None:
            continue
        line = text.count("\n", 0, match.start("name")) + 1
        value, at = _value(text, at)
        yield line, match["name"].strip(), value


def _value(text: str, at: int) -> tuple[str, int]:
    """A value, and where it ends."""
    value = ""
    while True:
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        if match := _SINGLE.match(text, at):
            value += match[1]
        elif match := _DOUBLE.match(text, at):
            value += _ESCAPED.sub(_in_quotes, match[1])
        elif match := _BARE.match(text, at):
            return value + _bare(match[0]), match.end()
        else:
            return value, at
        at = match.end()


def _in_quotes(match: re.Match[str]) -> str:
    if match[1] == "\n":
        return ""
    return match[1] if match[1] in _IN_QUOTES else match[0]


def _bare(text: str) -> str:
    return _ESCAPED.sub(lambda match: "" if match[1] in "\n\r" else match[1], text).rstrip(" \t")


def split(text: str) -> list[str]:
    """The words of a unit's line, without their quotes."""
    whole = _OF_UNIT.sub(_letter, text)
    return [word.replace(_KEPT, " ") for word in _split(whole)]


def _letter(match: re.Match[str]) -> str:
    code = int(match[1], 16) if match[1] else int(match[2], 8) if match[2] else ord(_LETTERS[match[3]])
    return _KEPT if chr(code).isspace() else chr(code)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def words_of(text: str) -> list[str]:
    """The words of a command or of a variable, also those inside of a quoted one, as behind ``sh -c``."""
    apart: list[str] = []
    for word in split(text):
        apart += words_of(word) if word != text and re.search(r"\s", word) else [word]
    return apart
