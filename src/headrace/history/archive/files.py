"""The files of the history: their names, and writing them so that a kill at any moment leaves readable data.

    ROOT/<table>/day=2026-11-22/host=<host>/m-<t_s>.parquet    one minute
                                           /M-<t_s>.parquet    the minutes of an hour, in one file
                                           /h-<t_s>.parquet    an hour
    ROOT/<table>/month=2026-11/host=<host>/d-<t_s>.parquet     a day
    ROOT/<table>/year=2026/host=<host>/D-<t_s>.parquet         the days of a week, in one file
                                      /w-<t_s>.parquet         a week

A coarser file is written, then the finer ones that it holds are deleted. In between both exist, so a reader takes
``M`` in place of the ``m`` that it covers: coverage follows from the names alone. A ``d`` beside its ``D`` is the
newer of the two, so it is taken in place of the week's rows of that day.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.errors import Busy, StoreError, write_error
from headrace.base.whole import make_folder, sync
from headrace.history.archive.tables import TABLES, Table

MINUTE_S, HOUR_S, DAY_S, WEEK_S = 60, 3600, 86400, 7 * 86400
#: 1970 began on a Thursday; weeks begin on Mondays.
FIRST_MONDAY_S = 4 * DAY_S
T = TypeVar("T")

#: Kind of file -> how many seconds it covers.
COVERS_S = {"m": MINUTE_S, "M": HOUR_S, "h": HOUR_S, "d": DAY_S, "D": WEEK_S, "w": WEEK_S}
#: Kind of folder -> how much of a date names it.
PARTS = {"year": 4, "month": 7, "day": 10}
#: Width of rows -> kinds of files, those that are taken first in front.
ORDER = {MINUTE_S: "MmhdD", HOUR_S: "hMmdD", DAY_S: "dDhMm", WEEK_S: "dwDhMm"}
#: A folder that changed longer ago than this is known by the time of its change.
SETTLED_NS = 2_000_000_000
#: Limit of a database; what exceeds it is spilled.
MEMORY = "96MB"
#: The machine is short of something just now; the file itself may be fine.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, order=True)
class File:
    """One file: ``kind`` is m, M, h, d, D or w; it covers ``t_s`` to ``end_s``.

    ``inode`` tells a file from the one that it replaced. ``is_part``: only this day of the file of a week.
    """

    t_s: int
    kind: str
    path: Path
    inode: int = 0
    is_part: bool = False

    @property
    def end_s(self) -> int:
        return self.t_s + COVERS_S[self.kind]

    def days(self) -> list[File]:
        """Those of a week, each as a file."""
        return [File(t_s, "d", self.path, self.inode, True) for t_s in range(self.t_s, self.end_s, DAY_S)]


def week_of(t_s: int) -> int:
    """The start of the week."""
    return t_s - (t_s - FIRST_MONDAY_S) % WEEK_S


class Archive:
    """A folder with the history of hosts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[Path, tuple[int, tuple[Any, ...]]] = {}

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """One for all roll-ups: opening one takes longer than adding up a minute."""
        return self.connect(threads=1)

    def connect(self, threads: int) -> duckdb.DuckDBPyConnection:
        """A database whose spilled rows are as private as the history, not in the working directory."""
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY,
            "threads": threads,
            "preserve_insertion_order": False,
            "temp_directory": str(self.root / ".spill"),
        }
        return duckdb.connect(config=config)

    def create(self) -> None:
        """Make the folder, readable only by its owner: texts of statements name tables and users."""
        try:
            make_folder(self.root, 0o700)
        except OSError as error:
            raise write_error(error, self.root) from error

    def path(self, table: str, host: str, kind: str, t_s: int) -> Path:
        day = datetime.fromtimestamp(t_s, UTC)
        key = {"d": "month", "D": "year", "w": "year"}.get(kind, "day")
        part = f"{key}={f'{day:%Y-%m-%d}'[: PARTS[key]]}"
        return self.root / table / part / f"host={_quoted(host)}" / f"{kind}-{t_s}.parquet"

    def write(self, table: Table, host: str, kind: str, t_s: int, rows: pa.Table) -> Path:
        """One file, whole or absent. Raises DiskFull or StoreError."""
        path = self.path(table.name, host, kind, t_s)
        write_whole(rows.cast(table.schema), path, is_private=table.is_private)
        return path

    def write_pieces(self, table: Table, host: str, kind: str, t_s: int, pieces: Iterable[pa.Table]) -> Path:
        """The same piece by piece, of which only one is in memory at a time."""
        path = self.path(table.name, host, kind, t_s)
        with (
            _whole_file(path, is_private=table.is_private) as file,
            pq.ParquetWriter(file, table.schema, compression="zstd") as writer,
        ):
            for rows in pieces:
                writer.write_table(rows.cast(table.schema))
        return path

    def hosts(self) -> list[str]:
        """Every host with any history."""
        folders = [folder for part in listed(self.root / "states") for folder in listed(part)]
        names = {folder.name for folder in folders if folder.name.startswith("host=")}
        return sorted(unquote(name.removeprefix("host=")) for name in names)

    def files(
        self,
        table: str,
        host: str | None = None,
        since_s: float = 0,
        until_s: float = 4e9,
        *,
        days_suffice: bool = False,
    ) -> list[File]:
        """All files that overlap the range, in order of time. ``days_suffice``: none of a day that is whole.

        Raises StoreError if a folder cannot be read.
        """
        last = _day(until_s)
        found: list[File] = []
        for key, width in PARTS.items():
            # A week may have begun in the year before.
            first = _day(since_s - WEEK_S if key == "year" else since_s)
            whole = {_day(t_s) for t_s in days_of(found)} if days_suffice and key == "day" else set()
            for part in self._listed(self.root / table, listed):
                if part.name[: len(key) + 1] != f"{key}=" or part.name[len(key) + 1 :] in whole:
                    continue
                if not first[:width] <= part.name[len(key) + 1 :] <= last[:width]:
                    continue
                folders = [part / f"host={_quoted(host)}"] if host is not None else listed(part)
                for folder in folders:
                    files = self._listed(folder, _files)
                    found += [f for f in files if f.t_s < until_s and f.end_s > since_s]
        return sorted(found, key=lambda f: (f.t_s, f.kind, f.path))

    def _listed(self, folder: Path, read: Callable[[Path], Iterable[T]]) -> tuple[T, ...]:
        """What ``read`` finds in a folder; read again when it changes."""
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError as error:
            self._known.pop(folder, None)
            must_be_absent(error, folder)
            return ()
        known = self._known.get(folder)
        if known is None or known[0] != changed_ns:
            known = changed_ns, tuple(read(folder))
            # A change within the same tick of the clock would not be seen.
            if time.time_ns() - changed_ns > SETTLED_NS:
                self._known[folder] = known
        return known[1]

    def size_bytes(self) -> int:
        total = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(folder, name)).st_size
        return total

    def last_minute_s(self, host: str) -> int:
        """The newest minute that is on disk; 0 without any."""
        return max((file.end_s - MINUTE_S for file in self.files("states", host)), default=0)

    def has_minute(self, host: str, t_s: int) -> bool:
        """Whether a minute is in the history, or in rows from which it cannot be told apart any more."""
        files = self.files("states", host, t_s, t_s + MINUTE_S)
        if any(file.kind == "m" for file in files):
            return True
        whole_hours = [file for file in files if file.kind == "M"]
        if not whole_hours:
            return bool(files)
        try:
            return any(
                t_s in pq.read_table(file.path, columns=["t_s"])["t_s"].to_pylist() for file in whole_hours
            )
        except (pa.ArrowException, ValueError, OSError):
            return True

    def set_aside_from(self, t_s: float) -> int:
        """Rename what is of a later time, so that no reader takes it for data; the number of files."""
        count = 0
        for table in TABLES:
            for file in self.files(table, since_s=t_s):
                if file.t_s >= t_s:
                    with contextlib.suppress(OSError):
                        file.path.rename(file.path.with_name(f"{file.path.name}.ahead"))
                        count += 1
        return count

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only writer. Raises Busy, and StoreError or DiskFull if it cannot be written."""
        path = self.root / "lock"
        try:
            self.create()
            lock = open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o640))  # noqa: SIM115
        except OSError as error:
            raise write_error(error, path) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Busy(
                    "another headrace serve writes this history", place=str(self.root), hint="--data DIR"
                ) from error
            yield

    def clear_drafts(self) -> int:
        """Delete what a killed process was writing. Only at the start: a draft may belong to the one that runs."""
        drafts = list(self.root.glob("*/*/*/.*.part"))
        for draft in drafts:
            draft.unlink(missing_ok=True)
        return len(drafts)


def write_whole(rows: pa.Table, path: Path, *, is_private: bool = False) -> None:
    """One table as a file, whole or absent. Raises DiskFull or StoreError."""
    with _whole_file(path, is_private=is_private) as file:
        pq.write_table(rows, file, compression="zstd")


def write_bytes(pieces: Iterable[bytes], path: Path) -> None:
    """The content of a file of the history, whole or absent. Raises DiskFull or StoreError."""
    with _whole_file(path, is_private=False) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def _whole_file(path: Path, *, is_private: bool) -> Iterator[BinaryIO]:
    """Write, fsync, rename, fsync the folder."""
    draft = path.with_name(f".{path.name}.part")
    try:
        make_folder(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600 if is_private else 0o640)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_error(error, path) from error
        raise


def chosen(files: list[File], rows_s: int, since_s: float = 0, until_s: float = 4e9) -> list[File]:
    """Files of one host that together hold each moment once, with rows of ``rows_s`` where they exist.

    Time that was not rolled up yet comes from finer files; time whose finer files were deleted from coarser ones.
    The row of a week is taken only if all of the week is in the range.
    """
    taken: list[File] = []
    first_hour = min((file.t_s for file in files), default=0) // HOUR_S
    # A bit per hour: of all that is taken, and of the minutes among it.
    covered = minutes = 0

    def take(file: File) -> bool:
        nonlocal covered, minutes
        start, end = file.t_s // HOUR_S, -(-file.end_s // HOUR_S)
        hours = ((1 << end - start) - 1) << start - first_hour
        # Minutes share their hour with each other, and with nothing else.
        if hours & (covered ^ minutes if file.kind == "m" else covered):
            return False
        taken.append(file)
        covered |= hours
        if file.kind == "m":
            minutes |= hours
        return True

    for kind in ORDER[rows_s]:
        for file in files:
            if file.kind != kind or (kind == "w" and not since_s <= file.t_s < file.end_s <= until_s):
                continue
            if not take(file) and kind == "D":
                for day in file.days():
                    if day.t_s < until_s and day.end_s > since_s:
                        take(day)
    return sorted(taken, key=lambda f: (f.t_s, f.kind, f.path))


def days_of(files: Iterable[File]) -> set[int]:
    """Starts of the days of which there is a row: in a file of its own, or in that of a week."""
    days = [day for file in files for day in (file.days() if file.kind == "D" else [file])]
    return {day.t_s for day in days if day.kind == "d"}


def _quoted(host: str) -> str:
    """One path component, whatever a host is named."""
    return quote(host, safe="").replace(".", "%2E") if host.startswith(".") else quote(host, safe="")


@lru_cache(maxsize=4096)
def _day(t_s: float) -> str:
    return f"{datetime.fromtimestamp(min(max(t_s, 0), 4e9), UTC):%Y-%m-%d}"


def listed(folder: Path) -> list[Path]:
    """The folders in a folder; none if it does not exist. Raises StoreError."""
    try:
        return sorted(Path(each.path) for each in os.scandir(folder) if each.is_dir())
    except OSError as error:
        must_be_absent(error, folder)
        return []


def _files(folder: Path) -> Iterator[File]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        must_be_absent(error, folder)
        return
    for entry in entries:
        kind, _, rest = entry.name.partition("-")
        number, _, ending = rest.partition(".")
        if kind in COVERS_S and ending == "parquet" and number.isdigit():
            yield File(int(number), kind, folder / entry.name, entry.inode())


def must_be_absent(error: OSError, folder: Path) -> None:
    """Raises StoreError if the folder exists: one that cannot be read is not empty.

    Otherwise what is in it would be deleted from the copy, and a week would be made without it.
    """
    check_shortage(error, folder)
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise StoreError(f"cannot be read: {error.strerror or error}", place=str(folder)) from error


def check_shortage(error: Exception, path: Path) -> None:
    """Raises StoreError if this machine lacks what it takes to read anything, now.

    Otherwise a busy hour would make good files damaged, and full folders empty.
    """
    if isinstance(error, MemoryError) or getattr(error, "errno", None) in SHORTAGES:
        raise StoreError(f"cannot be read now: {error}", place=str(path)) from error
