"""Two ranges of time, or two hosts."""

from __future__ import annotations

from typing import Any

from headrace.web import compare
from headrace.web.page import Menu, Opened, Page


async def _shows(opened: Opened) -> dict[str, Any]:
    compared = await compare.compared(opened.site, opened.asked, opened.request.query_params)
    return {"hosts": opened.site.hosts(), "found": compared}


PAGES = (Page("/compare", "compare.html", "Compare", _shows, menu=Menu(5, "Compare")),)
