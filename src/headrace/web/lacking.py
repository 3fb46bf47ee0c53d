"""The indexes that a query class lacks, by its text and its tables, with the commands to prove and apply them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base import extras


def said(tables: Sequence[Mapping[str, Any]], text: str, database: str, login: Sequence[str]) -> str:
    """Lines for the page; ``text`` is an example, or the class without its values."""
    if extras.is_missing("sqlglot"):
        return "Which index it lacks is not known here: pip install 'headrace[indexes]'"
    from headrace.indexes.candidates import candidates
    from headrace.indexes.parsing import of_digest
    from headrace.indexes.schema import read
    from headrace.indexes.statement import Statement

    advice = candidates([Statement(text[:80], of_digest(text), database)], read(tables))
    lines = []
    for each in advice.candidates:
        lines += [
            f"Candidate: an index on {each.place}, to {each.use}",
            *(f"  caution: {caution}" for caution in each.cautions),
            "  a hypothesis until it was tried; on a copy, with the slow log as the load:",
            "    headrace indexes SLOW_LOG --prove --on-copy --mysql-host COPY",
            "  on this server, by its own load, kept only if it is faster:",
            f"    headrace apply {shlex.quote(f'index:{each.place}')} --judge {shlex.join(login)}",
        ]
    lines += [
        f"No index on {each.table}.{each.column} serves {each.predicate}: {each.why}"
        for _, each in advice.hindrances
    ]
    lines += [f"Not read: {why}" for _, why in advice.unread]
    lines += [f"Unknown: {what}" for _, what in advice.unknown]
    if not lines:
        why = next((reason for _, reason in advice.content), "no predicate of it asks for one")
        lines = [f"No index is missing: {why}"]
    return "\n".join(lines)
