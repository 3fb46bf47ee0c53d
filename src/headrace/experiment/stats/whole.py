"""Whole factorials: every combination of the factors' levels is a treatment, so each trial speaks for each factor.

A cumulative design often is one without saying so: STOCK, A, B and A+B. Its factors are the parts that its
treatments set together.

Effects of factors rest on ``additive``: a main effect on the model of the factors alone, what a pair has beyond
both on the model with all pairs. Where too little is left for that, or others disturbed some treatments much
more than the rest, both rest on the estimator of the verdicts (``estimate``). ``MAIN`` of alpha is for all main
effects together, the rest for all pairs (Bonferroni): anything in a study is false with at most alpha.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headrace.base.intervals import Interval, around
from headrace.base.model import Treatment
from headrace.experiment.stats import additive, claims
from headrace.experiment.stats.claims import WITH, WITHOUT
from headrace.experiment.stats.effects import Contrast, Effects, LevelEffect, Term, TermEffect
from headrace.experiment.stats.estimate import Contrasts, Seen, fit_one

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: The share of alpha that is for main effects, where there are pairs.
MAIN = 0.8

#: A trial of less weight does not fit.
FITS = 1e-3

Cells = Mapping[str, Mapping[str, str]]


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


class Fitted(Protocol):
    """What estimates contrasts of treatments."""

    def ratios(self, weights: Floats) -> Contrasts: ...


@dataclass(frozen=True)
class Whole:
    """One whole factorial: ``main`` estimates effects of factors, ``paired`` those of pairs and of factors at a
    level of another; ``cells`` are the levels of the treatments that their contrasts are of.
    """

    factors: Mapping[str, Sequence[str]]
    cells: Sequence[Mapping[str, str]]
    main: Fitted
    paired: Fitted

    @property
    def share(self) -> float:
        """The share of alpha that is for main effects."""
        return MAIN if len(self.factors) > 1 else 1.0


def fitted(seen: Sequence[Seen], factors: Mapping[str, Sequence[str]], cells: Cells) -> Whole:
    """Fit the trials of a whole factorial."""
    one = fit_one(seen)
    levels = [cells[name] for name in one.names]
    own = [
        additive.fit_one(
            seen, one.names, additive.rows_of(factors, levels, with_pairs=with_pairs), asked(factors, levels)
        )
        for with_pairs, asked in ((False, of_levels), (True, of_pairs))[: len(factors)]
    ]
    return Whole(factors, levels, own[0] or one, own[-1] or one)


def resistant(
    seen: Sequence[Seen], factors: Mapping[str, Sequence[str]], cells: Cells
) -> tuple[Whole, list[int]]:
    """As ``fitted`` if some trials do not fit, with their places in ``seen``; else by the estimator of the
    verdicts: with few repeats in normal noise it proves more (85% beside 62% at four repeats of two levels
    that are three deviations apart).
    """
    rows = additive.rows_of(factors, list(cells.values()), with_pairs=False)
    misfits = [int(i) for i in np.flatnonzero(additive.weights_of(seen, list(cells), rows) < FITS)]
    if misfits:
        return fitted(seen, factors, cells), misfits
    one = fit_one(seen)
    return Whole(factors, [cells[name] for name in one.names], one, one), []


def of_levels(factors: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]]) -> Floats:
    """The mean of each level but the first of each factor, less that of the first: contrasts x cells."""
    return np.array(
        [
            _mean(cells, {name: level}) - _mean(cells, {name: levels[0]})
            for name, levels in factors.items()
            for level in levels[1:]
        ]
    )


def of_pairs(factors: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]]) -> Floats:
    """What each combination of two levels has beyond both, for all pairs: contrasts x cells."""
    own = [deviations(pair, factors, cells) for pair in itertools.combinations(factors, 2)]
    return np.vstack([np.empty((0, len(cells))), *own])


def _mean(cells: Sequence[Mapping[str, str]], at: Mapping[str, str]) -> Floats:
    """The mean of the cells at these levels, as weights."""
    own = np.array([float(all(cell[name] == level for name, level in at.items())) for cell in cells])
    return np.asarray(own / own.sum())


def with_own_variances(effects: Effects, whole: Whole, alpha: float) -> Effects:
    """The effects of a whole factorial, with its robust estimates and intervals."""
    return replace(
        effects,
        levels=_levels(effects, whole, alpha),
        contrasts=_contrasts(effects, whole, alpha),
        terms=_terms(effects, whole),
        has_own_variances=True,
    )


def claimed(effects: Effects, whole: Whole, alpha: float) -> tuple[claims.Claim, ...]:
    """What is proven of the factors, in ``effects`` as ``with_own_variances`` returned them.

    A factor's effect at each level of another is tested by itself: that all are on one side of 1 is true at the
    level of each (an intersection-union test: Berger 1982, Technometrics 24), and so is what each of them claims
    for its factor where a pair is proven.
    """
    depends = [t.term for t in effects.terms if len(t.term) == 2 and _is_proven(t, alpha)]
    comparisons = sum(len(levels) - 1 for levels in whole.factors.values())
    found = []
    for effect in effects.levels:
        first = effects.factors[effect.factor][0]
        if effect.level == first:
            continue
        at = _conditions(effect, whole, alpha * whole.share / comparisons)
        by = next((t[0] if t[1] == effect.factor else t[1] for t in depends if effect.factor in t), "")
        claim = claims.of(effect.factor, effect.level, first, effect.ratio, at, by)
        found += [claim] if claim else []
    return tuple(found)


def _is_proven(term: TermEffect, alpha: float) -> bool:
    return term.p_holm is not None and term.p_holm < alpha


def _conditions(effect: LevelEffect, whole: Whole, level: float) -> list[claims.At]:
    """The effect at each level of each other factor."""
    first = whole.factors[effect.factor][0]
    places = [(by, at) for by, own in whole.factors.items() if by != effect.factor for at in own]
    weights = np.array(
        [
            _mean(whole.cells, {effect.factor: effect.level, by: at})
            - _mean(whole.cells, {effect.factor: first, by: at})
            for by, at in places
        ]
    )
    found = whole.paired.ratios(weights)
    ratios = zip(found.estimate, found.half_width(level / 2), strict=True)
    return [claims.At(by, at, _around(*ratio)) for (by, at), ratio in zip(places, ratios, strict=True)]


def _around(log: float, half: float) -> Interval:
    return around(float(log), None if math.isnan(half) else float(half))


def deviations(
    term: Term, factors: Mapping[str, Sequence[str]], cells: Sequence[Mapping[str, str]]
) -> Floats:
    """Contrasts of ``cells``: for each level of a factor its mean less that of all levels; for each combination of
    the levels of a pair, what it has beyond both.

    Of two levels one is enough, because the other deviates by as much.
    """
    of_each = {
        name: [np.array([(cell[name] == level) - 1 / len(levels) for cell in cells]) for level in levels]
        for name, levels in factors.items()
    }
    chosen = [of_each[name][: None if len(of_each[name]) > 2 else 1] for name in term]
    return np.array([np.prod(rows, axis=0) for rows in itertools.product(*chosen)])


def p_values(found: Contrasts) -> Floats:
    """Two-sided, each contrast by itself; NaN where nothing is known of its error."""
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * stdtr(found.degrees, -np.abs(found.estimate / found.error)))


def least(p: Floats) -> Floats:
    """One p value for several contrasts (the last dimension): the smallest, times their number."""
    return np.asarray(np.minimum(np.nan_to_num(p, nan=1.0).min(axis=-1) * p.shape[-1], 1.0))


def _terms(effects: Effects, whole: Whole) -> tuple[TermEffect, ...]:
    """Each with the p value of its most certain contrast: that of a factor's level relative to the first, or of a
    pair's combination. Adjusted, it is below alpha exactly where an interval of ``_levels`` excludes 1.

    An F test assumes that all treatments vary alike. If one varies five times as much, it finds an effect of a
    factor with three or more levels where there is none in up to 10% of experiments, and one of three terms in up
    to 17%.
    """
    mains = sum(len(levels) - 1 for levels in whole.factors.values())
    pairs = sum(
        len(deviations(t.term, whole.factors, whole.cells)) for t in effects.terms if len(t.term) == 2
    )
    found = []
    for effect in effects.terms:
        is_main = len(effect.term) == 1
        if is_main:
            rows = of_levels({effect.term[0]: whole.factors[effect.term[0]]}, whole.cells)
        else:
            rows = deviations(effect.term, whole.factors, whole.cells)
        own = (whole.main if is_main else whole.paired).ratios(rows)
        p = p_values(own)
        if np.isnan(p).all():
            found.append(replace(effect, p=None, p_holm=None, error_degrees=0))
            continue
        adjusted = min(float(np.nanmin(p)) * (mains / whole.share if is_main else pairs / (1 - MAIN)), 1.0)
        degrees = int(own.degrees[np.nanargmin(p)])
        found.append(replace(effect, p=float(least(p)), p_holm=adjusted, error_degrees=degrees))
    return tuple(found)


def _levels(effects: Effects, whole: Whole, alpha: float) -> tuple[LevelEffect, ...]:
    found = whole.main.ratios(of_levels(whole.factors, whole.cells))
    half = found.half_width(alpha * whole.share / len(found.estimate) / 2)
    names = [(name, level) for name, levels in whole.factors.items() for level in levels[1:]]
    ratios = dict(zip(names, zip(found.estimate, half, strict=True), strict=True))
    return tuple(
        replace(e, ratio=_around(*ratios[e.factor, e.level])) if (e.factor, e.level) in ratios else e
        for e in effects.levels
    )


def _contrasts(effects: Effects, whole: Whole, alpha: float) -> tuple[Contrast, ...]:
    """As in ``effects``: the first level is coded 1, the second -1."""
    signs = {
        factor: np.array([1.0 if cell[factor] == levels[0] else -1.0 for cell in whole.cells])
        for factor, levels in whole.factors.items()
        if len(levels) == 2
    }
    kinds = [len(c.term) for c in effects.contrasts]
    found = []
    for contrast in effects.contrasts:
        is_main = len(contrast.term) == 1
        weights = np.prod([signs[factor] for factor in contrast.term], axis=0)
        weights = weights * ((-2.0 if is_main else 2.0) / len(whole.cells))
        own = (whole.main if is_main else whole.paired).ratios(weights[None])
        share = whole.share if is_main else 1 - MAIN
        half = own.half_width(alpha * share / kinds.count(len(contrast.term)) / 2)
        found.append(replace(contrast, ratio=_around(own.estimate[0], half[0])))
    return tuple(found)
