"""Whole factorials: every combination of the factors' levels is a treatment, so each trial speaks for each factor.

A cumulative design often is one without saying so: STOCK, A, B and A+B. Its factors are the parts that its
treatments set together. Effects rest on the estimator of the verdicts (``estimate``): each treatment has its own
variance, and what others took from the machine is accounted for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.analysis.effects import Contrast, Effects, LevelEffect, Term, TermEffect, holm
from headrace.analysis.estimate import Contrasts, One
from headrace.analysis.intervals import around
from headrace.model import Treatment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: The levels of a part of a cumulative design.
WITHOUT, WITH = "without", "with"


def parts_of(treatments: Sequence[Treatment]) -> list[Treatment]:
    """The treatments with a factor per part as their levels, if they are all 2^k combinations of k parts; else
    none. A part is named after the treatment that has nothing else.
    """
    items = [set(_items(t)) for t in treatments]
    patterns = {tuple(item in own for own in items) for item in set().union(*items)}
    patterns -= {tuple(True for _ in treatments)}
    cells = set(zip(*patterns, strict=True)) if patterns else set()
    if len(patterns) < 2 or len(cells) != len(treatments) or len(treatments) != 2 ** len(patterns):
        return []
    factors: dict[str, tuple[bool, ...]] = {}
    for i, treatment in enumerate(treatments):
        own = [pattern for pattern in patterns if pattern[i]]
        if len(own) == 1:
            factors[treatment.configuration] = own[0]
    return [
        replace(t, levels={name: WITH if pattern[i] else WITHOUT for name, pattern in factors.items()})
        for i, t in enumerate(treatments)
    ]


def _items(treatment: Treatment) -> Iterator[tuple[str, str]]:
    """Settings one by one; lists accumulate over the parts, so each entry is its own."""
    for knob, value in treatment.settings.items():
        for entry in value if isinstance(value, list) else [value]:
            yield knob, str(entry)


def is_whole(effects: Effects, cells: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether ``cells`` (treatment -> levels) are all combinations of the factors' levels, each once."""
    found = {tuple(levels[name] for name in effects.factors) for levels in cells.values()}
    return len(found) == len(cells) == math.prod(len(levels) for levels in effects.factors.values())


def with_own_variances(
    effects: Effects, one: One, cells: Mapping[str, Mapping[str, str]], alpha: float
) -> Effects:
    """The effects of a whole factorial, with the estimates and intervals of the verdicts' estimator; ``cells`` are
    the levels of the treatments in ``one``.
    """
    terms = [_tested(term, effects, one, cells) for term in effects.terms]
    adjusted = iter(holm([t.p for t in terms if t.p is not None]))
    return replace(
        effects,
        levels=_levels(effects, one, cells, alpha),
        contrasts=_contrasts(effects, one, cells, alpha),
        terms=tuple(replace(t, p_holm=None if t.p is None else next(adjusted)) for t in terms),
        has_own_variances=True,
    )


def deviations(
    term: Term, factors: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]]
) -> Floats:
    """Contrasts of ``cells``: for each level of a factor its mean less that of all levels; for each combination of
    the levels of a pair, what it has beyond both.

    Of two levels one is enough, because the other deviates by as much.
    """
    of_levels = {
        name: [np.array([(cell[name] == level) - 1 / len(levels) for cell in cells]) for level in levels]
        for name, levels in factors.items()
    }
    chosen = [of_levels[name][: None if len(of_levels[name]) > 2 else 1] for name in term]
    return np.array([np.prod(rows, axis=0) for rows in itertools.product(*chosen)])


def p_values(found: Contrasts) -> Floats:
    """Two-sided, each contrast by itself; NaN where nothing is known of its error."""
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * stdtr(found.degrees, -np.abs(found.estimate / found.error)))


def least(p: Floats) -> Floats:
    """One p value for several contrasts (the last dimension): the smallest, times their number."""
    return np.asarray(np.minimum(np.nan_to_num(p, nan=1.0).min(axis=-1) * p.shape[-1], 1.0))


def _tested(
    effect: TermEffect, effects: Effects, one: One, cells: Mapping[str, Mapping[str, str]]
) -> TermEffect:
    """The effect with the p value of its most certain deviation (Bonferroni).

    An F test assumes that all treatments vary alike. If one varies five times as much, it finds an effect of a
    factor with three or more levels where there is none in up to 10% of experiments, and one of three terms in up
    to 17%.
    """
    found = one.ratios(deviations(effect.term, effects.factors, [cells[name] for name in one.names]))
    p = p_values(found)
    if np.isnan(p).all():
        return replace(effect, p=None, error_degrees=0)
    return replace(effect, p=float(least(p)), error_degrees=int(found.degrees[np.nanargmin(p)]))


def _levels(
    effects: Effects, one: One, cells: Mapping[str, Mapping[str, str]], alpha: float
) -> tuple[LevelEffect, ...]:
    asked = [(e.factor, e.level) for e in effects.levels]
    first = {factor: levels[0] for factor, levels in effects.factors.items()}

    def means(factor: str, level: str) -> list[float]:
        own = [float(cells[name][factor] == level) for name in one.names]
        return [share / sum(own) for share in own]

    weights = np.array([np.subtract(means(f, level), means(f, first[f])) for f, level in asked])
    found = one.ratios(weights)
    half = found.half_width(alpha / sum(len(own) - 1 for own in effects.factors.values()) / 2)
    return tuple(
        replace(e, ratio=around(float(log), None if math.isnan(h) else float(h)))
        if e.level != first[e.factor]
        else e
        for e, log, h in zip(effects.levels, found.estimate, half, strict=True)
    )


def _contrasts(
    effects: Effects, one: One, cells: Mapping[str, Mapping[str, str]], alpha: float
) -> tuple[Contrast, ...]:
    terms = [c.term for c in effects.contrasts]
    if not terms:
        return ()
    # As in ``effects``: the first level is coded 1, the second -1.
    signs = {
        factor: np.array([1.0 if cells[name][factor] == levels[0] else -1.0 for name in one.names])
        for factor, levels in effects.factors.items()
        if len(levels) == 2
    }
    weights = np.array(
        [
            (-2.0 if len(term) == 1 else 2.0)
            * np.prod([signs[factor] for factor in term], axis=0)
            / len(one.names)
            for term in terms
        ]
    )
    found = one.ratios(weights)
    half = found.half_width(alpha / len(terms) / 2)
    return tuple(
        Contrast(term, around(float(log), None if math.isnan(h) else float(h)))
        for term, log, h in zip(terms, found.estimate, half, strict=True)
    )
