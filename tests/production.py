"""Simulated fleets whose true change is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.change.panel import Window
from headrace.change.production import Series

#: Buckets 4.7% wide, as those of performance_schema.
EDGES_NS = np.concatenate(([0.0], 1e5 * 1.0471 ** np.arange(160), [np.inf]))
CELL_S = 300.0
AT_S = 1_772_000_000.0
FINE_NS = np.concatenate(([0.0], 1e5 * 1.008 ** np.arange(900), [np.inf]))


def window(before: int, after: int) -> Window:
    """So many stretches on each side of the change."""
    return Window(AT_S, AT_S, AT_S, AT_S - before * CELL_S, AT_S + after * CELL_S)


def fleet(
    rng: np.random.Generator,
    hosts: Sequence[str],
    cells: tuple[int, int],
    *,
    effect: float = 0.0,
    changed: Sequence[str] = (),
    mix: tuple[Sequence[float], Sequence[float]] = ((1.0,), (1.0,)),
    medians_ms: Sequence[float] = (2.0,),
    calls: float = 20_000,
    common: float = 0.1,
    own: float = 0.05,
    spread: float = 0.02,
    carried: float = 0.5,
    edges: NDArray[np.float64] = EDGES_NS,
) -> list[Series]:
    """Log-normal latencies with waves: ``common`` to all hosts, and each host's ``own``.

    ``carried`` is the correlation of neighbouring stretches, ``effect`` the log of the true ratio on the
    ``changed`` hosts; all hosts vary by ``spread``. ``mix`` is the share of each class before and after.
    """
    n = sum(cells)
    is_after = np.arange(n) >= cells[0]
    shared = common * waves(rng, 1, n, carried)[0]
    start: NDArray[np.float64] = AT_S + CELL_S * (np.arange(n, dtype=np.float64) - cells[0])
    end: NDArray[np.float64] = start + CELL_S
    found = []
    for host in hosts:
        moved = effect + spread * rng.standard_normal() if host in changed else spread * rng.standard_normal()
        wave = shared + own * waves(rng, 1, n, carried)[0] + is_after * moved
        for c, median in enumerate(medians_ms):
            share = np.where(is_after, mix[1][c], mix[0][c])
            center = np.log(median * 1e6) + wave
            with np.errstate(divide="ignore"):
                z = (np.log(edges)[None, :] - center[:, None]) / 0.6
            cdf = 1 / (1 + np.exp(-1.702 * z))
            counts = rng.poisson(calls * share[:, None] * np.diff(cdf, axis=1)).astype(float)
            name = f"class {c}" if len(medians_ms) > 1 else ""
            found.append(Series(host, name, start, end, edges, counts))
    return found


def waves(rng: np.random.Generator, rows: int, n: int, carried: float) -> NDArray[np.float64]:
    noise: NDArray[np.float64] = rng.standard_normal((rows, n)) * np.sqrt(1 - carried**2)
    noise[:, 0] /= np.sqrt(1 - carried**2)
    for i in range(1, n):
        noise[:, i] += carried * noise[:, i - 1]
    return noise
