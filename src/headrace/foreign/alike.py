"""Which levels are the same, however they are written, and which settings of the runs are not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from headrace.errors import PlanError
from headrace.foreign import names
from headrace.foreign.shapes import SETTINGS
from headrace.foreign.units import parts, scale

#: A line of a table: its place for errors, and its cells by column.
Line = tuple[str, dict[str, str]]

_SWITCH = {
    **dict.fromkeys(("on", "true", "yes", "enabled", "enable", "y", "t"), True),
    **dict.fromkeys(("off", "false", "no", "disabled", "disable", "n", "f"), False),
}
#: Of more levels none is looked for that may be a slip: they are numbers of blocks, or names of runs.
MOST_LEVELS = 200
#: Words of so many letters are seldom different by design where they differ in one.
LONG = 5
#: Lengths of runs, which were measured: those that differ by no more than this share are alike.
DURATIONS, ALIKE = frozenset({"duration", "duration_s", "runtime", "runtime_s"}), 0.10


def unified(lines: Sequence[Line], factors: Sequence[str]) -> list[str]:
    """Writes levels that are the same in the same way, in place; a note on each, and on what may be a slip."""
    notes = []
    for name in factors:
        counts = Counter(cells[name].strip() for _, cells in lines)
        spellings: dict[object, list[str]] = {}
        for text, own in _meanings(list(counts)).items():
            spellings.setdefault(own, []).append(text)
        rewritten: dict[str, str] = {}
        for written in spellings.values():
            if len(written) > 1:
                rewritten |= dict.fromkeys(written, written[0])
                notes.append(f"{name}: {' and '.join(written)} are counted as one level, {written[0]}")
        if rewritten:
            for _, cells in lines:
                text = cells[name].strip()
                cells[name] = rewritten.get(text, text)
        notes += _slips(name, Counter(cells[name].strip() for _, cells in lines))
    return notes


def meaning(text: str) -> object:
    """What a level means: a number, a size, a switch, or a word whatever its case and what joins its parts."""
    bare = text.strip()
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", bare):
        bare = bare.replace(",", "")
    if bare.casefold() in _SWITCH:
        return _SWITCH[bare.casefold()]
    found = parts(bare)
    if found is None:
        joined = re.sub(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])", "", bare.casefold())
        return re.sub(r"[-_\s]+", "-", joined)
    value, unit = found
    # Sizes of servers and kernels are binary, with and without the B.
    if size := re.fullmatch(r"([kmgt])(i?b)?", unit, re.IGNORECASE):
        return "bytes", value * 1024 ** ("kmgt".index(size[1].lower()) + 1)
    known = scale(unit)
    return (known[0], value * known[1]) if known else (unit.casefold(), value)


def _meanings(levels: Sequence[str]) -> dict[str, object]:
    """The meaning of each level beside the others: 1 beside ON is a switch, 16384 beside 16k a size."""
    found = {text: meaning(text) for text in levels}
    numbers = {own[1] for own in found.values() if isinstance(own, tuple) and own[0] == ""}
    sizes = {own[1] for own in found.values() if isinstance(own, tuple) and own[0] == "bytes"}
    is_switch = any(isinstance(own, bool) for own in found.values()) and numbers <= {0.0, 1.0}
    for text, own in found.items():
        if isinstance(own, tuple) and own[0] == "":
            if is_switch:
                found[text] = own[1] == 1.0
            elif own[1] in sizes:
                found[text] = ("bytes", own[1])
    return found


def _slips(name: str, counts: Counter[str]) -> list[str]:
    """Rare levels that are one letter away from a frequent one."""
    notes: list[str] = []
    if len(counts) > MOST_LEVELS:
        return notes
    for rare, few in counts.items():
        for usual, many in counts.items():
            if 2 * few <= many and min(len(rare), len(usual)) >= LONG and _is_one_letter_away(rare, usual):
                notes.append(
                    f"{name}: {rare!r} ({few} line{'s' * (few > 1)}) is one letter away from {usual!r} ({many}): "
                    "write them alike if they are one level"
                )
    return notes


def _is_one_letter_away(one: str, other: str) -> bool:
    """By a letter more, less, other, or two exchanged; digits make another level."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    a, b = one[start : len(one) - end], other[start : len(other) - end]
    is_swap = len(a) == len(b) == 2 and a == b[::-1]
    return (is_swap or max(len(a), len(b)) == 1) and not any(c.isdigit() for c in a + b)


def differences(lines: Sequence[Line], allowed: Collection[str]) -> PlanError | None:
    """The first setting of the runs that differs between them and is none of ``allowed``."""
    for name in lines[0][1] if lines else ():
        if name in allowed or names.plain(name) not in SETTINGS:
            continue
        values: dict[object, list[str]] = {}
        for place, cells in lines:
            values.setdefault(meaning(cells[name]), []).append(place.rpartition(":")[2])
        told = [own[1] for own in values if isinstance(own, tuple)]
        are_near = (
            names.plain(name) in DURATIONS
            and len(told) == len(values)
            and min(told) > 0
            and max(told) <= (1 + ALIKE) * min(told)
        )
        # Values that hardly repeat were measured, not set.
        if len(values) < 2 or are_near or 2 * len(values) > len(lines):
            continue
        text = {place.rpartition(":")[2]: cells[name].strip() for place, cells in lines}
        shown = "; ".join(
            f"{text[own[0]] or 'nothing'} in line{'s' * (len(own) > 1)} {', '.join(own[:3])}"
            + (f" and {len(own) - 3} more" if len(own) > 3 else "")
            for own in list(values.values())[:3]
        )
        return PlanError(
            f"the runs differ in {name}: {shown}",
            hint=f"--factor {name} makes it a factor, --condition {name} keeps them apart, --mixed {name} "
            "compares them all the same",
        )
    return None
