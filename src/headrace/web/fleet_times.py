"""The page of a rollout: what clients waited for on its hosts, before, in and after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.base.counted import counted
from headrace.change import fleet_times
from headrace.history import questions
from headrace.history.archive.files import DAY_S, HOUR_S
from headrace.history.archive.reader import Range
from headrace.rollout.book import Book
from headrace.rollout.plan import Role
from headrace.web import marks, rollouts
from headrace.web.listing import Column, Listing, address
from headrace.web.site import Site

#: Shown before the first change and after the last event: at least so much, or half of the rollout; and of all at
#: most.
LEAST_AROUND_S, MOST_S = HOUR_S, 40 * DAY_S
OF = ("worst", "average")


def _changed_at(book: Book) -> tuple[float, float] | None:
    """The first change of a host, and the last event; None if nothing was changed."""
    at = [float(event["t"]) for event in book.events if event.get("kind") == "applying"]
    return (min(at), max(float(event["t"]) for event in book.events)) if at else None


def _span(first_s: float, last_s: float) -> Range:
    around_s = max(LEAST_AROUND_S, (last_s - first_s) / 2)
    until_s = min(last_s + around_s, time.time())
    return Range(max(first_s - around_s, until_s - MOST_S), until_s)


def _hosts(site: Site, book: Book) -> list[str]:
    """Of those that are changed the ones that take writes, as their clients wait for each commit; else all."""
    known = set(site.hosts())
    names = [name for stage in book.plan.stages for name in stage.hosts if name in known]
    first = [name for name in names if book.plan.members[name].role in (Role.SOURCE, Role.ALONE)]
    return first or names


async def section(site: Site, book: Book) -> Mapping[str, Any] | None:
    """What the page needs, without the charts; None where no client timed anything."""
    changed, hosts = _changed_at(book), _hosts(site, book)
    if changed is None or not hosts:
        return None
    span = _span(*changed)
    if not await site.ask(questions.has_client_times, site.reader, hosts, span):
        return None
    return {
        "charts": [(f"{of} of {counted(len(hosts), 'host')}", _address(book, of)) for of in OF]
        if len(hosts) > 1
        else [(hosts[0], _address(book, "average"))],
        "stages": Listing(_STAGES, marks.of_stages(book, hosts), empty="No stage has begun."),
    }


def _address(book: Book, of: str) -> str:
    return address("/api/fleet_times.json", rollout=book.plan.id, of=of)


_STAGES = (
    Column("at_s", "When", "time"),
    Column("stage", "Stage"),
    Column("hosts", "Hosts"),
    Column("kind", "Kind", "chip"),
    Column("verdict", "Verdict", "chip"),
    Column("effect", "Effect on time"),
)


async def answer(site: Site, request: Request) -> Response:
    """``/api/fleet_times.json``: percentiles of the calls that clients timed, each class with its share of calls
    before the change; null is a gap."""
    book = await asyncio.to_thread(rollouts.opened, request.query_params.get("rollout", "")[:80])
    of = "worst" if request.query_params.get("of") == "worst" else "average"
    changed, hosts = _changed_at(book), _hosts(site, book)
    times = None
    if changed is not None and hosts:
        times = await site.ask(
            fleet_times.over_time, site.reader.archive.root, hosts, changed[0], _span(*changed)
        )
    chart = getattr(times, of) if times else questions.Chart([], 0, [])
    return JSONResponse(
        {
            "rollout": book.plan.id,
            "of": of,
            "kind": "s",
            "hosts": times.hosts if times else (),
            "notes": times.notes if times else (),
            "unit_s": chart.unit_s,
            "t_s": chart.t_s,
            "lines": [vars(line) for line in chart.lines],
        }
    )
