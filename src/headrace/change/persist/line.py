"""One variable as an option file says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """``text`` is the line, ``wanted`` what the binary must then print."""

    name: str
    variable: str
    option: str
    text: str
    wanted: str
