"""What every reader of foreign results returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One run: its levels (including ones that are not factors of the analysis), numbers, and place for errors."""

    place: str
    levels: Mapping[str, str]
    responses: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """The rows of a file, and what its reader had to guess or leave out, as sentences."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
