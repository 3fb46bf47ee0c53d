"""Minutes become hours, hours days, days weeks; what is too old or too much is deleted.

Work is found from the files' names, so it continues after a kill wherever it stopped, and doing it twice changes
nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.base import parquet
from headrace.base.errors import HeadraceError, StoreError
from headrace.history.archive.files import (
    DAY_S,
    HOUR_S,
    WEEK_S,
    Archive,
    File,
    check_shortage,
    days_of,
    listed,
    week_of,
    write_whole,
)
from headrace.history.archive.sums import Sums
from headrace.history.archive.tables import TABLES, Table

log = logging.getLogger("headrace.history.archive")

#: Finer rows are kept this long where the days are: a day file of a class is 1/1440 of its minutes.
KEEP_MINUTES_S, KEEP_HOURS_S = 2 * DAY_S, 35 * DAY_S
#: What goes first where there is too much: the finest, and of those the oldest.
GOES = {"m": 0, "M": 0, "h": 1, "d": 2, "D": 2, "w": 2}
#: Weeks are made for this long at a time: the first time there may be years of them, and minutes wait meanwhile.
WEEKS_FOR_S = 5.0
#: Files that a round may delete by their age however few there are.
FEWEST_DELETED = 100
#: Rows of a week that are sorted at a time: memory.
MOST_ROWS = 500_000


@dataclass(frozen=True)
class Keep:
    """How long days are kept, and how large the whole may get; 0: no limit."""

    age_s: float = 400 * DAY_S
    size_bytes: int = 0


def roll_up(archive: Archive, host: str, until_s: float) -> int:
    """Roll up every hour and day of a host that ended before ``until_s``; the number of files written."""
    written = 0
    for table in TABLES.values():
        written += _hours(archive, table, host, until_s)
        written += _days(archive, table, host, until_s)
    return written


def _hours(archive: Archive, table: Table, host: str, until_s: float) -> int:
    by_hour: dict[int, list[File]] = defaultdict(list)
    files = archive.files(table.name, host, until_s=until_s)
    have = {(file.kind, file.t_s) for file in files}
    for file in files:
        if file.kind == "m" and file.t_s - file.t_s % HOUR_S + HOUR_S <= until_s:
            by_hour[file.t_s - file.t_s % HOUR_S].append(file)
    for hour, minutes in by_hour.items():
        merged = [file for file in files if file.kind == "M" and file.t_s == hour]
        rows = _read(table, merged)
        # An hour whose own minutes are gone (too old, or damaged) has more than these.
        if all(file.path.exists() for file in merged) and (merged or ("h", hour) not in have):
            rows = _with(rows, _read(table, minutes))
            archive.write(table, host, "M", hour, rows)
            archive.write(table, host, "h", hour, grouped(archive, table, rows, HOUR_S))
            _renew_day(archive, table, host, hour - hour % DAY_S)
        _delete(minutes)
    return len(by_hour)


def _without_impossible(table: Table, rows: pa.Table, path: Path) -> pa.Table:
    """A host that is broken or was taken over may have written what cannot be. Such rows are in no sum; they are
    kept beside the file, as the file itself is deleted with its hour.
    """
    wrong = table.impossible(rows)
    if wrong is None:
        return rows
    with contextlib.suppress(HeadraceError):
        write_whole(rows.filter(wrong), path.with_name(f"{path.name}.damaged"), is_private=table.is_private)
    log.warning("%s: %d rows hold numbers that cannot be: left out", path, pc.sum(wrong).as_py())
    return rows.filter(pc.invert(wrong))


def _with(rows: pa.Table, late: pa.Table) -> pa.Table:
    """The rows of an hour, in which later written minutes replace those of the same time.

    There are some after a kill between a roll-up and its deletions, and if the host's clock was set back.
    """
    if not rows.num_rows:
        return late
    is_old = pc.invert(pc.is_in(rows["t_s"], value_set=pc.unique(late["t_s"])))
    return pa.concat_tables([rows.filter(is_old), late])


def _renew_day(archive: Archive, table: Table, host: str, day: int) -> None:
    """A day that was rolled up before one of its hours changed. Before the minutes are deleted, so that a kill
    leaves them to do it again.
    """
    files = archive.files(table.name, host, day, day + DAY_S)
    if any(file.kind in "dD" for file in files):
        hours = [file for file in files if file.kind == "h"]
        archive.write(table, host, "d", day, grouped(archive, table, _read(table, hours), DAY_S))


def _days(archive: Archive, table: Table, host: str, until_s: float) -> int:
    by_day: dict[int, list[File]] = defaultdict(list)
    files = archive.files(table.name, host, until_s=until_s)
    have = days_of(files)
    for file in files:
        if file.kind == "h" and file.t_s - file.t_s % DAY_S + DAY_S <= until_s:
            by_day[file.t_s - file.t_s % DAY_S].append(file)
    missing = {day: hours for day, hours in by_day.items() if day not in have}
    for day, hours in missing.items():
        archive.write(table, host, "d", day, grouped(archive, table, _read(table, hours), DAY_S))
    return len(missing)


def weekly(
    archive: Archive, until_s: float, for_s: float = WEEKS_FOR_S, hosts: Sequence[str] | None = None
) -> int:
    """The days of each week that ended before ``until_s``, of every host, become one file; the number of weeks.

    A page over months then opens a file per week, not per day. After ``for_s`` seconds the rest is left for the
    next time.
    """
    began, made = time.monotonic(), 0
    for host in archive.hosts() if hosts is None else hosts:
        for table in TABLES.values():
            for week, days in _whole_weeks(archive.files(table.name, host, until_s=until_s), until_s).items():
                if time.monotonic() - began > for_s:
                    return made
                made += _week(archive, table, host, week, days)
    return made


def _whole_weeks(files: list[File], until_s: float) -> dict[int, list[File]]:
    """Week -> its files of days, if all that is known of it is in days: the week's file will hide the rest."""
    days: dict[int, list[File]] = defaultdict(list)
    for file in files:
        if file.kind == "d" and week_of(file.t_s) + WEEK_S <= until_s:
            days[week_of(file.t_s)].append(file)
    finer = {file.t_s - file.t_s % DAY_S for file in files if file.kind in "mMh"}
    waiting = {week_of(day) for day in finer - days_of(files)}
    return {week: found for week, found in days.items() if week not in waiting}


def _week(archive: Archive, table: Table, host: str, week: int, days: list[File]) -> bool:
    """Write a week, or renew it with days that changed; False if one of the files is damaged."""
    path = archive.path(table.name, host, "D", week)
    # A day that is there is newer than the week's.
    sources = dict.fromkeys(range(week, week + WEEK_S, DAY_S), path) if path.exists() else {}
    sources |= {file.t_s: file.path for file in days}
    try:
        archive.write_pieces(table, host, "D", week, _pieces(table, sources))
    except _Damaged as error:
        # The next time its days come from their hours, if those are still there.
        set_aside(error.path, error.cause)
        return False
    with archive.database.cursor() as cursor:
        whole = table.grouped(f"read_parquet({_sql_word(path)}, hive_partitioning = false)", WEEK_S, week)
        archive.write(table, host, "w", week, cursor.sql(whole).to_arrow_table())
    # Only now: as long as a day is there, a reader takes it and not the week's sum.
    _delete(days)
    return True


class _Damaged(Exception):
    def __init__(self, path: Path, cause: Exception) -> None:
        super().__init__(str(path))
        self.path, self.cause = path, cause


def _pieces(table: Table, sources: dict[int, Path]) -> Iterator[pa.Table]:
    """The rows of each day, from the file that has them, in pieces by key.

    A page that looks for some classes reads a piece of all days in less than half the time of pieces of a day.
    """
    order = [(name, "ascending") for name in (*table.key, "t_s")]
    piece: list[pa.Table] = []
    for day, path in sorted(sources.items()):
        try:
            rows = _without_impossible(table, day_rows(path, day, table.schema), path)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise _Damaged(path, error) from error
        if piece and sum(map(len, piece)) + len(rows) > MOST_ROWS:
            yield pa.concat_tables(piece).sort_by(order)
            piece = []
        piece.append(rows)
    yield pa.concat_tables(piece).sort_by(order)


def day_rows(path: Path, day: int, schema: pa.Schema) -> pa.Table:
    """The rows of one day in a file of days."""

    def pieces(file: pq.ParquetFile) -> list[int]:
        spans = [file.metadata.row_group(n).column(0).statistics for n in range(file.num_row_groups)]
        return [
            n
            for n, span in enumerate(spans)
            if span is None or not span.has_min_max or span.min <= day <= span.max
        ]

    rows = parquet.read(path, schema, pieces)
    return rows.filter(pc.equal(rows["t_s"], day))


def _sql_word(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _read(table: Table, files: list[File]) -> pa.Table:
    """All rows of some files. A damaged one is set aside and costs only its own time."""
    found = []
    for file in files:
        try:
            rows = parquet.read(file.path, table.schema)
            found.append(_without_impossible(table, rows, file.path))
        except (pa.ArrowException, ValueError, OSError) as error:
            set_aside(file.path, error)
    return pa.concat_tables(found) if found else table.schema.empty_table()


def grouped(archive: Archive, table: Table, rows: pa.Table, unit_s: int) -> pa.Table:
    """Rows added up to units of ``unit_s``."""
    with archive.database.cursor() as cursor:
        cursor.register("rows_of_files", rows)
        found = cursor.sql(table.grouped("rows_of_files", unit_s)).to_arrow_table()
        return found.cast(table.schema)


def set_aside(path: Path, error: Exception) -> None:
    """A damaged file is kept under another name, for a person to look at. Raises StoreError if it may be whole."""
    check_shortage(error, path)
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"{path.name}.damaged"))


def _delete(files: list[File]) -> None:
    for file in files:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot be deleted: {error.strerror}", place=str(file.path)) from error


def trim(archive: Archive, now_s: float, keep: Keep, share: float = 1.0) -> int:
    """Delete what is older than it is kept, then the oldest finest rows until the size fits. Returns the files.

    ``now_s``: the history's own time (``elapsed``), never the bare clock. ``share``: of all files, the most that
    age may delete at a time, but at least ``FEWEST_DELETED``; the size is a limit whatever it takes.
    """
    deleted = 0
    days_s = keep.age_s or now_s
    limits = {
        "m": KEEP_MINUTES_S, "M": KEEP_MINUTES_S, "h": KEEP_HOURS_S, "d": days_s, "D": days_s, "w": days_s,
    }  # fmt: skip
    files = [file for table in TABLES for file in archive.files(table)]
    most = max(round(share * len(files)), FEWEST_DELETED) if share < 1 else len(files)
    left: list[File] = []
    for file in sorted(files, key=lambda f: f.t_s):
        limit = min(limits[file.kind], keep.age_s or limits[file.kind])
        if file.end_s < now_s - limit and deleted < most:
            _delete([file])
            deleted += 1
        else:
            left.append(file)
    sums = Sums(archive.root)
    sums.trim(now_s - keep.age_s if keep.age_s else 0)
    if keep.size_bytes and (gone := _shrink(archive, left, keep.size_bytes)):
        deleted += gone
        sums.clear()
    _remove_empty(archive)
    return deleted


def _shrink(archive: Archive, files: list[File], size_bytes: int) -> int:
    excess, deleted = archive.size_bytes() - size_bytes, 0
    for file in sorted(files, key=lambda f: (GOES[f.kind], f.t_s)):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            excess -= file.path.stat().st_size
        _delete([file])
        deleted += 1
    return deleted


def _remove_empty(archive: Archive) -> None:
    for table in TABLES:
        for part in listed(archive.root / table):
            for folder in [*listed(part), part]:
                with contextlib.suppress(OSError):
                    folder.rmdir()
