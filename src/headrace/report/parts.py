"""What a report is made of. A page is a list of sections, a section a list of parts; ``html``, ``terminal`` and
``jsonform`` each render all of them.

Captured text goes into a part as it is. The renderers alone clean and escape it: ``html`` in the template's
``finalize`` and in ``dump``, ``terminal`` where a string becomes a ``rich`` text. ``Markup`` is our own drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from markupsafe import Markup

#: A figure as plotly.js reads it.
Figure = dict[str, Any]

#: Rows of a table on a page: the rest is counted below it and is in the JSON.
MOST_ROWS = 500


@dataclass(frozen=True)
class Span:
    """Words with a look of their own: "code", "strong", "chip better" or another class of the style sheet.
    ``link`` is the id of a place on the same page; ``style`` is for a terminal (rich's words) where the look does
    not say it."""

    text: str
    look: str = ""
    link: str = ""
    style: str = ""


#: A sentence or what stands in a cell.
Words = str | Span | Sequence[str | Span]


def plain(words: Words) -> str:
    """The same without its looks."""
    if isinstance(words, str):
        return words
    return words.text if isinstance(words, Span) else "".join(plain(each) for each in words)


@dataclass(frozen=True)
class Column:
    """``kind``: "n" for numbers, "" for words on one line, "wrap" for sentences, "code" for settings. ``over`` is
    the title that it shares with its neighbours, ``small`` a unit. A terminal that is too narrow drops the columns
    with the highest ``keep`` first; 0 always stays."""

    name: str
    kind: str = ""
    keep: int = 0
    over: str = ""
    small: str = ""


_NO_PICTURE = Markup("")


@dataclass(frozen=True)
class Cell:
    """``chip`` is better, worse, equivalent, unsure or another class; ``note`` a second, smaller line; ``look``
    the cell's class; ``style`` what a terminal makes of it (rich's words) where the chip does not say it;
    ``label`` names it where a narrow page shows no head."""

    text: Words
    chip: str = ""
    note: str = ""
    look: str = ""
    style: str = ""
    label: str = ""
    picture: Markup = _NO_PICTURE
    columns: int = 1
    rows: int = 1


Cells = Sequence[str | Cell | None]


@dataclass(frozen=True)
class Table:
    """A row holds None where a cell above reaches down. ``is_cut``: a terminal cuts the last column to the room
    that the others leave."""

    kind: ClassVar[str] = "table"
    columns: Sequence[Column | tuple[str, str]]
    rows: Sequence[Cells]
    title: str = ""
    is_folded: bool = False
    #: Indices of rows to set apart.
    marked: frozenset[int] = frozenset()
    #: The class of single rows, and of the table.
    looks: Mapping[int, str] = field(default_factory=dict)
    look: str = ""
    is_cut: bool = False
    #: Index of the column that names a row; -1 for none.
    named: int = 0

    @property
    def heads(self) -> list[Column]:
        return [c if isinstance(c, Column) else Column(*c) for c in self.columns]

    @property
    def overs(self) -> list[tuple[str, int]]:
        """(title, width) of the upper head's cells; empty without one."""
        found: list[tuple[str, int]] = []
        for column in self.heads:
            if found and column.over and found[-1][0] == column.over:
                found[-1] = (column.over, found[-1][1] + 1)
            else:
                found.append((column.over, 1))
        return found if any(title for title, _ in found) else []

    @property
    def shown(self) -> list[list[Cell | None]]:
        return [
            [c if c is None or isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows[:MOST_ROWS]
        ]

    @property
    def left(self) -> int:
        return max(0, len(self.rows) - MOST_ROWS)


#: (name, colour token, mark) of each entry: a mark of "" is a line, "dash" and "dot" its strokes, "thick" a strong
#: one, "area" and the paler "band", "warm" the warm-up's; any other is shown as it is.
Legend = Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Chart:
    """``head`` stands above the chart of a card; ``uses`` is the switch that it is drawn again for."""

    kind: ClassVar[str] = "chart"
    figure: Figure
    title: str = ""
    see: str = ""
    legend: Legend = ()
    head: Words = ()
    uses: str = ""


@dataclass(frozen=True)
class Row:
    """Parts side by side where there is room; in cards where there are many, or where ``is_cards`` says so."""

    kind: ClassVar[str] = "row"
    parts: Sequence[Part]
    is_cards: bool = False


@dataclass(frozen=True)
class Box:
    """Parts that share a class: "controls", "pair" ..."""

    kind: ClassVar[str] = "box"
    look: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Note:
    """A sentence that must not be missed."""

    kind: ClassVar[str] = "note"
    text: str
    is_attention: bool = False


@dataclass(frozen=True)
class Sentence:
    """``look``: "see" explains, "aside" is quiet, "strong" and "verdict" loud."""

    kind: ClassVar[str] = "sentence"
    words: Words
    look: str = "see"


@dataclass(frozen=True)
class Heading:
    """``look``: "condition" is that of a group."""

    kind: ClassVar[str] = "heading"
    text: str
    look: str = ""


@dataclass(frozen=True)
class Sentences:
    """A list. ``looks`` are the classes of single lines."""

    kind: ClassVar[str] = "sentences"
    lines: Sequence[Words]
    look: str = "method"
    looks: Sequence[str] = ()


def method(lines: Iterable[tuple[str, str]]) -> Sentences:
    """(what, how to read it), each in its own line."""
    return Sentences([(Span(what, "strong"), f" {how}") for what, how in lines])


@dataclass(frozen=True)
class Facts:
    """(name, what is known)."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, Words]]


@dataclass(frozen=True)
class Marks:
    """A legend of its own."""

    kind: ClassVar[str] = "marks"
    legend: Legend


@dataclass(frozen=True)
class Switch:
    """Buttons; ``When`` shows its parts for one of them, the first to begin with."""

    kind: ClassVar[str] = "switch"
    name: str
    label: str
    choices: Sequence[str]


@dataclass(frozen=True)
class When:
    kind: ClassVar[str] = "when"
    name: str
    choice: str
    parts: Sequence[Part]
    is_hidden: bool = False


@dataclass(frozen=True)
class Scale:
    """What the colours of a heat map mean, up to ``top`` percent."""

    kind: ClassVar[str] = "scale"
    top: int


@dataclass(frozen=True)
class Compare:
    """Two of many figures beside each other, which a reader chooses by their names; ``first`` are the indices."""

    kind: ClassVar[str] = "compare"
    choices: Sequence[tuple[str, Figure]]
    first: Sequence[int]


@dataclass(frozen=True)
class Runs:
    """(name, its entries) a line; an entry is (text, class, what it says when pointed at)."""

    kind: ClassVar[str] = "runs"
    lines: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]


@dataclass(frozen=True)
class Bars:
    """A stacked bar a line: (name, [(class, percent)], its sum, what it says when pointed at)."""

    kind: ClassVar[str] = "bars"
    lines: Sequence[tuple[str, Sequence[tuple[str, float]], str, str]]
    parts_named: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Details:
    """Folded away, unless ``is_open``."""

    kind: ClassVar[str] = "details"
    title: Words
    parts: Sequence[Part]
    is_open: bool = False


@dataclass(frozen=True)
class Card:
    """Something with a title of its own among others: a finding, a class of statements."""

    kind: ClassVar[str] = "card"
    title: Words
    parts: Sequence[Part]
    look: str = ""
    id: str = ""


@dataclass(frozen=True)
class Picture:
    """An SVG that we drew."""

    kind: ClassVar[str] = "picture"
    svg: Markup
    caption: Words = ""


@dataclass(frozen=True)
class Image:
    """An SVG of another program, shown as an image so that no script of it is part of the page."""

    kind: ClassVar[str] = "image"
    svg: str
    about: str


@dataclass(frozen=True)
class Lines:
    """Text that keeps its lines."""

    kind: ClassVar[str] = "lines"
    text: str


@dataclass(frozen=True)
class Key:
    """A figure to take away; ``kind`` as a Cell's chip, or "attention"."""

    title: str
    value: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Keys:
    kind: ClassVar[str] = "keys"
    keys: Sequence[Key]


@dataclass(frozen=True)
class Gap:
    """An empty line on a terminal."""

    kind: ClassVar[str] = "gap"


Part = (
    Table | Chart | Row | Box | Note | Sentence | Heading | Sentences | Facts | Marks | Switch | When | Scale
    | Compare | Runs | Bars | Details | Card | Picture | Image | Lines | Keys | Gap
)  # fmt: skip


def walk(parts: Iterable[Part]) -> Iterator[Part]:
    """Every part, those inside others, too."""
    for part in parts:
        yield part
        if isinstance(part, Row | Box | When | Details | Card):
            yield from walk(part.parts)


@dataclass(frozen=True)
class Section:
    """``parts`` are the page's, which leaves out a section without any: a function where drawing them costs time.
    ``brief`` are the terminal's, ``data`` what the JSON has. Without ``nav`` it belongs to the section before it.
    """

    id: str
    nav: str
    title: str
    parts: Sequence[Part] | Callable[[], Iterable[Part]] = ()
    see: str = ""
    brief: Sequence[Part] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """``data``: what the JSON has beside that of its sections. ``is_verdict_brief``: a terminal shows the verdicts
    first."""

    eyebrow: str
    title: str
    verdicts: Sequence[str]
    sections: Sequence[Section]
    lead: str = ""
    keys: Sequence[Key] = ()
    cautions: Sequence[str] = ()
    footer: str = ""
    is_verdict_brief: bool = True
    data: Mapping[str, Any] = field(default_factory=dict)
