"""A history of digests: new classes, their reviews, and one class by day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headrace.show import text
from headrace.show.parts import Cell, Column, Gap, Part, Sentence, Span, Table
from headrace.traffic import figures as traffic
from headrace.traffic.report.words import clock, percent, short_number

if TYPE_CHECKING:
    from headrace.traffic.digests.classes import Digest
    from headrace.traffic.digests.history import Review
    from headrace.traffic.figures import Seen


def overview(
    days: Mapping[str, Digest], seen: Sequence[Seen], reviews: Mapping[str, Review], limit: int
) -> Iterator[Part]:
    """The days, and the classes, newest first."""
    rows = []
    for day, digest in days.items():
        every, new = digest.all, sum(each.first_day == day for each in seen)
        times = [traffic.mean_ns(every), traffic.percentile_ns(every, "p99")]
        counts = (short_number(every.count), str(len(digest.classes)), str(new))
        rows.append([day, *counts, *map(text.milliseconds, times), short_number(every.failed)])
    yield Table([Column("day"), *_numbers("calls", "classes", "new", "mean ms", "p99 ms", "failed")], rows)
    yield Gap()
    yield Table(
        [Column("class"), Column("first seen"), Column("last seen"), *_numbers("days", "calls"),
         Column("reviewed"), Column("fingerprint, comment")],
        [_line(each, reviews.get(each.name)) for each in seen[:limit]],
    )  # fmt: skip
    if len(seen) > limit:
        yield Sentence(f"and {len(seen) - limit:,} more: --top", "aside")


def _numbers(*names: str) -> list[Column]:
    return [Column(name, "n") for name in names]


def _line(each: Seen, noted: Review | None) -> list[str | Cell]:
    said: list[str | Span] = [text.short(each.latest.fingerprint, 200)]
    if noted and noted.comment:
        said.append(Span(f" {noted.comment}", style="cyan"))
    who = Cell(f"{noted.reviewed_by} {noted.reviewed_on}") if noted else Cell("no", "unsure")
    name = each.latest.texts.get("id") or "–"
    return [name, each.first_day, each.last_day, str(each.days), short_number(each.calls), who, Cell(said)]


def one_class(name: str, days: Mapping[str, Digest], noted: Review | None) -> Iterator[Part]:
    """A class by day."""
    rows: list[list[str | Cell]] = []
    fingerprint = first = ""
    columns = [
        Column("day"),
        *_numbers("calls", "calls/s", "of time", "mean ms", "p50", "p95", "p99", "max", "failed"),
    ]
    for day, digest in days.items():
        each = digest.by_name.get(name)
        if each is None:
            rows.append([Cell(day, style="dim"), Cell("–", style="dim"), *[""] * (len(columns) - 2)])
            continue
        fingerprint, first = each.fingerprint, first or clock(each.number("start_ns").least)
        rate = each.count / digest.span_s if digest.span_s else None
        times = [traffic.mean_ns(each), *(traffic.percentile_ns(each, key) for key in ("p50", "p95", "p99"))]
        times.append(each.number("response_ns").most)
        share = percent(traffic.share(each, digest.all))
        shown = (short_number(each.count), short_number(rate), share, *map(text.milliseconds, times))
        rows.append([day, *shown, short_number(each.failed)])
    said = f"first seen {first} UTC"
    if noted:
        said += f"; reviewed by {noted.reviewed_by} on {noted.reviewed_on}: {noted.comment}"
    yield Sentence(fingerprint, "strong")
    yield Sentence(said, "aside")
    yield Gap()
    yield Table(columns, rows)


def to_json(
    days: Mapping[str, Digest], seen: Sequence[Seen], reviews: Mapping[str, Review]
) -> dict[str, Any]:
    """Every class of the history with its daily figures."""
    return {
        "days": {
            day: {"calls": digest.all.count, "classes": len(digest.classes), "failed": digest.all.failed}
            for day, digest in days.items()
        },
        "classes": [
            {
                "class": each.latest.key or {"class": each.name},
                "fingerprint": each.latest.fingerprint,
                "first_day": each.first_day,
                "last_day": each.last_day,
                "calls": each.calls,
                "review": asdict(reviews[each.name]) if each.name in reviews else None,
                "by_day": {
                    day: {
                        "calls": found.count,
                        "mean_ns": traffic.mean_ns(found),
                        "p99_ns": traffic.percentile_ns(found, "p99"),
                        "failed": found.failed,
                    }
                    for day, digest in days.items()
                    if (found := digest.by_name.get(each.name))
                },
            }
            for each in seen
        ],
    }
