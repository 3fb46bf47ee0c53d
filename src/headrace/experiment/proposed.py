"""A proposed configuration as a plan: all of it, and all but each remedy, against what the server has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.base.model import Value
from headrace.experiment.plan import Plan
from headrace.experiment.prove import plan_text
from headrace.knobs.catalogue import Cost, find

NOW, ALL = "NOW", "ALL"


def plan_of(plan: Plan, groups: Sequence[Mapping[str, Value]], now: Mapping[str, str]) -> str:
    """The plan file's text. ``groups``: settings that belong together; ``now``: setting -> as the server has it.

    Beside all of them there is a treatment without each group: what it adds to the others is what ALL has more.
    The workload, the machine and every other setting are those of ``plan``.
    """
    every = {name: value for group in groups for name, value in group.items()}
    before: dict[str, Value] = {name: now[name] for name in every if now.get(name)}
    treatments: dict[str, Mapping[str, Value]] = {NOW: before, ALL: every}
    for group in groups if len(groups) > 1 else ():
        as_now = {name: before[name] for name in group if name in before}
        rest = {name: value for name, value in every.items() if name not in group}
        treatments[f"{ALL}-{next(iter(group)).rpartition('.')[2]}"] = {**rest, **as_now}
    base = {name: value for name, value in plan.base.items() if name not in every}
    return plan_text(plan.model_copy(update={"base": base}), "proposed", treatments, {}, plan.design.blocks)


def why_not(name: str) -> str:
    """Why a setting cannot be in a plan for a private server; empty if it can."""
    knob, _, instance = name.partition("@")
    if instance or knob.startswith("volume."):
        return "is of a device of that host: headrace prove --live tries it there"
    return "takes a reboot" if find(knob).cost is Cost.REBOOT else ""
