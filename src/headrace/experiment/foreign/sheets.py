"""Spreadsheets (.xlsx, .xls, .ods) as text, by python-calamine: the extra ``sheets``."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.base.received import ANY, BadContent, an_object
from headrace.experiment.foreign import cells, names
from headrace.experiment.foreign.grid import MOST_ABOVE

#: Two cells at the ends of a sheet are a small file, and a thousand million cells of the library, which ends the
#: program when there is no memory for them. So it reads in a process of its own, which may have so much: some for
#: itself and so many bytes for each of the file's, which is what half a million rows of numbers take (23) and a
#: third more, but never more than the most.
LEAST_MEMORY, MEMORY_PER_BYTE, MOST_MEMORY, MOST_S = 96 << 20, 32, 1 << 30, 60
#: Rows named in a note.
MOST_NAMED = 5
#: First bytes of files that may be one: a ZIP archive, and what Office wrote before.
MAGIC = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


def text_of(file: BinaryIO, path: Path, needed: Sequence[str]) -> tuple[str, list[str]] | None:
    """The sheet with the columns that are needed, as CSV with a line for each of its rows; None if it is none.

    Raises ImportError without the library, and PlanError if several sheets have the columns, for a password, and
    for more than memory may hold.
    """
    import python_calamine  # noqa: F401 - it is read by a program of its own

    content = _content(file, path)
    sheets: dict[str, list[list[str]]] | None = content.get("sheets")
    if sheets is None:
        return None
    filled = {name: rows for name, rows in sheets.items() if any(any(row) for row in rows)}
    if not filled:
        raise PlanError("the spreadsheet is empty", place=str(path))
    has = {
        name: max(len(names.columns(row, needed)) for row in rows[:MOST_ABOVE])
        for name, rows in filled.items()
    }
    best = [name for name, count in has.items() if count == max(has.values())]
    if len(best) > 1:
        raise PlanError(
            f"sheets {' and '.join(best[:3])} may all be the table",
            place=str(path),
            hint="save the right one as CSV, or in a file of its own",
        )
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerows(filled[best[0]])
    others = f", of {len(filled)}" if len(filled) > 1 else ""
    notes = [f"sheet {best[0]!r} is read{others}"]
    if rows := content.get("hidden", {}).get(best[0]):
        shown = ", ".join(map(str, rows[:MOST_NAMED])) + (", ..." if len(rows) > MOST_NAMED else "")
        notes.append(
            f"{counted(len(rows), 'row')} hidden in the sheet ({shown}) {'is' if len(rows) == 1 else 'are'} read"
        )
    return output.getvalue(), notes


def _content(file: BinaryIO, path: Path) -> dict[str, Any]:
    """Each sheet's cells, None if it is no spreadsheet, and the rows that are hidden. Raises PlanError."""
    too_large = PlanError(
        "the spreadsheet is too large when it is unpacked", place=str(path), hint="save the table as CSV"
    )
    # -P: modules of the folder that it is started in are not Python's own.
    memory = min(LEAST_MEMORY + MEMORY_PER_BYTE * os.fstat(file.fileno()).st_size, MOST_MEMORY)
    argv = [sys.executable, "-P", str(Path(cells.__file__)), str(memory)]
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    try:
        done = subprocess.run(argv, stdin=file, capture_output=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired:
        raise too_large from None
    try:
        found = an_object(done.stdout or b"{}", ANY)
    except BadContent:
        raise too_large from None
    if done.returncode < 0 or found.get("refused") == cells.TOO_LARGE:
        raise too_large
    if found.get("refused") == cells.HAS_PASSWORD:
        raise PlanError("the spreadsheet has a password", place=str(path), hint="save it without one")
    if done.returncode != 0:
        raise PlanError(
            "the spreadsheet is damaged: the library that reads it failed",
            place=str(path),
            hint="open it where it was made, and save the table as CSV",
        )
    return found
