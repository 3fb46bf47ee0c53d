"""The latency table of a machine, measured by its agent: from CPU cache to commit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.agent import Agent
from headrace.analysis.ladder import Ladder, read
from headrace.snapshot import state_path
from headrace.target import Target
from headrace.whole import write_whole

#: A read of this row is alone on the device.
ALONE = "device_read"


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


def remember(target: str, measured: Ladder) -> None:
    """Keeps what a read of the device takes alone, so that `headrace hunt` can judge its queue against it."""
    alone_ns = measured.median_ns(ALONE)
    if measured.device is None or alone_ns is None or measured.spoiled_by:
        return
    path = state_path("alone.json")
    known = _known()
    known.setdefault(target, {})[measured.device.removeprefix("/dev/")] = alone_ns / 1e6
    # That it cannot be kept is no reason to lose the table.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(known, indent=1))


def remembered(target: str) -> dict[str, float]:
    """Device -> ms of a read without load, as the last `headrace ladder` of this target measured it."""
    return {
        str(device): float(ms)
        for device, ms in _known().get(target, {}).items()
        if isinstance(ms, int | float) and ms > 0
    }


def _known() -> dict[str, dict[str, float]]:
    try:
        found = json.loads(state_path("alone.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
