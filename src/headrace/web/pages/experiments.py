"""Experiments of this machine, and their reports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headrace.web import tables
from headrace.web.page import Action, Menu, Opened, Page, Table, report
from headrace.web.site import Site
from headrace.web.users import Role


async def _experiments(opened: Opened) -> dict[str, Any]:
    return {"listing": await tables.experiments(opened.site, opened.asked)}


async def _identity(opened: Opened) -> Any:
    identity = opened.request.query_params.get("id", "")
    await asyncio.to_thread(_folder, opened.site, identity)
    return identity


async def _experiment(opened: Opened) -> dict[str, Any]:
    path = await asyncio.to_thread(_folder, opened.site, opened.subject)
    rows = (await tables.experiments(opened.site, opened.asked)).rows
    row = next(each for each in rows if each["id"] == opened.subject)
    return {"row": row, "folder": str(path), "has_report": _report_of(path) is not None}


async def _report(site: Site, request: Request) -> Response:
    folder = await asyncio.to_thread(_folder, site, request.query_params.get("id", ""))
    path = _report_of(folder)
    try:
        content = await asyncio.to_thread(path.read_text, encoding="utf-8") if path else ""
    except OSError:
        content = ""
    if not content:
        raise HTTPException(404, "this experiment has no report yet")
    return report(content)


def _folder(site: Site, identity: str) -> Path:
    """One that the list has: an address is never joined to a path."""
    for path in site.experiment_folders():
        if str(path.relative_to(site.experiments)) == identity:
            return path
    raise HTTPException(404, "no such experiment")


def _report_of(folder: Path) -> Path | None:
    """Its report, if there is one. Not a link: it could lead an experiment from others to any file of ours."""
    path = folder / "report.html"
    return path if path.is_file() and not path.is_symlink() else None


PAGES = (
    Page("/experiments", "experiments.html", "Experiments", _experiments, menu=Menu(6, "Experiments")),
    Page("/experiment", "experiment.html", str, _experiment, _identity),
)
ACTIONS = (Action("/experiment/report", _report, Role.VIEWER, ("GET",)),)
TABLES = (Table("experiments", "Experiments", "Experiments on this machine.", tables.experiments, ()),)
