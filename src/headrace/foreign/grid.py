"""The text of a table as cells: lines with a character between their cells, or spaces."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.foreign import names

#: Lines above the header that are looked at: titles, comments, settings.
MOST_ABOVE = 50
#: A line that only draws: ``+----+``, ``|---:|``, ``=====  ===``.
RULE = re.compile(r"[\s|+:=─━═┼╋╪╬├┝┠┡╠┤┥┩┨╣┌┏╔┐┓╗└┗╚┘┛╝┬┳╦╇┴┻╩╧│┃║-]+")
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
    place, split = _header(lines, needed, delimiter, skipped)
    if split in (SPACES, SPACE):
        rows = [(number, cut(line, split)) for number, line in enumerate(lines[place:], place + 1)]
    else:
        text = "\n".join(_bare(line, split) for line in lines[place:])
        reader = csv.reader(io.StringIO(text), delimiter=split)
        rows = [(place + reader.line_num, row) for row in reader]
    rows = [(number, row) for number, row in rows if row and not RULE.fullmatch("".join(row))]
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    above = [line for line in lines[skipped:place] if line.strip(" ,;\t") and not RULE.fullmatch(line)]
    notes = [f"{len(above)} line{'s' * (len(above) != 1)} above the header left out"] if above else []
    return Grid(header, without_remarks(header, rows[1:], notes), split, notes)


def _header(lines: Sequence[str], needed: Sequence[str], delimiter: str, skipped: int) -> tuple[int, str]:
    """The place of the header and the delimiter."""
    best = (0, 0, skipped, delimiter)
    for number, line in enumerate(lines[skipped : skipped + MOST_ABOVE], skipped):
        for split in [delimiter] if delimiter else DELIMITERS:
            cells = cut(line, split)
            if len(cells) < 2 and len(needed) > 1:
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


def cut(line: str, split: str) -> list[str]:
    """The cells of one line."""
    if split in (SPACES, SPACE):
        return re.split(r"\s{2,}|\t" if split == SPACES else r"\s+", line.strip()) if line.strip() else []
    return [cell.strip() for cell in next(csv.reader([_bare(line, split)], delimiter=split), [])]


def _bare(line: str, split: str) -> str:
    """A line without what LaTeX puts behind its cells."""
    return re.sub(r"\\\\.*|\\hline|\\(top|mid|bottom)rule", "", line) if split == "&" else line


def without_remarks(
    header: Sequence[str], rows: Sequence[tuple[int, list[str]]], notes: list[str]
) -> list[tuple[int, list[str]]]:
    """The lines that have cells, without empty ones beyond the header; ``notes`` counts remarks and footers."""
    kept, left_out = [], []
    for number, row in rows:
        while len(row) > len(header) and not row[-1].strip():
            row = row[:-1]
        if len(header) > 1 and len(row) == 1:
            if row[0].strip():
                left_out.append(str(number))
            continue
        kept.append((number, row))
    if left_out:
        more = f" and {len(left_out) - MOST_LINES} more" if len(left_out) > MOST_LINES else ""
        notes.append(
            f"line{'s' * (len(left_out) > 1)} {', '.join(left_out[:MOST_LINES])}{more} left out: one cell, where "
            f"the header has {len(header)}"
        )
    return kept
