"""The latency table of a machine, measured by its agent: from CPU cache to commit."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.base import received
from headrace.base.errors import PlanError
from headrace.base.state import state_path
from headrace.base.whole import write_whole
from headrace.host.agent import Agent
from headrace.host.target import Target
from headrace.hunt.ladder.packets import Size, Step, steps_of
from headrace.hunt.ladder.published import Ladder, read
from headrace.hunt.ladder.steering import cpus_of

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
    """Device -> ms of a read without load, as the last `headrace latencies` of this target measured it."""
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


#: Payloads of requests and replies as servers have them: memcached gets, and point selects of MySQL.
PAYLOADS: tuple[Size, ...] = ((64, 100), (64, 1000), (100, 300))
#: Rates, as shares of what is answered without a limit.
SHARES = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)
#: The CPU of both ends.
CPU = 0


async def packets(
    host: Target,
    sizes: Sequence[Size],
    rounds: int,
    step_s: float,
    rps: str,
    listen: Callable[[int], None],
) -> list[Step]:
    """Measure packets between two network namespaces of the host, which end with the agent.

    Each round measures every size as it is and, with ``rps`` (a mask of CPUs), also steered, in random order. Both
    ends run on the first CPU, so that one core does all the work. Raises PlanError if ``rps`` is no mask.
    """
    others = _cpus(rps) - {CPU}
    agent = await Agent.install(host)
    order = random.Random(rounds)
    found: list[Step] = []
    for number in range(rounds):
        for variant in order.sample(["", rps] if rps else [""], 2 if rps else 1):
            spec = {
                "token": secrets.token_hex(16), "address": "127.0.0.1", "sizes": order.sample(sizes, len(sizes)),
                "step_s": step_s, "shares": SHARES, "flows": 8, "rps": variant,
                "most_s": 60 + 2 * step_s * len(sizes) * (len(SHARES) + 1),
                "server": {"cpus": [CPU]}, "client": {"cpus": [CPU]}, "interrupt": min(others, default=None),
            }  # fmt: skip
            done = await agent.text(
                "packets", "pair", stdin=json.dumps(spec).encode(), timeout_s=float(str(spec["most_s"]))
            )
            found += steps_of((json.loads(line) for line in received.lines(done)), number, variant)
        listen(number)
    return found


def _cpus(mask: str) -> frozenset[int]:
    try:
        return cpus_of(mask)
    except ValueError:
        raise PlanError(
            f"{mask!r} is not a mask of CPUs", place="--rps", hint="such as 2 for the second CPU"
        ) from None
