"""Query classes with their latencies from a server's slow log, digested on its host.

The log is followed from its end: reading what was written before could take the host minutes. It is digested
there; a class's counts and buckets come here once a minute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.agent import Agent, stop
from headrace.errors import CommandFailed
from headrace.model import Facts
from headrace.target import to_the_end
from headrace.web import bounds
from headrace.web.minute import SLOW_LOG, Row, text_row

EVERY = "1m"
#: Classes of one minute; those that come later are counted as one.
MOST_CLASSES = 2000
#: Characters of an example.
MOST_EXAMPLE = 4000
#: tail follows the name, so a rotated log continues in the new file.
_SCRIPT = 'tail -n 0 -F -- "$1" 2>/dev/null | "$0" digest --every "$2" --classes "$3" $4 -'


def path_of(facts: Facts | None) -> str:
    """The slow log that the server writes; empty if it writes none."""
    variables = ((facts.data if facts else {}).get("server_settings") or {}).get("variables") or {}
    is_on = str(variables.get("slow_query_log", "")).upper() in ("ON", "1")
    if not is_on or "FILE" not in str(variables.get("log_output", "FILE")).upper():
        return ""
    name, folder = str(variables.get("slow_query_log_file") or ""), str(variables.get("datadir") or "")
    return name if name.startswith("/") or not folder else f"{folder.rstrip('/')}/{name}"


async def follow(agent: Agent, path: str, pending: dict[str, list[Row]], *, with_examples: bool) -> None:
    """Append the rows of each minute to ``pending`` until the log or the connection ends."""
    options = "" if with_examples else "--no-samples"
    argv = ["sh", "-c", _SCRIPT, agent.path, path, EVERY, str(MOST_CLASSES), options]
    process = await agent.target.spawn(argv)
    try:
        async for line in process.lines():
            try:
                take(json.loads(line), pending)
            except ValueError as error:
                raise CommandFailed("the digest of the slow log is cut short", place=path) from error
        raise CommandFailed("the digest of the slow log ended", place=path)
    finally:
        await to_the_end(stop(process))


def take(line: Mapping[str, Any], pending: dict[str, list[Row]]) -> None:
    """One line of ``headrace-agent digest``, as docs/reference/digest-format.md has it."""
    if line.get("type") != "class":
        return
    name = "*" if line.get("is_others") else str(line.get("id"))
    databases = [str(row[0]) for row in line.get("databases") or ()]
    row = {
        "source": SLOW_LOG,
        "class": name,
        "database": databases[0] if len(databases) == 1 else "",
        "calls": line["count"],
        "timed": line["timed"],
        "time_ns": float(line["response_sum_ns"]),
        "lock_ns": _sum(line, "lock_ns"),
        "errors": None if line.get("unjudged") else line["failed"],
        "rows_examined": _sum(line, "rows_examined"),
        "rows_sent": _sum(line, "rows_sent"),
        "tmp_disk_tables": _sum(line, "tmp_disk_tables"),
        "most_ns": line["response_max_ns"],
    }
    bounds.add(pending, "classes", [row])
    buckets = [
        {"source": SLOW_LOG, "class": name, "bucket": bucket, "count": count}
        for bucket, count in line["buckets"]
    ]
    bounds.add(pending, "buckets", buckets)
    text = str(line.get("fingerprint") or ("classes beyond the limit" if name == "*" else ""))
    bounds.add(pending, "texts", [text_row(SLOW_LOG, name, text, line.get("tables") or ())])
    sample: Mapping[str, Any] | None = line.get("sample")
    if sample and sample.get("text"):
        example = {
            "source": SLOW_LOG,
            "class": name,
            "text": str(sample["text"]).encode("utf-8", "replace").decode()[:MOST_EXAMPLE],
            "database": str(sample.get("database") or ""),
            "took_ns": sample.get("response_ns"),
        }
        bounds.add(pending, "examples", [example])


def _sum(line: Mapping[str, Any], measure: str) -> int | None:
    known = line.get(measure)
    return int(known["sum"]) if known and known["known"] else None
