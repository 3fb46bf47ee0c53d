"""`headrace top`: a database host, live."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.model import ServerLogin
from headrace.cli.options import NO_LOGIN, Thorough, grouped
from headrace.cli.shell import (
    Json,
    TargetOption,
    app,
    on_target,
    print_json,
    run_until_signal,
    stdout,
    tell,
)

if TYPE_CHECKING:
    from headrace.hunt.live import Feed
    from headrace.hunt.top.shot import Shot


#: Lines of a snapshot: a tall terminal.
ONCE_LINES = 40
#: Samples before it, one per second.
ONCE_SAMPLES = 3
#: Nobody waits longer than this without being told for what ...
SILENT_S = 2.0
#: ... and no host takes longer than this for its settings.
FACTS_S = 60.0
#: A memcached that hangs holds a snapshot up for no longer.
CACHES_S = 10.0
HINT = "correct the login; without one the host alone is shown"


@app.command(
    epilog="Example: headrace top --target root@db1. Without a terminal, or with --once, one snapshot is printed.",
)
@grouped
def top(
    target: TargetOption = "local",
    login: ServerLogin = NO_LOGIN,
    thorough: Thorough = False,
    once: Annotated[
        bool, typer.Option("--once", help="Print the overview after a few samples and exit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Watch cores, memory, devices, network and the server, one sample per second.

    Changes nothing. Press ? for help.
    """
    from headrace.host.login import usual_login
    from headrace.host.target import TargetSpec
    from headrace.hunt import admission
    from headrace.hunt.hunt import refused
    from headrace.hunt.live import Feed

    feed = Feed(TargetSpec.parse(target), login, find_login=usual_login, thorough=thorough)
    if once or as_json or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        if login != NO_LOGIN:
            on_target(target, lambda host: _demand(host, login))
        shot = run_until_signal(lambda: _one(feed))
        why = refused(shot.errors) if login != NO_LOGIN else ""
        if as_json:
            print_json(_json(shot))
        else:
            _print(shot, why)
        if why:
            raise admission.refused(why, target, HINT)
        return
    from headrace.hunt.commands.live import Live

    view = Live(feed, colours="NO_COLOR" not in os.environ)
    view.run()
    if view.failure:
        raise view.failure


async def _demand(host: Any, login: ServerLogin) -> None:
    """Raises TargetError, before anything is sampled, if the server that was named does not let us in."""
    from headrace.host.agent import Agent
    from headrace.host.login import usual_login
    from headrace.hunt import admission

    agent = await Agent.install(host)
    found, why = await usual_login(agent, login)
    if found is None:
        raise admission.refused(why, agent.target.name, HINT)
    await admission.demand(agent, found, HINT)


async def _one(feed: Feed) -> Shot:
    """A shot after three samples of the host, and of the server if there is one.

    Each slow step is announced once.
    """
    import asyncio
    import time

    from headrace.base.errors import NothingMeasured
    from headrace.hunt.top.shot import VERDICT_S, judged, take

    feed.caches_every_s = 1.0
    following = asyncio.ensure_future(feed.run())
    looking = asyncio.ensure_future(feed.look())
    start, told = time.monotonic(), ""

    def is_ready() -> bool:
        if feed.ticks < ONCE_SAMPLES or feed.facts is None:
            return False
        return feed.has_cache_rates or time.monotonic() - start > ONCE_SAMPLES + CACHES_S

    try:
        while not is_ready():
            done, _ = await asyncio.wait([following], timeout=0.1)
            if done:
                following.result()
            if feed.problem:
                raise NothingMeasured(feed.problem.removeprefix(f"{feed.name}: "), place=feed.name)
            waited_s = time.monotonic() - start
            if waited_s >= SILENT_S + (ONCE_SAMPLES if feed.ticks else 0) and told != feed.step:
                told = feed.step
                tell(f"{told} ...")
            if feed.ticks and waited_s >= FACTS_S:
                raise NothingMeasured("the host does not report its settings", place=feed.name)
        await asyncio.sleep(0.3)  # the server's samplers may take longer
        shot = take(feed, time.strftime("%H:%M:%S"), 0.0, judged(feed, VERDICT_S))
        assert shot is not None
        return shot
    finally:
        for task in (following, looking):
            task.cancel()
        await asyncio.wait([following, looking])


def _print(shot: Shot, why_not: str) -> None:
    """``why_not``: the reason why a server that was named was not examined, which comes first."""
    from headrace.hunt.report.words import not_examined
    from headrace.hunt.top import overview, screen
    from headrace.show.text import clean

    console = stdout()
    if why_not:
        console.print(
            clean(not_examined(why_not)), style="bold red", soft_wrap=True, highlight=False, markup=False
        )
    width = console.width if console.is_terminal else max(console.width, 100)
    console.print(screen.heading(shot, width), soft_wrap=True, highlight=False)
    for line in overview.draw(shot, width, ONCE_LINES):
        line.rstrip()
        console.print(line, soft_wrap=True, highlight=False)


def _json(shot: Shot) -> dict[str, Any]:
    from headrace.hunt.top.jsonform import overview

    return overview(shot)
