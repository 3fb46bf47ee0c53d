"""How full hosts are, and which databases could share one."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headrace.web import capacity, merged
from headrace.web.page import Action, Menu, Opened, Page, Table, report
from headrace.web.site import Site
from headrace.web.users import Role

NO_CATALOGUE = "without headrace serve --catalogue FILE there is no plan of a merge"


async def _capacity(opened: Opened) -> dict[str, Any]:
    listing = await capacity.listing(opened.site, opened.asked)
    return {"listing": listing, "has_catalogue": opened.site.catalogue is not None}


async def _report(site: Site, request: Request) -> Response:
    from headrace.show import html

    page = await capacity.report(site)
    if page is None:
        raise HTTPException(404, "no host has a history of its use yet")
    return report(await asyncio.to_thread(html.render, page))


async def _catalogue(opened: Opened) -> Any:
    if opened.site.catalogue is None:
        raise HTTPException(404, NO_CATALOGUE)


async def _merge(opened: Opened) -> dict[str, Any]:
    """The plan within the pages; while it is made, the frame."""
    await merged.report(opened.site)
    return {}


async def _merge_report(site: Site, request: Request) -> Response:
    from headrace.show import html

    page = await merged.report(site)
    if page is None:
        raise HTTPException(404, NO_CATALOGUE)
    return report(await asyncio.to_thread(html.render, page))


PAGES = (
    Page("/capacity", "capacity.html", "Capacity", _capacity, menu=Menu(8, "Capacity")),
    Page("/capacity/merge", "merge.html", "Merge", _merge, _catalogue),
)
ACTIONS = (
    Action("/capacity/report", _report, Role.VIEWER, ("GET",)),
    Action("/capacity/merge/report", _merge_report, Role.VIEWER, ("GET",)),
)
TABLES = (
    Table(
        "capacity",
        "Capacity",
        "How full hosts are at their peak, and until when.",
        capacity.listing,
        ("host",),
    ),
)
