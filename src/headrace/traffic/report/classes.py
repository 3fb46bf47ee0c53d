"""Classes in detail: numbers, distribution, the slowest call and its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.parts import (
    Box,
    Card,
    Cell,
    Column,
    Details,
    Facts,
    Gap,
    Lines,
    Part,
    Picture,
    Section,
    Sentence,
    Span,
    Table,
    Words,
)
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest, QueryClass
from headrace.traffic.report import charts
from headrace.traffic.report.ranking import MOST_DETAILS
from headrace.traffic.report.words import (
    ATTRIBUTE_COLUMNS,
    View,
    attributes,
    class_lines,
    duration,
    percent,
    sample_text,
    short_number,
    slowest,
)

#: Maximum characters of a sample and of a plan on a page.
MOST_SAMPLE, MOST_PLAN = 4_000, 20_000
#: On a terminal: characters of a sample, lines of a plan.
MOST_SHORT, MOST_PLAN_LINES = 600, 30
MOST_LABELS = 12
BAR_WIDTH = 40
_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"

#: What a narrow terminal drops of ATTRIBUTE_COLUMNS, the highest first.
_KEPT = {"mean": 0, "95%": 1, "max": 2, "total": 3, "min": 4, "stddev": 5}

#: Lines of the terminal's detail that are tables on the page.
_IN_TABLES = ("users", "hosts", "databases")


def section(digest: Digest, view: View) -> Section:
    ranked = traffic.ranked(digest, view.order)
    first = ranked[: view.limit][: view.details]
    return Section(
        "details",
        "Details",
        f"The first {min(len(ranked), MOST_DETAILS)}",
        lambda: [_card(digest, view, rank, each) for rank, each in enumerate(ranked[:MOST_DETAILS], 1)],
        brief=[part for rank, each in enumerate(first, 1) for part in _short(digest, view, rank, each)],
    )


# -- The page ---------------------------------------------------------------------------------------------------


def _card(digest: Digest, view: View, rank: int, each: QueryClass) -> Card:
    rows = attributes(each)
    in_tables = {*_IN_TABLES, *(label for label, _ in rows)}
    lines = [pair for pair in class_lines(digest, each, view) if pair[0] not in in_tables]
    parts: list[Part] = [Box("parts", [Facts(lines), Box("pictures", list(_pictures(digest, each)))])]
    if rows:
        parts.append(attribute_table(rows))
    if labels := list(_labels(each)):
        parts.append(Box("labels", labels))
    if each.sample.get("text"):
        title: Words = (
            "A call " if each.is_summarised else "The slowest call ",
            Span(", ".join(slowest(each)), "aside"),
        )
        parts.append(Details(title, [Lines(sample_text(each, MOST_SAMPLE))], is_open=rank <= 3))
    if plan := view.plans.get(each.name, "")[:MOST_PLAN]:
        parts.append(Details("Its plan", [Lines(plan)], is_open=True))
    name = (Span(str(rank), "rank"), Span(each.fingerprint, "code"))
    return Card(name, parts, "class", f"c{rank}")


def attribute_table(rows: Sequence[tuple[str, list[str]]]) -> Table:
    """Rows sent, examined and so on, per call."""
    columns = [Column("per call"), *(Column(name, "n", _KEPT[name]) for name in ATTRIBUTE_COLUMNS)]
    return Table(columns, [[Cell(label), *map(Cell, cells)] for label, cells in rows])


def _pictures(digest: Digest, each: QueryClass) -> Iterator[Part]:
    marks = {name: traffic.percentile_ns(each, name) for name in ("p50", "p95", "p99")}
    if drawn := charts.distribution(each.response, marks):
        known = [
            Span(f" · {name} {text.milliseconds(value)}", f"mark-{name}")
            for name, value in marks.items()
            if value is not None
        ]
        yield Picture(drawn, ["Calls by response time", *known, " ms"])
    if digest.first_ns is None or digest.last_ns is None or len(each.slices.start_ns) <= 1:
        return
    course = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, 128)
    width = text.seconds(course.width_ns / 1e9)
    calls = charts.sparkline(charts.rates(course, digest), 300, 40)
    pair = [Picture(calls, f"calls, at most {short_number(int(course.count.max()))} in {width}")]
    if times := charts.sparkline(course.mean_ns, 300, 40):
        most = text.milliseconds(float(np.nanmax(course.mean_ns)))
        pair.append(Picture(times, f"mean, at most {most} ms"))
    yield Box("pair", pair)


def _labels(each: QueryClass) -> Iterator[Table]:
    """Users, hosts, databases and errors, the most frequent first."""
    for kind in ("user", "host", "database", "error"):
        found = each.labels.get(kind, ())
        if not found:
            continue
        has_time = kind != "error"
        columns = [Column(kind), Column("calls", "n"), *([Column("time", "n")] if has_time else [])]
        rows = []
        for one in found[:MOST_LABELS]:
            shares = [percent(one.count / each.count)]
            if has_time:
                shares.append(percent(one.sum_ns / each.total_ns if each.total_ns else None))
            rows.append([Cell(one.text), *map(Cell, shares)])
        if len(found) > MOST_LABELS:
            rows.append([Cell(f"and {len(found) - MOST_LABELS} more", look="thin")])
        yield Table(columns, rows)


# -- The terminal -----------------------------------------------------------------------------------------------


def _short(digest: Digest, view: View, rank: int, each: QueryClass) -> Iterator[Part]:
    lines: list[tuple[str, Words]] = [*class_lines(digest, each, view)]
    if len(each.slices.count) > 1:
        lines.append(("over time", _sparkline(digest, each)))
    parts: list[Part] = [Facts(lines)]
    if each.response.total:
        parts.append(_bars(each))
    if each.sample:
        # A server's summary has any of its calls as the sample.
        lead = "a call" if each.is_summarised else "slowest call"
        lead += " at" if each.sample.get("start_ns") else ":"
        parts.append(Sentence(f"{lead} {', '.join(slowest(each))}".rstrip(": "), "aside"))
        parts.append(Sentence(sample_text(each, MOST_SHORT), ""))
    if plan := view.plans.get(each.name):
        shown = plan.splitlines()
        more = [f"... {len(shown) - MOST_PLAN_LINES} more lines"] if len(shown) > MOST_PLAN_LINES else []
        parts += [Sentence("plan", "aside"), Lines("\n".join([*shown[:MOST_PLAN_LINES], *more]))]
    yield Gap()
    yield Card((Span(f"{rank:>2}  ", "aside"), Span(each.fingerprint, "strong")), parts)


def _sparkline(digest: Digest, each: QueryClass, most: int = 60) -> str:
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    found = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, most)
    top = max(int(found.count.max()), 1)
    line = "".join(" " if not n else _SPARKS[min(int(n * 8 / top), 7)] for n in found.count.tolist())
    return f"{line}  at most {counted(top, 'call')} in {text.seconds(found.width_ns / 1e9)}"


def _bars(each: QueryClass) -> Table:
    """Calls by response time: bars of a linear scale, in ranges of half a decade."""
    bars = traffic.distribution(each.response, 2, each.number("response_ns").most)
    top = max(bar.count for bar in bars)
    rows = []
    for bar in bars:
        eighths = round(bar.count * BAR_WIDTH * 8 / top)
        eighths = max(eighths, 1) if bar.count else 0
        drawn = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        low = Cell(f"≥ {duration(bar.low_ns)}", style="dim")
        rows.append([low, Cell(drawn, style="cyan"), Cell(f"{bar.count:,}")])
    return Table((("", "n"), ("", ""), ("", "n")), rows)
