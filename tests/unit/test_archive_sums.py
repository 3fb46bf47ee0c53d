"""Sums of the history that are cached on disk: a restart reads them, and none outlives its files."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.history import questions
from headrace.history.archive import rollup
from headrace.history.archive import sums as kept
from headrace.history.archive.files import DAY_S, WEEK_S, Archive
from headrace.history.archive.reader import Range, Reader, _Kept
from headrace.history.archive.rollup import Keep
from headrace.history.archive.sums import Sums
from headrace.history.archive.tables import TABLES
from tests.history import SLOW
from tests.weeks import MONDAY, calls, fill_days, span_of

pytestmark = pytest.mark.usefixtures("quick_disk")

WEEKS, DAYS = 3, 24


@pytest.fixture
def weeks(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Three weeks of a host, and three days."""
    monkeypatch.setattr(kept, "FEWEST_FILES", 2)
    fill_days(archive, DAYS)
    rollup.weekly(archive, MONDAY + WEEKS * WEEK_S, 1e9)
    return archive


def restarted(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> tuple[Reader, list[str]]:
    """A new reader, and a list of the tables that it had to read from the history itself."""
    reader, read = Reader(archive, Sums(archive.root)), []
    ask = reader._ask

    def asked(table: str, *rest: Any) -> Any:
        read.append(table)
        return ask(table, *rest)

    monkeypatch.setattr(reader, "_ask", asked)
    return reader, read


def totals(reader: Reader, span: Range) -> int:
    [row] = questions.class_totals(reader, ["db1"], span, SLOW)
    return int(row["calls"])


def right(first: int, until: int) -> int:
    return sum(map(calls, range(first, until)))


def files(archive: Archive) -> list[Path]:
    return sorted((archive.root / kept.FOLDER).glob("*"))


SPAN = span_of(0, DAYS)


def test_a_restart_reads_the_sums(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, read = restarted(weeks, monkeypatch)
    whole = totals(reader, SPAN), questions.percentiles(reader, ["db1"], SPAN, SLOW, ["a"], 0.5)
    assert whole[0] == right(0, DAYS)
    assert read
    assert files(weeks)
    reader, read = restarted(weeks, monkeypatch)
    assert (totals(reader, SPAN), questions.percentiles(reader, ["db1"], SPAN, SLOW, ["a"], 0.5)) == whole
    assert not read
    # Another range, other classes, another host: none uses a sum that is not its own.
    assert totals(reader, span_of(1, 23)) == right(1, 23)
    assert questions.percentiles(reader, ["db1"], SPAN, SLOW, ["b"], 0.5) == {}
    assert questions.class_totals(reader, ["db2"], SPAN, SLOW) == []


def test_what_two_ask_for_at_the_same_time_is_added_up_once(
    weeks: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a browser and what is read before someone asks: both took twice as long, of a list that takes seconds."""
    reader, ask = Reader(weeks), Reader._ask

    def totals(of: Reader) -> Any:
        return questions.class_totals(of, ["db1"], span_of(0, DAYS), SLOW)

    asked: list[str] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(self: Reader, table: str, *more: Any) -> Any:
        asked.append(table)
        has_begun.set()
        may_end.wait(60)
        return ask(self, table, *more)

    monkeypatch.setattr(Reader, "_ask", slow)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(totals, reader) for _ in range(2)]
        has_begun.wait(60)
        wait(answers, timeout=0.5)
        may_end.set()
        first, second = (each.result(60) for each in answers)
    assert first == second
    together = len(asked)
    asked.clear()
    assert totals(Reader(weeks)) == first
    assert together == len(asked)


@pytest.mark.parametrize("times", [1, 2])
def test_what_could_not_be_added_up_is_tried_again_by_who_waited(times: int) -> None:
    kept, made = _Kept(), []

    def make() -> pa.Table:
        made.append(1)
        if len(made) <= times:
            raise OSError("gone")
        return pa.table({"a": [1]})

    for _ in range(times):
        with pytest.raises(OSError, match="gone"):
            kept.table("a", make)
    assert kept.table("a", make).num_rows == 1
    assert kept.table("a", make).num_rows == 1
    assert len(made) == times + 1


def test_the_days_of_a_week_are_not_its_first_day(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are of the same file, from the same second on."""
    reader, _ = restarted(weeks, monkeypatch)
    for _ in range(2):
        for until in (7 * WEEKS, 7 * WEEKS - 6):
            _, series = questions.class_series(reader, ["db1"], span_of(0, until), SLOW, ["a"], 1000)
            assert sum(row["calls"] for row in series["a"] if row) == right(0, until)
        reader, _ = restarted(weeks, monkeypatch)


def test_a_file_that_changes_makes_its_sum_useless(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = restarted(weeks, monkeypatch)
    totals(reader, SPAN)
    path = weeks.path("classes", "db1", "d", MONDAY + WEEKS * WEEK_S)
    rows = pq.ParquetFile(path).read()
    double = rows.set_column(
        rows.schema.get_field_index("calls"), "calls", [[2 * n for n in rows["calls"].to_pylist()]]
    )
    weeks.write(TABLES["classes"], "db1", "d", MONDAY + WEEKS * WEEK_S, double)
    reader, read = restarted(weeks, monkeypatch)
    assert totals(reader, SPAN) == right(0, DAYS) + calls(7 * WEEKS)
    assert read
    path.unlink()
    reader, _ = restarted(weeks, monkeypatch)
    assert totals(reader, SPAN) == right(0, DAYS) - calls(7 * WEEKS)


@pytest.mark.parametrize("damage", ["cut", "zeros", "other", "empty"])
def test_a_damaged_sum_is_made_again(weeks: Archive, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    totals(restarted(weeks, monkeypatch)[0], SPAN)
    for path in files(weeks):
        content = bytearray(path.read_bytes())
        if damage == "zeros":  # of a page, as after a power cut
            content[8:40] = bytes(32)
        others = {"cut": content[:-9], "other": b"PAR1 is not one", "empty": b""}
        path.write_bytes(bytes(others.get(damage, content)))
    reader, read = restarted(weeks, monkeypatch)
    assert totals(reader, SPAN) == right(0, DAYS)
    assert read
    reader, read = restarted(weeks, monkeypatch)
    assert totals(reader, SPAN) == right(0, DAYS)
    assert not read


def test_minutes_and_what_goes_on_are_not_kept(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums are others in a minute."""
    totals(restarted(weeks, monkeypatch)[0], Range(MONDAY, MONDAY + (DAYS - 1) * DAY_S + 60))
    [path] = files(weeks)
    assert path.name.startswith(f"{MONDAY + WEEK_S}-"), "of the weeks, and not of the days up to now"


def test_what_is_too_old_goes_with_its_files(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    totals(restarted(weeks, monkeypatch)[0], SPAN)
    assert len(files(weeks)) == 2
    now_s = MONDAY + 2 * WEEK_S
    rollup.trim(weeks, now_s + 10 * DAY_S, Keep(10 * DAY_S))
    assert [path.name.startswith(f"{MONDAY + WEEK_S}-") for path in files(weeks)] == [False]
    rollup.trim(weeks, now_s, Keep(0))
    assert len(files(weeks)) == 1, "no limit"
    os.utime(files(weeks)[0], (1, time.time() - kept.UNUSED_S - 60))
    rollup.trim(weeks, now_s, Keep(0))
    assert not files(weeks)


def test_what_was_deleted_for_its_size_is_in_no_sum(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    totals(restarted(weeks, monkeypatch)[0], SPAN)
    rollup.trim(weeks, MONDAY, Keep(0, weeks.size_bytes() - 1))
    assert not files(weeks)


def test_the_longest_unused_go_where_there_are_too_many(
    weeks: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals(restarted(weeks, monkeypatch)[0], SPAN)
    older, newer = files(weeks)
    os.utime(older, (1, time.time() - 60))
    monkeypatch.setattr(kept, "MOST_BYTES", newer.stat().st_size)
    rollup.trim(weeks, MONDAY, Keep(0))
    assert files(weeks) == [newer]


def test_a_folder_that_cannot_be_written_costs_no_answer(
    weeks: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    (weeks.root / kept.FOLDER).write_text("in the way")
    assert totals(restarted(weeks, monkeypatch)[0], SPAN) == right(0, DAYS)
    rollup.trim(weeks, MONDAY, Keep(0, weeks.size_bytes() - 1))


def test_what_cannot_be_deleted_keeps_none_of_the_others(
    weeks: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals(restarted(weeks, monkeypatch)[0], SPAN)
    names = [f"{n}-in-the-way" for n in range(9)]
    for name in names:
        (weeks.root / kept.FOLDER / name).mkdir()
    rollup.trim(weeks, MONDAY, Keep(0, weeks.size_bytes() - 1))
    assert [path.name for path in files(weeks)] == names


def test_sums_are_readable_only_by_their_owner(weeks: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of texts name tables."""
    reader, _ = restarted(weeks, monkeypatch)
    questions.texts(reader, ["db1"], SPAN, SLOW)
    totals(reader, SPAN)
    assert all(path.stat().st_mode & 0o077 == 0 for path in [*files(weeks), weeks.root / kept.FOLDER])
