"""What `apply`, `rollback` and `journal` share: a refused attempt, and what a start makes of a change."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.encode import json_text
from headrace.errors import HeadraceError, Refused
from headrace.model import ServerLogin
from headrace.received import parsed

if TYPE_CHECKING:
    from headrace.agent import Agent
    from headrace.agent.journal import Undone
    from headrace.persist.news import News

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
    from headrace.snapshot import state_path

    try:
        found = parsed(state_path(_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): float(at) for name, at in found.items()} if isinstance(found, dict) else {}


def _note(target: str, at_s: float | None) -> None:
    from headrace.snapshot import state_path
    from headrace.whole import write_whole

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
    from headrace import rollout
    from headrace.errors import PlanError

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
    from headrace.errors import NotReady
    from headrace.facts import HostFacts
    from headrace.hunt import usual_login
    from headrace.persist.news import at_next_start

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
    from headrace.facts import HostFacts
    from headrace.hunt import usual_login
    from headrace.persist.news import files_in, news

    files = files_in([*entries, *(entry for each in kept for entry in each["entries"])])
    if not files:
        return []
    with contextlib.suppress(HeadraceError):
        found, _ = await usual_login(agent, login if login.is_named else None)
        if found is not None:
            return await news(agent, files, HostFacts(await agent.facts(found)))
    return []
