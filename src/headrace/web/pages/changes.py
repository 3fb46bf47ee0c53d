"""What changed on the hosts."""

from __future__ import annotations

from typing import Any

from headrace.web import tables
from headrace.web.page import Menu, Opened, Page, Table


async def _shows(opened: Opened) -> dict[str, Any]:
    return {"listing": await tables.changes(opened.site, opened.asked), "hosts": opened.site.hosts()}


PAGES = (Page("/changes", "changes.html", "Changes", _shows, menu=Menu(9, "Changes")),)
TABLES = (Table("changes", "Changes", "What changed on the hosts.", tables.changes),)
