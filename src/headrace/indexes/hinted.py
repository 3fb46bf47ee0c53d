"""Indexes that a hint names: in statements, and in the views, routines, triggers and events of a server.

Without the index, and while it is hidden from the optimiser, these fail.
"""

from __future__ import annotations

import re

from headrace.indexes.copies import text
from headrace.indexes.session import Session

#: `FORCE INDEX FOR ORDER BY (a, b)`, and the hints of the optimiser: each word of them may name an index.
_HINTS = re.compile(
    r"\b(?:force|use|ignore)\s+(?:index|key)\s*(?:for\s+(?:join|order\s+by|group\s+by)\s*)?\(([^)]*)\)"
    r"|/\*\+(.*?)\*/",
    re.IGNORECASE | re.DOTALL,
)
_NAMES = re.compile(r"`([^`]+)`|([\w$]+)")
#: What a server keeps that runs statements: its word for it, the columns of its name, and that of its text.
_STORED = (
    ("view", "views", "table_schema", "table_name", "view_definition"),
    ("routine", "routines", "routine_schema", "routine_name", "routine_definition"),
    ("trigger", "triggers", "trigger_schema", "trigger_name", "action_statement"),
    ("event", "events", "event_schema", "event_name", "event_definition"),
)


def names(statement: str) -> set[str]:
    """In lower case."""
    return {
        (quoted or plain).lower()
        for hint in _HINTS.finditer(statement)
        for quoted, plain in _NAMES.findall(hint[1] or hint[2] or "")
    }


def stored(session: Session, table_name: str, index: str) -> tuple[list[str], list[str]]:
    """What names the table and, in a hint, the index; and what does not show its text to this account.

    Raises StatementFailed.
    """
    found: list[str] = []
    unseen: list[str] = []
    pattern = text("%" + index.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") + "%")
    for what, table, database, name, body in _STORED:
        rows = session.rows(
            f"SELECT {database}, {name}, {body} FROM information_schema.{table}"
            f" WHERE {database} NOT IN ('sys', 'mysql', 'information_schema', 'performance_schema')"
            f" AND ({body} LIKE {pattern} OR {body} IS NULL OR {body} = '')"
        )
        for owner, own, words in rows:
            if not words:
                unseen.append(f"{what} {owner}.{own}")
            elif index.lower() in names(str(words)) and table_name.lower() in str(words).lower():
                found.append(f"{what} {owner}.{own}")
    return found, unseen
