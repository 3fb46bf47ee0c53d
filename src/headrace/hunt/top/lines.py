"""Lines, bars and tables of a given width. Glyphs repeat what colours show, for screens without colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

#: Kind of CPU time -> (glyph, style), in the order in which a bar is filled.
SHARES = {
    "user": ("█", "green"),
    "system": ("▓", "blue"),
    "irq": ("░", "magenta"),
    "softirq": ("▒", "bold yellow"),
    "steal": ("×", "red"),
    "iowait": ("·", "dim"),
}
HEADING = "bold cyan"
HOT, WARM, DIM, CHOSEN = "bold red", "yellow", "dim", "reverse"
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def rate(value: float | None, width: int = 6) -> str:
    """``13612.4`` -> ``13,612``, with six or more digits ``1.24M``; a dash if unknown."""
    if value is None:
        return "–"
    magnitude = abs(value)
    if magnitude >= 1e9:
        return f"{value / 1e9:.2f}G"
    if magnitude >= 1e6:
        return f"{value / 1e6:.2f}M"
    if magnitude >= 99_999.5 or (width < 6 and magnitude >= 9_999.5):
        return f"{value / 1e3:.0f}k"
    if magnitude >= 9.95 or magnitude == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 0.05 else "<0.1"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share:.0f}%"


def duration(value_ms: float | None) -> str:
    """Milliseconds with two or three significant digits."""
    if value_ms is None:
        return "–"
    return (
        f"{value_ms:,.0f}"
        if value_ms >= 99.5
        else f"{value_ms:.1f}"
        if value_ms >= 9.95
        else f"{value_ms:.2f}"
    )


def gibibytes(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "–"
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"


def block(share: float) -> str:
    """One character for a share from 0 to 1."""
    return _EIGHTHS[max(0, min(8, round(share * 8)))]


def sparkline(values: Sequence[float | None], width: int, top: float = 0.0) -> str:
    """``width`` characters, oldest first, from 0 to ``top`` or the highest value. Unknown is a space, and a value
    above 0 is never drawn as nothing.
    """
    each = -(-len(values) // max(width, 1)) or 1
    start = len(values) - each * (len(values) // each)
    groups = [values[:start]] if start else []
    groups += [values[at : at + each] for at in range(start, len(values), each)]
    means = []
    for group in groups[-width:]:
        known = [value for value in group if value is not None]
        means.append(sum(known) / len(known) if known else None)
    most = max((mean for mean in means if mean is not None), default=0.0)
    top = max(top, most)
    drawn = (
        " " if mean is None else "▁" if top <= 0 or mean <= 0 else _EIGHTHS[max(1, round(mean / top * 8))]
        for mean in means
    )
    return "".join(drawn).rjust(width)


def bar(shares: Sequence[tuple[str, float]], width: int) -> Text:
    """Shares of ``SHARES`` as glyphs in proportion to the width.

    Cumulative ends are rounded, so that the bar has no gaps.
    """
    text, done, filled = Text(), 0.0, 0
    for kind, share in shares:
        done += share
        end = min(round(done * width), width)
        glyph, style = SHARES[kind]
        if end > filled:
            text.append(glyph * (end - filled), style=style)
            filled = end
    text.append(" " * (width - filled))
    return text


def gauge(share: float, width: int, style: str = "green") -> Text:
    filled = max(0, min(width, round(share * width)))
    return Text.assemble(("█" * filled, style), ("·" * (width - filled), DIM))


@dataclass(frozen=True)
class Column:
    """``width`` 0 takes the rest.

    If the width is insufficient, the column with the lowest ``keep`` is dropped first.
    """

    title: str
    width: int
    right: bool = True
    keep: int = 9


Cell = str | tuple[str, str] | Text


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, *, chosen: int | None = None
) -> list[Text]:
    """The titles, then one line per row; the ``chosen`` one is reversed."""
    shown = list(range(len(columns)))
    while len(shown) > 1 and sum((columns[i].width or 12) + 1 for i in shown) > width + 1:
        shown.remove(min(reversed(shown), key=lambda i: columns[i].keep))
    fixed = sum(columns[i].width + 1 for i in shown) - 1
    free = sum(1 for i in shown if columns[i].width == 0)
    widths = {i: columns[i].width or max((width - fixed) // max(free, 1), 4) for i in shown}
    lines = [
        _row([Text(columns[i].title, HEADING) for i in shown], [columns[i] for i in shown], widths, shown)
    ]
    for number, row in enumerate(rows):
        cells = [_text(row[i]) for i in shown]
        line = _row(cells, [columns[i] for i in shown], widths, shown)
        if number == chosen:
            line.truncate(width, pad=True)
            line.stylize(CHOSEN)
        lines.append(line)
    return lines


def _row(
    cells: Sequence[Text], columns: Sequence[Column], widths: dict[int, int], shown: Sequence[int]
) -> Text:
    line = Text()
    for place, (cell, column, at) in enumerate(zip(cells, columns, shown, strict=True)):
        if place:
            line.append(" ")
        line.append_text(fit(cell, widths[at], right=column.right))
    return line


def plain(cell: Cell) -> str:
    return _text(cell).plain


def _text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(cell) if isinstance(cell, str) else Text(cell[0], cell[1])


def fit(cell: Text, width: int, *, right: bool = False) -> Text:
    """Text of exactly this width, with ``…`` if it was cut."""
    cell = cell.copy()
    cell.truncate(width, overflow="ellipsis")
    missing = width - cell.cell_len
    if missing > 0:
        (cell.pad_left if right else cell.pad_right)(missing)
    return cell


def beside(left: Sequence[Text], right: Sequence[Text], width: int, gap: int = 2) -> list[Text]:
    """Two blocks side by side, each half the width."""
    half = (width - gap) // 2
    found = []
    for number in range(max(len(left), len(right))):
        line = fit(left[number] if number < len(left) else Text(), half)
        line.append(" " * gap)
        line.append_text(fit(right[number] if number < len(right) else Text(), half))
        found.append(line)
    return found


def wrap(text: str, width: int, style: str = "", most: int = 99) -> list[Text]:
    """Wrapped at words; text beyond ``most`` lines ends in an ellipsis."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [fit(Text(line, style), width) if len(line) > width else Text(line, style) for line in lines]


def flow(title: str, parts: Sequence[Cell], width: int) -> list[Text]:
    """A title, then parts separated by commas; further lines are indented to the same column."""
    indent = len(title)
    found = [Text(title, HEADING)]
    for number, part in enumerate(map(_text, parts)):
        last = number == len(parts) - 1
        line = found[-1]
        room = width - line.cell_len - (line.cell_len > indent) - (not last)
        if part.cell_len > room and line.cell_len > indent:
            line = Text(" " * indent)
            found.append(line)
        elif line.cell_len > indent:
            line.append(" ")
        line.append_text(part)
        if not last:
            line.append(",", DIM)
    return found
