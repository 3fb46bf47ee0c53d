"""Process lists: SHOW [FULL] PROCESSLIST, information_schema.PROCESSLIST, mysqladmin processlist."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.hunt.dumps.piece import Piece, Threads, stamped
from headrace.hunt.dumps.tables import tables

NAME = "SHOW PROCESSLIST"

#: A header, or a row by \\G.
_HEADER = re.compile(
    r"^\W*id\W+user\W+host\W|^ *id: \d+$|\"id\" ?:|=\"id\">|<TH>id</TH>", re.MULTILINE | re.IGNORECASE
)
_NEEDED = {"id", "user", "command", "time", "state"}
#: Rows of one list: a server has no more connections.
MOST_ROWS = 100_000


def read(text: str) -> list[Piece]:
    if not _HEADER.search(text):
        return []
    found: list[Piece] = []
    for at_s, part in stamped(text):
        for table in tables(part, _is_list):
            # What the client itself asks is none of the server's load.
            rows = [row for row in table.rows if not _is_own(row.get("info", ""))][:MOST_ROWS]
            if table.rows:
                found.append(Threads(tuple(rows), at_s))
    return found


def _is_list(columns: Sequence[str]) -> bool:
    # information_schema has other columns between; a list by \G may be cut off after its last row.
    return set(columns) >= _NEEDED


def _is_own(statement: str) -> bool:
    words = statement.lower().split()
    return words[:2] == ["show", "processlist"] or words[:3] == ["show", "full", "processlist"]
