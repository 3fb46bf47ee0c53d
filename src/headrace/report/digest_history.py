"""A history of digests: which classes are new, who looked at them, and one class over the days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.analysis import traffic
from headrace.report import text
from headrace.report.digest import clock, percent, short_number
from headrace.report.text import clean

if TYPE_CHECKING:
    from headrace.analysis.traffic import Seen
    from headrace.digests.classes import Digest
    from headrace.digests.history import Review


def overview(
    days: Mapping[str, Digest], seen: Sequence[Seen], reviews: Mapping[str, Review], limit: int
) -> RenderableType:
    """The days, and the classes, the newest first."""
    totals = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("day", "calls", "classes", "new", "mean ms", "p99 ms", "failed"):
        totals.add_column(title, justify="left" if title == "day" else "right", no_wrap=True)
    for day, digest in days.items():
        new = sum(each.first_day == day for each in seen)
        every = digest.all
        p99 = text.milliseconds(traffic.percentile_ns(every, "p99"))
        cells = (short_number(every.count), str(len(digest.classes)), str(new))
        totals.add_row(
            day, *cells, text.milliseconds(traffic.mean_ns(every)), p99, short_number(every.failed)
        )
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("class", "first seen", "last seen", "days", "calls", "reviewed"):
        table.add_column(title, justify="right" if title in ("days", "calls") else "left", no_wrap=True)
    table.add_column("fingerprint, comment", overflow="fold", ratio=1)
    for each in seen[:limit]:
        noted = reviews.get(each.name)
        said = Text(clean(text.short(each.latest.fingerprint, 200)))
        if noted and noted.comment:
            said.append(f"\n{clean(noted.comment)}", style="cyan")
        who = Text(clean(f"{noted.reviewed_by} {noted.reviewed_on}")) if noted else Text("no", style="yellow")
        days_told = (str(each.days), short_number(each.calls))
        table.add_row(
            clean(each.latest.texts.get("id") or "–"), each.first_day, each.last_day, *days_told, who, said
        )
    parts: list[RenderableType] = [totals, "", table]
    if len(seen) > limit:
        parts.append(Text(f"and {len(seen) - limit:,} more: --limit", style="dim"))
    return Group(*parts)


def one_class(name: str, days: Mapping[str, Digest], noted: Review | None) -> RenderableType:
    """A class by day."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("day", "calls", "calls/s", "of time", "mean ms", "p50", "p95", "p99", "max", "failed"):
        table.add_column(title, justify="left" if title == "day" else "right", no_wrap=True)
    fingerprint = first = ""
    for day, digest in days.items():
        each = digest.by_name.get(name)
        if each is None:
            table.add_row(Text(day, style="dim"), Text("–", style="dim"))
            continue
        fingerprint, first = each.fingerprint, first or clock(each.number("start_ns").least)
        rate = each.count / digest.span_s if digest.span_s else None
        shown = [text.milliseconds(traffic.percentile_ns(each, key)) for key in ("p50", "p95", "p99")]
        figures = [short_number(rate), percent(traffic.share(each, digest.all))]
        top = text.milliseconds(each.number("response_ns").most)
        mean = text.milliseconds(traffic.mean_ns(each))
        table.add_row(day, short_number(each.count), *figures, mean, *shown, top, short_number(each.failed))
    said = f"first seen {first} UTC"
    if noted:
        said += f"; reviewed by {noted.reviewed_by} on {noted.reviewed_on}: {noted.comment}"
    return Group(Text(clean(fingerprint), style="bold"), Text(clean(said), style="dim"), "", table)


def to_json(
    days: Mapping[str, Digest], seen: Sequence[Seen], reviews: Mapping[str, Review]
) -> dict[str, Any]:
    """Every class of the history, and its figures by day."""
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
