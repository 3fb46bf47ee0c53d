"""The text of a table as cells: lines with a character between their cells, or spaces."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.base.counted import counted
from headrace.experiment.foreign import names

#: Lines above the header that are looked at: titles, comments, settings.
MOST_ABOVE = 50
#: A line that only draws: ``+----+``, ``|---:|``, ``=====  ===``.
RULE = re.compile(r"[\s|+:=┆─━═┼╋╪╬├┝┠┡╠╞╡┤┥┩┨╣┌┏╔┐┓╗└┗╚┘┛╝┬┳╦╇┴┻╩╧│┃║-]+")
#: What stands between cells, in the order of preference where two are as frequent; the last two are spaces.
SPACES, SPACE = "  ", " "
DELIMITERS = (",", ";", "\t", "|", "&", "~", SPACES, SPACE)
#: Lines named in a note.
MOST_LINES = 5


@dataclass
class Grid:
    """``header``, and the lines below it with their numbers, counted from 1. ``delimiter`` is "," for JSON."""

    header: list[str]
    lines: list[tuple[int, list[str]]]
    delimiter: str = ","
    notes: list[str] = field(default_factory=list)


def of_lines(lines: Sequence[str], needed: Sequence[str], delimiter: str, *, skipped: int) -> Grid:
    """A table with ``delimiter``, or the one with which a line has most of the columns that are needed.

    That line is the header; without one it is the first line that has cells.
    """
    marked: list[str] = []
    place, split = _header(lines, needed, delimiter, skipped)
    if split == SPACES and _parts_by_one(lines[place:]):
        split = SPACE
    if split in (SPACES, SPACE):
        rows = [(number, cut(line, split)) for number, line in enumerate(lines[place:], place + 1)]
    else:
        rows = _parsed([_bare(line, split) for line in lines[place:]], place, split, marked)
    rows = _without_marks(rows, lines, marked)
    if split == SPACES:
        rows = _without_numbers(rows)
    rows = [(number, row) for number, row in rows if row and not RULE.fullmatch("".join(row))]
    header = [_bare_cell(cell) for cell in rows[0][1]] if rows else []
    rows = [(number, [_bare_cell(cell) for cell in row]) for number, row in rows]
    if _is_numbered(header, rows[1:]):
        header = ["", *header]
    above = [line for line in lines[skipped:place] if line.strip(" ,;\t") and not RULE.fullmatch(line)]
    notes = [f"{len(above)} line{'s' * (len(above) != 1)} above the header left out"] if above else []
    notes += marked
    return Grid(header, without_remarks(header, rows[1:], notes), split, notes)


def _parsed(lines: Sequence[str], place: int, split: str, notes: list[str]) -> list[tuple[int, list[str]]]:
    """The cells of lines, of which the first is behind ``place`` others, with the number of each row's last line.

    A quote may open a cell that goes on in the next line. Where each of these lines has all its cells, it does
    not: it is a ditto mark, or was never closed.
    """
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=split)
    rows = [(reader.line_num, row) for row in reader]
    between = lines[0].count(split) if lines else 0
    opens = re.compile(rf'(^|{re.escape(split)})"([^"]|"")*$')
    strange = [n for n, line in enumerate(lines, 1) if line.count(split) == between and opens.search(line)]
    is_wrong, end = False, 0
    for number, _ in rows:
        span = [each for each in lines[end:number] if each.strip()]
        is_open = len(span) > 1 or (number == len(lines) and number in strange)
        is_wrong |= is_open and all(each.count(split) == between for each in span)
        end = number
    if not (between and is_wrong):
        return [(place + number, row) for number, row in rows]
    unclosed = [n for n in strange if '"' not in map(str.strip, lines[n - 1].split(split))]
    if unclosed:
        notes.append(f"a quote in line {place + unclosed[0]} is not closed, and left out")
    return [
        (place + number, _without_quotes(line, split, is_strange=number in strange))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _without_quotes(line: str, split: str, *, is_strange: bool) -> list[str]:
    """The cells of a line alone; of a strange one, a quote is a ditto mark where it stands alone."""
    if not is_strange:
        return next(csv.reader([line], delimiter=split))
    cells = [cell.strip() for cell in line.split(split)]
    return [cell if cell == '"' else cell.replace('"', "") for cell in cells]


#: A remark below a table, which may have as many cells: ``# done, ok``, ``Note: disks are old, and slow``.
_REMARK = re.compile(
    r"\s*(#|//|--\s|%|\*{1,2}\s|\(?\d+ rows?\b.*$|(notes?|sources?|remarks?|legend|generated|created|date|author|"
    r"n\.b\.|nb|quelle|hinweis|anmerkung|remarque|nota|fuente|opmerking|uwaga|примечание|источник|注|備考)\b[^,;\t|]*:)",
    re.IGNORECASE,
)


def _without_marks(
    rows: list[tuple[int, list[str]]], lines: Sequence[str], notes: list[str]
) -> list[tuple[int, list[str]]]:
    """The rows without comments below the header, unless the header begins as they do; ``notes`` counts them."""
    if not rows or _REMARK.match("".join(rows[0][1])):
        return rows
    marked = [n for n, _ in rows[1:] if 0 < n <= len(lines) and _REMARK.match(lines[n - 1])]
    if marked:
        first = lines[marked[0] - 1].strip()[:60]
        notes.append(f"{counted(len(marked), 'comment')} left out, the first in line {marked[0]}: {first!r}")
    return [rows[0], *((n, row) for n, row in rows[1:] if n not in marked)]


def _without_numbers(rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """The rows without their numbers, of which one space parts the first cell: tibbles are printed so."""
    below = [row for _, row in rows[1:] if len(row) > 1]
    told = [re.match(r"(\d+) +(?=\S)", row[0]) for row in below]
    numbers = [int(each[1]) for each in told if each]
    if len(numbers) < max(len(below), 2) or numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
        return rows
    return [rows[0], *((n, [re.sub(r"^\d+ +", "", row[0]), *row[1:]]) for n, row in rows[1:])]


def _parts_by_one(lines: Sequence[str]) -> bool:
    """Whether one space parts cells, as R and pandas print a column that is as wide as its longest number."""
    told = [line for line in lines if line.strip() and not RULE.fullmatch(line)]
    rows = [cut(line, SPACE) for line in told]
    if len(rows) < 3 or len(rows[0]) != len(cut(told[0], SPACES)):
        return False
    body = [row for row in rows[1:] if not row[0].startswith("[")]
    wide = {len(row) for row in body}
    as_now = {len(cut(line, SPACES)) for line in told[1:] if not line.lstrip().startswith("[")}
    return len(wide) == 1 and wide <= {len(rows[0]), len(rows[0]) + 1} and as_now != wide


def _bare_cell(cell: str) -> str:
    """A cell without quotes of another kind, and Markdown's marks, around it."""
    bare = cell.strip()
    return re.sub(r"^('|`|\*\*|__)(.+)\1$", r"\2", bare) if bare[:1] in "'`*_" else bare


def _is_numbered(header: Sequence[str], rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Whether each row begins with its number or name, without a header: pandas and R print so."""
    filled = [row for _, row in rows if len(row) > 1]
    if len(filled) < 2 or any(len(row) != len(header) + 1 for row in filled):
        return False
    return len({row[0] for row in filled}) == len(filled) and not any(not row[0].strip() for row in filled)


def _header(lines: Sequence[str], needed: Sequence[str], delimiter: str, skipped: int) -> tuple[int, str]:
    """The place of the header and the delimiter."""
    best = (0, 0, skipped, delimiter)
    for number, line in enumerate(lines[skipped : skipped + MOST_ABOVE], skipped):
        for split in [delimiter] if delimiter else DELIMITERS:
            cells = cut(line, split)
            if len(cells) < 2 and len(needed) > 1:
                continue
            if split in (SPACES, SPACE) and not _goes_on(lines[number + 1 :], split):
                continue
            there = len(names.columns(cells, needed))
            # A title may be split by spaces like any line: with a delimiter proper the more cells, the better.
            size = len(cells) if split not in (SPACES, SPACE) else 0
            if there > best[0] or (there == best[0] == 0 and size > best[1]):
                best = (there, size, number, split)
        if best[0] == len(needed) > 0:
            break
    if best[3]:
        return best[2], best[3]
    first = next((n for n, line in enumerate(lines[skipped:], skipped) if line.strip()), skipped)
    return first, max(",;\t", key=(lines[first] if first < len(lines) else "").count)


def _goes_on(below: Sequence[str], split: str) -> bool:
    """Whether spaces part one of the next lines with cells, too: names of columns may have spaces in them."""
    told = [line for line in below[:MOST_ABOVE] if line.strip() and not RULE.fullmatch(line)]
    return not told or any(len(cut(line, split)) > 1 for line in told)


def cut(line: str, split: str) -> list[str]:
    """The cells of one line."""
    if split in (SPACES, SPACE):
        return re.split(r"\s{2,}|\t" if split == SPACES else r"\s+", line.strip()) if line.strip() else []
    return [cell.strip() for cell in next(csv.reader([_bare(line, split)], delimiter=split), [])]


def _bare(line: str, split: str) -> str:
    """A line without what LaTeX puts behind its cells."""
    if split != "&":
        return line
    plain = re.sub(r"\\\\.*|\\hline|\\(top|mid|bottom)rule", "", line).replace("{,}", ",")
    return re.sub(r"\\(?:textbf|textit|emph|num|bfseries|mathbf|underline)\s*\{([^{}]*)\}", r"\1", plain)


#: What programs and shells say when they end early.
_BROKEN = re.compile(
    r"\W*(ERROR \d+ \(|error\b|fatal\b|panic\b|Traceback \(|Killed\b|Terminated\b|Aborted\b|Segmentation fault|"
    r"Bus error|Out of memory|Lost connection|Connection (closed|reset|refused|to \S+ closed)|Broken pipe|\^C|"
    r"[\w.]*(Error|Exception|Interrupt)(:|$)|"
    r".*: (No space left on device|Killed|Broken pipe|Connection timed out)$)",
    re.IGNORECASE,
)


def without_remarks(
    header: Sequence[str], rows: Sequence[tuple[int, list[str]]], notes: list[str]
) -> list[tuple[int, list[str]]]:
    """The lines that have cells, without empty ones beyond the header; ``notes`` counts remarks and footers."""
    kept, left_out = [], []
    broken = ""
    for number, row in rows:
        while len(row) > len(header) and not row[-1].strip():
            row = row[:-1]
        if len(header) > 1 and len(row) == 1:
            if row[0].strip():
                left_out.append(str(number))
                broken = broken or (row[0].strip()[:80] if _BROKEN.match(row[0]) else "")
            continue
        kept.append((number, row))
    if left_out:
        more = f" and {len(left_out) - MOST_LINES} more" if len(left_out) > MOST_LINES else ""
        notes.append(
            f"line{'s' * (len(left_out) > 1)} {', '.join(left_out[:MOST_LINES])}{more} left out: one cell, where "
            f"the header has {len(header)}"
        )
    if broken:
        notes.append(
            f"{broken!r}: what wrote the table may not have come to its end, and lines may be missing"
        )
    return kept
