"""How full hosts are at their peak, and until when: `headrace size full` on the history that is collected here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.model import Facts
from headrace.history.archive.reader import Reader
from headrace.host.facts import HostFacts
from headrace.web.asked import Asked
from headrace.web.listing import Column, Listing
from headrace.web.site import Site

if TYPE_CHECKING:
    from headrace.capacity.full import Host, Together
    from headrace.capacity.outlook import Outlook
    from headrace.show.parts import Page


@dataclass(frozen=True)
class Found:
    hosts: Sequence[Host] = ()
    together: Sequence[Together] = ()


async def _found(site: Site) -> Found:
    async def work() -> Found:
        facts = {
            name: watched.feed.facts
            for name in site.hosts()
            if (watched := site.watched(name)) is not None and watched.feed.facts is not None
        }
        return await site.ask(_read, site.reader, facts)

    found: Found = await site.capacity.ask(work)
    return found


def _read(reader: Reader, facts: dict[str, Facts]) -> Found:
    from headrace.capacity import capacity, full, history

    histories = history.of_archive(reader.archive, with_calls=False)
    known = {
        each.host: capacity.known(
            each.host, each.limits, HostFacts(facts[each.host]) if each.host in facts else None
        )
        for each in histories
    }
    hosts = [full.outlook(each, known[each.host]) for each in histories]
    return Found(hosts, full.together(histories, known))


async def listing(site: Site, asked: Asked) -> Listing:
    """Each resource of each host, those that are full first."""
    from headrace.capacity.report.full import by_urgency

    names = set(site.names(asked))
    found = await _found(site)
    rows = [
        _row(host, each) for host in by_urgency(found.hosts) if host.name in names for each in host.outlooks
    ]
    columns = (
        Column("host", "Host", link=lambda row: asked.address("/host", host=row["host"], sort="")),
        Column("resource", "Resource"),
        Column(
            "share",
            "Share of knee",
            "share",
            "the usual peak, or the highest of the last days, relative to the knee",
        ),
        Column("full", "Full", "chip", "now, a date, or why there is no date"),
        Column("between", "Between", "text", "95% interval of the date"),
        Column("peak", "Peak"),
        Column("highest", "Highest", "text", "the highest minute that was seen, and its day"),
        Column("mean", "Mean"),
        Column("knee", "Knee", "text", "the load up to which response times stay acceptable"),
        Column("growth", "Growth per month", "text"),
        Column("knee_from", "How the knee is known", "text"),
    )
    note = (
        "Based on the busiest minute of each day, over the whole history. headrace size full also uses "
        "limits of packets and devices from headrace latencies, and knees from sweeps. Which databases "
        f"could share one: headrace size merge {shlex.quote(str(site.reader.archive.root))} --catalogue hosts.csv."
    )
    return Listing(columns, rows, note, "No host has a history of its use yet.")


def _row(host: Host, each: Outlook) -> dict[str, Any]:
    from headrace.capacity.report.words import amount, dates, name, on, when

    growth = each.growth.a_month.estimate if each.growth is not None else None
    return {
        "host": host.name,
        "resource": name(each.resource),
        "share": 1 / each.room,
        "full": when(host.end_s, each),
        "between": dates(host.end_s, each),
        "peak": amount(each.resource, each.peak),
        "highest": f"{amount(each.resource, each.seen.highest)}, {on(each.seen.on_s)}",
        "mean": amount(each.resource, each.mean),
        "knee": amount(each.resource, each.full_at.estimate),
        "growth": "" if growth is None else f"{growth:+z.1%}",
        "knee_from": each.knee_from,
    }


async def report(site: Site) -> Page | None:
    """The page of `headrace size full`, with charts; None without a history."""
    from headrace.capacity.report.full import page_of

    found = await _found(site)
    if not any(host.outlooks for host in found.hosts):
        return None
    return page_of(found.hosts, found.together)
