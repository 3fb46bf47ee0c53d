"""Tables as the clients of MySQL print them: boxed, tabbed, vertical (\\G), CSV, and documents."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.hunt.dumps import documents

_VERTICAL = re.compile(r"^\*{5,} *\d+\. row *\*{5,} *$")
#: Below a header of Markdown there are bars.
_BORDER = re.compile(r"^ *(?:\+(?:-+\+)+|\|(?: *:?-+:? *\|)+) *$")
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
#: What logs of containers, and people who quote, put before each line.
_BEFORE = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT[\d:.]+Z (?:std(?:out|err) [FP] )?|(?:> ?)+)(?= *[+|*\w])", re.MULTILINE
)
#: Of lines drawn with a terminal's own characters; a row of crosses ends no table but the first below the header.
_DRAWN = str.maketrans(
    {
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("─━═", "-"),
        **dict.fromkeys("┌┬┐└┴┘├┼┤╒╤╕╘╧╛╞╪╡┏┳┓┗┻┛┣╋┫╔╦╗╚╩╝╠╬╣┡╇┩", "+"),
    }
)
_TOPS, _BETWEEN = ("┌", "┏", "╔", "╒"), ("├", "┣", "╠", "╞", "┡")
_FIELD = re.compile(r"^ *([A-Za-z_][\w .()-]{0,63}?): ?(.*)$")
#: Of a cell; a longer one is no counter, and of a statement its beginning is enough.
MOST_CELL = 64 << 10


@dataclass(frozen=True)
class Table:
    """``columns`` in lower case; of each row its cells by column. ``line``: where it begins, from 0."""

    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    line: int


#: The columns of a table -> whether it is one of those that are wanted.
Wanted = Callable[[Sequence[str]], bool]


def tables(text: str, wanted: Wanted) -> list[Table]:
    """Every table with wanted columns, in the order of the text; of one that is cut off its whole rows."""
    found = [
        Table(tuple(rows[0]), rows, 0) for rows in documents.listings(text) if rows and wanted(tuple(rows[0]))
    ]
    if found:
        return found
    lines = _plain(text).splitlines()
    at = 0
    while at < len(lines):
        end = at
        for parse in (_boxed, _vertical, _separated):
            table, end = parse(lines, at, wanted)
            if table is not None:
                found.append(table)
            if end > at:
                break
        at = max(end, at + 1)
    return found


def _plain(text: str) -> str:
    """Without colours and what stands before each line, and with bars and crosses for drawn lines."""
    if "\x1b[" in text:
        text = _COLOURS.sub("", text)
    if _BEFORE.search(text):
        text = _BEFORE.sub("", text)
    if not any(bar in text for bar in "│┃║"):
        return text
    lines: list[str] = []
    borders = 0
    for line in text.splitlines():
        start = line.lstrip()[:1]
        borders = 0 if start in _TOPS else borders
        if start in _BETWEEN and borders > 1:
            continue
        borders += start in _TOPS + _BETWEEN
        lines.append(line.translate(_DRAWN))
    return "\n".join(lines)


def _columns(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip().strip('"').lower() for name in names)


def _boxed(lines: Sequence[str], at: int, wanted: Wanted) -> tuple[Table | None, int]:
    header = lines[at].strip()
    if not (header.startswith("|") and header.endswith("|")):
        return None, at
    # People cut the first border off.
    border = next((line for line in lines[max(at - 1, 0) : at + 2] if _BORDER.match(line)), None)
    if border is None:
        return None, at
    columns = _columns(header[1:-1].split("|"))
    if not wanted(columns):
        return None, at
    edges = [match.start() for match in re.finditer(r"\+", border)]
    rows: list[Mapping[str, str]] = []
    end = at + 1
    for end in range(at + 1, len(lines)):
        line = lines[end]
        if _BORDER.match(line):
            if rows:
                break
            continue
        if not line.lstrip().startswith("|"):
            # A cell with a line break: its row is not whole.
            if rows and not line.strip():
                break
            continue
        cells = _cells(line, edges, len(columns))
        if cells is not None:
            rows.append(dict(zip(columns, cells, strict=True)))
    else:
        end = len(lines)
    return Table(columns, rows, at), end


def _cells(line: str, edges: Sequence[int], count: int) -> list[str] | None:
    """By the bars; where a cell has bars itself, by the places of the border."""
    parts = line.strip()[1:-1].split("|") if line.rstrip().endswith("|") and len(line.strip()) > 1 else []
    if len(parts) != count:
        if len(edges) != count + 1 or len(line) <= edges[-1] or any(line[edge] != "|" for edge in edges):
            return None
        parts = [line[start + 1 : end] for start, end in itertools.pairwise(edges)]
    return [part.strip()[:MOST_CELL] for part in parts]


def _vertical(lines: Sequence[str], at: int, wanted: Wanted) -> tuple[Table | None, int]:
    if not _VERTICAL.match(lines[at]):
        return None, at
    rows: list[dict[str, str]] = []
    end = at
    last = ""
    while end < len(lines):
        line = lines[end]
        if _VERTICAL.match(line):
            if rows and re.match(r"\*+ *1\. ", line):  # the next listing
                break
            rows.append({})
            last = ""
        elif match := _FIELD.match(line):
            last = match[1].strip().lower()
            if last in rows[-1]:  # a statement with a line like a field
                last = ""
            else:
                rows[-1][last] = match[2][:MOST_CELL]
        elif not line.strip() and _goes_on(lines, end, len(rows)):
            pass  # a value that ends in a line break, such as a public key
        elif not line.strip() or re.match(r"\d+ rows? in set|TS \d", line):
            break
        elif last and len(rows[-1][last]) < MOST_CELL:
            rows[-1][last] = f"{rows[-1][last]}\n{line}"[:MOST_CELL]
        end += 1
    columns = tuple(rows[0])
    if end == len(lines) and len(rows) > 1 and len(rows[-1]) < len(rows[0]):
        rows.pop()
    is_wanted = bool(columns) and wanted(columns)
    return (Table(columns, rows, at) if is_wanted else None), max(end, at + 1)


def _goes_on(lines: Sequence[str], at: int, rows: int) -> bool:
    """Whether the next row of the same listing is below a blank line."""
    below = next((line for line in lines[at + 1 : at + 3] if line.strip()), "")
    return re.match(rf"\*{{5,}} *{rows + 1}\. row \*+", below) is not None


def _separated(lines: Sequence[str], at: int, wanted: Wanted) -> tuple[Table | None, int]:
    header = lines[at]
    for mark in ("\t", ",", ";", "|"):
        if mark not in header or header.lstrip().startswith("|"):
            continue
        columns = (
            _columns(next(csv.reader([header], delimiter=mark), []))
            if mark != "\t"
            else _columns(header.removesuffix("\t").split("\t"))
        )
        if len(columns) < 2 or not wanted(columns):
            continue
        rows: list[Mapping[str, str]] = []
        end = at + 1
        while end < len(lines):
            line = lines[end].removesuffix("\t") if header.endswith("\t") else lines[end]
            if mark == "|" and end == at + 1 and re.fullmatch(r" *-+(?:\+-+)+ *", line):
                end += 1
                continue
            cells = _split(line, mark)
            # A last line without its end may be cut off within a cell.
            if len(cells) < 2 or (len(cells) != len(columns) and len(columns) > 2):
                break
            rows.append(dict(zip(columns, (cell[:MOST_CELL] for cell in cells), strict=False)))
            end += 1
        return Table(columns, rows, at), end
    return None, at


def _split(line: str, mark: str) -> list[str]:
    if mark == "\t":
        return line.split("\t")
    if line.count('"') % 2:
        return []
    try:
        return next(csv.reader(io.StringIO(line), delimiter=mark), [])
    except csv.Error:
        return []


def bare_pairs(text: str) -> Iterator[tuple[str, str]]:
    """``name<TAB>value`` lines of ``mysql -N -B``, without a header."""
    for match in re.finditer(r"^([A-Za-z][\w.]{2,63})\t([^\t\n]*)$", text, re.MULTILINE):
        yield match[1], match[2]
