"""Prints the cells of a spreadsheet's sheets as JSON: a program of its own, with a limit of its memory.

It imports nothing of headrace, so that the limit is for the spreadsheet. The file is its standard input, which is
the one that was checked whatever has its name by now; the limit in bytes is its argument.
"""

import contextlib
import datetime
import html
import io
import json
import re
import resource
import sys
import zipfile
import zlib
from typing import Any

#: What a spreadsheet of another kind, or a damaged one, makes of a look into it.
_OTHER = (zipfile.BadZipFile, zlib.error, KeyError, ValueError, RuntimeError)
NO_SHEET, HAS_PASSWORD, TOO_LARGE = "no sheet", "password", "memory"


def main() -> None:
    """Writes the sheets' cells or why there are none. Without memory the library aborts the program."""
    most_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import python_calamine

    try:
        content = sys.stdin.buffer.read()
        text = json.dumps({"sheets": sheets(content), "hidden": hidden(content)})
    except python_calamine.PasswordError:
        text = json.dumps({"refused": HAS_PASSWORD})
    except (python_calamine.CalamineError, OSError, ValueError):
        text = json.dumps({"refused": NO_SHEET})
    except MemoryError:
        text = json.dumps({"refused": TOO_LARGE})
    sys.stdout.write(text)


def sheets(content: bytes) -> dict[str, list[list[str]]]:
    """Raises PasswordError, CalamineError, OSError, ValueError, MemoryError."""
    import python_calamine

    with python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content)) as book:
        return {
            name: [
                [cell(value) for value in row]
                for row in book.get_sheet_by_name(name).to_python(skip_empty_area=False)
            ]
            for name in book.sheet_names
        }


def hidden(content: bytes) -> dict[str, list[int]]:
    """The rows of each sheet that a filter or a person hid, counted from 1: the library hands them out, too."""
    rows = {}
    with (
        contextlib.suppress(*_OTHER),
        zipfile.ZipFile(io.BytesIO(content)) as book,
    ):
        names = _attributes(rb"<sheet\b", book.read("xl/workbook.xml"))
        parts = _attributes(rb"<Relationship\b", book.read("xl/_rels/workbook.xml.rels"))
        places = {each["Id"]: each["Target"].removeprefix("/xl/") for each in parts}
        for sheet in names:
            told = _attributes(rb"<row\b", book.read(f"xl/{places[sheet['r:id']]}"))
            if own := [int(row["r"]) for row in told if row.get("hidden") in ("1", "true")]:
                rows[html.unescape(sheet["name"])] = own
    return rows


def _attributes(start: bytes, content: bytes) -> list[dict[str, str]]:
    """The attributes of each element that begins so."""
    return [
        dict(re.findall(r'([\w:]+)="([^"]*)"', found[1].decode("utf-8", "replace")))
        for found in re.finditer(start + rb"([^>]*)>", content)
    ]


def cell(value: Any) -> str:
    """As a person would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return " ".join(str(value).split())


if __name__ == "__main__":
    main()
