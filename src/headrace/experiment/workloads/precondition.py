"""Bringing a device to its steady state before a measurement: rounds of the same I/O until they agree.

A fresh or trimmed solid-state device is faster than after its spare blocks are used up, and a thinly provisioned
volume slower than once it is written: a short trial measures the transition. Rounds are over when five in a row
agree, by the definition of the Storage Networking Industry Association: the largest and the smallest differ by at
most 20% of their mean, and the straight line fitted to them changes by at most 10% of it.

Source: SNIA, Solid State Storage (SSS) Performance Test Specification 2.0.1, 2018 (steady state).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from headrace.base.counted import counted
from headrace.experiment.workloads.options import Options
from headrace.experiment.workloads.tables import Phase, measurement
from headrace.experiment.workloads.workload import Context, Measurement

#: Rounds that must agree.
WINDOW = 5

#: The largest minus the smallest of them, as a share of their mean.
MAX_RANGE = 0.20

#: The change of the fitted line from the first to the last, as a share of their mean.
MAX_SLOPE = 0.10

#: Long enough for a device's own housekeeping to show.
ROUND_S = 60.0

#: In the trial's raw folder: {"round_s", "ops_s": [...], "is_steady"}.
FILE = "precondition.json"


class Preconditioned(Options):
    """Options shared by workloads on files."""

    precondition: bool = Field(
        False, description="repeat the same I/O in rounds until the device is in steady state, then measure"
    )
    precondition_round_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        ROUND_S, description="seconds of one round"
    )
    precondition_rounds: Annotated[int, Field(ge=WINDOW, le=1000)] = Field(
        25, description="maximum rounds; a device that is not steady by then is measured with a warning"
    )


def least_seconds(options: Mapping[str, Any]) -> float:
    """The minimum duration of the rounds of a plan's workload; 0 if none were requested."""
    asked = options.get("precondition") is True
    return WINDOW * float(options.get("precondition_round_s", ROUND_S)) if asked else 0.0


def is_steady(rounds: Sequence[float]) -> bool:
    """Whether the last WINDOW rounds' values agree."""
    if len(rounds) < WINDOW:
        return False
    last = np.array(rounds[-WINDOW:], dtype=np.float64)
    mean = float(last.mean())
    if mean <= 0:
        return False
    slope = float(np.polyfit(np.arange(WINDOW), last, 1)[0])
    return bool(np.ptp(last) <= MAX_RANGE * mean and abs(slope) * (WINDOW - 1) <= MAX_SLOPE * mean)


async def measured(
    options: Preconditioned,
    phase: Callable[[Context, str, float], Awaitable[Phase]],
    context: Context,
    *,
    what: str,
) -> Measurement:
    """Rounds until the device is steady, the warm-up and the window; ``what`` names the tool in errors."""
    warnings = await precondition(options, partial(phase, context), context.raw)
    warmup = await phase(context, "warmup", context.warmup_s) if context.warmup_s > 0 else None
    window = await phase(context, "window", context.seconds)
    found = measurement(window, warmup, seconds=context.seconds, what=what)
    return replace(found, warnings=(*found.warnings, *warnings))


async def precondition(
    options: Preconditioned, run_round: Callable[[str, float], Awaitable[Phase]], raw: Path
) -> tuple[str, ...]:
    """Run rounds until the device is steady or the cap is reached; returns warnings for the report.

    ``run_round`` takes a name and seconds. ``raw``/FILE is written after every round, because a later one may
    fail.
    """
    if not options.precondition:
        return ()
    found: list[float] = []
    while len(found) < options.precondition_rounds and not is_steady(found):
        phase = await run_round(f"round{len(found) + 1:02d}", options.precondition_round_s)
        seconds = (phase.end_ns - phase.start_ns) / 1e9
        found.append(sum(s.count for s in phase.slices) / seconds if seconds > 0 else 0.0)
        content = {"round_s": options.precondition_round_s, "ops_s": found, "is_steady": is_steady(found)}
        (raw / FILE).write_text(json.dumps(content, indent=2) + "\n")
    if is_steady(found):
        return ()
    last = ", ".join(f"{value:,.0f}" for value in found[-WINDOW:])
    return (
        f"the device is not in steady state after {counted(len(found), 'round')} of "
        f"{options.precondition_round_s:g} s "
        f"(the last: {last} operations/s): more rounds (precondition_rounds), or longer ones",
    )
