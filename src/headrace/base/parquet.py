"""Parquet files that others may have made, read within bounds.

A megabyte of Parquet may hold a thousand million rows, or one long text that is in every row. So rows are counted
before any is read, and texts before they are unpacked; a pipe or a device under the name is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.base.received import BadContent
from headrace.base.whole import plain_file

#: The rows of an hour of a host at the most that its minutes may have, and what a table becomes in memory.
MOST_ROWS = 12_000_000
MOST_BYTES = 1 << 30
_ROWS_AT_ONCE = 1 << 16


@contextlib.contextmanager
def opened(
    path: Path, texts: Sequence[str] = (), most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> Iterator[pq.ParquetFile]:
    """The file, when it is not larger than it may be. Raises BadContent, OSError, ArrowException."""
    with (
        plain_file(path) as source,
        # By its descriptor: what was checked is what is read.
        pq.ParquetFile(place := f"/proc/self/fd/{source.fileno()}", pre_buffer=False) as plain,
        pq.ParquetFile(
            place, metadata=plain.metadata, read_dictionary=_there(plain, texts), pre_buffer=False
        ) as file,
    ):
        meta = file.metadata
        groups = [meta.row_group(n) for n in range(meta.num_row_groups)]
        rows = [group.num_rows for group in groups]
        if meta.num_rows > most_rows or min(rows, default=0) < 0 or sum(rows) != meta.num_rows:
            raise BadContent(f"too large: {max(meta.num_rows, sum(rows)):,} rows")
        if sum(group.total_byte_size for group in groups) > most_bytes:
            raise BadContent(f"too large: more than {most_bytes >> 30} GiB when it is unpacked")
        if any(pa.types.is_nested(field.type) for field in file.schema_arrow):
            raise BadContent("holds nested columns")
        yield file


def _there(file: pq.ParquetFile, names: Sequence[str]) -> list[str]:
    """Those of the names that the file has: the library ends with a KeyError for any other."""
    columns = {file.metadata.schema.column(n).path for n in range(file.metadata.num_columns)}
    return [name for name in names if name in columns]


def read(
    path: Path,
    schema: pa.Schema,
    groups: Callable[[pq.ParquetFile], list[int]] | None = None,
    most_rows: int = MOST_ROWS,
) -> pa.Table:
    """The rows of a file, or of some of its row groups, in these columns. Raises as ``opened``."""
    texts = [field.name for field in schema if field.type == pa.string()]
    batches: list[pa.RecordBatch] = []
    with opened(path, texts, most_rows) as file:
        if file.schema_arrow.names != schema.names:
            raise BadContent(f"not the columns {', '.join(schema.names)}")
        total = 0
        chosen = groups(file) if groups else list(range(file.num_row_groups))
        for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=chosen, use_threads=False):
            total += sum(unpacked_bytes(column) for column in batch.columns)
            if total > MOST_BYTES:
                raise BadContent(f"too large: more than {MOST_BYTES >> 30} GiB when it is unpacked")
            batches += pa.Table.from_batches([batch]).cast(schema).to_batches()
    # empty_table() would import pandas.
    return pa.Table.from_batches(batches, schema)


def rows(file: pq.ParquetFile, names: Sequence[str], most_bytes: int) -> Iterator[dict[str, Any]]:
    """The rows of an open file, whose columns become at most ``most_bytes``. Raises BadContent, ArrowException."""
    total = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(names), use_threads=False):
        total += sum(unpacked_bytes(column) for column in batch.columns)
        if total > most_bytes:
            raise BadContent(f"too large: more than {most_bytes >> 20} MiB when it is unpacked")
        yield from batch.to_pylist()


def unpacked_bytes(column: pa.Array) -> int:
    """What a column takes once its texts are in every row where they are named."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
    return int(pc.sum(lengths).as_py() or 0)
