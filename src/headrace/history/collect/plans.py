"""Plans of query classes: asked for, and kept where their shape changes.

EXPLAIN runs in a read-only session of the agent with a time limit. What is kept has no conditions, because those
hold values.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.base.errors import NotReady
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, SLOW_LOG
from headrace.history.collect.minute import Row
from headrace.history.collect.watched import Busy, Watched, server_of
from headrace.hunt.top import plan as shapes

log = logging.getLogger("headrace.web")

#: With ``--plans``: the busiest classes of each source, each this often, with a pause between two.
MOST_ASKED, EVERY_S, PAUSE_S = 10, 3600.0, 10.0
#: Earlier, if the time per call has changed by this factor since: then the plan may be another.
CHANGED, AGAIN_S = 2.0, 120.0
ASK_S = 15.0
_READS = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
#: Of headrace's own sessions and other monitors.
_LOOKS_AT_SERVER = re.compile(r"\b(performance_schema|information_schema|sys)\W*\.|@@", re.IGNORECASE)


async def ask(watched: Watched, source: str, name: str, example: Mapping[str, Any] | None) -> str:
    """The plan now, as JSON. ``example``: a call with its values, which all sources but one need."""
    agent, login = server_of(watched)
    if source == PERFORMANCE_SCHEMA:
        answer = await agent.answer("explain", "--digest", name, *login.argv, timeout_s=ASK_S)
    elif example is None:
        raise NotReady("no call with its values is kept: start headrace serve with --examples")
    else:
        database = ["--mysql-database", example["database"]] if example["database"] else []
        words = ["explain", "--text", *login.argv, *database]
        answer = await agent.answer(*words, stdin=example["text"].encode(), timeout_s=ASK_S)
    note(watched, source, name, answer)
    return json.dumps(answer.get("plan", answer.get("rows")), indent=2)


def note(watched: Watched, source: str, name: str, answer: Mapping[str, Any]) -> None:
    """Keep the plan if it has another shape than the last one."""
    shape = shapes.shape(answer)
    if not shape or watched.plans.get((source, name)) == shape:
        return
    watched.plans[(source, name)] = shape
    row = {"source": source, "class": name, "shape": shape, "plan": "\n".join(shapes.tree(answer))}
    watched.pending.setdefault("plans", []).append({**row, "at_s": time.time()})


def busiest(rows: Iterable[Row], examples: Iterable[Row] = ()) -> list[Busy]:
    """The classes of a minute whose plans can be asked for, by time: digests of the server, and what the slow log
    has an example of that only reads, tables of users."""
    known = {
        (row["source"], row["class"]): row
        for row in examples
        if _READS.match(row["text"]) and not _LOOKS_AT_SERVER.search(row["text"])
    }
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        key = row["source"], row["class"]
        if row.get("timed") and (key[0] == PERFORMANCE_SCHEMA or key in known):
            sums = found.setdefault(key, [0.0, 0])
            sums[0] += row.get("time_ns") or 0
            sums[1] += row["timed"]
    by_time = sorted(found.items(), key=lambda pair: -pair[1][0])
    every = [Busy(*key, time_ns / timed, known.get(key)) for key, (time_ns, timed) in by_time]
    of = {
        source: [each for each in every if each.source == source] for source in (SLOW_LOG, PERFORMANCE_SCHEMA)
    }
    return [each for some in of.values() for each in some[:MOST_ASKED]]


def due(
    classes: Sequence[Busy], asked: Mapping[tuple[str, str], tuple[float, float]], now_s: float
) -> Busy | None:
    """Whose plan to ask for: one whose time per call has changed, then one that was not asked for an hour.

    ``asked``: when each was asked for last, and its time per call then.
    """

    def has_changed(each: Busy) -> bool:
        at_s, mean_ns = asked.get(each.key, (now_s, 0.0))
        ratio = each.mean_ns / mean_ns if mean_ns else 1.0
        return now_s - at_s >= AGAIN_S and not 1 / CHANGED < ratio < CHANGED

    old = [each for each in classes if now_s - asked.get(each.key, (-EVERY_S, 0.0))[0] >= EVERY_S]
    return next(iter([*filter(has_changed, classes), *old]), None)


async def follow(watched: Watched) -> None:
    """Ask for the plans of the busiest classes, one at a time."""
    asked: dict[tuple[str, str], tuple[float, float]] = {}
    while True:
        await asyncio.sleep(PAUSE_S)
        now_s = time.monotonic()
        each = due(watched.busiest, asked, now_s) if watched.is_fresh else None
        if each is None:
            continue
        asked[each.key] = now_s, each.mean_ns
        try:
            await ask(watched, each.source, each.name, each.example)
        except Exception as error:
            log.debug("no plan of %s on %s: %s", each.name, watched.name, error)
