"""What a design can detect, before it runs: the smallest effect that it finds four times out of five."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from headrace.base.intervals import POWER, chance_beyond, t_quantile
from headrace.experiment.stats import additive, aliasing, estimate, whole

#: Studies that tell the estimator's error in a design. More treatments or trials than these tell nothing new.
STUDIES, MOST_TREATMENTS, MOST_SIMULATED = 200, 8, 200


@dataclass(frozen=True)
class Detectable:
    """``ratio`` (above 1) is detected with probability POWER at level ``alpha``, two-sided; None if no degrees of
    freedom are left: one block has no repeats. ``is_least``: the unknown spread between set-ups increases it.
    """

    what: str
    ratio: float | None
    degrees: int
    alpha: float
    is_least: bool = False


def smallest(standard_error: float, degrees: int, alpha: float) -> float | None:
    """The log effect that a two-sided t test at ``alpha`` detects with probability POWER."""
    if degrees < 1:
        return None
    critical = t_quantile(degrees, alpha)
    low, high = 0.0, 2.0
    while chance_beyond(critical, degrees, high) < POWER:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if chance_beyond(critical, degrees, middle) < POWER else (low, middle)
    return high * standard_error


def against_baseline(treatments: int, baselines: int, blocks: int, sd: float, alpha: float) -> Detectable:
    """A treatment relative to the baseline, as ``estimate`` judges it on a machine that nobody disturbs.

    ``treatments`` are all of the design. ``sd``: of the log response between trials.
    """
    level = alpha / max(treatments - baselines, 1)
    own = min(math.ceil(treatments / max(baselines, 1)), MOST_TREATMENTS)
    what = "a treatment relative to the baseline"
    if simulated := _of_estimator((-1.0, 1.0, *(0.0,) * (own - 2)), blocks, level):
        return Detectable(what, _ratio(sd * simulated[0]), simulated[1], level)
    effect = smallest(sd * math.sqrt(1.5 / blocks), blocks - 1, level)
    return Detectable(what, _ratio(effect), blocks - 1, level)


@cache
def _of_estimator(weights: tuple[float, ...], blocks: int, level: float) -> tuple[float, int] | None:
    """The smallest effect that is detected where trials have sd 1 (infinite: none), and the median degrees of
    freedom, by simulated studies. None for one block, and with too many trials to simulate.

    ``weights`` is a contrast of all treatments, the baseline first.
    """
    treatments = len(weights)
    if blocks < 2 or (treatments + 1) * blocks > MOST_SIMULATED:
        return None
    codes = np.tile(np.concatenate([[0], np.arange(treatments)]), blocks)
    places = np.repeat(np.arange(blocks), treatments + 1)
    y = np.random.default_rng(1).normal(0, 1, (STUDIES, len(codes)))
    found = estimate.fit(y, np.zeros(y.shape), np.ones(y.shape, dtype=bool), codes, places)
    contrast = found.contrasts(np.array(weights)[None])
    # An effect shows if it is larger than this, in either direction.
    least = contrast.half_width(level / 2) + np.array([-1, 1]) * contrast.estimate
    least = np.where(np.isfinite(least), least, math.inf)
    effect = float(np.quantile(least, POWER, method="higher"))
    return effect, max(round(float(np.nanmedian(contrast.degrees))), 1)


def of_factors(
    cells: Sequence[Mapping[str, str]],
    terms: Sequence[aliasing.Term],
    hard: Sequence[str],
    blocks: int,
    sd: float,
    alpha: float,
) -> list[Detectable]:
    """Each factor's levels relative to its first, averaged over the others, as ``effects.analyse`` tests it; in a
    whole factorial as ``whole`` does.

    ``cells`` are the treatments of one condition, each once. For a factor with several levels, the least precise
    pair counts.
    """
    levels = aliasing.varying(cells)
    hard = [name for name in hard if name in levels]
    model = aliasing.model_matrix(cells, levels, terms)
    spread = np.linalg.pinv(model.T @ model)
    there = np.linalg.pinv(model) @ model
    level = alpha / sum(len(own) - 1 for own in levels.values())
    is_whole = not hard and len(cells) == math.prod(len(own) for own in levels.values())
    found = []
    position = 1
    for name, own in levels.items():
        rows = aliasing.contrasts(len(own))
        errors = []
        for row in rows[1:]:
            weights = np.zeros(model.shape[1])
            weights[position : position + len(own) - 1] = row - rows[0]
            if np.allclose(weights @ there, weights, atol=1e-6):
                errors.append(sd * math.sqrt(float(weights @ spread @ weights) / blocks))
        position += len(own) - 1
        degrees = _degrees(cells, hard, name, blocks)
        effect = smallest(max(errors), degrees, level) if errors else None
        if is_whole and (simulated := _of_whole(_frozen(cells, levels), name, blocks, alpha)):
            effect, degrees = sd * simulated[0], simulated[1]
        found.append(Detectable(name, _ratio(effect), degrees, level, name in hard))
    return found


_Cells = tuple[tuple[tuple[str, str], ...], ...]


def _frozen(cells: Sequence[Mapping[str, str]], levels: Mapping[str, Sequence[str]]) -> _Cells:
    return tuple(tuple((name, cell[name]) for name in levels) for cell in cells)


@cache
def _of_whole(cells: _Cells, name: str, blocks: int, alpha: float) -> tuple[float, int] | None:
    """As ``_of_estimator``, of the second level of a factor as ``whole`` tests it."""
    own = [dict(cell) for cell in cells]
    levels = aliasing.varying(own)
    codes = np.tile([0, *range(len(own))], blocks)
    layout = additive.Layout(
        additive.rows_of(levels, own, with_pairs=False), codes, np.repeat(np.arange(blocks), len(own) + 1)
    )
    if blocks < 2 or len(codes) > MOST_SIMULATED or layout.degrees < additive.MIN_DEGREES:
        return None
    weights = whole.of_levels(levels, own)
    y = np.random.default_rng(1).normal(0, 1, (STUDIES, len(codes)))
    found = additive.fit(y, np.zeros(y.shape), layout, weights).contrasts(weights)
    place = sum(len(levels[each]) - 1 for each in list(levels)[: list(levels).index(name)])
    half = found.half_width(alpha * whole.MAIN / len(weights) / 2)[:, place]
    least = half[:, None] + np.array([-1, 1]) * found.estimate[:, [place]]
    return float(np.quantile(least, POWER, method="higher")), layout.degrees


def _degrees(cells: Sequence[Mapping[str, str]], hard: Sequence[str], name: str, blocks: int) -> int:
    """Degrees of freedom of the error: between set-ups for a hard factor; of trials within cells and set-ups for
    others.
    """

    def plots(depth: int) -> int:
        return len({tuple(cell[h] for h in hard[:depth]) for cell in cells})

    if name in hard:
        depth = hard.index(name)
        return (blocks - 1) * (plots(depth + 1) - plots(depth))
    return (blocks - 1) * (len(cells) - plots(len(hard)))


def _ratio(effect: float | None) -> float | None:
    return math.exp(min(effect, 700.0)) if effect is not None and math.isfinite(effect) else None
