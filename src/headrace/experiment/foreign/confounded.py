"""Columns that change with a factor, so that nobody can tell whose effect a difference is."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Sequence

from headrace.base.counted import counted
from headrace.experiment.foreign import names
from headrace.experiment.foreign.alike import Line, meaning, plain
from headrace.experiment.foreign.clocks import is_number, seconds

#: A column goes with a factor if so many lines have their level's most frequent value, and so many more than
#: have the most frequent of all.
MOST, MORE = 0.8, 0.3
#: Names of columns that say in which order runs were made.
_ORDER = frozenset({"order", "seq", "sequence", "run_order", "trial", "run_id", "id", "run_no", "run_number"})
#: Who, where and when: named also if each level was measured once.
_CIRCUMSTANCES = re.compile(
    r"host|hostname|server|machine|node|vm|instance|device|disk|date|day|datum|week|month|operator|user|who|person"
    r"|tester|engineer|lab|site|rack|region|zone|maschine|rechner|serveur|opérateur|bediener|fecha|tag|location"
)
MOST_SHOWN = 3


def confounded(
    lines: Sequence[Line], factors: Sequence[str], used: Collection[str], columns: Collection[str]
) -> list[str]:
    """A note on each of ``columns`` that has one value for each level of a factor, or nearly so."""
    notes = []
    for name in columns:
        if name in used or name in factors:
            continue
        for factor in factors:
            own = [(cells[factor].strip(), plain(cells[name]).casefold()) for _, cells in lines]
            if note := _one_each(name, factor, own) or _one_after_the_other(name, factor, own):
                notes.append(note)
    return notes


def _one_each(name: str, factor: str, own: Sequence[tuple[str, str]]) -> str:
    by_level: dict[str, Counter[str]] = {}
    for level, text in own:
        by_level.setdefault(level, Counter())[text] += 1
    usual = {level: counts.most_common(1)[0] for level, counts in by_level.items()}
    if len({text for text, _ in usual.values()}) < 2 or all(
        _is_label(level, text) for level, (text, _) in usual.items()
    ):
        return ""
    is_named = any(_CIRCUMSTANCES.fullmatch(word) for word in names.plain(name).split("_"))
    repeats = min(sum(counts.values()) for counts in by_level.values())
    # With one line a level any column has one value for each.
    if repeats < 2 and not is_named:
        return ""
    agree = sum(count for _, count in usual.values())
    most = Counter(text for _, text in own).most_common(1)[0][1]
    is_text = not all(is_number(text) for _, text in own)
    if agree < len(own) and (
        not is_text or agree < MOST * len(own) or agree - most < MORE * len(own) or repeats < 2
    ):
        return ""
    shown = ", ".join(f"{level}: {text or 'empty'}" for level, (text, _) in list(usual.items())[:MOST_SHOWN])
    more = ", ..." if len(usual) > MOST_SHOWN else ""
    lines = "" if agree == len(own) else f" in {agree} of {counted(len(own), 'line')}"
    return (
        f"{name} changes with {factor}{lines} ({shown}{more}): an effect of {factor} may be an effect of {name}, "
        "and these runs cannot tell"
    )


def _is_label(level: str, text: str) -> bool:
    """Whether a value only says the level in other words."""
    own, other = names.words(level), names.words(text)
    return bool(own) and bool(other) and (own in other or other in own or meaning(level) == meaning(text))


def _one_after_the_other(name: str, factor: str, own: Sequence[tuple[str, str]]) -> str:
    """Whether a time or an order says that all runs of a level were made before those of the next."""
    times: dict[str, list[float]] = {}
    is_order = names.plain(name) in _ORDER
    for level, text in own:
        at = seconds(text)
        if at is None or (is_number(text) and not is_order):
            return ""
        times.setdefault(level, []).append(at)
    if len(times) < 2 or min(map(len, times.values())) < 2:
        return ""
    in_turn = sorted(times, key=lambda level: min(times[level]))
    if any(max(times[a]) >= min(times[b]) for a, b in itertools.pairwise(in_turn)):
        return ""
    shown = ", then ".join(in_turn[:MOST_SHOWN]) + (", ..." if len(in_turn) > MOST_SHOWN else "")
    return (
        f"by {name} all runs of {factor} = {shown} were made one level after the other: what changed in the "
        "meantime looks like an effect of it"
    )
