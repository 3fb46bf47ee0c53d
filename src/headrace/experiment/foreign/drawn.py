"""Tables that were drawn for people: Markdown, a client's box, rst, HTML, one column a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from headrace.experiment.foreign import names
from headrace.experiment.foreign.grid import RULE, Grid, without_remarks

_BARS = "|│┃║┆"
_ROW = re.compile(r"\*{5,} *\d+\. row *\*{5,}")
_EQUALS = re.compile(r"([\w.-]+)=(\"[^\"]*\"|\S+)")
#: ``fs: xfs, run: 1``; a time of day in it is no pair.
_COLON = re.compile(r"([\w .-]+):\s+([^:,;]+)")
_COLONS = re.compile(rf"\s*{_COLON.pattern}(?:[,;]\s*{_COLON.pattern})+\s*")
_PAIRS = re.compile(r"\s*(?:[\w.-]+=(?:\"[^\"]*\"|\S+)(?:\s+|$)){2,}")
_RULE_OF_COLUMNS = re.compile(r"\s*(?:={2,}|-{2,})(?:\s+(?:={2,}|-{2,}))+\s*")


def of_drawing(text: str, needed: Sequence[str]) -> Grid | None:
    """The table of a file that somebody drew; None for other text."""
    if re.search(r"<table\b", text, re.IGNORECASE):
        return _of_html(text, needed)
    # Tables that were quoted in a mail, or in an answer.
    lines = [re.sub(r"^(?:> ?)+(?=\|)", "", line) for line in text.splitlines()]
    if found := _of_blocks(lines, needed):
        return found
    if text.lstrip().startswith("{|"):
        return _of_wiki(lines, needed)
    if any(_ROW.match(line) for line in lines):
        return _of_records(lines)
    if sum(line.strip()[:1] in tuple(_BARS) for line in lines if line.strip()) >= 2:
        return _of_box(lines, needed)
    rules = [n for n, line in enumerate(lines) if _RULE_OF_COLUMNS.fullmatch(line)]
    if rules and (found := _of_columns(lines, rules)):
        return found
    filled = [line for line in lines if line.strip()]
    if filled and all(_PAIRS.fullmatch(line) for line in filled):
        return _of_records(lines, pairs=_EQUALS)
    if filled and all(_COLONS.fullmatch(line) for line in filled):
        return _of_records(lines, pairs=_COLON)
    return None


#: A line of a record, as psql, sqlite3, YAML, TOML and INI have it; and what begins one.
_FIELD = re.compile(r"\s*(?:- )?\"?([\w .-]*?\w)\"?\s*(?:=|:|\|)\s+?(\S.*)|\s*(?:- )?([\w.-]+)=(\S.*)")
_BEGIN = re.compile(
    r"-\[ RECORD \d+ \].*|\s*- (?=\S)|\s*-\s*$|\[\[?[\w .\"-]+\]\]?\s*$|[\w.-]+:\s*$|\s*$|---\s*$"
)


def _of_blocks(lines: Sequence[str], needed: Sequence[str]) -> Grid | None:
    """Records of several lines, with a name and a value in each; None unless two have all that is needed."""
    records: list[tuple[int, dict[str, str]]] = []
    is_open = False
    for number, line in enumerate(lines, 1):
        begins, field = _BEGIN.match(line), _FIELD.fullmatch(line)
        if begins:
            is_open = False
        if field is None:
            if not begins:
                return None
            continue
        if not is_open:
            records.append((number, {}))
            is_open = True
        name, value = (field[1], field[2]) if field[1] else (field[3], field[4])
        if name in records[-1][1]:
            return None
        records[-1][1][name] = value.strip().strip("\"'")
    if len(records) < 2 or all(len(each) < 2 for _, each in records):
        return None
    header = list(dict.fromkeys(name for _, each in records for name in each))
    if len(names.columns(header, needed)) < len(needed):
        return None
    return Grid(header, [(number, [each.get(name, "") for name in header]) for number, each in records])


def _of_wiki(lines: Sequence[str], needed: Sequence[str]) -> Grid:
    """MediaWiki: ``! fs !! tps``, ``| xfs || 1200``, or a cell a line; ``|-`` begins a row."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if bare.startswith(("{|", "|}", "|+")):
            continue
        if bare.startswith("|-") or not rows:
            rows.append((number, []))
        if bare.startswith(("!", "|")) and not bare.startswith("|-"):
            cells = re.split(r"!!|\|\|", bare[1:])
            # A template's last argument is what it shows.
            cells = [re.sub(r"\{\{[^{}|]*\|(?:[^{}]*\|)?([^{}|]*)\}\}", r"\1", cell) for cell in cells]
            rows[-1][1].extend(_unmarked(re.sub(r"^[^|\[]*\|(?!\|)", "", cell)) for cell in cells)
    return _of_rows([row for row in rows if row[1]], needed, "|")


def _of_box(lines: Sequence[str], needed: Sequence[str]) -> Grid:
    """Markdown, and what mysql, psql and rich draw: cells between bars."""
    found: list[tuple[int, list[str]]] = []
    struck, between, last = [], [], ""
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if bare.startswith(tuple(_BARS)) and not RULE.fullmatch(bare):
            inner = re.sub(r"^[|│┃║]|[|│┃║]$", "", bare.replace("||", "|"))
            cells = [_unmarked(cell) for cell in re.split(f"[{_BARS}]", inner)]
            if all(re.fullmatch(r"~~.*~~|<(s|del)>.*</\1>", cell) for cell in cells if cell):
                struck.append(str(number))
                continue
            if last and found and len(found) > 1:
                between.append(last)
            found.append((number, cells))
            last = ""
        elif bare and not RULE.fullmatch(bare) and not bare.startswith("+"):
            last = bare
    grid = _of_rows(found, needed, "|")
    if struck:
        grid.notes.append(f"struck out, and left out: line{'s' * (len(struck) > 1)} {', '.join(struck[:5])}")
    if between:
        grid.notes.append(
            f"{len(between) + 1} tables are read as one; what stands between them is not a level: "
            f"{', '.join(repr(each[:60]) for each in between[:3])}"
        )
    return grid


def _unmarked(cell: str) -> str:
    """A cell without Markdown's marks around it, its links and its line breaks."""
    cell = re.sub(r"<br ?/?>", " ", re.sub(r"!?\[([^\]]+)\]\([^)\s]*\)", r"\1", cell))
    return re.sub(r"^(\*\*|__|\*|`)(.+)\1$", r"\2", cell.strip())


def _of_rows(rows: Sequence[tuple[int, list[str]]], needed: Sequence[str], delimiter: str) -> Grid:
    """The header is the row with most of the needed columns, the first of those."""
    if not rows:
        return Grid([], [], delimiter)
    place = max(range(len(rows)), key=lambda n: (len(names.columns(rows[n][1], needed)), -n))
    header = rows[place][1]
    notes = [f"{place} row{'s' * (place > 1)} above the header left out"] if place else []
    return Grid(header, without_remarks(header, rows[place + 1 :], notes), delimiter, notes)


def _of_columns(lines: Sequence[str], rules: Sequence[int]) -> Grid | None:
    """Columns below rules: ``====  ===``, of rst, and of clients of SQL."""
    first = rules[0]
    starts = [match.start() for match in re.finditer(r"[=-]+", lines[first])]
    ends = [*starts[1:], None]
    # Between two rules, or above the only one.
    place = first + 1 if first + 2 in rules else first - 1
    if place < 0 or place >= len(lines):
        return None
    header = [lines[place][a:b].strip() for a, b in zip(starts, ends, strict=True)]
    below = first + 3 if place > first else first + 1
    end = next((rule for rule in rules if rule >= below), len(lines))
    # SQL*Plus counts the rows below them.
    end = next(
        (n for n in range(below, end) if re.fullmatch(r"\d+ rows? selected\.?", lines[n].strip())), end
    )
    rows = []
    for number in range(below, end):
        if lines[number].strip():
            cells = [lines[number][a:b].strip() for a, b in zip(starts, ends, strict=True)]
            rows.append((number + 1, cells if any(cells[1:]) else cells[:1]))
    notes: list[str] = []
    return Grid(header, without_remarks(header, rows, notes), "  ", notes)


def _of_records(lines: Sequence[str], *, pairs: re.Pattern[str] | None = None) -> Grid:
    """``name: value`` lines below ``*** 1. row ***``, or a line of such pairs for each row."""
    records: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        if pairs:
            if own := pairs.findall(line):
                records.append((number, {name.strip(): value.strip(' ",;') for name, value in own}))
        elif _ROW.match(line):
            records.append((number, {}))
        elif records and (pair := re.match(r"\s*([^:]+): ?(.*)", line)):
            records[-1][1][pair[1]] = pair[2].strip()
    header = list(dict.fromkeys(name for _, each in records for name in each))
    return Grid(header, [(number, [each.get(name, "") for name in header]) for number, each in records])


def _of_html(text: str, needed: Sequence[str]) -> Grid:
    """The table with most of the needed columns."""
    reader = _Reader()
    reader.feed(text)
    grids = [_of_rows(rows, needed, "|") for rows in reader.tables if rows]
    if not grids:
        return Grid([], [], "|")
    return max(grids, key=lambda grid: len(names.columns(grid.header, needed)))


class _Reader(HTMLParser):
    """The cells of each table, those that reach over several rows or columns in each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[tuple[int, list[str]]]] = []
        self.row: list[str] | None = None
        self.cell: list[str] | None = None
        self.spans = (1, 1)
        #: Column -> (rows for which it still holds, text).
        self.held: dict[int, tuple[int, str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
            self.held = {}
        elif tag == "tr":
            self._end_row()
            self.row = []
        elif tag in ("td", "th") and self.row is not None:
            self._end_cell()
            self.cell = []
            told = dict(attrs)
            down, across = (told.get(name) or "1" for name in ("rowspan", "colspan"))
            self.spans = (int(down) if down.isdigit() else 1, int(across) if across.isdigit() else 1)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "table"):
            self._end_row()

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data)

    def _end_cell(self) -> None:
        if self.cell is None or self.row is None:
            return
        text = re.sub(r"\s+", " ", "".join(self.cell)).strip()
        self.cell = None
        self._fill()
        for _ in range(min(self.spans[1], 1000)):
            if self.spans[0] > 1:
                self.held[len(self.row)] = (self.spans[0] - 1, text)
            self.row.append(text)

    def _fill(self) -> None:
        """Cells of rows above that reach into this one."""
        assert self.row is not None
        while len(self.row) in self.held:
            left, text = self.held.pop(len(self.row))
            if left > 1:
                self.held[-len(self.row) - 1] = (left - 1, text)
            self.row.append(text)

    def _end_row(self) -> None:
        self._end_cell()
        if self.row is None:
            return
        self._fill()
        self.held = {(-at - 1 if at < 0 else at): each for at, each in self.held.items()}
        if self.row and self.tables:
            self.tables[-1].append((self.getpos()[0], self.row))
        self.row = None
