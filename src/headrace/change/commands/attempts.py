"""Shared by `apply` and `rollback`: a refused attempt, and what a start makes of a change."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.base.encode import json_text
from headrace.base.errors import HeadraceError, Refused
from headrace.base.model import ServerLogin
from headrace.base.received import parsed

if TYPE_CHECKING:
    from headrace.change.persist.news import News
    from headrace.host.agent import Agent
    from headrace.host.agent.journal import Undone

_FILE = "refused.json"


@contextlib.contextmanager
def remembered(target: str, *, counts: bool) -> Iterator[None]:
    """An `apply` that fails is remembered until the next one succeeds: `rollback --last` is not about it."""
    try:
        yield
    except HeadraceError:
        if counts:
            _note(target, time.time())
        raise
    if counts:
        _note(target, None)


def _noted() -> dict[str, float]:
    from headrace.host.snapshot import state_path

    try:
        found = parsed(state_path(_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): float(at) for name, at in found.items()} if isinstance(found, dict) else {}


def _note(target: str, at_s: float | None) -> None:
    from headrace.base.whole import write_whole
    from headrace.host.snapshot import state_path

    kept = _noted()
    if at_s is None and target not in kept:
        return
    kept.pop(target, None)
    if at_s is not None:
        kept[target] = at_s
    path = state_path(_FILE)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json_text(kept))


async def must_not_be_refused(agent: Agent, target: str) -> None:
    """Raises Refused if the last `apply` there changed nothing: what was kept last is older then."""
    from headrace.base.errors import PlanError
    from headrace.change import apply as rollout

    at_s = _noted().get(target)
    if at_s is None:
        return
    try:
        made = await rollout.made(agent, "last")
    except PlanError:
        return  # there is nothing to undo, and that is said
    if made.at_s < at_s:
        raise Refused(
            f"the last apply was refused and changed nothing; what was kept last is older: {made.id} of "
            f"{datetime.fromtimestamp(made.at_s, UTC):%Y-%m-%d %H:%M:%S UTC}",
            place=target,
            hint=f"if you mean that one: headrace rollback --id {made.id}",
        )


async def after(agent: Agent, undone: Sequence[Undone], login: ServerLogin) -> list[str]:
    """Of variables that were restored what the next start will do with them, where that is another value."""
    from headrace.base.errors import NotReady
    from headrace.change.persist.news import at_next_start
    from headrace.host.facts import HostFacts
    from headrace.hunt.hunt import usual_login

    names = [match[1] for each in undone if each.done and each.kind == "variable"
             if (match := re.match(r"(\w+) = ", each.what))]  # fmt: skip
    if not names:
        return []
    try:
        found, why_not = await usual_login(agent, login if login.is_named else None)
        if found is None:
            raise NotReady(why_not)
        return await at_next_start(agent, names, HostFacts(await agent.facts(found)))
    except HeadraceError as error:
        return [
            f"what the next start of the server makes of {', '.join(names)} is not known: {error.message}"
        ]


async def since(
    agent: Agent, entries: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]], login: ServerLogin
) -> list[News]:
    """What in our option files a server does not run with; empty without a server that can be asked."""
    from headrace.change.persist.news import files_in, news
    from headrace.host.facts import HostFacts
    from headrace.hunt.hunt import usual_login

    files = files_in([*entries, *(entry for each in kept for entry in each["entries"])])
    if not files:
        return []
    with contextlib.suppress(HeadraceError):
        found, _ = await usual_login(agent, login if login.is_named else None)
        if found is not None:
            return await news(agent, files, HostFacts(await agent.facts(found)))
    return []
