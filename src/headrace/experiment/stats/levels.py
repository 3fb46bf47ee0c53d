"""Series cut into levels: the best cuts for each number of changes, and how well they explain many series at once.

Used by ``history``, which compares one series with thousands of noise series; so everything here is for N series
of n points at once, in log units.

How well: twice the log-likelihood of levels with noise of which each point carries a share over to the next, the
share that suits the series best. A run of like points is then either a level or noise that carries over, and a
level has to explain more than the latter does.

Sources: Auger & Lawrence 1989, Algorithms for the optimal identification of segment neighborhoods, Bulletin of
Mathematical Biology 51; Chakar, Lebarbier, Lévy-Leduc & Robin 2017, A robust approach for estimating change-points
in the mean of an AR(1) process, Bernoulli 23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

#: One point is not a level; two between others are not, either (``outliers``).
MIN_LEVEL, INNER_LEVEL = 2, 3

#: Places where a change is looked for; a longer stretch has them at equal distances, and all of the last LATEST.
MOST_PLACES, LATEST = 80, 8

#: How often each of several cuts is moved to its best place: it depends on where the others are.
SWEEPS = 2

#: Most changes of a stretch that are looked for together.
MOST_CHANGES = 6

#: The largest autocorrelation from one point to the next.
MOST_CARRIED = 0.9

#: Memory for the candidates of one batch of series.
BATCH_BYTES = 1 << 22


def most_changes(points: int) -> int:
    """How many changes a stretch of so many points may have: each level has four points on average."""
    return max(1, min(MOST_CHANGES, points // 4 - 1))


def places(points: int) -> Places:
    """Where a level may begin."""
    every = np.arange(MIN_LEVEL, points - MIN_LEVEL + 1)
    if len(every) <= MOST_PLACES:
        return every
    spread = np.linspace(0, len(every) - 1, MOST_PLACES - LATEST).round().astype(int)
    latest = np.arange(len(every) - LATEST, len(every))
    return np.asarray(every[np.unique(np.concatenate([spread, latest]))])


def paths(series: Floats, most: int) -> list[Places]:
    """For each number of changes k up to ``most`` the cuts (N, k) that leave the least squares, ascending."""
    at = np.concatenate([[0], places(series.shape[1]), [series.shape[1]]])
    batch = max(1, BATCH_BYTES // (8 * len(at) ** 2))
    found = [_paths(series[i : i + batch], at, most) for i in range(0, len(series), batch)]
    cuts = [np.concatenate([part[k] for part in found]) for k in range(most + 1)]
    reach = int(np.diff(at).max())
    if reach > MIN_LEVEL:
        for each in cuts[1:]:
            _move(series, each, reach)
    return cuts


def _move(series: Floats, cuts: Places, reach: int) -> None:
    """Moves the cuts (N, k) of each series to the best places within ``reach``, in place.

    Before anything is tested: a cut that is off by a few points leaves them to a second one, which has no match in
    noise without levels.
    """
    count, n = series.shape
    sums = np.zeros((count, n + 1))
    np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    rows = np.arange(count)[:, None]
    changes = cuts.shape[1]
    for number in [*range(changes)] * SWEEPS:
        low = cuts[:, number - 1] if number else np.zeros(count, dtype=int)
        high = cuts[:, number + 1] if number + 1 < changes else np.full(count, n)
        first = low + (INNER_LEVEL if number else MIN_LEVEL)
        last = high - (INNER_LEVEL if number + 1 < changes else MIN_LEVEL)
        near = cuts[:, number, None] + np.arange(-reach, reach + 1)
        inside = (near >= first[:, None]) & (near <= last[:, None])
        near = np.where(inside, near, cuts[:, number, None])
        start, middle, end = sums[rows, low[:, None]], sums[rows, near], sums[rows, high[:, None]]
        before, after = np.maximum(near - low[:, None], 1), np.maximum(high[:, None] - near, 1)
        explained = (middle - start) ** 2 / before + (end - middle) ** 2 / after
        cuts[:, number] = near[rows[:, 0], explained.argmax(axis=1)]


def _paths(series: Floats, at: Places, most: int) -> list[Places]:
    centred = series - series.mean(axis=1, keepdims=True)
    sums = np.concatenate([np.zeros((len(series), 1)), np.cumsum(centred, axis=1)], axis=1)[:, at]
    length = (at[None, :] - at[:, None]).astype(float)
    inside = (at[:, None] > 0) & (at[None, :] < at[-1])
    length[length < np.where(inside, INNER_LEVEL, MIN_LEVEL)] = np.inf
    # explained[:, b, a]: the squares that one level from a to b explains.
    explained = (sums[:, :, None] - sums[:, None, :]) ** 2 / length.T[None]
    explained[:, np.isinf(length.T)] = -np.inf
    best = explained[:, :, 0]
    origins: list[Places] = []
    for _ in range(most):
        total = explained + best[:, None, :]
        origins.append(total.argmax(axis=2))
        best = np.take_along_axis(total, origins[-1][:, :, None], axis=2)[:, :, 0]
    rows = np.arange(len(series))
    found = [np.empty((len(series), 0), dtype=int)]
    for changes in range(1, most + 1):
        cuts = np.empty((len(series), changes), dtype=int)
        end = np.full(len(series), len(at) - 1)
        for k in range(changes - 1, -1, -1):
            end = origins[k][rows, end]
            cuts[:, k] = at[end]
        found.append(cuts)
    return found


def residuals(series: Floats, cuts: Places) -> Floats:
    """Each series (N, n) less the means of its levels, which ``cuts`` (N, changes) separate."""
    count, n = series.shape
    level = np.zeros((count, n), dtype=int)
    rows = np.arange(count)
    for k in range(cuts.shape[1]):
        # Where a stretch is too short for so many changes, cuts fall together, or outside.
        inside = cuts[:, k] < n
        level[rows[inside], cuts[inside, k]] += 1
    level = level.cumsum(axis=1) + rows[:, None] * (cuts.shape[1] + 1)
    size = count * (cuts.shape[1] + 1)
    sums = np.bincount(level.ravel(), series.ravel(), size)
    counts = np.bincount(level.ravel(), minlength=size)
    return np.asarray(series - (sums / np.maximum(counts, 1))[level])


def autocorrelation(left: Floats) -> Floats:
    """Of residuals (N, n), at a distance of one point."""
    products = (left[:, 1:] * left[:, :-1]).sum(axis=1)
    return np.asarray(products / np.maximum((left**2).sum(axis=1), 1e-300))


def likelihood(left: Floats, *, is_independent: bool) -> Floats:
    """Twice the log-likelihood (N,) of residuals (N, n), up to a constant of the series."""
    n = left.shape[1]
    squares = (left**2).sum(axis=1)
    if is_independent:
        return np.asarray(-n * np.log(np.maximum(squares, 1e-300)))
    products = (left[:, 1:] * left[:, :-1]).sum(axis=1)
    inner = (left[:, 1:-1] ** 2).sum(axis=1)
    share = np.clip(products / np.maximum(inner, 1e-300), 0.0, MOST_CARRIED)
    rest = squares + share**2 * inner - 2 * share * products
    return np.asarray(np.log1p(-(share**2)) - n * np.log(np.maximum(rest, 1e-300)))
