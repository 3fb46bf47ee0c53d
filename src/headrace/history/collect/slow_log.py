"""Query classes with their latencies from a server's slow log, digested on its host.

The log is followed from its end: reading what was written before could take the host minutes. It is digested
there; a class's counts and buckets come here once a minute. Both programs have a lease: they end with ``serve``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.base.errors import CommandFailed
from headrace.base.model import Facts
from headrace.base.received import ASIDE_BYTES, OF_VERBS, BadContent, parsed
from headrace.history.archive.tables import SLOW_LOG
from headrace.history.collect import bounds
from headrace.history.collect.minute import Row, text_row
from headrace.host.agent import Agent

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


def why_not(facts: Facts | None) -> str:
    """Why the slow log is not read now; empty if it is, or if nothing is known of the server."""
    variables = ((facts.data if facts else {}).get("server_settings") or {}).get("variables") or {}
    if not variables or path_of(facts):
        return ""
    if str(variables.get("slow_query_log", "")).upper() not in ("ON", "1"):
        return "the slow log is off: SET GLOBAL slow_query_log = ON"
    return f"log_output is {variables.get('log_output')}: SET GLOBAL log_output = 'FILE'"


async def follow(agent: Agent, path: str, pending: dict[str, list[Row]], *, with_examples: bool) -> None:
    """Append the rows of each minute to ``pending`` until the log or the connection ends.

    Raises CommandFailed if it ends, or cannot be read at the start: tail would wait for it in silence.
    """
    done = await agent.target.run(["sh", "-c", '[ -r "$1" ]', "sh", path], check=False)
    if done.exit_code:
        raise CommandFailed(f"{path} is not there, or the account that headrace uses may not read it")
    options = "" if with_examples else "--no-samples"
    bound = OF_VERBS["digest"]
    argv = ["sh", "-c", _SCRIPT, agent.path, path, EVERY, str(MOST_CLASSES), options]
    async with agent.leased(*argv) as process:
        async for line in process.lines():
            try:
                # A large one beside the others, so that they are served meanwhile.
                is_large = len(line) > ASIDE_BYTES
                found = await asyncio.to_thread(parsed, line, bound) if is_large else parsed(line, bound)
                take(found, pending)
            except BadContent as error:
                raise CommandFailed("the digest of the slow log is cut short", place=path) from error
        raise CommandFailed("the digest of the slow log ended", place=path)


def take(line: Any, pending: dict[str, list[Row]]) -> None:
    """One line of ``headrace-agent digest``, as docs/reference/digest-format.md has it.

    A class that is not as written there is refused, and counted.
    """
    try:
        found = _rows(line)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        bounds.refuse(pending, "classes")
        return
    for table, rows in found.items():
        bounds.add(pending, table, rows)


def _rows(line: Mapping[str, Any]) -> dict[str, list[Row]]:
    """By table, before anything is taken: a class is whole or absent."""
    if line.get("type") != "class":
        return {}
    name = "*" if line.get("is_others") else str(line.get("id"))
    databases = [str(row[0]) for row in line.get("databases") or ()]
    row = {
        "source": SLOW_LOG,
        "class": name,
        "database": databases[0] if len(databases) == 1 else "",
        "calls": _whole(line["count"]),
        "timed": _whole(line["timed"]),
        "time_ns": float(line["response_sum_ns"]),
        "lock_ns": _sum(line, "lock_ns"),
        "errors": None if line.get("unjudged") else _whole(line["failed"]),
        "rows_examined": _sum(line, "rows_examined"),
        "rows_sent": _sum(line, "rows_sent"),
        "tmp_disk_tables": _sum(line, "tmp_disk_tables"),
        "most_ns": _whole(line["response_max_ns"]),
    }
    buckets = [
        {"source": SLOW_LOG, "class": name, "bucket": _whole(bucket), "count": _whole(count)}
        for bucket, count in line["buckets"]
    ]
    text = str(line.get("fingerprint") or ("classes beyond the limit" if name == "*" else ""))
    texts = [text_row(SLOW_LOG, name, text, line.get("tables") or ())]
    found: dict[str, list[Row]] = {"classes": [row], "buckets": buckets, "texts": texts}
    sample: Mapping[str, Any] | None = line.get("sample")
    if sample and sample.get("text"):
        example = {
            "source": SLOW_LOG,
            "class": name,
            "text": str(sample["text"]).encode("utf-8", "replace").decode()[:MOST_EXAMPLE],
            "database": str(sample.get("database") or ""),
            "took_ns": sample.get("response_ns"),
        }
        found["examples"] = [example]
    return found


def _sum(line: Mapping[str, Any], measure: str) -> int | None:
    known = line.get(measure)
    return _whole(known["sum"]) if known and known["known"] else None


def _whole(value: Any) -> int:
    """Arrow would cut 1.5 to 1. Raises TypeError."""
    if type(value) is not int:
        raise TypeError(f"not a whole number: {value!r:.40}")
    return value
