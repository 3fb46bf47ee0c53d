"""Hears of each change of a file below a folder before it is made, and of each sync."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

#: What changes files, as CPython reports it: https://docs.python.org/3/library/audit_events.html
CHANGES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}
#: Of these the last argument is the folder that the path is relative to; -1: none.
IN_A_FOLDER = {"os.mkdir", "os.remove", "os.rmdir"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class _Listener:
    folder: str
    before: Callable[[str], None]

    def change(self, path: object) -> None:
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]
        except TypeError:
            return
        if text.startswith(self.folder):
            self.before(text)


#: A hook cannot be taken away again: it asks who listens.
_active: list[_Listener] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active or event not in CHANGES:
        return
    if event == "open" and not arguments[2] & WRITES:
        return
    path = arguments[0]
    if event in IN_A_FOLDER and arguments[-1] >= 0:
        path = f"{os.readlink(f'/proc/self/fd/{arguments[-1]}')}/{os.fsdecode(path)}"
    _active[-1].change(path)


sys.addaudithook(_hook)


@contextlib.contextmanager
def heard(
    folder: Path,
    patch: pytest.MonkeyPatch,
    before: Callable[[str], None],
    synced: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """``before`` gets each path below ``folder`` that is about to be changed or synced, ``synced`` each descriptor
    that has been synced.
    """
    listener = _Listener(str(folder), before)
    write, fsync = pq.write_table, os.fsync

    def write_table(table: object, where: object, **options: Any) -> None:
        listener.change(where)
        write(table, where, **options)

    def watched(descriptor: int) -> None:
        listener.change(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)
        synced(descriptor)

    with patch.context() as inner:
        inner.setattr(pq, "write_table", write_table)
        inner.setattr(os, "fsync", watched)
        _active.append(listener)
        try:
            yield
        finally:
            _active.pop()
