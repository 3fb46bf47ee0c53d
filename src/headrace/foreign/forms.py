"""Which form a table's text has: JSON, a drawing, or lines of cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.foreign.drawn import of_drawing
from headrace.foreign.grid import Grid, of_lines
from headrace.foreign.nested import of_json


def grid_of(text: str, needed: Sequence[str]) -> Grid:
    """The table of a file. ``needed`` names columns by which its header is known. Raises csv.Error."""
    stripped = text.lstrip()
    if stripped.startswith(("{", "[")) and (found := of_json(stripped, needed)):
        return found
    lines = text.splitlines()
    if lines and (told := re.fullmatch(r"sep=(.)", lines[0].strip())):
        return of_lines(lines, needed, told[1], skipped=1)
    return of_drawing(text, needed) or of_lines(lines, needed, "", skipped=0)
