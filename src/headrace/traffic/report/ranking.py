"""Which classes take the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Note, Part, Section, Sentence, Span, Table
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest, Number, QueryClass
from headrace.traffic.report import changes, charts
from headrace.traffic.report.words import View, most_ms, ms, percent, short_number

#: Classes with a row, and those that also have their own section.
MOST_ROWS, MOST_DETAILS = 200, 20

_ORDERS = {
    "sum": "response time", "count": "calls", "rows": "rows examined", "sent": "rows sent",
    "lock": "time in locks", "bytes": "bytes sent", "max": "the slowest call",
}  # fmt: skip


def section(digest: Digest, view: View) -> Section:
    if digest.is_binary_log:
        return changes.section(digest, view)
    return Section(
        "classes",
        "Classes",
        f"Classes by {_ORDERS.get(view.order, view.order)}",
        lambda: _parts(digest, traffic.ranked(digest, view.order)),
        "Response times in ms; rows are sent of examined, per call. Grey percentiles have fewer than ten "
        "calls beyond them: they describe only those few.",
        list(_brief(digest, traffic.ranked(digest, view.order)[: view.limit])),
    )


# -- The page ---------------------------------------------------------------------------------------------------


def _parts(digest: Digest, ranked: Sequence[QueryClass]) -> Iterator[Part]:
    columns = (
        Column("#", "n"), Column(" + ".join(digest.group)), Column("of the time"), Column("calls", "n"),
        Column("mean", "n"), Column("p50", "n"), Column("p95", "n"), Column("p99", "n"), Column("max", "n"),
        Column("V/M", "n"), Column("rows", "n"), Column("failed", "n"), Column("calls over time"),
    )  # fmt: skip
    rows = [_row(digest, rank, each) for rank, each in enumerate(ranked[:MOST_ROWS], 1)]
    yield Table(columns, rows, look="ranking")
    if left := ranked[MOST_ROWS:]:
        whole = digest.all.total_ns
        share = (
            f" with {percent(sum(e.total_ns for e in left) / whole)} of the response time" if whole else ""
        )
        yield Note(
            f"{counted(len(left), 'more class', 'more classes')}{share} have no row here; see the "
            "digest's Parquet file or headrace "
            "digest --json --limit 100000."
        )


def _row(digest: Digest, rank: int, each: QueryClass) -> list[Cell]:
    sent, examined = each.number("rows_sent"), each.number("rows_examined")
    share = traffic.share(each, digest.all)
    rate = each.count / digest.span_s if digest.span_s else None
    spread = traffic.dispersion_s(each)
    spark = _spark(digest, each)
    link = f"c{rank}" if rank <= MOST_DETAILS else ""
    name = Span(text.short(each.fingerprint, 300), "code clamp", link)
    return [
        Cell(str(rank), look="rankcell"),
        Cell(name, look="query"),
        Cell(percent(share), look="share", label="time", picture=charts.share_bar(share or 0.0)),
        Cell(short_number(each.count), note=f"{short_number(rate)}/s", label="calls"),
        Cell(text.milliseconds(traffic.mean_ns(each)), label="mean"),
        *(_percentile(each, name) for name in ("p50", "p95", "p99")),
        Cell(most_ms(each), label="max"),
        Cell("–" if spread is None else f"{spread:.2f}", label="V/M"),
        Cell(_per_call(sent), note=f"of {_per_call(examined)}", label="rows"),
        Cell(short_number(each.failed), look="bad" if each.failed else "", label="failed"),
        Cell("", look="wide" if spark else "wide empty", picture=spark),
    ]


def _percentile(each: QueryClass, name: str) -> Cell:
    look = "thin" if traffic.is_thin(each.response, name) else ""
    return Cell(ms(each, name), look=look, label=name)


def _per_call(found: Number) -> str:
    return short_number(found.sum / found.count if found.count else None)


def _spark(digest: Digest, each: QueryClass) -> Markup:
    if not digest.span_s or digest.first_ns is None or digest.last_ns is None:
        return Markup("")
    course = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, 64)
    return charts.sparkline(charts.rates(course, digest))


# -- The terminal -----------------------------------------------------------------------------------------------


def _brief(digest: Digest, shown: Sequence[QueryClass]) -> Iterator[Part]:
    if shown:
        columns = [Column("#", "n"), *(column for column, _ in _COLUMNS), Column(" + ".join(digest.group))]
        rows: list[Cells] = [
            [Cell(str(rank), style="dim"), *(cell(digest, each) for _, cell in _COLUMNS), each.fingerprint]
            for rank, each in enumerate(shown, 1)
        ]
        yield Table(columns, rows, is_cut=True)
    if (rest := len(digest.classes) - len(shown)) > 0:
        whole, said = digest.all.total_ns, ""
        if whole:
            others = sum(each.total_ns for each in digest.classes) - sum(each.total_ns for each in shown)
            said = f", {percent(others / whole)} of the response time"
        yield Sentence(f"and {rest:,} more class{'es' if rest > 1 else ''}{said}", "aside")


_Shown = tuple[Column, Callable[[Digest, QueryClass], Cell]]


def _thin(name: str, title: str, keep: int) -> _Shown:
    # A high percentile of few calls is mostly chance: shown dimmed.
    return Column(title, "n", keep), lambda d, e: Cell(
        ms(e, name), style="dim" if traffic.is_thin(e.response, name) else ""
    )


def _dispersion(digest: Digest, each: QueryClass) -> Cell:
    found = traffic.dispersion_s(each)
    return Cell("–" if found is None else f"{found:.2f}" if found >= 0.005 else "0.00")


_COLUMNS: tuple[_Shown, ...] = (
    (Column("time", "n"), lambda d, e: Cell(percent(traffic.share(e, d.all)), style="bold")),
    (Column("calls", "n"), lambda d, e: Cell(short_number(e.count))),
    (Column("/s", "n", 4), lambda d, e: Cell(short_number(e.count / d.span_s) if d.span_s else "–")),
    (Column("mean ms", "n", 1), lambda d, e: Cell(text.milliseconds(traffic.mean_ns(e)))),
    _thin("p50", "p50", 6),
    _thin("p95", "p95", 5),
    _thin("p99", "p99", 2),
    (Column("max", "n", 3), lambda d, e: Cell(most_ms(e))),
    (Column("V/M", "n", 9), _dispersion),
    (Column("sent", "n", 8), lambda d, e: Cell(_per_call(e.number("rows_sent")))),
    (Column("exam", "n", 7), lambda d, e: Cell(_per_call(e.number("rows_examined")))),
    (Column("err", "n", 4), lambda d, e: Cell(short_number(e.failed), style="red" if e.failed else "dim")),
)
