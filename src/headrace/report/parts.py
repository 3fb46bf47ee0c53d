"""What pages are made of: sentences, charts and tables. ``templates/parts.html`` alone turns them into HTML, and
cleans and escapes every text in them; figures come with their own labels escaped (``charts.label``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.report import charts

#: Rows of a table on a page: what is left out is counted below it, and stands in the JSON.
MOST_ROWS = 500


@dataclass(frozen=True)
class Cell:
    """A cell of a table. ``chip`` is a style sheet's class (better, worse, equivalent, unsure)."""

    text: str
    chip: str = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """``columns`` are (name, "n" for numbers, "" for words on one line, "wrap" for sentences)."""

    kind: ClassVar[str] = "table"
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    is_folded: bool = False
    #: Indices of rows to set apart.
    marked: frozenset[int] = frozenset()

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows[:MOST_ROWS]]

    @property
    def left(self) -> int:
        return max(0, len(self.rows) - MOST_ROWS)


@dataclass(frozen=True)
class Chart:
    """``legend`` holds (name, colour token, mark); a mark of "" is a line, "dash" or "band" what they say."""

    kind: ClassVar[str] = "chart"
    figure: charts.Figure
    title: str = ""
    see: str = ""
    legend: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True)
class Row:
    """Charts side by side where there is room; in cards where there are many."""

    kind: ClassVar[str] = "row"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Note:
    kind: ClassVar[str] = "note"
    text: str
    is_attention: bool = False


@dataclass(frozen=True)
class Sentences:
    kind: ClassVar[str] = "sentences"
    lines: Sequence[str]


@dataclass(frozen=True)
class Method:
    """(what, how to read it), each in its own line."""

    kind: ClassVar[str] = "method"
    lines: Sequence[tuple[str, str]]


Part = Table | Chart | Row | Note | Sentences | Method


@dataclass(frozen=True)
class Section:
    """``nav`` is its name in the page's bar; without one it belongs to the section before it."""

    id: str
    nav: str
    title: str
    parts: Sequence[Part]
    see: str = ""


@dataclass(frozen=True)
class Key:
    """A figure to take away; ``kind`` as a Cell's chip, or "attention"."""

    title: str
    value: str
    note: str = ""
    kind: str = ""
