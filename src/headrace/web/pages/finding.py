"""One finding of a host."""

from __future__ import annotations

from typing import Any

from headrace.web import finding
from headrace.web.page import Opened, Page, one_of_them


async def _identity(opened: Opened) -> Any:
    await one_of_them(opened)
    return opened.word("id")


async def _shows(opened: Opened) -> dict[str, Any]:
    return await finding.page(opened.site, opened.asked, opened.subject, opened.may_operate)


PAGES = (Page("/finding", "finding.html", str, _shows, _identity),)
