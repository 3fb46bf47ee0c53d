"""What a tall terminal shows below the overview: figures over time, waits, locks, statements, threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from headrace.host.monitors import looks_at_server
from headrace.hunt import sessions
from headrace.hunt.top import lines, lists, locks
from headrace.hunt.top.lines import DIM, HEADING, HOT, WARM, Column, gibibytes, percent, rate
from headrace.hunt.top.past import BYTES, EXECUTING, FIGURES, RATE, SHARE, Figure
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

#: Seconds that a sparkline covers: one a character, up to so many.
SHORTEST_S, LONGEST_S = 12, 120
#: Of a figure: its name, its value, and the least and the most that it takes beside others.
TITLE, VALUE, NARROWEST, WIDEST = 16, 8, 39, 78
#: From this width two blocks are side by side.
WIDE = 140
#: A block with less room than this is left out.
FEWEST_ROWS = 3
Block = Callable[[Shot, int, int], list[Text]]


def draw(shot: Shot, width: int, height: int) -> list[Text]:
    """At most ``height`` lines, each block where its own room allows it."""
    drawn = figures(shot, width, height)
    blocks: Sequence[Block] = (waits, tree, statements, tasks)
    if width < WIDE:
        for block in blocks:
            room = height - len(drawn) - 1
            if room >= FEWEST_ROWS:
                drawn += _apart(drawn, block(shot, width, room))
        return drawn[:height]
    half = (width - 2) // 2
    left, right = list[Text](), list[Text]()
    room = height - len(drawn) - 1
    for block in blocks:
        side = left if len(left) <= len(right) else right
        if room - len(side) > FEWEST_ROWS:
            side += _apart(side, block(shot, half, room - len(side) - bool(side)))
    return [*drawn, *_apart(drawn, lines.beside(left, right, width))][:height]


def _apart(before: Sequence[Text], block: list[Text]) -> list[Text]:
    return [Text(), *block] if block and before else block


def figures(shot: Shot, width: int, height: int) -> list[Text]:
    """Each known figure with its last value, its course, and its highest value; the more important ones first."""
    series = shot.series
    if series is None or height < 1:
        return []
    columns = max(1, (width + 2) // (NARROWEST + 2) if height < 2 * FEWEST_ROWS else (width + 2) // 60)
    room = min((width + 2) // columns - 2, WIDEST)
    has_most = room >= TITLE + 2 * VALUE + SHORTEST_S + 5
    seconds = max(SHORTEST_S, min(room - TITLE - VALUE - 1 - (VALUE + 4) * has_most, LONGEST_S))
    cells = []
    for figure in FIGURES:
        values = series.of(figure.key, seconds)
        known = [value for value in values if value is not None]
        if not known or (figure.key in SILENT_AT_0 and not any(known)):
            continue
        top = 1.0 if figure.kind == SHARE else 0.0
        cell = Text.assemble(
            (f"{figure.title:<{TITLE}}", DIM),
            (f"{told(figure, values[-1]):>{VALUE}} ", "bold"),
            (lines.sparkline(values, seconds, top), "green"),
            (f" ≤{told(figure, max(known))}" if has_most else "", DIM),
        )
        cells.append(lines.fit(cell, room))
    rows = min(-(-len(cells) // columns), height)
    drawn = []
    for row in range(rows):
        line = Text()
        for cell in cells[row * columns : (row + 1) * columns]:
            line.append("  " if line.cell_len else "")
            line.append_text(cell)
        drawn.append(line)
    if drawn and has_most and height > len(drawn):
        heading = Text(f"the last {seconds} s", HEADING).append("   value, course, ≤ highest", DIM)
        drawn.insert(0, heading)
    return drawn


#: Figures that say nothing on a server where they are always 0.
SILENT_AT_0 = frozenset({"slow", "lag", "row_waits", "history"})


def told(figure: Figure, value: float | None) -> str:
    if figure.kind == SHARE:
        return percent(value)
    if figure.kind == BYTES:
        return gibibytes(value).replace(" ", "")
    if figure.key == "log" and value is not None:
        return f"{value / 1e6:.1f}MB/s"
    return rate(value) + ("/s" if figure.kind == RATE and value is not None else "")


def waits(shot: Shot, width: int, height: int) -> list[Text]:
    """Sessions at work by what they wait for, all to one scale, with the number of CPUs to compare them with."""
    series = shot.series
    seconds = max(SHORTEST_S, min(width - 44, LONGEST_S))
    names = series.waits(seconds) if series else []
    if series is None or not names:
        return []
    top = max(
        (value for name in names for value in series.waiting(name, seconds) if value is not None), default=0.0
    )
    top = max(top, float(shot.facts.cpu_count or 1))
    drawn = [
        Text("sessions at work, by what they wait for", HEADING).append(
            f"   to a scale of {rate(top)}; {shot.facts.cpu_count} CPUs", DIM
        )
    ]
    for name in names[: min(height - 1, MOST_WAITS)]:
        values = series.waiting(name, seconds)
        is_wait = name != EXECUTING
        style = HOT if is_wait and (values[-1] or 0) >= 1 else WARM if is_wait else "green"
        line = lines.fit(Text(clean(name)), 34)
        line.append(f" {rate(values[-1]):>6}  ", "bold")
        line.append(lines.sparkline(values, seconds, top), style)
        drawn.append(line)
    return drawn


#: Kinds of wait that are shown.
MOST_WAITS = 6


def tree(shot: Shot, width: int, height: int) -> list[Text]:
    """Who waits for whom, if anybody does."""
    columns, rows = locks.locks(shot, "")
    if not rows:
        return []
    shown = [cells for _, cells in rows[: min(height - 1, MOST_LOCKS)]]
    drawn = lines.table(columns, shown, width)
    if len(rows) > len(shown) and len(drawn) < height:
        drawn.append(Text(f"{len(rows) - len(shown)} more: 7", DIM))
    return drawn


#: Rows of the tree of locks that are shown.
MOST_LOCKS = 12


def statements(shot: Shot, width: int, height: int) -> list[Text]:
    """Classes by sessions at work, as seen in the process list: of these the samples need no question more."""
    load = sessions.of_activity(shot.activity)
    found: dict[str, tuple[float, str]] = {}
    tables = {each.text: ", ".join(each.tables) for each in shot.activity.classes} if shot.activity else {}
    for group, wait, mean in load.groups if load else ():
        if group.text and not looks_at_server(group.text, tables.get(group.text, "")):
            known, most = found.get(group.text, (0.0, ""))
            found[group.text] = (known + mean, most or wait)
    if not found:
        return []
    columns = [
        Column("sessions", 8),
        Column("wait for", 18, right=False, keep=5),
        Column("statement (seen in the process list)", 0, right=False),
    ]
    ranked = sorted(found.items(), key=lambda pair: -pair[1][0])
    rows = [[f"{mean:.1f}", clean(wait or "–"), clean(text)] for text, (mean, wait) in ranked]
    return lines.table(columns, rows[: min(height - 1, MOST_CLASSES)], width)


#: Classes that are shown.
MOST_CLASSES = 10


def tasks(shot: Shot, width: int, height: int) -> list[Text]:
    columns, rows = lists.tasks(shot, "cpu")
    return lines.table(columns, [cells for _, cells in rows[: height - 1]], width) if rows else []
