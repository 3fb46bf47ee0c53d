"""What people noted about query classes: a log in the directory of the history.

One JSON line per note, fsynced before it is shown. Nothing is overwritten: the latest note of a class says its
state.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.base.errors import PlanError, Refused, write_error

#: A class's state after a note; empty leaves it as it is.
STATES = ("reviewed", "to do", "ignore")
MOST_COMMENT, MOST_BYTES = 2000, 16 << 20


@dataclass(frozen=True)
class Note:
    at_s: float
    who: str
    source: str
    name: str
    state: str
    comment: str


class Reviews:
    """Notes by source and class, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._notes: dict[tuple[str, str], list[Note]] = {}

    def of(self, source: str, name: str) -> Sequence[Note]:
        """Notes of a class, the latest first."""
        return self._all().get((source, name), [])[::-1]

    def states(self, source: str) -> Mapping[str, str]:
        """Class -> its state, of the classes that have one."""
        found = {}
        for (of, name), notes in self._all().items():
            state = next((note.state for note in reversed(notes) if note.state), "")
            if of == source and state:
                found[name] = state
        return found

    def add(self, who: str, source: str, name: str, state: str, comment: str) -> None:
        """On disk when this returns. Raises PlanError, Refused, or why it cannot be written."""
        comment = comment.replace("\r\n", "\n").strip()
        if state not in ("", *STATES):
            raise PlanError("no such state", place=state[:40], hint=", ".join(STATES))
        if not source or not name or not (state or comment):
            raise PlanError("a note has a state or a comment")
        if len(comment) > MOST_COMMENT:
            raise PlanError(f"a comment has at most {MOST_COMMENT} characters")
        line = json.dumps(asdict(Note(time.time(), who, source, name, state, comment))) + "\n"
        with self._lock:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "r+b", buffering=0) as file:
                    size = file.seek(0, os.SEEK_END)
                    if size + len(line) > MOST_BYTES:
                        raise Refused("there are too many notes", place=str(self.path))
                    # A crash may have left half a line.
                    is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                    file.write((b"\n" if is_cut else b"") + line.encode())
                    os.fsync(descriptor)
            except OSError as error:
                raise write_error(error, self.path) from error

    def _all(self) -> Mapping[tuple[str, str], list[Note]]:
        with self._lock:
            try:
                status = self.path.stat()
                if self._read_at != (status.st_mtime_ns, status.st_size):
                    self._notes = _read(self.path)
                    self._read_at = (status.st_mtime_ns, status.st_size)
            except OSError:
                self._notes, self._read_at = {}, None
            return self._notes


def _read(path: Path) -> dict[tuple[str, str], list[Note]]:
    """A line that is damaged costs only itself."""
    found: dict[tuple[str, str], list[Note]] = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            content = json.loads(line)
            note = Note(
                float(content["at_s"]),
                *(str(content[key]) for key in ("who", "source", "name", "state", "comment")),
            )
        except (ValueError, KeyError, TypeError):
            continue
        found.setdefault((note.source, note.name), []).append(note)
    return found
