"""Traffic over time: calls and percentiles, a heat map of all calls, and the load by class."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.show import text
from headrace.show.charts import LINE_COLOURS
from headrace.show.parts import Chart, Part, Section
from headrace.traffic.digests.classes import Digest
from headrace.traffic.report import charts


def section(digest: Digest) -> Section:
    return Section("time", "Over time", "Over time", lambda: _parts(digest))


def _parts(digest: Digest) -> Iterator[Part]:
    has_times = digest.first_ns != digest.last_ns and any(
        len(each.slices.start_ns) > 0 for each in digest.classes
    )
    if has_times:
        yield Chart(
            charts.over_time(digest),
            see=(
                "Calls per second, and percentiles of the calls that started in each slice. All times are "
                "UTC. The capture may cover only part of the first and the last slice."
            ),
        )
    if digest.heat and digest.all.response.total:
        yield Chart(
            charts.heat_map(digest),
            "Every call by start time and duration",
            "Darker (in a dark scheme: brighter) means more calls, on a logarithmic scale. Two bands are two "
            "kinds of calls, or cache hits and misses; a tall column is a stall.",
        )
    if has_times and digest.all.total_ns:
        yield Chart(
            charts.load(digest, digest.classes),
            "What the server worked on",
            "Response time per second, counted at the start of each call: the average number of concurrent "
            "calls.",
            list(_legend(digest)),
        )


def _legend(digest: Digest) -> Iterator[tuple[str, str, str]]:
    shown = digest.classes[: charts.MOST_LINES]
    for n, each in enumerate(shown):
        yield f"{n + 1} {text.short(each.fingerprint, 60)}", LINE_COLOURS[n], "area"
    if len(digest.classes) > len(shown):
        yield "all others", "@{muted}", "area"
