"""What was not asked because a big server would have paid for it, and so is missing from what was seen.

The agent keeps to a budget: each of its samplers takes at most 1% of one core's time, those of each second 0.25%.
``--thorough`` lifts it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.counted import counted
from headrace.base.model import Facts
from headrace.host.activity import Activity
from headrace.host.window import Window

#: The option of ``hunt``, ``top`` and ``facts``, and of the agent: its messages name it where it would help.
OPTION = "--thorough"
#: Of the time: less is a slow answer or two.
LEAST_SHARE = 0.1


def left_out(
    window: Window, facts: Facts | None, errors: Mapping[str, str], activity: Activity | None = None
) -> tuple[str, ...]:
    """One line for each source that was asked less often than planned, or not at all; of ``window``'s time."""
    found = []
    ticks = window.seconds + 1
    for sampler in window.labels("agent", "spared_ticks"):
        skipped = window.last("agent", "spared_ticks", sampler) or 0.0
        if skipped >= max(2.0, LEAST_SHARE * ticks):
            found.append(f"{sampler}: due, but not sampled, in {skipped:,.0f} of {ticks:,.0f} s")
    if activity is not None and activity.spared >= max(2.0, LEAST_SHARE * ticks):
        looks = activity.looks + activity.spared
        found.append(f"running statements and lock waits: {activity.spared:,} of {counted(looks, 'look')}")
    found += [f"{name}: {_without_option(error)}" for name, error in errors.items() if OPTION in error]
    return tuple(found) + of_facts(facts)


def resting(window: Window) -> tuple[str, ...]:
    """Samplers that are left out now."""
    labels = window.labels("agent", "spared_ticks")
    return tuple(name for name in labels if (window.rate("agent", "spared_ticks", name) or 0.0) > 0)


def of_facts(facts: Facts | None) -> tuple[str, ...]:
    """The same for the facts of a server."""
    errors = facts.data.get("errors") or () if facts is not None else ()
    return tuple(_without_option(str(e.get("error"))) for e in errors if OPTION in str(e.get("error")))


def _without_option(message: str) -> str:
    """The reader's own sentence names the whole command."""
    return message[: message.index(OPTION)].rstrip(" ;(")
