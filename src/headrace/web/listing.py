"""A table, once: the pages draw it, ``/api`` gives it as JSON and CSV, and OpenAPI describes it."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from headrace.show import text

Row = Mapping[str, Any]


def address(path: str, /, **values: str) -> str:
    return f"{path}?{urlencode({key: value for key, value in values.items() if value})}"


#: JSON's type of each kind of column, and its unit in words.
KINDS: Mapping[str, tuple[str, str]] = {
    "text": ("string", ""),
    "code": ("string", ""),
    "chip": ("string", ""),
    "n": ("number", ""),
    "rate": ("number", "per second"),
    "ms": ("number", "nanoseconds"),
    "share": ("number", "0 to 1"),
    "ratio": ("number", "now divided by before"),
    "bytes": ("number", "bytes"),
    "time": ("number", "seconds since 1970, UTC"),
    "age": ("number", "seconds"),
    "spark": ("array", "one number per point"),
}
NUMBERS = frozenset(kind for kind, (json_type, _) in KINDS.items() if json_type == "number")


@dataclass(frozen=True)
class Column:
    """``name`` is its key in JSON and CSV. ``link`` makes the page's address of a row's cell. ``is_below``: a page
    shows it below the row's name, so that no window is too narrow for it. ``otherwise`` stands on a page in place
    of an empty cell."""

    name: str
    title: str
    kind: str = "text"
    about: str = ""
    link: Callable[[Row], str] | None = None
    is_below: bool = False
    otherwise: str = ""


@dataclass(frozen=True)
class Listing:
    """``note`` says what a reader has to know before the numbers; ``empty`` why there are no rows."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    empty: str = "Nothing to show."
    extra: Mapping[str, Any] = field(default_factory=dict)

    def sorted(self, by: str, *, descending: bool) -> Listing:
        """By a column; rows that lack it are last."""
        column = next((c for c in self.columns if c.name == by and c.kind != "spark"), None)
        if column is None:
            return self
        known = [row for row in self.rows if _is_known(row.get(by))]
        rest = [row for row in self.rows if not _is_known(row.get(by))]
        as_number = column.kind in NUMBERS
        known.sort(key=lambda row: row[by] if as_number else str(row[by]).lower(), reverse=descending)
        return replace(self, rows=[*known, *rest])

    def cut(self, most: int) -> Listing:
        return self if len(self.rows) <= most else replace(self, rows=self.rows[:most])

    def to_json(self) -> dict[str, Any]:
        names = [column.name for column in self.columns]
        rows = [{name: _json(row.get(name)) for name in names} for row in self.rows]
        return {"note": self.note, **self.extra, "rows": rows}

    def to_csv(self) -> str:
        columns = [column for column in self.columns if column.kind != "spark"]
        output = io.StringIO()
        writer = csv.writer(output)
        writer.writerow([_cell(column.name) for column in columns])
        for row in self.rows:
            writer.writerow([_cell(row.get(column.name)) for column in columns])
        return output.getvalue()


def _is_known(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return value


#: What begins with these a spreadsheet runs; the wide forms, where such keyboards are used.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


#: Where a semicolon separates cells, what follows one begins a cell.
_NEXT_CELL = re.compile(f";(?=[\\s\"']*[{re.escape(''.join(_FORMULA))}])")


def _cell(value: Any) -> Any:
    """Captured text must not be a formula."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, str):
        value = _NEXT_CELL.sub(";'", text.clean(value))
        return f"'{value}" if value.lstrip().startswith(_FORMULA) else value
    return value
