"""A digest as a table, and as a Parquet file.

It is one long table (``TABLE``). ``part`` says what a row is about; rows of the same part, class, slice, name,
bucket (and, for labels, text) add up: ``SUM(count)``, ``SUM(sum)``, ``MIN(least)``, ``MAX(most)``, in any engine.
All are whole numbers, so the merge of the parts is exactly the digest of the whole.

    part            name                  count       sum      least, most
    header          mode, group, width    in ``text``; for the widths of slices: ``most``, ns
    source          JSON: input, host     times read
    filter          JSON as it was given
    coverage        counter                           what was read, or missed (docs/reference/digest-format.md)
    place           JSON                                                     one place of damage
    number          response_ns, rows_sent ...        events that told it, their sum, the extremes
                    response_ns_squares ...           the same events, the sum of the squares
                    summarised            of a server's summary: calls, rows; ``summarised_p95_ns`` ...: ``least``
    text            fingerprint, verb, folded_id, tables, key, sample        in ``text``
    latency         response_ns, rows_sent ...        events in ``bucket``
    label           user, host, database, error       events, their response times; ``least`` orders what is kept
    slice           response_ns, failed   as number, of one class from ``slice_ns`` on
    heat            response_ns           events of all classes in ``bucket`` from ``slice_ns`` on

and of binary logs (``headrace.traffic.digests.binary_log``):

    transaction     count, log_bytes ...  as number; rows, bytes ... also in ``bucket``
    kind            kind of event         events, their bytes in ``sum``
    table           insert, update ...    statements, rows in ``sum``; the table is in ``class``
    largest         JSON                  bytes in ``sum``: one of the largest transactions
    gap             what is missing       between two logs, or among the GTIDs

``class`` is the class's id, or the JSON of its key where classes are not all that was grouped by; empty for all
classes together, ``*`` for those that found no room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.errors import StoreError, write_error
from headrace.base.parquet import unpacked_bytes
from headrace.base.whole import make_folder, plain_file, whole_file

FORMAT = 1

WIDE = pa.decimal128(38, 0)
TABLE = pa.schema(
    [
        ("part", pa.string()),
        ("class", pa.string()),
        ("slice_ns", pa.int64()),
        ("name", pa.string()),
        ("bucket", pa.int32()),
        ("text", pa.string()),
        ("count", pa.int64()),
        ("sum", WIDE),
        ("least", pa.int64()),
        ("most", pa.int64()),
    ]
)

ALL, OTHERS = "", "*"
SECOND_NS = 1_000_000_000
#: The agent's bounds (docs/reference/digest-format.md): a merge keeps what the agent would keep of the whole.
MOST_SLICES, MOST_CLASS_SLICES = 512, 262_144
MOST_NAMES, MOST_NAMES_OF_ALL, MOST_ERRORS = 32, 1_024, 64
MOST_PLACES = 20
MOST_LARGEST = 20
#: What a file from anywhere may take in memory: rows, and bytes of their texts. Packed, a table of any size is a
#: small file; the largest honest ones, merged from those of many hosts, have some million rows.
MOST_ROWS, MOST_BYTES = 20_000_000, 2 << 30
#: Rows that are unpacked together.
_ROWS_AT_ONCE = 1 << 16
#: Ends the name of a number whose sum is that of the squares.
SQUARES = "_squares"
#: Calls of a server's own summary (``count``) and its rows (``sum``): nothing is known of a single one of them.
#: The percentiles that such a row states are in numbers of this name and theirs.
SUMMARISED = "summarised"
STATED = ("p95", "p99", "p999")
#: Stands for errors beyond the lowest numbers.
OTHER_ERRORS = "other"


class Rows:
    """Collects rows of TABLE."""

    def __init__(self, before: Rows | None = None) -> None:
        """``before``: other rows of the same file, which count towards its limits."""
        self._columns: dict[str, list[Any]] = {name: [] for name in TABLE.names}
        self._count: int = before._count if before else 0
        self._bytes: int = before._bytes if before else 0

    def add(self, part: str, query_class: str, name: str, **cells: Any) -> None:
        """One row; unnamed columns are null."""
        self.extend(part, query_class, name, 1, **{key: [cell] for key, cell in cells.items()})

    def extend(self, part: str, query_class: str, name: str, n: int, **cells: Sequence[Any]) -> None:
        """``n`` rows that differ in their cells. Raises ValueError if they are more than a digest may have."""
        self._count += n
        self._bytes += n * (len(query_class) + len(name)) + sum(
            len(text or "") for text in cells.get("text", ())
        )
        if self._count > MOST_ROWS or self._bytes > MOST_BYTES:
            raise ValueError(f"more than {MOST_ROWS:,} rows, or {MOST_BYTES >> 30} GiB of texts")
        cells = {**cells, "part": [part] * n, "class": [query_class] * n, "name": [name] * n}
        for key, column in self._columns.items():
            column.extend(cells.get(key) or [None] * n)

    def table(self) -> pa.Table:
        arrays = [
            _wide(self._columns[each.name])
            if each.type == WIDE
            else pa.array(self._columns[each.name], each.type)
            for each in TABLE
        ]
        return pa.Table.from_arrays(arrays, schema=TABLE)


def _wide(numbers: Sequence[int | None]) -> pa.Array:
    try:
        return pa.array(numbers, pa.int64()).cast(WIDE)
    except (OverflowError, pa.ArrowInvalid):  # sums of squares pass 64 bits
        return pa.array([None if n is None else Decimal(n) for n in numbers], WIDE)


def write(table: pa.Table, path: Path) -> None:
    """Write the file atomically."""
    try:
        make_folder(path.parent)
        marked = table.replace_schema_metadata({"headrace": f"digest {FORMAT}"})
        with whole_file(path, 0o600 if has_literals(table) else 0o644) as file:
            pq.write_table(marked, file, compression="zstd", row_group_size=1 << 18)
    except OSError as error:
        raise write_error(error, path) from error


def has_literals(table: pa.Table) -> bool:
    """Whether it has samples: statements with the original values."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.equal(table["name"], "sample")).as_py())


def read(path: Path) -> pa.Table:
    """One digest as it was written. Raises StoreError."""
    try:
        with plain_file(path) as source:
            file = pq.ParquetFile(source)
        mark = (file.schema_arrow.metadata or {}).get(b"headrace", b"").decode("ascii", "replace")
        if mark != f"digest {FORMAT}":
            raise StoreError(
                "it is Parquet, but not a digest that this headrace reads",
                place=str(path),
                hint="make one with `headrace digest SOURCE --save FILE.parquet`",
            )
        if file.metadata.num_rows > MOST_ROWS:
            raise StoreError(f"more than {MOST_ROWS:,} rows", place=str(path))
        return pa.Table.from_batches(list(_batches(path)), TABLE)
    except (LookupError, OSError, pa.ArrowException, ValueError) as error:
        said = [*str(error).splitlines(), type(error).__name__]
        raise StoreError(f"cannot be read: {said[0]}", place=str(path)) from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows, some at a time. Texts are counted before they are unpacked: a text that stands in every row is
    stored once.
    """
    texts = [each.name for each in TABLE if each.type == pa.string()]
    total = 0
    with plain_file(path) as source:
        file = pq.ParquetFile(source, read_dictionary=texts)
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=TABLE.names):
            total += sum(unpacked_bytes(column) for column in batch.columns)
            if total > MOST_BYTES:
                raise StoreError(f"more than {MOST_BYTES >> 30} GiB when it is unpacked", place=str(path))
            yield from pa.Table.from_batches([batch]).cast(TABLE).combine_chunks().to_batches()
