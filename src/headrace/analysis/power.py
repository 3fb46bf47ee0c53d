"""What a design can detect, before it runs: the smallest effect that it finds four times out of five."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.analysis import aliasing
from headrace.analysis.intervals import POWER, chance_beyond, t_quantile

#: Spread between trials of the same treatment on a quiet machine. ``plan show --sd`` overrides it.
USUAL_SD = 0.02


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
    """A treatment relative to the baseline, paired by block, as ``compare.paired_effect`` tests it.

    ``treatments`` are all of the design. ``sd``: of the log response between trials.
    """
    level = alpha / max(treatments - baselines, 1)
    # A trial of the treatment relative to the mean of the baseline's two.
    effect = smallest(sd * math.sqrt(1.5 / blocks), blocks - 1, level)
    return Detectable("a treatment relative to the baseline", _ratio(effect), blocks - 1, level)


def of_factors(
    cells: Sequence[Mapping[str, str]],
    terms: Sequence[aliasing.Term],
    hard: Sequence[str],
    blocks: int,
    sd: float,
    alpha: float,
) -> list[Detectable]:
    """Each factor's levels relative to its first, averaged over the others, as ``effects.analyse`` tests it.

    ``cells`` are the treatments of one condition, each once. For a factor with several levels, the least precise
    pair counts.
    """
    levels = aliasing.varying(cells)
    hard = [name for name in hard if name in levels]
    model = aliasing.model_matrix(cells, levels, terms)
    spread = np.linalg.pinv(model.T @ model)
    there = np.linalg.pinv(model) @ model
    level = alpha / sum(len(own) - 1 for own in levels.values())
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
        found.append(Detectable(name, _ratio(effect), degrees, level, name in hard))
    return found


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
    return math.exp(min(effect, 700.0)) if effect is not None else None
