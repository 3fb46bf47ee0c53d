"""What matters, and how much: main effects and interactions of factors on the log of a response.

A linear model on logs: an effect is a ratio, and an interaction says that a ratio depends on another factor. Sums
of squares are of type II (each term beyond all others that do not contain it), so that cells may be missing.

Where cells were measured more than once, the spread of the repeats about their cells (and blocks) is the error.
Where each was measured once there is none, and the interactions of three and more factors stand in for it: they
are supposed to be small, which nothing in the data can show. With neither, there are estimates and no interval.

Sources: Box, Hunter & Hunter 2005, Statistics for Experimenters, 2nd ed., ch. 5 and 6 (factorials, one observation
a cell); Langsrud 2003, ANOVA for unbalanced data, Statistics and Computing 13 (type II); Searle, Speed & Milliken
1980, Population marginal means, The American Statistician 34; Holm 1979, Scand. J. Statist. 6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.analysis.intervals import scaled, t_quantile
from headrace.analysis.result import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: A term: the names of its factors, in the order of the table.
Term = tuple[str, ...]


@dataclass(frozen=True)
class Observation:
    """One trial, or one line of a table: a level for every factor and the natural log of its response.

    ``block`` groups what was measured close together in time; None where that is not known.
    """

    levels: Mapping[str, str]
    log: float
    block: int | None = None


@dataclass(frozen=True)
class TermEffect:
    """How much of the variation a term explains. ``share`` of the sum of squares about the mean (type II terms of
    an unbalanced table need not add up to 1); ``p`` is None without an error term, and ``p_holm`` is adjusted for
    the number of terms."""

    term: Term
    degrees: int
    share: float
    p: float | None
    p_holm: float | None

    @property
    def name(self) -> str:
        return " x ".join(self.term)


@dataclass(frozen=True)
class LevelEffect:
    """The marginal geometric mean of a level over that of its factor's first level: every cell weighs the same,
    measured or not. ``ratio`` has a simultaneous interval over all levels of all factors (Bonferroni)."""

    factor: str
    level: str
    mean: float
    ratio: Interval


@dataclass(frozen=True)
class Conditional:
    """How the levels of ``factor`` compare where ``by`` is at ``at``: marginal geometric means by level."""

    factor: str
    by: str
    at: str
    means: Mapping[str, float]

    @property
    def spread(self) -> float:
        """Best over worst level."""
        return max(self.means.values()) / min(self.means.values())


@dataclass(frozen=True)
class Effects:
    """A whole analysis. ``error`` says what the error term is: ``repeats``, ``interactions`` or ``none``;
    ``deviation`` is its standard deviation in log units."""

    factors: Mapping[str, tuple[str, ...]]
    observations: int
    error: str
    error_degrees: int
    deviation: float | None
    terms: tuple[TermEffect, ...]
    levels: tuple[LevelEffect, ...]
    conditionals: tuple[Conditional, ...]
    missing: tuple[Mapping[str, str], ...]


def analyse(observations: Sequence[Observation], *, alpha: float = 0.05) -> Effects:
    """Effects of all factors that vary, and of their pairs. Raises ValueError below two observations, or where no
    factor has two levels."""
    factors = _factors(observations)
    if not factors or len(observations) < 2:
        raise ValueError("effects need a factor with two levels")
    model = _Model(factors, observations)
    terms = [(name,) for name in factors] + list(itertools.combinations(factors, 2))
    terms = [t for t in terms if model.can_fit(t)]
    error, variance, degrees = model.error(terms)
    found = _terms(model, terms, variance, degrees)
    return Effects(
        factors=factors,
        observations=len(observations),
        error=error,
        error_degrees=degrees,
        deviation=math.sqrt(variance) if variance is not None else None,
        terms=found,
        levels=_levels(model, terms, variance, degrees, alpha),
        conditionals=_conditionals(model, terms),
        missing=model.missing(),
    )


def _factors(observations: Sequence[Observation]) -> dict[str, tuple[str, ...]]:
    names = list(observations[0].levels) if observations else []
    found = {name: tuple(dict.fromkeys(o.levels[name] for o in observations)) for name in names}
    return {name: levels for name, levels in found.items() if len(levels) > 1}


class _Model:
    """Design matrices of terms, by sum-to-zero contrasts, and least squares on them."""

    def __init__(self, factors: Mapping[str, tuple[str, ...]], observations: Sequence[Observation]) -> None:
        self.factors = factors
        self.y = np.array([o.log for o in observations])
        self._codes = {
            name: np.array([levels.index(o.levels[name]) for o in observations])
            for name, levels in factors.items()
        }
        blocks = sorted({o.block for o in observations if o.block is not None})
        known = len(blocks) > 1 and all(o.block is not None for o in observations)
        rows = [blocks.index(o.block) for o in observations if o.block is not None]
        self._blocks = _contrasts(len(blocks))[rows] if known else None
        self._cells = [tuple(o.levels[name] for name in factors) for o in observations]

    def missing(self) -> tuple[Mapping[str, str], ...]:
        there = set(self._cells)
        return tuple(
            dict(zip(self.factors, cell, strict=True))
            for cell in itertools.product(*self.factors.values())
            if cell not in there
        )

    def columns(self, term: Term) -> Floats:
        found = np.ones((len(self.y), 1))
        for name in term:
            own = _contrasts(len(self.factors[name]))[self._codes[name]]
            found = (found[:, :, None] * own[:, None, :]).reshape(len(self.y), -1)
        return found

    def matrix(self, terms: Sequence[Term]) -> Floats:
        parts = [np.ones((len(self.y), 1)), *(self.columns(t) for t in terms)]
        if self._blocks is not None:
            parts.append(self._blocks)
        return np.hstack(parts)

    def fit(self, terms: Sequence[Term]) -> tuple[float, int, Floats]:
        """Residual sum of squares, rank, coefficients (least norm where levels were never measured together)."""
        matrix = self.matrix(terms)
        coefficients, _, rank, _ = np.linalg.lstsq(matrix, self.y, rcond=None)
        residual = self.y - matrix @ coefficients
        return float(residual @ residual), int(rank), coefficients

    def can_fit(self, term: Term) -> bool:
        """Whether every combination of the term's levels was measured."""
        there = {tuple(self._codes[name][i] for name in term) for i in range(len(self.y))}
        return len(there) == math.prod(len(self.factors[name]) for name in term)

    def error(self, terms: Sequence[Term]) -> tuple[str, float | None, int]:
        """What the error term is, its variance and degrees of freedom."""
        cells = sorted(set(self._cells))
        if len(cells) < len(self.y):
            dummies = np.zeros((len(self.y), len(cells)))
            dummies[np.arange(len(self.y)), [cells.index(c) for c in self._cells]] = 1
            full = dummies if self._blocks is None else np.hstack([dummies, self._blocks])
            coefficients, _, rank, _ = np.linalg.lstsq(full, self.y, rcond=None)
            residual = self.y - full @ coefficients
            degrees = len(self.y) - int(rank)
            if degrees > 0:
                return "repeats", float(residual @ residual) / degrees, degrees
        squares, rank, _ = self.fit(terms)
        degrees = len(self.y) - rank
        if degrees > 0 and len(self.factors) > 2:
            return "interactions", squares / degrees, degrees
        return "none", None, 0


def _contrasts(levels: int) -> Floats:
    """Sum to zero: a row a level, ``levels - 1`` columns."""
    return np.vstack([np.eye(levels - 1), -np.ones(levels - 1)])


def _terms(
    model: _Model, terms: Sequence[Term], variance: float | None, degrees: int
) -> tuple[TermEffect, ...]:
    from scipy.special import fdtrc

    total = float(((model.y - model.y.mean()) ** 2).sum())
    rows: list[tuple[Term, int, float, float | None]] = []
    for term in terms:
        # Type II: beyond every term that does not contain this one.
        others = [t for t in terms if t != term and not set(term) <= set(t)]
        without, rank_without, _ = model.fit(others)
        with_it, rank_with, _ = model.fit([*others, term])
        own = rank_with - rank_without
        squares = max(without - with_it, 0.0)
        p = None
        if variance is not None and own:
            ratio = math.inf if variance == 0 else squares / own / variance
            p = float(fdtrc(own, degrees, ratio)) if math.isfinite(ratio) else 0.0
        rows.append((term, own, squares / total if total else 0.0, p))
    adjusted = holm([p for *_, p in rows if p is not None])
    return tuple(
        TermEffect(term, own, share, p, next(adjusted) if p is not None else None)
        for adjusted in [iter(adjusted)]
        for term, own, share, p in rows
    )


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values in the order given (Holm 1979)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    worst = 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(values) - place) * values[i]))
        found[i] = worst
    return found


def _levels(
    model: _Model, terms: Sequence[Term], variance: float | None, degrees: int, alpha: float
) -> tuple[LevelEffect, ...]:
    _, _, coefficients = model.fit(terms)
    inverse = np.linalg.pinv(model.matrix(terms).T @ model.matrix(terms))
    comparisons = sum(len(levels) - 1 for levels in model.factors.values())
    found = []
    position = 1
    for term in terms:
        width = model.columns(term).shape[1]
        if len(term) == 1:
            # With contrasts that sum to zero, marginal means over all cells depend on the own columns alone.
            rows = _contrasts(width + 1)
            own = slice(position, position + width)
            for i, level in enumerate(model.factors[term[0]]):
                mean = math.exp(coefficients[0] + rows[i] @ coefficients[own])
                difference = rows[i] - rows[0]
                log = float(difference @ coefficients[own])
                half = None
                if variance is not None and i:
                    spread = math.sqrt(variance * float(difference @ inverse[own, own] @ difference))
                    half = t_quantile(degrees, alpha / comparisons) * spread
                ratio = math.exp(log)
                interval = Interval(
                    ratio,
                    scaled(ratio, -half) if half is not None else None,
                    scaled(ratio, half) if half is not None else None,
                )
                found.append(LevelEffect(term[0], level, mean, interval))
        position += width
    return tuple(found)


def _conditionals(model: _Model, terms: Sequence[Term]) -> tuple[Conditional, ...]:
    """Marginal means of every pair that was measured whole, both ways round."""
    found = []
    for term in (t for t in terms if len(t) == 2):
        means = _pair_means(model, terms, term)
        for factor, by in (term, term[::-1]):
            for at in model.factors[by]:
                own = {
                    level: means[(level, at) if factor == term[0] else (at, level)]
                    for level in model.factors[factor]
                }
                found.append(Conditional(factor, by, at, own))
    return tuple(found)


def _pair_means(model: _Model, terms: Sequence[Term], term: Term) -> dict[tuple[str, str], float]:
    _, _, coefficients = model.fit(terms)
    offsets, position = {}, 1
    for t in terms:
        width = model.columns(t).shape[1]
        offsets[t] = slice(position, position + width)
        position += width
    a, b = (_contrasts(len(model.factors[name])) for name in term)
    found = {}
    for i, first in enumerate(model.factors[term[0]]):
        for j, second in enumerate(model.factors[term[1]]):
            log = coefficients[0]
            if (term[0],) in offsets:
                log += a[i] @ coefficients[offsets[(term[0],)]]
            if (term[1],) in offsets:
                log += b[j] @ coefficients[offsets[(term[1],)]]
            log += np.outer(a[i], b[j]).ravel() @ coefficients[offsets[term]]
            found[first, second] = math.exp(log)
    return found
