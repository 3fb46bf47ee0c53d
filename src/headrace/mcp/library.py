"""What is below one directory: experiments, saved hosts and digests. Nothing outside of it can be named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.digests.files import is_digest
from headrace.errors import PlanError, Refused, StoreError

#: Directories below the root that are looked into, and entries of one listing.
MOST_DEPTH, MOST_ENTRIES = 4, 500
#: Larger files are not opened: an answer must come in time.
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Entry:
    """``kind``: experiment, hunt or digest; ``path`` as the tools take it."""

    kind: str
    path: str


@dataclass(frozen=True)
class Library:
    root: Path

    @staticmethod
    def of(root: Path) -> Library:
        if not root.is_dir():
            raise PlanError("no such directory", place=str(root))
        return Library(root.resolve())

    def find(self, name: str) -> Path:
        """The file or directory of this name below the root. Raises Refused for any other place."""
        try:
            path = (self.root / name).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise Refused("this is not a path", place=name[:200]) from error
        if not path.is_relative_to(self.root):
            raise Refused("it is outside of the directory of this server", place=name[:200])
        if not path.exists():
            raise StoreError("no such file or directory", place=name[:200], hint="list_evidence names them")
        if not (path.is_file() or path.is_dir()):
            raise Refused("this is neither a file nor a directory", place=name[:200])
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise Refused(f"larger than {MOST_BYTES >> 20} MiB", place=name[:200])
        return path

    def entries(self) -> Iterator[Entry]:
        """In order of their names; links are not followed."""
        count = 0
        for folder, folders, files in os.walk(self.root):
            own = Path(folder)
            depth = len(own.relative_to(self.root).parts)
            found = list(_in(own, files))
            is_experiment = any(entry.kind == "experiment" for entry in found)
            # The tables of an experiment are no evidence of their own.
            hidden = is_experiment or depth >= MOST_DEPTH
            folders[:] = [] if hidden else sorted(name for name in folders if not name.startswith("."))
            for entry in found:
                if count == MOST_ENTRIES:
                    return
                count += 1
                yield Entry(entry.kind, str(Path(entry.path).relative_to(self.root)) or ".")


def _in(folder: Path, files: list[str]) -> Iterator[Entry]:
    if "design.json" in files:
        yield Entry("experiment", str(folder))
        return
    for name in sorted(files):
        path = folder / name
        if name.endswith(".hunt"):
            yield Entry("hunt", str(path))
        elif name.endswith(".parquet") and path.is_file() and is_digest(path):
            yield Entry("digest", str(path))


def id_of(path: Path) -> str:
    """The same file has the same id."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
