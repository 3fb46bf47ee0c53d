"""Which changes fill a binary log: classes by bytes, because row events have no time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Part, Section, Sentence, Span, Table
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import Digest, QueryClass
from headrace.traffic.report import charts
from headrace.traffic.report.words import View, most_ms, percent, short_number, size

#: Classes with a row, and those that also have their own section.
MOST_ROWS, MOST_DETAILS = 200, 20

_SEE = (
    "Bytes are those of the events, before compression. Rows are only in row format: a statement's are not in the "
    "log. exec_time is in whole seconds, so less than 1 s is 0; row events have none (-)."
)


def section(digest: Digest, view: View) -> Section:
    ranked = traffic.ranked(digest, view.order)
    by = "bytes" if view.order in ("sum", "bytes") else {"changed": "rows"}.get(view.order, view.order)
    return Section(
        "classes",
        "Changes",
        f"Changes by {by}",
        lambda: [_table(digest, ranked[:MOST_ROWS], is_page=True)],
        _SEE,
        list(_brief(digest, ranked, view.limit)),
    )


def share(each: QueryClass, whole: QueryClass, name: str) -> float | None:
    """Of a measure; None if nothing has it."""
    total = whole.number(name).sum
    known = each.number(name)
    return known.sum / total if total and known.count else None


def _brief(digest: Digest, ranked: Sequence[QueryClass], limit: int) -> Iterator[Part]:
    if shown := ranked[:limit]:
        yield _table(digest, shown, is_page=False)
    if rest := ranked[limit:]:
        others = sum(each.number("event_bytes").sum for each in rest)
        of_all = percent(others / digest.all.number("event_bytes").sum)
        yield Sentence(
            f"and {len(rest):,} more class{'es' if len(rest) > 1 else ''}, {of_all} of the bytes", "aside"
        )
    yield Sentence(_SEE, "aside")


def _table(digest: Digest, shown: Sequence[QueryClass], *, is_page: bool) -> Table:
    columns = [Column("#", "n"), *(column for column, _ in _COLUMNS), Column(" + ".join(digest.group))]
    rows: list[Cells] = []
    for rank, each in enumerate(shown, 1):
        name: Cell | str = each.fingerprint
        cells = [cell(digest, each) for _, cell in _COLUMNS]
        if is_page:
            link = f"c{rank}" if rank <= MOST_DETAILS else ""
            name = Cell(Span(text.short(each.fingerprint, 300), "code clamp", link), look="query")
            part = share(each, digest.all, "event_bytes") or 0.0
            cells[0] = Cell(percent(part), look="share", label="bytes", picture=charts.share_bar(part))
        rows.append([Cell(str(rank), style="dim"), *cells, name])
    return Table(columns, rows, look="ranking" if is_page else "", is_cut=not is_page)


def _rows(each: QueryClass) -> str:
    known = each.number("rows_affected")
    return short_number(known.sum) if known.count else "-"


def _rows_each(each: QueryClass) -> str:
    known = each.number("rows_affected")
    return short_number(known.sum / known.count) if known.count else "-"


def _exec_s(each: QueryClass) -> str:
    known = each.number("response_ns")
    return short_number(known.sum / 1e9) if known.count else "-"


_COLUMNS: tuple[tuple[Column, Callable[[Digest, QueryClass], Cell]], ...] = (
    (Column("of bytes", "n"), lambda d, e: Cell(percent(share(e, d.all, "event_bytes")), style="bold")),
    (Column("bytes", "n", 1), lambda d, e: Cell(size(e.number("event_bytes").sum))),
    (Column("of rows", "n", 3), lambda d, e: Cell(percent(share(e, d.all, "rows_affected")))),
    (Column("rows", "n"), lambda d, e: Cell(_rows(e))),
    (Column("statements", "n", 2), lambda d, e: Cell(short_number(e.count))),
    (Column("rows each", "n", 4), lambda d, e: Cell(_rows_each(e))),
    (Column("exec s", "n", 5), lambda d, e: Cell(_exec_s(e))),
    (Column("max ms", "n", 8), lambda d, e: Cell(most_ms(e) if e.number("response_ns").count else "-")),
    (Column("err", "n", 6), lambda d, e: Cell(short_number(e.failed), style="red" if e.failed else "dim")),
)
