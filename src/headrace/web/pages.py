"""The pages. Each has an address that can be shared; all their numbers are tables of ``tables``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.base.errors import HeadraceError
from headrace.history import questions
from headrace.history.archive.tables import PERFORMANCE_SCHEMA
from headrace.history.collect import plans
from headrace.web import (
    capacity,
    compare,
    finding,
    fleet_times,
    load,
    locks,
    merged,
    rates,
    rollouts,
    said,
    schema,
    tables,
)
from headrace.web.api import CHARTS, CLIENTS, HEATS
from headrace.web.asked import MOST_WORDS, Asked
from headrace.web.guard import address_of, needs
from headrace.web.listing import address
from headrace.web.reviews import STATES
from headrace.web.sessions import NOT_NOTED
from headrace.web.site import Site, one_host
from headrace.web.tables import MOST_CLASSES, TABLES
from headrace.web.templates import drawn
from headrace.web.users import Role

#: A report's own scripts are allowed by their hashes in it. Without an origin it can reach nothing here.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)

#: A page that takes longer is sent in two pieces: meanwhile a browser shows the frame and loads styles.
FRAME_AFTER_S = 0.03
#: nginx would keep the first piece back.
UNBUFFERED = {"x-accel-buffering": "no"}
FOR_A_COMMAND_LINE = ": explain one that runs, with --thread"
FOR_A_PAGE = "; a call that is kept from the slow log has a plan (headrace serve --examples)"
NO_CATALOGUE = "without headrace serve --catalogue FILE there is no plan of a merge"
#: In the templates, where the first piece ends.
FRAME_END = "<!--frame-->"


def routes(site: Site) -> list[Route]:
    pages, hands = Pages(site), rollouts.Hands(site)
    return [
        needs(Role.VIEWER, Route("/", pages.hosts)),
        needs(Role.VIEWER, Route("/host", pages.host)),
        needs(Role.VIEWER, Route("/finding", pages.finding)),
        needs(Role.VIEWER, Route("/queries", pages.queries)),
        needs(Role.VIEWER, Route("/query", pages.query)),
        needs(Role.OPERATOR, Route("/query/plan", pages.plan, methods=["POST"])),
        needs(Role.OPERATOR, Route("/query/tables", pages.tables, methods=["POST"])),
        needs(Role.OPERATOR, Route("/query/review", pages.review, methods=["POST"])),
        needs(Role.VIEWER, Route("/now", pages.now)),
        needs(Role.VIEWER, Route("/alerts", pages.alerts)),
        needs(Role.VIEWER, Route("/compare", pages.compare)),
        needs(Role.VIEWER, Route("/experiments", pages.experiments)),
        needs(Role.VIEWER, Route("/experiment", pages.experiment)),
        needs(Role.VIEWER, Route("/experiment/report", pages.report)),
        needs(Role.VIEWER, Route("/rollouts", pages.rollouts)),
        needs(Role.VIEWER, Route("/rollout", pages.rollout)),
        needs(Role.APPROVER, Route("/rollout/approve", hands.approve, methods=["POST"])),
        needs(Role.OPERATOR, Route("/rollout/abort", hands.abort, methods=["POST"])),
        needs(Role.VIEWER, Route("/capacity", pages.capacity)),
        needs(Role.VIEWER, Route("/capacity/report", pages.capacity_report)),
        needs(Role.VIEWER, Route("/capacity/merge", pages.capacity_merge)),
        needs(Role.VIEWER, Route("/capacity/merge/report", pages.capacity_merge_report)),
        needs(Role.VIEWER, Route("/changes", pages.changes)),
    ]


class Pages:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def _page(
        self, request: Request, name: str, title: str, work: Awaitable[dict[str, Any]]
    ) -> Response:
        """The page; if the history takes its time, the frame now, and the rest when it is read."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=FRAME_AFTER_S)
        if task.done():
            return HTMLResponse(self._drawn(request, name, title, await task))
        return StreamingResponse(
            self._in_pieces(request, name, title, task), media_type="text/html", headers=UNBUFFERED
        )

    def _drawn(self, request: Request, name: str, title: str, values: dict[str, Any]) -> str:
        asked = values.pop("asked", None) or Asked.of(request)
        return drawn(
            name, request, asked, self._site.collector.attention, title=title, tables=TABLES, **values
        )

    async def _in_pieces(
        self, request: Request, name: str, title: str, task: asyncio.Future[dict[str, Any]]
    ) -> AsyncIterator[str]:
        asked = Asked.of(request)
        try:
            yield drawn("frame.html", request, asked, "", title=title) + '<p class="loading">Reading …</p>'
            try:
                whole = self._drawn(request, name, title, await task)
            except (HeadraceError, HTTPException) as error:
                said = error.detail if isinstance(error, HTTPException) else str(error)
                whole = drawn("error.html", request, asked, "", title=title, error=said, status=0)
            yield whole.partition(FRAME_END)[2]
        finally:
            task.cancel()

    async def hosts(self, request: Request) -> Response:
        asked = Asked.of(request)

        async def work() -> dict[str, Any]:
            listing = await tables.hosts(self._site, asked)
            if asked.sort:
                listing = listing.sorted(asked.sort, descending=asked.descending)
            return {"listing": listing}

        return await self._page(request, "hosts.html", "Hosts", work())

    async def host(self, request: Request) -> Response:
        site, asked = self._site, Asked.of(request)
        [name] = one_host(site, asked)

        async def work() -> dict[str, Any]:
            watched = site.watched(name)
            return {
                "row": (await tables.hosts(site, asked)).rows[0],
                "resources": await tables.resources(site, asked),
                "findings": await tables.findings(site, asked),
                "changes": await tables.changes(site, asked),
                "charts": await self._charts(name, asked),
                "heats": HEATS,
                "is_watched": watched is not None,
                "facts": _facts(watched),
            }

        return await self._page(request, "host.html", name, work())

    async def _charts(self, host: str, asked: Asked) -> dict[str, tuple[str, str]]:
        """Those of caches and of clients only where the history knows any in this range: most hosts have none."""
        site, span = self._site, asked.span()
        cache = await site.ask(questions.chart, site.reader, host, "memcached connections", span)
        is_timed = await site.ask(questions.has_client_times, site.reader, host, span)
        return {
            metric: how
            for metric, how in CHARTS.items()
            if (cache.lines or not metric.startswith("memcached ")) and (is_timed or metric != CLIENTS)
        }

    async def finding(self, request: Request) -> Response:
        asked = Asked.of(request)
        one_host(self._site, asked)
        identity = request.query_params.get("id", "")[:MOST_WORDS]
        may = request.state.session.user.role >= Role.OPERATOR
        work = finding.page(self._site, asked, identity, may)
        return await self._page(request, "finding.html", identity, work)

    async def queries(self, request: Request) -> Response:
        site, asked = self._site, Asked.of(request)
        site.names(asked)

        async def work() -> dict[str, Any]:
            listing = await tables.classes(site, asked, MOST_CLASSES)
            by = request.query_params.get("by", "")
            return {
                "listing": listing, "hosts": site.hosts(), "load_by": load.BY,
                "by": by if by in load.BY else "wait",
            }  # fmt: skip

        return await self._page(request, "queries.html", "Queries", work())

    async def query(self, request: Request) -> Response:
        asked = Asked.of(request)
        self._site.names(asked)
        name = request.query_params.get("class", "")[:MOST_WORDS]
        may = request.state.session.user.role >= Role.OPERATOR
        return await self._page(request, "query.html", f"Query {name}", self._query(asked, name, may))

    async def _query(self, asked: Asked, name: str, may: bool) -> dict[str, Any]:
        site = self._site
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

    async def plan(self, request: Request) -> Response:
        """EXPLAIN on the server, in a read-only session with the agent's time limit; or why there is none."""
        form = request.state.form
        session = request.state.session
        host, source, name = (str(form.get(key, ""))[:200] for key in ("host", "source", "class"))
        watched = self._site.watched(host)
        about = f"{host} {source} {name}"
        if not self._site.audit.note(session.user.name, address_of(request), "plan", about):
            return JSONResponse({"error": NOT_NOTED}, 503)
        if watched is None:
            return JSONResponse({"error": "this host is not watched now"}, 404)
        try:
            example = None
            if source != PERFORMANCE_SCHEMA:
                span = Asked(range="7d").span()
                example = await self._site.ask(
                    questions.example, self._site.reader, [host], span, source, name
                )
            return JSONResponse({"text": await plans.ask(watched, source, name, example)})
        except HeadraceError as error:
            # The agent's advice is for a command line.
            return JSONResponse({"error": error.message.replace(FOR_A_COMMAND_LINE, FOR_A_PAGE)})

    async def tables(self, request: Request) -> Response:
        """Sizes and indexes of a class's tables, asked for on the server; or why they are unknown."""
        form, session = request.state.form, request.state.session
        host, source, name = (str(form.get(key, ""))[:MOST_WORDS] for key in ("host", "source", "class"))
        watched = self._site.watched(host)
        about = f"{host} {source} {name}"
        if not self._site.audit.note(session.user.name, address_of(request), "tables", about):
            return JSONResponse({"error": NOT_NOTED}, 503)
        if watched is None:
            return JSONResponse({"error": "this host is not watched now"}, 404)
        row = await tables.one_class(self._site, Asked(host=host, range="7d"), source, name)
        if row is None:
            return JSONResponse({"error": "this class was not seen there in the last 7 days"}, 404)
        try:
            wanted = [row[key].split(", ") if row[key] else [] for key in ("tables", "databases")]
            span = Asked(range="7d").span()
            example = await self._site.ask(questions.example, self._site.reader, [host], span, source, name)
            text = example["text"] if example else row["text"]
            return JSONResponse({"text": await schema.ask(watched, wanted[0], wanted[1], text)})
        except HeadraceError as error:
            return JSONResponse({"error": error.message})

    async def review(self, request: Request) -> Response:
        """A note about a class; then its page again."""
        form, user = request.state.form, request.state.session.user
        source, name, state = (str(form.get(key, ""))[:MOST_WORDS] for key in ("source", "class", "state"))
        why = ""
        try:
            comment = str(form.get("comment", ""))
            await asyncio.to_thread(self._site.reviews.add, user.name, source, name, state, comment)
        except HeadraceError as error:
            why = str(error)
        about = f"{source} {name} {why}".strip()
        self._site.audit.note(user.name, address_of(request), "review", about, ok=not why)
        kept = {key: str(form.get(key, ""))[:MOST_WORDS] for key in ("host", "range", "until")}
        back = address("/query", **kept, source=source, said=why, **{"class": name})
        return RedirectResponse(f"{back}#review", 303)

    async def now(self, request: Request) -> Response:
        asked = Asked.of(request)
        hosts = self._site.hosts()
        if not asked.host:
            asked = Asked(host=hosts[0], range=asked.range)

        async def work() -> dict[str, Any]:
            return {
                "asked": asked,
                "running": await tables.running(self._site, asked),
                "waits": await locks.waits(self._site, asked),
                "hosts": hosts,
            }

        return await self._page(request, "now.html", f"Now on {asked.host}", work())

    async def alerts(self, request: Request) -> Response:
        asked = Asked.of(request)
        self._site.names(asked)

        async def work() -> dict[str, Any]:
            return {"listing": await tables.alerts(self._site, asked), "hosts": self._site.hosts()}

        return await self._page(request, "alerts.html", "Alerts", work())

    async def compare(self, request: Request) -> Response:
        asked = Asked.of(request)
        self._site.names(asked)

        async def work() -> dict[str, Any]:
            found = await compare.compared(self._site, asked, request.query_params)
            return {"hosts": self._site.hosts(), "found": found}

        return await self._page(request, "compare.html", "Compare", work())

    async def experiments(self, request: Request) -> Response:
        asked = Asked.of(request)

        async def work() -> dict[str, Any]:
            return {"listing": await tables.experiments(self._site, asked)}

        return await self._page(request, "experiments.html", "Experiments", work())

    async def experiment(self, request: Request) -> Response:
        asked = Asked.of(request)
        identity = request.query_params.get("id", "")
        path = await asyncio.to_thread(self._folder, identity)

        async def work() -> dict[str, Any]:
            rows = (await tables.experiments(self._site, asked)).rows
            row = next(each for each in rows if each["id"] == identity)
            return {"row": row, "folder": str(path), "has_report": _report_of(path) is not None}

        return await self._page(request, "experiment.html", identity, work())

    async def rollouts(self, request: Request) -> Response:
        asked = Asked.of(request)

        async def work() -> dict[str, Any]:
            return {"listing": await rollouts.listing(self._site, asked)}

        return await self._page(request, "rollouts.html", "Rollouts", work())

    async def rollout(self, request: Request) -> Response:
        book = await asyncio.to_thread(rollouts.opened, request.query_params.get("id", "")[:80])

        async def work() -> dict[str, Any]:
            said = request.query_params.get("said", "")[:MOST_WORDS]
            shown = await asyncio.to_thread(rollouts.shown, book)
            return {**shown, "times": await fleet_times.section(self._site, book), "said": said}

        return await self._page(request, "rollout.html", f"Rollout {book.plan.id}", work())

    async def report(self, request: Request) -> Response:
        folder = await asyncio.to_thread(self._folder, request.query_params.get("id", ""))
        path = _report_of(folder)
        try:
            content = await asyncio.to_thread(path.read_text, encoding="utf-8") if path else ""
        except OSError:
            content = ""
        if not content:
            raise HTTPException(404, "this experiment has no report yet")
        return _report(content)

    def _folder(self, identity: str) -> Any:
        """One that the list has: an address is never joined to a path."""
        for path in self._site.experiment_folders():
            if str(path.relative_to(self._site.experiments)) == identity:
                return path
        raise HTTPException(404, "no such experiment")

    async def capacity(self, request: Request) -> Response:
        asked = Asked.of(request)
        self._site.names(asked)

        async def work() -> dict[str, Any]:
            listing = await tables.TABLES["capacity"].read(self._site, asked)
            return {"listing": listing, "has_catalogue": self._site.catalogue is not None}

        return await self._page(request, "capacity.html", "Capacity", work())

    async def capacity_report(self, request: Request) -> Response:
        from headrace.show import html

        page = await capacity.report(self._site)
        if page is None:
            raise HTTPException(404, "no host has a history of its use yet")
        return _report(await asyncio.to_thread(html.render, page))

    async def capacity_merge(self, request: Request) -> Response:
        """The plan within the pages; while it is made, the frame."""
        if self._site.catalogue is None:
            raise HTTPException(404, NO_CATALOGUE)

        async def work() -> dict[str, Any]:
            await merged.report(self._site)
            return {}

        return await self._page(request, "merge.html", "Merge", work())

    async def capacity_merge_report(self, request: Request) -> Response:
        from headrace.show import html

        page = await merged.report(self._site)
        if page is None:
            raise HTTPException(404, NO_CATALOGUE)
        return _report(await asyncio.to_thread(html.render, page))

    async def changes(self, request: Request) -> Response:
        asked = Asked.of(request)
        self._site.names(asked)

        async def work() -> dict[str, Any]:
            return {"listing": await tables.changes(self._site, asked), "hosts": self._site.hosts()}

        return await self._page(request, "changes.html", "Changes", work())


def _report_of(folder: Path) -> Path | None:
    """Its report, if there is one. Not a link: it could lead an experiment from others to any file of ours."""
    path = folder / "report.html"
    return path if path.is_file() and not path.is_symlink() else None


def _report(content: str) -> Response:
    """A page that was made elsewhere, with scripts of its own."""
    return HTMLResponse(
        content, headers={"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    )


def _facts(watched: Any) -> list[tuple[str, str]]:
    from headrace.host.facts import HostFacts
    from headrace.show.parts import plain

    if watched is None or watched.feed.facts is None:
        return []
    return [(name, plain(value)) for name, value in HostFacts(watched.feed.facts).digest()]
