"""Rollouts of this machine; a stage is approved here, and all of it taken back."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.web import fleet_times, rollouts
from headrace.web.page import Action, Menu, Opened, Page, Table
from headrace.web.users import Role


async def _rollouts(opened: Opened) -> dict[str, Any]:
    return {"listing": await rollouts.listing(opened.site, opened.asked)}


async def _book(opened: Opened) -> Any:
    return await asyncio.to_thread(rollouts.opened, opened.word("id", 80))


async def _rollout(opened: Opened) -> dict[str, Any]:
    shown = await asyncio.to_thread(rollouts.shown, opened.subject)
    times = await fleet_times.section(opened.site, opened.subject)
    return {**shown, "times": times, "said": opened.word("said")}


PAGES = (
    Page("/rollouts", "rollouts.html", "Rollouts", _rollouts, menu=Menu(7, "Rollouts")),
    Page("/rollout", "rollout.html", lambda book: f"Rollout {book.plan.id}", _rollout, _book),
)
ACTIONS = (
    Action("/api/fleet_times.json", fleet_times.answer, Role.VIEWER, ("GET",)),
    Action("/rollout/approve", rollouts.approve, Role.APPROVER),
    Action("/rollout/abort", rollouts.abort, Role.OPERATOR),
)
TABLES = (Table("rollouts", "Rollouts", "Rollouts planned on this machine.", rollouts.listing, ()),)
