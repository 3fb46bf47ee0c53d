"""Names of many hosts on one line: ``db[1-40,42]``, written out and folded back. Padded numbers stay padded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.base.errors import PlanError
from headrace.host.target import EXEC

#: No fleet has more: a slip such as db[1-99999999] must not fill the memory.
MOST_HOSTS = 100_000

_COMMAND = re.compile(rf"([^\s,=\[]+=)?{EXEC}")
#: A part of a folded name: text, or the numbers that may stand in this place, as they are written.
_Part = str | frozenset[str]


def expand(text: str) -> list[str]:
    """``db[1-3,7],web[01-02].eu`` -> each name, in order. Raises PlanError.

    A bracket with a colon is an IPv6 address, not a range. ``exec:COMMAND`` is one host, also after ``NAME=``.
    """
    if _COMMAND.match(text.strip()):
        return [text.strip()]
    found: list[str] = []
    for word in _words(text):
        parts: list[Sequence[str]] = []
        size = 1
        for piece in re.split(r"(\[[^][]*\])", word):
            is_range = piece.startswith("[") and piece.endswith("]") and ":" not in piece
            # One more than there may be: a bracket of many ranges must not be written out.
            some = itertools.islice(_numbers(piece[1:-1], word), MOST_HOSTS + 1)
            values = [piece] if not is_range else list(some)
            size *= len(values)
            if len(found) + size > MOST_HOSTS:
                raise PlanError(f"more than {MOST_HOSTS:,} hosts", place=word[:200])
            parts.append(values)
        found += map("".join, itertools.product(*parts))
    return found


def _words(text: str) -> Iterator[str]:
    """Split at commas and blanks outside of brackets."""
    word, depth = "", 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth < 0 or depth > 1:
            raise PlanError("its brackets do not match", place=text[:200])
        if depth == 0 and (character == "," or character.isspace()):
            if word:
                yield word
            word = ""
        else:
            word += character
    if depth:
        raise PlanError("its brackets do not match", place=text[:200])
    if word:
        yield word


def _numbers(text: str, place: str) -> Iterator[str]:
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?\s*", part)
        if match is None:
            raise PlanError(
                f"[{text}] is not a range of hosts", place=place[:200], hint="for example db[1-40,42]"
            )
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise PlanError(f"the range {part.strip()} is empty", place=place[:200])
        if (last - first) // step >= MOST_HOSTS:
            raise PlanError(f"more than {MOST_HOSTS:,} hosts", place=place[:200])
        width = len(match[1]) if match[1].startswith("0") else 1
        for number in range(first, last + 1, step):
            yield f"{number:0{width}}"


def fold(names: Iterable[str]) -> str:
    """The shortest line that ``expand`` makes the same names of: ``db[1-12,14],web1``."""
    rows = {tuple(re.split(r"([0-9]+)", name)) for name in names}
    # Texts are at even places, numbers at odd ones. From the last number on, because the last one counts hosts.
    folded: set[tuple[_Part, ...]] = set(rows)
    for place in range(max((len(row) for row in rows), default=0) - 1, 0, -1):
        if place % 2:
            folded = _folded_at(folded, place)
    return ",".join("".join(map(_part, row)) for row in sorted(folded, key=_order))


def _folded_at(rows: set[tuple[_Part, ...]], place: int) -> set[tuple[_Part, ...]]:
    groups: dict[tuple[object, ...], set[str]] = {}
    kept: set[tuple[_Part, ...]] = set()
    for row in rows:
        number = row[place] if place < len(row) else None
        if isinstance(number, str):
            groups.setdefault((row[:place], row[place + 1 :]), set()).add(number)
        else:
            kept.add(row)
    for (before, after), numbers in groups.items():
        middle: _Part = frozenset(numbers) if len(numbers) > 1 else next(iter(numbers))
        kept.add((*before, middle, *after))  # type: ignore[misc]
    return kept


def _part(part: _Part) -> str:
    if isinstance(part, str):
        return part
    # Numbers of one width are a range if one of them is padded: 08, 09, 10. Others have no zeros in front.
    widths = {len(number) for number in part if number.startswith("0") and len(number) > 1}
    series: dict[int, list[int]] = {}
    for number in part:
        series.setdefault(len(number) if len(number) in widths else 0, []).append(int(number))
    return f"[{','.join(text for width, found in sorted(series.items()) for text in _runs(found, width))}]"


def _runs(numbers: list[int], width: int) -> Iterator[str]:
    numbers.sort()
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        # A first number without a zero in front has the full width, and so have all after it.
        first, last = f"{found[0]:0{width}}", f"{found[-1]:0{width}}"
        yield first if len(found) == 1 else f"{first}-{last}"


def _order(row: tuple[_Part, ...]) -> list[tuple[str, int]]:
    """Numbers by value: db2 before db10."""
    order: list[tuple[str, int]] = []
    for place, part in enumerate(row):
        number = part if isinstance(part, str) else min(part, key=int)
        order.append((number, 0) if place % 2 == 0 else ("", int(number)))
    return order
