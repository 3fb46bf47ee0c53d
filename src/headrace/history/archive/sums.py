"""Sums over many files of the history, cached on disk: a page over months need not read them all after a restart.

    ROOT/.sums/<end>-<hash>.parquet    what a question adds up over a lot of files; ``end``: when the first ended

A sum is valid only for its question and for exactly these files: if one is replaced or deleted, the sum is
ignored. All sums may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.history.archive.files import DAY_S, File

FOLDER = ".sums"
#: A sum that was not asked for so long is deleted; so are the longest unused, if all take more than this.
UNUSED_S, MOST_BYTES = 7 * DAY_S, 48 << 20
#: A lot of fewer files is read as fast as its sum.
FEWEST_FILES = 4


class Sums:
    """The sums under an archive's root. If one cannot be read or written, the answer only takes longer."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    def path(self, question: Any, files: Iterable[File]) -> Path | None:
        """Where the answer to a question over these files is; None if it is not kept."""
        files = list(files)
        if len(files) < FEWEST_FILES or any(file.kind in "mM" for file in files):
            return None
        digest = hashlib.sha256(repr(question).encode("utf-8", "surrogateescape"))
        try:
            # A week's file may occur once for each of its days.
            known = {path: path.stat() for path in {file.path for file in files}}
        except OSError:
            return None
        for file in files:
            found = known[file.path]
            identity = (
                str(file.path), file.kind, file.t_s, file.is_part,
                found.st_ino, found.st_size, found.st_mtime_ns,
            )  # fmt: skip
            digest.update(repr(identity).encode("utf-8", "surrogateescape"))
        return self._folder / f"{min(file.end_s for file in files)}-{digest.hexdigest()[:32]}.parquet"

    def read(self, path: Path) -> pa.Table | None:
        try:
            with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
                rows = file.read(use_threads=False)
            os.utime(path)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, ValueError, OSError):
            _delete(path)
            return None
        return rows

    def keep(self, path: Path, rows: pa.Table) -> None:
        """Not synced: after a power cut its checksums tell whether it is whole."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(suffix=".part", dir=self._folder)
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                pq.write_table(rows, file, compression="zstd", write_page_checksum=True)
            os.replace(draft, path)
        except (pa.ArrowException, OSError):
            _delete(Path(draft))

    def trim(self, first_s: float) -> None:
        """Delete sums of files that ended before ``first_s``, as those files are deleted, too; sums that were not
        asked for in a long time; and what is too much.
        """
        oldest = time.time() - UNUSED_S
        left: list[tuple[float, int, Path]] = []
        for path in self._all():
            end = path.name.partition("-")[0]
            try:
                found = path.stat()
            except OSError:
                continue
            if found.st_mtime < oldest or (end.isdigit() and int(end) < first_s):
                _delete(path)
            else:
                left.append((found.st_mtime, found.st_size, path))
        excess = sum(size for _, size, _ in left) - MOST_BYTES
        for _, size, path in sorted(left):
            if excess <= 0:
                break
            _delete(path)
            excess -= size

    def clear(self) -> None:
        for path in self._all():
            _delete(path)

    def _all(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except OSError:
            return []


def _delete(path: Path) -> None:
    """If it cannot be deleted, the others still are."""
    with contextlib.suppress(OSError):
        path.unlink()
