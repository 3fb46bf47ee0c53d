"""What a host does at this moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.web import locks, tables
from headrace.web.page import Menu, Opened, Page, Table


async def _host(opened: Opened) -> Any:
    """The first one if none is asked for."""
    return opened.asked.host or opened.site.hosts()[0]


async def _shows(opened: Opened) -> dict[str, Any]:
    site, asked = opened.site, replace(opened.asked, host=opened.subject)
    return {
        "asked": asked,
        "running": await tables.running(site, asked),
        "waits": await locks.waits(site, asked),
        "hosts": site.hosts(),
    }


PAGES = (Page("/now", "now.html", lambda host: f"Now on {host}", _shows, _host, menu=Menu(3, "Now")),)
TABLES = (
    Table("running", "Running", "Statements that run now.", tables.running, ("host",)),
    Table("waits", "Lock waits", "Who waits for whose lock, now, as a tree.", locks.waits, ("host",)),
)
