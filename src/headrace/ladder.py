"""The latency table of a machine, measured by its agent: from CPU cache to commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.agent import Agent
from headrace.analysis.ladder import Ladder, read
from headrace.target import Target


async def measure(
    host: Target, options: Sequence[str], listen: Callable[[Mapping[str, Any]], None]
) -> Ladder:
    """Measure with the agent's own options; ``listen`` hears every line as it comes."""
    agent = await Agent.install(host)
    rows = []
    async with agent.lines("ladder", *options) as lines:
        async for row in lines:
            rows.append(row)
            listen(row)
    return read(rows)
