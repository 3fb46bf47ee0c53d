"""A page of parts: sentences, charts and tables in one dress, for every analysis that needs nothing of its own.

One file, no network request. The template alone turns parts into HTML, and cleans and escapes every text in them;
figures come with their own labels escaped (``charts.label``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace import __version__
from headrace.report import charts, html

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


@dataclass(frozen=True)
class Page:
    eyebrow: str
    title: str
    verdicts: Sequence[str]
    sections: Sequence[Section]
    lead: str = ""
    keys: Sequence[Key] = ()
    cautions: Sequence[str] = ()
    footer: str = ""
    figures: html.Figures = field(default_factory=html.Figures)


def render(page: Page) -> str:
    """The page as text."""
    scripts = [
        html._resource("plotly", "package_data/plotly.min.js"),
        html._resource(__package__, "templates/report.js"),
    ]
    hashes = " ".join(f"'sha256-{html._digest(s)}'" for s in scripts)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    context: Mapping[str, Any] = {
        "page": page,
        "place": page.figures.add,
        "csp": f"{policy}; script-src {hashes}",
        "css": html._resource(__package__, "templates/report.css"),
        "scripts": scripts,
        "version": __version__,
    }
    return html.environment().get_template("page.html").render(**context)
