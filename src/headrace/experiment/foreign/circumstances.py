"""Runs of the same levels that were made in another way, or have what the others lack: named for their author."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from headrace.experiment.foreign import failures, names
from headrace.experiment.foreign.alike import Line, labels, plain
from headrace.experiment.foreign.clocks import TIMES
from headrace.experiment.foreign.directions import is_more_better
from headrace.experiment.foreign.shapes import REPEATS
from headrace.experiment.foreign.units import is_absent, parts

#: Words of columns that say what was run and on what, which may not differ without being said.
_CIRCUMSTANCES = frozenset({
    "version", "release", "kernel", "engine", "script", "workload", "scenario", "benchmark", "build", "compiler",
    "cpu", "instance", "machine", "os", "dataset", "schema", "storage", "disk", "region", "driver", "rw", "mode",
    "cache",
})  # fmt: skip
#: Beside these they are measured: ``cpu_pct``.
_MEASURED = frozenset(
    {"pct", "percent", "util", "utilization", "usage", "used", "s", "ms", "hits", "misses", "reads"}
)
#: Times that somebody sets; others are measured.
_SET = frozenset({"think", "warmup", "ramp", "rampup", "timeout", "interval", "delay", "sleep", "pause"})
#: Columns that number repeats, or name what was run.
_KINDS = frozenset({"test", "job"})
#: What so large a share of the lines has is usual; of fewer lines none is.
USUAL, MANY = 0.8, 5
MOST_SHOWN, MOST_LETTERS = 3, 60


def circumstances(
    lines: Sequence[Line], factors: Sequence[str], used: Collection[str], columns: Collection[str]
) -> list[str]:
    """A note on each of ``columns`` that differs between runs of the same levels, and on what a few lines have
    otherwise than the rest, whatever it means.
    """
    notes = []
    for name in columns:
        if name in used or name in factors:
            continue
        if note := _differs(lines, factors, name) or _is_odd(lines, name):
            notes.append(note)
    return notes


def _differs(lines: Sequence[Line], factors: Sequence[str], name: str) -> str:
    own = [plain(cells[name]).casefold() for _, cells in lines]
    values = Counter(own)
    if not 1 < len(values) <= len(lines) / 2:
        return ""
    levels = [tuple(cells[each] for each in factors) for _, cells in lines]
    both = Counter(zip(levels, own, strict=True))
    if len(both) == len(set(levels)):
        return ""
    words = set(names.plain(name).split("_"))
    is_one = bool(_CIRCUMSTANCES & words) and not _MEASURED & words
    if not is_one and not _is_setting(name, values, both):
        return ""
    shown = ", ".join(sorted(value or "empty" for value in values)[:MOST_SHOWN])
    return (
        f"{name} differs between runs of the same levels ({shown}): --factor {name} or --condition {name} "
        "keeps them apart"
    )


def _is_setting(name: str, values: Counter[str], both: Counter[tuple[tuple[str, ...], str]]) -> bool:
    """Whether a column of any name has few values that come again, also within a level: no repeat's number, which
    comes once in each, and no measurement.
    """
    total, own = sum(values.values()), names.plain(name)
    are_numbers = all(parts(value) for value in values)
    is_repeat = own in REPEATS and (are_numbers or own not in _KINDS)
    if is_repeat or failures.counts_failures(name) or failures.counts_trouble(name):
        return False
    few = len(values) <= (max(2, total // 4) if are_numbers else total // 2)
    is_set = bool(_SET & set(own.split("_"))) or (own == "time" and len(values) <= MOST_SHOWN)
    if are_numbers and not is_set and (is_more_better(name) is not None or own in TIMES):
        return False
    return few and min(values.values()) > 1 and max(both.values()) > 1


def _is_odd(lines: Sequence[Line], name: str) -> str:
    texts = Counter(_text(cells[name]) for _, cells in lines)
    usual, count = texts.most_common(1)[0]
    if len(lines) < MANY or not USUAL * len(lines) <= count < len(lines):
        return ""
    # Numbers of failures are told by ``failures``.
    is_told = failures.counts_failures(name) or failures.counts_trouble(name)
    if (is_told or names.plain(name) in REPEATS) and all(parts(text) for text in texts if text):
        return ""
    label = labels(lines)
    odd = [
        (label[place], " ".join(cells[name].split())) for place, cells in lines if _text(cells[name]) != usual
    ]
    said = list(dict.fromkeys(text for _, text in odd))
    shown = ", ".join(f"{text[:MOST_LETTERS]!r}" if text else "empty" for text in said[:MOST_SHOWN])
    more = ", ..." if len(said) > MOST_SHOWN else ""
    where = ", ".join(place for place, _ in odd[:MANY]) + (", ..." if len(odd) > MANY else "")
    return (
        f"{name} is {shown}{more} in line{'s' * (len(odd) > 1)} {where}, and {usual or 'empty'} in the others: "
        "leave out what should not count"
    )


def _text(cell: str) -> str:
    """What a cell says; an x is a tick."""
    bare = plain(cell).casefold()
    return "" if is_absent(cell) and bare != "x" else bare
