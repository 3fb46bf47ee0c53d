"""free: the memory of one moment, where its unit is known."""

from __future__ import annotations

import re

from headrace.hunt.dumps.piece import Numbered, Piece, Unread, stamped

NAME = "free"

_TITLE = re.compile(
    r"^ +total +used +free +shared +(?:buff/cache|buffers +cache) +available *$", re.MULTILINE
)
_ROW = re.compile(r"^(Mem|Swap): +(\S[^\n]*)$", re.MULTILINE)
#: In another language: six words, above rows of as many numbers and of three.
_OTHER = re.compile(
    r"^ +(?:[^\W\d_]\S* +){5}[^\W\d_]\S* *\n[^\W\d_]\S*:(?: +\d+(?:[.,]\d+)?[KMGTPi]*B?){6} *\n"
    r"[^\W\d_]\S*:(?: +\d+(?:[.,]\d+)?[KMGTPi]*B?){3} *$",
    re.MULTILINE,
)
_AMOUNT = re.compile(r"(\d+(?:[.,]\d+)?)(B|[KMGTP]i?B?)?")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
#: Amounts without a unit that can only be KiB, free's own: as MiB or bytes no host has them.
LEAST_KIB, MOST_KIB = 16 << 20, 1 << 32


def read(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    for at_s, part in stamped(text):
        if (title := _TITLE.search(part)) is None:
            if _OTHER.search(part):
                pieces.append(
                    Unread("the output of free in another language: LC_ALL=C free, or /proc/meminfo, is read")
                )
            continue
        names = title[0].split()
        rows = {match[1]: match[2].split() for match in _ROW.finditer(part, title.end())}
        memory = _amounts(rows.get("Mem", []))
        if memory is None or len(memory) != len(names):
            pieces.append(Unread("the output of free in an unknown unit: free -h or /proc/meminfo is read"))
            continue
        of = dict(zip(names, memory, strict=True))
        values = {"MemTotal": of["total"], "MemFree": of["free"], "MemAvailable": of["available"]}
        values |= {"Cached": of.get("buff/cache", of.get("cache", 0.0)), "Buffers": of.get("buffers", 0.0)}
        swap = _amounts(rows.get("Swap", []), is_kib=not any(word[-1:].isalpha() for word in rows["Mem"]))
        if swap is not None and len(swap) >= 3:
            values |= {"SwapTotal": swap[0], "SwapFree": swap[2]}
        pieces.append(Numbered("memory", {name: {"": value} for name, value in values.items()}, at_s, NAME))
    return pieces


def _amounts(words: list[str], is_kib: bool = False) -> list[float] | None:
    """In bytes; None for what is no amount, or has no unit and may be of several."""
    matches = [_AMOUNT.fullmatch(word) for word in words]
    if not matches or None in matches:
        return None
    known = [match for match in matches if match is not None]
    amounts = [float(match[1].replace(",", ".")) for match in known]
    if any(match[2] for match in known):
        units = [_UNITS[(match[2] or "B")[0]] for match in known]
        return [amount * unit for amount, unit in zip(amounts, units, strict=True)]
    if is_kib or LEAST_KIB <= amounts[0] <= MOST_KIB:
        return [1024 * amount for amount in amounts]
    return None
