"""Classes of statements, and one class: its times, its plans, its tables, what people noted about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from headrace.base.errors import HeadraceError
from headrace.history import questions
from headrace.history.archive.tables import PERFORMANCE_SCHEMA
from headrace.history.collect import plans
from headrace.history.collect.watched import Watched
from headrace.web import load, rates, said, schema, tables
from headrace.web.asked import MOST_WORDS, Asked
from headrace.web.guard import address_of
from headrace.web.listing import address
from headrace.web.page import Action, Menu, Opened, Page, Table, any_hosts
from headrace.web.reviews import STATES
from headrace.web.sessions import NOT_NOTED
from headrace.web.site import Site
from headrace.web.users import Role

FOR_A_COMMAND_LINE = ": explain one that runs, with --thread"
FOR_A_PAGE = "; a call that is kept from the slow log has a plan (headrace serve --examples)"


async def _queries(opened: Opened) -> dict[str, Any]:
    listing = await tables.classes(opened.site, opened.asked, tables.MOST_CLASSES)
    by = opened.word("by")
    return {
        "listing": listing,
        "hosts": opened.site.hosts(),
        "load_by": load.BY,
        "by": by if by in load.BY else "wait",
    }


async def _name(opened: Opened) -> Any:
    await any_hosts(opened)
    return opened.word("class")


async def _query(opened: Opened) -> dict[str, Any]:
    site, asked, name, may = opened.site, opened.asked, opened.subject, opened.may_operate
    names, span = site.names(asked), asked.span()
    source = asked.source or (await tables.chosen_source(site, asked, names))[0]
    row = await tables.one_class(site, asked, source, name)
    if row is None:
        raise HTTPException(404, "this class was not seen in this range; choose a longer one")
    histograms = [
        await site.ask(questions.histogram, site.reader, names, each, source, name)
        for each in (span, span.before())
    ]
    t_s, series = await site.ask(
        questions.class_series, site.reader, names, span, source, [name], questions.MOST_POINTS
    )
    times = await rates.times(site, names, span, source, questions.MOST_POINTS)
    example = await site.ask(questions.example, site.reader, names, span, source, name) if may else None
    hosts = tables.logged(site, row["hosts"].split(", "))
    return {
        "row": row,
        "source": source,
        "columns": tables.class_columns(asked, source),
        "histogram": json.dumps({"now": histograms[0], "before": histograms[1]}),
        "has_histogram": bool(histograms[0]),
        "series": json.dumps({"t_s": t_s, "points": rates.over_time(series.get(name, []), times)}),
        "example": example,
        "no_example": said.no_example(hosts, with_examples=site.collector.with_examples),
        "no_latencies": said.no_latencies(source, hosts),
        "may": may,
        "changes": await tables.changes(site, asked),
        "plans": await site.ask(questions.plans, site.reader, names, source, name, span.until_s),
        "notes": await asyncio.to_thread(site.reviews.of, source, name),
        "review_states": STATES,
        "plan_host": row["hosts"].split(", ")[0],
    }


def _noted(site: Site, request: Request, what: str) -> tuple[Watched, str, str, str] | Response:
    """Who is to be asked about which class (host, source, name), once it is in the audit log; or why nobody is."""
    form, user = request.state.form, request.state.session.user
    host, source, name = (str(form.get(key, ""))[:MOST_WORDS] for key in ("host", "source", "class"))
    if not site.audit.note(user.name, address_of(request), what, f"{host} {source} {name}"):
        return JSONResponse({"error": NOT_NOTED}, 503)
    watched = site.watched(host)
    if watched is None:
        return JSONResponse({"error": "this host is not watched now"}, 404)
    return watched, host, source, name


async def _plan(site: Site, request: Request) -> Response:
    """EXPLAIN on the server, in a read-only session with the agent's time limit; or why there is none."""
    asked = _noted(site, request, "plan")
    if isinstance(asked, Response):
        return asked
    watched, host, source, name = asked
    try:
        example = None
        if source != PERFORMANCE_SCHEMA:
            span = Asked(range="7d").span()
            example = await site.ask(questions.example, site.reader, [host], span, source, name)
        return JSONResponse({"text": await plans.ask(watched, source, name, example)})
    except HeadraceError as error:
        # The agent's advice is for a command line.
        return JSONResponse({"error": error.message.replace(FOR_A_COMMAND_LINE, FOR_A_PAGE)})


async def _tables(site: Site, request: Request) -> Response:
    """Sizes and indexes of a class's tables, asked for on the server; or why they are unknown."""
    asked = _noted(site, request, "tables")
    if isinstance(asked, Response):
        return asked
    watched, host, source, name = asked
    row = await tables.one_class(site, Asked(host=host, range="7d"), source, name)
    if row is None:
        return JSONResponse({"error": "this class was not seen there in the last 7 days"}, 404)
    try:
        wanted = [row[key].split(", ") if row[key] else [] for key in ("tables", "databases")]
        span = Asked(range="7d").span()
        example = await site.ask(questions.example, site.reader, [host], span, source, name)
        text = example["text"] if example else row["text"]
        return JSONResponse({"text": await schema.ask(watched, wanted[0], wanted[1], text)})
    except HeadraceError as error:
        return JSONResponse({"error": error.message})


async def _review(site: Site, request: Request) -> Response:
    """A note about a class; then its page again."""
    form, user = request.state.form, request.state.session.user
    source, name, state = (str(form.get(key, ""))[:MOST_WORDS] for key in ("source", "class", "state"))
    why = ""
    try:
        comment = str(form.get("comment", ""))
        await asyncio.to_thread(site.reviews.add, user.name, source, name, state, comment)
    except HeadraceError as error:
        why = str(error)
    about = f"{source} {name} {why}".strip()
    site.audit.note(user.name, address_of(request), "review", about, ok=not why)
    kept = {key: str(form.get(key, ""))[:MOST_WORDS] for key in ("host", "range", "until")}
    back = address("/query", **kept, source=source, said=why, **{"class": name})
    return RedirectResponse(f"{back}#review", 303)


PAGES = (
    Page("/queries", "queries.html", "Queries", _queries, menu=Menu(2, "Queries")),
    Page("/query", "query.html", lambda name: f"Query {name}", _query, _name),
)
ACTIONS = (
    Action("/query/plan", _plan, Role.OPERATOR),
    Action("/query/tables", _tables, Role.OPERATOR),
    Action("/query/review", _review, Role.OPERATOR),
)
TABLES = (
    Table(
        "classes",
        "Query classes",
        "Statements without their values, by time, compared with the range before.",
        tables.classes,
        ("host", "range", "until", "from", "to", "source", "q", "own", "sort", "order"),
    ),
)
