"""Traffic over time: calls and percentiles, every call in a heat map, and which classes the server worked on."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.digests.classes import Digest
from headrace.report import text
from headrace.report.charts import LINE_COLOURS
from headrace.report.digest import charts
from headrace.report.parts import Chart, Part, Section


def section(digest: Digest) -> Section:
    return Section("time", "Over time", "Over time", lambda: _parts(digest))


def _parts(digest: Digest) -> Iterator[Part]:
    has_times = bool(digest.span_s) and any(len(each.slices.start_ns) > 0 for each in digest.classes)
    if has_times:
        yield Chart(
            charts.over_time(digest),
            see="Calls a second, and percentiles of the calls that began in each slice. All times are UTC. The "
            "first and the last slice may be only partly in the capture.",
        )
    if digest.heat and digest.all.response.total:
        yield Chart(
            charts.heat_map(digest),
            "Every call by when it began and how long it took",
            "The darker (in a dark scheme: the brighter), the more calls, on a logarithmic scale. Two "
            "bands are two kinds of calls, or hits and misses of a cache; a column that reaches up is a "
            "stall.",
        )
    if has_times and digest.all.total_ns:
        yield Chart(
            charts.load(digest, digest.classes),
            "What the server worked on",
            "Response time a second of time, counted where a call began: how many calls were at work at "
            "once, on average.",
            list(_legend(digest)),
        )


def _legend(digest: Digest) -> Iterator[tuple[str, str, str]]:
    shown = digest.classes[: charts.MOST_LINES]
    for n, each in enumerate(shown):
        yield f"{n + 1} {text.short(each.fingerprint, 60)}", LINE_COLOURS[n], "area"
    if len(digest.classes) > len(shown):
        yield "all others", "@{muted}", "area"
