"""All hosts, and one host."""

from __future__ import annotations

from typing import Any

from headrace.history import questions
from headrace.web import tables
from headrace.web.asked import Asked
from headrace.web.charts import CHARTS, CLIENTS, HEATS
from headrace.web.page import Menu, Opened, Page, Table, one_of_them
from headrace.web.site import Site


async def _hosts(opened: Opened) -> dict[str, Any]:
    asked = opened.asked
    listing = await tables.hosts(opened.site, asked)
    if asked.sort:
        listing = listing.sorted(asked.sort, descending=asked.descending)
    return {"listing": listing}


async def _host(opened: Opened) -> dict[str, Any]:
    site, asked = opened.site, opened.asked
    watched = site.watched(opened.subject)
    return {
        "row": (await tables.hosts(site, asked)).rows[0],
        "resources": await tables.resources(site, asked),
        "findings": await tables.findings(site, asked),
        "changes": await tables.changes(site, asked),
        "charts": await _charts(site, opened.subject, asked),
        "heats": HEATS,
        "is_watched": watched is not None,
        "facts": _facts(watched),
    }


async def _charts(site: Site, host: str, asked: Asked) -> dict[str, tuple[str, str]]:
    """Those of caches and of clients only where the history knows any in this range: most hosts have none."""
    span = asked.span()
    cache = await site.ask(questions.chart, site.reader, host, "memcached connections", span)
    is_timed = await site.ask(questions.has_client_times, site.reader, host, span)
    return {
        metric: how
        for metric, how in CHARTS.items()
        if (cache.lines or not metric.startswith("memcached ")) and (is_timed or metric != CLIENTS)
    }


def _facts(watched: Any) -> list[tuple[str, str]]:
    from headrace.host.facts import HostFacts
    from headrace.show.parts import plain

    if watched is None or watched.feed.facts is None:
        return []
    return [(name, plain(value)) for name, value in HostFacts(watched.feed.facts).digest()]


PAGES = (
    Page("/", "hosts.html", "Hosts", _hosts, menu=Menu(1, "Hosts")),
    Page("/host", "host.html", str, _host, one_of_them),
)
TABLES = (
    Table("hosts", "Hosts", "Each host, and what limits it now.", tables.hosts),
    Table("resources", "Resources", "Utilisation, saturation and errors over the range.", tables.resources),
    Table(
        "findings",
        "Findings",
        "Hypotheses of the last minute, each with the command that tests it.",
        tables.findings,
    ),
)
