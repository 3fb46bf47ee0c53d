"""Tables with two lines of names above their numbers, and files with more than one table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.base.counted import counted
from headrace.experiment.foreign import names
from headrace.experiment.foreign.grid import Grid
from headrace.experiment.foreign.units import is_absent, parts

#: Names of repeats below the name of what was measured.
_REPEAT = re.compile(
    r"(run|rep|repeat|replicate|trial|iter|iteration|sample|r|try|pass|round|#)?[\s_#.-]*\d+", re.I
)


def join(grid: Grid, factors: Sequence[str], responses: Sequence[str]) -> None:
    """Makes one header of two, in place: ``tps, , p99,`` above ``fs, run1, run2, run1, run2``.

    Below the response its repeats get its name, and levels keep theirs; what else was measured is left out.
    Nothing is done unless the first line has names of several columns.
    """
    if not grid.lines or len(responses) != 1:
        return
    _, second = grid.lines[0]
    second = [*second, *[""] * (len(grid.header) - len(second))]
    has_factor = bool(names.columns(second, factors))
    are_names = all(not parts(cell) or (has_factor and _REPEAT.fullmatch(cell.strip())) for cell in second)
    if not are_names or len(grid.lines) < 2 or _is_names(grid.lines[1][1]):
        return
    top = _spread(grid.header, second)
    group = [i for i, name in enumerate(top) if names.columns([name], responses) and second[i].strip()]
    if len(group) < 2 or not (has_factor or "" in map(str.strip, grid.header)):
        return
    are_repeats = all(_REPEAT.fullmatch(second[i].strip()) for i in group)
    header, kept = [], []
    for i, (above, below) in enumerate(zip(top, second, strict=True)):
        if i in group:
            header.append(responses[0] if are_repeats else below.strip())
        elif above and below.strip():
            continue
        else:
            header.append(below.strip() or above)
        kept.append(i)
    grid.header = header
    grid.lines = [(number, [row[i] if i < len(row) else "" for i in kept]) for number, row in grid.lines[1:]]
    grid.notes.append(
        f"two lines of names: below {responses[0]!r} stand "
        + (
            f"{counted(len(group), 'repeat')}"
            if are_repeats
            else f"{', '.join(second[i] for i in group[:5])}"
        )
    )


def first_table(grid: Grid, wanted: Sequence[str]) -> None:
    """Leaves out further tables, in place: what follows a line of names that is not the first one again.

    Such a line has a name of the header in common with it, and only names. Of several tables it is the one with
    the wanted columns whose header was found.
    """
    for at, (number, row) in enumerate(grid.lines):
        own = [names.plain(cell) for cell in row if cell.strip()]
        first = [names.plain(cell) for cell in grid.header if cell.strip()]
        if at == 0 or at == len(grid.lines) - 1 or not _is_names(row) or own == first:
            continue
        if not {*own} & {*first} or _is_names(grid.lines[at + 1][1]):
            continue
        rest = len(grid.lines) - at
        shown = ", ".join(cell for cell in row if cell.strip())[:80]
        grid.lines = grid.lines[:at]
        grid.notes.append(
            f"{counted(rest, 'line')} from line {number} on left out: another table begins there ({shown})"
        )
        return


def _is_names(row: Sequence[str]) -> bool:
    told = [cell for cell in row if cell.strip()]
    return len(told) > 1 and not any(parts(cell) or is_absent(cell) for cell in told)


def _spread(header: Sequence[str], second: Sequence[str]) -> list[str]:
    """Each name of a merged cell over all columns that are below it."""
    top: list[str] = []
    for i, name in enumerate(header):
        is_merged = not name.strip() and i < len(second) and second[i].strip() and top and top[-1]
        top.append(top[-1] if is_merged else name.strip())
    return top
