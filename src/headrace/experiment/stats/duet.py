"""Duets: how much the halves of the machine differ, and how much running side by side reduced noise.

Effects are estimated as in any experiment, paired by block: a duet's block is its pair. This module has what is
specific to duets. In the log of one pair, ``second half / first half = bias + effect``, where the effect is
positive if the treatment had the second half, negative if it had the first, and zero in an A/A pair. Least squares
over all pairs separates the two, because sides are swapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.base.intervals import Interval, scaled, t_quantile
from headrace.base.model import Role
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse


@dataclass(frozen=True)
class Sides:
    """``bias`` is the throughput of the second half relative to the first, regardless of the treatment.

    ``alone`` is how much a trial varied from pair to pair (standard deviation of its log), ``together`` how much
    it varied relative to the other trial of its pair; both per trial, so that they are comparable. None with too
    few pairs.
    """

    pairs: int
    bias: Interval | None
    alone: float | None
    together: float | None

    @property
    def gain(self) -> float | None:
        """The ratio of a trial's variation between pairs to its variation within its pair."""
        return self.alone / self.together if self.alone and self.together else None


@dataclass(frozen=True)
class _Pair:
    """Logs of the throughput of the first and of the second half.

    ``treatment`` ran next to the baseline; ``sign`` is 1 if it had the second half, -1 if the first, 0 in an A/A
    pair.
    """

    first: float
    second: float
    treatment: str
    sign: int


def sides(trials: Sequence[TrialResponse], positions: Mapping[int, int], alpha: float = 0.05) -> Sides | None:
    """``positions`` maps a trial's number to its half, 1 or 2. None without a complete pair."""
    pairs = _pairs(trials, positions)
    if not pairs:
        return None
    treated = list(dict.fromkeys(p.treatment for p in pairs if p.sign))
    design = np.zeros((len(pairs), 1 + len(treated)))
    design[:, 0] = 1
    for row, pair in enumerate(pairs):
        if pair.sign:
            design[row, 1 + treated.index(pair.treatment)] = pair.sign
    ratios = np.array([p.second - p.first for p in pairs])
    found, _, rank, _ = np.linalg.lstsq(design, ratios, rcond=None)
    degrees = len(pairs) - int(rank)
    if degrees < 1 or rank < design.shape[1]:
        return Sides(len(pairs), None, _alone(pairs, 0.0), None)
    variance = float(((ratios - design @ found) ** 2).sum()) / degrees
    error = math.sqrt(variance * float(np.linalg.inv(design.T @ design)[0, 0]))
    half = t_quantile(degrees, alpha) * error
    estimate = math.exp(found[0])
    bias = Interval(estimate, scaled(estimate, -half), scaled(estimate, half))
    # The difference of two trials has twice the variance of one.
    return Sides(len(pairs), bias, _alone(pairs, float(found[0])), math.sqrt(variance / 2))


def _pairs(trials: Sequence[TrialResponse], positions: Mapping[int, int]) -> list[_Pair]:
    by_block: dict[int, dict[int, TrialResponse]] = {}
    for trial in trials:
        if trial.value(THROUGHPUT) is not None and positions.get(trial.number) in (1, 2):
            by_block.setdefault(trial.block, {})[positions[trial.number]] = trial
    found = []
    for _, own in sorted(by_block.items()):
        if len(own) != 2:
            continue
        sign = {(True, False): -1, (False, True): 1}.get(
            (own[1].role is Role.CANDIDATE, own[2].role is Role.CANDIDATE), 0
        )
        treated = own[1] if sign < 0 else own[2]
        logs = [math.log(own[position].throughput_ops_s) for position in (1, 2)]
        found.append(_Pair(logs[0], logs[1], treated.treatment, sign))
    return found


def _alone(pairs: Sequence[_Pair], bias: float) -> float | None:
    """The spread of a trial around the mean of its kind with the same neighbour, corrected for the bias of the
    halves.
    """
    cells: dict[tuple[str, bool], list[float]] = {}
    for pair in pairs:
        # In an A/A pair both sides are the baseline; the second takes the treatment's place.
        has_second = pair.sign >= 0
        cells.setdefault((pair.treatment, has_second), []).append(pair.second - bias / 2)
        cells.setdefault((pair.treatment, not has_second), []).append(pair.first + bias / 2)
    degrees = sum(len(logs) - 1 for logs in cells.values())
    if degrees < 1:
        return None
    squares = sum(float(((np.array(logs) - np.mean(logs)) ** 2).sum()) for logs in cells.values())
    return math.sqrt(squares / degrees)
