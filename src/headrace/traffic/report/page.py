"""A digest's report: its sections in order.

A new section needs its own file and a line here.
"""

from __future__ import annotations

from headrace.show.parts import Page, Section, method
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest
from headrace.traffic.report import binary_log, classes, course, coverage, ranking
from headrace.traffic.report.jsonform import to_json
from headrace.traffic.report.words import View, clock


def page_of(digest: Digest, view: View) -> Page:
    names = [name for name, _ in digest.sources]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return Page(
        eyebrow="headrace digest",
        title=", ".join(names[:2]) + more,
        lead=_lead(digest),
        verdicts=[],
        sections=[
            coverage.section(digest, view),
            *binary_log.sections(digest),
            course.section(digest),
            ranking.section(digest, view),
            classes.section(digest, view),
            _method(),
        ],
        footer="it may show values sent by clients: samples are unchanged except that passwords are removed",
        data=to_json(digest, view),
    )


def _lead(digest: Digest) -> str:
    group = f" by {', '.join(digest.group)}" if digest.group != ("class",) else ""
    when = " to ".join(map(clock, digest.span_ns)) + " UTC" if digest.span_ns else "no times"
    hosts = sorted({host for _, host in digest.sources if host})
    return " · ".join([when, f"{digest.mode} fingerprints{group}", *hosts[:4]])


def _method() -> Section:
    lines = (
        (
            "A class",
            "is all statements that differ only in literals. In a capture, response time runs from the first "
            "byte of a request to the last byte of its answer; in a log, it is the server's figure.",
        ),
        (
            "Percentiles",
            "cover every call seen, by nearest rank, from a histogram with buckets 0.8% wide; nothing is "
            "sampled or averaged.",
        ),
        (
            "V/M",
            "is variance over mean in seconds: near 0 if calls take equally long, large if a few take much "
            "longer than the rest.",
        ),
        (
            "Apdex",
            f"at T: calls within T, plus half of those within {traffic.TOLERATED} T, as a share of all calls. "
            "Only response times count; failed calls are listed separately.",
        ),
        (
            "Users, hosts and databases",
            "of a class with many are chosen by a hash of their name, so that partial digests merge exactly; "
            "their counts are complete.",
        ),
    )
    return Section("method", "What the numbers mean", "What the numbers mean", [method(lines)])
