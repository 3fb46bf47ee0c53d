"""A page's short form on a terminal: the verdicts, then each section's brief.

Every string becomes a ``rich`` text here and nowhere else: cleaned, and never read as rich's own markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich import table as rich_table
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from headrace.show import text
from headrace.show.parts import (
    Box,
    Card,
    Cell,
    Details,
    Facts,
    Gap,
    Heading,
    Lines,
    Note,
    Page,
    Part,
    Sentence,
    Sentences,
    Table,
    Words,
)

#: Names longer than this are folded, to keep room for a table's other columns.
MOST_NAME = 32

#: Minimum width of a last column that is cut to the room left.
LEAST_LAST = 24

#: Blanks between columns.
_AIR = 2

#: Chip or look of the page -> its style on a terminal.
_STYLES = {
    "better": "green", "worse": "red", "equivalent": "blue", "unsure": "yellow", "strong": "bold",
    "verdict": "bold", "aside": "dim", "see": "", "attention": "yellow", "missing": "yellow", "thin": "dim",
    "good": "green", "alert": "magenta", "error": "bold red",
}  # fmt: skip


def render(page: Page) -> RenderableType:
    """The page's short form."""
    verdicts: list[Part] = []
    if page.is_verdict_brief:
        verdicts = [Sentence(verdict, "verdict") for verdict in page.verdicts]
    brief = [part for section in page.sections for part in section.brief]
    return show([*verdicts, *([Gap()] if verdicts and brief else []), *brief])


def show(parts: Iterable[Part]) -> RenderableType:
    """Parts one below the other; charts and other parts that need a page are omitted."""
    return Group(*(drawn for part in parts for drawn in _part(part)))


def _part(part: Part) -> Iterator[RenderableType]:
    if isinstance(part, Gap):
        yield ""
    elif isinstance(part, Table):
        yield _Table(part)
    elif isinstance(part, Sentence):
        yield _words(part.words, _STYLES.get(part.look, ""))
    elif isinstance(part, Note):
        yield _words(part.text, "yellow" if part.is_attention else "")
    elif isinstance(part, Heading):
        yield _words(part.text, "bold underline")
    elif isinstance(part, Sentences):
        yield from (
            _words(("- ", line) if isinstance(line, str) else ("- ", *_each(line))) for line in part.lines
        )
    elif isinstance(part, Facts):
        yield _facts(part)
    elif isinstance(part, Lines):
        yield Text(text.clean_lines(part.text))
    elif isinstance(part, Card):
        yield _words(part.title)
        yield Padding(show(part.parts), (0, 0, 0, 2))
    elif isinstance(part, Box | Details):
        yield show(part.parts)


def _each(words: Words) -> Iterator[str | object]:
    if isinstance(words, Sequence) and not isinstance(words, str):
        yield from words
    else:
        yield words


def _words(words: Words | Sequence[object], style: str = "") -> Text:
    found = Text(style=style)
    for each in _each(words):  # type: ignore[arg-type]
        if isinstance(each, str):
            found.append(text.clean(each))
        else:
            found.append(text.clean(each.text), each.style or _STYLES.get(each.look, ""))  # type: ignore[attr-defined]
    return found


def _facts(part: Facts) -> RenderableType:
    table = rich_table.Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in part.rows:
        table.add_row(text.clean(name), _words(value))
    return table


class _Table:
    """Drops the least important columns until it fits the console that prints it."""

    def __init__(self, part: Table) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = self._part.heads
        if self._part.is_below:
            yield from self._below(console, options)
            return
        for keep in sorted({column.keep for column in heads} | {0}, reverse=True):
            columns = [i for i, column in enumerate(heads) if column.keep <= keep]
            table, is_fitting = self._drawn(console, options, columns)
            if is_fitting or keep == 0:
                yield table
                return

    def _below(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Each row on a line of its own, and its last cell below it: a text of any length next to figures."""
        part = self._part
        figures = rich_table.Table(box=None, pad_edge=False, header_style="bold", padding=(0, _AIR, 0, 0))
        for column in part.heads[:-1]:
            justify: Literal["left", "right"] = "right" if column.kind == "n" else "left"
            figures.add_column(text.clean_lines(column.name), justify=justify, no_wrap=True)
        rows = [[_cell(each) for each in row] for row in part.shown if len(row) == len(part.heads)]
        for row in rows:
            figures.add_row(*row[:-1])
        head, *drawn = console.render_lines(figures, options, pad=False)
        for line, below in zip((head, *drawn), (None, *(row[-1] for row in rows)), strict=True):
            yield from line
            yield Segment.line()
            if below is not None:
                yield Padding(below, (0, 0, 0, 2), expand=False)

    def _drawn(
        self, console: Console, options: ConsoleOptions, columns: Sequence[int]
    ) -> tuple[rich_table.Table, bool]:
        part, heads = self._part, [self._part.heads[i] for i in columns]
        can_drop = any(column.keep for column in part.heads)
        rows = [[_cell(row[i]) for i in columns] for row in part.shown if len(row) == len(part.heads)]
        room = 0
        if part.is_cut:
            widths = [
                max(len(head.name), *(row[i].cell_len for row in rows), 0)
                for i, head in enumerate(heads[:-1])
            ]
            room = options.max_width - sum(widths) - _AIR * len(widths)
            for row in rows:
                row[-1].truncate(max(room, 8), overflow="ellipsis")
        table = rich_table.Table(
            box=None,
            pad_edge=False,
            header_style="bold",
            padding=(0, _AIR, 0, 0) if can_drop or part.is_cut else (0, 1),
        )
        for i, head in enumerate(heads):
            is_kept_whole = head.keep > 0 or part.is_cut
            table.add_column(
                text.clean_lines(head.name),
                vertical="bottom" if "\n" in head.name else "top",
                justify="right" if head.kind == "n" else "left",
                no_wrap=is_kept_whole,
                overflow="fold",
                max_width=MOST_NAME if can_drop and i == 0 and not head.kind and not part.is_cut else None,
            )
        for row in rows:
            table.add_row(*row)
        if part.is_cut:
            return table, room >= LEAST_LAST
        wanted = Measurement.get(console, options.update(max_width=10_000), table).maximum
        return table, wanted <= options.max_width


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text()
    return _words(cell.text, cell.style or _STYLES.get(cell.chip) or _STYLES.get(cell.look, ""))
