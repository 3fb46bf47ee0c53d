"""What was seen: first in every report, so that a ranking of half the traffic is recognised as such."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.parts import Gap, Key, Keys, Part, Section, Sentence, Sentences
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest
from headrace.traffic.report.classes import attribute_table
from headrace.traffic.report.words import (
    View,
    attributes,
    coverage_lines,
    duration,
    names_line,
    nothing_lines,
    overall,
    percent,
    place_text,
    rest_lines,
    short_number,
)

#: Sources and damaged places listed on a terminal.
MOST_SOURCES, MOST_PLACES = 3, 5


def section(digest: Digest, view: View) -> Section:
    said: list[Part] = [Gap(), Sentence(overall(digest, view), "verdict"), Gap()]
    if rows := attributes(digest.all):
        said += [attribute_table(rows), Gap()]
    brief = [*lines(digest), *said]
    return Section("coverage", "Coverage", "What was seen", lambda: _parts(digest, view), brief=brief)


def _parts(digest: Digest, view: View) -> Iterator[Part]:
    found = [(line, "lost") for line in (*rest_lines(digest), *nothing_lines(digest))]
    found += [(line, "lost" if is_loss else "") for line, is_loss in coverage_lines(digest)]
    found += [(line, "") for line in [names_line(digest)] if line]
    found += [(place_text(place), "lost place") for place in digest.places]
    found += [(f"filtered: {dict(each)}", "lost") for each in digest.filters]
    yield Sentences([line for line, _ in found], "coverage", [look for _, look in found])
    yield Sentence(overall(digest, View(objective_ns=view.objective_ns)), "verdict")
    yield Keys(list(_keys(digest, view)))
    if rows := attributes(digest.all):
        yield attribute_table(rows)


def lines(digest: Digest) -> Iterator[Part]:
    """For a terminal."""
    sources = [f"{name} ({host})" if host else name for name, host in digest.sources]
    more = f" and {len(sources) - MOST_SOURCES} more" if len(sources) > MOST_SOURCES else ""
    group = "" if digest.group == ("class",) else f", by {', '.join(digest.group)}"
    for line in (*rest_lines(digest), *nothing_lines(digest)):
        yield Sentence(line, "attention")
    yield Sentence(f"{'; '.join(sources[:MOST_SOURCES])}{more} · {digest.mode} fingerprints{group}", "aside")
    for line, is_loss in coverage_lines(digest):
        yield Sentence(line, "attention" if is_loss else "aside")
    if line := names_line(digest):
        yield Sentence(line, "attention")
    for place in digest.places[:MOST_PLACES]:
        yield Sentence(f"    {place_text(place)}", "attention")
    rest = digest.coverage.get("damaged", 0) - min(len(digest.places), MOST_PLACES)
    if digest.places and rest > 0:
        yield Sentence(f"    and {rest:,} more", "attention")


def _keys(digest: Digest, view: View) -> Iterator[Key]:
    """The key figures."""
    every = digest.all
    rate = every.count / digest.span_s if digest.span_s else None
    span = text.seconds(digest.span_s) if digest.span_s else "no times"
    yield Key("Calls", short_number(every.count), f"{short_number(rate)}/s over {span}")
    if every.total_ns:
        p99 = text.milliseconds(traffic.percentile_ns(every, "p99"))
        mean = text.milliseconds(traffic.mean_ns(every))
        most = text.milliseconds(every.number("response_ns").most)
        yield Key("p99 response time", f"{p99} ms", f"mean {mean}, max {most} ms")
    yield Key("Classes", f"{len(digest.classes):,}", _concentration(digest))
    unanswered = every.number("unanswered").count
    calls = "the source does not report it" if every.failed is None else counted(every.failed, "call")
    note = calls + (f", {unanswered:,} unanswered" if unanswered else "")
    yield Key("Failed", percent(every.failed_share), note, "attention" if every.failed else "")
    found = traffic.satisfaction(every, view.objective_ns) if view.objective_ns else None
    if found:
        aim = duration(view.objective_ns or 0)
        yield Key(f"Apdex at {aim}", f"{found.score:.3f}", f"{percent(found.satisfied)} within")


def _concentration(digest: Digest) -> str:
    """How few classes account for most of the response time."""
    whole = digest.all.total_ns
    if not whole:
        return ""
    sums = np.cumsum([each.total_ns for each in digest.classes])
    return f"{int(np.searchsorted(sums, 0.8 * whole)) + 1} of them take 80% of the time"
