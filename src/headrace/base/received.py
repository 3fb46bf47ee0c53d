"""What others send, parsed within bounds: answers and lines of an agent, parts of a saved file.

A megabyte of ``[],`` becomes 60 megabytes of lists. So a bound is on what a text becomes, and is checked before
anything is made of it. What is not as it must be is one error, ``BadContent``, whatever the parser says of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace.base.errors import CommandFailed

#: Deeper than anything that is written for headrace, and shallow enough for whoever walks through it.
MOST_DEPTH = 100
#: Whole numbers of at most 64 bits; every other number is finite.
MOST_NUMBER = 2**64
#: Texts above this are parsed by a second thread, so that others are served meanwhile.
ASIDE_BYTES = 256 << 10
#: The second parser is quicker, but its import takes longer than a small answer.
_FEW_BYTES = 64 << 10
#: A text whose escapes are gone. The end closes one, too: else each quote of an open one would be tried.
_STRING = re.compile(r'"[^"]*(?:"|\Z)')
_BRACKET = re.compile(r"[\[\]{}]")
#: What may be a number that cannot be: many digits, or a large exponent.
_LARGE = re.compile(r"\d{19}|[eE]\+?0*[1-9]\d{2}")


class BadContent(ValueError):
    """What was sent is larger, deeper or otherwise than it may be."""


@dataclass(frozen=True)
class Bound:
    """The most that one document may be: bytes of text, and values and keys that it becomes."""

    size_bytes: int
    values: int


#: Verb of the agent -> the most that one answer, or one line, of it may be; honest ones are a tenth of it at most.
OF_VERBS = {
    "facts": Bound(4 << 20, 400_000),
    "sample": Bound(8 << 20, 400_000),
    "statements": Bound(8 << 20, 400_000),
    "digest": Bound(16 << 20, 400_000),
    "file": Bound(56 << 20, 50_000),
}
ANY = Bound(64 << 20, 2_000_000)
#: A part of a saved hunt.
OF_SNAPSHOT = Bound(16 << 20, 1_000_000)


def parsed(content: str | bytes, bound: Bound = ANY) -> Any:
    """A JSON document. Raises BadContent."""
    if len(content) > bound.size_bytes:
        raise BadContent(f"too large: more than {bound.size_bytes >> 20} MiB")
    try:
        text = content.decode() if isinstance(content, bytes) else content
        _check(text, bound)
        found = _read(text)
        if _LARGE.search(text):
            _check_numbers(found)
    except BadContent:
        raise
    except (ValueError, RecursionError, OverflowError, TypeError) as error:
        raise BadContent(f"not JSON: {error}"[:200]) from None
    return found


def an_object(content: str | bytes, bound: Bound = ANY) -> dict[str, Any]:
    """A JSON document that is an object. Raises BadContent."""
    found = parsed(content, bound)
    if not isinstance(found, dict):
        raise BadContent("not an object")
    return found


def lines(text: str) -> list[str]:
    """Those of JSON lines that hold something. A text in them may have what ``splitlines`` takes for an end."""
    return [line for line in text.split("\n") if line.strip()]


@contextlib.contextmanager
def read_as_sent(what: str, place: str = "") -> Iterator[None]:
    """For what makes something of a whole answer whose parts may have any type: one error for all that goes wrong,
    since a host that was taken over may answer anything. Raises CommandFailed.
    """
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"[:200]
        raise CommandFailed(f"{what} cannot be read: {said}", place=place) from error


def number(value: Any, *, least: float = -math.inf, most: float = MOST_NUMBER) -> float:
    """A finite number within a range. Raises BadContent: a nearest value would be invented."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadContent(f"not a number from {least:g} to {most:g}: {value!r:.40}")
    return float(value)


def _check(text: str, bound: Bound) -> None:
    """Each value follows a bracket, a comma or a colon, so their number is at most that of these."""
    openings = text.count("[") + text.count("{")
    marks = openings + text.count(",") + text.count(":")
    if marks <= bound.values and openings <= MOST_DEPTH:
        return
    # Escapes first: an expression that knows them takes hundreds of bytes for each.
    bare = _STRING.sub("", text.replace("\\\\", "").replace('\\"', ""))
    openings = bare.count("[") + bare.count("{")
    marks = openings + bare.count(",") + bare.count(":")
    if marks > bound.values:
        raise BadContent(f"too large: more than {bound.values:,} values")
    if openings > MOST_DEPTH:
        depth = 0
        for bracket in _BRACKET.finditer(bare):
            depth += 1 if bracket[0] in "[{" else -1
            if depth > MOST_DEPTH:
                raise BadContent(f"deeper than {MOST_DEPTH} levels")


def _read(text: str) -> Any:
    if len(text) > _FEW_BYTES:
        from pydantic_core import from_json

        try:
            return from_json(text, allow_inf_nan=False)
        except ValueError:
            pass  # it knows no half of a surrogate pair, which a statement may have
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise BadContent(f"{name} is not a number")


def _check_numbers(content: Any) -> None:
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise BadContent("a number is not finite")
        elif isinstance(value, int) and abs(value) > MOST_NUMBER:
            raise BadContent("a number has more than 64 bits")
