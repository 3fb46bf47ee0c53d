"""Numbers of things, with their names."""

from __future__ import annotations


def counted(number: int, one: str, more: str = "") -> str:
    """``1 call``, ``2 calls``, ``2 classes``; ``more`` is the plural if it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
