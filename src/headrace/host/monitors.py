"""Statements that only look at the server: of headrace's own sessions, and of other monitors."""

from __future__ import annotations

import re

SERVER_SCHEMAS = frozenset({"performance_schema", "information_schema", "sys", "mysql"})
_EXPLAIN = re.compile(r"\s*explain\b", re.IGNORECASE)
_SERVER_TEXT = re.compile(
    r"\s*(show\s+(global\s+|session\s+|full\s+|engine\s|all\s+|master\s|slave\s|replica|binary\s|binlog\s|"
    r"status|variables|processlist|plugins|engines|databases|grants)|set\s+(session|global|names|@@)|"
    r"select\s+((concat\s*\(\s*)?@@|version\s*\(|connection_id|current_user|user\s*\(|unix_timestamp\s*\(\s*\)\s*;?\s*$))",
    re.IGNORECASE,
)


def looks_at_server(text: str, tables: str) -> bool:
    """Whether a class reads only what the server knows of itself: headrace's own sessions, and other monitors.

    A plan, too: ``--plans`` asks for many.
    """
    if _EXPLAIN.match(text):
        return True
    schemas = {name.strip().strip("`").partition(".")[0].strip("`").lower() for name in tables.split(",")} - {
        ""
    }
    if schemas:
        return schemas <= SERVER_SCHEMAS
    # performance_schema puts names into quotes, and spaces around what is none.
    return bool(_SERVER_TEXT.match(text.replace("`", "")))
