"""How a sweep's values are shown, on the page and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable

from headrace.base.intervals import Interval
from headrace.experiment.stats.sweep_result import Level, Sweep
from headrace.experiment.stats.sweep_words import is_telling, round_peak
from headrace.show import text

#: What to do if the driver saturates before the server.
DRIVER_SATURATED = (
    "The driver reached its limit before the server: give it more threads (workload.threads), dedicated "
    "cores, or other machines (workload.clients)"
)


def between(found: Interval, form: Callable[[float], str]) -> str:
    """An interval; in words if two or three dissimilar passes make it span orders of magnitude."""
    if found.low is None or found.high is None:
        return "–"
    return text.between(found, form) if is_telling(found) else "not known"


def latency_words(sweep: Sweep) -> str:
    """What the latencies measure, in words: a closed loop does not show what users would see."""
    if sweep.is_open:
        begins = "should have begun" if sweep.latency_kind == "response" else "was sent"
        return f"{sweep.latency_kind} time in an open loop, from when an operation {begins}"
    begins = "its connection was free for it" if sweep.latency_kind == "response" else "it was sent"
    return f"the time of an operation in a closed loop, from when {begins}"


def passes(level: Level, sweep: Sweep) -> str:
    """How many passes count for a level: ``3``, ``1 of 3``."""
    return f"{len(level.trials)}" + (f" of {sweep.passes}" if len(level.trials) < sweep.passes else "")


def gain(step: float) -> str:
    """A ratio of throughputs as what it adds: 1.05 -> ``+5.0%``."""
    return f"{100 * (step - 1):+.1f}%"


def share(value: float) -> str:
    """A coefficient of the law: three significant digits, small ones with an exponent."""
    return "0" if value == 0 else f"{value:.3g}"


def peak(load: float) -> str:
    return f"{round_peak(load):,.6g}" if math.isfinite(load) else "no end"
