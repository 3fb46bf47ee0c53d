"""Minutes become hours, hours become days; what is too old or too much is deleted.

Work is found from the files' names, so it continues after a kill wherever it stopped, and doing it twice changes
nothing.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

from headrace.archive.files import DAY_S, HOUR_S, Archive, File, listed
from headrace.archive.tables import TABLES, Table
from headrace.errors import StoreError

#: Finer rows are kept this long where the days are: a day file of a class is 1/1440 of its minutes.
KEEP_MINUTES_S, KEEP_HOURS_S = 2 * DAY_S, 35 * DAY_S
#: What goes first where there is too much: the finest, and of those the oldest.
GOES = {"m": 0, "M": 0, "h": 1, "d": 2}


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
            archive.write(table, host, "h", hour, grouped(table, rows, HOUR_S))
            _renew_day(archive, table, host, hour - hour % DAY_S)
        _delete(minutes)
    return len(by_hour)


def _with(rows: pa.Table, late: pa.Table) -> pa.Table:
    """The rows of an hour, in which later written minutes replace those of the same time.

    There are some after a kill between a roll-up and its deletions, and if the host's clock was set back.
    """
    import pyarrow.compute as pc

    if not rows.num_rows:
        return late
    is_old = pc.invert(pc.is_in(rows["t_s"], value_set=pc.unique(late["t_s"])))
    return pa.concat_tables([rows.filter(is_old), late])


def _renew_day(archive: Archive, table: Table, host: str, day: int) -> None:
    """A day that was rolled up before one of its hours changed. Before the minutes are deleted, so that a kill
    leaves them to do it again.
    """
    files = archive.files(table.name, host, day, day + DAY_S)
    if any(file.kind == "d" for file in files):
        hours = [file for file in files if file.kind == "h"]
        archive.write(table, host, "d", day, grouped(table, _read(table, hours), DAY_S))


def _days(archive: Archive, table: Table, host: str, until_s: float) -> int:
    by_day: dict[int, list[File]] = defaultdict(list)
    files = archive.files(table.name, host, until_s=until_s)
    have = {file.t_s for file in files if file.kind == "d"}
    for file in files:
        if file.kind == "h" and file.t_s - file.t_s % DAY_S + DAY_S <= until_s:
            by_day[file.t_s - file.t_s % DAY_S].append(file)
    missing = {day: hours for day, hours in by_day.items() if day not in have}
    for day, hours in missing.items():
        archive.write(table, host, "d", day, grouped(table, _read(table, hours), DAY_S))
    return len(missing)


def _read(table: Table, files: list[File]) -> pa.Table:
    """All rows of some files. A damaged one is set aside and costs only its own time."""
    import pyarrow.parquet as pq

    found = []
    for file in files:
        try:
            found.append(pq.ParquetFile(file.path).read().cast(table.schema))
        except (pa.ArrowException, ValueError, OSError):
            set_aside(file.path)
    return pa.concat_tables(found) if found else table.schema.empty_table()


def grouped(table: Table, rows: pa.Table, unit_s: int) -> pa.Table:
    """Rows added up to units of ``unit_s``."""
    with _database().cursor() as cursor:
        cursor.register("rows_of_files", rows)
        found = cursor.sql(table.grouped("rows_of_files", unit_s)).to_arrow_table()
        return found.cast(table.schema)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all: opening one takes longer than adding up a minute."""
    return duckdb.connect(config={"memory_limit": "96MB", "threads": 1, "preserve_insertion_order": False})


def set_aside(path: Path) -> None:
    """A damaged file is kept under another name, for a person to look at."""
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"{path.name}.damaged"))


def _delete(files: list[File]) -> None:
    for file in files:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot be deleted: {error.strerror}", place=str(file.path)) from error


def trim(archive: Archive, now_s: float, keep: Keep) -> int:
    """Delete what is older than it is kept, then the oldest finest rows until the size fits. Returns the files."""
    deleted = 0
    limits = {"m": KEEP_MINUTES_S, "M": KEEP_MINUTES_S, "h": KEEP_HOURS_S, "d": keep.age_s or now_s}
    left: list[File] = []
    for table in TABLES:
        for file in archive.files(table):
            limit = min(limits[file.kind], keep.age_s or limits[file.kind])
            if file.end_s < now_s - limit:
                _delete([file])
                deleted += 1
            else:
                left.append(file)
    if keep.size_bytes:
        deleted += _shrink(archive, left, keep.size_bytes)
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
