"""Long lists of queries are read before someone asks: the first time takes seconds, and the sums are kept."""

from __future__ import annotations

import asyncio
import logging

from headrace.web import tables
from headrace.web.asked import Asked
from headrace.web.site import Site

log = logging.getLogger("headrace.web")

RANGES = ("7d", "30d", "90d")
#: Hours become days, and days weeks, at most this often.
EVERY_S = 600.0
#: Between two questions, so that a page never waits for more than one.
PAUSE_S = 2.0


async def keep_warm(site: Site) -> None:
    """Until cancelled: the queries of all hosts."""
    while True:
        for each in RANGES:
            await asyncio.sleep(PAUSE_S)
            try:
                # Of as many classes as the page shows: sums of more are another answer, and take much longer.
                await tables.classes(site, Asked(range=each), most=tables.MOST_CLASSES)
            except Exception as error:
                # A page that needs it says what is wrong.
                log.debug("the queries of the last %s: %s", each, error)
        await asyncio.sleep(EVERY_S)
