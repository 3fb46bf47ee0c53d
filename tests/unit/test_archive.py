"""The history: rows add up exactly at every width, a kill leaves readable data, gaps stay gaps."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import Busy, DiskFull, StoreError
from headrace.history import questions
from headrace.history.archive import rollup
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive, File
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import CLASSES, TABLES
from headrace.history.collect.minute import table_of, text_row
from tests.folders import ROOT
from tests.history import SLOW, fill, kinds, state, write

pytestmark = pytest.mark.usefixtures("quick_disk")

DAY = 1_795_305_600  # midnight, UTC


def totals(archive: Archive, span: Range) -> dict[str, tuple[int, float, int]]:
    rows = questions.class_totals(Reader(archive), ["db1"], span, SLOW)
    return {row["class"]: (row["calls"], row["time_ns"], row["most_ns"]) for row in rows}


def test_hours_and_days_are_exactly_their_minutes(archive: Archive) -> None:
    fill(archive, "db1", DAY, 150)
    span = Range(DAY, DAY + DAY_S)
    before = totals(archive, span)
    reader = Reader(archive)
    p99 = questions.percentiles(reader, ["db1"], span, SLOW, ["a"], 0.99)
    assert before["a"][0] == sum(range(1, 151))
    assert rollup.roll_up(archive, "db1", DAY + 150 * MINUTE_S) > 0
    # Two whole hours are rolled up; the half one is still minutes.
    assert kinds(archive) == {"M": 2, "h": 2, "m": 30}
    assert totals(archive, span) == before
    rollup.roll_up(archive, "db1", DAY + DAY_S)
    assert kinds(archive) == {"M": 3, "h": 3, "d": 1}
    for seconds in (DAY_S, 30 * DAY_S):  # read in hours, and in days
        wide = Range(DAY - seconds + DAY_S, DAY + DAY_S).aligned()
        assert totals(archive, wide) == before
        assert questions.percentiles(Reader(archive), ["db1"], wide, SLOW, ["a"], 0.99) == p99


@settings(max_examples=6)
@given(
    st.lists(
        st.tuples(st.integers(0, 179), st.integers(0, 4000), st.integers(1, 50)), min_size=1, max_size=40
    )
)
def test_a_percentile_is_that_of_all_calls(calls: list[tuple[int, int, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder))
        by_minute: dict[int, list[dict[str, object]]] = {}
        for minute, bucket, count in calls:
            row = {"source": SLOW, "class": "a", "bucket": bucket, "count": count}
            by_minute.setdefault(minute, []).append(row)
        for minute, rows in by_minute.items():
            write(archive, "buckets", "db1", DAY + minute * MINUTE_S, rows)
        every = np.sort(np.repeat([b for _, b, _ in calls], [n for *_, n in calls]))
        expected = float(files_bucket(every[max(int(np.ceil(0.99 * len(every))), 1) - 1]))
        for until in (DAY, DAY + 2 * HOUR_S, DAY + DAY_S):
            rollup.roll_up(archive, "db1", until)
            for span in (
                Range(DAY, DAY + 3 * HOUR_S),
                Range(DAY, DAY + DAY_S),
                Range(DAY - 40 * DAY_S, DAY + DAY_S),
            ):
                found = questions.percentiles(Reader(archive), ["db1"], span, SLOW, ["a"], 0.99)
                assert found == {"a": expected}


def files_bucket(bucket: int) -> int:
    from headrace.base.buckets import bucket_value

    return int(bucket_value(int(bucket)))


def test_a_kill_between_a_rollup_and_its_deletions_counts_nothing_twice(archive: Archive) -> None:
    fill(archive, "db1", DAY, 70)
    span = Range(DAY, DAY + 2 * HOUR_S)
    before = totals(archive, span)
    minutes = [file for file in archive.files("classes", "db1") if file.t_s < DAY + HOUR_S]
    merged = rollup._read(CLASSES, minutes)
    archive.write(CLASSES, "db1", "M", DAY, merged)  # and then it was killed
    assert totals(archive, span) == before
    rollup.roll_up(archive, "db1", DAY + HOUR_S)
    assert kinds(archive) == {"M": 1, "h": 1, "m": 10}
    assert totals(archive, span) == before
    assert totals(archive, Range(DAY, DAY + DAY_S)) == before


def test_minutes_that_come_after_their_hour_was_rolled_up_are_kept(archive: Archive) -> None:
    """A clock that was set back, or a collector that was late."""
    fill(archive, "db1", DAY, 60)
    late = [file for file in archive.files("classes", "db1") if file.t_s >= DAY + 40 * MINUTE_S]
    span = Range(DAY, DAY + DAY_S)
    whole = totals(archive, span)
    kept = {file.path: file.path.read_bytes() for file in late}
    for file in late:
        file.path.unlink()
    rollup.roll_up(archive, "db1", DAY + DAY_S)
    assert kinds(archive) == {"M": 1, "h": 1, "d": 1}
    assert totals(archive, span) != whole
    for path, content in kept.items():
        path.write_bytes(content)
    for _ in range(2):  # the second time as after a kill before the deletions
        rollup.roll_up(archive, "db1", DAY + DAY_S)
        assert kinds(archive) == {"M": 1, "h": 1, "d": 1}
        for width in (HOUR_S, DAY_S, 40 * DAY_S):  # read in minutes, hours and days
            assert totals(archive, Range(DAY + DAY_S - max(width, DAY_S), DAY + DAY_S).aligned()) == whole
        for path, content in kept.items():
            path.write_bytes(content)


def test_a_minute_that_was_measured_twice_counts_once_as_the_later(archive: Archive) -> None:
    fill(archive, "db1", DAY, 60)
    rollup.roll_up(archive, "db1", DAY + HOUR_S)
    before = totals(archive, Range(DAY, DAY + HOUR_S))["a"][0]
    row = {"source": SLOW, "class": "a", "calls": 1000}
    write(archive, "classes", "db1", DAY + 9 * MINUTE_S, [row])
    rollup.roll_up(archive, "db1", DAY + HOUR_S)
    assert totals(archive, Range(DAY, DAY + HOUR_S))["a"][0] == before - 10 + 1000


def test_a_late_minute_does_not_replace_an_hour_whose_minutes_are_gone(archive: Archive) -> None:
    fill(archive, "db1", DAY, 60)
    first = archive.files("classes", "db1")[0]
    content = first.path.read_bytes()
    rollup.roll_up(archive, "db1", DAY + HOUR_S)
    span = Range(DAY, DAY + DAY_S)
    before = totals(archive, span)
    rollup.trim(archive, DAY + 3 * DAY_S, rollup.Keep())
    assert kinds(archive) == {"h": 1}
    first.path.write_bytes(content)
    rollup.roll_up(archive, "db1", DAY + HOUR_S)
    assert kinds(archive) == {"h": 1}
    assert totals(archive, span) == before


def test_a_gap_is_a_gap(archive: Archive) -> None:
    fill(archive, "db1", DAY, 5)
    fill(archive, "db1", DAY + 20 * MINUTE_S, 5)
    found = questions.chart(Reader(archive), "db1", "cpu", Range(DAY, DAY + HOUR_S))
    [line] = found.lines
    assert line.mean[4] is not None
    assert line.mean[5:20] == [None] * 15
    assert line.mean[20] == 0.0
    assert line.mean[25:] == [None] * 35


def test_a_chart_has_no_more_points_than_asked_for(archive: Archive) -> None:
    fill(archive, "db1", DAY, 120)
    found = questions.chart(Reader(archive), "db1", "cpu", Range(DAY, DAY + 2 * HOUR_S), most=50)
    assert len(found.t_s) <= 50
    [line] = found.lines
    assert line.most[0] == 0.02  # the extremes of its minutes are kept
    assert line.least[0] == 0.0


def test_two_ranges_share_no_row() -> None:
    for seconds in (HOUR_S, DAY_S, 30 * DAY_S):
        span = Range(DAY + 1234.5 - seconds, DAY + 1234.5).aligned()
        before = span.before()
        assert before.until_s == span.since_s
        assert span.since_s % span.rows_s == 0 == before.since_s % before.rows_s


@pytest.mark.parametrize(("hours", "rows_s"), [(1, MINUTE_S), (6, MINUTE_S), (24, HOUR_S), (168, HOUR_S)])
def test_a_range_has_the_same_rows_at_any_second(hours: int, rows_s: int) -> None:
    """The pages' ranges end now: aligned, they are longer than their name says."""
    for second in (0.0, 7.5, 59.9):
        end = DAY + hours * HOUR_S + second
        found = Range(end - hours * HOUR_S, end).aligned()
        assert found.rows_s == rows_s
        assert found.aligned() == found
        assert found.since_s % rows_s == 0


def test_a_file_cut_short_costs_only_its_own_minute(archive: Archive) -> None:
    fill(archive, "db1", DAY, 3)
    damaged = archive.path("classes", "db1", "m", DAY + MINUTE_S)
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert totals(archive, Range(DAY, DAY + HOUR_S))["a"][0] == 1 + 3
    assert damaged.with_name(f"{damaged.name}.damaged").exists()
    assert rollup.roll_up(archive, "db1", DAY + HOUR_S)


def test_a_whole_file_of_other_columns_costs_only_its_own_minute(archive: Archive) -> None:
    """As a store from which the history was restored may hold it."""
    fill(archive, "db1", DAY, 3)
    foreign = archive.path("classes", "db1", "m", DAY + MINUTE_S)
    rows = pq.read_table(archive.path("classes", "db1", "m", DAY))
    pq.write_table(rows.drop_columns(["calls", "t_s"]), foreign)
    assert totals(archive, Range(DAY, DAY + HOUR_S))["a"][0] == 1 + 3
    assert foreign.with_name(f"{foreign.name}.damaged").exists()


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """As if this process had as many files open as it may."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_too_few_descriptors_damage_no_file(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders can be listed, and then other threads have the last descriptors."""
    fill(archive, "db1", DAY, 90)
    span = Range(DAY, DAY + DAY_S)
    reader, before = Reader(archive), totals(archive, span)

    def asked() -> int:
        return sum(value is not None for value in questions.chart(reader, "db1", "cpu", span).lines[0].mean)

    def listed_first(kept: Callable[..., list[File]]) -> Callable[..., list[File]]:
        def files(*words: Any, **more: Any) -> list[File]:
            found = kept(*words, **more)
            stack.enter_context(no_descriptors())
            return found

        return files

    for work in (asked, lambda: rollup.roll_up(archive, "db1", DAY + DAY_S)):
        with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
            patch.setattr(archive, "files", listed_first(archive.files))
            with pytest.raises(StoreError, match="cannot be read now"):
                work()
    assert not list(archive.root.rglob("*.damaged"))
    assert totals(archive, span) == before
    assert asked() == 2
    rollup.roll_up(archive, "db1", DAY + DAY_S)
    assert totals(archive, span) == before


def test_too_few_descriptors_do_not_empty_a_folder(archive: Archive) -> None:
    fill(archive, "db1", DAY, 2)
    with no_descriptors(), pytest.raises(StoreError, match="cannot be read now"):
        archive.files("classes")
    assert len(archive.files("classes")) == 2


@contextlib.contextmanager
def unreadable(folder: Path, call: str) -> Iterator[None]:
    """A failing disk under one folder."""
    kept = getattr(os, call)

    def failing(path: Any, *words: Any, **more: Any) -> Any:
        if Path(path) == folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return kept(path, *words, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, failing)
        yield


@pytest.mark.parametrize("call", ["scandir", "stat"])
@pytest.mark.parametrize("depth", range(3))
def test_a_folder_that_cannot_be_read_is_not_empty(archive: Archive, call: str, depth: int) -> None:
    write(archive, "states", "db1", DAY, [state()])
    path = archive.path("states", "db1", "m", DAY)
    with unreadable(path.parents[depth], call):
        if call == "stat" and depth == 1:
            assert archive.last_minute_s("db1") == DAY, "it is listed without that"
            return
        with pytest.raises(StoreError, match="Input/output error"):
            Archive(archive.root).files("states")
        if call == "scandir" and depth:
            with pytest.raises(StoreError, match="Input/output error"):
                archive.hosts()
    assert [file.path for file in archive.files("states")] == [path]
    assert archive.files("classes") == [], "no such folder"


@pytest.mark.parametrize("host", ["db1", "a/b", "..", "ü é", "x" * 60, "h=1", "100%", ".hidden", "a'b"])
def test_any_name_of_a_host_is_one_folder_and_comes_back(archive: Archive, host: str) -> None:
    write(archive, "states", host, DAY, [state()])
    assert archive.hosts() == [host]
    last = questions.last_states(Reader(archive), [host], Range(DAY, DAY + 60))
    assert last[host]["state"] == "ok"
    path = archive.path("states", host, "m", DAY)
    assert archive.root in path.resolve().parents
    assert len(path.relative_to(archive.root).parts) == 4


def test_a_full_disk_is_an_error_and_leaves_no_draft(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(DiskFull):
        write(archive, "states", "db1", DAY, [state()])
    assert not list(archive.root.rglob("*.part"))
    assert not archive.files("states")


def test_one_writer_at_a_time(archive: Archive) -> None:
    with archive.held(), pytest.raises(Busy), Archive(archive.root).held():
        pass


def test_examples_are_readable_only_by_their_owner(archive: Archive) -> None:
    fill(archive, "db1", DAY, 1)
    for kind in ("m", "M", "h", "d"):
        for file in archive.files("examples"):
            assert file.path.stat().st_mode & 0o077 == 0, (kind, file)
        rollup.roll_up(archive, "db1", DAY + DAY_S)
    assert archive.root.stat().st_mode & 0o077 == 0


def test_what_is_old_is_deleted_the_finest_first(archive: Archive) -> None:
    fill(archive, "db1", DAY, 70)
    rollup.roll_up(archive, "db1", DAY + DAY_S)
    before = totals(archive, Range(DAY - 30 * DAY_S, DAY + DAY_S))
    rollup.trim(archive, DAY + 5 * DAY_S, rollup.Keep())
    assert kinds(archive) == {"h": 2, "d": 1}  # the minutes are gone
    rollup.trim(archive, DAY + 50 * DAY_S, rollup.Keep())
    assert kinds(archive) == {"d": 1}
    assert totals(archive, Range(DAY - 30 * DAY_S, DAY + DAY_S)) == before
    # A short range is then answered by the day: nothing is lost before its time.
    assert totals(archive, Range(DAY, DAY + 6 * HOUR_S)) == before
    rollup.trim(archive, DAY + 500 * DAY_S, rollup.Keep())
    assert not kinds(archive)
    assert not list((archive.root / "classes").iterdir())


def test_the_size_is_kept(archive: Archive) -> None:
    fill(archive, "db1", DAY, 90)
    limit = archive.size_bytes() // 2
    rollup.trim(archive, DAY + HOUR_S, rollup.Keep(size_bytes=limit))
    assert archive.size_bytes() <= limit
    left = archive.files("classes", "db1")
    assert left[-1].t_s == DAY + 89 * MINUTE_S  # the oldest went first


def test_minutes_go_before_hours_and_hours_before_days(archive: Archive) -> None:
    fill(archive, "db1", DAY + DAY_S - HOUR_S, 63)
    rollup.roll_up(archive, "db1", DAY + DAY_S)

    def kinds() -> Counter[str]:
        return Counter(file.kind for table in TABLES for file in archive.files(table))

    gone, left = "", kinds()
    assert set(left) == set("mMhd")
    while left:
        rollup.trim(archive, DAY + DAY_S, rollup.Keep(size_bytes=archive.size_bytes() - 1))
        before, left = left, kinds()
        gone += "".join((before - left).elements())
    assert gone.lstrip("mM").rstrip("d").strip("h") == ""
    assert gone.endswith("d")


_WRITER = """
import sys
from pathlib import Path
from typing import Any
from headrace.history.archive import rollup
from headrace.history.archive.files import Archive
from tests.history import fill
archive = Archive(Path(sys.argv[1]))
with archive.held():
    archive.clear_drafts()
    t_s = max(archive.last_minute_s("db1"), {day} - 60) + 60
    print("ready", flush=True)
    while True:
        fill(archive, "db1", t_s, 1)
        t_s += 60
        if t_s % 3600 == 0:
            rollup.roll_up(archive, "db1", t_s)
"""


def test_a_killed_writer_leaves_readable_data(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "history")
    archive.create()
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    for n in range(3):
        program = [sys.executable, "-c", _WRITER.format(day=DAY), str(archive.root)]
        writer = subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert writer.stdout
        assert writer.stdout.readline().strip() == "ready"
        time.sleep(0.05 + 0.07 * n)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        last = archive.last_minute_s("db1")
        for file in [f for table in ("states", "classes", "buckets") for f in archive.files(table)]:
            pq.ParquetFile(file.path).close()  # whole
        if last:
            span = Range(DAY, last + MINUTE_S)
            watched = questions.watched_s(Reader(archive), ["db1"], span)
            assert watched == last + MINUTE_S - DAY  # each minute once, none twice
    assert not list(archive.root.rglob("*.damaged"))


def test_unknown_numbers_stay_unknown(archive: Archive) -> None:
    row = {"source": "process list", "class": "a", "database": "", "seen": 3, "looks": 30}
    archive.write(CLASSES, "db1", "m", DAY, table_of(CLASSES, [row], DAY))
    rollup.roll_up(archive, "db1", DAY + DAY_S)
    [found] = questions.class_totals(
        Reader(archive), ["db1"], Range(DAY - 60 * DAY_S, DAY + DAY_S), "process list"
    )
    assert found["calls"] is None
    assert found["time_ns"] is None
    assert (found["seen"], found["looks"]) == (3, 30)


def test_a_second_engine_reads_the_files(archive: Archive) -> None:
    """Arrow's own reader, without DuckDB: plain Parquet, with day and host in the path."""
    import pyarrow.dataset as ds

    fill(archive, "db1", DAY, 3)
    fill(archive, "db2", DAY, 3)
    folder = ds.dataset(archive.root / "classes", format="parquet", partitioning="hive")
    rows = folder.to_table().group_by(["host", "class"]).aggregate([("calls", "sum")]).to_pylist()
    assert {(r["host"], r["class"]): r["calls_sum"] for r in rows} == {
        ("db1", "a"): 6, ("db1", "b"): 15, ("db2", "a"): 6, ("db2", "b"): 15,
    }  # fmt: skip


def test_a_long_range_reads_only_what_is_new(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(archive, "db1", DAY, 30)
    reader, span = Reader(archive), Range(DAY, DAY + HOUR_S)
    read: list[int] = []
    ask = reader._ask

    def counted(table: str, sql: str, found: Any, span: Range, values: Any) -> Any:
        read.extend(file.t_s for files in found.values() for file in files)
        return ask(table, sql, found, span, values)

    monkeypatch.setattr(reader, "_ask", counted)
    before = questions.class_totals(reader, ["db1"], span, SLOW)
    assert len(read) == 30
    read.clear()
    assert questions.class_totals(reader, ["db1"], span, SLOW) == before
    assert not read
    fill(archive, "db1", DAY + 30 * MINUTE_S, 1)
    after = questions.class_totals(reader, ["db1"], span, SLOW)
    assert read == [DAY + 30 * MINUTE_S]
    assert {row["class"]: row["calls"] for row in after} == {"a": sum(range(1, 31)) + 1, "b": 31 * 5}


def test_a_text_is_found_however_old_it_is(archive: Archive) -> None:
    write(archive, "texts", "db1", DAY, [text_row(SLOW, "old", "select old", [])])
    write(archive, "texts", "db1", DAY + 20 * DAY_S, [text_row(SLOW, "new", "select new", [])])
    span = Range(DAY, DAY + 20 * DAY_S + HOUR_S)
    found = questions.texts(Reader(archive), ["db1"], span, SLOW, ["old", "new", "never"])
    assert {name: row["text"] for name, row in found.items()} == {"old": "select old", "new": "select new"}
    assert questions.texts(Reader(archive), ["db1"], span, SLOW) == found


_READ = """
import sys
from pathlib import Path
from headrace.history import questions
from headrace.history.archive.files import Archive
from headrace.history.archive.reader import Range, Reader

reader, span = Reader(Archive(Path(sys.argv[1]))), Range(float(sys.argv[2]), float(sys.argv[3]))
for each in (span, span.before()):
    print(len(questions.class_totals(reader, ["db1"], each, "slow log")))
    print(len(questions.resources(reader, "db1", each)))
print([name for name in sys.modules if name.partition(".")[0] == "pandas"])
"""


def test_a_first_page_does_not_wait_for_pandas(archive: Archive) -> None:
    """Arrow imports it, if it is installed, to make an array of Python's objects: a second of CPU and more."""
    pytest.importorskip("pandas")
    fill(archive, "db1", DAY, 3, "sélect ?")
    argv = [sys.executable, "-c", _READ, str(archive.root), str(DAY), str(DAY + HOUR_S)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split("\n")
    assert found[:5] == ["2", "1", "0", "0", "[]"]
    # A host's name is a column that is made without it.
    [change] = questions.changes(Reader(archive), ["db1"], Range(DAY, DAY + DAY_S))
    assert change["host"] == "db1"


def test_what_does_not_fit_into_memory_is_kept_in_the_history(archive: Archive) -> None:
    for database in (archive.database, archive.connect(threads=2)):
        row = database.execute("SELECT current_setting('temp_directory')").fetchone()
        assert row == (str(archive.root / ".spill"),)
