"""Main effects and interactions of factors on the log of a response.

A linear model on logs: an effect is a ratio, and an interaction means that a ratio depends on another factor. Sums
of squares are of type II (each term beyond all others that do not contain it), so that cells may be missing.

If cells were measured more than once, the error is the spread of the repeats within cells (and blocks). If each
was measured once, interactions of three or more factors replace it: they are assumed to be small, which the data
cannot confirm. With neither, there are estimates without intervals. Factors that were kept while others changed
(``hard``) were set up less often than there are trials: their error is the variation between set-ups, within
blocks (a split plot). Using the trials' error would treat every trial as a set-up, and overstate certainty.

Sources: Box, Hunter & Hunter 2005, Statistics for Experimenters, 2nd ed., ch. 5 and 6 (factorials, one observation
a cell); Langsrud 2003, ANOVA for unbalanced data, Statistics and Computing 13 (type II); Searle, Speed & Milliken
1980, Population marginal means, The American Statistician 34; Holm 1979, Scand. J. Statist. 6; Jones & Nachtsheim
2009, Split-plot designs: what, why, and how, J. Quality Technology 41; Henderson 1953, Biometrics 9 (method 3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval, scaled, t_quantile
from headrace.experiment.stats import swept
from headrace.experiment.stats.aliasing import contrasts as _contrasts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: With more observations than this, residuals are not drawn individually.
MOST_FOR_REST = 500

#: More blocks than this are taken out by their means, if there are more observations than the above: a column for
#: each would make a matrix of 25,000 times 2,500.
MOST_COLUMNS = 50

#: A column with more values than this is no factor.
MOST_LEVELS = 200

#: A term: the names of its factors, in the order of the table.
Term = tuple[str, ...]


@dataclass(frozen=True)
class Observation:
    """One trial, or one line of a table: a level for every factor and the natural log of its response.

    ``block`` groups observations made close together in time; None if unknown.
    """

    levels: Mapping[str, str]
    log: float
    block: int | None = None


@dataclass(frozen=True)
class TermEffect:
    """How much of the variation a term explains.

    ``share`` of the sum of squares around the mean (type II terms of an unbalanced table need not add up to 1);
    ``p`` is None without an error term, and ``p_holm`` is adjusted for the number of terms. ``error_degrees`` are
    the degrees of freedom of its error term. With ``has_own_variances``, ``p`` is that of the level, or
    combination of levels, that stands out most, times their number; ``error_degrees`` are its own, rounded down.
    """

    term: Term
    degrees: int
    share: float
    p: float | None
    p_holm: float | None
    error_degrees: int = 0

    @property
    def name(self) -> str:
        return " x ".join(self.term)


@dataclass(frozen=True)
class LevelEffect:
    """The marginal geometric mean of a level relative to that of its factor's first level: every cell has the same
    weight, measured or not. ``ratio`` has a simultaneous interval over all levels of all factors (Bonferroni).
    """

    factor: str
    level: str
    mean: float
    ratio: Interval


@dataclass(frozen=True)
class Contrast:
    """A term of two-level factors, as one ratio: for a main effect, the second level relative to the first; for a
    pair, the square root of the factor by which one ratio changes with the other factor. Intervals are
    simultaneous (Bonferroni).
    """

    term: Term
    ratio: Interval


@dataclass(frozen=True)
class Single:
    """One degree of freedom: the length of the data along one orthonormal column, in log units.

    Without effects, all of them would have the same variance, that of one observation. ``term`` is empty if it
    belongs to no term of the model.
    """

    term: Term
    size: float


@dataclass(frozen=True)
class Stratum:
    """The error term of ``factors`` and their interactions.

    ``deviation`` in log units, on the scale of single trials; None if ``degrees`` is 0: nothing was set up twice.
    """

    factors: Term
    deviation: float | None
    degrees: int


@dataclass(frozen=True)
class Same:
    """``term`` cannot be told apart from ``others`` in these cells, and is left out of the analysis."""

    term: Term
    others: tuple[Term, ...]


@dataclass(frozen=True)
class Conditional:
    """The levels of ``factor`` while ``by`` is at ``at``: marginal geometric means by level."""

    factor: str
    by: str
    at: str
    means: Mapping[str, float]

    @property
    def spread(self) -> float:
        """Best relative to worst level."""
        return max(self.means.values()) / min(self.means.values())


@dataclass(frozen=True)
class Effects:
    """A whole analysis.

    ``error`` is the source of the error term: ``repeats``, ``interactions`` (of three or more factors),
    ``residual`` (everything outside the chosen model) or ``none``; ``deviation`` is its standard deviation in log
    units. ``strata`` are those of hard factors, outermost first. ``unknown`` are levels that cannot be compared
    with the first level of their factor, ``same`` the terms that are others by another name. ``singles`` are the
    degrees of freedom of all terms tested against trials and, if no cell was repeated (``is_single``), of the
    residuals. ``has_own_variances``: p values and intervals allow for treatments that vary more than others.
    """

    factors: Mapping[str, tuple[str, ...]]
    observations: int
    error: str
    error_degrees: int
    deviation: float | None
    terms: tuple[TermEffect, ...]
    levels: tuple[LevelEffect, ...]
    conditionals: tuple[Conditional, ...]
    missing: tuple[Mapping[str, str], ...]
    contrasts: tuple[Contrast, ...] = ()
    strata: tuple[Stratum, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    singles: tuple[Single, ...] = ()
    same: tuple[Same, ...] = ()
    is_single: bool = True
    has_own_variances: bool = False


def analyse(
    observations: Sequence[Observation],
    *,
    alpha: float = 0.05,
    pairs: Sequence[Term] | None = None,
    hard: Sequence[str] = (),
    planned: Sequence[Mapping[str, str]] | None = None,
) -> Effects:
    """Effects of all factors that vary, and of ``pairs`` (default: all that were measured completely).

    Without ``pairs`` the design is unknown, and may be less than it seems: a factor that another determines, and a
    pair that others explain, wholly or in part, are left out and named in ``same``. ``hard`` are factors that were
    kept while others changed, outermost first, and set up again in each block. ``planned`` are the cells of the
    design (default: all combinations). Raises ValueError with fewer than two observations, if no factor has two
    levels, and if one has more than MOST_LEVELS.
    """
    factors = _factors(observations)
    if not factors or len(observations) < 2:
        raise ValueError("effects need a factor with two levels")
    for name, own in factors.items():
        if len(own) > MOST_LEVELS:
            raise ValueError(
                f"{name} has {len(own):,} levels, and {MOST_LEVELS} is the most: is it a measurement?"
            )
    same: tuple[Same, ...] = ()
    if pairs is None:
        factors, same = _free(factors, observations)
    model = _Model(factors, observations, [name for name in hard if name in factors])
    chosen = itertools.combinations(factors, 2) if pairs is None else pairs
    terms = [(name,) for name in factors] + [t for t in chosen if set(t) <= set(factors)]
    terms = [t for t in terms if len(t) == 1 or model.can_fit(t)]
    if pairs is None:
        terms, more = model.told_apart(terms)
        same += more
    error, variance, degrees = model.error(terms, "interactions" if pairs is None else "residual")
    errors = [*model.strata(), (variance, degrees)]
    found = _terms(model, terms, errors)
    levels, unknown = _levels(model, terms, errors, alpha)
    return Effects(
        factors=factors,
        observations=len(observations),
        error=error,
        error_degrees=degrees,
        deviation=math.sqrt(variance) if variance is not None else None,
        terms=found,
        levels=levels,
        conditionals=_conditionals(model, terms),
        missing=model.missing(planned),
        contrasts=_contrasts_of(model, terms, errors, alpha),
        strata=tuple(
            Stratum(tuple(model.hard[: i + 1]), math.sqrt(v) if v is not None else None, d)
            for i, (v, d) in enumerate(errors[:-1])
        ),
        unknown=unknown,
        singles=_singles(model, terms, with_rest=error != "repeats"),
        same=same,
        is_single=len(model.cells) == len(observations),
    )


def _free(
    factors: dict[str, tuple[str, ...]], observations: Sequence[Observation]
) -> tuple[dict[str, tuple[str, ...]], tuple[Same, ...]]:
    """The factors that no other determines, and the rest. Of two that determine each other the first stays."""
    kept = dict(factors)
    order = list(factors)
    same = []
    for name in sorted(factors, key=lambda name: (len(factors[name]), -order.index(name))):
        others = [other for other in kept if other != name]
        one = next((other for other in others if _determines([other], name, observations)), None)
        if one is not None:
            same.append(Same((name,), ((one,),)))
            del kept[name]
    return kept, tuple(same)


def _determines(names: Sequence[str], name: str, observations: Sequence[Observation]) -> bool:
    """Whether each combination of the levels of ``names`` came with one level of ``name`` only."""
    seen: dict[tuple[str, ...], str] = {}
    return all(
        seen.setdefault(tuple(o.levels[n] for n in names), o.levels[name]) == o.levels[name]
        for o in observations
    )


#: A variance, None if there is no error term, and its degrees of freedom.
_Error = tuple[float | None, int]


def _factors(observations: Sequence[Observation]) -> dict[str, tuple[str, ...]]:
    names = list(observations[0].levels) if observations else []
    found = {name: tuple(dict.fromkeys(o.levels[name] for o in observations)) for name in names}
    return {name: levels for name, levels in found.items() if len(levels) > 1}


class _Model:
    """Design matrices of terms, by sum-to-zero contrasts, and least squares on them."""

    def __init__(
        self,
        factors: Mapping[str, tuple[str, ...]],
        observations: Sequence[Observation],
        hard: Sequence[str] = (),
    ) -> None:
        self.factors = factors
        self.hard = list(hard)
        self.y = np.array([o.log for o in observations])
        self._codes = {
            name: np.array([levels.index(o.levels[name]) for o in observations])
            for name, levels in factors.items()
        }
        blocks = sorted({o.block for o in observations if o.block is not None})
        known = len(blocks) > 1 and all(o.block is not None for o in observations)
        places = {block: i for i, block in enumerate(blocks)}
        rows = np.array([places[o.block] for o in observations if o.block is not None], dtype=int)
        is_swept = known and not hard and len(blocks) > MOST_COLUMNS and len(self.y) > MOST_FOR_REST
        self._swept = swept.Groups(rows) if is_swept else None
        self._blocks = _contrasts(len(blocks))[rows] if known and not is_swept else None
        self._cells = [tuple(o.levels[name] for name in factors) for o in observations]
        self._units = [
            _dummies(
                [(o.block if known else None, *(o.levels[n] for n in hard[:depth])) for o in observations]
            )
            for depth in range(1, len(hard) + 1)
        ]
        self._fits: dict[tuple[tuple[Term, ...], int], tuple[float, int, Floats]] = {}

    @property
    def cells(self) -> set[tuple[str, ...]]:
        return set(self._cells)

    def missing(self, planned: Sequence[Mapping[str, str]] | None) -> tuple[Mapping[str, str], ...]:
        cells = (
            itertools.product(*self.factors.values())
            if planned is None
            else dict.fromkeys(tuple(cell[name] for name in self.factors) for cell in planned)
        )
        return tuple(dict(zip(self.factors, cell, strict=True)) for cell in cells if cell not in self.cells)

    def depth(self, term: Term) -> int:
        """How many hard factors were kept between two changes of this term's levels, which determines its
        error.
        """
        if set(term) <= set(self.hard):
            return max(self.hard.index(name) for name in term)
        return len(self.hard)

    def columns(self, term: Term) -> Floats:
        found = np.ones((len(self.y), 1))
        for name in term:
            own = _contrasts(len(self.factors[name]))[self._codes[name]]
            found = (found[:, :, None] * own[:, None, :]).reshape(len(self.y), -1)
        return found

    def nuisance(self, depth: int) -> list[Floats]:
        """Columns for what trials share: their block, then each set-up of the first hard factors."""
        if depth:
            return [self._units[depth - 1]]
        return [] if self._blocks is None else [self._blocks]

    def matrix(self, terms: Sequence[Term], depth: int = 0) -> Floats:
        """The mean, the terms and what trials share; beyond blocks that are taken out, the terms after a 0."""
        if self._swept is not None:
            return np.hstack([np.zeros((len(self.y), 1)), *(self.beyond(self.columns(t)) for t in terms)])
        parts = [np.ones((len(self.y), 1)), *(self.columns(t) for t in terms)]
        return np.hstack([*parts, *self.nuisance(depth)])

    def beyond(self, columns: Floats) -> Floats:
        """Columns less what blocks that are taken out explain of them."""
        return columns if self._swept is None else self._swept.without(columns)

    def fit(self, terms: Sequence[Term], depth: int = 0) -> tuple[float, int, Floats]:
        """Residual sum of squares, rank, coefficients (minimum norm if levels were never measured together)."""
        key = (tuple(terms), depth)
        if key not in self._fits:
            matrix = self.matrix(terms, depth)
            self._fits[key] = self._fit(matrix) if self._swept is None else self._fit_swept(terms, matrix)
        return self._fits[key]

    def _fit(self, matrix: Floats) -> tuple[float, int, Floats]:
        coefficients, _, rank, _ = np.linalg.lstsq(matrix, self.y, rcond=None)
        residual = self.y - matrix @ coefficients
        return float(residual @ residual), int(rank), coefficients

    def _fit_swept(self, terms: Sequence[Term], matrix: Floats) -> tuple[float, int, Floats]:
        assert self._swept is not None
        y = self._swept.without(self.y[:, None])[:, 0]
        coefficients, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=1e-10)
        residual = y - matrix @ coefficients
        plain = np.hstack([np.zeros((len(y), 1)), *(self.columns(t) for t in terms)])
        coefficients[0] = self._swept.mean(self.y - plain @ coefficients)
        return float(residual @ residual), int(rank) + self._swept.count, np.asarray(coefficients, np.float64)

    def can_fit(self, term: Term) -> bool:
        """Whether every combination of the term's levels was measured."""
        there = {tuple(self._codes[name][i] for name in term) for i in range(len(self.y))}
        return len(there) == math.prod(len(self.factors[name]) for name in term)

    def told_apart(self, terms: Sequence[Term]) -> tuple[list[Term], tuple[Same, ...]]:
        """The factors and those pairs that no terms before them explain even in part; the other pairs."""
        kept: list[Term] = []
        same = []
        rank = self.fit([])[1]
        for term in terms:
            columns = self.columns(term)
            now = self.fit([*kept, term])[1]
            if len(term) == 1 or now - rank == columns.shape[1]:
                kept.append(term)
                rank = now
            else:
                same.append(Same(term, tuple(t for t in kept if self._share(t, term, kept))))
        return kept, tuple(same)

    def _share(self, one: Term, term: Term, kept: Sequence[Term]) -> bool:
        """Whether ``term`` explains a part of ``one`` beyond what the other ``kept`` terms do."""
        others = [t for t in kept if t != one]
        without = self.fit([*others, term])[1]
        return self.fit([*others, one, term])[1] - without < self.fit([*others, one])[1] - self.fit(others)[1]

    def error(self, terms: Sequence[Term], instead: str) -> tuple[str, float | None, int]:
        """The trials' error term (``instead``, if no cell was repeated), its variance and degrees of freedom."""
        depth = len(self.hard)
        if len(self.cells) < len(self.y):
            squares, rank = self._within_cells(depth)
            degrees = len(self.y) - rank
            # Repeats that are equal to the last digit are copies, or too coarse to show any noise.
            if degrees > 0 and squares > 1e-20 * float(self.y @ self.y):
                return "repeats", squares / degrees, degrees
        if instead == "interactions":
            # Pairs that are not in the model, because some of their levels never met, are no noise.
            terms = [*terms, *(t for t in itertools.combinations(self.factors, 2) if t not in terms)]
        squares, rank, _ = self.fit(terms, depth)
        degrees = len(self.y) - rank
        if degrees > 0 and len(self.factors) > 2:
            return instead, squares / degrees, degrees
        return "none", None, 0

    def strata(self) -> list[_Error]:
        """The error between set-ups of each hard factor: what set-ups explain beyond cells and outer strata."""
        found: list[_Error] = []
        around = self._within_cells(0) if self.hard else (0.0, 0)
        for depth in range(1, len(self.hard) + 1):
            inner = self._within_cells(depth)
            degrees = inner[1] - around[1]
            known = self._blocks is not None and degrees > 0
            found.append((max(around[0] - inner[0], 0.0) / degrees, degrees) if known else (None, 0))
            around = inner
        return found

    def _within_cells(self, depth: int) -> tuple[float, int]:
        """Residual sum of squares after cells and what trials share, and the rank."""
        # Cells are removed by their means (Frisch & Waugh 1933, Econometrica 1), because there may be a thousand.
        places = {cell: i for i, cell in enumerate(dict.fromkeys(self._cells))}
        codes = np.array([places[cell] for cell in self._cells])
        if self._swept is not None:
            return self._swept.beside(codes, self.y)
        around = np.hstack([self.y[:, None], *self.nuisance(depth)])
        sums = np.zeros((len(places), around.shape[1]))
        np.add.at(sums, codes, around)
        swept = around - (sums / np.bincount(codes)[:, None])[codes]
        rest, columns = swept[:, 0], swept[:, 1:]
        if columns.shape[1] == 0:
            return float(rest @ rest), len(places)
        weights = np.linalg.lstsq(columns, rest, rcond=1e-10)[0]
        left = rest - columns @ weights
        return float(left @ left), len(places) + int(np.linalg.matrix_rank(columns, tol=1e-8))


def _dummies(keys: Sequence[object]) -> Floats:
    """One indicator column per distinct key."""
    places = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    found = np.zeros((len(keys), len(places)))
    found[np.arange(len(keys)), [places[key] for key in keys]] = 1
    return found


def _terms(model: _Model, terms: Sequence[Term], errors: Sequence[_Error]) -> tuple[TermEffect, ...]:
    from scipy.special import fdtrc

    total = float(((model.y - model.y.mean()) ** 2).sum())
    rows: list[tuple[Term, int, float, float | None, int]] = []
    for term in terms:
        depth = model.depth(term)
        variance, degrees = errors[depth]
        # Type II: beyond every term that does not contain this one.
        others = [t for t in terms if t != term and not set(term) <= set(t)]
        without, rank_without, _ = model.fit(others, depth)
        with_it, rank_with, _ = model.fit([*others, term], depth)
        own = rank_with - rank_without
        squares = max(without - with_it, 0.0)
        p = None
        if variance is not None and own:
            ratio = math.inf if variance == 0 else squares / own / variance
            p = float(fdtrc(own, degrees, ratio)) if math.isfinite(ratio) else 0.0
        rows.append((term, own, squares / total if total else 0.0, p, degrees))
    adjusted = iter(holm([p for *_, p, _ in rows if p is not None]))
    return tuple(
        TermEffect(term, own, share, p, next(adjusted) if p is not None else None, degrees)
        for term, own, share, p, degrees in rows
    )


def _singles(model: _Model, terms: Sequence[Term], *, with_rest: bool) -> tuple[Single, ...]:
    """Each model column orthogonalised to all before it (Gram & Schmidt), and any columns that complete the basis:
    regardless of their choice, their lengths are the same noise.
    """
    depth = len(model.hard)
    count = len(model.y)
    parts: list[tuple[Term, Floats]] = [((), model.matrix([], depth))]
    parts += [(term, model.columns(term)) for term in terms if model.depth(term) == depth]
    basis = np.zeros((count, 0))
    found = []
    for place, (term, columns) in enumerate(parts):
        for column in model.beyond(columns).T:
            # Twice, because the first pass leaves rounding errors.
            rest = column - basis @ (basis.T @ column)
            rest -= basis @ (basis.T @ rest)
            length = float(np.linalg.norm(rest))
            if length < 1e-8 * max(float(np.linalg.norm(column)), 1.0):
                continue
            basis = np.column_stack([basis, rest / length])
            if place:
                found.append(Single(term, abs(float(basis[:, -1] @ model.y))))
    if with_rest and basis.shape[1] < count <= MOST_FOR_REST:
        whole = np.linalg.qr(np.hstack([basis, np.eye(count)]))[0]
        found += [Single((), abs(float(c @ model.y))) for c in whole[:, basis.shape[1] : count].T]
    return tuple(found)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values in the order given (Holm 1979)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    worst = 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(values) - place) * values[i]))
        found[i] = worst
    return found


class _Solved:
    """A model of all terms at one depth: linear combinations of its coefficients, and their errors."""

    def __init__(self, model: _Model, terms: Sequence[Term], depth: int) -> None:
        matrix = model.matrix(terms, depth)
        _, _, self.coefficients = model.fit(terms, depth)
        inverse = np.linalg.pinv(matrix)
        self._spread = inverse @ inverse.T
        # A combination is estimable only if this projection leaves it unchanged.
        self._there = inverse @ matrix
        self.places: dict[Term, slice] = {}
        position = 1
        for term in terms:
            width = math.prod(len(model.factors[name]) - 1 for name in term)
            self.places[term] = slice(position, position + width)
            position += width

    def interval(self, term: Term, weights: Floats, error: _Error, alpha: float) -> Interval | None:
        """exp of the weighted coefficients of a term; None if it is not estimable."""
        whole = np.zeros(len(self.coefficients))
        whole[self.places[term]] = weights
        if not np.allclose(whole @ self._there, whole, atol=1e-6):
            return None
        ratio = math.exp(float(whole @ self.coefficients))
        variance, degrees = error
        if variance is None or not weights.any():
            return Interval(ratio, None, None)
        half = t_quantile(degrees, alpha) * math.sqrt(variance * float(whole @ self._spread @ whole))
        return Interval(ratio, scaled(ratio, -half), scaled(ratio, half))


def _levels(
    model: _Model, terms: Sequence[Term], errors: Sequence[_Error], alpha: float
) -> tuple[tuple[LevelEffect, ...], tuple[tuple[str, str], ...]]:
    """The levels of every factor, and those that cannot be compared with the factor's first."""
    comparisons = sum(len(levels) - 1 for levels in model.factors.values())
    solved = {depth: _Solved(model, terms, depth) for depth in range(len(errors))}
    found, unknown = [], []
    for factor, levels in model.factors.items():
        term = (factor,)
        depth = model.depth(term)
        # With sum-to-zero contrasts, marginal means over all cells depend only on the term's own columns.
        rows = _contrasts(len(levels))
        for i, level in enumerate(levels):
            interval = solved[depth].interval(term, rows[i] - rows[0], errors[depth], alpha / comparisons)
            if interval is None:
                unknown.append((factor, level))
                continue
            plain = solved[0].coefficients
            mean = math.exp(plain[0] + rows[i] @ plain[solved[0].places[term]])
            found.append(LevelEffect(factor, level, mean, interval))
    return tuple(found), tuple(unknown)


def _contrasts_of(
    model: _Model, terms: Sequence[Term], errors: Sequence[_Error], alpha: float
) -> tuple[Contrast, ...]:
    own = [t for t in terms if all(len(model.factors[name]) == 2 for name in t)]
    solved = {depth: _Solved(model, terms, depth) for depth in {model.depth(t) for t in own}}
    found = []
    for term in own:
        depth = model.depth(term)
        # The first level is coded 1, the second -1: the product of two has the sign of "both the same".
        weights = np.array([-2.0 if len(term) == 1 else 2.0])
        interval = solved[depth].interval(term, weights, errors[depth], alpha / len(own))
        if interval is not None:
            found.append(Contrast(term, interval))
    return tuple(found)


def _conditionals(model: _Model, terms: Sequence[Term]) -> tuple[Conditional, ...]:
    """Marginal means of every completely measured pair, in both directions."""
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
