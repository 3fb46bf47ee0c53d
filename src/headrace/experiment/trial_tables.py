"""Whether a trial's tables can be what they say: an experiment may come from somebody else, or be damaged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base import parquet
from headrace.base.errors import StoreError
from headrace.base.received import BadContent
from headrace.base.whole import plain_file

#: A day of samples, and of latencies by second; both are read some at a time.
MOST_ROWS = {"intervals": 2_000_000, "latency": 100_000_000, "samples": 500_000_000}
MOST_BYTES = 16 << 30
#: The last bucket of ``buckets``.
MOST_BUCKET = 7424


@contextlib.contextmanager
def table_file(name: str, path: Path) -> Iterator[Path]:
    """A trial's table by a name that leads to what was checked, whatever becomes of its own. Raises StoreError."""
    with contextlib.ExitStack() as held:
        try:
            file = held.enter_context(plain_file(path))
            status = os.fstat(file.fileno())
            own = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
            _check(name, _Place(own), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(f"a table cannot be read: {str(error)[:200]}", place=str(path)) from error
        yield own


def check_table(name: str, path: Path) -> None:
    """Raises StoreError for numbers that cannot be, rows that are there twice, and more than a trial has."""
    with table_file(name, path):
        pass


class _Place(NamedTuple):
    """Where an open file is for now: no part of what it is."""

    path: Path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4096)
def _check(name: str, place: _Place, _device: int, _inode: int, _mtime_ns: int, _size: int) -> None:
    seen: set[tuple[object, object]] = set()
    count = 0
    with parquet.opened(place.path, most_rows=MOST_ROWS[name], most_bytes=MOST_BYTES) as file:
        if name == "samples":
            return
        for batch in file.iter_batches(1 << 16, use_threads=False):
            for field, column in zip(batch.schema, batch.columns, strict=True):
                _check_numbers(field, column)
            if name == "intervals":
                keys = list(zip(batch["t_s"].to_pylist(), batch["operation"].to_pylist(), strict=True))
                count += len(keys)
                seen.update(keys)
                if len(seen) < count:
                    raise BadContent("an operation has the same second twice")


def _check_numbers(field: pa.Field, column: pa.Array) -> None:
    if pa.types.is_floating(field.type):
        if pc.all(pc.is_finite(column)).as_py() is False:
            raise BadContent(f"{field.name}: a value is not a number")
    elif pa.types.is_integer(field.type):
        ends = pc.min_max(column).as_py()
        most = MOST_BUCKET if field.name == "bucket" else 2**62
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] <= most:
            raise BadContent(f"{field.name}: {ends['min']} to {ends['max']} cannot be")
