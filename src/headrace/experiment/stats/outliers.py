"""Points far from the level on both of their sides: outliers. They are named, and count as far as noise reaches.

Source: Hampel 1974, The influence curve and its role in robust estimation, JASA 69 (medians of neighbours); here
with those before and those after apart, because a new level is no outlier.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Neighbours on each side; so at most this many, less two, are outliers together, and three are a level.
NEIGHBOURS = 3

#: In standard deviations of the noise: how far a point may be from its neighbours before it is moved to there, and
#: from where on it is named.
KEPT, NAMED = 3.0, 5.0


def without(values: Floats) -> Floats:
    """The values (n,), each at most KEPT from the median of the points before it or after it, or between both."""
    low, high, noise = _bounds(values)
    return np.clip(values, low - KEPT * noise, high + KEPT * noise)


def named(values: Floats) -> list[tuple[int, float]]:
    """(place, how far it is from its neighbours, in the unit of values) of every outlier."""
    low, high, noise = _bounds(values)
    away = values - np.clip(values, low, high)
    return [(int(at), float(away[at])) for at in np.flatnonzero(np.abs(away) > NAMED * noise)]


def _bounds(values: Floats) -> tuple[Floats, Floats, float]:
    """The smaller and the larger of the medians of each point's neighbours before and after, and the noise."""
    if len(values) <= NEIGHBOURS:
        return values, values, 0.0
    edge = np.full(NEIGHBOURS, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([edge, values, edge]), NEIGHBOURS)
    before, after = windows[: len(values)], windows[NEIGHBOURS + 1 :]
    both = np.stack([_medians(before), _medians(after)])
    return np.nanmin(both, axis=0), np.nanmax(both, axis=0), _noise(values)


def _medians(windows: Floats) -> Floats:
    """Medians of what is not NaN; NaN where nothing is."""
    found = np.full(len(windows), np.nan)
    some = ~np.isnan(windows).all(axis=1)
    found[some] = np.nanmedian(windows[some], axis=1)
    return found


def _noise(values: Floats) -> float:
    """The standard deviation of a point, from differences between neighbours: levels do not add to it."""
    steps = np.abs(np.diff(values))
    middle = float(np.median(steps)) / 0.6745
    # Where more than half of the points are equal.
    return (middle or float(steps.mean()) * math.sqrt(math.pi / 2)) / math.sqrt(2)
