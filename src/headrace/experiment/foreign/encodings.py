"""The encoding of a file that is not UTF-8: the one in which its words look like words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection

#: Lead bytes of each encoding's frequent characters: the standards of East Asia sorted them by use.
_FREQUENT = {
    "gb18030": (0xB0, 0xD7),
    "shift_jis": (0x81, 0x97),
    "euc_jp": (0xA1, 0xCF),
    "euc_kr": (0xA1, 0xC8),
    "big5": (0xA1, 0xC6),
}
_NAMES = {
    "cp1252": "Windows-1252",
    "cp1251": "Windows-1251",
    "koi8-r": "KOI8-R",
    "gb18030": "GB18030",
    "shift_jis": "Shift-JIS",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
    "big5": "Big5",
    "cp1253": "Windows-1253",
    "cp1250": "Windows-1250",
    "mac_roman": "Mac Roman",
    "cp850": "code page 850",
}
#: Bytes that are looked at.
MOST_BYTES = 64 << 10


def text_of(content: bytes, needed: Collection[str]) -> tuple[str, str]:
    """The text, and a note. ``needed`` names that occur decide, then how many characters fit together."""
    tried = []
    sample = content[:MOST_BYTES].rpartition(b"\n")[0] or content[:MOST_BYTES]
    for place, encoding in enumerate(_NAMES):
        try:
            text = sample.decode(encoding)
        except UnicodeDecodeError:
            continue
        there = sum(name in text for name in needed if not name.isascii())
        tried.append((-there, -round(_share(text, encoding), 2), place, encoding))
    tried.sort()
    encoding = tried[0][3] if tried else "cp1252"
    alike = [_NAMES[each[3]] for each in tried[1:] if each[:2] == tried[0][:2]][:3]
    other = f" (it may be {' or '.join(alike)})" if alike else ""
    return (
        content.decode(encoding, errors="replace"),
        f"not UTF-8: read as {_NAMES[encoding]}{other}; iconv -f ENCODING -t UTF-8 FILE says which it is",
    )


def _share(text: str, encoding: str) -> float:
    """The share of the characters beyond ASCII that a person would have written so."""
    fits = _fits_of_asia(encoding) if encoding in _FREQUENT else _fits_alphabet
    places = [n for n, letter in enumerate(text) if ord(letter) > 0x7F]
    return sum(fits(text, n) for n in places) / len(places) if places else 0.0


def _fits_of_asia(encoding: str) -> Callable[[str, int], bool]:
    low, high = _FREQUENT[encoding]

    def fits(text: str, at: int) -> bool:
        told = text[at].encode(encoding)
        # One byte is a kana of half width: those are rare, and any byte may be one.
        return len(told) == 2 and low <= told[0] <= high and unicodedata.category(text[at])[0] in "LPNZS"

    return fits


def _fits_alphabet(text: str, at: int) -> bool:
    """Letters beside letters of their alphabet, small ones after the first; few of Latin in a row."""
    letter = text[at]
    if letter in "°±µ×÷²³€£§«»–—“”„’…·\u00a0":
        return True
    if not letter.isalpha():
        return False
    before, after = text[at - 1] if at else " ", text[at + 1] if at + 1 < len(text) else " "
    if letter.isupper() and before.islower():
        return False
    near = [each for each in (before, after) if each.isalpha()]
    script = unicodedata.name(letter, "").split(" ")[0]
    if script == "LATIN":
        return letter != "ÿ" and sum(ord(each) > 0x7F for each in near) < max(len(near), 1)
    return all(unicodedata.name(each, "").startswith(script) for each in near) and (
        not letter.isupper() or not before.isupper() or after.isupper() or not after.isalpha()
    )
