"""Spreadsheets (.xlsx, .xls, .ods) as text, by python-calamine: the extra ``sheets``."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Sequence
from pathlib import Path

from headrace.base.errors import PlanError
from headrace.experiment.foreign import names
from headrace.experiment.foreign.grid import MOST_ABOVE

#: First bytes of files that may be one: a ZIP archive, and what Office wrote before.
MAGIC = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


def text_of(path: Path, needed: Sequence[str]) -> tuple[str, list[str]] | None:
    """The sheet with the columns that are needed, as CSV with a line for each of its rows; None if it is none.

    Raises ImportError without the library, and PlanError if several sheets have the columns, or for a password.
    """
    import python_calamine

    try:
        with python_calamine.CalamineWorkbook.from_path(str(path)) as book:
            sheets = {
                name: _rows(book.get_sheet_by_name(name).to_python(skip_empty_area=False))
                for name in book.sheet_names
            }
    except python_calamine.PasswordError as error:
        raise PlanError(
            "the spreadsheet has a password", place=str(path), hint="save it without one"
        ) from error
    except (python_calamine.CalamineError, OSError, ValueError):
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
    return output.getvalue(), [f"sheet {best[0]!r} is read{others}"]


def _rows(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[_cell(value) for value in row] for row in rows]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return " ".join(str(value).split())
