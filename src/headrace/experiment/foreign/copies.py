"""Lines that are there twice because somebody joined a file with itself: an observation counts once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from headrace.experiment.foreign import names
from headrace.experiment.foreign.alike import Line, labels, lines_named
from headrace.experiment.foreign.units import is_absent

#: Columns that give a run a number or a moment: two runs of a level cannot share it and every value.
_RUNS = frozenset({
    "rep", "repeat", "replicate", "repetition", "run", "run_id", "trial", "iteration", "iter", "no", "nr", "id",
    "seed", "attempt", "pass", "index", "number", "replica", "order", "round", "time", "timestamp", "started",
    "started_at", "finished_at",
})  # fmt: skip
#: So many equal lines in the order of earlier ones, of which at least ``LEAST_VALUES`` differ, are no coincidence.
LEAST_LINES, LEAST_VALUES = 5, 4


def without_copies(lines: Sequence[Line], responses: Sequence[str]) -> tuple[list[Line], list[str]]:
    """The lines without copies, and notes on them and on equal lines that may be repeats, which are kept."""
    first: dict[tuple[tuple[str, str], ...], int] = {}
    equal: dict[int, int] = {}
    for at, (_, cells) in enumerate(lines):
        early = first.setdefault(tuple(cells.items()), at)
        if early != at:
            equal[at] = early
    if not equal:
        return list(lines), []
    own = _identity([cells for at, (_, cells) in enumerate(lines) if at not in equal], responses)
    copied = set(equal) if own else _in_order(lines, responses, equal)
    label = labels(lines)
    notes = []

    def told(places: Sequence[int]) -> str:
        verb = "is equal to an earlier one" if len(places) == 1 else "are equal to earlier ones"
        return f"{lines_named([label[lines[at][0]] for at in sorted(places)])} {verb} in every column"

    if copied:
        among = f", {own} among them" if own else " and in their order"
        notes.append(f"{told([*copied])}{among}: left out as {'a copy' if len(copied) == 1 else 'copies'}")
    if left := set(equal) - copied:
        notes.append(f"{told([*left])}, and counted as repeats: remove copies, which are not measurements")
    return [line for at, line in enumerate(lines) if at not in copied], notes


def _identity(rows: Sequence[dict[str, str]], responses: Sequence[str]) -> str:
    """The column that tells runs apart: with it no two lines have the same levels. Empty if none does."""
    keys = {tuple(text for name, text in cells.items() if name not in responses) for cells in rows}
    if len(keys) < len(rows):
        return ""
    for name in rows[0]:
        if names.plain(name) in _RUNS:
            told = [cells.get(name, "") for cells in rows]
            if len(set(told)) > 1 and not any(map(is_absent, told)):
                return name
    return ""


def _in_order(lines: Sequence[Line], responses: Sequence[str], equal: dict[int, int]) -> set[int]:
    """Stretches of equal lines in the order of those that they are equal to."""
    copied: set[int] = set()
    for _, stretch in itertools.groupby(sorted(equal), key=lambda at: at - equal[at]):
        block = list(stretch)
        values = {tuple(lines[at][1][name] for name in responses) for at in block}
        if len(block) >= LEAST_LINES and len(values) >= LEAST_VALUES:
            copied.update(block)
    return copied
