"""The findings of many hosts: ranked, with the hosts that have them, and the odd ones out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.fleet.causes import groups, sentences
from headrace.fleet.findings import Findings, severities
from headrace.fleet.folded import named
from headrace.host.ranges import fold
from headrace.hunt.report.words import SEVERITY_STYLE
from headrace.show.parts import Cell, Cells, Gap, Heading, Part, Sentence, Sentences, Table


def parts(found: Findings) -> Iterator[Part]:
    total = len(found.verdicts)
    if not total:
        return
    yield Gap()
    if said := list(sentences(found.causes, found.verdicts)):
        yield Heading("What limits them")
        yield Sentences(said)
        yield Gap()
    yield from _no_server(found)
    rows: list[Cells] = []
    for common in found.ranked():
        counts = severities(common)
        words = ", ".join(
            f"{count} {severity}" if len(counts) > 1 else str(severity) for severity, count in counts
        )
        # One that names an index rather than one that does not; the index is for that host's own statement.
        host = next(
            (host for host in common.examples if common.indexes.get(host)), next(iter(common.examples))
        )
        example = common.examples[host]
        if common.indexes.get(host):
            example = f"{example} On {host} try an index on {common.indexes[host][0]}."
        rows.append(
            [
                Cell(common.code, style="bold"),
                Cell(words, style=SEVERITY_STYLE[common.worst]),
                str(len(common.hosts)),
                named(tuple(common.hosts), total),
                f"{common.title}: {example}",
            ]
        )
    if not rows:
        yield Sentence("No finding on any host.", "verdict")
        return
    columns = (
        ("rule", ""),
        ("severity", ""),
        ("hosts", "n"),
        ("which", "wrap"),
        ("finding, for example", "wrap"),
    )
    yield Table(columns, rows)
    if odd := found.odd():
        yield Gap()
        yield Heading("The odd ones out")
        yield Sentences(
            [
                f"{fold(hosts)} {'alone' if few_have else 'not'}: {common.code}, {common.title[0].lower()}"
                f"{common.title[1:]}"
                for common, few_have, hosts in odd
            ]
        )


def _no_server(found: Findings) -> Iterator[Part]:
    """Hosts of which only the machine was looked at, by reason."""
    by_reason: dict[str, list[str]] = {}
    for host, why in found.no_server.items():
        by_reason.setdefault(why, []).append(host)
    if by_reason:
        words = "; ".join(f"{fold(hosts)}: {why}" for why, hosts in by_reason.items())
        yield Sentence(f"The server was not queried, so only the host was examined: {words}.")
        yield Gap()


def to_json(found: Findings) -> dict[str, Any]:
    return {
        "findings": [
            {
                "code": common.code,
                "title": common.title,
                "severity": str(common.worst),
                "hosts": {host: str(severity) for host, severity in common.hosts.items()},
                "examples": dict(common.examples),
                "indexes": {host: list(each) for host, each in common.indexes.items()},
            }
            for common in found.ranked()
        ],
        "groups": [
            {"cause": group.words, "hosts": list(group.hosts), "example": group.example}
            for group in groups(found.causes, found.verdicts)
        ],
        "odd": [
            {"code": common.code, "few": "have it" if few_have else "lack it", "hosts": list(hosts)}
            for common, few_have, hosts in found.odd()
        ],
        "no_server": dict(found.no_server),
        "verdicts": dict(found.verdicts),
    }
