"""Plans of query classes: asked for, and kept where their shape changes.

EXPLAIN runs in a read-only session of the agent with a time limit. What is kept has no conditions, because those
hold values.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from headrace.errors import HeadraceError, NotReady
from headrace.report.live import plan as shapes
from headrace.web.minute import PERFORMANCE_SCHEMA
from headrace.web.watched import Watched, server_of

log = logging.getLogger("headrace.web")

#: With ``--plans``: the busiest classes, each this often.
MOST_ASKED, EVERY_S = 10, 3600.0
ASK_S = 15.0


async def ask(watched: Watched, source: str, name: str, example: Mapping[str, Any] | None) -> str:
    """The plan now, as JSON. ``example``: a call with its values, which all sources but one need."""
    agent, login = server_of(watched)
    if source == PERFORMANCE_SCHEMA:
        answer = await agent.answer("explain", "--digest", name, *login.argv, timeout_s=ASK_S)
    elif example is None:
        raise NotReady("no call with its values is kept: start with --examples")
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


async def follow(watched: Watched) -> None:
    """Ask for the plans of the busiest classes, one at a time, spread over the hour."""
    asked: dict[str, float] = {}
    while True:
        await asyncio.sleep(EVERY_S / MOST_ASKED / 10)
        now = time.monotonic()
        due = [each for each in watched.busiest[:MOST_ASKED] if now - asked.get(each, -EVERY_S) >= EVERY_S]
        if not due or not watched.is_fresh:
            continue
        asked[due[0]] = now
        try:
            await ask(watched, PERFORMANCE_SCHEMA, due[0], None)
        except (HeadraceError, OSError, TimeoutError) as error:
            log.debug("no plan of %s on %s: %s", due[0], watched.name, error)
