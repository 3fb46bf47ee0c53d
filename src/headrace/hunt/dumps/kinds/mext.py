"""pt-mext: SHOW GLOBAL STATUS several times, a column each; with -r all but the first are differences."""

from __future__ import annotations

import re

from headrace.hunt.dumps.kinds.pairs import is_relative, summed
from headrace.hunt.dumps.piece import Piece, Said, Status

NAME = "pt-mext"

_LINE = re.compile(r"^([A-Z][A-Za-z0-9_.]{2,63})((?: +-?\d+(?:\.\d+)?)+) *$", re.MULTILINE)
#: Fewer lines are a table of something else.
LEAST_LINES = 10


def read(text: str) -> list[Piece]:
    if "# Status Counters" in text:  # of pt-mysql-summary, which rounds them
        return []
    rows: dict[str, list[float]] = {}
    for match in _LINE.finditer(text):
        rows.setdefault(match[1].lower(), [float(cell) for cell in match[2].split()])
    width = max((len(cells) for cells in rows.values()), default=0)
    known = {name: cells for name, cells in rows.items() if len(cells) == width}
    is_status = any(name.startswith(("aborted_", "com_", "bytes_")) for name in known)
    if width < 1 or len(known) < LEAST_LINES or not is_status:
        return []
    statuses = [{name: cells[column] for name, cells in known.items()} for column in range(width)]
    if not is_relative(statuses):
        return [Status(values, source=NAME) for values in statuses]
    said = Said("status counters were printed as differences (-r) and are summed up")
    return [said, *(Status(values, source=NAME) for values in summed(statuses))]
