"""``/api``: every table as JSON and CSV, charts as JSON, and the description of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace import __version__
from headrace.history import questions
from headrace.web import load
from headrace.web.asked import MOST_WORDS, RANGES, Asked
from headrace.web.charts import CHARTS, CLIENTS, HEATS
from headrace.web.guard import needs
from headrace.web.listing import KINDS
from headrace.web.page import Table
from headrace.web.pages import TABLES
from headrace.web.site import Site, one_host
from headrace.web.users import Role

_PARAMETERS: Mapping[str, tuple[str, Any]] = {
    "host": ("A host's name. Without it: all hosts, where that makes sense.", {"type": "string"}),
    "range": ("How long.", {"type": "string", "enum": list(RANGES), "default": "1h"}),
    "until": (
        "Its end: seconds since 1970, or a time such as 2026-11-22T23:40Z. Default: now.",
        {"type": "string"},
    ),
    "source": ("performance_schema, process list or slow log. Default: the best one.", {"type": "string"}),
    "q": ("Only classes with this text in the statement, its tables or its id.", {"type": "string"}),
    "own": (
        "1: include monitoring statements: headrace's own, and those of other monitors.",
        {"type": "string", "enum": ["1"]},
    ),
    "sort": ("A column's name.", {"type": "string"}),
    "order": ("asc or desc.", {"type": "string", "enum": ["asc", "desc"]}),
    "class": ("A class's id, with its source.", {"type": "string"}),
    "from": ("Only the part of the range that starts here: a time as in until.", {"type": "string"}),
    "to": ("Its end.", {"type": "string"}),
    "by": (
        "What tells sessions apart.",
        {"type": "string", "enum": list(load.BY), "default": "wait"},
    ),
    "metric": ("A metric of the history, such as `cpu`.", {"type": "string"}),
    "rollout": ("A rollout's id.", {"type": "string"}),
    "of": (
        "Its hosts: at each time the slowest one, or all with the same weight.",
        {"type": "string", "enum": ["worst", "average"], "default": "average"},
    ),
    "finding": (
        "A finding's id, in place of a metric: the share of the judged minutes in which it stood.",
        {"type": "string"},
    ),
}
MOST_LINES = 12


def routes(site: Site) -> list[Route]:
    found = [
        needs(Role.VIEWER, Route("/api", _described)),
        needs(Role.VIEWER, Route("/api/openapi.json", _described)),
        needs(Role.VIEWER, Route("/api/chart.json", _Chart(site).answer)),
        needs(Role.VIEWER, Route("/api/heat.json", _Heat(site).answer)),
        needs(Role.VIEWER, Route("/api/load.json", _Load(site).answer)),
    ]
    for table in TABLES.values():
        answers = _Answers(site, table)
        found.append(needs(table.role, Route(f"/api/{table.name}.json", answers.as_json)))
        found.append(needs(table.role, Route(f"/api/{table.name}.csv", answers.as_csv)))
    return found


class _Answers:
    def __init__(self, site: Site, table: Table) -> None:
        self._site, self._table = site, table

    async def as_json(self, request: Request) -> Response:
        listing = await self._read(request)
        return JSONResponse(listing.to_json())

    async def as_csv(self, request: Request) -> Response:
        listing = await self._read(request)
        name = f'attachment; filename="headrace-{self._table.name}.csv"'
        return Response(listing.to_csv(), media_type="text/csv", headers={"content-disposition": name})

    async def _read(self, request: Request) -> Any:
        asked = Asked.of(request)
        listing = await self._table.read(self._site, asked)
        return listing.sorted(asked.sort, descending=asked.descending) if asked.sort else listing


class _Chart:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def answer(self, request: Request) -> Response:
        """Means and extremes per point, at most as many points as a screen has pixels for; null is a gap."""
        asked = Asked.of(request)
        [host] = one_host(self._site, asked)
        metric = request.query_params.get("metric", "cpu")[:80]
        if identity := request.query_params.get("finding", "")[:MOST_WORDS]:
            stood = await self._site.ask(questions.stood, self._site.reader, host, identity, asked.span())
            found, metric, kind = stood.chart, f"finding {identity}", "share"
        else:
            site, span = self._site, asked.span()
            found = await (
                site.ask(questions.client_times, site.reader, host, span)
                if metric == CLIENTS
                else site.ask(questions.chart, site.reader, host, metric, span)
            )
            kind = CHARTS.get(metric, ("", "n"))[1]
        lines = sorted(found.lines, key=lambda line: -sum(value or 0 for value in line.mean))
        return JSONResponse(
            {
                "host": host,
                "metric": metric,
                "kind": kind,
                "unit_s": found.unit_s,
                "t_s": found.t_s,
                "left_out": max(len(lines) - MOST_LINES, 0),
                "lines": [vars(line) for line in lines[:MOST_LINES]],
            }
        )


class _Load:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def answer(self, request: Request) -> Response:
        """Average active sessions over the whole range, whatever part of it is selected; null is a gap."""
        asked = Asked.of(request)
        return JSONResponse(await load.load(self._site, asked, request.query_params.get("by", "")))


class _Heat:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def answer(self, request: Request) -> Response:
        """A row per core or device; with ``class`` a row per band of latencies. null: nothing is known."""
        site, asked = self._site, Asked.of(request)
        if name := request.query_params.get("class", "")[:MOST_WORDS]:
            found = await site.ask(
                questions.latency_heat, site.reader, site.names(asked), asked.span(), asked.source, name
            )
            kind, most = "latency", None
        else:
            [host] = one_host(site, asked)
            metric = request.query_params.get("metric", "cores")[:80]
            found = await site.ask(questions.heat, site.reader, host, metric, asked.span())
            _, kind, most = HEATS.get(metric, ("", "n", None))
        return JSONResponse({"kind": kind, "most": most, **vars(found)})


async def _described(request: Request) -> Response:
    return JSONResponse({**openapi(), "servers": [{"url": request.state.private or "/"}]})


def openapi() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for table in TABLES.values():
        parameters = [_parameter(name) for name in table.takes]
        for ending, media in (("json", "application/json"), ("csv", "text/csv")):
            paths[f"/api/{table.name}.{ending}"] = {
                "get": {
                    "summary": table.title,
                    "description": f"{table.about} Needs the role {table.role.word}.",
                    "parameters": parameters,
                    "responses": _responses(media),
                }
            }
    paths["/api/chart.json"] = {
        "get": {
            "summary": "A metric over time",
            "description": f"Metrics: {', '.join(CHARTS)}.",
            "parameters": [_parameter(name) for name in ("host", "range", "until", "metric", "finding")],
            "responses": _responses("application/json"),
        }
    }
    paths["/api/heat.json"] = {
        "get": {
            "summary": "A heat map over time",
            "description": f"Metrics: {', '.join(HEATS)}; or the latencies of a class of a source. "
            "The label of a band of latencies is where it starts, in nanoseconds.",
            "parameters": [
                _parameter(name) for name in ("host", "range", "until", "metric", "source", "class")
            ],
            "responses": _responses("application/json"),
        }
    }
    paths["/api/load.json"] = {
        "get": {
            "summary": "Load over time",
            "description": "Average active sessions: how many were at work at any moment, and the CPUs.",
            "parameters": [_parameter(name) for name in ("host", "range", "until", "by", "own")],
            "responses": _responses("application/json"),
        }
    }
    paths["/api/fleet_times.json"] = {
        "get": {
            "summary": "What clients waited for on the hosts of a rollout",
            "description": "Percentiles in seconds, before, in and after it; each class of calls keeps the share "
            "that it had before the change.",
            "parameters": [_parameter(name) for name in ("rollout", "of")],
            "responses": _responses("application/json"),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": __version__,
            "description": "Latencies are nanoseconds, times seconds since 1970 (UTC), shares 0 to 1; what is not "
            "known is null. " + "; ".join(f"{kind}: {unit}" for kind, (_, unit) in KINDS.items() if unit),
        },
        "components": {
            "securitySchemes": {"session": {"type": "apiKey", "in": "cookie", "name": "headrace"}}
        },
        "security": [{"session": []}],
        "paths": paths,
    }


def _parameter(name: str) -> dict[str, Any]:
    about, schema = _PARAMETERS[name]
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}


def _responses(media: str) -> dict[str, Any]:
    return {
        "200": {"description": "The rows.", "content": {media: {}}},
        "400": {"description": "A parameter is wrong."},
        "401": {"description": "No session."},
        "403": {"description": "The role is not sufficient."},
    }
