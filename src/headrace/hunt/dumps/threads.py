"""Process lists as the agent's sampler counts them, and as looks at the classes of their statements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base import received
from headrace.base.received import BadContent, an_object
from headrace.host.agent import Agent
from headrace.hunt.dumps.piece import Threads, number_of

#: As in crates/host/src/server/processlist.rs.
_IDLE = frozenset({"Sleep", "Daemon", "Binlog Dump", "Binlog Dump GTID", "Slave_IO"})
_NOT_SERVING = _IDLE | {"Slave_SQL", "Slave_worker", "Connect"}
_REPLICATING = ("Waiting for an event from Coordinator", "Replica has read all", "Slave has read all")
#: Users of threads that no client has.
_OF_SERVER = ("system user", "event_scheduler")
#: Statements of all lists together whose class is asked for.
MOST_STATEMENTS = 50_000


def numbers_of(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"serving": {"": 0.0}, "threads": {}, "states": {}, "longest_s": {}}
    for row in rows:
        command, state = row.get("command", ""), _text(row.get("state"))
        found["threads"][command] = found["threads"].get(command, 0.0) + 1
        user = _text(row.get("user"))
        is_of_server = user in _OF_SERVER or command in _NOT_SERVING or state.startswith(_REPLICATING)
        if not is_of_server:
            found["serving"][""] += 1
        if command not in _IDLE:
            found["states"][state] = found["states"].get(state, 0.0) + 1
            longest = max(number_of(row.get("time", "")) or 0.0, 0.0)
            found["longest_s"][command] = max(found["longest_s"].get(command, 0.0), longest)
    return found


def _text(cell: str | None) -> str:
    return "" if cell in (None, "NULL") else str(cell)


async def lines_of(lists: Sequence[Threads], agent: Agent) -> list[dict[str, Any]]:
    """Each list as one line of ``headrace-agent statements``: classes without values."""
    statements = [_text(row.get("info")) for each in lists for row in each.rows]
    wanted = [text for text in dict.fromkeys(statements) if text][:MOST_STATEMENTS]
    classes = await _classes(wanted, agent)
    found = []
    for each in lists:
        rows = [_row(row, classes) for row in each.rows if _text(row.get("info")) in classes]
        found.append({"statements": rows})
    return found


def _row(row: Mapping[str, str], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    known = classes[_text(row.get("info"))]
    return {
        "id": row.get("id"),
        "user": _text(row.get("user")),
        "host": _text(row.get("host")),
        "command": _text(row.get("command")),
        "db": _text(row.get("db")) or None,
        "time_s": number_of(row.get("time", "")) or 0.0,
        "state": _text(row.get("state")),
        "class": known.get("fingerprint"),
        "tables": known.get("tables") or [],
        "examined_rows": number_of(row.get("rows_examined", "")),
    }


async def _classes(statements: Sequence[str], agent: Agent) -> dict[str, Mapping[str, Any]]:
    if not statements:
        return {}
    # A NUL would end a statement early.
    content = b"".join(text.replace("\0", " ").encode() + b"\0" for text in statements)
    answer = received.lines(await agent.text("fingerprint", "--null", stdin=content))
    if len(answer) != len(statements):
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for text, line in zip(statements, answer, strict=True):
        try:
            found[text] = an_object(line)
        except (BadContent, json.JSONDecodeError):
            continue
    return found
