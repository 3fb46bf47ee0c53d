"""Questions to the history, answered by DuckDB from the files that the range needs."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from headrace.base import parquet
from headrace.base.buckets import bucket_value
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Archive, File, chosen
from headrace.history.archive.rollup import day_rows, set_aside
from headrace.history.archive.sums import Sums
from headrace.history.archive.tables import TABLES

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Ranges up to this long are read in minutes, and up to this long in hours. Six hours that begin at the start of a
#: minute may be a minute longer.
IN_MINUTES_S, IN_HOURS_S = 6 * HOUR_S + MINUTE_S, 8 * DAY_S
#: Tables whose minutes and hours are small files, and many, that charts read again and again.
SMALL = ("resources", "metrics", "changes")
#: Files are added up in lots: minutes by ten, hours by day, days and weeks by this many.
LOTS_S = {
    "m": 600, "M": DAY_S, "h": DAY_S, "d": 30 * DAY_S, "D": 4 * WEEK_S, "w": 12 * WEEK_S,
}  # fmt: skip
#: A roll-up deletes files one after the other, so a reader may meet several that vanish.
TRIES = 20
#: Files hardly ever change, so this many bytes of small files and of the sums of lots are kept.
MOST_KEPT_BYTES = 40 << 20


@dataclass(frozen=True)
class Range:
    """``since_s`` to ``until_s``, seconds since 1970."""

    since_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        return self.until_s - self.since_s

    @property
    def rows_s(self) -> int:
        """The width of rows that it is read in."""
        if self.seconds <= IN_MINUTES_S:
            return MINUTE_S
        return HOUR_S if self.seconds <= IN_HOURS_S else DAY_S

    @property
    def sums_s(self) -> int:
        """The same where only the sum over all of it is wanted: whole weeks do."""
        return WEEK_S if self.rows_s == DAY_S else self.rows_s

    def aligned(self) -> Range:
        """From the start of a row on, so that a range and the one before it share none."""
        return Range(self.since_s // self.rows_s * self.rows_s, self.until_s)

    def before(self) -> Range:
        """The range of the same length that ends where this one starts."""
        return Range(self.since_s - self.seconds, self.since_s).aligned()


class _Kept:
    """Small files and the sums of lots, the latest used ones."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Hashable, pa.Table] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def table(self, key: Hashable, make: Callable[[], pa.Table]) -> pa.Table:
        """The kept one, or a new one. Who asks for what is being made waits for it: to make it twice at the same
        time would take both of them longer."""
        while True:
            with self._lock:
                if key in self._tables:
                    self._tables.move_to_end(key)
                    return self._tables[key]
                made = self._making.get(key)
                if made is None:
                    made = self._making[key] = threading.Event()
                    break
            made.wait()
        try:
            rows = make()
            with self._lock:
                self._tables[key] = rows
                self._bytes += rows.nbytes
                while self._bytes > MOST_KEPT_BYTES:
                    self._bytes -= self._tables.popitem(last=False)[1].nbytes
            return rows
        finally:
            with self._lock:
                del self._making[key]
            made.set()


def _file_rows(file: File, schema: pa.Schema, host: str) -> pa.Table:
    """The rows of a file, or of one day of it, with their host."""
    rows = day_rows(file.path, file.t_s, schema) if file.is_part else parquet.read(file.path, schema)
    return rows.append_column("host", _repeated(host, len(rows)))


def _repeated(word: str, times: int) -> pa.StringArray:
    """Arrow makes an array of Python's objects only after it has imported pandas, if that is installed: seconds of
    a first page."""
    content = word.encode()
    ends = np.arange(times + 1, dtype=np.int32) * len(content)
    return pa.StringArray.from_buffers(times, pa.py_buffer(ends), pa.py_buffer(content * times))


class Reader:
    """Reads an archive; safe to use from several threads. ``sums``: only if this process may write them."""

    def __init__(self, archive: Archive, sums: Sums | None = None) -> None:
        self.archive = archive
        self._sums = sums
        self._database = archive.connect(threads=2)
        self._lock = threading.Lock()
        self._kept = _Kept()

    def rows(
        self,
        table: str,
        sql: str,
        hosts: str | Sequence[str],
        span: Range,
        *,
        width_s: int = 0,
        **values: Any,
    ) -> list[dict[str, Any]]:
        """The answer of ``sql``, in which ``rows`` are the rows of the hosts in the range, with their ``host``.

        ``width_s``: of the rows; the range's own, or its ``sums_s`` where their times do not matter.
        """
        return _plain_rows(
            self._answer(
                table,
                lambda: self._found(table, hosts, span, width_s or span.rows_s),
                lambda found: self._ask(table, sql, found, span, values),
            )
        )

    def added(
        self,
        table: str,
        each: str,
        whole: str,
        hosts: str | Sequence[str],
        span: Range,
        *,
        width_s: int = 0,
        **values: Any,
    ) -> list[dict[str, Any]]:
        """The same in two steps: ``each`` adds up the ``rows`` of a lot of files, and its answer is kept, as files
        hardly ever change; ``whole`` adds up the answers, its ``lots``. So a long range costs its newest lot.
        """

        def work(found: Mapping[str, list[File]]) -> pa.Table:
            lots = [self._lot(table, each, lot, span, values) for lot in _lots(found)]
            with self._cursor() as cursor:
                cursor.register(
                    "lots", pa.concat_tables(lots) if lots else self._ask(table, each, {}, span, values)
                )
                used = {key: value for key, value in values.items() if f"${key}" in whole}
                return cursor.sql(whole, params=used).to_arrow_table()

        return _plain_rows(
            self._answer(table, lambda: self._found(table, hosts, span, width_s or span.rows_s), work)
        )

    def _lot(
        self, table: str, sql: str, lot: Mapping[str, list[File]], span: Range, values: Mapping[str, Any]
    ) -> pa.Table:
        files = tuple((name, *_identity(file)) for name, files in lot.items() for file in files)
        used = {key: value for key, value in values.items() if f"${key}" in sql}
        known = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in used.items())
        first = min(file.t_s for each in lot.values() for file in each)
        last = max(file.end_s for each in lot.values() for file in each)
        # A range's end moves on with the clock, and cuts no lot but the last.
        cut = max(span.since_s, first), min(span.until_s, last)
        key = (table, sql, known, files, cut)
        is_over = last <= span.until_s  # otherwise the sum changes within a minute
        question = (table, sql, known, tuple(lot), cut) if is_over else None
        return self._kept.table(key, lambda: self._sum(question, table, sql, lot, span, used))

    def _sum(
        self,
        question: Any,
        table: str,
        sql: str,
        lot: Mapping[str, list[File]],
        span: Range,
        values: Mapping[str, Any],
    ) -> pa.Table:
        """The sum of a lot: from disk, or new."""
        sums = self._sums
        files = [file for each in lot.values() for file in each]
        path = sums.path(question, files) if sums and question else None
        if sums is None or path is None:
            return self._ask(table, sql, lot, span, values)
        rows = sums.read(path)
        if rows is None:
            rows = self._ask(table, sql, lot, span, values)
            sums.keep(path, rows)
        return rows

    def newest(self, table: str, sql: str, hosts: Sequence[str], span: Range) -> list[dict[str, Any]]:
        """The same of only the newest file of each host."""

        def find() -> dict[str, list[File]]:
            found = self._found(table, hosts, span, span.rows_s)
            return {name: files[-1:] for name, files in found.items()}

        return _plain_rows(self._answer(table, find, lambda found: self._ask(table, sql, found, span, {})))

    def _answer(
        self,
        table: str,
        find: Callable[[], Mapping[str, list[File]]],
        work: Callable[[Mapping[str, list[File]]], pa.Table],
    ) -> pa.Table:
        for left in reversed(range(TRIES)):
            found = find()
            try:
                return work(found)
            except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
                # Files that were rolled up meanwhile, or that are damaged: look again without them.
                is_gone = any(not file.path.exists() for files in found.values() for file in files)
                is_new = (
                    is_gone
                    or self._drop_damaged(table, found)
                    or isinstance(error, duckdb.IOException | OSError)
                )
                if not left or not is_new:
                    raise
        raise AssertionError

    def _found(
        self, table: str, hosts: str | Sequence[str], span: Range, width_s: int
    ) -> dict[str, list[File]]:
        names = [hosts] if isinstance(hosts, str) else hosts
        return {name: self._files(table, name, span, width_s) for name in names}

    def _files(self, table: str, host: str, span: Range, width_s: int) -> list[File]:
        since_s, until_s = span.since_s, span.until_s
        files = self.archive.files(table, host, since_s, until_s, days_suffice=width_s >= DAY_S)
        return chosen(files, width_s, since_s, until_s)

    def _ask(
        self, table: str, sql: str, found: Mapping[str, list[File]], span: Range, values: Mapping[str, Any]
    ) -> pa.Table:
        is_small = table in SMALL
        kept: list[pa.Table] = []
        # Days of the file of a week -> the files of which they are read; no days: all of it.
        paths: dict[tuple[int, ...], list[str]] = {}
        for name, files in found.items():
            days: dict[str, tuple[int, ...]] = {}
            for file in files:
                if is_small and (file.is_part or file.kind in "mh"):
                    read = partial(_file_rows, file, TABLES[table].schema, name)
                    kept.append(self._kept.table((file.path, *_identity(file)), read))
                else:
                    path = str(file.path)
                    days[path] = (*days.get(path, ()), file.t_s) if file.is_part else ()
            for path, wanted in days.items():
                paths.setdefault(wanted, []).append(path)
        with self._cursor() as cursor:
            sources = []
            named: dict[str, Any] = {"since_s": int(span.since_s), "until_s": span.until_s, **values}
            if kept:
                cursor.register("kept_rows", pa.concat_tables(kept))
                sources.append("SELECT * FROM kept_rows WHERE t_s >= $since_s AND t_s < $until_s")
            for n, (wanted, each) in enumerate(paths.items()):
                named[f"paths{n}"] = each
                sources.append(
                    "SELECT * EXCLUDE (filename), "
                    "url_decode(regexp_extract(filename, 'host=([^/]*)/[^/]*$', 1)) AS host "
                    f"FROM read_parquet($paths{n}, filename = true, hive_partitioning = false) "
                    "WHERE t_s >= $since_s AND t_s < $until_s"
                    + (f" AND t_s IN ({', '.join(map(str, wanted))})" if wanted else "")
                )
            if not sources:
                # empty_table() would import pandas, see _repeated.
                schema = TABLES[table].schema.append(pa.field("host", pa.string()))
                cursor.register("no_rows", pa.Table.from_batches([], schema))
                sources.append("SELECT * FROM no_rows")
            columns, keys = TABLES[table].possible()
            found_rows = " UNION ALL BY NAME ".join(sources)
            whole = f"WITH rows AS (SELECT {columns} FROM ({found_rows}) WHERE {keys}) {sql}"
            used = {key: value for key, value in named.items() if f"${key}" in whole}
            return cursor.sql(whole, params=used).to_arrow_table()

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            cursor = self._database.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def _drop_damaged(self, table: str, found: Mapping[str, list[File]]) -> bool:
        dropped = False
        for files in found.values():
            for file in files:
                try:
                    with parquet.opened(file.path) as held:
                        if held.schema_arrow.remove_metadata() != TABLES[table].schema:
                            raise ValueError(f"not the columns of {table}")
                except FileNotFoundError:
                    dropped = True
                except (pa.ArrowException, ValueError, OSError) as error:
                    set_aside(file.path, error)
                    dropped = True
        return dropped


def _identity(file: File) -> tuple[Hashable, ...]:
    return file.kind, file.t_s, file.inode, file.is_part


def _lots(found: Mapping[str, list[File]]) -> Iterator[dict[str, list[File]]]:
    """Files of the same kind and stretch of time, of all hosts."""
    lots: dict[tuple[str, int], dict[str, list[File]]] = {}
    for name, files in found.items():
        for file in files:
            lot = lots.setdefault((file.kind, file.t_s // LOTS_S[file.kind]), {})
            lot.setdefault(name, []).append(file)
    yield from lots.values()


def _plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    """DuckDB's sums of integers are decimals, and its division by 0 is NaN."""
    if isinstance(value, Decimal):
        return int(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percentile(buckets: NDArray[np.int32], counts: NDArray[np.float64], share: float) -> float | None:
    """A percentile in ns by nearest rank; None without calls. Shapes (n,), ascending buckets.

    Counts are doubles, because their sum may be more than an integer can hold; they are exact up to 2**53.
    """
    total = float(counts.sum())
    if not total:
        return None
    rank = max(float(np.ceil(share * total)), 1.0)
    at = int(np.searchsorted(np.cumsum(counts), rank))
    return float(bucket_value(int(buckets[at])))
