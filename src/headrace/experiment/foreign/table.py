"""Tables as people keep them, as rows of factor levels and responses."""

from __future__ import annotations

import codecs
import csv
import itertools
import math
import os
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.base.whole import at_most, plain_file
from headrace.experiment.foreign import alike, clocks, encodings, names, packed, shapes, sheets, sift
from headrace.experiment.foreign.circumstances import circumstances
from headrace.experiment.foreign.confounded import confounded
from headrace.experiment.foreign.copies import without_copies
from headrace.experiment.foreign.forms import grid_of, unread
from headrace.experiment.foreign.grid import Grid
from headrace.experiment.foreign.row import Row, Table
from headrace.experiment.foreign.units import in_one_unit, in_seconds, is_absent, parts, scale, without_groups

_SHEET = "pip install 'headrace[sheets]' reads spreadsheets; or libreoffice --headless --convert-to csv FILE"
#: First bytes of files that are no text -> what they are, and how to get a table of them.
NOT_TEXT = {
    b"PK\x03\x04": (
        "a spreadsheet (.xlsx, .ods)",
        _SHEET,
    ),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet (.xls)", _SHEET),
    b"%PDF": ("a PDF", "pdftotext -layout FILE, then write the table as CSV"),
    b"SQLite format 3": ("a SQLite database", "sqlite3 -header -csv FILE 'SELECT ...' > table.csv"),
    b"PAR1": ("a Parquet file", """duckdb -c "COPY 'FILE' TO 'table.csv' (HEADER)" """.strip()),
}
#: For a table that is none of those that are read.
_SAVE_AS = "save it as CSV with one header line, one line per run and one column per factor and response"
#: A larger file is not a benchmark's result.
MAX_BYTES = 256 << 20
#: Nobody makes so many runs; each line takes a tenth of a millisecond.
MOST_LINES = 500_000


def read_csv(
    path: Path,
    factors: Sequence[str],
    responses: Sequence[str],
    *,
    others: Collection[str] = (),
    mixed: Collection[str] | None = (),
    per_run: bool = False,
) -> Table:
    """As ``read_tables``, of one file."""
    return read_tables([path], factors, responses, others=others, mixed=mixed, per_run=per_run)


def read_tables(
    paths: Sequence[Path],
    factors: Sequence[str],
    responses: Sequence[str],
    *,
    others: Collection[str] = (),
    mixed: Collection[str] | None = (),
    per_run: bool = False,
) -> Table:
    """The rows of tables: CSV, Markdown, a client's box, JSON; levels and units are the same in all files.

    An empty response cell omits the response from its row. In a table without commas between its columns, a
    comma in a number is a decimal comma, or between thousands if a number of the column has a point after one.
    Lines that are not runs (summaries, failed runs, repeated headers) are left out, equal levels are written
    alike, and all this is in the notes. ``others`` are columns with another meaning (blocks, conditions).
    ``per_run`` takes the mean of each run of a table with a line per second. ``mixed`` are settings in which runs
    may differ; None allows all. Raises PlanError with line and column for a missing column, a number that could be
    read in two ways, a table with a line per second, runs that differ in a setting, or a response below zero.
    """
    tables, headers = [], []
    notes = []
    for path in paths:
        header, lines, told = _runs(path, factors, responses, others)
        tables.append(lines)
        headers.append(header)
        notes += [f"{path.name}: {note}" for note in told]
    if len(paths) > 1:
        notes += _told_units(tables, headers, paths, responses)
    mark = f"{paths[0].name}: " if len(paths) == 1 else ""
    joined = [line for lines in tables for line in lines]
    notes += [mark + note for note in _made_alike(joined, factors, responses, others, mixed)]
    for number, lines in enumerate(tables):
        tables[number], told = _one_each(lines, factors, responses, others, per_run=per_run)
        notes += [f"{paths[number].name}: {note}" for note in told]
    joined = [line for lines in tables for line in lines]
    joined, told = without_copies(joined, responses)
    notes += [mark + note for note in (*_empty(joined, responses), *told)]
    rows, zeros = [], 0
    for place, cells in joined:
        numbers_of = {
            name: _number(cells[name], name, place) for name in responses if not is_absent(cells[name])
        }
        zeros += sum(value == 0 for value in numbers_of.values())
        levels = {name: value.strip() for name, value in cells.items() if name not in responses}
        rows.append(Row(place, levels, {name: value for name, value in numbers_of.items() if value > 0}))
    if zeros:
        _check_levels(joined, rows, factors, responses)
        notes.append(
            f"{mark}{zeros} response{'s are' if zeros > 1 else ' is'} 0: worse than any ratio can say, "
            "and not among the ratios below"
        )
    return Table(tuple(rows), tuple(notes))


def _check_levels(
    lines: Sequence[alike.Line], rows: Sequence[Row], factors: Sequence[str], responses: Sequence[str]
) -> None:
    """Raises PlanError where results of 0 leave a factor with one level, which nothing can be compared with."""
    for name, response in itertools.product(factors, responses):
        there = {cells[name].strip() for _, cells in lines}
        left = {row.levels[name] for row in rows if response in row.responses}
        if len(there) > 1 and len(left) == 1:
            raise PlanError(
                f"{response} is 0 in every run but those of {name} = {left.pop()}: no ratio says how much "
                "worse that is",
                hint="say so without a factor, or compare what is above 0 in each level",
            )


def _runs(
    path: Path, factors: Sequence[str], responses: Sequence[str], others: Collection[str]
) -> tuple[list[str], list[alike.Line], list[str]]:
    """The header of one file as it is written, its lines that are runs, and notes. Raises PlanError if none is."""
    header: list[str] = []

    def shape(grid: Grid) -> None:
        header.extend(grid.header)
        shapes.reshape(grid, factors, responses, [name for name in others if name])

    lines, notes = cells_of(path, (*factors, *responses), responses, shape)
    lines, left_out = sift.runs_of(lines, factors, responses)
    notes += left_out
    if not lines:
        raise PlanError(f"no line is a run: {'; '.join(notes)}", place=str(path))
    return header, lines, notes


def _told_units(
    tables: Sequence[Sequence[alike.Line]],
    headers: Sequence[Sequence[str]],
    paths: Sequence[Path],
    responses: Sequence[str],
) -> list[str]:
    """Gives bare numbers the unit of their header where files have different ones, in place.

    A note where only some headers say a unit. Raises PlanError for units that cannot be converted.
    """
    notes = []
    for name in responses:
        units = [names.unit_of(header, name) for header in headers]
        if len(set(units)) < 2:
            continue
        shown = "; ".join(
            f"{unit or 'no unit'} in {path.name}" for unit, path in zip(units, paths, strict=True)
        )
        if "" in units:
            notes.append(f"{name}: its header says {shown}: taken as one unit")
            continue
        scales = {found[0] if (found := scale(unit)) else unit for unit in units}
        if len(scales) > 1:
            raise PlanError(
                f"{name} has different units: {shown}",
                hint="convert one of them, or read the files one after the other",
            )
        for lines, unit in zip(tables, units, strict=True):
            for _, cells in lines:
                if (found_parts := parts(cells[name])) is not None and not found_parts[1]:
                    cells[name] = f"{cells[name].strip()} {unit}"
    return notes


def _made_alike(
    lines: Sequence[alike.Line],
    factors: Sequence[str],
    responses: Sequence[str],
    others: Collection[str],
    mixed: Collection[str] | None,
) -> list[str]:
    """Writes levels and numbers of all files in one way, in place; what was assumed. Raises PlanError."""
    used = {*factors, *responses, *others, *(mixed or ())}
    shared = [name for name in lines[0][1] if all(name in cells for _, cells in lines)]
    unlike = alike.differences(lines, used, shared)
    if unlike and mixed is not None:
        raise unlike
    notes = [str(unlike).partition("\n")[0]] if unlike else []
    notes += circumstances(lines, factors, used, shared)
    notes += alike.unified(lines, [*factors, *(name for name in others if name in shared)])
    notes += confounded(lines, factors, used, shared)
    for name in responses:
        if (found := in_one_unit([cells[name] for _, cells in lines])) is not None:
            numbers, assumed = found
            for (_, cells), text in zip(lines, numbers, strict=True):
                cells[name] = text if parts(cells[name]) else cells[name]
            notes += [f"{name}: {assumed}"] if assumed else []
    return notes


def _one_each(
    lines: list[alike.Line],
    factors: Sequence[str],
    responses: Sequence[str],
    others: Collection[str],
    *,
    per_run: bool,
) -> tuple[list[alike.Line], list[str]]:
    """A line per run of one file, and what was done for it. Raises PlanError for lines per second."""
    clock = clocks.check_times(lines, factors, responses, others)
    if not clock:
        return lines, [] if per_run else clocks.suspicion(lines, factors, others)
    keys = [name for name in lines[0][1] if name not in responses and name != clock]
    runs = {tuple(cells[name] for name in keys): cells for _, cells in lines}
    if not per_run:
        raise clocks.one_row_each(clock, len(runs))
    means = _means(lines, keys, responses)
    return means, [f"each of {len(means)} runs is the mean of its lines, warm-up included"]


def _means(lines: Sequence[alike.Line], keys: Sequence[str], responses: Collection[str]) -> list[alike.Line]:
    """A line per run with the means of its responses."""
    runs: dict[tuple[str, ...], list[alike.Line]] = {}
    for line in lines:
        runs.setdefault(tuple(line[1][name] for name in keys), []).append(line)
    found = []
    for own in runs.values():
        place, cells = own[0]
        means = {}
        for name in responses:
            values = [_number(each[name], name, where) for where, each in own if not is_absent(each[name])]
            means[name] = repr(math.fsum(values) / len(values)) if values else ""
        found.append((place, {**cells, **means}))
    return found


def _text(path: Path, needed: Sequence[str]) -> tuple[str, list[str]]:
    """A table's text, and what was assumed of its encoding. Raises PlanError for none, and for too many lines."""
    text, notes = _sheet(path, needed) or decoded(path, needed)
    if (lines := text.count("\n")) > MOST_LINES:
        raise PlanError(
            f"{counted(lines, 'line')}: a table of results has a line for each run",
            place=str(path),
            hint="write each run's mean, or other figure, in a line of its own",
        )
    if not text.strip():
        raise PlanError("the file is empty", place=str(path), hint=_SAVE_AS)
    return text, notes


def cells_of(
    path: Path,
    needed: Sequence[str],
    numbers: Collection[str],
    shape: Callable[[Grid], None] | None = None,
) -> tuple[list[tuple[str, dict[str, str]]], list[str]]:
    """(place for errors, cells by column) of each line, and what was assumed; for every table of ours and others'.

    ``needed`` are columns that must be there; in those of ``numbers`` only decimal points are left. ``shape`` may
    rearrange the grid first.
    """
    text, notes = _text(path, needed)
    if told := unread(text):
        raise PlanError(f"{told[0]}: not read", place=str(path), hint=told[1])
    lines: list[tuple[str, dict[str, str]]] = []
    try:
        grid = grid_of(text, needed)
        _check_whole(grid, path)
        _check_widths(grid, path)
        if shape is None:
            shapes.rename(grid, needed)
        else:
            shape(grid)
    except csv.Error as error:
        raise PlanError(f"not a table: {error}", place=str(path), hint=_SAVE_AS) from error
    there = grid.header
    notes += grid.notes
    for name in needed:
        if name not in there:
            raise PlanError(
                f"no column {name!r}; there are: {', '.join(there)[:300] or 'none'}",
                place=str(path),
                hint=_SAVE_AS if len(there) < 2 else "name columns of the table with --factor and --response",
            )
    for name in there:
        # Python would take the last of them.
        if there.count(name) > 1 and (name in needed or name in numbers):
            raise PlanError(f"column {name!r} is there {there.count(name)} times", place=str(path))
    for number, cells in grid.lines:
        lines.append((f"{path}:{number}", dict(zip(there, cells, strict=True))))
    if not lines:
        raise PlanError("the table has no rows", place=str(path), hint=_SAVE_AS)
    notes += _without_groups(lines, [name for name in there if name in numbers])
    notes += _without_points(lines, [name for name in there if name in numbers], grid.delimiter)
    notes += _cut_off(lines, [name for name in there if name in numbers], text)
    if grid.delimiter != "," or any(
        "," in cells[name] for _, cells in lines for name in numbers if name in cells
    ):
        notes += _with_points(lines, [name for name in there if name in numbers])
    return lines, notes


def _cut_off(lines: list[tuple[str, dict[str, str]]], numbers: Sequence[str], text: str) -> list[str]:
    """A note on a last number that has fewer digits than all others, where no line end follows. Its line is
    removed where the number is also below half of all others: it was cut off.
    """
    if text.endswith(("\n", "\r")) or len(lines) < 3 or not numbers:
        return []
    (place, last), before = lines[-1], lines[:-1]
    name = next((each for each in reversed(last) if each in numbers), "")
    digits = [len(re.sub(r"\D", "", cells[name])) for _, cells in before] if name else []
    if not name or list(last)[-1] != name or len(re.sub(r"\D", "", last[name])) >= min(digits):
        return []
    line, cell = place.rpartition(":")[2], last[name].strip()
    numbers_of = [own[0] for _, cells in before if (own := parts(cells[name]))]
    told = parts(cell)
    if told and numbers_of and told[0] < 0.5 * min(numbers_of):
        lines.pop()
        return [
            f"line {line}, the last, left out: {name} = {cell} has fewer digits than all others, and no line end "
            "follows, as where a file is cut off; if it is whole, end it with a line end"
        ]
    return [
        f"{name} = {cell} in line {line}, the last, has fewer digits than all others, and no line end follows: it "
        "may be cut off"
    ]


def number_columns(path: Path) -> set[str]:
    """The columns of a table in which every cell that says something is a number, with or without a unit."""
    lines, _ = cells_of(path, (), ())
    names_there = lines[0][1] if lines else {}
    said = {name: [cells[name] for _, cells in lines if not is_absent(cells[name])] for name in names_there}
    return {name for name, cells in said.items() if cells and all(map(parts, cells))}


def _check_whole(grid: Grid, path: Path) -> None:
    """Rows of dots stand for those that were not printed."""
    for number, cells in grid.lines:
        if len(cells) > 1 and all(
            re.fullmatch(r"\.{2,}|…|⋮", cell.strip()) for cell in cells if cell.strip()
        ):
            raise PlanError(
                "the table was shortened when it was printed: the dots stand for rows",
                place=f"{path}:{number}",
                hint="write all of it to a file: df.to_csv('table.csv')",
            )


def _check_widths(grid: Grid, path: Path) -> None:
    """Before lines are rearranged: a short one would be lost, or shift the others."""
    for number, cells in grid.lines:
        if len(cells) != len(grid.header):
            raise PlanError(
                f"{len(grid.header)} columns in the header, not in this line",
                place=f"{path}:{number}",
                hint="name each column (runs side by side: run1, run2), and quote cells with what separates them",
            )


def _without_groups(lines: Sequence[tuple[str, dict[str, str]]], responses: Sequence[str]) -> list[str]:
    """Takes spaces and marks from between thousands, and writes times in seconds, in place; what was assumed."""
    grouped = []
    for name in responses:
        plain = [without_groups(cells[name]) for _, cells in lines]
        if any(text != cells[name] for text, (_, cells) in zip(plain, lines, strict=True)):
            grouped.append(name)
        _check_minutes(name, plain, lines)
        for text, (_, cells) in zip(plain, lines, strict=True):
            cells[name] = in_seconds(text)
    return [f"spaces or marks in {', '.join(grouped)} are between thousands"] if grouped else []


def _check_minutes(name: str, texts: Sequence[str], lines: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Raises PlanError for ``1m`` among milliseconds."""
    if not any(re.search(r"\d\s*([mnuµμ]s)$", text.strip()) for text in texts):
        return
    for text, (place, _) in zip(texts, lines, strict=True):
        if told := re.fullmatch(r"(\d+)\s*m", text.strip()):
            raise PlanError(
                f"{name} = {text.strip()!r} could be {told[1]} ms or {told[1]} min",
                place=place,
                hint="write ms or min",
            )


def _without_points(
    lines: Sequence[tuple[str, dict[str, str]]], responses: Sequence[str], separator: str
) -> list[str]:
    """Takes points from between thousands, in place; what was assumed. Raises PlanError if they may be decimal."""
    notes = []
    for name in responses:
        texts = [cells[name].strip() for _, cells in lines]
        pointed = [(place, text) for (place, _), text in zip(lines, texts, strict=True) if "." in text]
        if not pointed or any("," in text for text in texts):
            continue
        if not all(_POINTS.match(text) for _, text in pointed):
            continue
        if any(text.count(".") > 1 for _, text in pointed):
            for _, cells in lines:
                cells[name] = cells[name].replace(".", "")
            notes.append(f"points in {name} are between thousands")
        elif len(pointed) == len(texts) and separator != ",":
            notes.append(f"points in {name} are taken for decimal points, not for those between thousands")
        # 1.010 beside 900: nobody measures both, or somebody wrote 1010.
        elif any(re.fullmatch(r"[1-9]\d{2}", text) for text in texts):
            raise _ambiguous(name, pointed[0][1], pointed[0][0])
    return notes


def _with_points(lines: Sequence[tuple[str, dict[str, str]]], responses: Sequence[str]) -> list[str]:
    """Rewrites the numbers with commas of ``lines`` with a decimal point alone, in place; what was assumed."""
    decimal, thousands = [], []
    for name in responses:
        own = [(place, cells) for place, cells in lines if "," in cells[name]]
        if not own:
            continue
        # The last separator of a number with both is the decimal one, and the other is between thousands.
        both = [cells[name] for _, cells in own if "." in cells[name]]
        # Nobody writes two decimal commas.
        is_sure = any(cells[name].count(",") > 1 for _, cells in own) and not both
        if is_sure or any(text.rfind(".") > text.rfind(",") for text in both):
            for _, cells in own:
                if _COMMAS.match(cells[name].strip()):
                    cells[name] = cells[name].replace(",", "")
            thousands.append(name)
            continue
        if all(_COMMAS.match(cells[name].strip()) for _, cells in own):
            place, cells = own[0]
            raise _ambiguous(name, cells[name].strip(), place)
        for place, cells in lines:
            text = cells[name].strip()
            if "," in text and ("." not in text or _POINTS.match(text)):
                cells[name] = text.replace(".", "").replace(",", ".")
            elif _POINTS.match(text):
                if not both:
                    raise _ambiguous(name, text, place)
                cells[name] = text.replace(".", "")
        decimal.append(name)
    notes = [f"commas in {', '.join(decimal)} are decimal commas"] if decimal else []
    return notes + ([f"commas in {', '.join(thousands)} are between thousands"] if thousands else [])


#: Numbers with commas, or points, between thousands. Others keep their text, and are refused by whoever reads it.
#: In India there are two digits between the upper commas.
_COMMAS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?$|[1-9]\d?(,\d{2})+,\d{3}(\.\d*)?$")
_POINTS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+(,\d*)?$")


def _ambiguous(name: str, number: str, place: str) -> PlanError:
    either = f"{re.sub('[,.]', '', number)} or {number.replace(',', '.')}"
    return PlanError(
        f"{name} = {number!r} could be {either}",
        place=place,
        hint="write numbers with a decimal point, and nothing between thousands",
    )


def _empty(lines: Sequence[alike.Line], responses: Sequence[str]) -> list[str]:
    """Cells without a number, which are often mistakes of whoever made the table."""
    notes = []
    label = alike.labels(lines)
    for name in responses:
        empty = [label[place] for place, cells in lines if is_absent(cells[name])]
        if empty:
            notes.append(f"no {name} in {alike.lines_named(empty)}: left out")
    return notes


def _number(text: str, name: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise PlanError(
            f"{name} = {text!r}: must be a positive number",
            place=place,
            hint="write one line per run, each with one number"
            if len(re.findall(r"\d[\d.]*", text)) > 1
            else "write a number alone, or nothing",
        )
    return value


def _sheet(path: Path, needed: Sequence[str]) -> tuple[str, list[str]] | None:
    """A spreadsheet as text; None for anything else, and without the library."""
    try:
        with plain_file(path) as file:
            if not file.read(8).startswith(sheets.MAGIC) or os.fstat(file.fileno()).st_size > MAX_BYTES:
                return None
            return sheets.text_of(file, path, needed)
    except (ImportError, OSError):
        return None


def decoded(path: Path, needed: Collection[str] = ()) -> tuple[str, list[str]]:
    """The file's text, and what was assumed about its encoding. ``needed`` names help to know it."""
    try:
        with plain_file(path, may_be_pipe=True) as file:
            # Of a sparse file of a terabyte nothing is read.
            is_small = os.fstat(file.fileno()).st_size <= MAX_BYTES
            content = at_most(file, MAX_BYTES + 1) if is_small else b""
        if not is_small or len(content) > MAX_BYTES:
            raise PlanError(f"larger than {MAX_BYTES >> 20} MiB: this is not a result", place=str(path))
    except FileNotFoundError as error:
        raise PlanError("no such file", place=str(path)) from error
    except OSError as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    content = packed.unpacked(content, path)
    for magic, (what, hint) in NOT_TEXT.items():
        if content.startswith(magic):
            raise PlanError(what, place=str(path), hint=hint)
    try:
        if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
            return content.decode("utf-32"), []
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16"), []
        # No text has NUL; in UTF-16 every other byte of digits, commas and line ends is one.
        start = content[:4096]
        even, odd = start[::2].count(0), start[1::2].count(0)
        for encoding, own, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if own >= 0.1 * len(start) and own > 4 * other and len(content) % 2 == 0:
                return content.decode(encoding), [f"no byte order mark: read as {encoding.upper()}"]
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        text, note = encodings.text_of(content, needed)
        return text, [note]
