"""The command ``record histograms``: how long a server's statements take, as the server itself counts them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.counted import counted
from headrace.base.errors import NotReady, PlanError, TargetError
from headrace.base.model import ServerLogin
from headrace.cli.options import DAY_S, NO_LOGIN, duration, grouped
from headrace.cli.shell import TargetOption, on_target, stderr, tell

if TYPE_CHECKING:
    from headrace.host.agent import Agent


@grouped
def histograms(
    append: Annotated[
        Path, typer.Option("--append", metavar="FILE", help="Append the snapshot to this file, as one line.")
    ],
    target: TargetOption = "local",
    name: Annotated[
        str, typer.Option(metavar="HOST", help="The host's name in the file [its own].", show_default=False)
    ] = "",
    top: Annotated[
        int, typer.Option(min=0, max=10_000, help="Maximum number of digests that get their own histogram.")
    ] = 100,
    every_s: Annotated[float | None, duration("--every", text="Repeat at this interval.")] = None,
    duration_s: Annotated[
        float | None, duration("--duration", text="With --every: how long.", most_s=90 * DAY_S)
    ] = None,
    login: ServerLogin = NO_LOGIN,
) -> None:
    """Save a server's own latency histograms, for `headrace verify`.

    How often each latency occurred since the server's start. MySQL 8: performance_schema. MariaDB: the plugin
    query_response_time.
    """
    if (every_s is None) != (duration_s is None):
        raise typer.BadParameter("--every and --duration must be given together")

    async def work(host: Any) -> int:
        return await _collect(host, append, name, top, every_s or 0.0, duration_s or 0.0, login)

    count = on_target(target, work)
    stderr().print(f"{append}: {counted(count, 'snapshot')}", soft_wrap=True, highlight=False, markup=False)


async def _collect(
    host: Any, path: Path, name: str, top: int, every_s: float, duration_s: float, login: ServerLogin
) -> int:
    """The first snapshot must succeed; a later one that fails is a gap."""
    from headrace.host.agent import Agent
    from headrace.host.login import usual_login

    agent = await Agent.install(host)
    found, why_not = await usual_login(agent, login)
    if found is None:
        raise NotReady(why_not, place=host.name)
    named = name or str((await agent.facts()).data.get("hostname") or host.name)
    start = time.monotonic()
    count = await _one(agent, path, named, top, found)
    ticks = int(duration_s / every_s) if every_s else 0
    for tick in range(1, ticks + 1):
        await asyncio.sleep(max(0.0, start + tick * every_s - time.monotonic()))
        try:
            count += await _one(agent, path, named, top, found)
        except (TargetError, PlanError) as error:
            tell(f"no snapshot: {error.message}")
    return count


async def _one(agent: Agent, path: Path, name: str, top: int, login: ServerLogin) -> int:
    from headrace.change.production.histograms import append, line_of

    answer = await agent.answer("histograms", "--limit", str(top), *login.argv, repeatable=True)
    append(path, line_of(name, answer))
    return 1
