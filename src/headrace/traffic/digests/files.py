"""Files that contain a digest: headrace's Parquet, or the agent's lines, plain or compressed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import zstandard

from headrace.base.errors import StoreError
from headrace.base.whole import plain_file
from headrace.traffic.digests import table as tables
from headrace.traffic.digests.lines import read_each, read_lines
from headrace.traffic.digests.merge import merge

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

#: Files that are merged together.
AT_ONCE = 8

_PARQUET, _ZSTD = b"PAR1", b"\x28\xb5\x2f\xfd"
#: No line of ours is longer. Compressed, one that never ends is a small file.
MOST_LINE_BYTES = 64 << 20
#: Start of the agent's first line.
_LINES = re.compile(rb'\{"type": ?"digest"')
_HEAD_BYTES = 32


def is_digest(path: Path) -> bool:
    """Whether a file is a digest, by its first bytes; False if it is not a local file."""
    try:
        with plain_file(path) as file:
            head = file.read(_HEAD_BYTES)
            if head.startswith(_ZSTD):
                file.seek(0)
                head = zstandard.ZstdDecompressor().stream_reader(file).read(_HEAD_BYTES)
    except (OSError, zstandard.ZstdError):
        return False
    return head.startswith(_PARQUET) or _LINES.match(head) is not None


def load_all(paths: Sequence[Path]) -> pa.Table:
    """One digest of many files, merged in batches, so that memory does not grow with their number.

    Raises StoreError.
    """
    whole = load(paths[0])
    for at in range(1, len(paths), AT_ONCE):
        some = paths[at : at + AT_ONCE]
        whole = merge([whole, *map(load, some)], [str(path) for path in (paths[0], *some)])
    return whole


def load(path: Path) -> pa.Table:
    """One digest. Raises StoreError."""
    return _opened(path, read_lines)


def load_each(path: Path) -> list[pa.Table]:
    """The digests of a file one by one: those of ``--every`` are not merged. Raises StoreError."""
    found = _opened(path, read_each)
    return found if isinstance(found, list) else [found]


def _opened(path: Path, read: Callable[[Iterable[bytes], str], T]) -> T | pa.Table:
    try:
        with plain_file(path) as file:
            head = file.read(4)
            if head == _PARQUET:
                return tables.read(path)
            file.seek(0)
            if head == _ZSTD:
                reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
                return read(_lines(io.BufferedReader(reader), path), str(path))
            return read(_lines(file, path), str(path))
    except (OSError, zstandard.ZstdError) as error:
        raise StoreError(f"cannot be read: {error}", place=str(path)) from error


def _lines(file: io.BufferedIOBase, path: Path) -> Iterator[bytes]:
    while line := file.readline(MOST_LINE_BYTES + 1):
        if len(line) > MOST_LINE_BYTES:
            raise StoreError(f"a line is longer than {MOST_LINE_BYTES >> 20} MiB", place=str(path))
        yield line
