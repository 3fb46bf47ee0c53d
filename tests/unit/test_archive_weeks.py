"""Weeks of the history: days become a file per week; none is counted twice or left out, whenever it stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.base.errors import DiskFull
from headrace.fleet.host import Host
from headrace.history import questions
from headrace.history.archive import rollup
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Archive, week_of
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import TABLES
from headrace.history.collect.collector import Collector
from headrace.host.target import TargetSpec
from tests.folders import ROOT
from tests.history import SLOW, kinds
from tests.weeks import MONDAY, calls, fill_days, is_right, span_of

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_weeks_begin_on_mondays() -> None:
    for day in range(MONDAY, MONDAY + WEEK_S, DAY_S):
        assert week_of(day) == MONDAY
    assert week_of(MONDAY - 1) == MONDAY - WEEK_S
    assert week_of(0) < 0  # 1970 began on a Thursday


def test_weeks_are_exactly_their_days(archive: Archive) -> None:
    """Of ranges that begin and end anywhere in a week, too."""
    fill_days(archive, 18)
    is_right(archive, 18)  # old files of days, as they are
    assert rollup.weekly(archive, MONDAY + 18 * DAY_S, 1e9) == 2 * 3
    # The third week has not ended.
    assert kinds(archive) == {"D": 2, "w": 2, "d": 4}
    is_right(archive, 18)
    assert rollup.weekly(archive, MONDAY + 18 * DAY_S, 1e9) == 0
    fill_days(archive, 4, first=18)
    rollup.weekly(archive, MONDAY + 22 * DAY_S, 1e9)
    assert kinds(archive) == {"D": 3, "w": 3, "d": 1}
    is_right(archive, 22)


def test_a_range_of_whole_weeks_opens_the_weeks_sums(archive: Archive) -> None:
    fill_days(archive, 28)
    rollup.weekly(archive, MONDAY + 28 * DAY_S, 1e9)
    reader = Reader(archive)

    def opened(first: int, until: int, width_s: int) -> str:
        span = Range(MONDAY + first * DAY_S, MONDAY + until * DAY_S)
        return "".join(file.kind for file in reader._files("classes", "db1", span, width_s))

    assert opened(0, 28, WEEK_S) == "wwww"
    assert opened(0, 28, DAY_S) == "DDDD"
    # The first week is cut: its days are read, and those outside of the range are left out by their time.
    assert opened(3, 28, WEEK_S) == "Dwww"
    assert opened(3, 25, WEEK_S) == "DwwD"


def test_a_week_of_two_years_is_found_from_either(archive: Archive) -> None:
    start = 1_798_416_000  # Monday, 2026-12-28
    assert week_of(start) == start
    fill_days(archive, 14, start_s=start)
    rollup.weekly(archive, start + 2 * WEEK_S, 1e9)
    assert kinds(archive) == {"D": 2, "w": 2}
    for first in range(4, 6):  # from January the first on
        span = Range(start + first * DAY_S, start + first * DAY_S + 9 * DAY_S)
        found = questions.class_totals(Reader(archive), ["db1"], span, SLOW)
        assert {row["class"]: row["calls"] for row in found} == {"a": sum(map(calls, range(first, 14)[:9]))}


_KILLED = """
import os, signal, shutil, sys
from pathlib import Path
from headrace.history.archive import files, rollup
from headrace.history.archive.files import DAY_S, Archive
from tests.weeks import MONDAY, fill_days, is_right

root = Path(sys.argv[1])
late = {late}


def in_child(work):
    # Nothing is read before the first fork, so no thread of Arrow or DuckDB is lost in one.
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def die_at(step):
    left = [step]

    def counted(real):
        def call(*args, **kwargs):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        return call

    Path.replace, Path.unlink, os.fsync = counted(Path.replace), counted(Path.unlink), counted(lambda _: None)
    rollup.weekly(Archive(root / "history"), MONDAY + 8 * DAY_S, 1e9)


days = (0, 3, 6)


def prepare():
    shutil.rmtree(root / "history", ignore_errors=True)
    archive = Archive(root / "history")
    archive.create()
    # Of a week that goes on: it only names the host.
    fill_days(archive, 1, first=7, tables=("states",))
    if late:
        fill_days(archive, 0, only=days, times=3, tables=("classes",))
        rollup.weekly(archive, MONDAY + 8 * DAY_S, 1e9)
    fill_days(archive, 0, only=days, tables=("classes",))


def check():
    # All of the week, its end, its start.
    is_right(Archive(root / "history"), days, ("classes",), [(0, 9), (2, 11), (-4, 5)])


def go_on():
    archive = Archive(root / "history")
    check()
    archive.clear_drafts()
    rollup.weekly(archive, MONDAY + 8 * DAY_S, 1e9)
    assert [f.kind for f in archive.files("classes")] == ["D", "w"], archive.files("classes")
    assert not list(archive.root.rglob("*.part"))
    assert not list(archive.root.rglob("*.damaged"))
    check()


step = 1
while True:
    assert in_child(prepare) == 0
    ended = in_child(lambda: die_at(step))
    assert ended in (0, signal.SIGKILL), ended
    assert in_child(go_on) == 0, step
    if not ended:
        break
    step += 1
print(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_killed_at_each_step_of_a_week_every_day_counts_once(tmp_path: Path, late: bool) -> None:
    """``late``: days that replace those of a week that is there already."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-c", _KILLED.format(late=late), str(tmp_path)]
    found = subprocess.run(program, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    # Before each: two files are synced, renamed, and their folder synced; three days are deleted. The first week
    # of a year makes two folders, whose names are synced. So is that of the folder that is there, once.
    assert int(found.stdout) == 2 * 3 + 3 + 1 + 1 + (0 if late else 2)


def test_days_that_changed_count_at_once_and_then_as_their_week(archive: Archive) -> None:
    """A clock that was set back."""
    fill_days(archive, 14, times=3)
    rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9)
    fill_days(archive, 14)
    is_right(archive, 14)
    rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9)
    assert kinds(archive) == {"D": 2, "w": 2}
    is_right(archive, 14)


def test_a_reader_that_has_seen_a_week_sees_it_renewed(archive: Archive) -> None:
    fill_days(archive, 14, times=3)
    rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9)
    reader, span = Reader(archive), Range(MONDAY, MONDAY + 14 * DAY_S)

    def total() -> int:
        [row] = questions.class_totals(reader, ["db1"], span, SLOW)
        return int(row["calls"])

    assert total() == 3 * sum(map(calls, range(14)))
    fill_days(archive, 14)
    rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9)
    assert total() == sum(map(calls, range(14)))


def test_a_minute_that_comes_after_its_week_is_counted(archive: Archive) -> None:
    table = TABLES["classes"]
    for hour in range(2 * 24):
        fill_days(archive, 1, kind="M", start_s=MONDAY + hour * HOUR_S, tables=("classes",))
        fill_days(archive, 1, kind="h", start_s=MONDAY + hour * HOUR_S, tables=("classes",))
        fill_days(archive, 1, kind="h", start_s=MONDAY + hour * HOUR_S, tables=("states",))
    until = MONDAY + WEEK_S
    rollup.roll_up(archive, "db1", until)
    rollup.weekly(archive, until, 1e9)
    assert kinds(archive) == {"M": 48, "h": 48, "D": 1, "w": 1}
    before = {day: total_of(archive, day) for day in (0, 1)}
    assert before == {0: 24, 1: 24}
    fill_days(archive, 1, kind="m", start_s=MONDAY + DAY_S + 5 * HOUR_S + 7 * MINUTE_S, tables=(table.name,))
    rollup.roll_up(archive, "db1", until)
    assert {day: total_of(archive, day) for day in (0, 1)} == {0: 24, 1: 25}
    rollup.weekly(archive, until, 1e9)
    assert kinds(archive) == {"M": 48, "h": 48, "D": 1, "w": 1}
    assert {day: total_of(archive, day) for day in (0, 1)} == {0: 24, 1: 25}


def total_of(archive: Archive, day: int) -> int:
    """Calls of a day, as read in days."""
    span = Range(MONDAY - 20 * DAY_S, MONDAY + WEEK_S)
    t_s, series = questions.class_series(Reader(archive), ["db1"], span, SLOW, ["a"], 1000)
    point = series["a"][t_s.index(MONDAY + day * DAY_S)]
    return int(point["calls"]) if point else 0


def test_a_week_waits_for_hours_that_are_not_yet_days(archive: Archive) -> None:
    """The week's file would hide them."""
    fill_days(archive, 7, only=(0, 1, 2, 3, 5, 6))
    fill_days(archive, 1, kind="h", start_s=MONDAY + 4 * DAY_S + 3 * HOUR_S, index=4)
    until = MONDAY + WEEK_S
    assert rollup.weekly(archive, until, 1e9) == 0
    is_right(archive, 7)
    rollup.roll_up(archive, "db1", until)
    assert rollup.weekly(archive, until, 1e9) == 3
    is_right(archive, 7)


def test_hosts_that_are_not_watched_any_more_get_their_weeks(archive: Archive) -> None:
    fill_days(archive, 7, only=(0, 1, 2))
    fill_days(archive, 1, kind="h", start_s=MONDAY + 3 * DAY_S + 3 * HOUR_S, index=3)
    collector = Collector(archive, [Host("another", TargetSpec("local"), why_not="a test watches nothing")])
    collector._keep_house(MONDAY + WEEK_S + HOUR_S)
    assert kinds(archive)["w"] == 1
    is_right(archive, 4)


def test_where_hours_are_gone_a_short_range_reads_the_days_of_a_week(archive: Archive) -> None:
    fill_days(archive, 14)
    rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9)
    # Of the fourth day on there are hours: one per day here.
    for day in range(4, 14):
        fill_days(archive, 1, kind="h", start_s=MONDAY + day * DAY_S, index=day)
    for first in range(8):
        for length in (1, 3, 6):
            span = Range(MONDAY + first * DAY_S, MONDAY + (first + length) * DAY_S)
            assert span.rows_s == HOUR_S
            found = questions.class_totals(Reader(archive), ["db1"], span, SLOW)
            wanted = sum(map(calls, range(first, first + length)))
            assert {row["class"]: row["calls"] for row in found} == {"a": wanted}, (first, length)


def test_weeks_go_when_their_last_day_is_too_old(archive: Archive) -> None:
    fill_days(archive, 21)
    rollup.weekly(archive, MONDAY + 21 * DAY_S, 1e9)
    keep = rollup.Keep(age_s=10 * DAY_S)
    rollup.trim(archive, MONDAY + 17 * DAY_S, keep)
    assert kinds(archive) == {"D": 3, "w": 3}
    rollup.trim(archive, MONDAY + 18 * DAY_S, keep)
    assert kinds(archive) == {"D": 2, "w": 2}
    assert min(file.t_s for file in archive.files("classes")) == MONDAY + WEEK_S


def test_where_there_is_too_much_old_weeks_go_before_new_days(archive: Archive) -> None:
    fill_days(archive, 18)
    rollup.weekly(archive, MONDAY + 18 * DAY_S, 1e9)
    gone: list[int] = []
    left = archive.files("classes")
    while left:
        rollup.trim(archive, MONDAY + 18 * DAY_S, rollup.Keep(size_bytes=archive.size_bytes() - 1))
        now = archive.files("classes")
        gone += [file.t_s for file in left if file not in now]
        left = now
    assert gone == sorted(gone)
    assert not list((archive.root / "classes").iterdir())


def test_a_damaged_week_comes_back_from_its_hours(archive: Archive) -> None:
    for day in range(7):
        fill_days(archive, 1, kind="h", start_s=MONDAY + day * DAY_S, index=day)
    until = MONDAY + WEEK_S
    rollup.roll_up(archive, "db1", until)
    rollup.weekly(archive, until, 1e9)
    is_right(archive, 7)
    path = archive.path("classes", "db1", "D", MONDAY)
    path.write_bytes(path.read_bytes()[:100])
    span = Range(MONDAY - 10 * DAY_S, until)
    questions.class_series(Reader(archive), ["db1"], span, SLOW, ["a"])
    assert path.with_name(f"{path.name}.damaged").exists()
    rollup.roll_up(archive, "db1", until)
    is_right(archive, 7)
    rollup.weekly(archive, until, 1e9)
    assert kinds(archive) == {"h": 7, "D": 1, "w": 1}
    is_right(archive, 7)


def test_a_damaged_day_does_not_become_a_week(archive: Archive) -> None:
    fill_days(archive, 7)
    path = archive.path("classes", "db1", "d", MONDAY + 2 * DAY_S)
    path.write_bytes(path.read_bytes()[:100])
    assert rollup.weekly(archive, MONDAY + WEEK_S, 1e9) == 2  # the other tables
    assert kinds(archive) == {"d": 6}
    assert path.with_name(f"{path.name}.damaged").exists()
    assert not list(archive.root.rglob("*.part"))
    # Without hours that day is lost, and only that day.
    assert rollup.weekly(archive, MONDAY + WEEK_S, 1e9) == 1
    found = questions.class_totals(Reader(archive), ["db1"], Range(MONDAY - 9 * DAY_S, MONDAY + WEEK_S), SLOW)
    assert [row["calls"] for row in found] == [sum(map(calls, (0, 1, 3, 4, 5, 6)))]


def test_a_full_disk_leaves_the_days(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_days(archive, 8)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("ParquetWriter", "write_table"):  # of the days of the week, and of its sum
        with monkeypatch.context() as patched:
            patched.setattr(pq, name, full)
            with pytest.raises(DiskFull):
                rollup.weekly(archive, MONDAY + WEEK_S, 1e9)
        assert not list(archive.root.rglob("*.part"))
        assert kinds(archive)["d"] == 8
        is_right(archive, 8)
    rollup.weekly(archive, MONDAY + WEEK_S, 1e9)
    is_right(archive, 8)


def test_days_that_become_weeks_while_they_are_read_are_not_missed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One week after the other, as a long roll-up does it."""
    for week in range(6):  # the same numbers in each week
        fill_days(archive, 7, start_s=MONDAY + week * WEEK_S)
    reader, span = Reader(archive), Range(MONDAY, MONDAY + 6 * WEEK_S)
    wanted = {"a": 6 * sum(map(calls, range(7)))}
    ask, weeks = reader._ask, [1, 2, 3, 4, 5, 6]

    def rolled_up_meanwhile(*args: Any) -> Any:
        if weeks:
            rollup.weekly(archive, MONDAY + weeks.pop(0) * WEEK_S, 1e9)
        return ask(*args)

    monkeypatch.setattr(reader, "_ask", rolled_up_meanwhile)
    found = questions.class_totals(reader, ["db1"], span, SLOW)
    assert {row["class"]: row["calls"] for row in found} == wanted
    assert not weeks


def test_weeks_are_made_a_few_at_a_time(archive: Archive) -> None:
    fill_days(archive, 14)
    assert rollup.weekly(archive, MONDAY + 14 * DAY_S, 0) == 0
    made = 0
    while found := rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e-9 if not made else 1e9):
        made += found
    assert rollup.weekly(archive, MONDAY + 14 * DAY_S, 1e9) in (0, 6)
    assert kinds(archive) == {"D": 2, "w": 2}


def test_a_week_of_many_rows_is_written_in_pieces(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "MOST_ROWS", 3)
    fill_days(archive, 7)
    rollup.weekly(archive, MONDAY + WEEK_S, 1e9)
    path = archive.path("classes", "db1", "D", MONDAY)
    assert pq.ParquetFile(path).num_row_groups == 3
    is_right(archive, 7)
    # One day of it is found in its piece, too.
    for day in range(7):
        rows = rollup.day_rows(path, MONDAY + day * DAY_S, TABLES["classes"].schema)
        assert rows["calls"].to_pylist() == [calls(day)]


def test_a_history_that_began_within_a_week_has_no_gap_before(archive: Archive) -> None:
    from headrace.capacity import history

    fill_days(archive, 15, first=4)
    rollup.weekly(archive, MONDAY + 3 * WEEK_S, 1e9)
    span = Range(MONDAY, MONDAY + 3 * WEEK_S)
    found = history._exact(Reader(archive), ["db1"], span)
    assert found == span_of(4, 19)


def test_examples_of_a_week_are_readable_only_by_their_owner(archive: Archive) -> None:
    row = {"source": SLOW, "class": "a", "text": "select 'secret'", "database": "shop", "took_ns": 5}
    from headrace.history.collect.minute import table_of

    table = TABLES["examples"]
    fill_days(archive, 7, tables=("states",))
    archive.write(table, "db1", "d", MONDAY, table_of(table, [row], MONDAY))
    rollup.weekly(archive, MONDAY + WEEK_S, 1e9)
    found = archive.files("examples")
    assert [file.kind for file in found] == ["D", "w"]
    assert all(file.path.stat().st_mode & 0o077 == 0 for file in found)


def test_percentiles_and_watched_time_of_weeks_are_those_of_their_days(archive: Archive) -> None:
    fill_days(archive, 21)

    def found() -> list[tuple[dict[str, float], float]]:
        reader = Reader(archive)
        spans = [span_of(*each) for each in ((0, 21), (2, 21), (5, 17), (-1, 8))]
        return [
            (
                questions.percentiles(reader, ["db1"], span, SLOW, ["a"], 0.2),
                questions.watched_s(reader, ["db1"], span),
            )
            for span in spans
        ]

    before = found()
    rollup.weekly(archive, MONDAY + 21 * DAY_S, 1e9)
    assert found() == before
    assert [watched for _, watched in before] == [days * DAY_S for days in (21, 19, 12, 8)]
