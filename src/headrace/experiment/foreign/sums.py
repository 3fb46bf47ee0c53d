"""Lines that sum up others without a word for it: their level is empty, NULL, or stands once at the end, and their
number is the others' mean, sum or spread.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Sequence

from headrace.experiment.foreign.alike import Line
from headrace.experiment.foreign.units import parts

#: How clients, spreadsheets and pandas write "over all of them" where a level would stand.
_ALL = frozenset({"", "null", "(null)", "\\n", "none", "nan", "<na>", "(all)", "all", "*", "-", "—"})
#: Lines at the end that may be a footer.
_FOOTER = 3
#: A level with a single row is named if every other level has at least this many.
_SEVERAL = 2
#: A number at the end that is so many times above or below all others is of another measure: a ratio, a deviation.
_FAR = 20.0
#: Numbers that differ by more than this share are not equal, however they were rounded.
_EQUAL = 1e-3


def of_others(lines: Sequence[Line], factors: Collection[str], responses: Collection[str]) -> set[str]:
    """The places of lines whose every response is the mean, sum, geometric mean or deviation of others'."""
    names = [name for name in factors if lines and name in lines[0][1]]
    if not names or not responses:
        return set()
    empty = {place: [name for name in names if _is_all(cells[name])] for place, cells in lines}
    alone = _alone(lines, names)
    runs = [(place, cells) for place, cells in lines if not empty[place] and place not in alone]
    found = set()
    level_of = {place: tuple(cells[name].strip() for name in names) for place, cells in lines}
    for place, cells in lines:
        if not empty[place] and place not in alone:
            continue
        same = [name for name in names if name not in empty[place]] if empty[place] else []
        own = [other for _, other in runs if all(other[name] == cells[name] for name in same)]
        if len(own) > 1 and all(_sums(cells[name], [other[name] for other in own]) for name in responses):
            found.add(place)
    # Of a level that has other runs, too, none is a total.
    levels = Counter(level_of.values())
    totals = Counter(level_of[place] for place in found)
    return {place for place in found if totals[level_of[place]] == levels[level_of[place]]}


def far(
    lines: Sequence[Line], factors: Collection[str], responses: Collection[str]
) -> tuple[set[str], list[str]]:
    """The places of lines at the end whose level stands once, and whose numbers are far from all others; a note.

    0 is not far: it is the result of a run that did nothing. A number below it is refused where it is read.
    """
    names = [name for name in factors if lines and name in lines[0][1]]
    alone = _alone(lines, names) if names and responses else set()
    apart = set(alone)
    for name in responses if alone else ():
        others = [own[0] for place, cells in lines if place not in alone and (own := parts(cells[name]))]
        for place, cells in lines:
            told = parts(cells[name])
            if place in alone and (
                told is None
                or told[0] <= 0
                or not others
                or min(others) / _FAR <= told[0] <= max(others) * _FAR
            ):
                apart.discard(place)
    if not apart:
        return apart, []
    named = ", ".join(place.rpartition(":")[2] for place, _ in lines if place in apart)
    return apart, [
        f"line{'s' * (len(apart) > 1)} {named} left out: a level that stands once, at the end, with a number far "
        "from all others, as of a ratio or a spread; if it is a run, measure it as often as the others"
    ]


def _is_all(cell: str) -> bool:
    return cell.strip().casefold() in _ALL


def _alone(lines: Sequence[Line], names: Sequence[str]) -> set[str]:
    """Lines at the end whose level stands once, where each other stands more often."""
    levels = [tuple(cells[name].strip() for name in names) for _, cells in lines]
    counts = Counter(levels)
    last = [(place, level) for (place, _), level in zip(lines, levels, strict=True)][-_FOOTER:]
    single = [place for place, level in last if counts[level] == 1]
    often = [count for level, count in counts.items() if count > 1]
    return set(single) if single and len(often) + len(single) == len(counts) and len(often) > 1 else set()


def _sums(text: str, others: Sequence[str]) -> bool:
    told = parts(text)
    numbers = [each[0] for each in map(parts, others) if each]
    if told is None or len(numbers) < 2:
        return False
    value = told[0]
    # What the number was rounded to.
    decimals = len(text.strip().split()[0].partition(".")[2].rstrip("%")) if "e" not in text.lower() else 6
    off = min(0.501 * 10.0**-decimals, _EQUAL * abs(value))
    sums = [
        math.fsum(numbers),
        statistics.fmean(numbers),
        statistics.stdev(numbers),
        statistics.pstdev(numbers),
    ]
    if min(numbers) > 0:
        sums.append(statistics.geometric_mean(numbers))
    return any(abs(value - each) <= off for each in sums)


def of_two_levels(lines: Sequence[Line], factors: Collection[str]) -> set[str]:
    """Texts in the place of a level that name two levels and what compares them: ``xfs/ext4``, ``a vs b``."""
    compared = set()
    for name in factors:
        counts = Counter(cells[name].strip() for _, cells in lines)
        often = [level for level, count in counts.items() if count > 1]
        for text, count in counts.items():
            halves = re.split(r"\s*(?:/|÷|:|→|->|–|\bvs?\b\.?|\bover\b|\s-\s)\s*", text)
            if count == 1 and len(halves) == 2 and len({*halves} & {*often}) == 2:
                compared.add(text)
    return compared


def single(lines: Sequence[Line], factors: Collection[str]) -> list[str]:
    """A note on a level that stands once, where each other has several lines: a run, or a remark or a figure."""
    if len(factors) != 1:
        return []
    (name,) = factors
    counts = Counter(cells[name].strip() for _, cells in lines)
    once = [level for level, count in counts.items() if count == 1]
    if len(once) != 1 or len(counts) < 3 or min(count for count in counts.values() if count > 1) < _SEVERAL:
        return []
    place = next(place for place, cells in lines if cells[name].strip() == once[0])
    return [
        f"{name} = {once[0]!r} stands once, in line {place.rpartition(':')[2]}, and each other level at least "
        f"{min(count for count in counts.values() if count > 1)} times: take the line out unless it is a run"
    ]
