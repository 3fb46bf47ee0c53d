"""Difference in differences of logs: treated hosts against control hosts, after a change against before.

The unit is a host in a block of time. Two things make a change look larger than it is: hosts differ in how they
respond, and what moves all of them comes in waves. So there are two standard errors: between hosts (Student's t,
Welch's with controls), and between blocks, corrected for autocorrelation. The wider interval counts.

Source: Bertrand, Duflo & Mullainathan 2004, How much should we trust differences-in-differences estimates?, QJE
119 (pooled points are not replicates; few groups need t); Zwiers & von Storch 1995, J. Climate 8 (equivalent
sample size of an autocorrelated mean).

One changed host has no spread between hosts, and what it does by itself at that moment is in no block. It is one
more draw of what hosts do, as are its controls, so the spread of the controls' own changes is a third standard
error. Earlier weeks as controls are the same: what happened to all hosts this week is in no other week.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Places = NDArray[np.int64]

#: A host counts with data in this share of the blocks of each side, a block with data of this share of the hosts.
MIN_PRESENT = 0.5
#: Autocorrelation beyond this leaves no usable number of independent blocks.
MOST_CORRELATION = 0.95
#: Blocks on each side, for an interval over blocks.
MIN_BLOCKS = 3
#: Independent blocks beyond the two means; with fewer, the autocorrelation is a guess.
MIN_DEGREES = 3.0


@dataclass(frozen=True)
class Error:
    """A standard error in logs, its degrees of freedom and what it is over."""

    value: float
    degrees: float
    over: str


@dataclass(frozen=True, eq=False)
class Contrast:
    """``log`` is the estimate, ``half`` the interval's half-width (None if none is possible), ``error`` the one
    that decides. ``levels`` are the treated hosts' mean logs (hosts, 2) before and after; ``treated`` and
    ``control`` say which hosts count, ``blocks`` which blocks; ``control_log`` is the change of the controls.
    ``correlation`` is that of neighbouring blocks, at the upper end of its own uncertainty.
    """

    log: float
    control_log: float
    half: float | None
    error: Error | None
    levels: Floats
    treated: Bools
    control: Bools
    blocks: Bools
    correlation: float


@dataclass(frozen=True, eq=False)
class _Group:
    """``levels`` (hosts, 2); ``wave`` (blocks,), the mean of the hosts in each block."""

    levels: Floats
    wave: Floats

    @property
    def changes(self) -> Floats:
        found: Floats = self.levels[:, 1] - self.levels[:, 0]
        return found


def contrast(
    treated: Floats,
    control: Floats,
    is_after: Bools,
    alpha: float,
    *,
    correlation: float = 0.0,
    is_weeks: bool = False,
) -> Contrast | None:
    """The change of ``treated`` relative to ``control``, both (hosts, blocks) with NaN for gaps; ``control`` may
    have no hosts. ``correlation`` is the least to assume of neighbouring blocks. ``is_weeks``: the rows of
    ``control`` are earlier weeks; without two of them there is no interval. A single treated host with fewer than
    two controls has an interval over blocks only. None without a host that has data on both sides.
    """
    has, had = _present(treated, is_after), _present(control, is_after)
    if not has.any() or (len(control) and not had.any()):
        return None
    blocks = _shared(treated[has]) & (_shared(control[had]) if had.any() else True)
    sides = is_after[blocks]
    if not sides.any() or sides.all():
        return None
    first = _group(treated[has][:, blocks], sides)
    second = _group(control[had][:, blocks], sides) if had.any() else None
    control_log = float(second.changes.mean()) if second else 0.0
    log = float(first.changes.mean()) - control_log
    wave = first.wave - (second.wave if second else 0.0)
    places = np.flatnonzero(blocks)
    over_blocks, correlation = _over_blocks(wave, sides, places, correlation)
    over_hosts = _over_hosts(first, second, sides, places, correlation)
    errors = [over_hosts, over_blocks]
    if is_weeks:
        own = _over_draws(second, "weeks")
        errors = [*errors, own] if own else []
    elif over_blocks and len(first.levels) < 2:
        # Beside the blocks, never instead of them: waves of this host alone are in no control.
        errors.append(_over_draws(second, "controls"))
    halves = [(t_quantile(error.degrees, alpha) * error.value, error) for error in errors if error]
    half, error = max(halves, key=lambda pair: pair[0]) if halves else (None, None)
    levels = np.full((len(treated), 2), np.nan)
    levels[has] = first.levels
    return Contrast(log, control_log, half, error, levels, has, had, blocks, correlation)


def _present(y: Floats, is_after: Bools) -> Bools:
    known = np.isfinite(y)
    # Blocks without data of any host are gaps of the source, not of a host.
    some = known.any(axis=0)
    found = np.ones(len(y), dtype=np.bool_)
    for side in (some & ~is_after, some & is_after):
        found &= known[:, side].sum(axis=1) >= max(MIN_PRESENT * side.sum(), 1)
    return found


def _shared(y: Floats) -> Bools:
    found: Bools = np.isfinite(y).mean(axis=0) >= MIN_PRESENT
    return found


def _group(y: Floats, is_after: Bools) -> _Group:
    levels, wave = np.zeros((len(y), 2)), np.zeros(y.shape[1])
    for i, side in enumerate((~is_after, is_after)):
        own, common = _additive(y[:, side])
        levels[:, i] = own
        wave[side] = own.mean() + common
    return _Group(levels, wave)


def _additive(y: Floats) -> tuple[Floats, Floats]:
    """Each host's level and each block's common deviation: what a gap hides does not move its host's level."""
    known = np.isfinite(y)
    if known.all():
        levels = y.mean(axis=1)
        return levels, (y - levels[:, None]).mean(axis=0)
    filled = np.where(known, y, 0.0)
    per_host, per_block = np.maximum(known.sum(axis=1), 1), np.maximum(known.sum(axis=0), 1)
    levels, common = filled.sum(axis=1) / per_host, np.zeros(y.shape[1])
    for _ in range(50):
        common = (np.where(known, y - levels[:, None], 0.0)).sum(axis=0) / per_block
        common -= common.mean()
        new = np.where(known, y - common, 0.0).sum(axis=1) / per_host
        moved = float(np.abs(new - levels).max())
        levels = new
        if moved < 1e-9:
            break
    return levels, common


def _over_hosts(
    first: _Group, second: _Group | None, is_after: Bools, places: Places, correlation: float
) -> Error | None:
    """Student's t over the treated hosts; with controls Welch's. A single control has no spread between hosts: its
    own waves stand in for it.
    """
    n = len(first.levels)
    if n < 2:
        return None
    parts = [(float(first.changes.var(ddof=1)) / n, n - 1.0)]
    if second is not None and len(second.levels) > 1:
        m = len(second.levels)
        parts.append((float(second.changes.var(ddof=1)) / m, m - 1.0))
    elif second is not None:
        own, _ = _over_blocks(second.wave, is_after, places, correlation)
        if own is None:
            return None
        parts.append((own.value**2, own.degrees))
    total = math.fsum(part for part, _ in parts)
    if not total > 0:
        return Error(0.0, parts[0][1], "hosts")
    degrees = total**2 / math.fsum(part**2 / own for part, own in parts)
    return Error(math.sqrt(total), degrees, "hosts")


def _over_draws(second: _Group | None, over: str) -> Error | None:
    """What this week, or this host, would have done without the change is one more draw of what weeks or hosts do:
    a prediction, whose error does not vanish with many of them. None with fewer than two.
    """
    if second is None or len(second.levels) < 2:
        return None
    m = len(second.levels)
    return Error(math.sqrt(float(second.changes.var(ddof=1)) * (1 + 1 / m)), m - 1.0, over)


def _over_blocks(wave: Floats, is_after: Bools, places: Places, least: float) -> tuple[Error | None, float]:
    """The error of the difference of the sides' means, and the correlation of neighbouring blocks.

    With autocorrelation rho, n blocks are worth n / f, f = (1 + rho) / (1 - rho). The sides' means take up what
    2 f blocks are worth, also of the sum of squares.
    """
    counts = [int((~is_after).sum()), int(is_after.sum())]
    if min(counts) < MIN_BLOCKS:
        return None, 0.0
    rest = np.where(is_after, wave - wave[is_after].mean(), wave - wave[~is_after].mean())
    squares, total = float((rest**2).sum()), sum(counts)
    if not squares > 1e-24:
        return Error(0.0, total - 2.0, "blocks"), 0.0
    near = (np.diff(places) == 1) & (is_after[1:] == is_after[:-1])
    rho = max(correlation_of(rest, near, sides=2), least)
    degrees = total * (1 - rho) / (1 + rho) - 2
    if degrees < MIN_DEGREES:
        return None, rho
    variance = squares / degrees * (1 / counts[0] + 1 / counts[1])
    return Error(math.sqrt(variance), degrees, "blocks"), rho


def correlation_of(rest: Floats, near: Bools, sides: int) -> float:
    """The correlation of neighbouring blocks, at the upper end of its own uncertainty. ``rest``: deviations from
    the means of so many ``sides``; ``near``: which of them have the next one as a neighbour on the same side.
    """
    pairs, total = int(near.sum()), len(rest)
    rho, squares = 0.0, float((rest**2).sum())
    if pairs >= 2 and squares > 0:
        rho = float((rest[1:] * rest[:-1])[near].sum()) / pairs / (squares / total)
        # The estimate is too low by about (1 + 4 rho) / n a side (Marriott & Pope 1954, Biometrika 41).
        rho += (1 + 4 * max(rho, 0.0)) * sides / total
        # It is itself uncertain, and an underestimate costs coverage: its upper end by one standard error.
        rho += math.sqrt(max(1 - rho**2, 0.0) / pairs)
    return min(max(rho, 0.0), MOST_CORRELATION)
