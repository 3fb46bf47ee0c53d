"""A digest's report: its sections in their order. A new one is its file and a line here.

The page's size is bounded: classes beyond ``ranking.MOST_ROWS`` are a number, and only the first
``ranking.MOST_DETAILS`` are shown in detail.
"""

from __future__ import annotations

from headrace.analysis import traffic
from headrace.digests.classes import Digest
from headrace.report.digest import classes, course, coverage, ranking
from headrace.report.digest.jsonform import to_json
from headrace.report.digest.words import View, clock
from headrace.report.parts import Page, Section, method


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
            course.section(digest),
            ranking.section(digest, view),
            classes.section(digest, view),
            _method(),
        ],
        footer="it may show values that clients sent: samples are kept unchanged, without passwords",
        data=to_json(digest, view),
    )


def _lead(digest: Digest) -> str:
    group = f" by {', '.join(digest.group)}" if digest.group != ("class",) else ""
    when = f"{clock(digest.first_ns)} to {clock(digest.last_ns)} UTC" if digest.span_s else "no times"
    hosts = sorted({host for _, host in digest.sources if host})
    return " · ".join([when, f"{digest.mode} fingerprints{group}", *hosts[:4]])


def _method() -> Section:
    lines = (
        (
            "A class",
            "is every statement that is the same without its literals. Response time is from the first "
            "byte of a request to the last of its answer in a capture, and what the server says in a log.",
        ),
        (
            "Percentiles",
            "are of every call that was seen, by nearest rank, from a histogram whose buckets are 0.8% "
            "wide: no sample, no mean of means.",
        ),
        (
            "V/M",
            "is variance over mean in seconds: near 0 where calls take equally long, large where a few "
            "take much longer than the rest.",
        ),
        (
            "Apdex",
            f"at T: calls within T, plus half of those within {traffic.TOLERATED} T, of all. Only response "
            "times count; failed calls are listed separately.",
        ),
        (
            "Users, hosts and databases",
            "of a class are the first few by a hash of their name where it has many, so that parts merge "
            "exactly; their counts are whole.",
        ),
    )
    return Section("method", "What the numbers mean", "What the numbers mean", [method(lines)])
