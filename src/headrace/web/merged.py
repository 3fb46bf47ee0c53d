"""Which databases could share a host: `headrace size merge` on the history that is collected here.

The catalogue of hosts is that of ``serve --catalogue``. Hosts that replicate with each other are one group. A host
of today is of the type that one of its tags names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.fleet.topology import links
from headrace.history.archive.reader import Reader
from headrace.web.site import Site

if TYPE_CHECKING:
    from headrace.show.parts import Page

#: How long the search for a better plan may take: it is made while pages are answered.
SEARCH_S = 5.0


async def report(site: Site) -> Page | None:
    """The page of the plan, which is made once an hour at most; None without a catalogue.

    Raises HeadraceError for a catalogue that cannot be read, and for a history without use.
    """
    catalogue = site.catalogue
    if catalogue is None:
        return None

    async def work() -> Page:
        told = {
            name: (watched.host.spec.host, links(watched.feed.facts.data))
            for name in site.hosts()
            if (watched := site.watched(name)) is not None and watched.feed.facts is not None
        }
        tags = {name: watched.host.tags for name, watched in site.collector.hosts.items()}
        return await site.ask(_planned, site.reader, catalogue, groups(told), tags)

    found: Page = await site.merged.ask(work)
    return found


def groups(told: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
    """Host -> its address and what it replicates with, as sets of hosts that replicate with each other."""
    by_name = {name: host for host, (address, _) in told.items() for name in (host, address)}
    group_of = {host: {host} for host in told}
    for host, (_, said) in told.items():
        for name in said["links"]:
            other = by_name.get(name, host)
            if group_of[other] is not group_of[host]:
                group_of[host] |= group_of[other]
                for member in group_of[other]:
                    group_of[member] = group_of[host]
    found = {id(members): sorted(members) for members in group_of.values() if len(members) > 1}
    return list(found.values())


def types(tags: Mapping[str, Collection[str]], names: Collection[str]) -> dict[str, str]:
    """Host -> its type in the catalogue, which has these names; a host that two of its tags name has none."""
    found = {host: [tag for tag in own if tag in names] for host, own in tags.items()}
    return {host: own[0] for host, own in found.items() if len(own) == 1}


def _planned(
    reader: Reader, catalogue: Path, replicated: list[list[str]], tags: Mapping[str, Collection[str]]
) -> Page:
    from headrace.capacity import catalogue as catalogues
    from headrace.capacity import history
    from headrace.capacity.measured import table_of
    from headrace.capacity.plan import Asked, plan
    from headrace.capacity.report.merge import page_of

    histories = history.of_archive(reader.archive, with_calls=False)
    known = {each.host for each in histories}
    offered = catalogues.read(catalogue)
    table = table_of(
        histories,
        [group for each in replicated if len(group := [h for h in each if h in known]) > 1],
        types(tags, {offer.capacity.name for offer in offered.offers}),
    )
    return page_of(plan(table, offered, Asked(seconds=SEARCH_S)))
