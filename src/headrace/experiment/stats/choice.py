"""Which configuration to choose: ranks, collapsed cells and trade-offs.

Everything here describes a table with one number per cell. None of it is a test: with one observation per cell a
rank can be luck, so measure the first few again in blocks (for example in a race) before deciding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Neighbours in rank that differ by more than this ratio belong to different groups: noise of a sound benchmark
#: does not make such a step.
GAP = 1.5

#: A group has collapsed if its best cell is below this share of the worst in the largest group.
COLLAPSED = 0.25

Cell = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Cells with similar values, best first. ``is_collapsed``: broken down, not just slower."""

    cells: tuple[Cell, ...]
    best: float
    worst: float
    is_collapsed: bool


def ranked(values: Mapping[Cell, float], *, is_higher_better: bool = True) -> list[tuple[Cell, float]]:
    """Best first; ties in the given order."""
    return sorted(values.items(), key=lambda item: -item[1] if is_higher_better else item[1])


def groups(values: Mapping[Cell, float], *, is_higher_better: bool = True) -> list[Group]:
    """The ranks, split at neighbours that differ by more than GAP. Values are positive."""
    order = ranked(values, is_higher_better=is_higher_better)
    parts: list[list[tuple[Cell, float]]] = [order[:1]] if order else []
    for previous, item in itertools.pairwise(order):
        if _step(previous[1], item[1]) > GAP:
            parts.append([])
        parts[-1].append(item)
    # Ties go to the better group.
    most = max(range(len(parts)), key=lambda i: len(parts[i]), default=0)
    return [
        Group(
            tuple(cell for cell, _ in part),
            part[0][1],
            part[-1][1],
            i > most and _step(parts[most][-1][1], part[0][1]) > 1 / COLLAPSED,
        )
        for i, part in enumerate(parts)
    ]


def _step(a: float, b: float) -> float:
    return max(a, b) / min(a, b)


@dataclass(frozen=True)
class LevelPair:
    """One level relative to another of the same factor, cell by cell, all else equal: ``ratios`` of ``level`` to
    ``other``. ``behind`` are the cells in which ``level`` is worse by more than the margin, worst first.
    """

    factor: str
    level: str
    other: str
    ratios: Mapping[Cell, float]
    behind: tuple[Cell, ...]

    @property
    def is_at_least_as_good(self) -> bool:
        return not self.behind


def level_pair(
    values: Mapping[Cell, float],
    factors: Sequence[str],
    factor: str,
    level: str,
    other: str,
    *,
    margin: float = 0.03,
    is_higher_better: bool = True,
) -> LevelPair:
    """Compare two levels in every cell where both were measured; cells are named by the levels of the other
    factors.
    """
    place = factors.index(factor)
    ratios = {}
    for cell, value in values.items():
        beside = (*cell[:place], other, *cell[place + 1 :])
        if cell[place] == level and beside in values:
            ratios[(*cell[:place], *cell[place + 1 :])] = value / values[beside]
    merit = {cell: r if is_higher_better else 1 / r for cell, r in ratios.items()}
    behind = sorted((c for c in merit if merit[c] < 1 / (1 + margin)), key=merit.__getitem__)
    return LevelPair(factor, level, other, ratios, tuple(behind))


def pareto(points: Mapping[Cell, Sequence[float]], is_higher_better: Sequence[bool]) -> list[Cell]:
    """The cells not dominated in all objectives (a tie counts as dominated if another objective is strictly
    better), in the order of the first objective, best first.
    """
    signed = {
        cell: [v if up else -v for v, up in zip(values, is_higher_better, strict=True)]
        for cell, values in points.items()
    }
    front = [
        cell
        for cell, own in signed.items()
        if not any(
            all(a >= b for a, b in zip(other, own, strict=True)) and other != own for other in signed.values()
        )
    ]
    return sorted(front, key=lambda cell: -signed[cell][0])
