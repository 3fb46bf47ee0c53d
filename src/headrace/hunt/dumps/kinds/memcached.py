"""``stats`` of memcached servers, as ``headrace collect`` writes them: at the start, and at the end.

Each reading has a line with the server's process and address before it: statistics do not say where it listens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.host.memcached import seen
from headrace.hunt.dumps.piece import About, Numbered, Piece, stamped

NAME = "stats of memcached"

_SERVER = re.compile(r"memcached ([1-9]\d{0,9}) (\S*)\n")
_NOT_ASKED = re.compile(r"not asked: ([^\n]{1,200})")
#: The commands, in the order of their answers.
_ASKED = ("stats", "settings", "items", "slabs")
_SILENT = "no answer within 3 s, or it hung up (TLS, SASL or the binary protocol alone)"


def read(text: str) -> list[Piece]:
    first: dict[int, Mapping[str, Any]] = {}
    last: dict[int, Mapping[str, Any]] = {}
    for at_s, part in stamped(text):
        if at_s is None or (server := _SERVER.match(part)) is None:
            continue
        pid = int(server[1])
        answer = {"pid": pid, "address": server[2] or None, **_answer(part[server.end() :], pid, at_s)}
        if pid in first:
            last[pid] = answer
        else:
            first[pid] = answer
    if not first:
        return []
    both = seen({pid: each for pid, each in first.items() if pid in last}, {**first, **last})
    pieces: list[Piece] = [
        Numbered(str(record["sampler"]), record["values"], record["t_ns"] / 1e9, source=NAME)
        for record in both.records
    ]
    return [*pieces, About({("memcached",): {**both.facts, "not_covered": []}})]


def _answer(text: str, pid: int, at_s: float) -> dict[str, Any]:
    """``replies``, or ``error`` with why there are none."""
    if why := _NOT_ASKED.match(text):
        return {"error": why[1]}
    tables = _tables(text.splitlines())
    stats = tables.get("stats")
    if stats is None:
        said = text.strip().partition("\n")[0][:120]
        return {"error": f"it answers {said!r}" if said else _SILENT}
    if stats.get("pid") != str(pid):
        # In a container it has another number there; which one, the dump does not say.
        return {"error": f"process {stats.get('pid') or 'unknown'} answers at its address, another one"}
    empty: dict[str, str] = {}
    return {"replies": {"t_ns": round(at_s * 1e9), **{name: tables.get(name, empty) for name in _ASKED}}}


def _tables(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """The answer of each command; of one that is cut off nothing."""
    whole: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    names = iter(_ASKED)
    for line in lines:
        words = line.split(" ", 2)
        if words[0] == "STAT" and len(words) > 1:
            rows[words[1]] = words[2] if len(words) > 2 else ""
        elif line == "END" or line.startswith(("ERROR", "CLIENT_ERROR", "SERVER_ERROR")):
            name = next(names, None)
            if name is not None and line == "END":
                whole[name] = rows
            rows = {}
    return whole
