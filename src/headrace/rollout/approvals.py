"""How long an approval holds: by what has passed, not by what the clock says alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.clocks import SET_BACK_S, Clocks


def given(length_s: float, now: Clocks | None = None) -> dict[str, Any]:
    """What the log of a rollout keeps of an approval's time."""
    now = now or Clocks.now()
    return {"at": now.wall_s, "until": now.wall_s + length_s, "boot_s": now.boot_s, "boot": now.boot}


def why_over(approval: Mapping[str, Any], now: Clocks | None = None) -> str:
    """Empty while it holds. A clock that somebody sets back makes no approval last longer."""
    now = now or Clocks.now()
    until = float(approval["until"])
    at = float(approval.get("at", approval.get("t", 0.0)))
    passed_s = now.since(Clocks(at, float(approval.get("boot_s", 0.0)), str(approval.get("boot", ""))))
    if now.wall_s > until or (passed_s is not None and passed_s > until - at):
        return "has expired"
    if now.wall_s < at - SET_BACK_S:
        return "is of a time that has not come: the clock was set back since"
    return ""
