"""What a design cannot distinguish, computed from its rows: its confounding and its resolution.

The estimate of a term in the model is biased by every omitted term that is not orthogonal to it: the alias matrix
(X1'X1)^-1 X1'X2 gives the weight of each (Box & Wilson 1951, J. R. Stat. Soc. B 13; Montgomery 2017, Design and
Analysis of Experiments, 9th ed., sec. 8.2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Term = tuple[str, ...]
Levels = Mapping[str, Sequence[str]]

#: Correlations below this are rounding errors.
_NIL = 1e-9

#: Longest word searched for: longer ones confound only terms that are never estimated.
LONGEST_WORD = 5


@dataclass(frozen=True)
class Alias:
    """``other``, which is not in the model, adds ``weight`` times its effect to the estimate of ``term``: 1 or -1
    if both are the same column. For terms with more than two levels, the weight with the largest magnitude.
    """

    term: Term
    other: Term
    weight: float


@dataclass(frozen=True)
class Aliasing:
    """``resolution`` is the smallest number of two-level factors in an unbalanced product (0 if factors have more
    levels, or if no product up to LONGEST_WORD is unbalanced); ``is_partial`` if that product is not constant, as
    in a Plackett-Burman design. ``terms`` is the model: main effects, and the named pairs, or one pair of each set
    that is not confounded with a main effect. ``efficiency``: the D-efficiency of a two-level design, 1 if
    orthogonal; None for other designs.
    """

    runs: int
    terms: tuple[Term, ...]
    aliases: tuple[Alias, ...]
    resolution: int
    is_partial: bool
    efficiency: float | None


def contrasts(levels: int) -> Floats:
    """Sum-to-zero contrasts: one row per level, ``levels - 1`` columns."""
    return np.vstack([np.eye(levels - 1), -np.ones(levels - 1)])


def model_matrix(
    cells: Sequence[Mapping[str, str]], levels: Levels, terms: Sequence[Term], *, has_mean: bool = True
) -> Floats:
    """The mean and the columns of ``terms`` in order, by sum-to-zero contrasts: one row per cell."""
    parts = [np.ones((len(cells), 1))] if has_mean else [np.zeros((len(cells), 0))]
    return np.hstack([*parts, *(_columns(cells, levels, term) for term in terms)])


def _columns(cells: Sequence[Mapping[str, str]], levels: Levels, term: Term) -> Floats:
    found = np.ones((len(cells), 1))
    for name in term:
        codes = [levels[name].index(cell[name]) for cell in cells]
        own = contrasts(len(levels[name]))[codes]
        found = (found[:, :, None] * own[:, None, :]).reshape(len(cells), -1)
    return found


def varying(cells: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The factors with at least two levels, each with its levels in order of first appearance."""
    names = list(cells[0]) if cells else []
    found = {name: tuple(dict.fromkeys(c[name] for c in cells)) for name in names}
    return {name: levels for name, levels in found.items() if len(levels) > 1}


def structure(cells: Sequence[Mapping[str, str]], *, interactions: Sequence[Term] | None = None) -> Aliasing:
    """For a design's treatments, each once.

    ``interactions`` are those of the model; without them, all pairs that are orthogonal to the main effects and to
    each other, each representing its set.
    """
    levels = varying(cells)
    mains: list[Term] = [(name,) for name in levels]
    pairs: list[Term] = list(itertools.combinations(levels, 2))
    has_two = all(len(v) == 2 for v in levels.values())
    chosen = _told_apart(cells, levels, mains, pairs) if interactions is None else list(interactions)
    terms = [*mains, *chosen]
    others = [p for p in pairs if p not in chosen]
    model = model_matrix(cells, levels, terms)
    resolution, is_partial = (
        _resolution(model_matrix(cells, levels, mains, has_mean=False)) if has_two else (0, False)
    )
    efficiency = None
    if has_two:
        sign, log = np.linalg.slogdet(model.T @ model / len(cells))
        efficiency = float(math.exp(log / model.shape[1])) if sign > 0 else 0.0
    return Aliasing(
        runs=len(cells),
        terms=tuple(terms),
        aliases=tuple(_aliases(cells, levels, terms, model, others)),
        resolution=resolution,
        is_partial=is_partial,
        efficiency=efficiency,
    )


def _told_apart(
    cells: Sequence[Mapping[str, str]], levels: Levels, mains: Sequence[Term], pairs: Sequence[Term]
) -> list[Term]:
    """Pairs orthogonal to the mean, every main effect and all pairs chosen before.

    If any pair is partly confounded (neither equal to nor orthogonal to the others), none is used, because the
    choice would be arbitrary.
    """
    kept = model_matrix(cells, levels, mains)
    found: list[Term] = []
    for pair in pairs:
        own = _columns(cells, levels, pair)
        shared = np.abs(_correlations(kept, own))
        if (shared < _NIL).all():
            found.append(pair)
            kept = np.hstack([kept, own])
        elif not ((shared < _NIL) | (shared > 1 - _NIL)).all():
            return []
    return found


def _correlations(a: Floats, b: Floats) -> Floats:
    found: Floats = (a.T @ b) / np.sqrt(np.outer((a**2).sum(axis=0), (b**2).sum(axis=0)))
    return found


def _aliases(
    cells: Sequence[Mapping[str, str]],
    levels: Levels,
    terms: Sequence[Term],
    model: Floats,
    others: Sequence[Term],
) -> list[Alias]:
    inverse = np.linalg.pinv(model)
    found = []
    for other in others:
        weights = inverse @ _columns(cells, levels, other)
        position = 1
        for term in terms:
            width = math.prod(len(levels[name]) - 1 for name in term)
            own = weights[position : position + width]
            position += width
            largest = float(own.flat[int(np.abs(own).argmax())])
            if abs(largest) > _NIL:
                found.append(Alias(term, other, largest))
    return sorted(found, key=lambda a: (terms.index(a.term), -abs(a.weight)))


def _resolution(signs: Floats) -> tuple[int, bool]:
    for length in range(1, LONGEST_WORD + 1):
        means = [
            abs(float(signs[:, list(word)].prod(axis=1).mean()))
            for word in itertools.combinations(range(signs.shape[1]), length)
        ]
        if means and max(means) > _NIL:
            return length, max(means) < 1 - _NIL
    return 0, False


def whole_terms(cells: Sequence[Mapping[str, str]]) -> list[Term]:
    """The model of a factorial: main effects, and every pair with all combinations present."""
    levels = varying(cells)
    pairs = [
        (a, b)
        for a, b in itertools.combinations(levels, 2)
        if len({(cell[a], cell[b]) for cell in cells}) == len(levels[a]) * len(levels[b])
    ]
    return [*((name,) for name in levels), *pairs]
