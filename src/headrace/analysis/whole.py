"""Whole factorials: every combination of the factors' levels is a treatment, so each trial speaks for each factor.

A cumulative design often is one without saying so: STOCK, A, B and A+B. Its factors are the parts that its
treatments set together. Effects rest on the estimator of the verdicts (``estimate``): each treatment has its own
variance, and what others took from the machine is accounted for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.analysis.effects import Contrast, Effects, LevelEffect, Term, holm
from headrace.analysis.estimate import One
from headrace.analysis.intervals import around
from headrace.model import Treatment

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
    levels = _levels(effects, one, cells, alpha)
    contrasts, p_values = _contrasts(effects, one, cells, alpha)
    terms = [replace(t, p=p_values.get(t.term, t.p)) for t in effects.terms]
    adjusted = iter(holm([t.p for t in terms if t.p is not None]))
    return replace(
        effects,
        levels=levels,
        contrasts=contrasts,
        terms=tuple(replace(t, p_holm=None if t.p is None else next(adjusted)) for t in terms),
    )


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
) -> tuple[tuple[Contrast, ...], dict[Term, float]]:
    from scipy.special import stdtr

    terms = [c.term for c in effects.contrasts]
    if not terms:
        return effects.contrasts, {}
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
    contrasts = tuple(
        Contrast(term, around(float(log), None if math.isnan(h) else float(h)))
        for term, log, h in zip(terms, found.estimate, half, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(found.degrees, -np.abs(found.estimate / found.error))
    return contrasts, {t: float(v) for t, v in zip(terms, p, strict=True) if not math.isnan(v)}
