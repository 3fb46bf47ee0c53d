"""What stands out on the hosts, and what did."""

from __future__ import annotations

from typing import Any

from headrace.web import tables
from headrace.web.page import Menu, Opened, Page, Table


async def _shows(opened: Opened) -> dict[str, Any]:
    return {"listing": await tables.alerts(opened.site, opened.asked), "hosts": opened.site.hosts()}


PAGES = (Page("/alerts", "alerts.html", "Alerts", _shows, menu=Menu(4, "Alerts")),)
TABLES = (Table("alerts", "Alerts", "What stands out on the hosts, and what did.", tables.alerts, ("host",)),)
