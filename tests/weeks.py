"""Days of a history whose sums tell which days are in them, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.history import questions
from headrace.history.archive.files import DAY_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import TABLES
from headrace.history.collect.minute import table_of
from tests.history import SLOW, query, state

TABLES_OF_CLASSES = ("classes", "buckets", "states")
MONDAY = 1_794_787_200  # 2026-11-16, midnight, UTC


def calls(day: int) -> int:
    """Powers of four: a day that is left out, or counted twice or three times, changes every sum that it is in."""
    return int(4**day)


def bucket(day: int) -> int:
    return 1000 + 10 * day


def fill_days(
    archive: Archive,
    days: int,
    *,
    first: int = 0,
    only: Sequence[int] | None = None,
    times: int = 1,
    kind: str = "d",
    start_s: int = MONDAY,
    index: int | None = None,
    tables: Sequence[str] = TABLES_OF_CLASSES,
) -> None:
    """A file per day and table from the ``first`` on; ``index``: of the day whose numbers it has."""
    for day in only or range(first, first + days):
        count = times * calls(day if index is None else index)
        rows: dict[str, list[dict[str, Any]]] = {
            "classes": [query("a", count, 1e6)],
            "buckets": [{"source": SLOW, "class": "a", "bucket": bucket(index or day), "count": count}],
            "states": [state(minutes=1440)],
        }
        t_s = start_s + day * DAY_S
        for name in tables:
            archive.write(TABLES[name], "db1", kind, t_s, table_of(TABLES[name], rows[name], t_s))


def spans(days: int) -> Iterator[tuple[int, int]]:
    """First and last day of ranges that are read in days, and begin and end on each day of a week."""
    for first in range(-3, days - 1):
        yield first, max(first + 9, days if first % 2 else first + 12)


def span_of(first: int, until: int) -> Range:
    return Range(MONDAY + first * DAY_S, MONDAY + until * DAY_S)


def days_of(reader: Reader, span: Range) -> dict[str, Any]:
    """What is summed over a range."""
    t_s, series = questions.class_series(reader, ["db1"], span, SLOW, ["a"], 10_000)
    return {
        "totals": {r["class"]: r["calls"] for r in questions.class_totals(reader, ["db1"], span, SLOW)},
        "buckets": {r["bucket"]: r["count"] for r in questions.histogram(reader, ["db1"], span, SLOW, "a")},
        "series": {t: p["calls"] for t, p in zip(t_s, series.get("a", []), strict=False) if p},
    }


def is_right(
    archive: Archive,
    days: int | Sequence[int],
    tables: Sequence[str] = TABLES_OF_CLASSES,
    ranges: Sequence[tuple[int, int]] = (),
) -> None:
    """Every range holds each of its days once. Raises AssertionError."""
    there = range(days) if isinstance(days, int) else days
    reader = Reader(archive)
    for first, until in ranges or spans(max(there) + 1):
        held = [day for day in there if first <= day < until]
        found = days_of(reader, span_of(first, until))
        assert found["totals"] == ({"a": sum(map(calls, held))} if held else {}), (first, until)
        assert found["series"] == {MONDAY + day * DAY_S: calls(day) for day in held}, (first, until)
        if "buckets" in tables:
            assert found["buckets"] == {bucket(day): calls(day) for day in held}, (first, until)
